//! The cluster and its nodes, as facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client, api::ListParams};
use slipway_kubernetes::facts::{Node, Pull, PullState, Snapshot, StaticPod};
use slipway_node_api::{
    text::clean_and_cut,
    v1::{EtcdSnapshot, ImagePull, StaticPodsRequest, StaticPodsResponse},
};
use slipway_node_client::{Client as NodeClient, chain};
use tokio::time::timeout;
use uuid::Uuid;

/// How long an answer may take. A node asks its own API server and etcd meanwhile.
pub const ANSWER: Duration = Duration::from_secs(45);

/// The longest version of a kubelet, bytes.
const LONGEST: usize = 128;

/// How the service of a node is reached.
pub trait Connect {
    /// A connection to the service of this Node.
    fn connect(&self, node: &core::Node) -> impl Future<Output = Result<NodeClient, String>>;
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The Nodes of the cluster.
    pub nodes: Vec<core::Node>,
    /// Nodes of the control plane, with what each says of itself, or why it does not.
    pub control_plane: BTreeMap<String, Result<StaticPodsResponse, String>>,
}

impl Seen {
    /// Look at everything.
    pub async fn look(client: &Client, nodes: &impl Connect) -> Result<Self, String> {
        let api: Api<core::Node> = Api::all(client.clone());
        let all = within(async { api.list(&ListParams::default()).await.map_err(|e| api_error(&e)) }).await?.items;
        let mut control_plane = BTreeMap::new();
        for node in all.iter().filter(|node| is_control_plane(node)) {
            let look = async {
                let mut client = nodes.connect(node).await?;
                Ok(client.static_pods(StaticPodsRequest {}).await.map_err(|e| chain(&e))?.into_inner())
            };
            control_plane.insert(name(node).to_owned(), within(look).await);
        }
        Ok(Self { nodes: all, control_plane })
    }

    /// The Node of this name.
    pub fn node(&self, wanted: &str) -> Option<&core::Node> {
        self.nodes.iter().find(|node| name(node) == wanted)
    }

    /// The kubelets of all nodes, by node.
    pub fn kubelets(&self) -> BTreeMap<String, String> {
        let version = |node: &core::Node| {
            // A kubelet says of its version what it wants to, in any length.
            Some(clean_and_cut(&node.status.as_ref()?.node_info.as_ref()?.kubelet_version, LONGEST))
        };
        self.nodes.iter().map(|node| (name(node).to_owned(), version(node).unwrap_or_default())).collect()
    }

    /// The nodes of the control plane; `asked` are the replacements and snapshots that this run has asked for.
    pub fn control_plane(&self, asked: &BTreeSet<Uuid>) -> BTreeMap<String, Node> {
        let of = |(name, says): (&String, &Result<StaticPodsResponse, String>)| {
            let node = match says {
                Ok(says) => node(says, asked),
                Err(why) => Node { silent: Some(why.clone()), ..Node::default() },
            };
            (name.clone(), node)
        };
        self.control_plane.iter().map(of).collect()
    }
}

fn node(says: &StaticPodsResponse, asked: &BTreeSet<Uuid>) -> Node {
    let is_ours = |id: &str| id.parse().is_ok_and(|id: Uuid| asked.contains(&id));
    let snapshot = says.snapshot.as_ref().filter(|of| is_ours(&of.id)).map(snapshot);
    let pull = says.pull.as_ref().filter(|of| is_ours(&of.id)).map(pull);
    let makes_snapshots = says.has_etcd && says.no_snapshot.is_none();
    let mut node = Node { busy: says.busy.clone(), makes_snapshots, snapshot, pull, ..Node::default() };
    for pod in &says.pods {
        // A component of a newer node is none that this program upgrades.
        let Ok(component) = pod.component.parse() else { continue };
        let under_way = says.under_way.as_ref().filter(|of| of.component == pod.component);
        let last = says.ended.iter().find(|of| of.component == pod.component);
        let pod = StaticPod {
            image: pod.image.clone(),
            kept: pod.kept.clone(),
            ill: pod.ill.clone(),
            emulates: pod.emulates.as_deref().and_then(|of| of.parse().ok()),
            under_way: under_way.map(|of| of.image.clone()),
            came_back: last.filter(|of| is_ours(&of.id)).and_then(|of| of.came_back.clone()),
        };
        node.pods.insert(component, pod);
    }
    node
}

fn snapshot(of: &EtcdSnapshot) -> Snapshot {
    match (&of.file, &of.failed) {
        (_, Some(why)) => Snapshot::Failed(why.clone()),
        (Some(_), None) => Snapshot::Made,
        (None, None) => Snapshot::UnderWay,
    }
}

fn pull(of: &ImagePull) -> Pull {
    let state = match (&of.failed, of.done) {
        (Some(why), _) => PullState::Failed(why.clone()),
        (None, true) => PullState::Done,
        (None, false) => PullState::UnderWay,
    };
    Pull { images: of.images.iter().cloned().collect(), state }
}

/// The name of a Node.
pub fn name(node: &core::Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn is_control_plane(node: &core::Node) -> bool {
    let labels = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
    let has = node.metadata.labels.as_ref();
    labels.iter().any(|label| has.is_some_and(|has| has.contains_key(*label)))
}

/// What the API server says, or that it does not answer.
pub(crate) fn api_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("the API server says {}: {}", status.code, status.message),
        other => format!("the API server does not answer: {}", chain(other)),
    }
}

pub(crate) async fn within<T>(what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let too_late = |_| Err(format!("no answer within {} s", ANSWER.as_secs()));
    timeout(ANSWER, what).await.unwrap_or_else(too_late)
}
