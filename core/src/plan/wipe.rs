//! Wipe STATE or EPHEMERAL: blank first, then format, so that a power loss never leaves half a file system.

use crate::prelude::*;

use super::{Goal, Plan, Refusals, RequestBase, SystemFacts, VolumeHolds, draft::Draft, env_copies::EnvCopies};
use crate::disk::layout::Part;

/// `installer wipe` with every choice made.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct WipeRequest {
    pub base: RequestBase,
    /// The volumes: STATE, EPHEMERAL.
    pub parts: Vec<Part>,
    /// Whether to make XFS on them. `None`: only on volumes that hold XFS now, or shall hold it by boot.env.
    pub format: Option<bool>,
}

/// Plan the wipe.
pub fn wipe(request: &WipeRequest, system: &SystemFacts) -> Result<Plan, Refusals> {
    let mut draft = Draft::new(&request.base, system);
    // An upgrade or an activation that was to make EPHEMERAL anew was cut short.
    let unfinished = system.env.as_ref().filter(|env| env.format_ephemeral && request.parts.contains(&Part::Ephemeral));
    for part in &request.parts {
        let held = system.held(*part);
        let finishes = *part == Part::Ephemeral && unfinished.is_some() && held != VolumeHolds::Luks;
        // An encrypted volume stays blank: only the OS has the key to make a new one. So does a volume that an
        // interrupted wipe left blank, because it may have been encrypted.
        draft.wipe(*part, request.format.unwrap_or(held == VolumeHolds::Xfs || finishes));
    }
    if let Some(env) = unfinished {
        let mut copies = EnvCopies::read(system, request.base.now)?;
        draft.extend(Part::Esp, copies.write(&env.wiped(), false));
    }
    let names: Vec<&str> = request.parts.iter().map(|p| p.name()).collect();
    let meanwhile = "volumes may be blank or incomplete; the system boots";
    Ok(draft.plan(Goal::Wipe, format!("wiped: {}", names.join(", ")), meanwhile.to_owned()))
}
