//! What the verbs that change an installed disk share: look, decide, print or do, report.

use anyhow::{Context as _, anyhow};

use super::look;
use crate::{
    cli::{ChangeArgs, DiskArgs, Progress},
    device::{Access, BlockIo as _, Disk, RateLimited, RateLimiter},
    error::{Failure, OrFail as _},
    execute::{self, Observer as _, Sources},
    probe,
};
use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    disk::layout::Part,
    plan::{Plan, Refusals, RequestBase, Step, SystemFacts},
    rate::ByteRate,
    report::{ChangeReport, FailureKind},
};

/// An installed disk, opened and looked at.
pub struct Target {
    disk: Disk,
    /// How fast it may be used, where that is limited.
    pace: Option<RateLimiter>,
    pub system: SystemFacts,
    name: String,
}

impl Target {
    /// Open it; `Access::Whole` where volumes of the OS are made anew.
    pub fn open(args: &DiskArgs, whole: bool) -> Result<Self, Failure> {
        let access = if whole { Access::Whole } else { Access::Write };
        let (disk, system) = look(args, access)?;
        let name = disk.identity().path.clone();
        Ok(Target { disk, pace: None, system, name })
    }

    /// Use the disk no faster than this.
    pub fn limit(&mut self, rate: Option<ByteRate>) {
        self.pace = rate.map(RateLimiter::new);
    }

    /// The limit.
    pub const fn pace(&self) -> Option<&RateLimiter> {
        self.pace.as_ref()
    }

    /// Compare every file of a slot with its digest.
    pub fn check(&mut self, slot: Slot, progress: &mut Progress) {
        let label = &self.system.gpt;
        progress.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(&self.disk, label, slot));
        let disk = RateLimited::new(&self.disk, self.pace.as_ref());
        let whole = probe::slot_is_whole(&disk, label, slot, &mut |n| progress.advance(n));
        self.system.slots[slot].whole = Some(whole);
    }

    /// Decide, and carry it out unless it is a dry run.
    pub fn change(
        mut self,
        args: &ChangeArgs,
        sources: Sources,
        payload: Option<Sha256>,
        decide: impl Fn(&RequestBase, &SystemFacts) -> Result<Plan, Refusals>,
        progress: &mut Progress,
    ) -> Result<Box<ChangeReport>, Failure> {
        let decide = |now| {
            decide(&RequestBase { disk: self.name.clone(), now }, &self.system).map_err(|refusals| Failure {
                kind: refusals.kind(),
                error: anyhow::Error::new(refusals).context(self.name.clone()),
            })
        };
        // Named without the time of day: the same hash as long as nothing has changed.
        let hash = decide(0)?.hash();
        let plan = decide(super::now())?;
        if let Some(asked) = args.plan_hash.filter(|asked| *asked != hash) {
            let text =
                "the disk, the payload or the request is not what it was when the plan was made: nothing was written";
            return Err(anyhow!("{text} (plan {asked}, now {hash})").context(self.name)).or_fail(FailureKind::Install);
        }
        plan.warnings.iter().for_each(|warning| progress.note(warning));
        let changed = !args.dry_run && !plan.steps.is_empty();
        if changed {
            let (label, parts) = (&self.system.gpt, [Part::Esp, Part::BootA, Part::BootB]);
            // A slot that is mounted can still be confirmed: its marker is a file of one sector that nobody else writes.
            let bulk = plan.steps.iter().filter(|step| !matches!(step, Step::WriteMarker { .. }));
            let written: Vec<_> = bulk.flat_map(Step::writes).collect();
            let claims = parts.map(|part| label.part(part)).into_iter();
            let claims: Vec<_> = claims.filter(|part| written.iter().any(|e| part.contains(*e))).collect();
            self.disk
                .claim_parts(&claims)
                .context("claiming what is going to be written")
                .or_fail(FailureKind::Install)?;
            // What somebody left there unwritten must not come after what is written now.
            self.disk.forget_cached(label.part(Part::Meta)).context("META").or_fail(FailureKind::Install)?;
            let disk = RateLimited::new(&self.disk, self.pace.as_ref());
            let done = execute::run(&plan, &disk, sources, progress);
            done.map_err(|e| Failure { kind: e.kind, error: e.into() })?;
        }
        let disk = self.disk.identity().clone();
        Ok(Box::new(ChangeReport { changed, dry_run: args.dry_run, disk, payload, plan_hash: hash, plan }))
    }
}
