//! Objects of the API server, read and written.
//!
//! Reads name no version: then an API server asks a majority of etcd, and does not answer from what it remembers.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::ApiResource,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use slipway_fleet_objects::{
    channel::Channel,
    kubernetes_upgrade::KubernetesUpgrade,
    ledger::{DisruptionLedger, DisruptionLedgerSpec, LEDGER},
    policy::UpgradePolicy,
    pool::{NodePool, NodePoolStatus},
    rollout::Rollout,
    upgrade::{NodeUpgrade, NodeUpgradeStatus},
};
use slipway_node_client::chain;
use slipway_rollout::ledger::Ledger;
use tokio::time::timeout;

use crate::{
    events::EventRecord,
    metrics::{ApiAnswer, Metrics},
    object_cache::ObjectCache,
    readable::{Readable, Unreadable},
};

/// The longest time for one answer of the API server.
const ANSWER: Duration = Duration::from_secs(15);

/// Objects in one answer: as many as other clients ask for. An answer is in memory twice, as text and as objects.
pub(crate) const PAGE: u32 = 500;
/// The same of Rollouts, each of which may be as large as etcd takes: those that denied a payload stay, and they have to come
/// within the time of one answer when a controller starts.
pub(crate) const PAGE_OF_ROLLOUTS: u32 = 10;

/// Why an object could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another program has written or made it meanwhile: look again.
    #[error("{0}: another program has written it meanwhile")]
    Conflict(String),
    /// The API server says no to this one, and may say yes to others.
    #[error("{what}: {why}")]
    Refused { what: String, why: String },
    /// It does not answer, or cannot.
    #[error("{what}: {why}")]
    Failed { what: String, why: String },
    /// Somebody has written into the ledger what no controller would.
    #[error("the DisruptionLedger {LEDGER} cannot be understood: {0}")]
    NotUnderstood(String),
}

/// The result of a read or a write.
pub type Result<T> = std::result::Result<T, Error>;

/// The objects of people and of the controller, as they were read. An object that cannot be understood has the reason.
#[derive(Debug)]
pub struct Objects {
    /// Pools, by name.
    pub pools: BTreeMap<String, std::result::Result<NodePool, String>>,
    /// Those of them that cannot be understood: each keeps the nodes that its labels name.
    pub unreadable_pools: Vec<Unreadable>,
    /// Policies, by name.
    pub policies: BTreeMap<String, std::result::Result<UpgradePolicy, String>>,
    /// Channels, by name.
    pub channels: BTreeMap<String, std::result::Result<Channel, String>>,
    /// Rollouts.
    pub rollouts: Vec<Rollout>,
    /// Rollouts that cannot be understood.
    pub unreadable: Vec<Unreadable>,
    /// The NodeUpgrades, by name.
    pub upgrades: BTreeMap<String, Readable<NodeUpgrade>>,
    /// Nodes.
    pub nodes: Vec<core::Node>,
}

impl Objects {
    /// The events of those that somebody has written as no controller would.
    pub fn not_understood(&self) -> impl Iterator<Item = EventRecord> {
        let rollouts = self.unreadable.iter().map(|of| of.event("Rollout", "delete it"));
        let then = "it is written anew, or deleted if no pool has its node";
        let upgrades = self.upgrades.values().filter_map(Readable::unreadable);
        rollouts.chain(upgrades.map(move |of| of.event("NodeUpgrade", then)))
    }
}

/// The cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    metrics: Arc<Metrics>,
    cache: ObjectCache,
}

impl Cluster {
    /// The cluster at the other end of this client.
    pub fn new(client: Client) -> Self {
        Self { client, metrics: Arc::default(), cache: ObjectCache::default() }
    }

    /// The connection to it.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The objects of the last round.
    pub(crate) const fn cache(&self) -> &ObjectCache {
        &self.cache
    }

    /// Its metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The objects of one kind.
    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// The version of the API server that answers.
    pub async fn version(&self) -> Result<String> {
        let info = self.within("the version of the API server", self.client.apiserver_version()).await?;
        Ok(info.git_version)
    }

    /// The ledger as it is now. It is made if it is not there: that forgets grants, but nodes that obey them say so, and
    /// nodes that do not answer count as unavailable.
    pub async fn ledger(&self) -> Result<DisruptionLedger> {
        let ledgers = self.all::<Readable<DisruptionLedger>>();
        match self.within("the ledger", ledgers.get_opt(LEDGER)).await? {
            Some(Readable::Yes(ledger)) => Ok(ledger),
            Some(Readable::No(of)) => Err(Error::NotUnderstood(of.why)),
            None => {
                let new = DisruptionLedger::new(LEDGER, DisruptionLedgerSpec::default());
                self.within("the ledger", self.all().create(&PostParams::default(), &new)).await
            }
        }
    }

    /// Write the ledger, unless it was written since it was read. Everything that is granted or freed comes through here.
    /// Returns the ledger as it is now.
    pub async fn write_ledger(&self, read: &DisruptionLedger, ledger: &Ledger) -> Result<DisruptionLedger> {
        let mut new = read.clone();
        new.status = Some(ledger.clone());
        self.write_status("the ledger", LEDGER, &new).await
    }

    /// Write the status of a rollout, unless it was written since it was read.
    pub async fn write_rollout(&self, rollout: &Rollout) -> Result<()> {
        let name = rollout.metadata.name.as_deref().unwrap_or_default();
        self.write_status(&format!("rollout {name}"), name, rollout).await.map(drop)
    }

    /// Write the status of the KubernetesUpgrade, unless it was written since it was read.
    pub async fn write_kubernetes_upgrade(&self, upgrade: &KubernetesUpgrade) -> Result<()> {
        let name = upgrade.metadata.name.as_deref().unwrap_or_default();
        self.write_status(&format!("the Kubernetes upgrade {name}"), name, upgrade).await.map(drop)
    }

    async fn write_status<K>(&self, what: &str, name: &str, object: &K) -> Result<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
    {
        self.write(what, &self.all(), name, object).await
    }

    /// Make a rollout. Whether it is new; another controller may have made one of this name.
    pub async fn make_rollout(&self, rollout: &Rollout) -> Result<bool> {
        let name = rollout.metadata.name.as_deref().unwrap_or_default();
        let made = self.within(&format!("rollout {name}"), self.all().create(&PostParams::default(), rollout)).await;
        match made {
            Ok(_) => Ok(true),
            Err(Error::Conflict(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Each object of a kind, whether it can be understood or not: one that cannot is not to hide the others.
    pub(crate) async fn each<K>(&self, what: &str) -> Result<BTreeMap<String, std::result::Result<K, String>>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()));
        let objects = self.within_list(what, api).await?;
        Ok(objects
            .into_iter()
            .map(|object| {
                let name = object.metadata.name.clone().unwrap_or_default();
                let parsed = serde_json::to_value(&object).and_then(serde_json::from_value);
                (name, parsed.map_err(|e| e.to_string()))
            })
            .collect())
    }

    /// The channels as they were read, by name: one that cannot be understood does not hide the others.
    pub async fn channels(&self) -> Result<BTreeMap<String, DynamicObject>> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<Channel>(&()));
        let channels = self.within_list("channels", api).await?;
        Ok(channels.into_iter().filter_map(|channel| Some((channel.metadata.name.clone()?, channel))).collect())
    }

    /// The KubernetesUpgrades as they were read.
    pub async fn kubernetes_upgrades(&self) -> Result<Vec<DynamicObject>> {
        let kind = ApiResource::erase::<KubernetesUpgrade>(&());
        self.within_list("the Kubernetes upgrade", Api::all_with(self.client.clone(), &kind)).await
    }

    /// Write the status of an object of this kind, unless it was written since it was read. What people wrote of it may be
    /// anything.
    pub async fn write_raw<K>(&self, what: &str, read: &DynamicObject, status: &impl Serialize) -> Result<()>
    where
        K: Resource<DynamicType = ()>,
    {
        let name = read.metadata.name.as_deref().unwrap_or_default();
        let mut new = read.clone();
        new.data["status"] = json!(status);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()));
        self.write(&format!("{what} {name}"), &api, name, &new).await.map(drop)
    }

    /// Tell people of a pool.
    pub async fn tell_pool(&self, name: &str, status: &NodePoolStatus) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        let pools = self.all::<NodePool>();
        self.within(&format!("pool {name}"), pools.patch_status(name, &PatchParams::default(), &patch)).await.map(drop)
    }

    /// Tell people of a node; what they were told of it before is `old`. One that is not understood is written anew.
    pub async fn tell_node(
        &self,
        new: &NodeUpgrade,
        status: &NodeUpgradeStatus,
        old: Option<&Readable<NodeUpgrade>>,
    ) -> Result<()> {
        let name = new.metadata.name.as_deref().unwrap_or_default();
        let what = format!("the NodeUpgrade {name}");
        let upgrades = self.all::<Readable<NodeUpgrade>>();
        let owners = &new.metadata.owner_references;
        let is_same = |old: &NodeUpgrade| old.spec == new.spec && old.metadata.owner_references == *owners;
        match old {
            None => self.within(&what, self.all().create(&PostParams::default(), new)).await.map(drop)?,
            Some(old) if !old.understood().is_some_and(is_same) => {
                let patch = json!({ "metadata": { "ownerReferences": owners }, "spec": new.spec });
                self.within(&what, upgrades.patch(name, &PatchParams::default(), &Patch::Merge(patch)))
                    .await
                    .map(drop)?;
            }
            Some(_) => {}
        }
        if old.and_then(|old| old.understood()?.status.as_ref()) == Some(status) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({ "status": status }));
        self.within(&what, upgrades.patch_status(name, &PatchParams::default(), &patch)).await.map(drop)
    }

    /// Delete an object, if it is still the one that was read. One that is gone is gone.
    pub async fn delete<K>(&self, what: &str, object: &K) -> Result<()>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let meta = object.meta();
        let same = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
        let how = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let (name, api) = (meta.name.as_deref().unwrap_or_default(), self.all::<K>());
        match self.within(&format!("{what} {name}"), async { Ok(api.delete(name, &how).await) }).await? {
            Ok(_) => Ok(()),
            // It was written or deleted: the next look has it anew.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(e) => Err(Error::Failed { what: format!("{what} {name}"), why: e.to_string() }),
        }
    }

    /// Tell people what happened. An event that is there already is not told again. The answer says whether it was new.
    pub async fn tell(&self, event: &core::Event) -> Result<bool> {
        let events: Api<core::Event> = Api::namespaced(self.client.clone(), "default");
        match self.within("an event", events.create(&PostParams::default(), event)).await {
            Err(Error::Conflict(_)) => Ok(false),
            told => told.map(|_| true),
        }
    }

    /// Write the status of an object, unless it was written since it was read.
    async fn write<K>(&self, what: &str, api: &Api<K>, name: &str, object: &K) -> Result<K>
    where
        K: Resource + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
    {
        // Without a version the API server would write over whatever is there.
        if object.meta().resource_version.as_deref().unwrap_or_default().is_empty() {
            return Err(Error::Failed { what: what.to_owned(), why: "it was never read".to_owned() });
        }
        self.within(what, api.replace_status(name, &PostParams::default(), object)).await
    }

    async fn within_list<K>(&self, what: &str, api: Api<K>) -> Result<Vec<K>>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.list_trimmed(what, api, PAGE, |_| true).await
    }

    /// All objects of a kind as they were at one time, in pages of so many: `trim` drops fields, and whole objects where it
    /// returns false.
    pub(crate) async fn list_trimmed<K>(
        &self,
        what: &str,
        api: Api<K>,
        page: u32,
        trim: fn(&mut K) -> bool,
    ) -> Result<Vec<K>>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let (mut all, mut params) = (Vec::new(), ListParams::default().limit(page));
        loop {
            let mut page = self.within(what, api.list(&params)).await?;
            page.items.retain_mut(trim);
            all.append(&mut page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    pub(crate) async fn within<T>(&self, what: &str, ask: impl Future<Output = kube::Result<T>>) -> Result<T> {
        let failed = |why: String| Error::Failed { what: what.to_owned(), why };
        let (counts, answer) = match timeout(ANSWER, ask).await {
            Err(_) => {
                let why = format!("the API server does not answer within {} s", ANSWER.as_secs());
                (ApiAnswer::Silent, Err(failed(why)))
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                (ApiAnswer::Conflict, Err(Error::Conflict(what.to_owned())))
            }
            Ok(Err(kube::Error::Api(status))) => {
                let why = format!("the API server says {}: {}", status.code, status.message);
                // These pass, and are of all objects alike: a list that took too long, too many requests, and no server. An
                // error within the server (500) may be of this object alone: it is too large for etcd, or some webhook fails.
                let passes = matches!(status.code, 410 | 429 | 502..=504);
                let what = what.to_owned();
                (ApiAnswer::Refused, Err(if passes { failed(why) } else { Error::Refused { what, why } }))
            }
            Ok(Err(e)) => {
                let why = chain(&e);
                let why = why.strip_prefix("ServiceError: ").unwrap_or(&why);
                (ApiAnswer::Silent, Err(failed(format!("the API server does not answer: {why}"))))
            }
            Ok(Ok(answer)) => (ApiAnswer::Answered, Ok(answer)),
        };
        self.metrics.asked(counts);
        answer
    }
}
