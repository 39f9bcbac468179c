//! The answer of `unattended`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{ChangeReport, InstallReport};
use crate::{config::unattended::Then, media::medium_id::MediumId};

/// Result of an unattended installation. The caller carries out `then`; the installer does not.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct UnattendedReport {
    /// The next action; `stay` if nothing was changed.
    pub then: Then,
    /// Where the installation was asked for; `null` if nowhere.
    pub asked_by: Option<String>,
    /// Path of the disk.
    pub disk: Option<String>,
    pub medium: Option<MediumId>,
    pub outcome: Outcome,
}

/// The outcome of an unattended installation.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing, with the reason.
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
