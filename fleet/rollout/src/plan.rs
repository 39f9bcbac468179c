//! The plan of a rollout: which nodes, in which wave, in which order. It is made once, shown to people, and followed.
//!
//! * The control plane comes last, or first as configured. The controller's own node is the very last of all: it goes
//!   when everything else is done.
//! * Within each, zone after zone, so that a rule for zones never waits for a node in the middle. Within a zone, by a hash
//!   of UID and payload: the canaries are others each time, and the same for each controller.
//! * A node that people leave out comes behind all others. One that may not be able to go comes behind the others of its
//!   part. Neither is to be the canary.
//! * A wave ends where a policy has a step, and where the control plane or the own node begins. So a step may have several
//!   waves, of which the last one soaks: all of its nodes are canaries.
//! * The hash names what is followed: pool, payload, nodes, order, soaks. It does not have the times, which depend on
//!   when one looks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::{
    duration::PositiveDuration,
    ledger::{Node, Role},
    policy::{ApprovalPolicy, Rules},
};

/// When the control plane goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Before the workers.
    ControlPlaneFirst,
    /// After them.
    #[default]
    ControlPlaneLast,
}

/// The prospects of a node when the plan is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prospect {
    /// It may go.
    #[default]
    Fair,
    /// It does not answer, could not stage, or says what cannot be.
    Poor,
    /// People leave it out.
    LeftOut,
}

/// Nodes that go before others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Wave {
    /// Its nodes, in the order in which they go.
    pub nodes: Vec<Node>,
    /// How long all of them must be well before the next wave, with those of the waves since the last soak. All of these
    /// are canaries: one failure among them is enough.
    pub soak: Option<PositiveDuration>,
}

/// The plan of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The pool that it is for.
    pub pool: String,
    /// The digest that names the payload.
    pub payload: Sha256,
    /// The waves, one after the other.
    pub waves: Vec<Wave>,
    /// The hash of all of this.
    pub hash: Sha256,
}

impl Plan {
    /// The plan for these nodes, all of which lack the payload. `own` is the UID of the node that the controller runs on.
    pub fn new(
        pool: &str,
        payload: Sha256,
        nodes: impl IntoIterator<Item = Node>,
        rules: &Rules,
        order: Order,
        own: Option<&str>,
    ) -> Self {
        Self::with_prospects(pool, payload, nodes.into_iter().map(|node| (node, Prospect::Fair)), rules, order, own)
    }

    /// The same, where some of them may not be able to go.
    pub fn with_prospects(
        pool: &str,
        payload: Sha256,
        nodes: impl IntoIterator<Item = (Node, Prospect)>,
        rules: &Rules,
        order: Order,
        own: Option<&str>,
    ) -> Self {
        let part = |node: &Node| match (order, node.role) {
            _ if own == Some(node.uid.as_str()) => Part::Own,
            (Order::ControlPlaneFirst, Role::ControlPlane) => Part::First,
            (Order::ControlPlaneLast, Role::ControlPlane) => Part::Last,
            (_, Role::Worker) => Part::Middle,
        };
        let lot = |node: &Node| Sha256::of(format!("{} {payload}", node.uid).as_bytes());
        let place = |node: &Node, prospect| (prospect == Prospect::LeftOut, part(node), prospect);
        let mut nodes: Vec<_> =
            nodes.into_iter().map(|(node, prospect)| (place(&node, prospect), lot(&node), node)).collect();
        nodes.sort_by(|(a, a_lot, a_node), (b, b_lot, b_node)| {
            (a, &a_node.zone, a_lot, &a_node.uid).cmp(&(b, &b_node.zone, b_lot, &b_node.uid))
        });
        let steps = rules.steps(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let mut waves: Vec<Wave> = Vec::new();
        let mut last = None;
        for (n, ((_, part, _), _, node)) in nodes.into_iter().enumerate() {
            let is_full = waves.last().is_none_or(|wave| wave.soak.is_some());
            if is_full || last != Some(part) {
                waves.push(Wave { nodes: Vec::new(), soak: None });
            }
            last = Some(part);
            if let Some(wave) = waves.last_mut() {
                wave.nodes.push(node);
                wave.soak = steps.iter().find(|(end, _)| *end as usize == n + 1).map(|(_, soak)| *soak);
            }
        }
        let mut plan = Self { pool: pool.to_owned(), payload, waves, hash: Sha256([0; 32]) };
        plan.hash = plan.compute_hash();
        plan
    }

    /// The hash of what it says now.
    pub fn compute_hash(&self) -> Sha256 {
        let mut text = String::new();
        // Each word with its length: no two plans give the same text.
        let mut put = |word: &str| text.push_str(&format!("{}:{word},", word.len()));
        put(&self.pool);
        put(&self.payload.to_string());
        for wave in &self.waves {
            put("wave");
            put(&wave.soak.map(String::from).unwrap_or_default());
            put(&wave.nodes.len().to_string());
            wave.nodes.iter().for_each(|node| put(&node.uid));
        }
        Sha256::of(text.as_bytes())
    }

    /// True if it is what it was when it got its hash.
    pub fn is_whole(&self) -> bool {
        self.compute_hash() == self.hash
    }

    /// The last wave up to `wave` that waits for a person's approval; `None` if none of them does. Counted from 0.
    pub fn gate(&self, approval: ApprovalPolicy, wave: usize) -> Option<usize> {
        let gate = match approval {
            ApprovalPolicy::EachWave => wave,
            // Nodes of the last wave are nobody's canaries, also if it soaks: else nobody would ever be asked.
            ApprovalPolicy::AfterCanaries => {
                let others = self.waves.split_last().map_or(&[][..], |(_, others)| others);
                others.iter().rposition(|wave| wave.soak.is_some()).map_or(0, |last| last + 1)
            }
        };
        (gate <= wave).then_some(gate)
    }

    /// The wave at the end of the step that this wave is in: the one that soaks. `None` if no step ends there or later.
    pub fn soaking_wave(&self, wave: usize) -> Option<usize> {
        (wave..self.waves.len()).find(|n| self.waves.get(*n).is_some_and(|of| of.soak.is_some()))
    }

    /// The nodes of the step that ends with this wave, each with the number of its wave: all nodes since the last soak. If
    /// this wave does not soak, its own nodes alone.
    pub fn step(&self, wave: usize) -> impl Iterator<Item = (usize, &Node)> {
        let soaks = |n: &usize| self.waves.get(*n).is_some_and(|of| of.soak.is_some());
        let first = if soaks(&wave) { (0..wave).rev().find(soaks).map_or(0, |last| last + 1) } else { wave };
        let waves = self.waves.iter().enumerate().take(wave.saturating_add(1)).skip(first);
        waves.flat_map(|(n, wave)| wave.nodes.iter().map(move |node| (n, node)))
    }

    /// Each node with the number of its wave, in their order.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.waves.iter().enumerate().flat_map(|(n, wave)| wave.nodes.iter().map(move |node| (n, node)))
    }
}

/// Which nodes go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    First,
    Middle,
    Last,
    Own,
}
