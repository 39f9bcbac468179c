//! `installer unattended`: which disk, and then `install` or `upgrade`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{
    install, kernel_cmdline,
    said::{Said, the_one},
    upgrade,
};
use crate::{
    cli::{ChangeArgs, DiskArgs, InstallArgs, Progress, StageArgs, UnattendedArgs, UpgradeArgs},
    device::{self, Access, Disk},
    error::{Failure, OrFail as _},
    execute::Observer as _,
    probe,
};
use slipway_core::{
    config::{
        DiskChoice, DiskTraits, Selector,
        unattended::{Instructions, Then},
    },
    plan::{self, Action, DiskHolds, RunsFrom},
    report::{FailureKind, Outcome, Report, UnattendedReport},
    units::SectorSize,
};

pub fn run(args: UnattendedArgs, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    let cmdline = kernel_cmdline()?;
    let Some(orders) = Instructions::of(&cmdline, said.config()).or_fail(FailureKind::Input)? else {
        let why = "neither slipway.install= on the kernel command line nor the machine config asks for an installation";
        let outcome = Outcome::Nothing(why.to_owned());
        let report = UnattendedReport { then: Then::Stay, asked_by: None, disk: None, medium: None, outcome };
        return Ok(Report::Unattended(Box::new(report)));
    };
    let machine = Machine { cmdline, args };
    let path = match &orders.disk {
        DiskChoice::Path(path) => path.into(),
        DiskChoice::Selector(selector) => machine.selected(selector, orders.by, progress)?,
    };
    let name = path.display().to_string();
    progress.note(&format!("{} asks for an installation onto {name}", orders.by));
    let (held, path) = machine.held(&path, machine.args.system.sector_size)?;
    let others = machine.others(&path, progress)?;
    let action =
        plan::unattended(&orders, &held, &others).with_context(|| name.clone()).or_fail(FailureKind::Install)?;
    let outcome = machine.act(action, path, &orders, said, progress)?;
    // What has nothing left to do must not start the machine again, and again.
    let then = if outcome.changed() { orders.then } else { Then::Stay };
    let (asked_by, disk) = (Some(orders.by.to_owned()), Some(name));
    Ok(Report::Unattended(Box::new(UnattendedReport { then, asked_by, disk, medium: orders.medium, outcome })))
}

/// The machine that the live system runs on.
struct Machine {
    cmdline: String,
    args: UnattendedArgs,
}

impl Machine {
    fn open(&self, path: &Path, sector: Option<SectorSize>) -> Result<Disk, device::OpenError> {
        Disk::open(path, Access::Read, sector, self.args.lock_timeout)
    }

    /// What a disk holds, and its path with links resolved.
    fn held(&self, path: &Path, sector: Option<SectorSize>) -> Result<(DiskHolds, PathBuf), Failure> {
        let disk = self.open(path, sector).or_fail(FailureKind::Install)?;
        let path = disk.path().to_owned();
        let held = probe::holding(&disk, &self.cmdline).with_context(|| path.display().to_string());
        Ok((held.or_fail(FailureKind::Install)?, path))
    }

    /// The one disk that a selector means. Optical drives and installation media are none of those it may.
    fn selected(&self, selector: &Selector, by: &str, progress: &mut Progress) -> Result<PathBuf, Failure> {
        let mut disks = device::disks().or_fail(FailureKind::Environment)?;
        disks.retain(|disk| !disk.cdrom && (selector.against(disk).is_some() || !self.is_medium(disk, progress)));
        the_one(selector, &disks, by).or_fail(FailureKind::Input)
    }

    fn is_medium(&self, disk: &DiskTraits, progress: &mut Progress) -> bool {
        let path = &disk.dev_path;
        let opened = self.open(Path::new(path), None).map_err(anyhow::Error::from);
        match opened.and_then(|disk| Ok(probe::is_medium(&disk)?)) {
            Ok(true) => {
                progress.note(&format!(
                    "{path} begins with an ISO 9660 image, as installation media do: not looked at further"
                ));
                true
            }
            Ok(false) => false,
            Err(e) => {
                progress.note(&format!("whether {path} is an installation medium cannot be told: {e:#}"));
                false
            }
        }
    }

    /// What the other disks hold.
    fn others(&self, target: &Path, progress: &mut Progress) -> Result<Vec<(String, DiskHolds)>, Failure> {
        let mut found = Vec::new();
        for disk in device::disks().or_fail(FailureKind::Environment)?.iter().filter(|disk| !disk.cdrom) {
            let path = &disk.dev_path;
            match self.held(Path::new(path), None) {
                Ok((_, same)) if same == target => {}
                Ok((held, _)) => found.push((path.clone(), held)),
                Err(e) => progress.note(&format!("whether {path} holds an installation cannot be told: {e}")),
            }
        }
        Ok(found)
    }

    fn act(
        self,
        action: Action,
        disk: PathBuf,
        orders: &Instructions,
        said: &Said,
        progress: &mut Progress,
    ) -> Result<Outcome, Failure> {
        let UnattendedArgs { lock_timeout, retry_bad, allow_any_version, mut system } = self.args;
        match action {
            Action::Done { elsewhere, slot } => {
                let disk = elsewhere.unwrap_or_else(|| disk.display().to_string());
                let boots = slot.map_or_else(String::new, |slot| format!(", slot {slot}"));
                let what = "this medium has done its work there already: boot from that disk";
                Ok(Outcome::Nothing(format!("{disk}: {what}{boots}")))
            }
            Action::Install { force } => {
                system.extra_kernel_arg = said.extra_kernel_args(system.extra_kernel_arg, progress);
                let (board, bootloader) = (None, None);
                let args = InstallArgs {
                    disk: None,
                    lock_timeout,
                    force,
                    zero: None,
                    system,
                    upgrade: false,
                    board,
                    bootloader,
                };
                let report = install::onto(&args, &disk, orders.medium, said, progress)?;
                Ok(Outcome::Installed(Box::new(report)))
            }
            Action::Upgrade => {
                // What is not said here is taken over from the slot that is kept.
                let word = |text: String| Some(text).filter(|text| !text.is_empty());
                let target = DiskArgs { disk, lock_timeout };
                let stage = StageArgs {
                    change: ChangeArgs { target, dry_run: system.dry_run, plan_hash: None },
                    source: system.source,
                    retry_bad,
                    allow_any_version,
                    limit_rate: None,
                    extra_kernel_arg: system.extra_kernel_arg,
                    platform: word(system.platform),
                    config: word(system.config),
                    arch: system.arch,
                    keep_kernel_args: true,
                };
                let args = UpgradeArgs { stage, preserve: true, meta: system.meta };
                let report = upgrade::from(RunsFrom::Medium(orders.medium), &args, said, progress)?;
                Ok(Outcome::Upgraded(report))
            }
        }
    }
}
