//! Actions on the machine as a whole: it is watched over, and started anew.

use std::{
    ffi::CStr,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    time::Duration,
};

use nix::{
    libc,
    sys::{
        mman::{MlockAllFlags, mlockall},
        reboot::{RebootMode, reboot},
        stat::stat,
    },
    time::{ClockId, clock_gettime},
    unistd::{chdir, chroot, fchdir},
};

// In /proc. It ends with a zero, so that no path which begins with it can be seen in the program (hack/lib.sh, own_paths).
const ROOT_OF_INIT: &CStr = c"1/root";

// Seconds from a panic to the reboot; 0 is for ever.
const PANIC: &str = "/proc/sys/kernel/panic";
// The value that the boot rule has on the command line of a trial.
const PANIC_SECONDS: &str = "10";

/// Files of the kernel, for when nothing else can be opened any more.
pub struct Kernel {
    proc: File,
    sysrq: Option<File>,
}

impl Kernel {
    pub fn open() -> io::Result<Self> {
        let proc = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open("/proc")?;
        // Not in containers, where it is read-only.
        Ok(Kernel { proc, sysrq: OpenOptions::new().write(true).open("/proc/sysrq-trigger").ok() })
    }

    /// Time since the kernel started, suspended or not.
    pub fn uptime() -> Duration {
        // Cannot fail: every kernel has this clock.
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
    }

    /// Start the machine anew at once: no program is asked, no file system is written. Comes back only if that fails.
    pub fn reboot() -> io::Error {
        match reboot(RebootMode::RB_AUTOBOOT) {
            Err(e) => e.into(),
            Ok(never) => match never {},
        }
    }

    /// Start a machine anew whose kernel hangs while it stops its devices.
    pub fn force(&self) -> io::Result<()> {
        let mut sysrq = self.sysrq.as_ref().ok_or_else(|| io::Error::other("/proc/sysrq-trigger cannot be opened"))?;
        sysrq.write_all(b"b")
    }

    /// Go where process 1 is. A program that was started in an initramfs is left behind when the system moves on to its
    /// root, and sees neither its /dev nor its /proc any more. Only root can, and only a program that was left behind
    /// has to.
    pub fn follow_init(&self) -> io::Result<()> {
        let own = fs::metadata("/")?;
        fchdir(&self.proc)?;
        let init = stat(ROOT_OF_INIT)?;
        if (init.st_dev, init.st_ino) != (own.dev(), own.ino()) {
            chroot(ROOT_OF_INIT)?;
        }
        Ok(chdir("/")?)
    }
}

/// Have the kernel start the machine anew when it panics, unless it does so already.
pub fn reboot_on_panic() -> io::Result<()> {
    if fs::read_to_string(PANIC)?.trim() == "0" { fs::write(PANIC, PANIC_SECONDS) } else { Ok(()) }
}

/// Keep this process going when the rest of the machine does not: it stays in memory when its disk is gone, is not
/// chosen when memory runs out, and runs before programs that never stop. Steps that are not allowed are skipped.
pub fn harden() -> Vec<String> {
    let mut lacks = Vec::new();
    // Pages that exist are read in; later ones are kept once they are used.
    let locked = mlockall(MlockAllFlags::MCL_CURRENT)
        .and_then(|()| mlockall(MlockAllFlags::MCL_FUTURE | MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT)));
    if let Err(e) = locked {
        lacks.push(format!("cannot be locked in memory: {e}"));
    }
    if let Err(e) = fs::write("/proc/self/oom_score_adj", "-1000") {
        lacks.push(format!("may be killed when memory runs out: {e}"));
    }
    if let Err(e) = realtime() {
        lacks.push(format!("has no realtime priority: {e}"));
    }
    lacks
}

/// The calling thread only. It sleeps almost always.
#[expect(unsafe_code, reason = "nix has no sched_setscheduler")]
fn realtime() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: sched_setscheduler(2) only reads `param`.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A hardware watchdog (Documentation/watchdog/watchdog-api.rst). It resets the machine once it is not fed for its own
/// time. If this is dropped it runs on.
pub struct Watchdog(File);

impl Watchdog {
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).open(path).map(Watchdog)
    }

    pub fn feed(&mut self) -> io::Result<()> {
        self.0.write_all(b"\0")
    }

    /// Stop it, if its driver can.
    pub fn release(mut self) -> io::Result<()> {
        self.0.write_all(b"V")
    }
}
