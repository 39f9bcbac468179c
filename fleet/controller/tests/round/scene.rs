//! Objects and nodes, as they would be read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_fleet::{
    cluster::Objects,
    names,
    observed_node::{NoReport, NodeReading},
    pools::Members,
    replacement_facts::ReplacementFacts,
    round::{Observation, RejectedWrites, Round, round},
};
use slipway_fleet_objects::ledger::DisruptionLedger;
use slipway_node::request::Goal;
use slipway_node_api::v1::{
    self, Disk, Ended, Health, HealthState, Outcome, Slot, SlotContents, SlotState, StatusResponse,
};

pub const NEW: &str = "2";

pub fn payload(name: &str) -> Sha256 {
    Sha256::of(name.as_bytes())
}

pub fn now() -> Timestamp {
    "2026-06-01T12:00Z".parse().unwrap()
}

/// The objects that a controller would read.
pub struct Scene {
    pub ledger: DisruptionLedger,
    pub objects: Objects,
    pub readings: BTreeMap<String, NodeReading>,
    pub replacement_facts: ReplacementFacts,
    pub refused: RejectedWrites,
    pub api_server: Option<String>,
}

impl Scene {
    /// The pool `p` has so many nodes, which run `1`, and are to run `2`.
    pub fn new(nodes: usize) -> Self {
        let objects = Objects {
            pools: BTreeMap::new(),
            unreadable_pools: Vec::new(),
            policies: BTreeMap::new(),
            channels: BTreeMap::new(),
            rollouts: Vec::new(),
            unreadable: Vec::new(),
            upgrades: BTreeMap::new(),
            nodes: Vec::new(),
        };
        let ledger = DisruptionLedger::new("cluster", Default::default());
        let mut scene = Self {
            ledger,
            objects,
            readings: BTreeMap::new(),
            replacement_facts: ReplacementFacts::default(),
            refused: RejectedWrites::default(),
            api_server: None,
        };
        (0..nodes).for_each(|n| scene.node(n));
        scene.pool("p", json!({}));
        scene
    }

    /// One more node.
    pub fn node(&mut self, n: usize) {
        let (name, uid) = (format!("n{n}"), format!("uid-{n}"));
        let node = json!({ "metadata": { "name": name, "uid": uid, "labels": { "pool": "p" } } });
        self.objects.nodes.push(serde_json::from_value(node).unwrap());
        let slot = |slot: Slot, name: Option<&str>| SlotContents {
            slot: slot.into(),
            state: Some(SlotState::Good.into()),
            payload: name.map(|name| payload(name).into()),
            ..Default::default()
        };
        let slots = vec![slot(Slot::A, Some("1")), slot(Slot::B, None)];
        let disk = Disk { running: Slot::A.into(), next: Some(Slot::A.into()), slots };
        let health = Health { state: HealthState::Well.into(), seconds: 90, reasons: Vec::new() };
        let status = StatusResponse { node: name, disk: Some(disk), health: Some(health), ..Default::default() };
        self.readings.insert(uid, NodeReading { status: Ok(status), at: now(), refused: None });
    }

    pub fn says(&mut self, n: usize) -> &mut StatusResponse {
        self.readings.get_mut(&format!("uid-{n}")).unwrap().status.as_mut().unwrap()
    }

    pub fn silence(&mut self, n: usize) {
        self.readings.get_mut(&format!("uid-{n}")).unwrap().status = Err(NoReport::Silent("no answer".to_owned()));
    }

    pub fn label(&mut self, n: usize, key: &str, value: &str) {
        let labels = self.objects.nodes[n].metadata.labels.as_mut().unwrap();
        labels.insert(key.to_owned(), value.to_owned());
    }

    /// A pool as people write it, with this instead of what pools have here.
    pub fn pool(&mut self, name: &str, more: Value) {
        let target = json!({ "image": format!("docker://registry.example/os:{NEW}"), "payload": payload(NEW) });
        let mut spec = json!({ "nodeSelector": { "pool": "p" }, "target": target });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let pool =
            serde_json::from_value(json!({ "metadata": { "name": name, "uid": format!("uid-{name}") }, "spec": spec }));
        self.objects.pools.insert(name.to_owned(), Ok(pool.unwrap()));
    }

    pub fn policy(&mut self, name: &str, spec: Value) {
        let policy = json!({ "metadata": { "name": name }, "spec": spec });
        self.objects.policies.insert(name.to_owned(), Ok(serde_json::from_value(policy).unwrap()));
    }

    /// The node's upgrade in the first rollout, with the last token that it obeyed, has ended like this.
    pub fn came_back(&mut self, n: usize, why: &str) {
        let rollout = self.objects.rollouts[0].metadata.uid.clone().unwrap();
        let says = self.says(n);
        let id = names::operation(&rollout, &format!("uid-{n}"), Goal::Upgrade, says.token).to_string();
        let outcome = Some(Outcome { came_back: Some(why.to_owned()), left: false });
        says.ended.insert(0, Ended { id, goal: v1::Goal::Upgrade.into(), outcome, ..Ended::default() });
        // A journal keeps so many.
        says.ended.truncate(32);
    }

    pub fn round(&self) -> Round {
        self.round_at(now())
    }

    /// By a clock that says this.
    pub fn round_at(&self, now: Timestamp) -> Round {
        let members = Members::new(&self.objects);
        let (ledger, objects, readings, replacement_facts) =
            (&self.ledger, &self.objects, &self.readings, &self.replacement_facts);
        let (api_server, refused) = (self.api_server.as_deref(), &self.refused);
        let observation = Observation { ledger, objects, readings, replacement_facts, api_server, own: None, refused };
        round(observation, &members, now)
    }

    /// The rollouts that a round wants are made.
    pub fn roll(&mut self) {
        for mut rollout in self.round().new {
            rollout.metadata.uid = rollout.metadata.name.as_ref().map(|name| format!("uid-{name}"));
            self.objects.rollouts.push(rollout);
        }
    }
}
