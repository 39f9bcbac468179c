//! Writes again lost parts with a second copy on the disk, boot.env if both copies are lost, and an ESP on which no
//! boot loader is left.

use std::cell::LazyCell;

use anyhow::Context as _;
use slipway_core::{
    boot::slot::{Slot, SlotState},
    kernel::arch::Arch,
    plan::{self, Asked, Plan, Refusals, RequestBase, Step, SystemFacts, bootloader::RenewalRequest},
    report::{ChangeReport, FailureKind, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest, PlanChanged, WrittenOver, after_failure, bootloader,
    installed_disk::{self, first_unverified},
};
use crate::{
    bootloader::Loaders,
    device::{Access, BlockIo, Disk},
    error::{Failure, OrFail as _},
    execute::{self, Sources},
    probe::{self, MendedLba0},
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
}

impl Change for Repair {
    /// A slot that is called good must be whole before it is marked so.
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let good = |slot: &Slot| system.env.as_ref().is_none_or(|env| env.states[*slot] == SlotState::Good);
        first_unverified(Slot::BOTH.into_iter().filter(good), system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::repair(base, system, self.renewal.as_ref())
    }

    fn renewal(&self) -> Option<&RenewalRequest> {
        self.renewal.as_ref()
    }
}

pub fn run(
    disk: &DiskRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let opened = disk.open(Access::BootState, observer)?;
    // They are needed only where the disk has lost its boot code.
    let loaders = LazyCell::new(|| Loaders::load(Arch::NATIVE).ok());
    if let Some(mended) = look_at_lba0(&opened, &disk.path.display().to_string(), &|| loaders.as_ref())? {
        return mended.run(&opened, &options, observer);
    }
    installed_disk::note_doubt(observer)?;
    let looked = installed_disk::look(disk, &opened)?;
    let report = if plan::makes_esp(&looked.system) {
        let arch = arch_of(&looked.system);
        // A partition is formatted, so no program may have it open: another way to open the disk, and another look.
        drop(opened);
        make_esp(disk, arch, options, observer)?
    } else {
        looked.change(&Repair { renewal: None }, Sources::default(), options, observer)?
    };
    if report.dry_run || report.plan.left.is_empty() {
        return Ok(report);
    }
    let Plan { result, left, .. } = report.plan;
    Err(NotRepaired { result, left }).context(report.disk.path).or_fail(FailureKind::Install)
}

/// The architecture of the slots: nothing on the ESP says it any more.
fn arch_of(system: &SystemFacts) -> Arch {
    let known = Slot::BOTH.into_iter().find_map(|slot| system.slots[slot].manifest.as_ref());
    known.map_or(Arch::NATIVE, |manifest| manifest.arch)
}

fn make_esp(
    disk: &DiskRequest,
    arch: Arch,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let loaders = bootloader::load(arch)?;
    let opened = disk.open(Access::Write, observer)?;
    let offered = bootloader::offered(&loaders, arch, opened.identity());
    let renewal = RenewalRequest { offered, loader: None, ignore_secure_boot: false, mend: true };
    let sources = Sources { loaders: Some(&loaders), ..Sources::default() };
    let repair = Repair { renewal: Some(renewal) };
    installed_disk::look(disk, &opened)?.change(&repair, sources, options, observer)
}

/// LBA 0 is lost, and how it is written again.
pub struct Lba0 {
    plan: Plan,
    bytes: Vec<u8>,
}

/// None if LBA 0 is not lost, or no table of ours stands behind it. `name` is for people; `loaders` may have the boot code that
/// the disk was installed with, and is asked only if the disk has lost its own.
pub fn look_at_lba0<'l>(
    disk: &dyn BlockIo,
    name: &str,
    loaders: &dyn Fn() -> Option<&'l Loaders>,
) -> Result<Option<Lba0>, Failure> {
    let code = |at| Some(loaders()?.bios.as_ref()?.boot_code(at));
    let mended = probe::mended_lba0(disk, &code).context(name.to_owned()).or_fail(FailureKind::Install)?;
    let base = RequestBase { disk: name.to_owned(), now: 0, asked: Asked::default() };
    Ok(mended.map(|MendedLba0 { facts, bytes }| Lba0 { plan: plan::lba0(&base, &facts), bytes }))
}

impl Lba0 {
    pub fn carry_out(&self, disk: &dyn BlockIo, observer: &mut dyn Observer) -> Result<(), Failure> {
        disk.claim(&self.plan.steps.iter().flat_map(Step::writes).collect::<Vec<_>>())
            .context("claiming LBA 0")
            .or_fail(FailureKind::Install)?;
        execute::run(&self.plan, disk, Sources { lba0: Some(&self.bytes), ..Sources::default() }, observer)
            .map_err(|failed| after_failure::of_lba0(failed, disk))?;
        probe::gpt(disk).map_err(WrittenOver::NotSeen).context(self.plan.disk.clone()).or_fail(FailureKind::Install)?;
        Ok(())
    }

    fn run(
        self,
        disk: &Disk,
        options: &ChangeOptions,
        observer: &mut dyn Observer,
    ) -> Result<Box<ChangeReport>, Failure> {
        let (plan_hash, dry_run, disk_id) = (self.plan.hash(), options.dry_run, disk.identity().clone());
        if let Some(asked) = options.plan_hash.filter(|asked| *asked != plan_hash) {
            let changed = PlanChanged::NotAsked { asked, now: plan_hash };
            return Err(changed).context(disk_id.path).or_fail(FailureKind::Install);
        }
        self.plan.warnings.iter().for_each(|warning| observer.note(warning));
        if !dry_run {
            self.carry_out(disk, observer)?;
        }
        let Lba0 { plan, .. } = self;
        Ok(Box::new(ChangeReport {
            changed: !dry_run,
            dry_run,
            disk: disk_id,
            payload: None,
            bytes_fetched: 0,
            bytes_reused: 0,
            bytes_written: 0,
            plan_hash,
            plan,
        }))
    }
}
