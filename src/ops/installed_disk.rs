//! Changes an installed disk: probe it, verify the slots that matter, make the plan, claim the partitions, look again,
//! execute, and look a last time.
//!
//! Until the partitions are claimed another program can write to them, and a raw write to the disk is possible at any
//! time. So the plan is made a second time once they are claimed, and must be the same.

use std::sync::atomic::AtomicU64;

use anyhow::Context as _;
use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    disk::{
        identity::{DiskIdentity, DiskKind},
        layout::Part,
    },
    plan::bootloader::RenewalRequest,
    plan::{self, Asked, Goal, Plan, Refusals, RequestBase, Step, SystemFacts},
    rate_limit::ByteRate,
    report::{ChangeReport, FailureKind, Observer},
};

use super::{ChangeOptions, DiskRequest, after_failure, damaged_loaders, pstore};
use crate::{
    device::{Access, BlockIo, Disk, RateLimited, RateLimiter},
    error::{Failure, OrFail as _},
    execute::{self, Sources, Tally},
    probe::{self, ProbeError},
    transfer::PayloadFiles,
};

/// A verb that changes an installed disk. Implementations do no I/O: [`InstalledDisk`] reads for them.
pub trait Change {
    /// The next slot to compare with its checksums before `decide`; None once enough is known. It is asked again after
    /// each slot.
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot>;

    /// Called twice: the hash of the plan is made without the time of day and the requester.
    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals>;

    /// The renewal of the boot loaders, if the change is about them.
    fn renewal(&self) -> Option<&RenewalRequest> {
        None
    }

    /// Digest of the payload that the change is about, for the report.
    fn payload(&self, _system: &SystemFacts) -> Option<Sha256> {
        None
    }

    /// A note for the user about how this was decided.
    fn remark(&self, _system: &SystemFacts) -> Option<String> {
        None
    }
}

/// The disk, the payload or the request differs from the plan's. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum PlanChanged {
    #[error(
        "the disk, the payload or the request is not what it was when the plan was made: nothing was written (plan {asked}, now {now})"
    )]
    NotAsked { asked: Sha256, now: Sha256 },
    #[error(
        "another program has changed the disk since the plan was made: nothing was written; run the same command again"
    )]
    Disk,
    #[error("it changed after it was looked at: nothing was written; run the same command again")]
    Unattended,
}

/// Everything was written, but it is not known to be there.
#[derive(Debug, thiserror::Error)]
pub enum WrittenOver {
    #[error("everything was written; looking at the disk once more failed")]
    NotSeen(#[source] ProbeError),
    #[error("another program has changed the partition table meanwhile: `installer status` shows what boots now")]
    Table,
    #[error("another program has changed the boot state meanwhile: `installer status` shows what boots now")]
    BootState,
    #[error("another program has changed the {0} meanwhile: `installer verify` shows what is damaged")]
    BootChain(String),
    #[error("the partition table changed while META was written")]
    TableUnderMeta,
    #[error("another program has written META meanwhile, without this change: run the same command again")]
    Meta,
}

/// The first of these slots that was not compared with its checksums yet.
pub fn first_unverified(slots: impl IntoIterator<Item = Slot>, system: &SystemFacts) -> Option<Slot> {
    slots.into_iter().find(|slot| system.slots[*slot].whole.is_none())
}

pub struct PlannedChange {
    pub plan: Plan,
    /// When it was made, seconds since 1970 UTC.
    now: u64,
    /// Does not depend on the time of day: it stays the same until the disk, the payload or the request changes.
    pub hash: Sha256,
}

pub struct InstalledDisk<'d> {
    disk: &'d dyn BlockIo,
    identity: DiskIdentity,
    kernel_cmdline: String,
    limiter: Option<RateLimiter>,
    /// For the history.
    asked: Asked,
    pub system: SystemFacts,
}

impl<'d> InstalledDisk<'d> {
    /// `name` is for error messages. `kernel_cmdline` tells which slot of the disk is running.
    pub fn look(
        disk: &'d dyn BlockIo,
        identity: DiskIdentity,
        name: &str,
        kernel_cmdline: &str,
    ) -> Result<Self, Failure> {
        let system = super::ours(probe::system(disk, kernel_cmdline), name)?;
        let kernel_cmdline = kernel_cmdline.to_owned();
        Ok(InstalledDisk { disk, identity, kernel_cmdline, limiter: None, asked: Asked::default(), system })
    }

    pub fn limit(&mut self, rate: Option<ByteRate>) {
        self.limiter = rate.map(RateLimiter::new);
    }

    pub const fn limiter(&self) -> Option<&RateLimiter> {
        self.limiter.as_ref()
    }

    pub fn verify_slot(&mut self, slot: Slot, observer: &mut dyn Observer) {
        let gpt = &self.system.gpt;
        observer.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(self.disk, gpt, slot));
        let disk = RateLimited::new(self.disk, self.limiter.as_ref());
        let whole = probe::slot_is_whole(&disk, gpt, slot, &mut |bytes| observer.advance(bytes));
        let facts = &mut self.system.slots[slot];
        // With the list that it was compared with.
        facts.whole = Some(whole.map(|found| (facts.listed, facts.unlisted) = (Some(found.listed), found.unlisted)));
    }

    /// `now` is in seconds since 1970 UTC.
    pub fn plan(
        &mut self,
        change: &dyn Change,
        now: fn() -> u64,
        observer: &mut dyn Observer,
    ) -> Result<PlannedChange, Failure> {
        self.look_at_bootloader(change);
        while let Some(slot) = change.to_verify(&self.system) {
            self.verify_slot(slot, observer);
        }
        if let Some(remark) = change.remark(&self.system) {
            observer.note(&remark);
        }
        let now = now();
        let hash = hash_for(&self.decide(change, 0, Asked::default())?, change.payload(&self.system));
        Ok(PlannedChange { hash, plan: self.decide(change, now, self.asked.clone())?, now })
    }

    fn look_at_bootloader(&mut self, change: &dyn Change) {
        let found = change.renewal().map(|request| probe::bootloader(self.disk, &self.system.gpt, request));
        self.system.bootloader = found;
    }

    fn decide(&self, change: &dyn Change, now: u64, asked: Asked) -> Result<Plan, Failure> {
        let name = &self.identity.path;
        let plan = change.decide(&RequestBase { disk: name.clone(), now, asked }, &self.system);
        let plan = plan.and_then(|plan| plan::beside_others(plan, &self.system.gpt));
        plan.map_err(|refusals| super::refused(refusals, name))
    }

    /// Claim the partitions that the plan writes to, so that they cannot be mounted, and plan once more for the content
    /// then. Refuses if the two plans differ in the next boot.
    pub fn hold(&mut self, change: &dyn Change, planned: &PlannedChange) -> Result<Plan, Failure> {
        let parts = [Part::Esp, Part::BootA, Part::BootB, Part::State, Part::Ephemeral];
        let gpt = &self.system.gpt;
        // Markers and snapshots need no claim: no other program writes those sectors, and the slot that runs is mounted.
        let beside_files = |step: &&Step| {
            matches!(step, Step::WriteMarker { .. } | Step::WriteSnapshot { .. } | Step::WriteSnapshotHead { .. })
        };
        let bulk = planned.plan.steps.iter().filter(|step| !beside_files(step));
        let written: Vec<_> = bulk.flat_map(Step::writes).collect();
        let claims = parts.map(|part| gpt.part(part)).into_iter();
        let claims: Vec<_> = claims.filter(|part| written.iter().any(|extent| part.contains(*extent))).collect();
        self.disk
            .claim(&claims)
            .context("claiming the partitions that will be written")
            .or_fail(FailureKind::Install)?;
        let again = probe::look_again(self.disk, &self.kernel_cmdline, &self.system);
        self.system = again.with_context(|| self.identity.path.clone()).or_fail(FailureKind::Install)?;
        self.look_at_bootloader(change);
        let again = self.decide(change, planned.now, self.asked.clone())?;
        // Tags of META come and go, and a bad sector is not always unreadable.
        if !again.boots_the_same(&planned.plan) {
            return Err(PlanChanged::Disk).with_context(|| self.identity.path.clone()).or_fail(FailureKind::Install);
        }
        Ok(again)
    }

    /// Only after [`InstalledDisk::hold`].
    pub fn carry_out(&self, plan: &Plan, sources: Sources, observer: &mut dyn Observer) -> Result<(), Failure> {
        self.reserve(plan, &sources)?;
        let disk = RateLimited::new(self.disk, self.limiter.as_ref());
        execute::run(plan, &disk, sources, observer).map_err(|failed| {
            after_failure::of_system(failed, plan, self.disk, &self.kernel_cmdline, self.system.env.as_ref())
        })?;
        self.is_there(plan).with_context(|| self.identity.path.clone()).or_fail(FailureKind::Install)
    }

    /// Room in an image file, before the other slot is given up for what there is none for.
    fn reserve(&self, plan: &Plan, sources: &Sources) -> Result<(), Failure> {
        let mut room = plan::room(plan, self.system.sector);
        if self.identity.kind == DiskKind::Image {
            room.extend(execute::snapshot_room(plan, sources).or_fail(FailureKind::Environment)?);
        }
        for extent in room {
            let no_room = || format!("{}: nothing was written: {}", self.identity.path, execute::no_room(extent));
            self.disk.reserve(extent).with_context(no_room).or_fail(FailureKind::Install)?;
        }
        Ok(())
    }

    /// Checks that the boot rule will find the plan's writes.
    fn is_there(&self, plan: &Plan) -> Result<(), WrittenOver> {
        let found = probe::look_again(self.disk, &self.kernel_cmdline, &self.system).map_err(WrittenOver::NotSeen)?;
        let env = plan.steps.iter().rev().find_map(|step| match step {
            Step::WriteBootEnv { env, .. } => Some(env.clone()),
            _ => None,
        });
        let env = env.or_else(|| plan::made_boot_env(plan));
        let (before, after) = (&self.system.gpt, &found.gpt);
        if (before.disk_guid, before.parts) != (after.disk_guid, after.parts) {
            return Err(WrittenOver::Table);
        }
        if env.is_some_and(|env| found.env.as_ref() != Some(&env)) {
            return Err(WrittenOver::BootState);
        }
        let is_about_chain = plan.bootloader.is_some() || plan.esp.is_some();
        let damage = is_about_chain.then(|| probe::boot_chain(self.disk, &found.gpt).problems().pop()).flatten();
        if let Some(damage) = damage {
            return Err(WrittenOver::BootChain(damage));
        }
        Ok(())
    }

    pub fn change(
        mut self,
        change: &dyn Change,
        sources: Sources,
        options: ChangeOptions,
        observer: &mut dyn Observer,
    ) -> Result<Box<ChangeReport>, Failure> {
        let ChangeOptions { dry_run, plan_hash, by, reason } = options;
        self.asked = Asked { by, reason, panic: pstore::panic(&self.system) };
        let (mut planned, tally) = (self.plan(change, super::now, observer)?, Tally::default());
        let PlannedChange { plan, hash, .. } = &planned;
        if let Some(asked) = plan_hash.filter(|asked| asked != hash) {
            let changed = PlanChanged::NotAsked { asked, now: *hash };
            return Err(changed).context(self.identity.path).or_fail(FailureKind::Install);
        }
        plan.warnings.iter().for_each(|warning| observer.note(warning));
        let changed = !dry_run && !plan.steps.is_empty();
        if changed {
            planned.plan = self.hold(change, &planned)?;
            self.carry_out(&planned.plan, Sources { tally: Some(&tally), ..sources }, observer)?;
        }
        // What writes them anew tells of them itself.
        if change.renewal().is_none() && matters_soon(planned.plan.goal) {
            let damage = damaged_loaders::found(self.disk, &self.system.gpt);
            let told = damaged_loaders::note(damage, self.disk, &self.identity, &self.system, observer);
            planned.plan.warnings.extend(told);
        }
        let would = dry_run.then(|| execute::would_move(&planned.plan, self.disk, &sources)).flatten();
        let (would, why) = would.unwrap_or_default();
        why.iter().for_each(|why| observer.note(why));
        let payload = change.payload(&self.system);
        let (disk, PlannedChange { plan, hash, .. }) = (self.identity, planned);
        let [bytes_reused, bytes_written] = [tally.reused, tally.written].map(AtomicU64::into_inner);
        Ok(Box::new(ChangeReport {
            changed,
            dry_run,
            disk,
            payload,
            bytes_fetched: sources.payload.map_or(0, PayloadFiles::fetched) + would.fetched,
            bytes_reused: bytes_reused + would.reused,
            bytes_written,
            plan_hash: hash,
            plan,
        }))
    }
}

/// Whether a reboot follows, or may.
const fn matters_soon(goal: Goal) -> bool {
    matches!(goal, Goal::Upgrade | Goal::Activate | Goal::Confirm | Goal::Rollback)
}

/// A plan without steps says nothing of the payload that it is for.
fn hash_for(plan: &Plan, payload: Option<Sha256>) -> Sha256 {
    let plan = plan.hash();
    payload.map_or(plan, |payload| Sha256::of(&[plan.0, payload.0].concat()))
}

pub fn change(
    disk: &DiskRequest,
    access: Access,
    change: &dyn Change,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let opened = disk.open(access, observer)?;
    note_doubt(observer)?;
    look(disk, &opened)?.change(change, Sources::default(), options, observer)
}

/// A note, if the kernel's boot variable does not count.
pub fn note_doubt(observer: &mut dyn Observer) -> Result<(), Failure> {
    if let Some(doubt) = super::boot_words()?.not_believed {
        observer.note(&doubt.to_string());
    }
    Ok(())
}

pub fn look<'d>(request: &DiskRequest, disk: &'d Disk) -> Result<InstalledDisk<'d>, Failure> {
    let name = request.path.display().to_string();
    InstalledDisk::look(disk, disk.identity().clone(), &name, &super::kernel_cmdline()?)
}
