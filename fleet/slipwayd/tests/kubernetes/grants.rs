//! The fleet's grant, looked up by a node with the rights of a kubelet in a ledger that a real API server keeps.

use std::{fs, path::Path, thread, time::Duration};

use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use slipway_node::{
    journal::Refusal,
    operation::{Learned, Operation, Shape, Tried},
    request::{Goal, Request},
    step::Step,
};
use slipway_node_api::v1::{self, HealthState, StatusResponse};
use slipway_node_server::{
    events::{Bound, EventLog},
    node::{Error, Node as _},
};
use slipway_rollout::ledger::{Grant, Ledger, Node, Proof, Role};
use slipway_test_cluster::{self as server, Server};
use slipwayd::{
    config::Config,
    machine::{Machine, kube::Config as Kubernetes},
    service::{Service, start},
    world::{Progress, Watcher, World as _},
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

use crate::Others;

const TOKEN: u64 = 7;

struct NoWatcher;

impl Watcher for NoWatcher {
    fn tell(&self, _progress: Progress) {}

    fn wants_end(&self) -> bool {
        false
    }
}

impl Others {
    fn any(&self, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::all_with(self.client.clone(), &resource)
    }

    fn make(&self, objects: &Api<DynamicObject>, object: Value) {
        let object = serde_json::from_value(object).unwrap();
        self.runtime.block_on(objects.create(&PostParams::default(), &object)).unwrap();
    }

    fn ledgers(&self) -> Api<DynamicObject> {
        self.any("fleet.slipway.dev", "v1alpha1", "DisruptionLedger", "disruptionledgers")
    }

    /// The kind of the ledger. Its content does not matter here.
    fn kind_of_ledger(&self, server: &mut Server) {
        let kinds = self.any("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
        let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        self.make(&kinds, json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "disruptionledgers.fleet.slipway.dev" },
            "spec": {
                "group": "fleet.slipway.dev", "scope": "Cluster",
                "names": { "plural": "disruptionledgers", "singular": "disruptionledger", "kind": "DisruptionLedger" },
                "versions": [{
                    "name": "v1alpha1", "served": true, "storage": true, "schema": schema, "subresources": { "status": {} },
                }],
            },
        }));
        server.until(|| self.runtime.block_on(self.ledgers().list(&Default::default())));
    }

    /// Nodes may read the ledger, and nothing else of the fleet.
    fn nodes_may_read(&self) {
        let group = "rbac.authorization.k8s.io";
        let meta = json!({ "name": "slipway-node" });
        let roles = self.any(group, "v1", "ClusterRole", "clusterroles");
        let rule = json!({
            "apiGroups": ["fleet.slipway.dev"], "resources": ["disruptionledgers"], "resourceNames": ["cluster"],
            "verbs": ["get"],
        });
        let api = format!("{group}/v1");
        self.make(&roles, json!({ "apiVersion": api, "kind": "ClusterRole", "metadata": meta, "rules": [rule] }));
        let bindings = self.any(group, "v1", "ClusterRoleBinding", "clusterrolebindings");
        self.make(
            &bindings,
            json!({
                "apiVersion": api, "kind": "ClusterRoleBinding", "metadata": meta,
                "subjects": [{ "apiGroup": group, "kind": "Group", "name": "system:nodes" }],
                "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "slipway-node" },
            }),
        );
    }

    fn ledger(&self) {
        let (api, kind) = ("fleet.slipway.dev/v1alpha1", "DisruptionLedger");
        self.make(&self.ledgers(), json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "cluster" } }));
    }

    /// The ledger as the controller writes it.
    fn status(&self, status: &impl serde::Serialize) {
        let patch = Patch::Merge(json!({ "status": status }));
        let ledgers = self.ledgers();
        self.runtime.block_on(ledgers.patch_status("cluster", &PatchParams::default(), &patch)).unwrap();
    }

    fn uid(&self) -> String {
        self.runtime.block_on(self.nodes().get("n1")).unwrap().metadata.uid.unwrap()
    }

    /// The kubelet says that the node is ready.
    fn ready(&self) {
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        let nodes = self.nodes();
        self.runtime.block_on(nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(status))).unwrap();
    }
}

/// A server with node `n1` and a ledger that the node may read.
fn cluster() -> (Server, Others) {
    let mut server = Server::start();
    let others = Others::new(&server);
    others.node(&mut server);
    others.kind_of_ledger(&mut server);
    others.nodes_may_read();
    others.ledger();
    (server, others)
}

/// The ledger in which node `n1` with this UID holds this token.
fn granted(uid: &str, token: u64) -> Ledger {
    let node =
        Node { uid: uid.to_owned(), name: "n1".to_owned(), pool: "workers".to_owned(), zone: None, role: Role::Worker };
    let since = "2030-01-01T00:00:00Z".parse().unwrap();
    Ledger { epoch: token, grants: vec![Grant { node, token, since, replaces: None }], ..Ledger::default() }
}

fn request() -> Request {
    Request { token: Some(TOKEN), ..Request::new(Uuid::new_v4(), Goal::Reboot, "fleet") }
}

/// The machine's own part stands in: an installer that tells of a disk, and an init system that writes down what it does.
fn config(server: &Server, dir: &Path) -> Config {
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        // Another program writes it: what this one has open for writing cannot be run.
        let write = "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\" && chmod +x \"$2\"";
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", write, "sh", &text]).arg(&path).status().unwrap().success());
        path
    };
    let status = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/reports/1/status.json");
    let installer = write("installer", format!("cat '{}'", status.display()));
    let init = write("init", format!("echo \"$@\" >>{}", dir.join("did").display()));
    let mut config = Config { state: dir.join("state"), installer, ..Config::default() };
    let drain = Default::default();
    config.kubernetes =
        Some(Kubernetes { node: "n1".into(), kubeconfig: server.kubeconfig("kubelet"), drain, static_pods: None });
    config.services.stop = vec!["etcd.service".to_owned()];
    let commands =
        json!({ "stop": [init, "stop", "@unit@"], "is-active": [init, "@unit@"], "reboot": [init, "reboot"] });
    config.services.init = serde_json::from_value(json!({ "commands": commands })).unwrap();
    config
}

/// One step of an operation with the token, by itself.
struct Steps {
    machine: Machine,
    op: Operation,
    _dir: TempDir,
}

impl Steps {
    fn new(server: &Server) -> Self {
        let dir = tempdir().unwrap();
        let mut machine = Machine::new(config(server, dir.path())).unwrap();
        let op = Operation::new(request(), Shape { kubernetes: true, etcd: false }, &machine.facts(None)).unwrap();
        Self { machine, op, _dir: dir }
    }

    fn perform(&mut self, step: Step) -> Tried {
        self.machine.perform(step, &self.op, &NoWatcher)
    }

    fn blocked(&mut self, step: Step) -> String {
        match self.perform(step) {
            Tried::Blocked(why) => why,
            other => panic!("{step:?}: {other:?}"),
        }
    }

    fn failed(&mut self, step: Step) -> String {
        match self.perform(step) {
            Tried::Failed(why) => why,
            other => panic!("{step:?}: {other:?}"),
        }
    }
}

const DONE: Tried = Tried::Done(Learned::Nothing);

#[test]
fn a_grant_counts_for_this_node_and_this_token() {
    if !server::is_here() {
        return;
    }
    let (server, others) = cluster();
    let mut node = Steps::new(&server);
    let uid = others.uid();
    // Rights take a moment to count.
    while matches!(node.perform(Step::Grant), Tried::Blocked(why) if why.contains("403")) {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(node.failed(Step::Grant).contains("no grant for this Node"));
    // The name is the same, the machine need not be.
    others.status(&granted("another-uid", TOKEN));
    assert!(node.failed(Step::Grant).contains(&uid));
    for other in [TOKEN - 1, TOKEN + 1] {
        others.status(&granted(&uid, other));
        assert_eq!(node.failed(Step::Grant), format!("the fleet granted the token {other}, not {TOKEN}"));
    }
    others.status(&granted(&uid, TOKEN));
    assert_eq!(node.perform(Step::Grant), DONE);
    // While the node waits for etcd's lock, the grant is taken back: nothing was disturbed, and nothing is.
    others.status(&granted("another-uid", TOKEN));
    assert!(node.failed(Step::Cordon).contains(&uid));
    others.status(&json!({ "grants": "none" }));
    assert!(node.blocked(Step::Grant).contains("not as expected"));
    // Made anew under its name, it is another node.
    others.status(&granted(&uid, TOKEN));
    assert_eq!(node.perform(Step::Grant), DONE);
    others.runtime.block_on(others.nodes().delete("n1", &DeleteParams::default())).unwrap();
    let anew = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
    others.runtime.block_on(others.nodes().create(&PostParams::default(), &anew)).unwrap();
    assert!(node.failed(Step::Grant).contains(&others.uid()));
}

#[test]
fn where_nobody_can_look_nothing_begins() {
    if !server::is_here() {
        return;
    }
    let mut server = Server::start();
    let others = Others::new(&server);
    others.node(&mut server);
    let mut node = Steps::new(&server);
    // An unknown kind is refused before a look whether it is there.
    assert!(node.blocked(Step::Grant).contains("403"));
    others.nodes_may_read();
    while node.blocked(Step::Grant).contains("403") {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(node.blocked(Step::Grant).contains("404"));
    others.kind_of_ledger(&mut server);
    others.ledger();
    others.status(&granted(&others.uid(), TOKEN));
    assert_eq!(node.perform(Step::Grant), DONE);
    assert_eq!((node.perform(Step::Cordon), node.perform(Step::Recheck)), (DONE, DONE));
    server.end();
    assert!(node.blocked(Step::Grant).contains("does not answer"));
    assert!(node.blocked(Step::Recheck).contains("does not answer"));
    // A token that the node has not looked up is not remembered, either.
    let dir = tempdir().unwrap();
    let asked = |config: Config| {
        let (service, _worker) = start("n1".to_owned(), config, EventLog::new(Bound::default())).unwrap();
        let asked = others.runtime.block_on(service.ask(request()));
        let status = others.runtime.block_on(service.status()).unwrap();
        assert_eq!((status.token, status.operation), (0, None));
        asked.unwrap_err()
    };
    assert!(matches!(asked(config(&server, dir.path())), Error::NoLedger(why) if why.contains("does not answer")));
    let dir = tempdir().unwrap();
    let alone = Config { kubernetes: None, ..config(&server, dir.path()) };
    assert!(matches!(asked(alone), Error::NoLedger(why) if why.contains("[kubernetes]")));
    // A node in no cluster can look nothing up.
    let dir = tempdir().unwrap();
    let mut alone = Machine::new(Config { kubernetes: None, ..config(&server, dir.path()) }).unwrap();
    assert!(
        matches!(alone.perform(Step::Grant, &node.op, &NoWatcher), Tried::Failed(why) if why.contains("[kubernetes]"))
    );
}

/// Ask until the answer is as it should be.
fn until(others: &Others, node: &Service, is: impl Fn(&StatusResponse) -> bool) -> StatusResponse {
    loop {
        let status = others.runtime.block_on(node.status()).unwrap();
        if is(&status) {
            return status;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The whole way: the fleet asks, a pod keeps the node from being drained, and meanwhile the grant is taken back. The node
/// goes back before it stops anything, and what it says then frees the grant, if it is still held.
#[test]
fn a_grant_that_is_taken_back_is_seen_before_services_stop() {
    if !server::is_here() {
        return;
    }
    let (server, others) = cluster();
    let uid = others.uid();
    others.status(&granted(&uid, TOKEN));
    others.pod("bare", None, Value::Null);
    others.ready();
    let mut probe = Steps::new(&server);
    while probe.perform(Step::Grant) != DONE {
        thread::sleep(Duration::from_millis(50));
    }
    let dir = tempdir().unwrap();
    let log = EventLog::new(Bound::default());
    let (node, worker) = start("n1".to_owned(), config(&server, dir.path()), log).unwrap();
    thread::spawn(|| worker.work());
    let request = request();
    // No token that a client sends stands above the one that the fleet gave.
    for token in [TOKEN - 1, TOKEN + 1, (1 << 53) - 1, u64::MAX] {
        let forged = Request { id: Uuid::new_v4(), token: Some(token), ..request.clone() };
        let refused = others.runtime.block_on(node.ask(forged)).unwrap_err();
        assert_eq!(refused, Error::Refused(Refusal::NotGranted { token }));
    }
    others.runtime.block_on(node.ask(request.clone())).unwrap();
    let under_way = until(&others, &node, |status| {
        status.operation.as_ref().is_some_and(|op| op.step() == v1::Step::Drain && op.blocked.is_some())
    });
    assert_eq!(under_way.token, TOKEN);
    assert_ne!(under_way.health.unwrap().state(), HealthState::Well);
    others.status(&json!({ "grants": [] }));
    others.gone("bare");
    let ended = until(&others, &node, |status| {
        let did = fs::read_to_string(dir.path().join("did")).unwrap_or_default();
        assert!(!did.contains("stop") && !did.contains("reboot"), "{did}");
        status.operation.is_none()
    });
    let came_back = ended.ended[0].outcome.clone().unwrap().came_back.unwrap();
    assert!(came_back.starts_with("look again") && came_back.contains("no grant for this Node"), "{came_back}");
    assert_eq!(others.cordon(), (false, 0));
    // Had it not been taken back, this would free it.
    let well = until(&others, &node, |status| {
        status.health.as_ref().is_some_and(|health| health.state() == HealthState::Well)
    });
    assert_eq!((well.operation, well.token, well.denied), (None, TOKEN, Vec::new()));
    let freed = granted(&uid, TOKEN).free(&uid, &Proof::Well { token: well.token }).unwrap();
    assert_eq!(freed.grants, []);
    // And the token is used up.
    assert!(others.runtime.block_on(node.ask(Request { id: Uuid::new_v4(), ..request })).is_err());
}
