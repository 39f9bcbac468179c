//! The input of decisions about a node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use slipway_core::digest::Sha256;
use slipway_node::request::Goal;
use slipway_node_api::{
    enum_name,
    v1::{Ended, SlotContents, SlotState, StatusResponse, Step},
};
use slipway_rollout::{
    facts::{Failure, FailureEvidence, NodeReport, ObservedNode, RollbackState},
    ledger::{Node, Role},
};

use uuid::Uuid;

use crate::{
    names,
    node_report::{self, node_report},
};

/// So many operations a node remembers, at most. Each of its stagings has a number below that.
const KEPT: u64 = 64;

/// Why nothing is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReport {
    /// The controller can ask no node at all: why.
    Unasked(String),
    /// It does not answer: why.
    Silent(String),
    /// It answers, and nothing can be decided from that: a sentence.
    Unclear(String),
}

/// The result of a look at a node.
#[derive(Clone, Debug)]
pub struct NodeReading {
    /// Its own report, or why there is none.
    pub status: Result<StatusResponse, NoReport>,
    /// When the answer had come.
    pub at: Timestamp,
    /// Why it did not do what this controller asked for last; `None` if it did, or was asked for nothing.
    pub refused: Option<String>,
}

/// The UID of a Node; each object of an API server has one.
pub fn uid(node: &core::Node) -> &str {
    node.metadata.uid.as_deref().unwrap_or_default()
}

/// The name of a Node.
pub fn name(node: &core::Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn label<'a>(node: &'a core::Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The role of a Node, as kubeadm and its likes label it.
pub fn role(node: &core::Node) -> Role {
    let labels = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
    if labels.iter().any(|key| label(node, key).is_some()) { Role::ControlPlane } else { Role::Worker }
}

/// A Node as a member of a pool; `zones` is the label that says where it is.
pub fn member(node: &core::Node, pool: &str, zones: &str) -> Node {
    Node {
        uid: uid(node).to_owned(),
        name: name(node).to_owned(),
        pool: pool.to_owned(),
        zone: label(node, zones).map(str::to_owned),
        role: role(node),
    }
}

/// Where its service listens: the address that the cluster itself uses.
pub fn address(node: &core::Node, port: u16) -> Result<String, String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let internal = addresses.into_iter().flatten().find(|address| address.type_ == "InternalIP");
    let address = &internal.ok_or("its Node has no address of the type InternalIP")?.address;
    Ok(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
}

/// The node's report with regard to `payload`; `rollouts` are the UIDs of the rollouts that bring it. The error says why
/// nothing can be decided from it: then it counts as one that does not answer.
pub fn report(look: &NodeReading, node: &Node, payload: Sha256, rollouts: &[&str]) -> Result<NodeReport, NoReport> {
    let status = look.status.as_ref().map_err(Clone::clone)?;
    if status.node != node.name {
        return Err(NoReport::Unclear(format!("who answers at its address says that it is {:?}", status.node)));
    }
    let mut report = node_report(status, payload, look.at).map_err(|e| NoReport::Unclear(e.to_string()))?;
    if report.runs == payload {
        keeps(&mut report, rollouts.iter().find_map(|rollout| way_back(status, rollout, &node.uid)));
    }
    if let Some(last) = node_report::unstaged(status, payload)
        && ![false, true].iter().any(|any_version| is_staging_of(last, rollouts, &node.uid, *any_version))
    {
        forget_staging(&mut report);
    }
    let tried = |status| rollouts.iter().find_map(|rollout| came_back(status, rollout, &node.uid));
    if report.failed.is_none() && report.runs != payload {
        report.failed = tried(status);
    }
    Ok(report)
}

/// Why a node that this rollout has asked to go back still runs the payload. What ended before the next boot was the other
/// slot's is repeated, as on the way forward: a PodDisruptionBudget may have kept a pod.
fn keeps(report: &mut NodeReport, asked: Option<&Ended>) {
    let Some((asked, outcome)) = asked.and_then(|asked| Some((asked, asked.outcome.as_ref()?))) else { return };
    match outcome.came_back.clone() {
        Some(why) if asked.reached < i32::from(Step::Activate) => {
            report.failed = Some(Failure { evidence: FailureEvidence::BeforeReboot, why });
        }
        why => {
            let why = why.unwrap_or_else(|| "it went back, and runs the payload again".to_owned());
            report.rollback = RollbackState::Failed(why);
        }
    }
}

/// The failure of this rollout's last upgrade of the node: the one with the last token that it obeyed. Where the payload was
/// booted and not well, the node denies it, and says so elsewhere. What came back without that came back before; or a person
/// has aborted it while the payload ran, and what was wrong with it is not known.
fn came_back(status: &StatusResponse, rollout: &str, node: &str) -> Option<Failure> {
    let back = way_back(status, rollout, node).and_then(|asked| asked.outcome.as_ref());
    if back.is_some_and(|outcome| outcome.came_back.is_none()) {
        let why = "it went back, because the payload is denied".to_owned();
        return Some(Failure { evidence: FailureEvidence::Unknown, why });
    }
    let id = names::operation(rollout, node, Goal::Upgrade, status.token).to_string();
    let ended = status.ended.iter().find(|ended| ended.id == id)?;
    Some(match ended.outcome.as_ref()?.came_back.clone() {
        Some(why) if may_have_booted(status, ended) => {
            let why = format!("it had booted the payload, which it does not deny: {why}");
            Failure { evidence: FailureEvidence::Unknown, why }
        }
        Some(why) => Failure { evidence: FailureEvidence::BeforeReboot, why },
        None => {
            let why = "it ran the payload, and does so no more".to_owned();
            Failure { evidence: FailureEvidence::Unknown, why }
        }
    })
}

/// True if the upgrade went on after its reboot; or if it came to where the next boot is the payload's, and its slot was tried.
fn may_have_booted(status: &StatusResponse, ended: &Ended) -> bool {
    let mut slots = status.disk.iter().flat_map(|disk| &disk.slots);
    let was_tried = |slot: &SlotContents| {
        slot.payload.as_ref() == Some(&ended.payload) && matches!(slot.state(), SlotState::Tried | SlotState::Bad)
    };
    ended.reached > i32::from(Step::Reboot) || (ended.reached >= i32::from(Step::Activate) && slots.any(was_tried))
}

/// What came of it if this rollout has asked the node to go back, with the last token that it obeyed.
fn way_back<'a>(status: &'a StatusResponse, rollout: &str, node: &str) -> Option<&'a Ended> {
    let id = names::operation(rollout, node, Goal::Rollback, status.token).to_string();
    status.ended.iter().find(|ended| ended.id == id)
}

/// The number of the staging that is under way or comes next: after those that have ended. Each has a name of its own.
pub fn stagings(status: &StatusResponse, rollout: &str, node: &str) -> u64 {
    let id = |n| names::operation(rollout, node, Goal::Stage, n).to_string();
    let has_ended = |n: &u64| status.ended.iter().any(|ended| ended.id == id(*n));
    (0..).find(|n| !has_ended(n)).unwrap_or_default()
}

/// The obstacle of a node's operation, in the node's own words: the step and what its last try met.
pub fn blocker(status: &StatusResponse) -> Option<String> {
    let operation = status.operation.as_ref()?;
    operation.blocked.as_ref().map(|blocked| format!("{}: {blocked}", enum_name::of::<Step>(operation.step)))
}

/// The faults of a node on which nothing is under way, in its own words.
pub fn ill(status: &StatusResponse) -> Option<String> {
    let reasons = &status.health.as_ref().filter(|_| status.operation.is_none())?.reasons;
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// True if one of these rollouts has asked for this staging, with or without `any_version`. A name that is no UUID tells
/// nothing: that staging counts as theirs.
fn is_staging_of(ended: &Ended, rollouts: &[&str], node: &str, any_version: bool) -> bool {
    let Ok(id) = Uuid::try_parse(&ended.id) else { return true };
    let is_of = |purpose: &String| (0..KEPT).any(|n| names::operation(purpose, node, Goal::Stage, n) == id);
    let purposes = |of: &&str| [None, Some(ended.source.as_str())].map(|image| names::staging(of, image, any_version));
    rollouts.iter().flat_map(purposes).any(|purpose| is_of(&purpose))
}

/// The failure of a staging does not count: what comes next is another one.
fn forget_staging(report: &mut NodeReport) {
    report.failed.take_if(|failed| failed.evidence == FailureEvidence::NotStaged);
}

/// What the pool wants of the nodes of a rollout.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The payload of the rollout.
    pub payload: Sha256,
    /// The UIDs of the rollouts that bring it.
    pub rollouts: &'a [&'a str],
    /// The image that the pool now names for it; `None` if it wants another payload.
    pub image: Option<&'a str>,
    /// It may be older than what runs.
    pub any_version: bool,
}

/// The facts that the fleet knows beside the node's own word: `denied` has why a payload was denied, by digest.
pub fn consider(
    observed: &mut ObservedNode,
    look: Option<&NodeReading>,
    denied: &BTreeMap<String, &str>,
    wanted: Wanted<'_>,
) {
    closes(observed, look, denied);
    forgets_other_stagings(observed, look, wanted);
}

/// An image that could not be staged says nothing about another one with the same payload: the pool's was corrected since. Nor
/// does a refusal of its version, once any version is taken.
fn forgets_other_stagings(observed: &mut ObservedNode, look: Option<&NodeReading>, wanted: Wanted<'_>) {
    let (Some(report), Some(Ok(status))) = (&mut observed.report, look.map(|look| &look.status)) else { return };
    let (Some(image), Some(last)) = (wanted.image, node_report::unstaged(status, wanted.payload)) else { return };
    let is_wanted = !wanted.any_version || is_staging_of(last, wanted.rollouts, &observed.node.uid, true);
    if last.source != image || !is_wanted {
        forget_staging(report);
    }
}

/// Close the way back if it leads onto a payload that was denied, whatever etcd may do there.
fn closes(observed: &mut ObservedNode, look: Option<&NodeReading>, denied: &BTreeMap<String, &str>) {
    let disk = look.and_then(|look| look.status.as_ref().ok()?.disk.as_ref());
    let other = disk.and_then(|disk| disk.slots.iter().find(|slot| slot.slot != disk.running)?.payload.as_ref());
    if let Some(report) = &mut observed.report
        && matches!(report.rollback, RollbackState::Available | RollbackState::Stranding(_))
        && let Some(why) = other.and_then(|other| denied.get(other))
    {
        report.rollback = RollbackState::Denied((*why).to_owned());
    }
}

/// A node as decisions see it, and why nothing can be decided from what it says.
pub fn observe(
    look: Option<&NodeReading>,
    node: Node,
    payload: Sha256,
    rollouts: &[&str],
) -> (ObservedNode, Option<NoReport>) {
    let report = look.ok_or_else(|| NoReport::Unclear("no controller has looked at it".to_owned()));
    match report.and_then(|look| self::report(look, &node, payload, rollouts)) {
        Ok(report) => (ObservedNode { node, report: Some(report) }, None),
        Err(why) => (ObservedNode { node, report: None }, Some(why)),
    }
}
