//! Names that follow from what they are for: two controllers, and one that was started anew, find the same.

use std::collections::BTreeMap;

use slipway_core::digest::Sha256;
use slipway_fleet_objects::rollout::Rollout;
use slipway_node::request::Goal;
use uuid::Uuid;

/// The operation of this kind for this node in this rollout; `attempt` counts from 0.
///
/// A new attempt is a new operation: a node does what it was asked for once. A new rollout has a new UID, and begins with
/// the first attempt.
pub fn operation(rollout: &str, node: &str, goal: Goal, attempt: u64) -> Uuid {
    let text = format!("slipway-fleet {rollout} {node} {goal:?} {attempt}");
    let Sha256(digest) = Sha256::of(text.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

/// The UUID of an operation, if a controller has made it. Its rollout may be gone. Other programs make random UUIDs, and the
/// part of Talos' API makes UUIDs with a prefix.
pub fn of_a_controller(id: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(id).ok()?;
    (id.get_version_num() == 8 && !id.as_bytes().starts_with(b"talos+")).then_some(id)
}

/// The purpose of a staging: the rollout, the image if it is not the rollout's own, and whether any version is taken. In the
/// name of the operation it stands where others have the rollout. So what could not be staged for one purpose is asked for
/// again for another.
pub fn staging(rollout: &str, image: Option<&str>, any_version: bool) -> String {
    let image = image.map(|image| format!(" {image}")).unwrap_or_default();
    format!("{rollout}{image}{}", if any_version { " any version" } else { "" })
}

/// The number of a rollout among those of its payload in its pool; 0 if its name is not one of ours.
pub fn number(rollout: &Rollout) -> u32 {
    let plan = &rollout.spec.plan;
    let number = rollout.metadata.name.as_deref().and_then(|name| name.strip_prefix(&stem(&plan.pool, plan.payload)));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The rollouts of this payload in this pool.
pub fn rollouts<'a>(pool: &str, payload: Sha256, all: &'a [Rollout]) -> impl Iterator<Item = &'a Rollout> {
    all.iter().filter(move |of| of.spec.plan.pool == pool && of.spec.plan.payload == payload)
}

/// The last one of them.
pub fn last<'a>(pool: &str, payload: Sha256, all: &'a [Rollout]) -> Option<&'a Rollout> {
    rollouts(pool, payload, all).max_by_key(|of| number(of))
}

/// The payloads that rollouts of this pool have denied, by their digests, and why.
pub fn denied<'a>(pool: &str, rollouts: &'a [Rollout]) -> BTreeMap<String, &'a str> {
    let of_pool = rollouts.iter().filter(|of| of.spec.plan.pool == pool);
    let why = |of: &'a Rollout| Some((String::from(of.spec.plan.payload), of.status.as_ref()?.denied.as_deref()?));
    of_pool.filter_map(why).collect()
}

/// The name of the rollout of this payload in this pool that comes after `last`. Of two controllers that make one at once,
/// the second is told that it is there already.
pub fn rollout(pool: &str, payload: Sha256, last: Option<&Rollout>) -> String {
    format!("{}{}", stem(pool, payload), last.map_or(0, number).saturating_add(1))
}

fn stem(pool: &str, payload: Sha256) -> String {
    format!("{pool}-{}-", &payload.to_string()[..10])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_the_same_for_everybody_and_another_for_each_purpose() {
        let one = operation("r", "n", Goal::Upgrade, 0);
        assert_eq!(one, operation("r", "n", Goal::Upgrade, 0));
        let others = [
            operation("s", "n", Goal::Upgrade, 0),
            operation("r", "m", Goal::Upgrade, 0),
            operation("r", "n", Goal::Stage, 0),
            operation("r", "n", Goal::Upgrade, 1),
        ];
        assert!(others.iter().all(|other| *other != one));
    }

    #[test]
    fn an_operation_of_a_controller_is_told_from_those_of_people() {
        let one = operation("r", "n", Goal::Upgrade, 0);
        assert_eq!(of_a_controller(&one.to_string()), Some(one));
        let mut talos = *one.as_bytes();
        talos[..6].copy_from_slice(b"talos+");
        let talos = Uuid::new_v8(talos).to_string();
        for other in [&talos, "00000000-0000-4000-8000-000000000000", "", "no name"] {
            assert_eq!(of_a_controller(other), None, "{other}");
        }
    }
}
