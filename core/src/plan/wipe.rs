//! Wipe STATE or EPHEMERAL: blank first, then format, so that a power loss never leaves half a file system.

use crate::prelude::*;

use super::{Goal, Plan, Refusals, RequestBase, SystemFacts, VolumeHolds, slots::Draft};
use crate::disk::layout::Part;

/// `installer wipe` with every choice made.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct WipeRequest {
    pub base: RequestBase,
    /// Which volumes: STATE, EPHEMERAL.
    pub parts: Vec<Part>,
    /// Whether to make XFS on them. `None`: only on those that hold XFS now.
    pub format: Option<bool>,
}

/// Plan the wipe.
pub fn wipe(request: &WipeRequest, system: &SystemFacts) -> Result<Plan, Refusals> {
    let mut draft = Draft::new(&request.base, system);
    for part in &request.parts {
        // An encrypted volume stays blank: only the OS has the key to make a new one. So does a volume that an
        // interrupted wipe left blank, because it may have been encrypted.
        draft.wipe(*part, request.format.unwrap_or(system.held(*part) == VolumeHolds::Xfs));
    }
    let names: Vec<&str> = request.parts.iter().map(|p| p.name()).collect();
    let meanwhile =
        "volumes may be blank or incomplete; the system boots; run the same command again with --format-data";
    Ok(draft.plan(Goal::Wipe, format!("wiped: {}", names.join(", ")), meanwhile.to_owned()))
}
