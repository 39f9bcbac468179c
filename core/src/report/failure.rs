//! The answer of a run that failed.

use crate::prelude::*;

use alloc::borrow::Cow;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{FailureId, FailureKind};
use crate::plan::Refusal;

/// Why a run failed. It is the document on stdout of every run that has no other.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FailureReport {
    /// The verb; `null` if the command line has none.
    pub verb: Option<String>,
    /// Exit code of the process.
    pub exit_code: u8,
    /// The meaning of the exit code.
    pub kind: FailureKind,
    /// The identifier of the failure, for programs to decide by.
    #[schemars(with = "FailureId")]
    pub id: String,
    /// The text behind `error: ` on stderr.
    pub message: String,
    /// All reasons against the request, if it was refused by the plan.
    pub refusals: Vec<RefusalReport>,
    /// The step of the plan that failed, if one did.
    pub step: Option<FailedStep>,
    /// The state of the disk now; `null` if that is not known, or no disk is concerned.
    pub disk_state: Option<String>,
    /// The remedy, if one is known.
    pub remedy: Option<String>,
}

/// One reason against a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RefusalReport {
    /// As in the report itself.
    #[schemars(with = "FailureId")]
    pub id: String,
    /// The reason.
    pub message: String,
    /// The remedy, if there is one.
    pub remedy: Option<String>,
}

/// A step of a plan that failed. All steps before it are on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FailedStep {
    /// Its number, from 1.
    pub number: usize,
    /// Number of steps.
    pub of: usize,
    /// Its action.
    pub text: String,
}

impl From<&Refusal> for RefusalReport {
    fn from(refusal: &Refusal) -> Self {
        RefusalReport {
            id: refusal.id().name().to_owned(),
            message: refusal.to_string(),
            remedy: refusal.remedy().map(Cow::into_owned),
        }
    }
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)
    }
}
