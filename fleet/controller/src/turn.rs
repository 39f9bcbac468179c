//! One look, and what follows from it. Everything may be done twice, and by two controllers at once.
//!
//! The order is the argument. The ledger is read first, then everything else: what a node says is never older than the
//! ledger. What stays of a failure is written before the grant of the node that failed is freed. A node is asked to begin
//! with a grant that was read, not with one that was only written.

use std::{collections::BTreeMap, time::Instant};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::OwnerReference};
use slipway_fleet_objects::{
    pool::RunNow,
    upgrade::{NodeUpgrade, NodeUpgradeSpec},
};
use slipway_node::goal::{Goal, Request};
use slipway_rollout::{
    decide::Action,
    ledger::{Ledger, Proof},
};

use crate::{
    cluster::{Cluster, Error, Objects, Result},
    events::Told,
    figures,
    keep::{FRESH, Kept, keep},
    machines::{ClusterApi, Provider as _},
    names,
    nodes::{Answer, Ask, Nodes},
    pools::Members,
    report,
    round::{Course, Refused, Round, Sight, to_look},
    seen::{self, Look},
    stock::Stock,
};

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Something was done: more may follow.
    AtOnce,
    /// Nothing was to be done.
    Later,
}

/// A controller.
pub struct Controller {
    cluster: Cluster,
    nodes: Nodes,
    /// The name of the node that this runs on.
    own: Option<String>,
}

impl Controller {
    /// One that runs on the node `own`.
    pub fn new(cluster: Cluster, nodes: Nodes, own: Option<String>) -> Self {
        Self { cluster, nodes, own }
    }

    /// Look once, and do what follows.
    pub async fn turn(&self) -> Result<Again> {
        let ledger = self.cluster.ledger().await?;
        let objects = self.cluster.objects().await?;
        let members = Members::new(&objects);
        let read = ledger.status.clone().unwrap_or_default();
        let looks = self.nodes.look(&to_look(&objects, &members, &read)).await;
        // After the nodes, some of which may have kept everybody waiting: volumes must not be older than they look.
        let stock = Stock::look(&self.cluster, &objects, &read).await;
        let own = objects.nodes.iter().find(|node| Some(seen::name(node)) == self.own.as_deref()).map(seen::uid);
        let refused = &Refused::default();
        let sight = Sight { ledger: &ledger, objects: &objects, looks: &looks, stock: &stock, own, refused };
        let (looked, now) = (Instant::now(), Timestamp::now());
        let Kept { round, mut refused } = match keep(&self.cluster, sight, &members, (looked, now)).await {
            Ok(kept) => kept,
            // Somebody else was faster, and has seen as much.
            Err(Error::Conflict(_)) => return Ok(Again::AtOnce),
            Err(e) => return Err(e),
        };
        let mut again = if round.ledger == read { Again::Later } else { Again::AtOnce };
        let mut answers = self.ask(&objects, &looks, &round).await;
        answers.extend(self.delete(&stock, &round, looked).await?);
        if answers.values().any(|answer| *answer == Answer::New) {
            again = Again::AtOnce;
        }
        for rollout in &round.new {
            match self.cluster.make_rollout(rollout).await {
                Ok(true) => eprintln!("made rollout {}", rollout.metadata.name.as_deref().unwrap_or_default()),
                Ok(false) => {}
                // That is the pool's own trouble, and the others go on.
                Err(e @ Error::Refused { .. }) => {
                    refused.insert(rollout.spec.plan.pool.clone(), e.to_string());
                    continue;
                }
                Err(e) => return Err(e),
            }
            again = Again::AtOnce;
        }
        let epoch = round.ledger.epoch;
        for (pool, why) in &refused {
            eprintln!("pool {pool}: {why}");
        }
        self.cluster.metrics().pools(&figures::of(&round, &members, &looks, (&answers, &refused)), epoch);
        self.tell(sight, &members, &round, (&answers, &refused), now).await;
        Ok(again)
    }

    /// Have nodes stage, begin, and go back.
    async fn ask(&self, objects: &Objects, looks: &BTreeMap<String, Look>, round: &Round) -> BTreeMap<String, Answer> {
        let nodes: BTreeMap<&str, &core::Node> = objects.nodes.iter().map(|node| (seen::uid(node), node)).collect();
        let mut requests = Vec::new();
        for course in round.pools.values().flatten() {
            for action in &course.decision.actions {
                let (Action::Stage { uid, .. }
                | Action::Begin { uid, .. }
                | Action::Return { uid, .. }
                | Action::Abort { uid, .. }) = action
                else {
                    continue;
                };
                if let Some((node, ask)) = nodes.get(uid.as_str()).zip(asked(course, action, looks.get(uid))) {
                    requests.push(((*node).clone(), ask));
                }
            }
        }
        self.nodes.ask(requests).await
    }

    /// Tell people. What they were told already is not written again. What cannot be told does not keep the rest.
    async fn tell(
        &self,
        sight: Sight<'_>,
        members: &Members<'_>,
        round: &Round,
        (answers, refused): (&BTreeMap<String, Answer>, &BTreeMap<String, String>),
        now: Timestamp,
    ) {
        for (name, course) in &round.pools {
            let pool = sight.objects.pools.get(name).and_then(|pool| pool.as_ref().ok());
            let (status, nodes) = match course {
                Ok(course) => {
                    let why = refused.get(name).map(String::as_str);
                    (report::pool(course, why, now), report::nodes(course, sight.looks, answers))
                }
                Err(problem) => {
                    let rollouts = &sight.objects.rollouts;
                    (report::invalid(pool, members.of(name).len(), rollouts, problem, now), BTreeMap::new())
                }
            };
            if pool.and_then(|pool| pool.status.as_ref()) != Some(&status) {
                said(self.cluster.tell_pool(name, &status).await);
            }
            for node in members.of(name) {
                let stuck = course.as_ref().err().map(report::stuck);
                let Some(status) = nodes.get(seen::uid(node)).or(stuck.as_ref()) else { continue };
                let old = sight.objects.upgrades.get(seen::name(node));
                said(self.cluster.tell_node(&upgrade(node, name), status, old).await);
            }
        }
        for told in happened(round, &sight.ledger.status.clone().unwrap_or_default(), now) {
            eprintln!("{} {}: {}", told.kind, told.name, told.message);
            said(self.cluster.tell(&told.event(now)).await);
        }
    }

    /// Have machines deleted. The grant is looked at again at last: who freed it by hand means that nothing begins.
    async fn delete(&self, stock: &Stock, round: &Round, looked: Instant) -> Result<BTreeMap<String, Answer>> {
        let mut answers = BTreeMap::new();
        // Like nodes, machines are asked for by a rollout that is there.
        let courses = round.pools.values().flatten().filter(|course| course.rollout.is_some());
        for action in courses.flat_map(|course| &course.decision.actions) {
            let Action::Delete { uid, token, machine } = action else { continue };
            let Some(found) = stock.found(machine).filter(|_| looked.elapsed() <= FRESH) else { continue };
            let ledger = self.cluster.ledger().await?.status.unwrap_or_default();
            if ledger.held(uid).is_none_or(|grant| grant.token != *token) {
                continue;
            }
            let answer = match ClusterApi::new(&self.cluster).delete(found).await {
                Ok(()) => Answer::New,
                // It is not what it was: look again.
                Err(Error::Conflict(_)) => Answer::Known,
                Err(e) => Answer::Refused(e.to_string()),
            };
            answers.insert(uid.clone(), answer);
        }
        Ok(answers)
    }
}

/// Nobody waits for what people are told: the next look tells it anew.
fn said(told: Result<()>) {
    if let Err(e) = told {
        eprintln!("{e}");
    }
}

/// What a node is asked for.
fn asked(course: &Course, action: &Action, look: Option<&Look>) -> Option<Ask> {
    let Action::Abort { uid, .. } = action else { return request(course, action, look).map(Ask::For) };
    let of = course.rollout.as_ref()?.metadata.uid.as_deref()?;
    let why = course.snapshot.aborted.clone()?;
    Some(Ask::Abort(names::operation(of, uid, Goal::Upgrade, 0), why))
}

fn request(course: &Course, action: &Action, look: Option<&Look>) -> Option<Request> {
    let rollout = course.rollout.as_ref()?;
    let of = rollout.metadata.uid.as_deref()?;
    let spec = &course.wish.pool.spec;
    let (id, goal, token, payload) = match action {
        Action::Return { uid, token } => {
            (names::operation(of, uid, Goal::Rollback, 0), Goal::Rollback, Some(*token), None)
        }
        Action::Stage { uid, payload } => {
            let status = look.and_then(|look| look.status.as_ref().ok())?;
            let id = names::operation(of, uid, Goal::Stage, seen::attempt(status, of, uid));
            (id, Goal::Stage, None, Some(*payload))
        }
        Action::Begin { uid, token, payload } => {
            (names::operation(of, uid, Goal::Upgrade, 0), Goal::Upgrade, Some(*token), Some(*payload))
        }
        _ => return None,
    };
    Some(Request {
        id,
        goal,
        // Who goes back fetches nothing.
        source: payload.map(|_| rollout.spec.image.clone()).unwrap_or_default(),
        payload,
        preserve: goal != Goal::Upgrade || !spec.discard_ephemeral,
        token,
        allow_outage: goal != Goal::Stage && spec.allow_control_plane_outage,
        allow_any_version: spec.allow_any_version,
        // The node takes it from the certificate.
        caller: String::new(),
    })
}

fn upgrade(node: &core::Node, pool: &str) -> NodeUpgrade {
    let (name, uid) = (seen::name(node).to_owned(), seen::uid(node).to_owned());
    let mut upgrade = NodeUpgrade::new(&name, NodeUpgradeSpec { node_uid: uid.clone(), pool: pool.to_owned() });
    let owner =
        OwnerReference { api_version: "v1".to_owned(), kind: "Node".to_owned(), name, uid, ..Default::default() };
    upgrade.metadata.owner_references = Some(vec![owner]);
    upgrade
}

/// What happened in this round, for people.
pub fn happened(round: &Round, before: &Ledger, now: Timestamp) -> Vec<Told> {
    let mut told = Vec::new();
    let mut of_node = |node: &slipway_rollout::ledger::Node, reason, token: u64, message, is_warning| {
        let (name, uid, which) = (node.name.clone(), node.uid.clone(), token.to_string());
        told.push(Told { kind: "Node", api: "v1", name, uid, reason, which, message, is_warning });
    };
    for action in &round.freed {
        let Action::Free { uid, proof } = action else { continue };
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
    told.extend(round.pools.values().flatten().flat_map(|course| of_rollout(course, now)));
    told
}

/// What happened to a rollout.
fn of_rollout(course: &Course, now: Timestamp) -> Vec<Told> {
    let Some(rollout) = &course.rollout else { return Vec::new() };
    let mut told = Vec::new();
    let mut tell = |reason, which, message| {
        told.push(Told {
            kind: "Rollout",
            api: "fleet.slipway.dev/v1alpha1",
            name: rollout.metadata.name.clone().unwrap_or_default(),
            uid: rollout.metadata.uid.clone().unwrap_or_default(),
            reason,
            which,
            message,
            is_warning: true,
        });
    };
    let mut grants = false;
    for action in &course.decision.actions {
        match action {
            Action::Deny { why, .. } => tell("PayloadDenied", String::new(), format!("nothing new begins: {why}")),
            Action::Grant { .. } => grants = true,
            _ => {}
        }
    }
    let was_aborted = rollout.status.as_ref().is_some_and(|status| status.aborted.is_some());
    if let Some(why) = course.snapshot.aborted.as_ref().filter(|_| !was_aborted) {
        tell("RolloutAborted", String::new(), format!("it is given up: {why}"));
    }
    let holds = course.snapshot.hurry.is_some_and(|hurry| now < hurry.until);
    let word = course.wish.pool.spec.run_now.as_ref().filter(|_| grants && holds);
    if let Some(RunNow { until, word, .. }) = word {
        tell("RunsNow", until.to_string(), format!("windows and blackouts hold nobody back until {until}: {word}"));
    }
    told
}
