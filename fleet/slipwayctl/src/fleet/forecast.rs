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
    duration::PositiveDuration,
    facts::WindowOverride,
    ledger::Role,
    policy::Rules,
    preview::{self, Begins, Progress},
};

use super::{cluster::Cluster, status_report::SCHEMA};
use slipway_node_api::text::clean;

use crate::failure::Failure;

/// Nodes that are named in one line.
const NAMED: usize = 8;

/// The answer of `slipwayctl --output json fleet plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The version of this form.
    pub schema: u32,
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
    /// It has begun, or nothing more is expected of it.
    Already,
    /// Not before this time.
    At(Timestamp),
    /// Nothing that is allowed ever lets it begin.
    Never,
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
    let (policies, upgrades) = tokio::try_join!(cluster.list::<UpgradePolicy>(), cluster.list::<NodeUpgrade>())?;
    let rules = rules(&of, policies)?;
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
    Ok(Forecast {
        behind,
        ..Forecast::new(pool, status.nodes, &rollout, &rules, &upgrades, (takes, window_override, now))
    })
}

fn rules(pool: &NodePool, policies: Vec<UpgradePolicy>) -> Result<Rules, Failure> {
    let mut by_name: BTreeMap<String, UpgradePolicy> =
        policies.into_iter().filter_map(|policy| Some((policy.metadata.name.clone()?, policy))).collect();
    let mut chosen = Vec::new();
    for name in &pool.spec.policies {
        let missing = || Failure::Refused {
            reason: "policy-missing".to_owned(),
            message: format!("there is no UpgradePolicy {name:?}: nothing begins"),
        };
        chosen.push(by_name.remove(name).ok_or_else(missing)?.spec.policy(name));
    }
    let conflict = |why: slipway_rollout::policy::TwoKeys| Failure::Refused {
        reason: "policies-conflict".to_owned(),
        message: why.to_string(),
    };
    Rules::try_from(chosen).map_err(conflict)
}

impl Forecast {
    fn new(
        pool: &str,
        size: u32,
        rollout: &Rollout,
        rules: &Rules,
        upgrades: &BTreeMap<&str, &NodeUpgrade>,
        (takes, window_override, now): (PositiveDuration, Option<WindowOverride>, Timestamp),
    ) -> Self {
        let plan = &rollout.spec.plan;
        let status = rollout.status.clone().unwrap_or_default();
        let reason = |uid: &str| upgrades.get(uid).and_then(|of| of.status.as_ref()).map(|of| of.reason.as_str());
        let has_begun = |uid: &str| {
            let is_gone = !upgrades.contains_key(uid);
            let is_replaced = status.replacing.iter().any(|of| of.node_uid == uid);
            let has_begun = ["Done", "NotWell", "UnderWay", "Begins", "Failed", "Skipped"];
            is_gone || is_replaced || reason(uid).is_some_and(|reason| has_begun.contains(&reason))
        };
        let begun: BTreeSet<&str> =
            plan.nodes().map(|(_, node)| node.uid.as_str()).filter(|uid| has_begun(uid)).collect();
        let progress = Progress { size, passed: status.passed as usize, begun: &begun, window_override };
        let times = preview::times(plan, rules, progress, takes, now);
        let waves = plan.waves.iter().zip(&times.begins).enumerate().map(|(n, (wave, begins))| Wave {
            number: u32::try_from(n + 1).unwrap_or(u32::MAX),
            soak: wave.soak,
            nodes: wave.nodes.iter().zip(begins).map(|(node, begins)| member(node, *begins)).collect(),
        });
        Self {
            schema: SCHEMA,
            pool: pool.to_owned(),
            behind: false,
            rollout: rollout.metadata.name.clone().unwrap_or_default(),
            image: rollout.spec.image.clone(),
            payload: plan.payload,
            plan: plan.hash,
            takes,
            waves: waves.collect(),
            ends: times.ends,
            blocks: blocks(upgrades, plan.nodes().map(|(_, node)| node.uid.as_str())),
        }
    }
}

fn member(node: &slipway_rollout::ledger::Node, begins: Begins) -> Member {
    let begins = match begins {
        Begins::Already => When::Already,
        Begins::At(time) => When::At(time),
        Begins::Never => When::Never,
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
                };
                let zone = node.zone.as_ref().map(|zone| format!("  zone {zone}")).unwrap_or_default();
                let role = if node.role == Role::ControlPlane { "  control plane" } else { "" };
                writeln!(f, "  {when:<20}  {}", clean(&format!("{}{zone}{role}", node.name)))?;
            }
        }
        match self.ends {
            Some(ends) => writeln!(f, "\nIt ends at {ends:.0} at the earliest, if a node takes {}.", self.takes)?,
            None => writeln!(f, "\nIt never ends, as its policies are.")?,
        }
        if !self.blocks.is_empty() {
            writeln!(f, "\nNow:")?;
        }
        for Block { nodes, message, .. } in &self.blocks {
            let named = nodes.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if nodes.len() > NAMED { format!(" and {} more", nodes.len() - NAMED) } else { String::new() };
            writeln!(f, "  {}", clean(&format!("{named}{more}: {message}")))?;
        }
        Ok(())
    }
}
