//! Unattended installation in a live system: finds the disk, and decides between install, upgrade and nothing.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use slipway_core::{
    config::{
        DiskChoice, DiskTraits, MachineConfig, Selector,
        unattended::{Instructions, Then},
    },
    plan::{self, Action, DiskHolds, RunsFrom},
    report::{FailureKind, Observer, Outcome, UnattendedReport},
    units::SectorSize,
};

use super::{
    ChangeOptions, DiskRequest, SystemRequest,
    install::{self, Identifiers},
    kernel_args::add_extra_kernel_args,
    the_one,
    upgrade::{self, Afterwards, UpgradeArgs},
};
use crate::{
    device::{self, Access, Disk},
    error::{Failure, OrFail as _},
    probe,
};

/// What is requested besides the words on the kernel command line.
#[derive(Clone, Debug)]
pub struct Request {
    pub config: Option<MachineConfig>,
    pub lock_timeout: Duration,
    /// For an upgrade: write a payload again although its trial failed before.
    pub retry_bad: bool,
    /// For an upgrade: let any version follow any other.
    pub allow_any_version: bool,
    pub system: SystemRequest,
}

pub fn run(request: Request, observer: &mut dyn Observer) -> Result<UnattendedReport, Failure> {
    let cmdline = super::kernel_cmdline()?;
    let instructions = Instructions::of(&cmdline, request.config.as_ref()).or_fail(FailureKind::Input)?;
    let Some(instructions) = instructions else {
        let why = "neither slipway.install= on the kernel command line nor the machine config asks for an installation";
        let outcome = Outcome::Nothing(why.to_owned());
        return Ok(UnattendedReport { then: Then::Stay, asked_by: None, disk: None, medium: None, outcome });
    };
    let machine = Machine { cmdline, request };
    let path = match &instructions.disk {
        DiskChoice::Path(path) => path.into(),
        DiskChoice::Selector(selector) => machine.selected(selector, instructions.by, observer)?,
    };
    let name = path.display().to_string();
    observer.note(&format!("{} asks for an installation onto {name}", instructions.by));
    let (held, path) = machine.held(&path, machine.request.system.sector)?;
    let others = machine.others(&path, observer)?;
    let action = plan::unattended(&instructions, &held, &others);
    let action = action.with_context(|| name.clone()).or_fail(FailureKind::Install)?;
    let outcome = machine.act(action, path, &instructions, observer)?;
    // A reboot when there was nothing to do would start the live system again, in an endless loop.
    let then = if outcome.changed() { instructions.then } else { Then::Stay };
    let (asked_by, disk) = (Some(instructions.by.to_owned()), Some(name));
    Ok(UnattendedReport { then, asked_by, disk, medium: instructions.medium, outcome })
}

struct Machine {
    cmdline: String,
    request: Request,
}

impl Machine {
    fn open(&self, path: &Path, sector: Option<SectorSize>) -> Result<Disk, device::OpenError> {
        Disk::open(path, Access::Read, sector, self.request.lock_timeout)
    }

    /// Also returns the path with links resolved, to tell whether two names mean the same disk.
    fn held(&self, path: &Path, sector: Option<SectorSize>) -> Result<(DiskHolds, PathBuf), Failure> {
        let disk = self.open(path, sector).or_fail(FailureKind::Install)?;
        let path = disk.path().to_owned();
        let held = probe::holding(&disk, &self.cmdline).with_context(|| path.display().to_string());
        Ok((held.or_fail(FailureKind::Install)?, path))
    }

    /// Never selects an optical drive or a live medium, such as the stick that this system was started from.
    fn selected(&self, selector: &Selector, by: &str, observer: &mut dyn Observer) -> Result<PathBuf, Failure> {
        let mut disks = device::disks().or_fail(FailureKind::Environment)?;
        disks.retain(|disk| !disk.cdrom && (selector.against(disk).is_some() || !self.is_medium(disk, observer)));
        the_one(selector, &disks, by).or_fail(FailureKind::Input)
    }

    fn is_medium(&self, disk: &DiskTraits, observer: &mut dyn Observer) -> bool {
        let path = &disk.dev_path;
        let opened = self.open(Path::new(path), None).map_err(anyhow::Error::from);
        match opened.and_then(|disk| Ok(probe::is_medium(&disk)?)) {
            Ok(true) => {
                observer
                    .note(&format!("{path} begins with an ISO 9660 image, as live media do: it cannot be selected"));
                true
            }
            Ok(false) => false,
            Err(e) => {
                observer.note(&format!("cannot tell whether {path} is a live medium: {e:#}"));
                false
            }
        }
    }

    fn others(&self, target: &Path, observer: &mut dyn Observer) -> Result<Vec<(String, DiskHolds)>, Failure> {
        let mut found = Vec::new();
        for disk in device::disks().or_fail(FailureKind::Environment)?.iter().filter(|disk| !disk.cdrom) {
            let path = &disk.dev_path;
            match self.held(Path::new(path), None) {
                Ok((_, same)) if same == target => {}
                Ok((held, _)) => found.push((path.clone(), held)),
                Err(e) => observer.note(&format!("cannot tell whether {path} holds an installation: {e}")),
            }
        }
        Ok(found)
    }

    fn act(
        self,
        action: Action,
        disk: PathBuf,
        instructions: &Instructions,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, Failure> {
        let Request { lock_timeout, retry_bad, allow_any_version, system, config } = self.request;
        let target = DiskRequest { path: disk, lock_timeout };
        match action {
            Action::Done { elsewhere, slot } => {
                let disk = elsewhere.unwrap_or_else(|| target.path.display().to_string());
                let boots = slot.map_or_else(String::new, |slot| format!(", slot {slot}"));
                let what = "this live medium has already installed or upgraded the system there: boot from that disk";
                Ok(Outcome::Nothing(format!("{disk}: {what}{boots}")))
            }
            Action::Install { force } => {
                let mut system = system;
                if let Some(config) = &config {
                    system.kernel_args.extra = add_extra_kernel_args(config, system.kernel_args.extra, observer);
                }
                let request = install::Request {
                    kernel_args: system.kernel_args.fresh_here(),
                    force,
                    zero: config.is_some_and(|config| config.wipe == Some(true)),
                    medium: instructions.medium,
                    identifiers: Identifiers::Fresh,
                    system,
                };
                Ok(Outcome::Installed(Box::new(install::run(&target, &request, observer)?)))
            }
            Action::Upgrade => {
                // Kernel arguments that are not requested here are taken from the kept slot.
                let request = upgrade::Request {
                    runs_from: RunsFrom::Medium(instructions.medium),
                    source: system.source,
                    afterwards: Afterwards::Activated { preserve: true, blank_ephemeral: false },
                    kernel_args: UpgradeArgs::Kept(system.kernel_args),
                    meta: system.meta,
                    retry_bad,
                    allow_any_version,
                    arch: system.arch,
                    limit_rate: None,
                };
                let options = ChangeOptions { dry_run: system.dry_run, plan_hash: None };
                Ok(Outcome::Upgraded(upgrade::run(&target, &request, options, observer)?))
            }
        }
    }
}
