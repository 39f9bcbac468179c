//! Writes again lost parts with a second copy on the disk, boot.env if both copies are lost, and an ESP on which no
//! boot loader is left. First of all the partition table and LBA 0, without which nothing else is found.

use std::cell::LazyCell;

use anyhow::Context as _;
use slipway_core::{
    boot::{EfiLoader, slot::Slot},
    kernel::arch::Arch,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts, bootloader::RenewalRequest},
    report::{ChangeReport, FailureKind, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest, damaged_loaders,
    installed_disk::{self, first_unverified},
    mend::{look_at_lba0, look_at_table},
    shipped_loaders,
};
use crate::{
    bootloader::Loaders,
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    execute::Sources,
    probe,
};

/// The rest that a repair could not mend.
#[derive(Debug, thiserror::Error)]
#[error("{result}; not repaired:{}", listed(left))]
pub struct NotRepaired {
    /// The state now, as a sentence.
    result: String,
    /// Each with its remedy.
    left: Vec<String>,
}

fn listed(left: &[String]) -> String {
    left.iter().map(|one| format!("\n  - {one}")).collect()
}

#[derive(Clone, Debug)]
pub struct Repair {
    /// The loaders for an ESP that is made again. None: it is not lost.
    pub renewal: Option<RenewalRequest>,
    /// Files of others on an ESP that is made again may be lost.
    pub force: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RepairRequest {
    /// The UEFI loader of an ESP that is made again. None: see [`RenewalRequest`].
    pub efi_loader: Option<EfiLoader>,
    pub force: bool,
}

impl Change for Repair {
    /// A slot that is called good must be whole before it is marked so. The others are read because "nothing to do" says that
    /// the whole disk was looked at.
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        first_unverified(system.in_use(), system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::repair(base, system, self.renewal.as_ref(), self.force)
    }

    fn renewal(&self) -> Option<&RenewalRequest> {
        self.renewal.as_ref()
    }
}

pub fn run(
    disk: &DiskRequest,
    request: RepairRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let opened = disk.open(Access::BootState, observer)?;
    // They are needed only where the disk has lost its boot code.
    let loaders = LazyCell::new(|| Loaders::load(Arch::NATIVE).ok());
    let name = disk.path.display().to_string();
    let mend = match look_at_table(&opened, &name)? {
        None => look_at_lba0(&opened, &name, &|| loaders.as_ref())?,
        table => table,
    };
    if let Some(mend) = mend {
        return mend.run(&opened, &options, observer);
    }
    installed_disk::note_doubt(observer)?;
    let mut report = mend_files(disk, opened, request, options.clone(), observer)?;
    // A plan that was asked for by its hash is this one alone.
    if report.changed && plan::is_first_half(&report.plan) && options.plan_hash.is_none() {
        observer.note(&report.plan.result);
        let opened = disk.open(Access::BootState, observer)?;
        let rest = mend_files(disk, opened, request, options, observer)?;
        report = Box::new(ChangeReport { changed: true, ..*rest });
    }
    if report.dry_run {
        // What would be written may be what is damaged.
        if report.plan.steps.is_empty() {
            report.plan.warnings.extend(note_loaders(disk, observer));
        }
        report.plan.left.iter().for_each(|left| observer.note(&format!("not repaired: {left}")));
        return Ok(report);
    }
    report.plan.warnings.extend(note_loaders(disk, observer));
    if report.plan.left.is_empty() {
        return Ok(report);
    }
    let Plan { result, left, .. } = report.plan;
    Err(NotRepaired { result, left }).context(report.disk.path).or_fail(FailureKind::Install)
}

/// Damaged boot loaders, and a damaged list of them, are for another verb. "Nothing to do" would hide that the disk may not boot.
fn note_loaders(disk: &DiskRequest, observer: &mut dyn Observer) -> Vec<String> {
    let Ok(opened) = disk.look() else { return vec![] };
    let Ok(gpt) = probe::gpt(&opened) else { return vec![] };
    let damage = damaged_loaders::found(&opened, &gpt);
    if damage.is_empty() {
        return vec![];
    }
    // The whole look reads all that boots.
    let system = probe::system(&opened, &super::kernel_cmdline().unwrap_or_default());
    system
        .map(|system| damaged_loaders::note(damage, &opened, opened.identity(), &system, observer))
        .unwrap_or_default()
}

/// Mend what the partitions hold.
fn mend_files(
    disk: &DiskRequest,
    opened: Disk,
    request: RepairRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let looked = installed_disk::look(disk, &opened)?;
    if plan::needs_loaders(&looked.system) {
        let arch = looked.system.arch();
        // The ESP is written to, so no program may have it open: another way to open the disk, and another look.
        drop(opened);
        return make_esp(disk, arch, request, options, observer);
    }
    let (repair, rewrites) = (Repair { renewal: None, force: request.force }, plan::rewrites_esp(&looked.system));
    if !rewrites {
        return looked.change(&repair, Sources::default(), options, observer);
    }
    drop(opened);
    let opened = disk.open(Access::Write, observer)?;
    installed_disk::look(disk, &opened)?.change(&repair, Sources::default(), options, observer)
}

fn make_esp(
    disk: &DiskRequest,
    arch: Arch,
    request: RepairRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let loaders = shipped_loaders::load(arch)?;
    let opened = disk.open(Access::Write, observer)?;
    let offered = shipped_loaders::offered(&loaders, arch, opened.identity());
    let renewal = RenewalRequest { offered, loader: request.efi_loader, ignore_secure_boot: false, mend: true };
    let sources = Sources { loaders: Some(&loaders), ..Sources::default() };
    let repair = Repair { renewal: Some(renewal), force: request.force };
    installed_disk::look(disk, &opened)?.change(&repair, sources, options, observer)
}
