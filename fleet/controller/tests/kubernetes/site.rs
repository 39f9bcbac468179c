//! The control plane, the manifests, the controller as a program, and what runs its Jobs.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use k8s_openapi::api::{batch::v1::Job, core::v1::Event, rbac::v1::RoleBinding};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use serde_json::{Value, json};
use slipway_fleet_objects::{
    kubernetes_upgrade::{CLUSTER, KubernetesUpgrade, KubernetesUpgradeStatus},
    ledger::{DisruptionLedger, LEDGER},
};
use slipway_rollout::ledger::Ledger;
use slipway_test_control_plane::{ControlPlane, client_of};
use slipway_test_support::port::free_port;
use tokio::time::timeout;

use crate::jobs::Jobs;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_slipway-fleet");
const NAMESPACE: &str = "slipway-fleet";
const FILES: [&str; 10] = [
    "namespace.yaml",
    "crds/channels.yaml",
    "crds/disruptionledgers.yaml",
    "crds/kubernetesupgrades.yaml",
    "crds/nodepools.yaml",
    "crds/nodeupgrades.yaml",
    "crds/rollouts.yaml",
    "crds/upgradepolicies.yaml",
    "rights.yaml",
    "kubernetes.yaml",
];

pub struct Site {
    // They end first: they ask the API server.
    controller: Child,
    pub jobs: Jobs,
    pub plane: ControlPlane,
    listen: u16,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.controller.kill();
        let _ = self.controller.wait();
    }
}

fn objects(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(name);
    let text = fs::read_to_string(path).unwrap();
    text.split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

fn resource(api: &str, kind: &str) -> ApiResource {
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Made as `kubectl apply` would, as soon as the API server knows the kind and the namespace.
fn apply(plane: &ControlPlane, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let TypeMeta { api_version, kind } = object.types.clone().unwrap();
    loop {
        let made = plane.runtime.block_on(async {
            let client = client_of(&plane.kubeconfig()).await;
            let resource = resource(&api_version, &kind);
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::all_with(client, &resource),
            };
            api.create(&PostParams::default(), &object).await
        });
        match made {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 409 => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => panic!("{}", status.message),
            Err(_) => sleep(Duration::from_millis(200)),
        }
    }
}

fn fleet(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

impl Site {
    pub fn new(nodes: usize, limit: u64) -> Self {
        let plane = ControlPlane::new(nodes, limit);
        for object in FILES.iter().flat_map(|file| objects(file)) {
            apply(&plane, object);
        }
        let pki = plane.pki();
        // The Deployment's own arguments are those of its Jobs.
        let mut deployment = objects("deployment.yaml").remove(0);
        let words = ["--pki", pki.to_str().unwrap(), "--port", &plane.port().to_string()].map(str::to_owned);
        deployment["spec"]["template"]["spec"]["containers"][0]["args"] = json!(words);
        apply(&plane, deployment);
        let token = |account: &str| {
            let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
            let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
            let request = http::Request::post(path).body(serde_json::to_vec(&body).unwrap()).unwrap();
            let answer: Value = plane.runtime.block_on(plane.client().request(request)).unwrap();
            plane.with_token(account, answer["status"]["token"].as_str().unwrap(), NAMESPACE)
        };
        let jobs = Jobs::start(&plane, token("slipway-fleet-kubernetes"), NAMESPACE);
        let listen = free_port();
        let mut command = Command::new(PROGRAM);
        command.env("KUBECONFIG", token("slipway-fleet")).args(&words).args(["--interval", "1"]);
        let controller = command.arg("--listen").arg(format!("127.0.0.1:{listen}")).spawn().unwrap();
        Self { controller, jobs, plane, listen }
    }

    /// People want this of Kubernetes.
    pub fn wants(&mut self, spec: Value) {
        apply(&self.plane, fleet("KubernetesUpgrade", CLUSTER, spec));
    }

    /// People change it. An API server may just be replaced.
    pub fn change(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.again(async |api: Api<KubernetesUpgrade>| api.patch(CLUSTER, &PatchParams::default(), &patch).await);
    }

    /// The rights of kubernetes.yaml are not installed: without its RoleBinding, a Role gives nothing.
    pub fn without_rights(&self) {
        self.without(NAMESPACE, "slipway-fleet-kubernetes");
    }

    /// An older kubernetes.yaml is installed, in which the Job has no rights in the control plane's namespace.
    pub fn with_older_rights(&self) {
        self.without("kube-system", "slipway-fleet-kubernetes-job");
    }

    fn without(&self, namespace: &str, binding: &str) {
        self.plane.runtime.block_on(async {
            let api: Api<RoleBinding> = Api::namespaced(client_of(&self.plane.kubeconfig()).await, namespace);
            api.delete(binding, &DeleteParams::default()).await.unwrap();
        });
    }

    pub fn with_rights(&self) {
        objects("kubernetes.yaml").into_iter().for_each(|object| apply(&self.plane, object));
    }

    /// Those to change add-ons are installed, too.
    pub fn with_rights_to_add_ons(&self) {
        objects("kubernetes-add-ons.yaml").into_iter().for_each(|object| apply(&self.plane, object));
    }

    /// An object of the cluster, as people make it.
    pub fn has(&self, object: Value) {
        apply(&self.plane, object);
    }

    pub fn policy(&self, name: &str, spec: Value) {
        apply(&self.plane, fleet("UpgradePolicy", name, spec));
    }

    /// Ask until the answer is one.
    fn again<K, T>(&self, ask: impl AsyncFn(Api<K>) -> kube::Result<T>) -> T
    where
        K: kube::Resource<DynamicType = ()>,
    {
        loop {
            let answer = self.plane.runtime.block_on(async {
                timeout(Duration::from_secs(5), async {
                    ask(Api::all(client_of(&self.plane.kubeconfig()).await)).await
                })
                .await
            });
            match answer {
                Ok(Ok(answer)) => return answer,
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 403 | 422) => panic!("{status:?}"),
                _ => sleep(Duration::from_millis(200)),
            }
        }
    }

    pub fn status(&self) -> KubernetesUpgradeStatus {
        let object = self.again(async |api: Api<KubernetesUpgrade>| api.get(CLUSTER).await);
        object.status.unwrap_or_default()
    }

    pub fn find_ledger(&self) -> Option<DisruptionLedger> {
        self.again(async |api: Api<DisruptionLedger>| api.get_opt(LEDGER).await)
    }

    pub fn ledger(&self) -> Ledger {
        self.find_ledger().and_then(|ledger| ledger.status).unwrap_or_default()
    }

    /// As a controller writes it.
    pub fn write_ledger(&self, change: impl Fn(&Ledger) -> Ledger) {
        self.again(async |api: Api<DisruptionLedger>| {
            let mut object = api.get(LEDGER).await?;
            object.status = Some(change(&object.status.clone().unwrap_or_default()));
            api.replace_status(LEDGER, &PostParams::default(), &object).await
        });
    }

    pub fn jobs_there(&self) -> usize {
        self.again(async |api: Api<Job>| api.list(&ListParams::default()).await).items.len()
    }

    pub fn events(&self) -> Vec<String> {
        let events = self.again(async |api: Api<Event>| api.list(&ListParams::default()).await).items;
        let ours =
            events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("KubernetesUpgrade"));
        ours.filter_map(|event| event.message).collect()
    }

    pub fn metrics(&self) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.listen)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Look until it is so. The runner ends a test that would wait for ever.
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        for looks in 1_u32.. {
            if is_so(self) {
                return;
            }
            sleep(Duration::from_millis(300));
            if looks.is_multiple_of(60) {
                eprintln!("waits: {what}; {:?}", self.status());
            }
        }
    }

    pub fn until_reason(&self, reason: &str) {
        self.until(&format!("the reason is {reason}"), |site| site.status().reason == reason);
    }
}
