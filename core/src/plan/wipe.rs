//! Volumes of the OS made anew: blank at once, so that a cut leaves no half of a file system, then formatted.

use crate::prelude::*;

use super::{Goal, Plan, Refusals, RequestBase, SystemFacts, VolumeHolds, slots::Draft};
use crate::disk::layout::Part;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct WipeRequest {
    /// Disk and time.
    pub base: RequestBase,
    /// Which volumes: STATE, EPHEMERAL.
    pub parts: Vec<Part>,
    /// Make XFS file systems on them, or leave them blank; if not said, what held XFS gets XFS.
    pub format: Option<bool>,
}

/// Decide.
pub fn wipe(request: &WipeRequest, system: &SystemFacts) -> Result<Plan, Refusals> {
    let mut draft = Draft::new(&request.base, system);
    for part in &request.parts {
        // What is encrypted is followed by what the OS makes, which has the key; so is what a cut left blank.
        draft.wipe(*part, request.format.unwrap_or(system.held(*part) == VolumeHolds::Xfs));
    }
    let names: Vec<&str> = request.parts.iter().map(|p| p.name()).collect();
    let meanwhile =
        "volumes may be blank or incomplete; the system boots; run the same command again with --format-data";
    Ok(draft.plan(Goal::Wipe, format!("made anew: {}", names.join(", ")), meanwhile.to_owned()))
}
