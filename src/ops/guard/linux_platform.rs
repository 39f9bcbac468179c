//! The guard's view of the real machine.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use nix::unistd::sync;
use slipway_core::{
    boot::{
        env::{BootEnv, PATHS},
        env_block::SECTOR_BLOCK_BYTES,
        running::Trial,
        trial::{Failed, waits_for},
    },
    disk::layout::Part,
    report::Observer,
};

use super::GuardPlatform;
use crate::{
    device::{BlockIo as _, Disk},
    machine::{Kernel, Watchdog},
    ops::{DiskRequest, health},
    probe,
    tools::limited,
};

/// For another program's lock on the disk, when the record is written.
const LOCK: Duration = Duration::from_secs(5);
/// For systemd's answer: systemd itself may hang.
const SYSTEMD: Duration = Duration::from_secs(2);

pub struct LinuxPlatform {
    kernel: Kernel,
    trial: Trial,
    deadline: Duration,
    /// None: the disk that the system was booted from.
    path: Option<PathBuf>,
    watchdog: Mutex<Option<Watchdog>>,
    /// The disk, once it was found, and where on it the copies of boot.env are.
    seen: Mutex<Option<(Disk, [Option<u64>; 2])>>,
}

/// Frequent events are not reported.
struct Quiet;

impl Observer for Quiet {
    fn phase(&mut self, _: &str, _: u64) {}
    fn step(&mut self, _: usize, _: usize, _: &str, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn note(&mut self, _: &str) {}
}

impl LinuxPlatform {
    pub const fn new(
        kernel: Kernel,
        trial: Trial,
        deadline: Duration,
        path: Option<PathBuf>,
        watchdog: Option<Watchdog>,
    ) -> Self {
        LinuxPlatform { kernel, trial, deadline, path, watchdog: Mutex::new(watchdog), seen: Mutex::new(None) }
    }

    /// The trial is over. A driver that cannot be stopped resets the machine, so the end is not silent.
    pub fn release(&self) {
        let watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner).take();
        watchdog.map(Watchdog::release);
    }

    fn disk(&self) -> Option<DiskRequest> {
        DiskRequest::for_disk(self.path.clone(), LOCK, &mut Quiet).ok()
    }

    /// Finds the disk, once its driver is there.
    fn find(&self) -> Option<(Disk, [Option<u64>; 2])> {
        let disk = self.disk()?.look().ok()?;
        let gpt = probe::gpt(&disk).ok().filter(|gpt| gpt.disk_guid == self.trial.disk)?;
        let places = PATHS.map(|path| probe::boot_env_place(&disk, gpt.part(Part::Esp), path));
        Some((disk, places))
    }

    fn waits_for() -> String {
        if !Path::new("/run/systemd/system").is_dir() {
            return String::new();
        }
        let ask = |args: &[&str]| {
            let options = ["--plain", "--no-legend", "--no-pager"];
            let args = [&options[..], args].concat();
            let ended = limited::run(Path::new("/usr/bin/systemctl"), &args, SYSTEMD, Duration::ZERO, &mut |_| ());
            ended.map(|ended| String::from_utf8_lossy(&ended.said).into_owned()).unwrap_or_default()
        };
        waits_for(&ask(&["list-jobs"]), &ask(&["list-units", "--failed"]))
    }
}

impl GuardPlatform for LinuxPlatform {
    fn uptime(&self) -> Duration {
        Kernel::uptime()
    }

    fn look(&self) -> Option<BootEnv> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none() {
            if self.path.is_none() {
                let _ = self.kernel.follow_init();
            }
            *seen = self.find();
        }
        let (disk, places) = seen.as_ref()?;
        let copies = places.map(|at| {
            let mut bytes = [0; SECTOR_BLOCK_BYTES];
            disk.read_back(at?, &mut bytes).ok()?;
            BootEnv::parse(&bytes)
        });
        BootEnv::pick(&copies).cloned()
    }

    fn record(&self) -> Result<(), String> {
        if self.path.is_none() {
            let _ = self.kernel.follow_init();
        }
        let failed = Failed::late(self.deadline, &Self::waits_for());
        let disk = self.disk().ok_or("the disk is not found")?;
        health::record(&disk, &failed, &mut Quiet).map_err(|e| e.to_string())
    }

    fn sync(&self) {
        sync();
    }

    fn reboot(&self) -> std::io::Error {
        Kernel::reboot()
    }

    fn force(&self) -> std::io::Result<()> {
        self.kernel.force()
    }

    fn feed(&self) {
        let mut watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        // A watchdog that cannot be fed resets the machine, as intended.
        watchdog.as_mut().map(Watchdog::feed);
    }
}
