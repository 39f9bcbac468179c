//! The answers of every verb that changes an installed disk, and of `guard`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    boot::slot::Slot,
    digest::Sha256,
    disk::identity::DiskIdentity,
    plan::{Goal, Plan},
    units::approx,
};

/// The change that was made, or with `--dry-run` would be made.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct ChangeReport {
    /// Whether anything was written.
    pub changed: bool,
    /// Whether only the plan was asked for.
    pub dry_run: bool,
    pub disk: DiskIdentity,
    /// Digest that names the payload, if the change is about one.
    pub payload: Option<Sha256>,
    /// Bytes that came over the network: documents, indexes of chunks, layers. With `dry_run` also those that the change
    /// would fetch.
    #[serde(default)]
    pub bytes_fetched: u64,
    /// Bytes of the payload's layers that came from the slots, or with `dry_run` would come from there.
    #[serde(default)]
    pub bytes_reused: u64,
    /// Bytes of files that were written into a slot. What is in place already is not written again.
    #[serde(default)]
    pub bytes_written: u64,
    /// Hash of the plan; `--plan-hash` makes a later run refuse any other plan.
    pub plan_hash: Sha256,
    /// The plan. Without steps there was nothing to do.
    pub plan: Plan,
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = &self.plan.result;
        // After the first half of a repair there may be no second one.
        if self.plan.steps.is_empty() && !self.changed {
            // What is left is for another verb.
            let is_left = self.plan.goal == Goal::Repair && !self.plan.warnings.is_empty();
            return write!(f, "{}: {result}", if is_left { "nothing to write again" } else { "nothing to do" });
        }
        if self.dry_run {
            let hash = self.plan_hash;
            self.plan.fmt(f)?;
            if self.bytes_fetched > 0 {
                let (fetched, reused) = (approx(self.bytes_fetched), approx(self.bytes_reused));
                writeln!(f, "  moves: about {fetched} from the registry, {reused} from the slots")?;
            }
            return write!(f, "  then: {result}\n  plan hash: {hash}\ndry run: nothing was written");
        }
        write!(f, "{}: {result}", self.plan.goal)
    }
}

/// The reason why the guard of a trial has ended. A guard that reboots the machine does not answer.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuardReport {
    /// The slot on trial; `null` if none is.
    pub slot: Option<Slot>,
    /// The reason, as a sentence.
    pub why: String,
}

impl fmt::Display for GuardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Some(slot) => write!(f, "guard: the trial of slot {slot} is over: {}", self.why),
            None => write!(f, "guard: nothing to do: {}", self.why),
        }
    }
}
