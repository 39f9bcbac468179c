//! The answer of `support`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{support::Missing, units::approx};

/// The contents of an archive.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SupportReport {
    /// The archive, a .tar.gz.
    pub archive: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The number of files in it, besides `manifest.json`.
    pub files: usize,
    /// The parts that could not be collected. That is no failure.
    pub missing: Vec<Missing>,
}

impl fmt::Display for SupportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} files, {}", self.archive, self.files, approx(self.bytes))?;
        self.missing.iter().try_for_each(|of| write!(f, "\nnot in it: {}: {}", of.what, of.why))
    }
}
