//! Unattended installation in a live system: finds the disk, and decides between install, upgrade and nothing.

use std::{mem, path::Path, time::Duration};

use anyhow::{Context as _, anyhow};
use slipway_core::{
    config::{
        DiskChoice, DiskTraits, MachineConfig, Selector,
        unattended::{Instructions, Then},
    },
    plan::{self, Action, DiskHolds, Exceptions, LeftAlone, RunsFrom},
    report::{FailureKind, Observer, Outcome, UnattendedReport},
    units::SectorSize,
};

use super::{
    ChangeOptions, PlanChanged, SystemRequest,
    bootloader::Renewal,
    install::{self, Identifiers, Toolbox},
    kernel_args::add_extra_kernel_args,
    the_one,
    upgrade::{self, Afterwards, KernelArgsChoice},
};
use crate::{
    device::{self, Access, Disk},
    error::{Failure, OrFail as _},
    probe,
};

/// Options besides the words on the kernel command line.
#[derive(Clone, Debug)]
pub struct UnattendedRequest {
    pub config: Option<MachineConfig>,
    pub lock_timeout: Duration,
    /// For an upgrade.
    pub exceptions: Exceptions,
    /// The requester, for the history of the disk.
    pub by: String,
    pub system: SystemRequest,
}

pub fn run(request: UnattendedRequest, observer: &mut dyn Observer) -> Result<UnattendedReport, Failure> {
    let cmdline = super::kernel_cmdline()?;
    let instructions = Instructions::read(&cmdline, request.config.as_ref()).or_fail(FailureKind::Input)?;
    let Some(instructions) = instructions else {
        let why = "neither slipway.install= on the kernel command line nor the machine config asks for an installation";
        let outcome = Outcome::Nothing(why.to_owned());
        return Ok(UnattendedReport { then: Then::Stay, asked_by: None, disk: None, medium: None, outcome });
    };
    let live = LiveSystem { cmdline, request, instructions };
    let (disk, name) = live.target(observer)?;
    let others = live.others(&disk, observer)?;
    let action = live.decide(&disk, &others).with_context(|| name.clone()).or_fail(FailureKind::Install)?;
    let outcome = live.act(action, disk, &others, observer)?;
    let Instructions { by, then, medium, .. } = live.instructions;
    // A reboot when there was nothing to do would start the live system again, in an endless loop.
    let then = if outcome.changed() { then } else { Then::Stay };
    Ok(UnattendedReport { then, asked_by: Some(by.to_owned()), disk: Some(name), medium, outcome })
}

struct LiveSystem {
    cmdline: String,
    request: UnattendedRequest,
    instructions: Instructions,
}

impl LiveSystem {
    fn open(
        &self,
        path: &Path,
        sector: Option<SectorSize>,
        observer: &mut dyn Observer,
    ) -> Result<Disk, device::OpenError> {
        let says = &mut |text: &str| observer.waits(text);
        Disk::open_and_say(path, Access::Read, sector, self.request.lock_timeout, says)
    }

    /// The requested disk, and its name. It stays open from here on, because its path may come to mean another disk.
    fn target(&self, observer: &mut dyn Observer) -> Result<(Disk, String), Failure> {
        let begins = |name: &str| format!("{} asks for an installation onto {name}", self.instructions.by);
        match &self.instructions.disk {
            DiskChoice::Path(path) => {
                observer.note(&begins(path));
                let disk =
                    self.open(path.as_ref(), self.request.system.sector, observer).or_fail(FailureKind::Install)?;
                Ok((disk, path.clone()))
            }
            DiskChoice::Unread(why) => Err(why.clone()).context("machine config on stdin").or_fail(FailureKind::Input),
            DiskChoice::Selector(selector) => {
                let (disk, name) = self.selected(selector, observer)?;
                observer.note(&begins(&name));
                Ok((disk, name))
            }
        }
    }

    /// Never selects an optical drive or a live medium, such as the stick that this system was started from.
    fn selected(&self, selector: &Selector, observer: &mut dyn Observer) -> Result<(Disk, String), Failure> {
        let by = self.instructions.by;
        let mut list = device::disks().or_fail(FailureKind::Environment)?;
        let mut candidates = Vec::new();
        for disk in mem::take(&mut list.disks).into_iter().filter(|disk| !disk.cdrom) {
            let path = &disk.dev_path;
            if selector.mismatch(&disk).is_none() {
                let looked = self.candidate(&disk, observer).with_context(|| {
                    format!(
                        "{path} matches what {by} selects, and cannot be looked at; nothing was written. Detach it, or \
                         make the selector narrower"
                    )
                });
                let Some(candidate) = looked.or_fail(FailureKind::Install)? else {
                    observer.note(&format!(
                        "{path} begins with an ISO 9660 image, as live media do: it cannot be selected"
                    ));
                    continue;
                };
                candidates.push((candidate, path.clone()));
            }
            list.disks.push(disk);
        }
        let path = the_one(selector, &list, by).or_fail(FailureKind::Input)?;
        let one = candidates.into_iter().find(|(_, name)| Path::new(name) == path);
        one.ok_or_else(|| anyhow!("{}: it is gone", path.display())).or_fail(FailureKind::Install)
    }

    /// None if it is a live medium.
    fn candidate(&self, listed: &DiskTraits, observer: &mut dyn Observer) -> anyhow::Result<Option<Disk>> {
        let disk = self.open(Path::new(&listed.dev_path), None, observer)?;
        let found = disk.identity();
        let found = [&found.model, &found.serial, &found.wwid].map(|text| text.as_deref().unwrap_or_default());
        if found != [&*listed.model, &*listed.serial, &*listed.wwid] {
            return Err(anyhow!("another disk has taken its name in the meantime"));
        }
        Ok((!probe::is_medium(&disk)?).then_some(disk))
    }

    /// Contents of the other disks that firmware could start.
    fn others(&self, target: &Disk, observer: &mut dyn Observer) -> Result<Vec<(String, DiskHolds)>, Failure> {
        let list = device::disks().or_fail(FailureKind::Environment)?;
        let mut found = Vec::new();
        for DiskTraits { dev_path, .. } in list.disks.iter().filter(|d| !d.cdrom && !device::lies_on_others(d)) {
            let path = Path::new(dev_path);
            if target.covers(path) {
                continue;
            }
            let held = match self.open(path, None, observer) {
                Ok(disk) => probe::holding(&disk, &self.cmdline),
                Err(e) if e.is_no_medium() => continue,
                // Such a disk is never installed onto.
                Err(device::OpenError::SectorSize { why, .. }) => DiskHolds::Something(why),
                Err(e) => DiskHolds::Unknown(e.to_string()),
            };
            found.push((dev_path.clone(), held));
        }
        let unknown = list.unknown.into_iter().filter(|(path, _)| !target.covers(Path::new(path)));
        found.extend(unknown.map(|(path, why)| (path.clone(), DiskHolds::Unknown(format!("{path}: {why}")))));
        for (path, held) in &found {
            if let DiskHolds::Unknown(why) = held {
                observer.note(&format!("cannot tell whether {path} holds an installation: {why}"));
            }
        }
        Ok(found)
    }

    fn decide(&self, disk: &Disk, others: &[(String, DiskHolds)]) -> Result<Action, LeftAlone> {
        plan::unattended(&self.instructions, &probe::holding(disk, &self.cmdline), others)
    }

    /// Claim the disk, and look again: others could write to it in the meantime.
    fn claim(
        &self,
        disk: Disk,
        decided: &Action,
        others: &[(String, DiskHolds)],
        observer: &mut dyn Observer,
    ) -> Result<Disk, Failure> {
        let UnattendedRequest { lock_timeout, system, .. } = &self.request;
        let says = &mut |text: &str| observer.waits(text);
        let disk = disk.reopen(Access::Whole, system.sector, *lock_timeout, says).or_fail(FailureKind::Install)?;
        observer.holds(&disk.identity().path, &disk.key());
        if self.decide(&disk, others).as_ref() == Ok(decided) {
            return Ok(disk);
        }
        Err(PlanChanged::Unattended).context(disk.path().display().to_string()).or_fail(FailureKind::Install)
    }

    fn act(
        &self,
        action: Action,
        disk: Disk,
        others: &[(String, DiskHolds)],
        observer: &mut dyn Observer,
    ) -> Result<Outcome, Failure> {
        let name = disk.path().display().to_string();
        match &action {
            Action::Done { elsewhere, slot } => {
                let disk = elsewhere.clone().unwrap_or(name);
                let boots = slot.map_or_else(String::new, |slot| format!(", slot {slot}"));
                let what = "this live medium has already installed or upgraded the system there: boot from that disk";
                Ok(Outcome::Nothing(format!("{disk}: {what}{boots}")))
            }
            Action::Install { force, despite } => {
                for doubt in despite {
                    observer.note(&format!(
                        "{doubt}, so it may be what this live medium has installed; {name} is empty, and is installed all \
                         the same"
                    ));
                }
                let request = self.install(*force, observer);
                let tools = Toolbox::open(&request, observer)?;
                let disk = self.claim(disk, &action, others, observer)?;
                Ok(Outcome::Installed(Box::new(install::onto(&disk, disk.path(), &request, &tools, observer)?)))
            }
            Action::Upgrade => {
                let disk = self.claim(disk, &action, others, observer)?;
                let options = ChangeOptions {
                    dry_run: self.request.system.dry_run,
                    by: Some(self.request.by.clone()),
                    ..ChangeOptions::default()
                };
                Ok(Outcome::Upgraded(upgrade::onto(&disk, disk.path(), &self.upgrade(), options, observer)?))
            }
        }
    }

    fn install(&self, force: bool, observer: &mut dyn Observer) -> install::Request {
        let UnattendedRequest { config, mut system, by, .. } = self.request.clone();
        if let Some(config) = &config {
            system.kernel_args.extra = add_extra_kernel_args(config, system.kernel_args.extra, observer);
        }
        install::Request {
            kernel_args: system.kernel_args.fresh_here(),
            force,
            zero: config.is_some_and(|config| config.wipe == Some(true)),
            medium: self.instructions.medium,
            identifiers: Identifiers::Fresh,
            by,
            unattended: true,
            system,
        }
    }

    fn upgrade(&self) -> upgrade::Request {
        let UnattendedRequest { exceptions, system, .. } = self.request.clone();
        upgrade::Request {
            runs_from: RunsFrom::Medium(self.instructions.medium),
            source: system.source,
            afterwards: Afterwards::Activated { preserve: true, blank_ephemeral: false },
            // Kernel arguments that are not requested here are taken from the kept slot.
            kernel_args: KernelArgsChoice::Kept(system.kernel_args),
            meta: system.meta,
            exceptions,
            arch: system.arch,
            limit_rate: None,
            renewal: Renewal::Renew(None),
            snapshot: false,
        }
    }
}
