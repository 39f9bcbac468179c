//! What belongs to no pool alone: the grants and the claim that the ledger holds, and the version of Kubernetes. Each grant
//! and the claim keep others waiting, whether or not a rollout is there that says so.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use slipway_fleet_objects::{
    kubernetes_upgrade::{CLUSTER, KubernetesUpgrade},
    upgrade::NodeUpgrade,
};
use slipway_rollout::ledger::{Grant, KubernetesClaim, Ledger, Role};

/// A grant of a node, or the claim of an upgrade of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// What for.
    pub purpose: Purpose,
    /// Its number.
    pub token: u64,
    /// The node that holds it; null of a claim.
    pub node: Option<String>,
    /// The pool of this node when it was given; null of a claim.
    pub pool: Option<String>,
    /// Since when it is held.
    pub since: Timestamp,
    /// Why it is still held, and what that keeps waiting.
    pub message: String,
    /// The command by which a person frees it, who knows that nothing goes on any more.
    pub command: String,
}

/// What a grant or a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// A node is upgraded, or goes back.
    Upgrade,
    /// The machine of a node is deleted, and another one takes its place.
    Replacement,
    /// The control plane is upgraded to another version of Kubernetes.
    Kubernetes,
}

impl Held {
    /// The claim, and the grants that are `wanted`, in the order of their tokens. `gone` has the UIDs of holders whose Node
    /// is not there any more, as far as that is known.
    pub fn all(
        ledger: &Ledger,
        upgrades: &[NodeUpgrade],
        gone: &BTreeSet<String>,
        wanted: impl Fn(&Grant) -> bool,
    ) -> Vec<Self> {
        let told: BTreeMap<&str, &NodeUpgrade> =
            upgrades.iter().map(|upgrade| (upgrade.spec.node_uid.as_str(), upgrade)).collect();
        let grants = ledger.grants.iter().filter(|grant| wanted(grant)).map(|grant| {
            let has_two = ledger.grants.iter().filter(|other| other.node.name == grant.node.name).count() > 1;
            let which = if has_two { format!(" --token {}", grant.token) } else { String::new() };
            let command = format!("slipwayctl fleet unblock {}{which} --reason WHY", grant.node.name);
            let says = told.get(grant.node.uid.as_str()).map(|upgrade| upgrade.status.as_ref());
            let message = match says {
                // A controller names the command where it knows that only a person can tell.
                Some(Some(status)) if status.message.contains(&command) => status.message.clone(),
                Some(Some(status)) => format!("{}; if it does not end: {command}", status.message),
                Some(None) => format!("no controller has said anything of it yet; if it does not end: {command}"),
                None => homeless(grant, gone.contains(&grant.node.uid)) + &command,
            };
            Self::grant(grant, message, command)
        });
        let mut held: Vec<Self> = grants.chain(ledger.kubernetes.as_ref().map(Self::claim)).collect();
        held.sort_by_key(|held| held.token);
        held
    }

    fn grant(Grant { node, token, since, replaces }: &Grant, message: String, command: String) -> Self {
        Self {
            purpose: if replaces.is_some() { Purpose::Replacement } else { Purpose::Upgrade },
            token: *token,
            node: Some(node.name.clone()),
            pool: Some(node.pool.clone()),
            since: *since,
            message,
            command,
        }
    }

    fn claim(KubernetesClaim { token, version, since }: &KubernetesClaim) -> Self {
        let command = "slipwayctl kubernetes unblock --reason WHY".to_owned();
        Self {
            purpose: Purpose::Kubernetes,
            token: *token,
            node: None,
            pool: None,
            since: *since,
            message: format!(
                "it is upgraded to {version}, and no node begins until that is completed or rolled back; if no run goes on \
                 with it: {command}"
            ),
            command,
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let Self { token, since, message, .. } = self;
        match (&self.node, &self.pool) {
            (Some(node), Some(pool)) => {
                format!("grant {token}  {node} of the pool {pool}, since {since:.0}: {message}")
            }
            _ => format!("claim {token}  Kubernetes, since {since:.0}: {message}"),
        }
    }
}

/// The holders that no pool has: no controller says anything of them.
pub fn homeless_holders<'a>(ledger: &'a Ledger, upgrades: &[NodeUpgrade]) -> Vec<&'a Grant> {
    let told: BTreeSet<&str> = upgrades.iter().map(|upgrade| upgrade.spec.node_uid.as_str()).collect();
    ledger.grants.iter().filter(|grant| !told.contains(grant.node.uid.as_str())).collect()
}

/// Why the grant of a node that no pool has is still held, up to the command that frees it.
fn homeless(grant: &Grant, is_gone: bool) -> String {
    let is_member = grant.node.role == Role::ControlPlane;
    let why = match (&grant.replaces, is_gone) {
        (Some(replaces), _) => format!("its machine {} is replaced, and no pool has its Node", replaces.name),
        (None, false) => "no pool has its Node, and it has not begun, or is not well".to_owned(),
        (None, true) => "its Node is gone".to_owned(),
    };
    let waits = if is_member { ", and no other node of the control plane begins" } else { "" };
    let first = match (is_gone, is_member) {
        (true, true) => "remove its member of etcd, then",
        (true, false) => "a controller frees it with its next look; without one",
        (false, _) => "if it does not end",
    };
    format!("{why}{waits}; {first}: ")
}

/// The version of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubernetes {
    /// The version that is wanted.
    pub version: String,
    /// The version that was reached the last time.
    pub observed: Option<String>,
    /// The state, in one word that stays the same: UpToDate, Running, Waiting, Paused, Failed, Invalid; Unknown if no
    /// controller has looked at it yet.
    pub state: String,
    /// Why no more goes on, in one word that stays the same.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// The number of static pods that are still to be replaced, as the running Job says.
    pub left: Option<u32>,
}

impl Kubernetes {
    /// As the controller told of it.
    pub fn new(of: &Result<KubernetesUpgrade, String>) -> Self {
        let of = match of {
            Ok(of) => of,
            Err(why) => return Self::not_understood(why),
        };
        let status = of.status.clone().unwrap_or_default();
        let is_new = status.state.is_empty();
        let word = |word: String| if is_new { "Unknown".to_owned() } else { word };
        Self {
            version: of.spec.version.clone(),
            observed: status.observed_version,
            state: word(status.state),
            reason: word(status.reason),
            message: if is_new { "no controller has looked at it yet".to_owned() } else { status.message },
            left: status.run.filter(|_| status.job.is_some()).map(|run| run.left),
        }
    }

    fn not_understood(why: &str) -> Self {
        Self {
            version: "?".to_owned(),
            observed: None,
            state: "Invalid".to_owned(),
            reason: "NotUnderstood".to_owned(),
            message: format!("the KubernetesUpgrade {CLUSTER} is not understood by this program: {why}"),
            left: None,
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let has = self.observed.as_ref().map(|has| format!(", has {has}")).unwrap_or_default();
        let left = self.left.map(|left| format!(", {left} steps left")).unwrap_or_default();
        format!("Kubernetes {}  {}{has}{left}: {}", self.version, self.state, self.message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ledger() -> Ledger {
        let grant = |token: u64, name: &str, uid: &str, role: &str| {
            json!({ "node": { "uid": uid, "name": name, "pool": "p", "role": role }, "token": token,
                "since": "2026-06-01T11:00:00Z" })
        };
        let mut grants = [
            grant(5, "w1", "u1", "worker"),
            grant(4, "c1", "u2", "control-plane"),
            grant(3, "w2", "u3", "worker"),
            grant(2, "w2", "u4", "worker"),
            grant(1, "w3", "u5", "worker"),
        ];
        let zeros = "0".repeat(64);
        grants[4]["replaces"] = json!({ "payload": zeros, "machine": "um", "name": "m-1", "set": "us",
            "newest": "2026-06-01T11:00:00Z", "others": [] });
        let claim = json!({ "token": 6, "version": "1.31.2", "since": "2026-06-01T11:30:00Z" });
        serde_json::from_value(json!({ "epoch": 6, "grants": grants, "kubernetes": claim })).unwrap()
    }

    fn upgrades() -> Vec<NodeUpgrade> {
        let message = "it is being upgraded, with the grant 5";
        let status = json!({ "reason": "UnderWay", "message": message });
        let spec = json!({ "nodeUID": "u1", "pool": "p" });
        vec![serde_json::from_value(json!({ "metadata": { "name": "w1" }, "spec": spec, "status": status })).unwrap()]
    }

    #[test]
    fn whatever_is_held_says_by_whom_since_when_why_and_how_it_is_freed() {
        let (ledger, gone) = (ledger(), ["u2", "u3"].map(str::to_owned).into());
        let held = Held::all(&ledger, &upgrades(), &gone, |_| true);
        let lines: Vec<String> = held.iter().map(Held::line).collect();
        let at = "since 2026-06-01T11:00:00Z";
        let wanted = [
            format!(
                "grant 1  w3 of the pool p, {at}: its machine m-1 is replaced, and no pool has its Node; if it does not end: \
                 slipwayctl fleet unblock w3 --reason WHY"
            ),
            format!(
                "grant 2  w2 of the pool p, {at}: no pool has its Node, and it has not begun, or is not well; if it does not \
                 end: slipwayctl fleet unblock w2 --token 2 --reason WHY"
            ),
            format!(
                "grant 3  w2 of the pool p, {at}: its Node is gone; a controller frees it with its next look; without one: \
                 slipwayctl fleet unblock w2 --token 3 --reason WHY"
            ),
            format!(
                "grant 4  c1 of the pool p, {at}: its Node is gone, and no other node of the control plane begins; remove its \
                 member of etcd, then: slipwayctl fleet unblock c1 --reason WHY"
            ),
            format!(
                "grant 5  w1 of the pool p, {at}: it is being upgraded, with the grant 5; if it does not end: slipwayctl fleet \
                 unblock w1 --reason WHY"
            ),
            "claim 6  Kubernetes, since 2026-06-01T11:30:00Z: it is upgraded to 1.31.2, and no node begins until that is \
             completed or rolled back; if no run goes on with it: slipwayctl kubernetes unblock --reason WHY"
                .to_owned(),
        ];
        assert_eq!(lines, wanted);
        let homeless: Vec<u64> = homeless_holders(&ledger, &upgrades()).iter().map(|grant| grant.token).collect();
        assert_eq!(homeless, [1, 2, 3, 4]);
    }

    #[test]
    fn a_command_that_a_controller_named_is_not_named_twice() {
        let mut upgrades = upgrades();
        let command = "slipwayctl fleet unblock w1 --reason WHY";
        upgrades[0].status.as_mut().unwrap().message = format!("it does not answer: {command}");
        let held = Held::all(&ledger(), &upgrades, &BTreeSet::new(), |grant| grant.token == 5);
        assert_eq!((held[0].line().matches(command).count(), held.len()), (1, 2), "{held:?}");
        upgrades[0].status = None;
        let held = Held::all(&ledger(), &upgrades, &BTreeSet::new(), |grant| grant.token == 5);
        assert!(held[0].message.starts_with("no controller has said anything of it yet; "), "{held:?}");
    }
}
