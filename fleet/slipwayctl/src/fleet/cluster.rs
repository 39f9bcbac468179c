//! Objects of the API server, read and changed. A change is a merge patch of the changed field alone, with the version
//! that was read: what another program has written since is neither lost nor written over.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    config::{Config, KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_fleet_objects::pool::NodePool;
use tokio::time::timeout;

use super::edit::Edit;
use crate::failure::Failure;

/// The longest time for one answer of the API server.
const ANSWER: Duration = Duration::from_secs(30);
/// The number of tries of a change while others write the same object: the controller writes the ledger's.
const TRIES: u32 = 20;
/// The name of our changes in the object's managedFields.
const MANAGER: &str = "slipwayctl";

/// The cluster.
pub struct Cluster {
    client: Client,
    /// Where its API server is.
    server: String,
}

impl Cluster {
    /// The cluster of this kubeconfig and this context of it; of those that kubectl would take, without them.
    pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, Failure> {
        let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        let config = match kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path).map_err(|e| Failure::file(path, e))?;
                Config::from_custom_kubeconfig(read, &options).await.map_err(|e| Failure::file(path, e))
            }
            None if context.is_some() => Config::from_kubeconfig(&options).await.map_err(config_error),
            None => Config::infer().await.map_err(config_error),
        };
        let mut config = config?;
        // A person waits for the answer: the client would try for minutes.
        config.default_retry = false;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        Ok(Self { client: Client::try_from(config).map_err(config_error)?, server })
    }

    /// The client, for what is no object of the fleet.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// The object of this name.
    pub async fn get<K>(&self, name: &str) -> Result<K, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.within(self.all::<K>().get(name)).await
    }

    /// The same, or `None`: the object is not there, or no manifest of its kind was applied.
    pub async fn find<K>(&self, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        match self.get(name).await {
            Err(Failure::Refused { reason, .. }) if reason == "not-found" => Ok(None),
            found => found.map(Some),
        }
    }

    /// All objects of a kind.
    pub async fn list<K>(&self) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        Ok(self.within(self.all::<K>().list(&ListParams::default())).await?.items)
    }

    /// The names of the Nodes with these labels.
    pub async fn nodes(&self, labels: &str) -> Result<BTreeSet<String>, Failure> {
        let nodes = self.within(self.all::<Node>().list_metadata(&labelled(Some(labels)))).await?.items;
        Ok(nodes.into_iter().filter_map(|node| node.metadata.name).collect())
    }

    /// All objects of a kind as the API server has them, without the lists of who wrote which field.
    pub async fn dump(&self, kind: &ApiResource) -> Result<Vec<DynamicObject>, Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), kind);
        let mut objects = self.within(api.list(&ListParams::default())).await?.items;
        objects.iter_mut().for_each(|object| object.metadata.managed_fields = None);
        Ok(objects)
    }

    /// Each pool by its name, or each with these labels; one that this program does not understand is not to hide the others.
    pub async fn pools(&self, labels: Option<&str>) -> Result<BTreeMap<String, Result<NodePool, String>>, Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<NodePool>(&()));
        let pools = self.within(api.list(&labelled(labels))).await?.items;
        let named = |pool: DynamicObject| {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let parsed = serde_json::to_value(pool).and_then(serde_json::from_value);
            (name, parsed.map_err(|e| e.to_string()))
        };
        Ok(pools.into_iter().map(named).collect())
    }

    /// The pool that has this node: the oldest one whose labels it has.
    pub async fn pool_of(&self, node: &str) -> Result<String, Failure> {
        let nodes = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &nodes);
        let labels = self.within(api.get(node)).await?.metadata.labels.unwrap_or_default();
        let has = |pool: &NodePool| pool.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let pools = self.pools(None).await?;
        let all = pools.values().flatten().filter(|pool| has(pool)).map(|pool| &pool.metadata);
        let oldest = all.min_by_key(|of| (of.creation_timestamp.clone(), of.name.clone()));
        let message = format!("the node {node} is in no pool");
        oldest.and_then(|of| of.name.clone()).ok_or(Failure::Refused { reason: "no-pool".to_owned(), message })
    }

    /// Change an object, as `edit` says of what it is now. After another write at the same time it is read again.
    pub async fn change<K>(&self, name: &str, edit: impl Fn(&Value) -> Result<Edit, Failure>) -> Result<Edit, Failure>
    where
        K: Resource<DynamicType = ()>,
    {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()));
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        for _ in 0..TRIES {
            let object = self.within(api.get(name)).await?;
            let version = object.metadata.resource_version.clone();
            let read = serde_json::to_value(&object).map_err(|e| Failure::Failed(e.to_string()))?;
            let edit = edit(&read)?;
            let Some(spec) = &edit.spec else { return Ok(edit) };
            let patch = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
            match timeout(ANSWER, api.patch(name, &params, &Patch::Merge(patch))).await {
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
                Ok(answer) => return answer.map(|_| edit).map_err(|e| self.error(e)),
                Err(_) => return Err(self.timeout_error()),
            }
        }
        Err(Failure::Failed(format!("others have written {name} {TRIES} times meanwhile: nothing was changed")))
    }

    /// A failure to find the pool of this name, with the names that there are.
    pub async fn pool_failure(&self, failure: Failure, pool: &str) -> Failure {
        match &failure {
            Failure::Refused { reason, .. } if reason == "not-found" => match self.pools(None).await {
                Ok(pools) => no_pool(pool, pools.keys()),
                Err(_) => failure,
            },
            _ => failure,
        }
    }

    async fn within<T>(&self, ask: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        timeout(ANSWER, ask).await.map_err(|_| self.timeout_error())?.map_err(|e| self.error(e))
    }

    fn timeout_error(&self) -> Failure {
        Failure::Unreachable(format!("the API server {} does not answer within {} s", self.server, ANSWER.as_secs()))
    }

    fn error(&self, error: kube::Error) -> Failure {
        let status = match error {
            kube::Error::Api(status) => status,
            kube::Error::SerdeError(why) => {
                return Failure::Failed(format!("an answer of the API server is not understood: {why}"));
            }
            other => {
                let why = slipway_node_client::chain(&other);
                let why = why.strip_prefix("ServiceError: ").unwrap_or(&why);
                return Failure::Unreachable(format!("the API server {} does not answer: {why}", self.server));
            }
        };
        let word = match status.code {
            401 => "unauthorized",
            403 => "forbidden",
            404 => "not-found",
            400 | 422 => "invalid",
            _ => return Failure::Failed(format!("the API server says {}: {}", status.code, status.message)),
        };
        Failure::Refused { reason: word.to_owned(), message: status.message.clone() }
    }
}

fn labelled(labels: Option<&str>) -> ListParams {
    labels.map_or_else(ListParams::default, |labels| ListParams::default().labels(labels))
}

/// There is no pool of this name; `known` are there.
pub fn no_pool<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Failure {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let known = if known.is_empty() { "none at all".to_owned() } else { format!("only {}", known.join(", ")) };
    Failure::Refused { reason: "not-found".to_owned(), message: format!("there is no NodePool {name:?}, {known}") }
}

fn config_error(why: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("no way to the API server: {why}"))
}
