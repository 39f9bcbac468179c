//! The events of a round, for people.

use jiff::Timestamp;
use slipway_fleet_objects::{
    ledger::LEDGER,
    pool::{Approval, RunNow},
    rollout::Rollout,
};
use slipway_node_api::text::clean_and_cut;
use slipway_rollout::{
    blocked::{Blocked, mend},
    decide::{Action, BlockedNode},
    ledger::{Ledger, Proof},
};

use crate::{
    events::EventRecord,
    round::{PoolRound, Round},
};

/// The most bytes of why a rollout has stopped: what to do about it comes after that.
const WHY: usize = 700;

/// The events of this round, for people.
pub fn events(round: &Round, before: &Ledger, now: Timestamp) -> Vec<EventRecord> {
    let mut told = Vec::new();
    let mut of_node = |node: &slipway_rollout::ledger::Node, reason, token: u64, message, is_warning| {
        let (name, uid, which) = (node.name.clone(), node.uid.clone(), token.to_string());
        told.push(EventRecord { kind: "Node", api: "v1", name, uid, reason, which, message, is_warning });
    };
    for step in &round.freed {
        let Action::Free { uid, proof } = step else { continue };
        let Some(grant) = before.held(uid) else { continue };
        let (why, is_warning) = match proof {
            Proof::Well { .. } => ("the node is well".to_owned(), false),
            Proof::Gone { .. } => ("the Node is gone".to_owned(), true),
            Proof::Succeeded { .. } => ("its successor is well".to_owned(), false),
            Proof::Word { who, why } => (format!("{who} says so: {why}"), true),
        };
        let message = format!("the grant {} is free: {why}", grant.token);
        of_node(&grant.node, "GrantFreed", grant.token, message, is_warning);
    }
    for grant in round.ledger.grants.iter().filter(|grant| before.held(&grant.node.uid).is_none()) {
        of_node(&grant.node, "GrantGiven", grant.token, format!("it may begin, with the grant {}", grant.token), false);
    }
    if let Some(claim) = before.kubernetes.as_ref().filter(|_| round.ledger.kubernetes.is_none()) {
        told.push(EventRecord {
            kind: "DisruptionLedger",
            api: "fleet.slipway.dev/v1alpha1",
            name: LEDGER.to_owned(),
            uid: LEDGER.to_owned(),
            reason: "ClaimFreed",
            which: claim.token.to_string(),
            message: format!("the claim {} of Kubernetes {} is free: a person says so", claim.token, claim.version),
            is_warning: true,
        });
    }
    told.extend(round.pools.values().flatten().flat_map(|pool_round| of_rollout(pool_round, now)));
    told
}

/// The events of a rollout.
fn of_rollout(pool_round: &PoolRound, now: Timestamp) -> Vec<EventRecord> {
    let Some(rollout) = &pool_round.rollout else { return Vec::new() };
    let mut told = Vec::new();
    let mut tell = |reason, which, message, is_warning| {
        told.push(EventRecord {
            kind: "Rollout",
            api: "fleet.slipway.dev/v1alpha1",
            name: rollout.metadata.name.clone().unwrap_or_default(),
            uid: rollout.metadata.uid.clone().unwrap_or_default(),
            reason,
            which,
            message,
            is_warning,
        });
    };
    let steps = &pool_round.decision.steps;
    let mut grants = false;
    let is_denied = pool_round.facts.denied.is_some() || steps.iter().any(|step| matches!(step, Action::Deny { .. }));
    for step in steps {
        match step {
            Action::Deny { why, .. } => {
                tell("PayloadDenied", String::new(), format!("nothing new begins: {why}"), true);
            }
            Action::Pause { why } if !is_denied => tell("RolloutPaused", String::new(), stops(rollout, why), true),
            Action::Grant { .. } => grants = true,
            _ => {}
        }
    }
    let was_aborted = rollout.status.as_ref().is_some_and(|status| status.aborted.is_some());
    if let Some(why) = pool_round.facts.aborted.as_ref().filter(|_| !was_aborted) {
        tell("RolloutAborted", String::new(), format!("it is given up: {why}"), true);
    }
    let holds = pool_round.facts.window_override.is_some_and(|window_override| now < window_override.until);
    let word = pool_round.desired.pool.spec.run_now.as_ref().filter(|_| grants && holds);
    if let Some(RunNow { until, word, .. }) = word {
        tell(
            "RunsNow",
            until.to_string(),
            format!("windows and blackouts do not count until {until:.0}: {word}"),
            true,
        );
    }
    let waits = |blocked: &&BlockedNode| matches!(blocked.why, Blocked::Approval { .. });
    if let Some(BlockedNode { why, .. }) = pool_round.decision.blocked.iter().find(waits) {
        tell("WaitsForApproval", why.to_string(), why.to_string(), true);
    }
    let given = rollout.status.iter().flat_map(|status| &status.approvals);
    let highest = given.map(|given| given.wave).max().unwrap_or(0);
    if let Some(Approval { wave, word, .. }) =
        pool_round.desired.approval(Some(rollout)).filter(|approval| approval.wave > highest)
    {
        tell("WaveApproved", wave.to_string(), format!("wave {wave} and those before it may begin: {word}"), false);
    }
    told
}

fn stops(rollout: &Rollout, why: &str) -> String {
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    format!("it stops by itself: {}; {}", clean_and_cut(why, WHY), mend(name))
}
