//! A cluster with the manifests installed, its nodes, and controllers. Real: the API server, etcd, the manifests, the
//! controller as a program with the token of its ServiceAccount, the nodes' protocol. There is no kubelet and no scheduler.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Event, Namespace, Node};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{Config, KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_core::payload::minor_version::MinorVersion;
use slipway_fleet_objects::{
    channel::{Channel, ChannelStatus},
    ledger::{DisruptionLedger, LEDGER},
    pool::{NodePool, NodePoolStatus},
    rollout::Rollout,
    upgrade::{NodeUpgrade, NodeUpgradeStatus},
};
use slipway_rollout::ledger::Ledger;
use slipway_test_cluster::Lent;
use slipway_test_control_plane::certificates;
use slipway_test_support::port::free_port;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::node::{Chronicle, StandIn, payload};

/// Time until a test looks again.
const LOOK: Duration = Duration::from_millis(100);

/// A cluster.
pub struct Site {
    pub nodes: Vec<StandIn>,
    pub chronicle: Arc<Chronicle>,
    /// It ends before the server goes to another test: what runs in it writes objects.
    pub runtime: Runtime,
    pub server: Lent,
    pub client: Client,
    dir: TempDir,
    /// Where nodes listen.
    pub port: u16,
    /// The kubeconfig of the controller.
    pub token: PathBuf,
}

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}

/// One file of the manifests, which has one object.
pub fn manifest(name: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(manifests().join(name)).unwrap()).unwrap()
}

/// Every object of the manifests, in the order of the kustomization.
pub fn objects() -> Vec<Value> {
    let kustomization = manifest("kustomization.yaml");
    let files = kustomization["resources"].as_array().unwrap();
    files.iter().flat_map(|file| manifest_of(file.as_str().unwrap())).collect()
}

/// The objects of one file of the manifests.
pub fn manifest_of(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(manifests().join(name)).unwrap();
    text.split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

fn resource(api: &str, kind: &str) -> ApiResource {
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The objects of a kind that is in no namespace.
pub fn api_of(client: &Client, api: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(api, kind))
}

pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl Site {
    /// With so many nodes, `n1` and on, that run the payload `old`. `None` if there is no API server.
    pub fn new(nodes: usize) -> Option<Self> {
        Self::with_room(nodes, nodes)
    }

    /// The same, with certificates for more nodes, up to `room`.
    pub fn with_room(nodes: usize, room: usize) -> Option<Self> {
        if !slipway_test_cluster::is_here() {
            return None;
        }
        let (mut server, is_new) = Lent::new();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = runtime.block_on(client(&server.kubeconfig("admin")));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        server.until(|| runtime.block_on(namespaces.get("default")));
        let (dir, port) = (TempDir::new().unwrap(), free_port());
        let mut site = Self {
            nodes: Vec::new(),
            chronicle: Arc::default(),
            server,
            runtime,
            client,
            dir,
            port,
            token: PathBuf::new(),
        };
        if is_new {
            site.install();
        }
        site.begins_empty();
        site.token = site.service_account();
        certificates(&site.pki(), (1..=room).map(|n| (format!("n{n}"), address(n))));
        for n in 1..=nodes {
            site.add_node(n, "old");
        }
        Some(site)
    }

    /// Apply as `kubectl apply -k` would.
    fn install(&mut self) {
        self.apply(objects());
        let is_ready = || self.client.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap());
        self.server.until(|| self.runtime.block_on(is_ready()));
        self.server.keep();
    }

    /// The kinds are served some time after they are known. And what the API server remembers, from which controllers begin,
    /// has nothing of an earlier test any more.
    fn begins_empty(&mut self) {
        let kinds =
            ["Channel", "DisruptionLedger", "KubernetesUpgrade", "NodePool", "NodeUpgrade", "Rollout", "UpgradePolicy"];
        let ours = kinds.map(|kind| self.api_of("fleet.slipway.dev/v1alpha1", kind, None));
        for api in ours.into_iter().chain([self.api_of("v1", "Node", None)]) {
            let list = || self.runtime.block_on(api.list(&ListParams::default().match_any()));
            self.server.until(|| list().ok().filter(|list| list.items.is_empty()).ok_or(()));
        }
    }

    /// Objects of any kind are made.
    pub fn apply(&mut self, objects: Vec<Value>) {
        for object in objects {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let types = object.types.clone().unwrap();
            // The API server is older than this version of the group, and has its beta, which says the same.
            let version = if types.api_version == "policy/v1" { "policy/v1beta1" } else { &types.api_version };
            let object =
                DynamicObject { types: Some(TypeMeta { api_version: version.to_owned(), ..types.clone() }), ..object };
            let api = self.api_of(version, &types.kind, object.metadata.namespace.as_deref());
            let (runtime, server) = (&self.runtime, &mut self.server);
            // A namespace that was made just now may not be there yet.
            server.until(|| match runtime.block_on(api.create(&PostParams::default(), &object)) {
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => panic!("{}", status.message),
                made => made,
            });
        }
    }

    pub fn api_of(&self, api: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource(api, kind)),
            None => api_of(&self.client, api, kind),
        }
    }

    /// Credentials of the manifests' ServiceAccount: a token from the API server.
    fn service_account(&self) -> PathBuf {
        let path = "/api/v1/namespaces/slipway-fleet/serviceaccounts/slipway-fleet/token";
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let request = http::Request::post(path).body(serde_json::to_vec(&body).unwrap()).unwrap();
        let answer: Value = self.runtime.block_on(self.client.request(request)).unwrap();
        self.server.with_token("slipway-fleet", answer["status"]["token"].as_str().unwrap())
    }

    /// Give the controller these rules of its ClusterRole.
    pub fn may(&self, rules: &Value) {
        let roles = self.api_of("rbac.authorization.k8s.io/v1", "ClusterRole", None);
        let patch = Patch::Merge(json!({ "rules": rules }));
        self.runtime.block_on(roles.patch("slipway-fleet", &PatchParams::default(), &patch)).unwrap();
    }

    /// A client with the rights of the controller.
    pub fn controllers_client(&self) -> Client {
        self.runtime.block_on(client(&self.token))
    }

    /// The version of the API server.
    pub fn server_version(&self) -> MinorVersion {
        let info = self.runtime.block_on(self.client.apiserver_version()).unwrap();
        info.git_version.parse().unwrap()
    }

    /// The certificates of nodes and controller.
    pub fn pki(&self) -> PathBuf {
        self.dir.path().join("pki")
    }

    /// One more node, which runs this.
    pub fn add_node(&mut self, n: usize, runs: &str) {
        let name = format!("n{n}");
        self.add_object(n);
        let kubeconfig = self.server.kubelet(&name);
        let mut node = StandIn::new(&name, self.dir.path(), &kubeconfig, Arc::clone(&self.chronicle));
        node.installed(runs);
        node.serve(&self.runtime, &self.pki(), SocketAddr::new(address(n), self.port));
        self.nodes.push(node);
    }

    /// The Node object of a node. Its UID.
    pub fn add_object(&self, n: usize) -> String {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = format!("n{n}");
        let zone = ["a", "b"][n % 2];
        let labels = json!({ "pool": "p", "topology.kubernetes.io/zone": zone });
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address(n) }] } });
        self.runtime.block_on(async {
            let made = nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
            nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
            made.metadata.uid.unwrap()
        })
    }

    /// A Node gets a label.
    pub fn label(&self, name: &str, key: &str, value: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { key: value } } }));
        self.runtime.block_on(nodes.patch(name, &PatchParams::default(), &patch)).unwrap();
    }

    /// Its Node object goes.
    pub fn delete_object(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        self.runtime.block_on(nodes.delete(name, &DeleteParams::default())).unwrap();
    }

    /// The node answers again.
    pub fn serve_again(&mut self, n: usize) {
        let (pki, address) = (self.pki(), SocketAddr::new(address(n), self.port));
        self.nodes[n - 1].serve(&self.runtime, &pki, address);
    }

    pub fn make(&self, object: Value) -> kube::Result<()> {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let api = self.api_of(&types.api_version, &types.kind, None);
        self.runtime.block_on(api.create(&PostParams::default(), &object)).map(drop)
    }

    /// The pool `p` of all nodes is to run this payload, with this policy.
    pub fn pool(&self, target: &str, policy: Value) {
        self.pool_with(target, policy, json!({}));
    }

    /// The same, with more.
    pub fn pool_with(&self, target: &str, policy: Value, more: Value) {
        self.make(fleet("UpgradePolicy", "policy", policy)).unwrap();
        let target = json!({ "image": format!("docker://registry.example/os:{target}"), "payload": payload(target) });
        let mut spec = json!({ "nodeSelector": { "pool": "p" }, "policies": ["policy"], "target": target });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.make(fleet("NodePool", "p", spec)).unwrap();
    }

    /// People change the pool.
    pub fn change_pool(&self, spec: Value) {
        let pools: Api<NodePool> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.runtime.block_on(pools.patch("p", &PatchParams::default(), &patch)).unwrap();
    }

    /// The pool is to run another payload.
    pub fn pool_target(&self, target: &str) {
        let target = json!({ "image": format!("docker://registry.example/os:{target}"), "payload": payload(target) });
        self.change_pool(json!({ "target": target }));
    }

    /// People write this channel, whose registry is asked once a second.
    pub fn channel(&self, name: &str, repository: &str, more: Value) {
        let mut spec = json!({ "repository": repository, "select": { "label": name }, "interval": "1s" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.make(fleet("Channel", name, spec)).unwrap();
    }

    /// People change it.
    pub fn change_channel(&self, name: &str, spec: Value) {
        let channels: Api<Channel> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.runtime.block_on(channels.patch(name, &PatchParams::default(), &patch)).unwrap();
    }

    /// Of any channel, also of one that cannot be understood.
    pub fn channel_status(&self, name: &str) -> ChannelStatus {
        let api = self.api_of("fleet.slipway.dev/v1alpha1", "Channel", None);
        let channel = self.runtime.block_on(api.get(name)).unwrap();
        serde_json::from_value(channel.data["status"].clone()).unwrap_or_default()
    }

    /// The events about objects of this kind.
    pub fn events(&self, kind: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let events = self.runtime.block_on(events.list(&ListParams::default())).unwrap().items;
        let of_kind = events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some(kind));
        of_kind.filter_map(|event| event.message).collect()
    }

    /// A person frees a grant.
    pub fn release(&self, token: u64) {
        let ledgers: Api<DisruptionLedger> = Api::all(self.client.clone());
        let release = json!([{ "token": token, "who": "alice", "why": "its mainboard is dead" }]);
        let patch = Patch::Merge(json!({ "spec": { "release": release } }));
        self.runtime.block_on(ledgers.patch(LEDGER, &PatchParams::default(), &patch)).unwrap();
    }

    fn get<K>(&self, name: &str) -> Option<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.runtime.block_on(Api::<K>::all(self.client.clone()).get_opt(name)).unwrap()
    }

    pub fn ledger(&self) -> Ledger {
        self.get::<DisruptionLedger>(LEDGER).and_then(|ledger| ledger.status).unwrap_or_default()
    }

    pub fn pool_status(&self) -> NodePoolStatus {
        self.status_of("p")
    }

    pub fn status_of(&self, pool: &str) -> NodePoolStatus {
        self.get::<NodePool>(pool).and_then(|pool| pool.status).unwrap_or_default()
    }

    pub fn node_status(&self, name: &str) -> NodeUpgradeStatus {
        self.get::<NodeUpgrade>(name).and_then(|upgrade| upgrade.status).unwrap_or_default()
    }

    pub fn rollouts(&self) -> Vec<Rollout> {
        let rollouts: Api<Rollout> = Api::all(self.client.clone());
        self.runtime.block_on(rollouts.list(&ListParams::default())).unwrap().items
    }

    /// Look until it is so. The runner ends a test that would wait for ever.
    pub fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let mut looks = 0;
        while !is_so(self) {
            sleep(LOOK);
            looks += 1;
            if looks % 100 == 0 {
                eprintln!("waits: {what}; {:?}; {:?}", self.pool_status().message, self.chronicle.lines());
            }
        }
    }

    /// Nodes are told after their pools, each by a request of its own.
    pub fn until_it_says(&self, node: &str, reason: &str) {
        self.until(&format!("{node} says {reason}"), |site| site.node_status(node).reason == reason);
    }

    /// Every node runs this payload, and the pool says so.
    pub fn until_all_run(&self, name: &str) {
        let is_done = |site: &Self| site.pool_status().state == "UpToDate";
        self.until("every node is done", is_done);
        assert!(self.nodes.iter().all(|node| node.runs() == payload(name)));
    }
}

/// An object of ours.
pub fn fleet(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

pub fn address(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, u8::try_from(n).unwrap()))
}
