//! What a round begins with: everything that was read, and the writes that were refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_fleet_objects::ledger::DisruptionLedger;
use slipway_rollout::duration::PositiveDuration;

use crate::{cluster::Objects, observed_node::NodeReading, replacement_facts::ReplacementFacts};

/// The observation.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The ledger, read before all else.
    pub ledger: &'a DisruptionLedger,
    /// The other objects.
    pub objects: &'a Objects,
    /// The nodes, by UID.
    pub readings: &'a BTreeMap<String, NodeReading>,
    /// Machines and volumes, where nodes are replaced.
    pub replacement_facts: &'a ReplacementFacts,
    /// The version of the API server; `None` if it does not say it, or nothing depends on it.
    pub api_server: Option<&'a str>,
    /// The UID of the node that this controller runs on.
    pub own: Option<&'a str>,
    /// The writes that were refused a moment ago.
    pub refused: &'a RejectedWrites,
}

/// The refused writes, by pool, and why. That is this pool's own trouble: others go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedWrites {
    /// Its rollouts. Nothing of the pool begins, and no grant of it is freed by what would have to be remembered there.
    pub rollouts: BTreeMap<String, String>,
    /// Its new grants.
    pub grants: BTreeMap<String, String>,
}

/// A reboot that a node is expected to come back from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reboot {
    /// When the controllers first had no answer.
    pub since: Timestamp,
    /// When it should be back: the firmware, a trial that the guard ends, and the old system again.
    pub until: Timestamp,
}

impl Reboot {
    /// As long as a node may be away before a person has to look, where its pool does not say it: twice what a trial may take,
    /// and a start on top. It is not learned from earlier reboots: an outage would count as a slow one.
    const DEADLINE: PositiveDuration = PositiveDuration::from_minutes(20);

    /// Of a node that has not answered since then.
    pub fn expected(since: Timestamp, deadline: Option<PositiveDuration>) -> Self {
        Self { since, until: deadline.unwrap_or(Self::DEADLINE).after(since) }
    }
}
