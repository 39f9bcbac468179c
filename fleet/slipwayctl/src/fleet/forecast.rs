//! A plan: its hash, when its nodes begin at the earliest, and what blocks. The times are computed here, from the policies
//! as they are now; what blocks is what the controller says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    policy::UpgradePolicy,
    pool::{NodePool, RunNow},
    rollout::Rollout,
    upgrade::NodeUpgrade,
};
use slipway_rollout::{
    blocked::mend,
    duration::PositiveDuration,
    facts::WindowOverride,
    ledger::Role,
    policy::Rules,
    preview::{self, Begins, Progress},
};

use super::{
    cluster::{ByName, Cluster},
    status_report::SCHEMA,
};
use slipway_node_api::text::clean;

use crate::failure::Failure;

/// Nodes that are named in one line.
const NAMED: usize = 8;

/// The reasons of nodes that have begun. One that does not answer may be in its reboot.
const BEGUN: [&str; 8] =
    ["Done", "NotWell", "UnderWay", "Begins", "Rebooting", "SilentWithGrant", "MovedWithGrant", "Aborts"];

/// The answer of `slipwayctl --output json fleet plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The version of this form.
    pub schema: u32,
    /// FleetPlan.
    pub kind: &'static str,
    /// The pool.
    pub pool: String,
    /// It may not be the plan of what the pool is to run: the pool was written, and no controller has looked at it since, or
    /// nodes are still at what an earlier target has begun.
    pub behind: bool,
    /// The rollout that is followed.
    pub rollout: String,
    /// The installer image.
    pub image: String,
    /// The digest that names the payload.
    pub payload: Sha256,
    /// The hash of the plan: what `resume --plan` agrees to.
    pub plan: Sha256,
    /// The assumed time that one node needs.
    pub takes: PositiveDuration,
    /// The waves.
    pub waves: Vec<Wave>,
    /// When the last soak is over, at the earliest; null if that never comes.
    pub ends: Option<Timestamp>,
    /// Why nothing more of it begins: denied, given up, stopped by itself, or its pool goes. Then no node has a time.
    pub stopped: Option<String>,
    /// It is paused. The times are those of a rollout that is resumed now.
    pub paused: bool,
    /// Why nothing may begin at this time, whatever else blocks: a window or a blackout.
    pub closed: Option<String>,
    /// The obstacles of nodes now.
    pub blocks: Vec<Block>,
}

/// One wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// Its number, from 1.
    pub number: u32,
    /// The time for which all of its nodes must be well before the next wave.
    pub soak: Option<PositiveDuration>,
    /// Its nodes, in the order in which they go.
    pub nodes: Vec<Member>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it is, if that is known.
    pub zone: Option<String>,
    /// Its role.
    pub role: Role,
    /// When it begins.
    pub begins: When,
}

/// When a node begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// It has begun.
    Already,
    /// Not before this time.
    At(Timestamp),
    /// Nothing that is allowed ever lets it begin.
    Never,
    /// It is not waited for: it failed, is left out, or is in the pool no more.
    NotExpected,
}

/// The obstacles of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// Why, in one word that stays the same.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// The nodes.
    pub nodes: Vec<String>,
}

/// The plan that this pool follows.
pub async fn forecast(
    cluster: &Cluster,
    pool: &str,
    takes: PositiveDuration,
    now: Timestamp,
) -> Result<Forecast, Failure> {
    let rollout = super::rollout_of(cluster, pool).await?;
    let of: NodePool = cluster.get(pool).await?;
    let status = of.status.clone().unwrap_or_default();
    let (policies, (upgrades, _)) = tokio::try_join!(cluster.policies(), cluster.readable::<NodeUpgrade>())?;
    let rules = rules(pool, &of, policies)?;
    let upgrades: BTreeMap<&str, &NodeUpgrade> = upgrades
        .iter()
        .filter(|upgrade| upgrade.spec.pool == pool)
        .map(|upgrade| (upgrade.spec.node_uid.as_str(), upgrade))
        .collect();
    let window_override =
        of.spec.run_now.as_ref().filter(|now| Some(&now.rollout_uid) == rollout.metadata.uid.as_ref());
    let window_override = window_override.map(RunNow::window_override);
    let is_seen = of.metadata.generation.unwrap_or(0) == status.observed_generation;
    let behind =
        !is_seen || status.rollout != rollout.metadata.name || status.payload != Some(rollout.spec.plan.payload);
    let goes = of.metadata.deletion_timestamp.is_some();
    Ok(Forecast {
        behind,
        paused: of.spec.paused.is_some(),
        ..Forecast::new((pool, goes), status.nodes, &rollout, &rules, &upgrades, (takes, window_override, now))
    })
}

/// What the policies of this pool allow. As long as it cannot be told, nothing of the pool begins.
fn rules(name: &str, pool: &NodePool, policies: ByName<UpgradePolicy>) -> Result<Rules, Failure> {
    let refused = |reason: &str, message| Failure::Refused { reason: reason.to_owned(), message };
    let mut chosen = Vec::new();
    for policy in &pool.spec.policies {
        let names = format!("spec.policies of the pool {name} names the UpgradePolicy {policy:?}, which");
        match policies.get(policy) {
            None => {
                let remedy = "apply it, or take its name out; until then nothing begins";
                return Err(refused("policy-missing", format!("{names} is not there: {remedy}")));
            }
            Some(Err(why)) => {
                let remedy = "correct it; until then nothing begins";
                return Err(refused("policy-invalid", format!("{names} cannot be understood: {why}: {remedy}")));
            }
            Some(Ok(of)) => chosen.push(of.spec.clone().policy(policy)),
        }
    }
    Rules::try_from(chosen)
        .map_err(|why| refused("policies-conflict", format!("spec.policies of the pool {name}: {why}")))
}

impl Forecast {
    fn new(
        (pool, goes): (&str, bool),
        size: u32,
        rollout: &Rollout,
        rules: &Rules,
        upgrades: &BTreeMap<&str, &NodeUpgrade>,
        (takes, window_override, now): (PositiveDuration, Option<WindowOverride>, Timestamp),
    ) -> Self {
        let plan = &rollout.spec.plan;
        let status = rollout.status.clone().unwrap_or_default();
        let reason = |uid: &str| upgrades.get(uid).and_then(|of| of.status.as_ref()).map(|of| of.reason.as_str());
        let is_replaced =
            |uid: &str| status.succeeded.contains_key(uid) || status.replacing.iter().any(|of| of.node_uid == uid);
        let has = |uid: &str, words: &[&str]| reason(uid).is_some_and(|reason| words.contains(&reason));
        let is_out = |uid: &&str| match upgrades.get(uid) {
            Some(_) => has(uid, &["Failed", "Skipped"]),
            None => !is_replaced(uid),
        };
        let has_begun = |uid: &&str| is_replaced(uid) || has(uid, &BEGUN);
        let uids = || plan.nodes().map(|(_, node)| node.uid.as_str());
        let out: BTreeSet<&str> = uids().filter(is_out).collect();
        let begun: BTreeSet<&str> = uids().filter(|uid| out.contains(uid) || has_begun(uid)).collect();
        let progress = Progress { size, passed: status.passed as usize, begun: &begun, window_override };
        let times = preview::times(plan, rules, progress, takes, now);
        let denied = status.denied.as_ref().map(|why| format!("the payload is denied: {why}"));
        let goes = goes.then(|| "the pool is being deleted".to_owned());
        let stopped = goes.or(denied).or_else(|| status.aborted.as_ref().map(|why| format!("it is given up: {why}")));
        let name = rollout.metadata.name.clone().unwrap_or_default();
        // Nobody resumes what the controllers have paused themselves.
        let by_itself = status.paused.as_ref().map(|why| format!("it has stopped by itself: {why}; {}", mend(&name)));
        let stopped = stopped.or(by_itself);
        let blocks = blocks(upgrades, uids());
        let says_so = blocks.iter().any(|block| block.reason == "WindowClosed");
        let is_open = stopped.is_some() || says_so || window_override.is_some_and(|of| now < of.until);
        let of = (&out, stopped.is_some());
        let waves = plan.waves.iter().zip(&times.begins).enumerate().map(|(n, (wave, begins))| Wave {
            number: u32::try_from(n + 1).unwrap_or(u32::MAX),
            soak: wave.soak,
            nodes: wave.nodes.iter().zip(begins).map(|(node, begins)| member(node, *begins, &of)).collect(),
        });
        Self {
            schema: SCHEMA,
            kind: "FleetPlan",
            pool: pool.to_owned(),
            behind: false,
            rollout: name,
            image: rollout.spec.image.clone(),
            payload: plan.payload,
            plan: plan.hash,
            takes,
            waves: waves.collect(),
            ends: times.ends.filter(|_| stopped.is_none()),
            closed: rules.open(now).err().filter(|_| !is_open).map(|closed| closed.to_string()),
            stopped,
            paused: false,
            blocks,
        }
    }
}

/// A node of the plan. Those of `out` are not waited for, and nobody begins in a rollout that is stopped.
fn member(node: &slipway_rollout::ledger::Node, begins: Begins, (out, is_stopped): &(&BTreeSet<&str>, bool)) -> Member {
    let begins = match begins {
        Begins::Already if out.contains(node.uid.as_str()) => When::NotExpected,
        Begins::Already => When::Already,
        Begins::At(time) if !is_stopped => When::At(time),
        Begins::At(_) | Begins::Never => When::Never,
    };
    Member { name: node.name.clone(), zone: node.zone.clone(), role: node.role, begins }
}

/// The controller's reasons of nodes that do not go, in the plan's order, each reason once.
fn blocks<'a>(upgrades: &BTreeMap<&str, &NodeUpgrade>, planned: impl Iterator<Item = &'a str>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for upgrade in planned.filter_map(|uid| upgrades.get(uid)) {
        let (Some(status), Some(name)) = (&upgrade.status, &upgrade.metadata.name) else { continue };
        if matches!(status.reason.as_str(), "Done" | "UnderWay" | "Begins" | "Granted" | "Staging") {
            continue;
        }
        match blocks.iter_mut().find(|block| block.message == status.message) {
            Some(block) => block.nodes.push(name.clone()),
            None => blocks.push(Block {
                reason: status.reason.clone(),
                message: status.message.clone(),
                nodes: vec![name.clone()],
            }),
        }
    }
    blocks
}

impl Forecast {
    /// Nothing is expected of any node that has not begun, and a failure is in the way of those.
    fn is_out(&self) -> bool {
        let mut nodes = self.waves.iter().flat_map(|wave| &wave.nodes);
        nodes.all(|node| node.begins == When::NotExpected)
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  rollout {}", clean(&self.pool), clean(&self.rollout))?;
        writeln!(f, "image   {}", clean(&self.image))?;
        writeln!(f, "payload {}", self.payload)?;
        writeln!(f, "plan    {}", self.plan)?;
        if self.behind {
            writeln!(
                f,
                "behind  it may be the plan of an earlier target: look again when a controller has looked at the pool"
            )?;
        }
        for wave in &self.waves {
            let nodes = if wave.nodes.len() == 1 { "node" } else { "nodes" };
            let soak = wave.soak.map(|soak| format!(", then {soak} in which all must be well")).unwrap_or_default();
            writeln!(f, "\nwave {}: {} {nodes}{soak}", wave.number, wave.nodes.len())?;
            for node in &wave.nodes {
                let when = match node.begins {
                    When::Already => "has begun".to_owned(),
                    When::At(time) => format!("{time:.0}"),
                    When::Never => "never".to_owned(),
                    When::NotExpected => "not expected".to_owned(),
                };
                let zone = node.zone.as_ref().map(|zone| format!("  zone {zone}")).unwrap_or_default();
                let role = if node.role == Role::ControlPlane { "  control plane" } else { "" };
                writeln!(f, "  {when:<20}  {}", clean(&format!("{}{zone}{role}", node.name)))?;
            }
        }
        let resumed = if self.paused { "it is resumed now and " } else { "" };
        match (&self.stopped, self.ends) {
            (Some(why), _) => writeln!(f, "\nNothing more of it begins: {}.", clean(why))?,
            (None, Some(_)) if self.is_out() => writeln!(f, "\nNo node of it is expected to begin.")?,
            (None, Some(ends)) => {
                writeln!(f, "\nIt ends at {ends:.0} at the earliest, if {resumed}a node takes {}.", self.takes)?;
            }
            (None, None) => writeln!(f, "\nIt never ends, as its policies are.")?,
        }
        if self.closed.is_some() || !self.blocks.is_empty() {
            writeln!(f, "\nNow:")?;
        }
        if let Some(closed) = &self.closed {
            writeln!(f, "  {}", clean(closed))?;
        }
        for Block { nodes, message, .. } in &self.blocks {
            let named = nodes.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if nodes.len() > NAMED { format!(" and {} more", nodes.len() - NAMED) } else { String::new() };
            writeln!(f, "  {}", clean(&format!("{named}{more}: {message}")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The text of a plan of two waves with a node each, where nodes say `reasons`.
    fn text(status: &Value, reasons: [&str; 2], policies: &[Value]) -> String {
        text_of(false, status, reasons, policies)
    }

    /// The same where the pool goes, or does not.
    fn text_of(goes: bool, status: &Value, reasons: [&str; 2], policies: &[Value]) -> String {
        let zeros = "0".repeat(64);
        let node = |n: u32| json!({ "uid": format!("u{n}"), "name": format!("n{n}"), "pool": "p", "role": "worker" });
        let waves = json!([{ "nodes": [node(1)], "soak": "1h" }, { "nodes": [node(2)], "soak": null }]);
        let plan = json!({ "pool": "p", "payload": zeros, "hash": zeros, "waves": waves });
        let rollout =
            json!({ "metadata": { "name": "p-1" }, "spec": { "image": "i", "plan": plan }, "status": status });
        let upgrade = |(n, reason): (usize, &str)| -> NodeUpgrade {
            let (name, uid) = (format!("n{}", n + 1), format!("u{}", n + 1));
            let status = json!({ "reason": reason, "message": format!("{reason} is said") });
            let spec = json!({ "nodeUID": uid, "pool": "p" });
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec, "status": status })).unwrap()
        };
        let upgrades: Vec<NodeUpgrade> = reasons.into_iter().enumerate().map(upgrade).collect();
        let upgrades = upgrades.iter().map(|upgrade| (upgrade.spec.node_uid.as_str(), upgrade)).collect();
        let policies = policies.iter().map(|spec| {
            let policy = json!({ "metadata": { "name": "late" }, "spec": spec });
            serde_json::from_value::<UpgradePolicy>(policy).unwrap().spec.policy("late")
        });
        let rules = Rules::try_from(policies.collect::<Vec<_>>()).unwrap();
        let (takes, now) = (PositiveDuration::minutes(10), "2026-06-01T12:00:00Z".parse().unwrap());
        let rollout: Rollout = serde_json::from_value(rollout).unwrap();
        Forecast::new(("p", goes), 2, &rollout, &rules, &upgrades, (takes, None, now)).to_string()
    }

    #[test]
    fn who_goes_no_more_has_no_time() {
        let goes = text(&json!({}), ["Granted", "EarlierWave"], &[]);
        assert!(
            goes.contains("  2026-06-01T12:00:00Z  n1\n") && goes.contains("  2026-06-01T13:10:00Z  n2\n"),
            "{goes}"
        );
        assert!(goes.contains("\nIt ends at 2026-06-01T13:20:00Z at the earliest, if a node takes 10m.\n"), "{goes}");
        // One is in its reboot.
        let reboots = text(&json!({}), ["Rebooting", "EarlierWave"], &[]);
        assert!(reboots.contains("  has begun             n1\n") && !reboots.contains("Z  n1\n"), "{reboots}");
        let failed = text(&json!({}), ["Failed", "Failed"], &[]);
        assert_eq!(failed.matches("  not expected").count(), 2, "{failed}");
        assert!(failed.contains("\nNo node of it is expected to begin.\n") && !failed.contains("It ends"), "{failed}");
        let given_up = text(&json!({ "aborted": "eve: the wrong image" }), ["Aborted", "Aborted"], &[]);
        assert_eq!(given_up.matches("  never").count(), 2, "{given_up}");
        assert!(
            given_up.contains("\nNothing more of it begins: it is given up: eve: the wrong image.\n"),
            "{given_up}"
        );
        assert!(!given_up.contains("It ends") && !given_up.contains("2026"), "{given_up}");
        let stopped = text(&json!({ "paused": "n1 ran it" }), ["Paused", "Paused"], &[]);
        let how = "it has stopped by itself: n1 ran it; mend that, and to have it tried again: kubectl delete \
                   rollout.fleet.slipway.dev/p-1";
        assert!(stopped.contains(&format!("\nNothing more of it begins: {how}.\n")), "{stopped}");
        assert!(!stopped.contains("resumed") && stopped.matches("  never").count() == 2, "{stopped}");
        let goes = text_of(true, &json!({ "denied": "n1 ran it" }), ["PayloadDenied", "PayloadDenied"], &[]);
        assert!(goes.contains("\nNothing more of it begins: the pool is being deleted.\n"), "{goes}");
    }

    #[test]
    fn who_gets_no_plan_is_told_which_field_of_which_object_and_what_to_do() {
        let target = json!({ "channel": "c" });
        let spec = |policies: &Value| json!({ "nodeSelector": { "a": "b" }, "target": target, "policies": policies });
        let refused = |policies: Value, there: ByName<UpgradePolicy>| {
            let pool = json!({ "metadata": { "name": "p" }, "spec": spec(&policies) });
            rules("p", &serde_json::from_value(pool).unwrap(), there).unwrap_err().to_string()
        };
        let policy = |key: &str| -> Result<UpgradePolicy, String> {
            let spec = json!({ "topology": { "key": key } });
            Ok(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap())
        };
        let of = "refused (policy-missing): spec.policies of the pool p names the UpgradePolicy \"late\", which is not there: \
                  apply it, or take its name out; until then nothing begins";
        assert_eq!(refused(json!(["late"]), ByName::new()), of);
        // Another pool's policy that is wrong hides nothing.
        let wrong = || ("wrong".to_owned(), Err("missing field `start`".to_owned()));
        let of = "refused (policy-invalid): spec.policies of the pool p names the UpgradePolicy \"wrong\", which cannot be \
                  understood: missing field `start`: correct it; until then nothing begins";
        assert_eq!(refused(json!(["wrong"]), [wrong()].into()), of);
        let there = || [wrong(), ("a".to_owned(), policy("rack")), ("b".to_owned(), policy("zone"))].into();
        let of = "refused (policies-conflict): spec.policies of the pool p: their topology.key differs, \"rack\" and \"zone\": \
                  give all of them the same";
        assert_eq!(refused(json!(["a", "b"]), there()), of);
        let pool = json!({ "metadata": { "name": "p" }, "spec": spec(&json!(["a"])) });
        assert!(rules("p", &serde_json::from_value(pool).unwrap(), there()).is_ok());
    }

    #[test]
    fn a_closed_window_is_named_also_while_something_else_blocks() {
        let closed = json!({ "blackouts": [{ "from": "2026-06-01T00:00", "until": "2026-06-02T00:00", "zone": "UTC",
            "why": "the fair" }] });
        let waits = text(&json!({}), ["Approval", "EarlierWave"], std::slice::from_ref(&closed));
        assert!(waits.contains("  2026-06-02T00:00:00Z  n1\n") && waits.contains("(the fair)"), "{waits}");
        let says_so = text(&json!({}), ["WindowClosed", "EarlierWave"], &[closed]);
        assert!(!says_so.contains("(the fair)"), "{says_so}");
    }
}
