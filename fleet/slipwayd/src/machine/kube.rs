//! This node's part of Kubernetes: its Node object and its pods.

use std::{
    collections::BTreeSet,
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Node, NodeStatus, Pod as KubePod, Toleration},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_node::{
    cordon::{self, BEFORE, NodeState, OWNER},
    drain::{self, Fate, Pod, Policy},
};
use slipway_program::api_server;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use uuid::Uuid;

use crate::static_pods;

/// The longest time for one answer of the API server.
const ANSWER: Duration = Duration::from_secs(15);
/// Pods that a message names.
const NAMED: usize = 10;
/// The taint of a node that is cordoned.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// The configuration's part about Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of this node.
    pub node: String,
    /// Credentials that may change this Node and evict its pods: the kubelet's do.
    pub kubeconfig: PathBuf,
    /// Which pods may be lost.
    #[serde(default)]
    pub drain: Policy,
    /// The static pods of the control plane, if this node runs it.
    #[serde(default, rename = "static-pods")]
    pub static_pods: Option<static_pods::Config>,
}

/// The cluster, seen from this node.
#[derive(Debug)]
pub struct Kube {
    config: Config,
    runtime: Runtime,
    /// The UIDs of the pods that the first look of a drain found. Each has to go, and of those that came later the ones that
    /// come back have not.
    found: Mutex<Option<BTreeSet<String>>>,
}

type Result<T> = std::result::Result<T, String>;

impl Kube {
    /// The cluster that the configuration describes. Nothing is connected yet.
    pub fn new(config: Config) -> std::io::Result<Self> {
        Ok(Self { config, runtime: Builder::new_current_thread().enable_all().build()?, found: Mutex::default() })
    }

    /// The Node object as far as a cordon needs it.
    pub fn node(&self) -> Result<NodeState> {
        self.runtime.block_on(async { Ok(state(&self.get(&self.nodes().await?).await?)) })
    }

    pub(super) fn node_name(&self) -> &str {
        &self.config.node
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.config.kubeconfig
    }

    pub(super) fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Whether the kubelet says that the node is ready.
    pub fn is_ready(&self) -> Result<()> {
        self.not_ready()?.map_or(Ok(()), Err)
    }

    /// Why the node is not ready, if it is not. An error: it could not be looked at.
    pub fn not_ready(&self) -> Result<Option<String>> {
        self.runtime.block_on(async {
            let node = self.get(&self.nodes().await?).await?;
            Ok(unready(node.status.unwrap_or_default(), &super::boot_id()))
        })
    }

    /// Let nothing new be scheduled here.
    pub fn cordon(&self, op: Uuid) -> Result<()> {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.change(|node| cordon::cordoned(node, op).map_err(|refused| refused.to_string()))
    }

    /// Undo our own cordon. A Node that is gone has none.
    pub fn uncordon(&self, op: Uuid) -> Result<()> {
        self.change(|node| Ok(cordon::released(node, op)))
    }

    /// Fails with the pods that would block a drain now: the pods that may not go.
    pub fn check_drainable(&self) -> Result<()> {
        let pods = self.runtime.block_on(async { self.pods(&self.client().await?).await })?;
        may_all_go(&pods, self.config.drain)
    }

    /// Evict the pods that may be evicted. It is done when no pod is left that has to go. One that tolerates the cordon is
    /// evicted once, as its budget allows: what its controller makes anew may be put here again, without end.
    pub fn drain(&self) -> Result<()> {
        self.runtime.block_on(async {
            let client = self.client().await?;
            let pods = self.pods(&client).await?;
            // One pod that may not go keeps all: a half empty node is of no use.
            may_all_go(&pods, self.config.drain)?;
            let mut waiting = Vec::new();
            let has_come_back = self.come_back(&pods);
            for pod in pods.iter().filter(|pod| !has_come_back.contains(&pod.uid)) {
                if let Some(why) = self.send_away(&client, pod).await {
                    waiting.push(format!("{}/{}: {why}", pod.namespace, pod.name));
                }
            }
            if waiting.is_empty() { Ok(()) } else { Err(pods_left(&waiting)) }
        })
    }

    /// Evict this pod, if it is to be. Why it is still here; `None` if it stays.
    async fn send_away(&self, client: &Client, pod: &Pod) -> Option<String> {
        Some(match drain::fate(pod, self.config.drain) {
            Fate::Stays => return None,
            Fate::Blocks(why) => why.to_owned(),
            Fate::Goes => "it is ending".to_owned(),
            Fate::Evict => self.evict(client, pod).await.err().unwrap_or_else(|| "it was evicted".to_owned()),
        })
    }

    /// The UIDs of the pods that have come back since the first look of this drain.
    fn come_back(&self, pods: &[Pod]) -> BTreeSet<String> {
        let uids = || pods.iter().map(|pod| pod.uid.clone()).collect();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = found.get_or_insert_with(uids);
        let back = pods.iter().filter(|pod| pod.comes_back() && !found.contains(&pod.uid));
        back.map(|pod| pod.uid.clone()).collect()
    }

    /// Whether the node still is cordoned by this operation, and nothing runs on it that has to go. A pod that came
    /// late is evicted: the scheduler had chosen this node before the cordon, and waited for a volume. One that has
    /// come back goes down with the node: it is evicted once more, so its budget allows that, and knows it when other
    /// nodes ask.
    pub fn is_drained(&self, op: Uuid) -> Result<()> {
        let node = self.node()?;
        if !node.unschedulable || node.owner != Some(op.to_string()) {
            return Err("the node was uncordoned meanwhile".to_owned());
        }
        self.runtime.block_on(async {
            let client = self.client().await?;
            let pods = self.pods(&client).await?;
            let mut came = Vec::new();
            for pod in drain::remaining(&pods) {
                if let Some(why) = self.send_away(&client, pod).await {
                    came.push(format!("{}/{}: it came after the drain, and {why}", pod.namespace, pod.name));
                }
            }
            if !came.is_empty() {
                return Err(pods_left(&came));
            }
            may_all_go(&pods, self.config.drain)?;
            let mut kept = Vec::new();
            for pod in pods.iter().filter(|pod| drain::fate(pod, self.config.drain) == Fate::Evict) {
                if let Err(why) = self.evict(&client, pod).await {
                    kept.push(format!("{}/{}: it came back, and {why}", pod.namespace, pod.name));
                }
            }
            if kept.is_empty() { Ok(()) } else { Err(pods_left(&kept)) }
        })
    }

    /// What is wrong with the way to the API server.
    pub(super) fn fault(&self, e: &dyn Display) -> String {
        format!("{}: {}", self.config.kubeconfig.display(), api_server::fault(&e.to_string()))
    }

    /// Read each time: credentials are renewed while the service runs.
    pub(super) async fn client(&self) -> Result<Client> {
        let (path, wrong) = (&self.config.kubeconfig, |e: &dyn Display| self.fault(e));
        let kubeconfig = Kubeconfig::read_from(path).map_err(|e| wrong(&e))?;
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| wrong(&e))?;
        // A disruption budget answers 429: that is an answer, and no reason to try again for minutes.
        config.default_retry = false;
        api_server::directly(&mut config.proxy_url).map_err(|e| wrong(&e))?;
        Client::try_from(config).map_err(|e| wrong(&e))
    }

    async fn nodes(&self) -> Result<Api<Node>> {
        Ok(Api::all(self.client().await?))
    }

    pub(super) async fn get(&self, nodes: &Api<Node>) -> Result<Node> {
        within(nodes.get(&self.config.node)).await?.map_err(|e| error_text(&e))
    }

    /// Write into the Node what `wanted` makes of it, unless it was changed in between.
    fn change(&self, wanted: impl Fn(&NodeState) -> Result<NodeState>) -> Result<()> {
        self.runtime.block_on(async {
            let nodes = self.nodes().await?;
            let node = match within(nodes.get_opt(&self.config.node)).await?.map_err(|e| error_text(&e))? {
                Some(node) => node,
                None => return Ok(()),
            };
            let (is, to_be) = (state(&node), wanted(&state(&node))?);
            if is == to_be {
                return Ok(());
            }
            let patch = json!({
                "metadata": {
                    "resourceVersion": node.metadata.resource_version,
                    "annotations": { OWNER: to_be.owner, BEFORE: to_be.before },
                },
                "spec": { "unschedulable": to_be.unschedulable },
            });
            let params = PatchParams { field_manager: Some("slipwayd".to_owned()), ..PatchParams::default() };
            within(nodes.patch(&self.config.node, &params, &Patch::Merge(patch))).await?.map_err(|e| error_text(&e))?;
            Ok(())
        })
    }

    /// The pods of this node. One whose time to end is over is none where no kubelet will say that it has ended: an upgrade
    /// may mend that, and would wait for it for ever. The API server's clock says when it is over: a clock here that is ahead
    /// waits for a shorter time, and one that is behind for a longer one.
    async fn pods(&self, client: &Client) -> Result<Vec<Pod>> {
        let pods: Api<KubePod> = Api::all(client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={}", self.config.node));
        let mut pods = within(pods.list(&params)).await?.map_err(|e| error_text(&e))?.items;
        let is_overdue =
            |pod: &KubePod| pod.metadata.deletion_timestamp.as_ref().is_some_and(|at| at.0 <= Timestamp::now());
        if pods.iter().any(is_overdue) {
            let node = self.get(&Api::all(client.clone())).await?;
            let has_kubelet = unready(node.status.unwrap_or_default(), &super::boot_id()).is_none();
            pods.retain(|pod| has_kubelet || !is_overdue(pod));
        }
        Ok(pods.into_iter().map(pod).collect())
    }

    /// Evict this pod, and no later one of its name. `Ok` if it goes or is gone.
    async fn evict(&self, client: &Client, pod: &Pod) -> Result<()> {
        // Written by hand: kube's own type calls the options by a name that the API server does not read. Without
        // `apiVersion`, servers before and after policy/v1 take it.
        let eviction = json!({
            "metadata": { "name": pod.name, "namespace": pod.namespace },
            "deleteOptions": { "preconditions": { "uid": pod.uid } },
        });
        let pods: Api<KubePod> = Api::namespaced(client.clone(), &pod.namespace);
        let answer =
            within(pods.create_subresource::<_, Value>("eviction", &pod.name, &PostParams::default(), &eviction))
                .await?;
        match answer {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(e) => Err(match budget(&e) {
                Some(why) => format!("a disruption budget keeps it: {why}"),
                None => error_text(&e),
            }),
        }
    }
}

/// What a disruption budget says that refuses an eviction; `None` if none does. A server that is busy says 429, too.
fn budget(error: &kube::Error) -> Option<&str> {
    let kube::Error::Api(status) = error else { return None };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let of_budget = causes.find(|cause| status.code == 429 && cause.reason == "DisruptionBudget")?;
    Some(&of_budget.message)
}

/// Fails with the pods that may not go.
fn may_all_go(pods: &[Pod], policy: Policy) -> Result<()> {
    let blocks = |pod: &Pod| match drain::fate(pod, policy) {
        Fate::Blocks(why) => Some(format!("{}/{}: {why}", pod.namespace, pod.name)),
        _ => None,
    };
    let blocked: Vec<_> = pods.iter().filter_map(blocks).collect();
    if blocked.is_empty() { Ok(()) } else { Err(pods_left(&blocked)) }
}

/// An error that names the first of these pods, and counts the rest.
fn pods_left(pods: &[String]) -> String {
    let named = pods.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = pods.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let are = if pods.len() == 1 { "pod is" } else { "pods are" };
    format!("{} {are} left: {named}{more}", pods.len())
}

/// Why the node is not ready. `boot` is this boot: where the kubelet has said nothing since it began, the API still has
/// what it said before, and for most of a minute that the node is ready.
fn unready(status: NodeStatus, boot: &str) -> Option<String> {
    let told = status.node_info.map(|info| info.boot_id).unwrap_or_default();
    // A kubelet that does not say its boot is believed.
    let is_older = !told.is_empty() && !boot.is_empty() && told != boot;
    match status.conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" && is_older => {
            Some("the Node is not ready: its kubelet has not said anything since the machine started".to_owned())
        }
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!("the Node is not ready: {}", ready.message.as_deref().unwrap_or("unknown"))),
        None => Some("the Node is not ready: its kubelet has not said anything yet".to_owned()),
    }
}

fn state(node: &Node) -> NodeState {
    let annotation = |key| node.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    NodeState {
        unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
        owner: annotation(OWNER),
        before: annotation(BEFORE),
    }
}

fn pod(pod: KubePod) -> Pod {
    let meta = pod.metadata;
    let annotations = meta.annotations.unwrap_or_default();
    let owners = meta.owner_references.unwrap_or_default();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    let spec = pod.spec.unwrap_or_default();
    let (volumes, tolerations) = (spec.volumes.unwrap_or_default(), spec.tolerations.unwrap_or_default());
    let phase = pod.status.and_then(|status| status.phase);
    Pod {
        namespace: meta.namespace.unwrap_or_default(),
        name: meta.name.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        mirror: annotations.contains_key("kubernetes.io/config.mirror"),
        controller: controller.map(|owner| (owner.kind, owner.name)),
        finished: matches!(phase.as_deref(), Some("Succeeded" | "Failed")),
        empty_dir: volumes.iter().any(|volume| volume.empty_dir.is_some()),
        terminating: meta.deletion_timestamp.is_some(),
        tolerates_cordon: tolerations.iter().any(tolerates_cordon),
    }
}

/// As the scheduler has it: the taint has no value.
fn tolerates_cordon(of: &Toleration) -> bool {
    let Toleration { effect, key, operator, value, .. } = of;
    let text = |of: &Option<String>| of.clone().unwrap_or_default();
    let is_any = operator.as_deref() == Some("Exists");
    let is_key = text(key) == CORDON || (text(key).is_empty() && is_any);
    matches!(text(effect).as_str(), "" | "NoSchedule") && is_key && (is_any || text(value).is_empty())
}

pub(super) fn error_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("the API server says {}: {}", status.code, status.message),
        other => format!("the API server does not answer: {other}"),
    }
}

pub(super) async fn within<T>(what: impl Future<Output = T>) -> Result<T> {
    timeout(ANSWER, what).await.map_err(|_| format!("the API server does not answer within {} s", ANSWER.as_secs()))
}
