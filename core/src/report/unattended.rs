//! What `unattended` says.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{ChangeReport, InstallReport};
use crate::{config::unattended::Then, media::medium_id::MediumId};

/// What an unattended installation came to. Who called it does what `then` says.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnattendedReport {
    /// What comes next: `stay` where nothing was changed.
    pub then: Then,
    /// Who asked for it; none where nobody did.
    pub asked_by: Option<String>,
    /// The disk.
    pub disk: Option<String>,
    /// The medium that the live system came from.
    pub medium: Option<MediumId>,
    /// What was done.
    pub outcome: Outcome,
}

/// What was done.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing, and why.
    Nothing(String),
    /// A fresh install.
    Installed(Box<InstallReport>),
    /// An upgrade of the other slot.
    Upgraded(Box<ChangeReport>),
}

impl Outcome {
    /// Whether anything was written.
    pub fn changed(&self) -> bool {
        match self {
            Outcome::Nothing(_) => false,
            Outcome::Installed(report) => report.changed,
            Outcome::Upgraded(report) => report.changed,
        }
    }
}

impl fmt::Display for UnattendedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Nothing(why) => write!(f, "nothing was done: {why}")?,
            Outcome::Installed(report) => report.fmt(f)?,
            Outcome::Upgraded(report) => report.fmt(f)?,
        }
        write!(f, "\nthen: {}", self.then.word())
    }
}
