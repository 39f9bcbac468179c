//! What is seen of the cluster, and what is wanted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slipway_core::payload::minor_version::MinorVersion;

use crate::{
    add_ons::{AddOn, Workload},
    component::Component,
    images::Images,
    version::Version,
};

/// Where the control plane is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To the target.
    Forward,
    /// To what each node kept, as long as it keeps it.
    Back,
}

/// Everything that the next step depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Where to.
    pub direction: Direction,
    /// The version that is wanted.
    pub target: Version,
    /// The images that people pin. For other components the image follows from the version.
    pub images: Images,
    /// The nodes of the control plane, by name.
    pub nodes: BTreeMap<String, Node>,
    /// The kubelets of all nodes, by node: their versions as they say them.
    pub kubelets: BTreeMap<String, String>,
    /// The add-ons that people give to the upgrade.
    pub add_ons: BTreeMap<AddOn, Workload>,
    /// What the fleet's ledger says.
    pub claim: Claim,
    /// What was looked at before anything is touched.
    pub gates: Vec<Gate>,
    /// Servers emulate their older minor version until everything has been well with the target for long enough.
    pub emulate: bool,
    /// Before anything is touched, every node has the images that it will run.
    pub pre_pull: bool,
    /// Before anything is touched, a snapshot of etcd is made.
    pub needs_snapshot: bool,
    /// How long everything must have been well with the target before the way back closes, in seconds.
    pub soak: u64,
    /// For how long everything has been well with the target; `None` if it is not.
    pub well_for: Option<u64>,
}

/// Whether this upgrade has the ledger's claim. While it has, no node is upgraded by the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// The cluster has no ledger: no fleet upgrades its nodes.
    #[default]
    NoFleet,
    /// It may have it.
    Free,
    /// It has it, with this token.
    Held(u64),
    /// It may not have it now: why.
    Refused(String),
}

/// A node of the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Why the node cannot be asked.
    pub silent: Option<String>,
    /// What the node does, if it is an operation on its OS.
    pub busy: Option<String>,
    /// Its static pods.
    pub pods: BTreeMap<Component, StaticPod>,
    /// It can make a snapshot of etcd.
    pub makes_snapshots: bool,
    /// The snapshot of etcd that this run has asked for.
    pub snapshot: Option<Snapshot>,
    /// The images that this run has it pull.
    pub pull: Option<Pull>,
}

/// Images that a node was asked to pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// All of them.
    pub images: BTreeSet<String>,
    /// How far it is.
    pub state: PullState,
}

/// How far a node is with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PullState {
    /// They are being pulled.
    UnderWay,
    /// The node has all of them.
    Done,
    /// It lacks one: which, and why.
    Failed(String),
}

/// A snapshot of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Snapshot {
    /// It is being made, or tried.
    UnderWay,
    /// It is on the medium, and a trial restore had all of its keys.
    Made,
    /// There is none: why.
    Failed(String),
}

/// A static pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticPod {
    /// The image in its manifest.
    pub image: String,
    /// The image that its node can bring back.
    pub kept: Option<String>,
    /// Why it is not well; `None` if it is.
    pub ill: Option<String>,
    /// The minor version that it emulates until the upgrade is completed.
    pub emulates: Option<MinorVersion>,
    /// The image by which it is being replaced.
    pub under_way: Option<String>,
    /// Why its last replacement came back, if this run asked for it.
    pub came_back: Option<String>,
}

impl StaticPod {
    /// The version of its image.
    pub fn version(&self) -> Option<Version> {
        Version::of_image(&self.image)
    }
}

/// Something that must be so before anything is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Its name, in one word.
    pub name: String,
    /// Why it is closed; `None` if it is open.
    pub closed: Option<String>,
}

impl Facts {
    /// The proof that frees the ledger's claim: every node says that it keeps no older manifest, and that it is at none.
    pub fn is_settled(&self) -> bool {
        let silent = self.nodes.values().any(|node| node.silent.is_some());
        !self.nodes.is_empty() && !silent && !self.is_touched()
    }

    /// A node keeps an older manifest, or is at one.
    pub fn is_touched(&self) -> bool {
        self.pods().any(|(.., pod)| pod.kept.is_some() || pod.under_way.is_some())
    }

    /// The version of every static pod is known. Without that no plan says that nothing is left to do.
    pub fn is_known(&self) -> bool {
        let has_all =
            |node: &Node| Component::ALL.iter().all(|of| node.pods.get(of).is_some_and(|pod| pod.version().is_some()));
        !self.nodes.is_empty() && self.nodes.values().all(has_all)
    }

    /// Each static pod that is there.
    pub fn pods(&self) -> impl Iterator<Item = (&str, Component, &StaticPod)> {
        self.nodes.iter().flat_map(|(name, node)| node.pods.iter().map(|(of, pod)| (name.as_str(), *of, pod)))
    }
}
