//! Size: gate
//! Needs: etcd kube
//!
//! Cordon, drain and the fleet's grant against a real API server, with the rights of a kubelet. There is no kubelet: the test takes pods
//! away that end, as it would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod emulation;
mod grants;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use slipway_node::drain::Policy;
use slipway_test_cluster::{self as server, Server};
use slipwayd::machine::kube::{Config, Kube};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

/// The actions of a person, a controller and a kubelet.
struct Others {
    runtime: Runtime,
    client: Client,
}

impl Others {
    fn new(server: &Server) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(server.kubeconfig("admin")).unwrap();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            Client::try_from(config).unwrap()
        });
        Self { runtime, client }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The node, once the server answers and has made its first namespace.
    fn node(&self, server: &mut Server) {
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
        let nodes = self.nodes();
        server.until(|| self.runtime.block_on(nodes.create(&PostParams::default(), &node)));
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        server.until(|| self.runtime.block_on(namespaces.get("default")));
    }

    /// The node's status, as its kubelet would say.
    fn node_says(&self, status: &Value) {
        let nodes = self.nodes();
        self.runtime.block_on(nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(status))).unwrap();
    }

    fn pod(&self, name: &str, owner: Option<&str>, more: Value) {
        let owners = owner.map(|kind| {
            json!([{ "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": Uuid::new_v4(), "controller": true }])
        });
        let mut pod = json!({
            "metadata": { "name": name, "labels": { "app": name }, "ownerReferences": owners },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "c" }] },
        });
        merge(&mut pod, more);
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.runtime.block_on(self.pods().create(&PostParams::default(), &pod)).unwrap();
    }

    /// A pod runs, as its kubelet would say.
    fn runs(&self, name: &str) {
        let status = json!({ "status": {
            "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
        }});
        let pods = self.pods();
        self.runtime.block_on(pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))).unwrap();
    }

    fn uncordon(&self, unschedulable: bool) {
        let patch = json!({ "spec": { "unschedulable": unschedulable } });
        self.runtime.block_on(self.nodes().patch("n1", &PatchParams::default(), &Patch::Merge(patch))).unwrap();
    }

    /// `unschedulable` and the number of our annotations.
    fn cordon(&self) -> (bool, usize) {
        let node = self.runtime.block_on(self.nodes().get("n1")).unwrap();
        let annotations = node.metadata.annotations.unwrap_or_default();
        let ours = annotations.keys().filter(|key| key.contains("slipway.dev")).count();
        (node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false), ours)
    }

    /// Names of the pods, those that are ending with a `-` behind.
    fn names(&self) -> Vec<String> {
        let pods = self.runtime.block_on(self.pods().list(&ListParams::default())).unwrap();
        let name = |pod: Pod| {
            let ending = if pod.metadata.deletion_timestamp.is_some() { "-" } else { "" };
            format!("{}{ending}", pod.metadata.name.unwrap())
        };
        pods.items.into_iter().map(name).collect()
    }

    /// Remove a pod that has ended, as a kubelet does.
    fn gone(&self, name: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        self.runtime.block_on(self.pods().delete(name, &at_once)).unwrap();
    }

    /// A disruption budget that allows nothing: no controller says otherwise.
    fn budget(&self, app: &str) {
        let kind = GroupVersionKind::gvk("policy", "v1beta1", "PodDisruptionBudget");
        let resource = ApiResource::from_gvk_with_plural(&kind, "poddisruptionbudgets");
        let budgets: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), "default", &resource);
        let budget = serde_json::from_value(json!({
            "apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": { "name": app },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": app } } },
        }));
        self.runtime.block_on(budgets.create(&PostParams::default(), &budget.unwrap())).unwrap();
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) if !from.is_null() => *into = from,
        _ => {}
    }
}

fn node(server: &Server, drain: Policy) -> Kube {
    Kube::new(Config { node: "n1".into(), kubeconfig: server.kubeconfig("kubelet"), drain, static_pods: None }).unwrap()
}

/// A server with node `n1`, seen from outside and by its service.
fn scene() -> (Server, Others, Kube) {
    let mut server = Server::start();
    let (others, node) = (Others::new(&server), node(&server, Policy::default()));
    others.node(&mut server);
    (server, others, node)
}

#[test]
fn a_node_is_cordoned_and_becomes_what_it_was() {
    if !server::is_here() {
        return;
    }
    let (_server, others, node) = scene();
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    assert_eq!(node.cordon(one), Ok(()));
    assert_eq!(node.cordon(one), Ok(()), "after a crash it is done again");
    assert_eq!(others.cordon(), (true, 2));
    assert!(node.cordon(other).unwrap_err().contains(&one.to_string()));
    assert_eq!(node.uncordon(other), Ok(()));
    assert_eq!(others.cordon(), (true, 2), "what is not ours stays");
    assert_eq!(node.uncordon(one), Ok(()));
    assert_eq!(others.cordon(), (false, 0));
    // A person had cordoned it before.
    others.uncordon(true);
    assert_eq!(node.cordon(other), Ok(()));
    assert_eq!(node.uncordon(other), Ok(()));
    assert_eq!(others.cordon(), (true, 0));
    // And has uncordoned it meanwhile.
    assert_eq!(node.cordon(one), Ok(()));
    others.uncordon(false);
    assert!(node.is_drained(one).unwrap_err().contains("uncordoned"));
    assert_eq!(node.uncordon(one), Ok(()));
    assert_eq!(others.cordon(), (false, 0));
}

#[test]
fn pods_are_evicted_and_those_of_the_node_stay() {
    if !server::is_here() {
        return;
    }
    let (server, others, node) = scene();
    let op = Uuid::new_v4();
    others.pod("daemon", Some("DaemonSet"), Value::Null);
    let scratch = json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } });
    others.pod("web", Some("ReplicaSet"), scratch);
    others.pod("bare", None, Value::Null);
    ["daemon", "web", "bare"].iter().for_each(|name| others.runs(name));
    assert_eq!(node.cordon(op), Ok(()));
    // One pod that may not go keeps all.
    let blocked = node.drain().unwrap_err();
    assert!(blocked.contains("default/bare: no controller makes it again"), "{blocked}");
    assert_eq!(others.names(), ["bare", "daemon", "web"]);
    others.gone("bare");
    let strict = Policy { empty_dir: false, ..Policy::default() };
    let blocked = self::node(&server, strict).drain().unwrap_err();
    assert!(blocked.contains("default/web: it keeps data"), "{blocked}");
    assert!(node.drain().unwrap_err().contains("default/web: it was evicted"));
    assert_eq!(others.names(), ["daemon", "web-"]);
    assert!(node.drain().unwrap_err().contains("default/web: it is ending"));
    others.gone("web");
    assert_eq!((node.drain(), node.is_drained(op)), (Ok(()), Ok(())));
    // The scheduler had chosen this node before the cordon, and waited for a volume.
    others.pod("late", Some("ReplicaSet"), Value::Null);
    assert!(node.is_drained(op).unwrap_err().contains("default/late: it came after the drain, and it was evicted"));
    assert_eq!(others.names(), ["daemon", "late-"]);
    others.gone("late");
    others.pod("lone", None, Value::Null);
    let blocked = node.is_drained(op).unwrap_err();
    assert!(blocked.contains("default/lone: it came after the drain, and no controller makes it again"), "{blocked}");
    assert_eq!(others.names(), ["daemon", "lone"]);
}

/// A Job's pod, whose finalizer nobody takes away any more.
#[test]
fn a_pod_that_has_ended_and_is_kept_by_a_finalizer_is_not_waited_for() {
    if !server::is_here() {
        return;
    }
    let mut server = Server::start();
    let (others, node) = (Others::new(&server), node(&server, Policy::default()));
    others.node(&mut server);
    let op = Uuid::new_v4();
    let kept = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    for name in ["ended", "runs"] {
        others.pod(name, Some("Job"), kept.clone());
        others.runs(name);
    }
    assert_eq!(node.cordon(op), Ok(()));
    assert!(node.drain().unwrap_err().starts_with("2 pods are left"));
    let has_ended = json!({ "status": { "phase": "Succeeded" } });
    let pods = others.pods();
    others.runtime.block_on(pods.patch_status("ended", &PatchParams::default(), &Patch::Merge(has_ended))).unwrap();
    assert!(node.drain().unwrap_err().starts_with("1 pod is left: default/runs: it is ending"));
    let free = json!({ "metadata": { "finalizers": null } });
    others.runtime.block_on(pods.patch("runs", &PatchParams::default(), &Patch::Merge(free))).unwrap();
    others.gone("runs");
    assert_eq!((node.drain(), node.is_drained(op)), (Ok(()), Ok(())));
    assert_eq!(others.names(), ["ended-"]);
}

/// As those of networks, whose Deployments tolerate everything: on a small cluster there is no other place for them.
#[test]
fn a_pod_that_is_put_here_again_although_the_node_is_cordoned_is_evicted_and_not_waited_for() {
    if !server::is_here() {
        return;
    }
    let (server, others, node) = scene();
    let op = Uuid::new_v4();
    let tolerates = |toleration: Value| json!({ "spec": { "tolerations": [toleration] } });
    let everything = || tolerates(json!({ "operator": "Exists" }));
    others.pod("typha-1", Some("ReplicaSet"), everything());
    others.runs("typha-1");
    assert_eq!(node.cordon(op), Ok(()));
    assert!(node.drain().unwrap_err().contains("default/typha-1: it was evicted"));
    others.pod("typha-2", Some("ReplicaSet"), everything());
    assert!(node.drain().unwrap_err().starts_with("1 pod is left: default/typha-1"), "it has not ended");
    others.gone("typha-1");
    let cordon = "node.kubernetes.io/unschedulable";
    others.pod("proxy", Some("ReplicaSet"), tolerates(json!({ "key": cordon, "effect": "NoSchedule" })));
    assert_eq!(node.drain(), Ok(()));
    assert_eq!(others.names(), ["proxy", "typha-2"]);
    // They go down with the node, and their budgets know that.
    assert_eq!(node.is_drained(op), Ok(()));
    assert_eq!(others.names(), ["proxy-", "typha-2-"]);
    // Where one does not allow it, or its data may not be lost, the node stays.
    others.pod("db-0", Some("StatefulSet"), everything());
    others.runs("db-0");
    others.budget("db-0");
    let kept = node.is_drained(op).unwrap_err();
    assert!(
        kept.starts_with("1 pod is left: default/db-0: it came back, and a disruption budget keeps it: "),
        "{kept}"
    );
    others.gone("db-0");
    let mut scratch = everything();
    merge(&mut scratch, json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } }));
    others.pod("cache", Some("StatefulSet"), scratch);
    let strict = self::node(&server, Policy { empty_dir: false, ..Policy::default() });
    assert!(strict.is_drained(op).unwrap_err().contains("default/cache: it keeps data"));
    others.gone("cache");
    // Who tolerates something else is not put here by the scheduler, and nobody makes another one of a pod of its own.
    let others_taint = tolerates(json!({ "key": "gpu", "operator": "Exists" }));
    for (name, owner, spec) in [
        ("late", Some("ReplicaSet"), others_taint),
        ("tired", Some("ReplicaSet"), tolerates(json!({ "operator": "Exists", "effect": "NoExecute" }))),
        ("debug", None, everything()),
    ] {
        others.pod(name, owner, spec);
        let left = format!("default/{name}: it came after the drain");
        assert!(node.is_drained(op).unwrap_err().contains(&left), "{name}");
        others.gone(name);
    }
    // The next operation evicts it again.
    others.pod("typha-3", Some("ReplicaSet"), everything());
    assert_eq!((node.uncordon(op), node.cordon(Uuid::new_v4())), (Ok(()), Ok(())));
    assert!(node.drain().unwrap_err().contains("default/typha-3: it was evicted"));
}

/// Its kubelet is what an upgrade is to mend.
#[test]
fn a_pod_is_not_waited_for_longer_than_it_may_take_where_no_kubelet_says_that_it_has_ended() {
    if !server::is_here() {
        return;
    }
    let (_server, others, node) = scene();
    let kubelet_says = |ready: &str| {
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        others.node_says(&status);
    };
    let op = Uuid::new_v4();
    for (name, seconds) in [("web", 1), ("slow", 600)] {
        others.pod(name, Some("ReplicaSet"), json!({ "spec": { "terminationGracePeriodSeconds": seconds } }));
        others.runs(name);
    }
    assert_eq!(node.cordon(op), Ok(()));
    assert!(node.drain().unwrap_err().contains("2 pods are left"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    kubelet_says("True");
    assert!(node.drain().unwrap_err().contains("default/web: it is ending"));
    kubelet_says("Unknown");
    assert!(node.drain().unwrap_err().starts_with("1 pod is left: default/slow: it is ending"));
    others.gone("slow");
    assert_eq!((node.drain(), node.is_drained(op)), (Ok(()), Ok(())));
    assert_eq!(others.names(), ["web-"]);
}

#[test]
fn a_disruption_budget_is_respected_and_named() {
    if !server::is_here() {
        return;
    }
    let (_server, others, node) = scene();
    others.pod("db", Some("StatefulSet"), Value::Null);
    others.pod("web", Some("ReplicaSet"), Value::Null);
    ["db", "web"].iter().for_each(|name| others.runs(name));
    others.budget("db");
    let blocked = node.drain().unwrap_err();
    assert!(blocked.contains("default/db: a disruption budget keeps it: "), "{blocked}");
    assert!(blocked.contains("disruption budget db "), "which one: {blocked}");
    assert_eq!(others.names(), ["db", "web-"]);
    others.gone("web");
    assert!(node.drain().unwrap_err().starts_with("1 pod is left: default/db"));
}

/// The API keeps what a kubelet has said before the machine was started anew. That of a new system may never come.
#[test]
fn a_kubelet_that_has_said_nothing_since_the_boot_is_not_ready() {
    if !server::is_here() {
        return;
    }
    let (_server, others, node) = scene();
    let says = |boot: &str| {
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "status": { "conditions": ready, "nodeInfo": { "bootID": boot } } });
        others.node_says(&status);
    };
    assert!(node.is_ready().unwrap_err().contains("has not said anything yet"));
    says("00000000-0000-4000-8000-000000000000");
    let why = node.is_ready().unwrap_err();
    assert!(why.contains("has not said anything since the machine started"), "{why}");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    says(boot.trim());
    assert_eq!(node.is_ready(), Ok(()));
    // A kubelet that does not say its boot is believed.
    says("");
    assert_eq!(node.is_ready(), Ok(()));
}
