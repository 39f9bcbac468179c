//! One look, and what follows from it. Everything may be done twice, and by two controllers at once.
//!
//! The order is the argument. The ledger is read first, then everything else: what a node says is never older than the
//! ledger. What stays of a failure is written before the grant of the node that failed is freed. A node is asked to begin
//! with a grant that was read, not with one that was only written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::OwnerReference};
use slipway_fleet_objects::{
    ledger::{DisruptionLedger, DisruptionLedgerSpec, LEDGER},
    upgrade::{NodeUpgrade, NodeUpgradeSpec},
};
use slipway_node::request::{Goal, Request};
use slipway_node_api::v1;
use slipway_rollout::{decide::Action, facts::ObservedNode, ledger::Ledger};
use uuid::Uuid;

use crate::{
    certificate_events,
    cluster::{Cluster, Error, Objects, Result},
    cluster_api::{ClusterApi, Provider as _},
    names,
    node_report::names_kubelet,
    nodes::{Answer, Ask, Nodes},
    observed_node::{self, NodeReading},
    page::{Page, page},
    persist::{MAX_OBSERVATION_AGE, Persisted, persist},
    pool_metrics,
    pools::{Members, Problem},
    replacement_facts::ReplacementFacts,
    report,
    round::{Observation, PoolRound, RejectedWrites, Round, to_look},
};

pub use crate::round_events::events;

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Something was done: more may follow.
    Now,
    /// Nothing was to be done.
    Later,
}

/// A controller.
pub struct Controller {
    cluster: Cluster,
    nodes: Nodes,
    /// The name of the node that this runs on.
    own: Option<String>,
    page: Arc<Page>,
    /// By pool: why a NodeUpgrade could not be written in the last round.
    untold: Mutex<BTreeMap<String, String>>,
    /// By node: why it did not do what it was asked for in the last round. Its Rollout is written before nodes are asked.
    refusals: Mutex<BTreeMap<String, String>>,
}

impl Controller {
    /// One that runs on the node `own`.
    pub fn new(cluster: Cluster, nodes: Nodes, own: Option<String>) -> Self {
        Self { cluster, nodes, own, page: Arc::default(), untold: Mutex::default(), refusals: Mutex::default() }
    }

    /// The page of the last round.
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// When the first of the controller's own certificates expires, in seconds since 1970; and why no node can be asked with
    /// them.
    pub fn certificates(&self) -> (Option<i64>, std::result::Result<(), String>) {
        self.nodes.certificates()
    }

    /// Look once, and do what follows.
    pub async fn reconcile(&self) -> Result<Requeue> {
        let ledger = self.cluster.ledger().await;
        let objects = self.cluster.objects().await?;
        let ledger = match ledger {
            Err(Error::NotUnderstood(why)) => {
                self.publish_stuck(&objects, Problem::Ledger(why.clone())).await;
                return Err(Error::NotUnderstood(why));
            }
            read => read?,
        };
        let again = self.reconcile_with(&ledger, &objects).await;
        self.cluster.remember(objects);
        again
    }

    async fn reconcile_with(&self, ledger: &DisruptionLedger, objects: &Objects) -> Result<Requeue> {
        let members = Members::new(objects);
        let read = ledger.status.clone().unwrap_or_default();
        let readings = self.look(objects, &members, &read).await;
        if self.is_behind(ledger, &readings).await? {
            return Ok(Requeue::Now);
        }
        // After the nodes, some of which may have answered late: volumes must not be older than they look.
        let replacement_facts = ReplacementFacts::look(&self.cluster, objects, &read).await;
        let api_server = self.api_server(&readings).await;
        let is_own = |node: &&core::Node| Some(observed_node::name(node)) == self.own.as_deref();
        let own = objects.nodes.iter().find(is_own).map(observed_node::uid);
        let refused = &RejectedWrites::default();
        let observation = Observation {
            ledger,
            objects,
            readings: &readings,
            replacement_facts: &replacement_facts,
            api_server: api_server.as_deref(),
            own,
            refused,
        };
        let (looked, now) = (Instant::now(), Timestamp::now());
        let Persisted { round, mut refused } = match persist(&self.cluster, observation, &members, (looked, now)).await
        {
            Ok(kept) => kept,
            // Another controller was faster, and has seen as much.
            Err(Error::Conflict(_)) => return Ok(Requeue::Now),
            Err(e) => return Err(e),
        };
        refused.extend(round.taken.clone());
        let mut again = if round.ledger == read { Requeue::Later } else { Requeue::Now };
        let mut answers = self.ask(objects, &readings, &round).await;
        answers.extend(self.delete(&replacement_facts, &round, looked).await?);
        self.keep_refusals(&answers);
        if answers.values().any(|answer| *answer == Answer::New) {
            again = Requeue::Now;
        }
        if self.make_rollouts(&round, &mut refused).await? {
            again = Requeue::Now;
        }
        for (pool, why) in &refused {
            tracing::error!(pool, "{why}");
        }
        self.cluster
            .metrics()
            .pools(&pool_metrics::of(&round, &members, &readings, (&answers, &refused)), &round.ledger);
        self.page.set(page(&round, &members, &readings, (&answers, &refused), now));
        self.publish_status(observation, &members, &round, (&answers, &refused), now).await;
        Ok(again)
    }

    /// Whether one was made. What the API server refuses is the pool's own trouble, and the others go on.
    async fn make_rollouts(&self, round: &Round, refused: &mut BTreeMap<String, String>) -> Result<bool> {
        let mut is_new = false;
        for rollout in &round.new {
            match self.cluster.make_rollout(rollout).await {
                Ok(true) => {
                    let rollout_name = rollout.metadata.name.as_deref().unwrap_or_default();
                    tracing::info!(pool = rollout.spec.plan.pool, "made rollout {rollout_name}");
                }
                Ok(false) => {}
                Err(e @ Error::Refused { .. }) => {
                    refused.insert(rollout.spec.plan.pool.clone(), e.to_string());
                    continue;
                }
                Err(e) => return Err(e),
            }
            is_new = true;
        }
        Ok(is_new)
    }

    /// What the nodes say, with what they said to the requests of the last round.
    async fn look(&self, objects: &Objects, members: &Members<'_>, read: &Ledger) -> BTreeMap<String, NodeReading> {
        let mut readings = self.nodes.look(&to_look(objects, members, read)).await;
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (uid, reading) in &mut readings {
            reading.refused = refusals.remove(uid);
        }
        readings
    }

    fn keep_refusals(&self, answers: &BTreeMap<String, Answer>) {
        let refused = answers.iter().filter_map(|(uid, answer)| match answer {
            Answer::Refused(why) => Some((uid.clone(), why.clone())),
            _ => None,
        });
        *self.refusals.lock().unwrap_or_else(PoisonError::into_inner) = refused.collect();
    }

    /// The version of the API server, if a node depends on it. Few payloads name their kubelet. Without an answer their
    /// nodes wait.
    async fn api_server(&self, readings: &BTreeMap<String, NodeReading>) -> Option<String> {
        let mut answers = readings.values().filter_map(|reading| reading.status.as_ref().ok());
        if answers.any(names_kubelet) { self.cluster.version().await.ok() } else { None }
    }

    /// Tells whether a node knows of a token that is newer than the ledger that was read, because the ledger was written
    /// meanwhile. That is no fault.
    async fn is_behind(&self, read: &DisruptionLedger, readings: &BTreeMap<String, NodeReading>) -> Result<bool> {
        let highest = read.status.as_ref().map_or(0, Ledger::highest);
        let mut tokens = readings.values().filter_map(|look| Some(look.status.as_ref().ok()?.token));
        if !tokens.any(|token| token > highest) {
            return Ok(false);
        }
        let now = self.cluster.ledger().await?;
        Ok(now.metadata.resource_version != read.metadata.resource_version)
    }

    /// Have nodes stage, begin, and go back.
    async fn ask(
        &self,
        objects: &Objects,
        readings: &BTreeMap<String, NodeReading>,
        round: &Round,
    ) -> BTreeMap<String, Answer> {
        let nodes: BTreeMap<&str, &core::Node> =
            objects.nodes.iter().map(|node| (observed_node::uid(node), node)).collect();
        let mut requests = Vec::new();
        for pool_round in round.pools.values().flatten() {
            for step in &pool_round.decision.steps {
                let (Action::Stage { uid, .. }
                | Action::Begin { uid, .. }
                | Action::Return { uid, .. }
                | Action::Abort { uid, .. }) = step
                else {
                    continue;
                };
                if let Some((node, ask)) = nodes.get(uid.as_str()).zip(asked(pool_round, step, readings.get(uid))) {
                    requests.push(((*node).clone(), ask));
                }
            }
            for (uid, ask) in abandoned(pool_round, readings) {
                requests.extend(nodes.get(uid).map(|node| ((*node).clone(), ask)));
            }
        }
        self.nodes.ask(requests).await
    }

    /// Tell people of each pool why nothing goes on in any.
    async fn publish_stuck(&self, objects: &Objects, problem: Problem) {
        let (members, round) = (Members::new(objects), Round::stuck(objects, &problem));
        let observation = Observation {
            ledger: &DisruptionLedger::new(LEDGER, DisruptionLedgerSpec::default()),
            objects,
            readings: &BTreeMap::new(),
            replacement_facts: &ReplacementFacts::default(),
            api_server: None,
            own: None,
            refused: &RejectedWrites::default(),
        };
        let none = (&BTreeMap::new(), &BTreeMap::new());
        self.publish_status(observation, &members, &round, none, Timestamp::now()).await;
    }

    /// Tell people. An event that was written already is neither written nor logged again. One that cannot be written does
    /// not stop the rest.
    async fn publish_status(
        &self,
        observation: Observation<'_>,
        members: &Members<'_>,
        round: &Round,
        (answers, refused): (&BTreeMap<String, Answer>, &BTreeMap<String, String>),
        now: Timestamp,
    ) {
        for (name, pool_round) in &round.pools {
            let pool = observation.objects.pools.get(name).and_then(|pool| pool.as_ref().ok());
            let (mut status, nodes) = match pool_round {
                Ok(pool_round) => {
                    let why = refused.get(name).map(String::as_str);
                    (report::pool(pool_round, why, now), report::nodes(pool_round, observation.readings, answers))
                }
                Err(problem) => {
                    let rollouts = &observation.objects.rollouts;
                    (report::invalid(pool, members.in_pool(name).len(), rollouts, problem, now), BTreeMap::new())
                }
            };
            // The pool comes first, whatever becomes of its nodes.
            let before = self.untold.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            report::add_untold(&mut status, before.as_deref());
            if pool.and_then(|pool| pool.status.as_ref()) != Some(&status) {
                log_error(self.cluster.tell_pool(name, &status).await);
            }
            // Of a node that is in two pools the older one speaks.
            for node in members.in_pool(name) {
                let stuck = pool_round.as_ref().err().map(report::stuck);
                let Some(status) = nodes.get(observed_node::uid(node)).or(stuck.as_ref()) else { continue };
                let old = observation.objects.upgrades.get(observed_node::name(node));
                let told = self.cluster.tell_node(&upgrade(node, name), status, old).await;
                if let Err(e @ Error::Refused { .. }) = &told {
                    let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
                    untold.entry(name.clone()).or_insert_with(|| e.to_string());
                }
                log_error(told);
            }
        }
        let in_pools: BTreeSet<&str> = observation
            .objects
            .nodes
            .iter()
            .filter_map(|node| members.pool_of(observed_node::uid(node)).map(|_| observed_node::name(node)))
            .collect();
        for (_, upgrade) in observation.objects.upgrades.iter().filter(|(name, _)| !in_pools.contains(name.as_str())) {
            log_error(self.cluster.delete("node upgrade", upgrade).await);
        }
        for rollout in &round.expired {
            log_error(self.cluster.delete("rollout", rollout).await);
        }
        self.tell_events(observation, round, now).await;
    }

    /// Tell people what happened, and what is about to.
    async fn tell_events(&self, observation: Observation<'_>, round: &Round, now: Timestamp) {
        let before = observation.ledger.status.clone().unwrap_or_default();
        let pools = round.pools.values().flatten();
        let expire = pools.filter_map(|of| certificate_events::of_pool(of, observation.readings, now));
        let own = self.certificates().0.and_then(|expires| certificate_events::own(expires, now));
        let all = observation.objects.not_understood().chain(events(round, &before, now)).chain(expire).chain(own);
        for told in all {
            match self.cluster.tell(&told.event(now)).await {
                Ok(false) => {}
                new => {
                    told.log();
                    log_error(new.map(drop));
                }
            }
        }
    }

    /// Have machines deleted. The grant is looked at again at last: who freed it by hand means that nothing begins.
    async fn delete(
        &self,
        replacement_facts: &ReplacementFacts,
        round: &Round,
        looked: Instant,
    ) -> Result<BTreeMap<String, Answer>> {
        let mut answers = BTreeMap::new();
        // Like nodes, machines are asked for by a rollout that is there.
        let pool_rounds = round.pools.values().flatten().filter(|pool_round| pool_round.rollout.is_some());
        for step in pool_rounds.flat_map(|pool_round| &pool_round.decision.steps) {
            let Action::Delete { uid, token, machine } = step else { continue };
            let Some(found) = replacement_facts.found(machine).filter(|_| looked.elapsed() <= MAX_OBSERVATION_AGE)
            else {
                continue;
            };
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

/// Messages for people are not waited for: the next look tells them anew.
fn log_error(told: Result<()>) {
    if let Err(e) = told {
        tracing::warn!("{e}");
    }
}

/// Nodes that still stage for a rollout that people have given up, and the requests to end that: a stage would ask its
/// registry for an hour. It may be that of an earlier rollout, which is gone.
pub fn abandoned<'a>(pool_round: &'a PoolRound, readings: &BTreeMap<String, NodeReading>) -> Vec<(&'a str, Ask)> {
    let Some(why) = pool_round.facts.aborted.as_ref().filter(|_| pool_round.rollout.is_some()) else {
        return Vec::new();
    };
    let ask = |observed: &'a ObservedNode| {
        let uid = observed.node.uid.as_str();
        let id = under_way(readings.get(uid)?.status.as_ref().ok()?, &[v1::Goal::Stage])?;
        Some((uid, Ask::Abort(id, why.clone())))
    };
    pool_round.facts.nodes.iter().filter_map(ask).collect()
}

/// The operation that a controller has asked a node for, if the node is at it.
fn under_way(status: &v1::StatusResponse, goals: &[v1::Goal]) -> Option<Uuid> {
    let operation = status.operation.as_ref().filter(|operation| goals.contains(&operation.goal()))?;
    names::of_a_controller(&operation.id)
}

/// A request to a node. The rollout that had it begin may be gone: the node names what it is at with this grant.
pub fn asked(pool_round: &PoolRound, step: &Action, look: Option<&NodeReading>) -> Option<Ask> {
    let Action::Abort { uid, token } = step else { return request(pool_round, step, look).map(Ask::For) };
    let of = pool_round.rollout.as_ref()?.metadata.uid.as_deref()?;
    let why = pool_round.facts.aborted.clone()?;
    let status = look.and_then(|look| look.status.as_ref().ok()).filter(|status| status.token == *token);
    let id = status.and_then(|status| under_way(status, &[v1::Goal::Upgrade, v1::Goal::Rollback]));
    Some(Ask::Abort(id.unwrap_or_else(|| names::operation(of, uid, Goal::Upgrade, *token)), why))
}

/// The request of a step of the decision. The image is the pool's, which may have been corrected since the rollout began.
pub fn request(pool_round: &PoolRound, step: &Action, look: Option<&NodeReading>) -> Option<Request> {
    let rollout = pool_round.rollout.as_ref()?;
    let of = rollout.metadata.uid.as_deref()?;
    let spec = &pool_round.desired.pool.spec;
    let image = pool_round.desired.image_of(rollout.spec.plan.payload).unwrap_or(&rollout.spec.image);
    let (id, goal, token, payload) = match step {
        Action::Return { uid, token } => {
            (names::operation(of, uid, Goal::Rollback, *token), Goal::Rollback, Some(*token), None)
        }
        Action::Stage { uid, payload } => {
            let status = look.and_then(|look| look.status.as_ref().ok())?;
            // The node takes another image in place of the one that it waits for, under another name.
            let other = Some(image).filter(|image| *image != rollout.spec.image);
            let of = names::staging(of, other, spec.allow_any_version);
            let id = names::operation(&of, uid, Goal::Stage, observed_node::stagings(status, &of, uid));
            (id, Goal::Stage, None, Some(*payload))
        }
        Action::Begin { uid, token, payload } => {
            // Each grant is an attempt, with a name of its own.
            (names::operation(of, uid, Goal::Upgrade, *token), Goal::Upgrade, Some(*token), Some(*payload))
        }
        _ => return None,
    };
    Some(Request {
        // A node that goes back fetches nothing.
        source: payload.map(|_| image.to_owned()).unwrap_or_default(),
        payload,
        preserve: goal != Goal::Upgrade || !spec.discard_ephemeral,
        token,
        allow_outage: goal != Goal::Stage && spec.allow_control_plane_outage,
        allow_any_version: spec.allow_any_version,
        allow_any_etcd: matches!(goal, Goal::Upgrade | Goal::Rollback) && spec.allow_any_etcd,
        // The node takes the caller from the certificate.
        ..Request::new(id, goal, "")
    })
}

fn upgrade(node: &core::Node, pool: &str) -> NodeUpgrade {
    let (name, uid) = (observed_node::name(node).to_owned(), observed_node::uid(node).to_owned());
    let mut upgrade = NodeUpgrade::new(&name, NodeUpgradeSpec { node_uid: uid.clone(), pool: pool.to_owned() });
    let owner =
        OwnerReference { api_version: "v1".to_owned(), kind: "Node".to_owned(), name, uid, ..Default::default() };
    upgrade.metadata.owner_references = Some(vec![owner]);
    upgrade
}
