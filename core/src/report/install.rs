//! The answer of `install`.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{digest::Sha256, disk::identity::DiskIdentity, plan::Plan};

/// The system that was installed, or with `--dry-run` would be.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct InstallReport {
    /// Whether anything was written.
    pub changed: bool,
    pub disk: DiskIdentity,
    /// Digest that names the payload.
    pub payload: Sha256,
    /// The plan that was or would be carried out.
    pub plan: Plan,
}

impl fmt::Display for InstallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.changed {
            true => write!(f, "installed: {}; everything written was read back from the disk", self.plan.result),
            false => {
                self.plan.fmt(f)?;
                f.write_str("dry run: nothing was written")
            }
        }
    }
}
