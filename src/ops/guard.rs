//! Watches over a trial from outside of all else that runs: if it is not confirmed in time, the machine starts anew, and
//! the boot loader goes back to the system before.
//!
//! Each action that may hang has a thread of its own: looking at the disk, and the reboot itself. The thread that keeps
//! the time touches neither a disk nor a file.

mod linux_platform;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use anyhow::anyhow;
use slipway_core::{
    boot::{
        env::BootEnv,
        loader_variable::{self, BootWords, NotBelieved},
        running::{self, Trial},
        trial::{Next, next},
    },
    report::{FailureKind, GuardReport, Observer},
};

use crate::{
    device::mount_efivarfs,
    error::{Failure, OrFail as _},
    machine::{self, Kernel, Watchdog},
};
use linux_platform::LinuxPlatform;

/// Options of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardRequest {
    /// None: the disk that the system was booted from.
    pub disk: Option<PathBuf>,
    /// Since the start of the kernel. None: the one on the kernel command line, or else ten minutes.
    pub deadline: Option<Duration>,
    /// A watchdog to feed meanwhile.
    pub watchdog: Option<PathBuf>,
}

const NOT_MOUNTED: &str = "the variables of the firmware, which say whether this is a trial, cannot be mounted";
const NO_EFIVARFS: &str = "this kernel does not show the variables of the firmware, which say whether this is a trial: if it is \
    one, nothing guards it, and it cannot be confirmed; give the kernel efivarfs (CONFIG_EFIVAR_FS), and leave out efi=noruntime";
const NOT_BELIEVED: &str = "if this is a trial, nothing guards it, and it cannot be confirmed";

/// Durations of its parts.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Interval between two looks at the boot state.
    pub look: Duration,
    /// For recording why, at the deadline.
    pub record: Duration,
    /// For writing out the programs' data.
    pub sync: Duration,
    /// For the kernel to stop its devices.
    pub reboot: Duration,
}

const TIMES: Times = Times {
    look: Duration::from_secs(3),
    record: Duration::from_secs(20),
    sync: Duration::from_secs(5),
    reboot: Duration::from_secs(20),
};

/// The calls of the guard. Each may block for ever, except `uptime`, `feed` and `force`.
pub trait GuardPlatform: Send + Sync + 'static {
    fn uptime(&self) -> Duration;
    /// The boot state; `None` if it cannot be read.
    fn look(&self) -> Option<BootEnv>;
    /// Record that the trial was not confirmed in time.
    fn record(&self) -> Result<(), String>;
    fn sync(&self);
    /// Comes back only if it fails.
    fn reboot(&self) -> io::Error;
    fn force(&self) -> io::Result<()>;
    fn feed(&self);
}

/// The replies of the thread that may hang.
enum WorkerReply {
    Looked(Option<Box<BootEnv>>),
    Recorded(Result<(), String>),
    Synced,
}

/// The deadline, and the fault of the one on the kernel command line: a trial is guarded in any case.
pub fn deadline(asked: Option<Duration>, cmdline: &str) -> (Duration, Option<String>) {
    let default = Duration::from_secs(600);
    match (asked, running::deadline(cmdline)) {
        (Some(asked), _) => (asked, None),
        (None, None) => (default, None),
        (None, Some(word)) => match humantime::parse_duration(word) {
            Ok(time) if !time.is_zero() => (time, None),
            _ => (default, Some(format!("slipway.deadline={word} is no time such as 90s or 10m: it is 10m"))),
        },
    }
}

pub fn run(request: &GuardRequest, observer: &mut dyn Observer) -> Result<GuardReport, Failure> {
    let cmdline = cmdline(super::boot_words, mount_efivarfs)?;
    let Some(trial) = Trial::from_cmdline(&cmdline) else {
        return Ok(GuardReport { slot: None, why: "the running system is no trial".to_owned() });
    };
    if !running::says_what_a_panic_does(&cmdline)
        && let Err(e) = machine::reboot_on_panic()
    {
        observer.note(&format!("a kernel that panics will not start anew: {e}"));
    }
    let (deadline, wrong) = deadline(request.deadline, &cmdline);
    wrong.iter().for_each(|wrong| observer.note(wrong));
    let kernel = Kernel::open().or_fail(FailureKind::Environment)?;
    let watchdog =
        request.watchdog.as_ref().map(|path| Watchdog::open(path).map_err(|e| anyhow!("{}: {e}", path.display())));
    let watchdog = watchdog.transpose().or_fail(FailureKind::Environment)?;
    machine::harden().iter().for_each(|lack| observer.note(&format!("the guard {lack}")));
    let eye = Arc::new(LinuxPlatform::new(kernel, trial, deadline, request.disk.clone(), watchdog));
    let secs = deadline.saturating_sub(eye.uptime()).as_secs();
    observer
        .note(&format!("slot {} is on trial: if it is not confirmed within {secs} s, the machine reboots", trial.slot));
    let why = watch(&eye, trial, deadline, TIMES, observer).or_fail(FailureKind::Environment)?;
    eye.release();
    Ok(GuardReport { slot: Some(trial.slot), why: why.to_owned() })
}

/// With the UEFI loader's variable, which an initramfs cannot see before it has mounted the firmware's variables. If
/// they cannot be seen, it is an error: this may be a trial. If they never can, it is another error, for which systemd
/// does not start the guard again (`RestartPreventExitStatus` of its unit). A variable that does not count is such an
/// error, too.
pub fn cmdline(
    mut read: impl FnMut() -> Result<BootWords, Failure>,
    mount: impl FnOnce() -> io::Result<()>,
) -> Result<String, Failure> {
    let mut words = read()?;
    if !loader_variable::says_where_from(&words.line) && words.not_believed.is_none() {
        mount().map_err(|e| {
            let (kind, what) = match e.kind() {
                io::ErrorKind::Unsupported => (FailureKind::Unsupported, NO_EFIVARFS),
                _ => (FailureKind::Environment, NOT_MOUNTED),
            };
            Failure { kind, error: anyhow::Error::new(e).context(what) }
        })?;
        // Another program may have mounted them since they were looked for.
        words = read()?;
    }
    // No machine is rebooted for a trial that may be none. An unreadable variable may be readable later; the other
    // errors stay as long as the machine runs.
    let kind = |doubt: &NotBelieved| match doubt {
        NotBelieved::Unreadable(_) => FailureKind::Environment,
        NotBelieved::Attributes(_) | NotBelieved::Words => FailureKind::Unsupported,
    };
    match words.not_believed {
        None => Ok(words.line),
        Some(doubt) => Err(Failure { kind: kind(&doubt), error: anyhow::Error::new(doubt).context(NOT_BELIEVED) }),
    }
}

/// Until the trial is over, which is why it returns; or it fails to reboot.
pub fn watch<H: GuardPlatform>(
    platform: &Arc<H>,
    trial: Trial,
    deadline: Duration,
    times: Times,
    observer: &mut dyn Observer,
) -> anyhow::Result<&'static str> {
    // Both are started while there still is memory for them.
    let ((ask, asked), (reply, replies)) = (channel(), channel());
    let (reboot, rebooting) = (channel(), channel());
    thread::Builder::new().spawn({
        let platform = Arc::clone(platform);
        move || look_and_record(&*platform, times.look, &asked, &reply)
    })?;
    thread::Builder::new().spawn({
        let platform = Arc::clone(platform);
        move || {
            if reboot.1.recv().is_ok() {
                let _ = rebooting.0.send(platform.reboot());
            }
        }
    })?;
    let mut env = None;
    loop {
        platform.feed();
        match next(trial.slot, env.as_deref(), platform.uptime(), deadline) {
            Next::Done(why) => return Ok(why),
            Next::Wait(left) => match replies.recv_timeout(left.min(times.look)) {
                // The last boot state counts until another is seen.
                Ok(WorkerReply::Looked(seen)) => env = seen.or(env),
                Err(RecvTimeoutError::Disconnected) => thread::sleep(left.min(times.look)),
                _ => {}
            },
            Next::Reboot => break,
        }
    }
    observer.note(&format!("slot {} is not confirmed: the machine reboots", trial.slot));
    if ask.send(()).is_ok() {
        end(&replies, times, observer);
    }
    let _ = reboot.0.send(());
    let why = match rebooting.1.recv_timeout(times.reboot) {
        Ok(error) => error.to_string(),
        Err(_) => "the kernel hangs while it stops its devices".to_owned(),
    };
    observer.note(&format!("{why}: the machine is reset"));
    platform.force()?;
    Err(anyhow!("the machine cannot be reset: {why}"))
}

fn look_and_record(platform: &dyn GuardPlatform, every: Duration, asked: &Receiver<()>, replies: &Sender<WorkerReply>) {
    loop {
        if replies.send(WorkerReply::Looked(platform.look().map(Box::new))).is_err() {
            return;
        }
        match asked.recv_timeout(every) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) => break,
        }
    }
    let _ = replies.send(WorkerReply::Recorded(platform.record()));
    platform.sync();
    let _ = replies.send(WorkerReply::Synced);
}

/// Wait for the record and for pending writes, each for its time at most.
fn end(replies: &Receiver<WorkerReply>, times: Times, observer: &mut dyn Observer) {
    loop {
        match replies.recv_timeout(times.record) {
            Ok(WorkerReply::Looked(_)) => {}
            Ok(WorkerReply::Recorded(Ok(()))) => break,
            Ok(WorkerReply::Recorded(Err(e))) => {
                observer.note(&format!("why is not recorded on the disk: {e}"));
                break;
            }
            Ok(WorkerReply::Synced) => return,
            Err(_) => return observer.note("why is not recorded on the disk: it does not answer"),
        }
    }
    if replies.recv_timeout(times.sync).is_err() {
        observer.note("not all that programs have written is on their disks");
    }
}
