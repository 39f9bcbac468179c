//! The KubernetesUpgrade of a cluster: looked at, decided, written, and its Job made and deleted. It is beside the rounds of
//! the nodes: both meet in the ledger.
//!
//! Everything may be done twice, and by two controllers at once. A status is written before the Job that it names is made,
//! and only if nobody has written it since it was read.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use slipway_fleet_objects::{
    condition,
    kubernetes_upgrade::{KubernetesUpgrade, KubernetesUpgradeStatus},
    policy::UpgradePolicy,
};
use slipway_kubernetes::{
    add_ons,
    facts::{Direction, Facts},
    version::Version,
};
use slipway_kubernetes_upgrade::{run::Run, wish::Wish};
use slipway_rollout::policy::Rules;

use crate::{
    cluster::{Cluster, Error, Result},
    events::EventRecord,
    kubernetes_decision::{self as decision, LABEL, Next, Seen},
    kubernetes_job::{self, DEPLOYMENT},
    nodes::Nodes,
    pools::{Problem, policy},
    trigger::{SOON, Triggers, rest},
};

/// What was reached is looked at again after this time. A look asks for all Nodes.
const LOOKS: Duration = Duration::from_secs(600);

/// The reconciler.
pub struct Kubernetes {
    cluster: Cluster,
    nodes: Nodes,
    triggers: Arc<Triggers>,
    /// The namespace of the controller, where Jobs are.
    namespace: String,
    /// Why the last Job could not be made.
    refused: Mutex<Option<String>>,
    /// The last look at the nodes.
    looked: Mutex<Option<Instant>>,
}

impl Kubernetes {
    /// Of this cluster, with these connections to nodes.
    pub fn new(cluster: Cluster, nodes: Nodes, triggers: Arc<Triggers>) -> Self {
        let namespace = cluster.client().default_namespace().to_owned();
        Self { cluster, nodes, triggers, namespace, refused: Mutex::default(), looked: Mutex::default() }
    }

    /// Look again and again, for ever.
    pub async fn run(&self, interval: Duration) -> Infallible {
        loop {
            let begun = Instant::now();
            let pause = match self.reconcile().await {
                Ok(true) => SOON,
                Ok(false) => interval,
                // Another controller was faster.
                Err(Error::Conflict(_)) => SOON,
                Err(e) => {
                    tracing::error!("{e}");
                    interval
                }
            };
            rest(pause, begun.elapsed(), &self.triggers.kubernetes).await;
        }
    }

    /// Look once, and do what follows. Whether something was done: more may follow.
    pub async fn reconcile(&self) -> Result<bool> {
        let mut done = false;
        let mut states = Vec::new();
        for read in self.cluster.kubernetes_upgrades().await? {
            let object = serde_json::to_value(&read).and_then(serde_json::from_value::<KubernetesUpgrade>);
            let (did, status) = match object {
                Ok(object) => self.one(&object).await?,
                Err(why) => (false, self.reject(&read, &why.to_string()).await?),
            };
            done |= did;
            states.push(status);
        }
        self.cluster.metrics().kubernetes(&states);
        Ok(done)
    }

    /// Nothing is done for an object that cannot be understood, and it says so.
    async fn reject(&self, read: &DynamicObject, why: &str) -> Result<KubernetesUpgradeStatus> {
        let before = serde_json::from_value(read.data["status"].clone()).unwrap_or_default();
        let mut status = decision::not_understood(&before, read.metadata.generation.unwrap_or(0), why);
        let now = Timestamp::now();
        status.conditions = condition::set(&status.conditions, "Reached", false, &status.state, &status.message, now);
        if status != before {
            self.cluster.write_raw::<KubernetesUpgrade>("the Kubernetes upgrade", read, &status).await?;
        }
        Ok(status)
    }

    async fn one(&self, object: &KubernetesUpgrade) -> Result<(bool, KubernetesUpgradeStatus)> {
        let jobs = match self.jobs(object).await {
            Ok(jobs) => jobs,
            Err(e @ Error::Refused { .. }) => {
                let mut status = decision::without_rights(object, &e.to_string());
                self.write(object, &mut status, Timestamp::now()).await?;
                return Ok((false, status));
            }
            Err(e) => return Err(e),
        };
        let rules = self.rules(object).await?;
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        let states = jobs.iter().map(kubernetes_job::state).collect();
        let kubelets = self.cluster.cache().kubelets();
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_due, now) = (looked.is_none_or(|at| at.elapsed() >= LOOKS), Timestamp::now());
        let mut seen = Seen { object, rules, jobs: states, refused, facts: None, kubelets, is_due, now };
        let (mut next, mut status) = decision::decide(&seen);
        if next == Next::Look {
            seen.facts = Some(self.facts(object).await);
            *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            (next, status) = decision::decide(&seen);
        }
        self.write(object, &mut status, seen.now).await?;
        let api: Api<Job> = Api::namespaced(self.cluster.client().clone(), &self.namespace);
        match &next {
            Next::Look | Next::Say => return Ok((false, status)),
            Next::Make(name) => {
                if let Err(e) = self.make(&api, name, object, &status).await {
                    *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(e.to_string());
                    return Err(e);
                }
            }
            Next::Delete(name) => {
                // Its pod goes with it. If it is gone, another controller was faster.
                let delete = async {
                    match api.delete(name, &DeleteParams::background()).await {
                        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                        deleted => deleted.map(drop),
                    }
                };
                self.cluster.within(&format!("job {name}"), delete).await?;
            }
        }
        Ok((true, status))
    }

    async fn jobs(&self, object: &KubernetesUpgrade) -> Result<Vec<Job>> {
        let api: Api<Job> = Api::namespaced(self.cluster.client().clone(), &self.namespace);
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let params = ListParams::default().labels(&format!("{LABEL}={uid}"));
        let jobs = self.cluster.within("jobs", api.list(&params)).await?.items;
        Ok(jobs.into_iter().filter(|job| job.metadata.deletion_timestamp.is_none()).collect())
    }

    async fn rules(&self, object: &KubernetesUpgrade) -> Result<std::result::Result<Rules, Problem>> {
        if object.spec.policies.is_empty() {
            return Ok(Ok(Rules::default()));
        }
        let policies = self.cluster.each::<UpgradePolicy>("policies").await?;
        let named: std::result::Result<Vec<_>, _> =
            object.spec.policies.iter().map(|name| policy(name, &policies)).collect();
        Ok(named.and_then(|named| Rules::try_from(named).map_err(|e| Problem::PoliciesConflict(e.to_string()))))
    }

    /// The control plane as its nodes say. No gate is looked at: the Job does that, with rights of its own.
    async fn facts(&self, object: &KubernetesUpgrade) -> std::result::Result<Facts, String> {
        let target: Version = object.spec.version.parse()?;
        let (images, add_ons) = add_ons::named(&object.spec.add_ons, &object.spec.images, &target)?;
        let wish = Wish {
            direction: Direction::Forward,
            images,
            add_ons,
            pre_pull: object.spec.pre_pull,
            emulate: object.spec.emulate,
            target,
            soak: Duration::from_secs(object.spec.soak.seconds()),
            patience: Duration::ZERO,
            snapshot: object.spec.snapshot,
            serving_certificates: false,
            trial_in: self.namespace.clone(),
        };
        Run::new(self.cluster.client().clone(), &self.nodes, wish).facts_without_gates().await
    }

    async fn write(
        &self,
        object: &KubernetesUpgrade,
        status: &mut KubernetesUpgradeStatus,
        now: Timestamp,
    ) -> Result<()> {
        let is_reached = status.state == "UpToDate";
        status.conditions =
            condition::set(&status.conditions, "Reached", is_reached, &status.state, &status.message, now);
        if object.status.as_ref() == Some(status) {
            return Ok(());
        }
        let mut new = object.clone();
        new.status = Some(status.clone());
        self.cluster.write_kubernetes_upgrade(&new).await?;
        for told in events(object, status) {
            told.log();
            if let Err(e) = self.cluster.tell(&told.event(now)).await {
                tracing::warn!("{e}");
            }
        }
        Ok(())
    }

    async fn make(
        &self,
        api: &Api<Job>,
        name: &str,
        object: &KubernetesUpgrade,
        status: &KubernetesUpgradeStatus,
    ) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.client().clone(), &self.namespace);
        let what = format!("the Deployment {DEPLOYMENT} in {}", self.namespace);
        let deployment = self.cluster.within(&what, deployments.get(DEPLOYMENT)).await?;
        let why = || Error::Failed { what: what.clone(), why: format!("it has no container {DEPLOYMENT}") };
        let job = kubernetes_job::job(name, object, status, &deployment).ok_or_else(why)?;
        match self.cluster.within(&format!("job {name}"), api.create(&PostParams::default(), &job)).await {
            Ok(_) | Err(Error::Conflict(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// What has changed, for people.
fn events(object: &KubernetesUpgrade, status: &KubernetesUpgradeStatus) -> Vec<EventRecord> {
    let before = object.status.clone().unwrap_or_default();
    let tell = |reason, which: String, message: String, is_warning| {
        EventRecord::of_fleet_object("KubernetesUpgrade", &object.metadata, reason, which, message, is_warning)
    };
    let mut told = Vec::new();
    if status.attempt > before.attempt {
        let (from, to) = (status.from.as_deref().unwrap_or("?"), status.to.as_deref().unwrap_or("?"));
        let message = format!("attempt {} begins: from {from} to {to}", status.attempt);
        told.push(tell("KubernetesUpgradeBegins", status.attempt.to_string(), message, false));
    }
    if let Some(ended) = status.history.first().filter(|ended| before.history.first() != Some(*ended)) {
        let is_reached = ended.reason == decision::REACHED;
        let reason = if is_reached { "KubernetesUpgraded" } else { "KubernetesUpgradeFailed" };
        let message = format!("attempt {} to {} ended ({}): {}", ended.attempt, ended.to, ended.reason, ended.message);
        told.push(tell(reason, ended.attempt.to_string(), message, !is_reached));
    }
    told
}
