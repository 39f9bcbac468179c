//! The answer of `enroll`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Sha256,
    plan::{EnrollPlan, Judged},
    text::printable,
};

/// The keys that were enrolled, or with `--dry-run` would be.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EnrollReport {
    /// Whether anything was written.
    pub changed: bool,
    /// Whether only the plan was asked for.
    pub dry_run: bool,
    /// Hash of the plan; `--plan-hash` makes a later run refuse any other plan.
    pub plan_hash: Sha256,
    /// The plan. Without steps there was nothing to do.
    pub plan: EnrollPlan,
    /// Whether the firmware is in setup mode now.
    pub setup_mode: bool,
    /// Whether this boot was verified. What was enrolled counts from the next one on.
    pub secure_boot: bool,
    /// Whether this is a virtual machine; `null` if it does not say.
    pub virtual_machine: Option<bool>,
    /// The programs that the next boot starts, and whether the firmware would start them.
    pub programs: Vec<Judged>,
    /// The programs that it may come back to.
    pub fallback: Vec<Judged>,
    /// Drivers in option ROMs.
    pub option_roms: Vec<Judged>,
}

impl EnrollReport {
    /// Writes one line for each program.
    fn write_judged(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, judged) in
            [("starts", &self.programs), ("way back", &self.fallback), ("option ROM", &self.option_roms)]
        {
            for Judged { name, problem } in judged {
                let says = problem.as_deref().unwrap_or("db lets it start");
                writeln!(f, "  {what:<10} {}: {}", printable(name), printable(says))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for EnrollReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = &self.plan.result;
        if self.plan.steps.is_empty() {
            return write!(f, "nothing to do: {result}");
        }
        if self.dry_run {
            let hash = self.plan_hash;
            self.plan.fmt(f)?;
            self.write_judged(f)?;
            return write!(f, "  then: {result}\n  plan hash: {hash}\ndry run: nothing was written");
        }
        let written: Vec<_> = self.plan.steps.iter().map(|step| step.variable.name()).collect();
        writeln!(f, "enrolled  {}, and read back", written.join(", "))?;
        self.write_judged(f)?;
        write!(f, "now       setup mode is left; Secure Boot counts from the next boot on")
    }
}
