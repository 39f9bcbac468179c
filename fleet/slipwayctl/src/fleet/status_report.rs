//! The progress of rollouts, as data. The controller wrote all of it: this program decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    Attribution,
    kubernetes_upgrade::KubernetesUpgrade,
    pool::{NodePool, RunNow, Skip},
    rollout::{ApprovalRecord, Rollout, RolloutStatus},
    upgrade::{NodeUpgrade, NodeUpgradeStatus},
};
use slipway_rollout::{
    duration::PositiveDuration,
    ledger::{Grant, Ledger, Node, Role},
    plan::Wave as Planned,
};

use super::{
    cluster::NotUnderstood,
    cluster_wide::{Held, Kubernetes},
};

/// The version of what is printed. It changes only when a key goes away or changes its meaning.
pub const SCHEMA: u32 = 1;
/// The message of a pool without a status.
pub const UNSEEN: &str =
    "no controller has looked at it yet: `kubectl --namespace slipway-fleet get pods` shows whether one runs";

/// A controller says once a minute that it looks at a pool. Where it has not for so long, none does.
const UNATTENDED: SignedDuration = SignedDuration::from_mins(5);

/// The answer of `slipwayctl --output json fleet status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// FleetStatus.
    pub kind: &'static str,
    /// The pools, by name.
    pub pools: Vec<Pool>,
    /// What the ledger holds: the grants of these pools and of the control plane, and the claim of Kubernetes. Each keeps
    /// others waiting.
    pub held: Vec<Held>,
    /// Objects that this program does not understand, and shows nothing of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_understood: Vec<NotUnderstood>,
    /// The labels by which the pools were chosen.
    #[serde(skip)]
    pub selector: Option<String>,
    /// The version of Kubernetes, if people want one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The state, in one word that stays the same: UpToDate, Finished, Incomplete, Running,
    /// Waiting, Paused, Denied, Aborted, Invalid; Unknown if no controller has looked at it yet.
    pub state: String,
    /// The state, and the reason why it goes no further; for people.
    pub message: String,
    /// The number of its nodes.
    pub nodes: u32,
    /// The number of them that run the target, are well, and hold no grant.
    pub done: u32,
    /// No controller has looked since the pool was changed.
    pub behind: bool,
    /// No controller has looked since then, which is minutes ago: what is said here may not be so any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unattended_since: Option<Timestamp>,
    /// Who has paused it, and why.
    pub paused: Option<Attribution>,
    /// Who has it go now, and until when.
    pub run_now: Option<RunNow>,
    /// Nodes that people leave out.
    pub skip: Vec<Skip>,
    /// The bytes that its nodes have moved to stage the payload, as far as they say.
    pub moved: MovedBytes,
    /// The rollout that is followed.
    pub rollout: Option<Followed>,
    /// Nodes of the pool that its plan does not have.
    pub others: Vec<Member>,
}

/// Where the bytes of a payload came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovedBytes {
    /// Bytes from a registry.
    pub fetched: u64,
    /// Bytes that the nodes' own slots had already.
    pub reused: u64,
    /// Bytes that were written into slots: the others were in place.
    pub written: u64,
}

/// A rollout that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Followed {
    /// Its name.
    pub name: String,
    /// The installer image.
    pub image: String,
    /// The digest that names the payload.
    pub payload: Sha256,
    /// The hash of its plan.
    pub plan: Sha256,
    /// Why its payload is tried on no other node.
    pub denied: Option<String>,
    /// Who has given it up, and why.
    pub aborted: Option<String>,
    /// The approvals of people, and their times.
    pub approvals: Vec<ApprovalRecord>,
    /// The waves of its plan.
    pub waves: Vec<Wave>,
}

/// One wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// Its number, from 1.
    pub number: u32,
    /// Where it is.
    pub stage: Stage,
    /// The time for which all of its nodes must be well before the next wave.
    pub soak: Option<PositiveDuration>,
    /// Its nodes, in the order in which they go.
    pub nodes: Vec<Member>,
}

/// Where a wave is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is over.
    Over,
    /// Its nodes go.
    GoesOn,
    /// Its nodes are done, and must stay well for some time.
    Soaks,
    /// An earlier one is not over.
    Waits,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub status: NodeStatus,
    /// Why it does not go, in one word that stays the same; Done if nothing is left to do.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// The step of what is being done on it.
    pub step: Option<String>,
    /// The grant that it holds.
    pub token: Option<u64>,
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeStatus {
    /// It runs the payload, and is well.
    Done,
    /// Something is being done with it.
    UnderWay,
    /// It waits.
    Waits,
    /// It was tried, and runs something else.
    Failed,
    /// It runs the payload and is not well, or what it says does not fit.
    Ill,
    /// It does not answer, or is gone and still holds a grant.
    Silent,
    /// People leave it out.
    LeftOut,
    /// It is in the pool no more.
    Gone,
}

/// Where a node is about which the controller says this word.
fn status_of(reason: &str) -> NodeStatus {
    match reason {
        "Done" => NodeStatus::Done,
        "UnderWay" | "MovedWithGrant" | "Rebooting" | "Begins" | "Granted" | "Staging" | "Aborts" | "Returns"
        | "Deletes" | "MachineGoes" | "SuccessorJoins" | "SuccessorNotWell" | "NoSuccessor" => NodeStatus::UnderWay,
        "Failed" => NodeStatus::Failed,
        "NotWell" | "Overtaken" | "TokenAhead" | "KeepsDenied" | "SuccessorDiffers" | "SuccessorElsewhere"
        | "NotUnderstood" => NodeStatus::Ill,
        "Silent" | "SilentWithGrant" | "GoneWithGrant" => NodeStatus::Silent,
        "Skipped" => NodeStatus::LeftOut,
        _ => NodeStatus::Waits,
    }
}

/// The objects that were read.
#[derive(Debug)]
pub struct ClusterObjects {
    /// Pools by name, or why one is not understood.
    pub pools: BTreeMap<String, Result<NodePool, String>>,
    /// Rollouts.
    pub rollouts: Vec<Rollout>,
    /// Nodes, as the controller told of them.
    pub upgrades: Vec<NodeUpgrade>,
    /// The ledger.
    pub ledger: Ledger,
    /// UIDs of nodes that hold a grant and whose Node is not there any more, as far as that is known.
    pub gone: BTreeSet<String>,
    /// The version of Kubernetes, if people want one, or why that is not understood.
    pub kubernetes: Option<Result<KubernetesUpgrade, String>>,
    /// Others that are not understood.
    pub not_understood: Vec<NotUnderstood>,
}

impl Report {
    /// Of these pools, or of all if none is named, as they are at this time. `selector` has the labels by which the pools in
    /// `objects` were chosen.
    pub fn new(objects: &ClusterObjects, (names, selector): (&[String], Option<&str>), now: Timestamp) -> Self {
        let is_named = |name: &str| names.is_empty() || names.iter().any(|of| of == name);
        let pools = objects.pools.iter().filter(|(name, _)| is_named(name));
        let pools = pools.map(|(name, pool)| match pool {
            Ok(pool) => objects.pool(name, pool, now),
            Err(why) => Pool::invalid(name, why),
        });
        let pools: Vec<Pool> = pools.collect();
        let is_whole = names.is_empty() && selector.is_none();
        // Whose pools are chosen asks for these alone, and for what keeps them waiting.
        let kubernetes = objects.kubernetes.as_ref().filter(|_| is_whole).map(Kubernetes::new);
        let is_shown = |name: &str| pools.iter().any(|pool| pool.name == name);
        let moved = |grant: &Grant| {
            objects.upgrades.iter().any(|of| of.spec.node_uid == grant.node.uid && is_shown(&of.spec.pool))
        };
        let concerns = |grant: &Grant| {
            is_whole || grant.node.role == Role::ControlPlane || is_shown(&grant.node.pool) || moved(grant)
        };
        let held = if is_whole || !pools.is_empty() {
            Held::all(&objects.ledger, &objects.upgrades, &objects.gone, concerns)
        } else {
            Vec::new()
        };
        let (not_understood, selector) = (objects.not_understood.clone(), selector.map(str::to_owned));
        Self { schema: SCHEMA, kind: "FleetStatus", pools, held, not_understood, selector, kubernetes }
    }
}

impl Pool {
    fn invalid(name: &str, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: "Invalid".to_owned(),
            message: format!("this program does not understand it: {why}"),
            nodes: 0,
            done: 0,
            behind: false,
            unattended_since: None,
            paused: None,
            run_now: None,
            skip: Vec::new(),
            moved: MovedBytes::default(),
            rollout: None,
            others: Vec::new(),
        }
    }
}

impl ClusterObjects {
    fn pool(&self, name: &str, pool: &NodePool, now: Timestamp) -> Pool {
        let status = pool.status.clone().unwrap_or_default();
        let is_new = status.state.is_empty();
        let mut members: BTreeMap<&str, &NodeUpgrade> = BTreeMap::new();
        for upgrade in self.upgrades.iter().filter(|upgrade| upgrade.spec.pool == name) {
            members.insert(&upgrade.spec.node_uid, upgrade);
        }
        let named = |rollout: &&Rollout| rollout.metadata.name.is_some() && rollout.metadata.name == status.rollout;
        let rollout = self.rollouts.iter().find(named);
        let planned: BTreeSet<&str> =
            rollout.iter().flat_map(|of| of.spec.plan.nodes()).map(|(_, node)| node.uid.as_str()).collect();
        let succeeded = rollout.and_then(|of| of.status.as_ref()).map(|status| &status.succeeded);
        let heirs: BTreeSet<&str> = succeeded.iter().flat_map(|of| of.values()).map(String::as_str).collect();
        let others = members.iter().filter(|(uid, _)| !planned.contains(*uid) && !heirs.contains(*uid));
        let others = others.map(|(_, upgrade)| member(upgrade));
        Pool {
            name: name.to_owned(),
            state: if is_new { "Unknown".to_owned() } else { status.state.clone() },
            message: if is_new { UNSEEN.to_owned() } else { status.message.clone() },
            nodes: status.nodes,
            done: status.done,
            behind: pool.metadata.generation.unwrap_or(0) > status.observed_generation,
            unattended_since: status.observed_at.filter(|at| now.duration_since(*at) > UNATTENDED),
            paused: pool.spec.paused.clone(),
            run_now: pool
                .spec
                .run_now
                .clone()
                .filter(|of| now < of.until && rollout.is_some_and(|this| is_of(of, this))),
            skip: pool.spec.skip.clone(),
            moved: moved(members.values()),
            rollout: rollout.map(|rollout| self.followed(rollout, &members)),
            others: others.collect(),
        }
    }

    fn followed(&self, rollout: &Rollout, members: &BTreeMap<&str, &NodeUpgrade>) -> Followed {
        let status = rollout.status.clone().unwrap_or_default();
        let (plan, passed) = (&rollout.spec.plan, status.passed as usize);
        let waves = plan.waves.iter().enumerate().map(|(n, wave)| {
            let nodes: Vec<Member> = wave.nodes.iter().map(|node| self.planned(node, members, &status)).collect();
            Wave {
                number: u32::try_from(n + 1).unwrap_or(u32::MAX),
                stage: stage(n, passed, wave, &nodes),
                soak: wave.soak,
                nodes,
            }
        });
        Followed {
            name: rollout.metadata.name.clone().unwrap_or_default(),
            image: rollout.spec.image.clone(),
            payload: plan.payload,
            plan: plan.hash,
            denied: status.denied.clone(),
            aborted: status.aborted.clone(),
            approvals: status.approvals.clone(),
            waves: waves.collect(),
        }
    }

    /// A node of a plan, or who came in its place. One that is gone may still hold a grant.
    fn planned(&self, node: &Node, members: &BTreeMap<&str, &NodeUpgrade>, status: &RolloutStatus) -> Member {
        if let Some(of) = status.replacing.iter().find(|of| of.node_uid == node.uid) {
            let token = self.ledger.held(&node.uid).map(|grant| grant.token);
            let (reason, message) = (of.reason.clone(), of.message.clone());
            return Member { name: node.name.clone(), status: status_of(&reason), reason, message, step: None, token };
        }
        if let Some(upgrade) = status.succeeded.get(&node.uid).and_then(|heir| members.get(heir.as_str())) {
            let heir = member(upgrade);
            return Member { message: format!("{} (in the place of {})", heir.message, node.name), ..heir };
        }
        if let Some(upgrade) = members.get(node.uid.as_str()) {
            return member(upgrade);
        }
        let token = self.ledger.held(&node.uid).map(|grant| grant.token);
        let (status, message) = match token {
            Some(token) => {
                (NodeStatus::Silent, format!("its Node is not in the pool any more, and it holds the grant {token}"))
            }
            None => (NodeStatus::Gone, "its Node is not in the pool any more".to_owned()),
        };
        Member { name: node.name.clone(), status, reason: "Gone".to_owned(), message, step: None, token }
    }
}

fn moved<'u>(upgrades: impl Iterator<Item = &'u &'u NodeUpgrade>) -> MovedBytes {
    upgrades.filter_map(|upgrade| upgrade.status.as_ref()).fold(MovedBytes::default(), |all, status| MovedBytes {
        fetched: all.fetched.saturating_add(status.bytes_fetched.unwrap_or_default()),
        reused: all.reused.saturating_add(status.bytes_reused.unwrap_or_default()),
        written: all.written.saturating_add(status.bytes_written.unwrap_or_default()),
    })
}

fn is_of(now: &RunNow, rollout: &Rollout) -> bool {
    rollout.metadata.uid.as_ref() == Some(&now.rollout_uid)
}

fn stage(n: usize, passed: usize, wave: &Planned, nodes: &[Member]) -> Stage {
    let is_settled = |member: &Member| {
        matches!(member.status, NodeStatus::Done | NodeStatus::Failed | NodeStatus::LeftOut | NodeStatus::Gone)
            && member.token.is_none()
    };
    match n.cmp(&passed) {
        std::cmp::Ordering::Less => Stage::Over,
        std::cmp::Ordering::Greater => Stage::Waits,
        // Where no node has it, no time counts.
        std::cmp::Ordering::Equal
            if wave.soak.is_some()
                && nodes.iter().all(is_settled)
                && nodes.iter().any(|member| member.status == NodeStatus::Done) =>
        {
            Stage::Soaks
        }
        std::cmp::Ordering::Equal => Stage::GoesOn,
    }
}

fn member(upgrade: &NodeUpgrade) -> Member {
    let name = upgrade.metadata.name.clone().unwrap_or_default();
    let Some(NodeUpgradeStatus { reason, message, step, token, .. }) = upgrade.status.clone() else {
        let message = "no controller has said anything of it yet".to_owned();
        return Member {
            name,
            status: NodeStatus::Waits,
            reason: "Unknown".to_owned(),
            message,
            step: None,
            token: None,
        };
    };
    Member { name, status: status_of(&reason), reason, message, step, token }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wave_soaks_only_if_a_node_has_the_payload() {
        let wave: Planned = serde_json::from_value(json!({ "nodes": [], "soak": "1h" })).unwrap();
        let of = |status| Member {
            name: "n1".to_owned(),
            status,
            reason: String::new(),
            message: String::new(),
            step: None,
            token: None,
        };
        let failed = of(NodeStatus::Failed);
        assert_eq!(stage(0, 0, &wave, std::slice::from_ref(&failed)), Stage::GoesOn);
        assert_eq!(stage(0, 0, &wave, &[failed.clone(), of(NodeStatus::Done)]), Stage::Soaks);
        assert_eq!(stage(0, 0, &wave, &[failed, of(NodeStatus::UnderWay)]), Stage::GoesOn);
    }

    #[test]
    fn a_pool_at_which_no_controller_looks_says_so() {
        let at = |time: &str| format!("2026-06-01T{time}:00Z").parse::<Timestamp>().unwrap();
        let pool = |observed: Option<&str>| -> NodePool {
            let status = json!({ "state": "UpToDate", "observedAt": observed.map(at) });
            let spec = json!({ "nodeSelector": {}, "target": { "channel": "c" } });
            serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec, "status": status })).unwrap()
        };
        let unattended = |observed: Option<&str>| {
            let pools = BTreeMap::from([("p".to_owned(), Ok(pool(observed)))]);
            let (rollouts, upgrades, ledger) = (Vec::new(), Vec::new(), Ledger::default());
            let (gone, not_understood) = (BTreeSet::new(), Vec::new());
            let objects = ClusterObjects { pools, rollouts, upgrades, ledger, gone, kubernetes: None, not_understood };
            Report::new(&objects, (&[], None), at("12:00")).pools.remove(0).unattended_since
        };
        assert_eq!(unattended(Some("11:54")), Some(at("11:54")));
        // The clocks of a controller and of this machine differ; an older controller does not say it.
        for fine in [Some("11:58"), Some("12:03"), None] {
            assert_eq!(unattended(fine), None, "{fine:?}");
        }
    }

    #[test]
    fn who_is_replaced_and_who_came_are_where_the_plan_has_them() {
        let zeros = "0".repeat(64);
        let planned =
            |n: u32| json!({ "uid": format!("u{n}"), "name": format!("n{n}"), "pool": "p", "role": "worker" });
        let wave = json!({ "nodes": [planned(1), planned(2)] });
        let plan = json!({ "pool": "p", "payload": zeros, "hash": zeros, "waves": [wave] });
        let gone = json!({ "nodeUID": "u2", "node": "n2", "reason": "NoSuccessor", "message": "no machine came" });
        let rollout = json!({ "metadata": { "name": "p-1", "uid": "one" }, "spec": { "image": "i", "plan": plan },
            "status": { "succeeded": { "u1": "u9" }, "replacing": [gone] } });
        let runs = json!({ "rolloutUID": "one", "until": "2026-06-01T11:59:00Z", "who": "a", "why": "b" });
        let pool = json!({ "metadata": { "name": "p" },
            "spec": { "nodeSelector": {}, "target": { "channel": "c" }, "runNow": runs },
            "status": { "state": "Running", "rollout": "p-1" } });
        let heir = json!({ "metadata": { "name": "n9" }, "spec": { "nodeUID": "u9", "pool": "p" },
            "status": { "reason": "Done", "message": "it runs it" } });
        let objects = ClusterObjects {
            pools: BTreeMap::from([("p".to_owned(), Ok(serde_json::from_value(pool).unwrap()))]),
            rollouts: vec![serde_json::from_value(rollout).unwrap()],
            upgrades: vec![serde_json::from_value(heir).unwrap()],
            ledger: Ledger::default(),
            gone: BTreeSet::new(),
            kubernetes: None,
            not_understood: Vec::new(),
        };
        let pool = Report::new(&objects, (&[], None), "2026-06-01T12:00Z".parse().unwrap()).pools.remove(0);
        assert!(pool.others.is_empty(), "{:?}", pool.others);
        assert_eq!(pool.run_now, None, "it is over since a minute");
        let [one, two] = &pool.rollout.as_ref().unwrap().waves[0].nodes[..] else { panic!("two nodes") };
        assert_eq!(
            (one.status, one.name.as_str(), one.message.as_str()),
            (NodeStatus::Done, "n9", "it runs it (in the place of n1)")
        );
        assert_eq!((two.status, two.name.as_str(), two.reason.as_str()), (NodeStatus::UnderWay, "n2", "NoSuccessor"));
    }
}
