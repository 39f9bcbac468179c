//! Objects of the API server, read and changed. A change is a merge patch of the changed field alone, with the version
//! that was read: what another program has written since is neither lost nor written over.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, io,
    path::Path,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::{ApiResource, GroupVersionKind},
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use slipway_fleet_objects::{
    kubernetes_upgrade::{CLUSTER, KubernetesUpgrade},
    policy::UpgradePolicy,
    pool::NodePool,
};
use slipway_node_api::text::clean_and_cut;
use slipway_program::api_server;
use tokio::time::timeout;

use super::{GROUP, edit::Edit};
use crate::failure::Failure;

/// The longest time for one answer of the API server.
const ANSWER: Duration = Duration::from_secs(30);
/// The number of tries of a change while others write the same object: the controller writes the ledger's.
const TRIES: u32 = 20;
/// The most bytes of why an object is not understood: that may quote what somebody has written.
const LONGEST: usize = 500;
/// The most Nodes that are looked at one by one.
const LOOKS: usize = 20;
/// The name of our changes in the object's managedFields.
const MANAGER: &str = "slipwayctl";

/// Objects by their names, or why one is not understood.
pub type ByName<K> = BTreeMap<String, Result<K, String>>;

/// The word for a cluster without the fleet's kinds.
const NOT_INSTALLED: &str = "not-installed";
/// What to do there.
const NO_KIND: &str =
    "apply slipway/slipway-fleet.yaml, which `slipwayctl fleet init` makes; it defines all kinds of fleet.slipway.dev";

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
        let read = kubeconfig.map_or_else(read_kubeconfigs, Kubeconfig::read_from);
        let mut config = match read {
            Ok(read) => {
                let contexts: Vec<String> = read.contexts.iter().map(|of| of.name.clone()).collect();
                let config = Config::from_custom_kubeconfig(read, &options).await;
                config.map_err(|why| config_error(kubeconfig_fault(&why, &contexts)))?
            }
            // In a pod.
            Err(why) if kubeconfig.is_none() && context.is_none() => {
                Config::incluster().map_err(|_| config_error(kubeconfig_fault(&why, &[])))?
            }
            Err(why) => return Err(config_error(kubeconfig_fault(&why, &[]))),
        };
        // A person waits for the answer: the client would try for minutes.
        config.default_retry = false;
        api_server::directly(&mut config.proxy_url).map_err(|why| config_error(format!("the kubeconfig: {why}")))?;
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
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let object = self.within(&K::plural(&()), self.erased::<K>().get(name)).await?;
        parse(object).map_err(|why| NotUnderstood::new::<K>(name, &why).into())
    }

    /// The same, or `None`: the object is not there, or no manifest of its kind was applied.
    pub async fn find<K>(&self, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.look_up(name).await?.transpose().map_err(|why| NotUnderstood::new::<K>(name, &why).into())
    }

    /// The same; `Err` inside if this program does not understand it.
    pub async fn look_up<K>(&self, name: &str) -> Result<Option<Result<K, String>>, Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        match self.within(&K::plural(&()), self.erased::<K>().get(name)).await {
            Err(Failure::Refused { reason, .. }) if reason == "not-found" || reason == NOT_INSTALLED => Ok(None),
            found => Ok(Some(parse(found?))),
        }
    }

    /// The objects of a kind that only controllers write, and those that are not understood. If the fault of one is in its
    /// status, it is among the objects, too, without that.
    pub async fn readable<K>(&self) -> Result<(Vec<K>, Vec<NotUnderstood>), Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let (mut objects, mut others) = (Vec::new(), Vec::new());
        for mut object in self.list::<K>(None).await? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let read = parse(object.clone()).or_else(|why| {
                others.push(NotUnderstood::new::<K>(&name, &why));
                object.data.as_object_mut().map(|data| data.remove("status"));
                parse(object)
            });
            objects.extend(read);
        }
        Ok((objects, others))
    }

    /// The names of the Nodes with these labels.
    pub async fn nodes(&self, labels: &str) -> Result<BTreeSet<String>, Failure> {
        let nodes = self.within("nodes", self.all::<Node>().list_metadata(&labelled(Some(labels)))).await?.items;
        Ok(nodes.into_iter().filter_map(|node| node.metadata.name).collect())
    }

    /// The names of policies that ask for approval.
    pub async fn policies_with_approval(&self) -> Result<BTreeSet<String>, Failure> {
        let policies = self.policies().await?.into_iter();
        let asks = |(name, policy): (String, Result<UpgradePolicy, String>)| {
            policy.is_ok_and(|policy| policy.spec.approval.is_some()).then_some(name)
        };
        Ok(policies.filter_map(asks).collect())
    }

    /// The UIDs of those of these nodes, by name and UID, that are not there any more. Who may not look learns of none.
    pub async fn gone<'a>(&self, nodes: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeSet<String> {
        let mut gone = BTreeSet::new();
        for (name, uid) in nodes.take(LOOKS) {
            let found = self.find::<Node>(name).await;
            if found.is_ok_and(|node| node.and_then(|node| node.metadata.uid).as_deref() != Some(uid)) {
                gone.insert(uid.to_owned());
            }
        }
        gone
    }

    /// All objects of a kind as the API server has them, without the lists of who wrote which field.
    pub async fn dump(&self, kind: &ApiResource) -> Result<Vec<DynamicObject>, Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), kind);
        let mut objects = self.within(&kind.plural, api.list(&ListParams::default())).await?.items;
        objects.iter_mut().for_each(|object| object.metadata.managed_fields = None);
        Ok(objects)
    }

    /// Each pool by its name, or each with these labels.
    pub async fn pools(&self, labels: Option<&str>) -> Result<ByName<NodePool>, Failure> {
        self.each(labels).await
    }

    /// The KubernetesUpgrade, if there is one; `Err` if this program does not understand it.
    pub async fn kubernetes(&self) -> Result<Option<Result<KubernetesUpgrade, String>>, Failure> {
        match self.each(None).await {
            Err(Failure::Refused { reason, .. }) if reason == NOT_INSTALLED => Ok(None),
            each => Ok(each?.remove(CLUSTER)),
        }
    }

    /// Each policy by its name.
    pub async fn policies(&self) -> Result<ByName<UpgradePolicy>, Failure> {
        self.each(None).await
    }

    /// Each object of a kind by its name; one that this program does not understand is not to hide the others.
    async fn each<K>(&self, labels: Option<&str>) -> Result<ByName<K>, Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let named = |object: DynamicObject| (object.metadata.name.clone().unwrap_or_default(), parse(object));
        Ok(self.list::<K>(labels).await?.into_iter().map(named).collect())
    }

    async fn list<K: Resource<DynamicType = ()>>(&self, labels: Option<&str>) -> Result<Vec<DynamicObject>, Failure> {
        Ok(self.within(&K::plural(&()), self.erased::<K>().list(&labelled(labels))).await?.items)
    }

    /// The objects of a kind, whatever is in them.
    fn erased<K: Resource<DynamicType = ()>>(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()))
    }

    /// The pool that has this node: the oldest one whose labels it has. One that is not understood keeps its nodes, too.
    pub async fn pool_of(&self, node: &str) -> Result<String, Failure> {
        let nodes = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &nodes);
        let labels = self.within("nodes", api.get(node)).await?.metadata.labels.unwrap_or_default();
        let has = |pool: &&DynamicObject| {
            let of = serde_json::from_value::<BTreeMap<String, String>>(pool.data["spec"]["nodeSelector"].clone());
            of.is_ok_and(|of| of.iter().all(|(key, value)| labels.get(key) == Some(value)))
        };
        let pools = self.list::<NodePool>(None).await?;
        let all = pools.iter().filter(has).map(|pool| &pool.metadata);
        let oldest = all.min_by_key(|of| (of.creation_timestamp.clone(), of.name.clone()));
        let message =
            format!("spec.nodeSelector of no NodePool has the labels of the node {node}: name a pool by --pool");
        oldest.and_then(|of| of.name.clone()).ok_or(Failure::Refused { reason: "no-pool".to_owned(), message })
    }

    /// The pools that leave this node out, understood or not.
    pub async fn pools_that_skip(&self, node: &str) -> Result<Vec<String>, Failure> {
        let is_out = |pool: &DynamicObject| {
            let skip = pool.data["spec"]["skip"].as_array();
            skip.is_some_and(|all| all.iter().any(|skip| skip["node"] == node))
        };
        let pools = self.list::<NodePool>(None).await?.into_iter().filter(is_out);
        Ok(pools.filter_map(|pool| pool.metadata.name).collect())
    }

    /// Change an object, as `edit` says of what it is now. After another write at the same time it is read again.
    pub async fn change<K>(&self, name: &str, edit: impl Fn(&Value) -> Result<Edit, Failure>) -> Result<Edit, Failure>
    where
        K: Resource<DynamicType = ()>,
    {
        let api = self.erased::<K>();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        for _ in 0..TRIES {
            let object = self.within(&K::plural(&()), api.get(name)).await?;
            let version = object.metadata.resource_version.clone();
            let read = serde_json::to_value(&object).map_err(|e| Failure::Failed(e.to_string()))?;
            let edit = edit(&read)?;
            let Some(spec) = &edit.spec else { return Ok(edit) };
            let patch = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
            match timeout(ANSWER, api.patch(name, &params, &Patch::Merge(patch))).await {
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
                Ok(answer) => return answer.map(|_| edit).map_err(|e| self.error(&K::plural(&()), e)),
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

    async fn within<T>(&self, kinds: &str, ask: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        timeout(ANSWER, ask).await.map_err(|_| self.timeout_error())?.map_err(|e| self.error(kinds, e))
    }

    fn timeout_error(&self) -> Failure {
        Failure::Unreachable(format!("the API server {} does not answer within {} s", self.server, ANSWER.as_secs()))
    }

    fn error(&self, kinds: &str, error: kube::Error) -> Failure {
        let status = match error {
            kube::Error::Api(status) => status,
            kube::Error::SerdeError(why) => {
                return Failure::Failed(format!("an answer of the API server is not understood: {why}"));
            }
            // No object can have this name.
            kube::Error::BuildRequest(why) => return Failure::Usage(slipway_node_client::chain(&why)),
            other => {
                let why = slipway_node_client::chain(&other);
                let why = why.strip_prefix("ServiceError: ").unwrap_or(&why);
                return Failure::Unreachable(format!("the API server {} does not answer: {why}", self.server));
            }
        };
        let word = match status.code {
            // Of an object that is not there the API server says so; of a kind that it does not have there is nothing to say.
            404 if status.reason != "NotFound" || status.details.as_ref().is_none_or(|of| of.name.is_empty()) => {
                let message = format!("the API server does not have the kind {kinds}{GROUP}: {NO_KIND}");
                return Failure::Refused { reason: NOT_INSTALLED.to_owned(), message };
            }
            401 => {
                let message = "the API server does not know these credentials: renew those in the kubeconfig";
                return Failure::Refused { reason: "unauthorized".to_owned(), message: message.to_owned() };
            }
            403 => "forbidden",
            404 => "not-found",
            400 | 422 => "invalid",
            _ => return Failure::Failed(format!("the API server says {}: {}", status.code, status.message)),
        };
        Failure::Refused { reason: word.to_owned(), message: status.message.clone() }
    }
}

fn parse<K: DeserializeOwned>(object: DynamicObject) -> Result<K, String> {
    serde_json::to_value(object).and_then(serde_json::from_value).map_err(|e| e.to_string())
}

/// An object that this program does not understand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotUnderstood {
    /// Its name behind its kind, as kubectl takes it.
    pub object: String,
    /// Why, and what to do.
    pub message: String,
}

impl NotUnderstood {
    fn object_of<K: Resource<DynamicType = ()>>(name: &str) -> String {
        format!("{}{GROUP}/{name}", K::kind(&()).to_lowercase())
    }

    /// True if it is the object of this kind and name.
    pub fn is<K: Resource<DynamicType = ()>>(&self, name: &str) -> bool {
        self.object == Self::object_of::<K>(name)
    }

    /// An object of this name.
    pub fn new<K: Resource<DynamicType = ()>>(name: &str, why: &str) -> Self {
        let (kind, object) = (K::kind(&()), Self::object_of::<K>(name));
        // A controller that is newer than this program may understand it.
        let remedy = match &*kind {
            "DisruptionLedger" => {
                format!(
                    "if the pools say so, too, none goes on until it is corrected: kubectl edit {object} --subresource=status"
                )
            }
            "Rollout" => {
                format!("if its pool says so, too: kubectl delete {object}, and a controller makes another one")
            }
            "NodeUpgrade" => "it is written anew with the next look of a controller".to_owned(),
            _ => format!("if a controller says so, too: kubectl edit {object}"),
        };
        Self { object, message: format!("{}; {remedy}", clean_and_cut(why, LONGEST)) }
    }

    /// In one line.
    pub fn line(&self) -> String {
        format!("not understood  {}: {}", self.object, self.message)
    }
}

impl From<NotUnderstood> for Failure {
    fn from(NotUnderstood { object, message }: NotUnderstood) -> Self {
        Self::Refused { reason: "not-understood".to_owned(), message: format!("{object}: {message}") }
    }
}

fn labelled(labels: Option<&str>) -> ListParams {
    labels.map_or_else(ListParams::default, |labels| ListParams::default().labels(labels))
}

/// There is no pool of this name; `known` are there.
pub fn no_pool<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Failure {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let known =
        if known.is_empty() { "nor any other one: apply one".to_owned() } else { format!("only {}", known.join(", ")) };
    Failure::Refused { reason: "not-found".to_owned(), message: format!("there is no NodePool {name:?}, {known}") }
}

/// The kubeconfigs that $KUBECONFIG names, or else that of the user. Like kubectl, it passes over files that are not there
/// as long as one is.
fn read_kubeconfigs() -> Result<Kubeconfig, KubeconfigError> {
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let (mut merged, mut missing) = (None, None);
    for file in env::split_paths(&named).filter(|file| !file.as_os_str().is_empty()) {
        match Kubeconfig::read_from(&file) {
            Err(KubeconfigError::ReadConfig(why, file)) if why.kind() == io::ErrorKind::NotFound => {
                missing.get_or_insert(KubeconfigError::ReadConfig(why, file));
            }
            read => merged = Some(merged.unwrap_or_else(Kubeconfig::default).merge(read?)?),
        }
    }
    match (merged, missing) {
        (Some(merged), _) => Ok(merged),
        (None, Some(missing)) => Err(missing),
        (None, None) => Kubeconfig::read(),
    }
}

/// What is wrong with a kubeconfig that has these contexts.
fn kubeconfig_fault(why: &KubeconfigError, contexts: &[String]) -> String {
    let known = if contexts.is_empty() { "none".to_owned() } else { contexts.join(", ") };
    match why {
        KubeconfigError::ReadConfig(why, path) if why.kind() == io::ErrorKind::NotFound => {
            format!("there is no kubeconfig {}: name one by --kubeconfig or $KUBECONFIG", path.display())
        }
        KubeconfigError::ReadConfig(why, path) => format!("the kubeconfig {}: {why}", path.display()),
        KubeconfigError::LoadContext(name) => {
            format!("the kubeconfig has no context {name:?}; its contexts: {known}")
        }
        KubeconfigError::CurrentContextNotSet => {
            format!("the kubeconfig has no current-context: name one by --context; its contexts: {known}")
        }
        other => api_server::fault(&other.to_string()),
    }
}

fn config_error(why: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("no way to the API server: {why}"))
}
