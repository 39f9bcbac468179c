//! A stand-in for the kubelet, which needs containers: it runs each manifest's command as a process, and shows the pod in
//! the API as a kubelet does, with its hash and whether it is ready. The image is the program: that of an API server is
//! looked up in a table; what is not there does not start, like an image that no registry has.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_kubernetes::{component::Component, manifest};
use tokio::{runtime::Builder, time::timeout};

use crate::client_of;

/// Between two looks into the directory.
const LOOK: Duration = Duration::from_millis(300);

/// Which program an image is. A digest behind its tag does not count here.
pub type Images = BTreeMap<String, PathBuf>;

/// The stand-in; it ends with this, and so do its pods.
pub struct Kubelet {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    /// For the manifests in `dir/manifests`; logs are in `dir`.
    pub fn start(node: &str, dir: &Path, kubeconfig: PathBuf, images: Images) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let (stopped, node, dir) = (Arc::clone(&stop), node.to_owned(), dir.to_owned());
        let work = move || {
            let mut pods = BTreeMap::new();
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let client = runtime.block_on(client_of(&kubeconfig));
            while !stopped.load(Ordering::Relaxed) {
                for component in Component::ALL {
                    let text = fs::read_to_string(dir.join("manifests").join(component.file())).unwrap_or_default();
                    run(&mut pods, component, &text, &dir, &images);
                }
                for (component, pod) in &mut pods {
                    let shown = show(pod, *component, &node, &client);
                    // While no API server answers, it is shown later.
                    let _ = runtime.block_on(async { timeout(Duration::from_secs(5), shown).await });
                }
                thread::sleep(LOOK);
            }
            pods.values_mut().for_each(end);
        };
        Self { stop, thread: Some(thread::spawn(work)) }
    }
}

impl Kubelet {
    /// Whether it still works: a manifest that cannot be read ends it.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

struct Running {
    text: String,
    child: Option<Child>,
}

fn end(pod: &mut Running) {
    if let Some(child) = &mut pod.child {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Run what the manifest says.
fn run(pods: &mut BTreeMap<Component, Running>, component: Component, text: &str, dir: &Path, images: &Images) {
    let is_dead = |pod: &mut Running| pod.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some());
    if pods.get_mut(&component).is_some_and(|pod| pod.text == text && !is_dead(pod)) {
        return;
    }
    pods.remove(&component).iter_mut().for_each(end);
    // What is half written is no manifest: it would be caught here.
    let pod = manifest::pod(text, component).unwrap_or_else(|e| panic!("{e}: {text:?}"));
    let container = &pod["spec"]["containers"][0];
    let words: Vec<&str> = container["command"].as_array().unwrap().iter().map(|of| of.as_str().unwrap()).collect();
    let log = fs::File::options().create(true).append(true).open(dir.join(format!("{component}.log"))).unwrap();
    let child = images.get(container["image"].as_str().unwrap().split('@').next().unwrap()).map(|program| {
        let mut command = Command::new(program);
        // The API servers are of 1.20, which has no such flag; the others only sleep.
        let words = words[1..].iter().filter(|word| !word.starts_with("--emulated-version="));
        command.args(words).env("GOGC", "400").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    });
    pods.insert(component, Running { text: text.to_owned(), child });
}

/// Show the pod in the API.
async fn show(pod: &mut Running, component: Component, node: &str, client: &Client) -> Result<(), String> {
    let text = |e: kube::Error| e.to_string();
    let described = manifest::pod(&pod.text, component).unwrap();
    let is_ready = pod.child.is_some() && (component != Component::ApiServer || is_up(&described).await);
    let api: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let (name, hash) = (component.pod(node), Sha256::of(pod.text.as_bytes()).to_string());
    let there = api.get_opt(&name).await.map_err(text)?;
    let shown =
        there.as_ref().and_then(|pod| pod.metadata.annotations.as_ref()?.get("kubernetes.io/config.hash").cloned());
    if shown.as_ref() != Some(&hash) {
        if there.is_some() {
            api.delete(&name, &DeleteParams::default().grace_period(0)).await.map_err(text)?;
        }
        let annotations = json!({
            "kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash, "kubernetes.io/config.source": "file",
        });
        let uid = node_uid(client, node).await.map_err(text)?;
        let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true }]);
        let of = |part: &str| described["spec"]["containers"][0][part].clone();
        let container = json!({
            "name": component.name(), "image": of("image"), "command": of("command"), "args": of("args"),
        });
        let mirror = json!({
            "metadata": { "name": name, "annotations": annotations, "ownerReferences": owner },
            "spec": { "nodeName": node, "containers": [container] },
        });
        api.create(&PostParams::default(), &serde_json::from_value(mirror).unwrap()).await.map_err(text)?;
    }
    let ready = if is_ready { "True" } else { "False" };
    if shown.as_ref() == Some(&hash) && there.as_ref().and_then(ready_of) == Some(ready) {
        return Ok(());
    }
    let status = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] } });
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.map_err(text)?;
    Ok(())
}

/// What a pod's condition `Ready` says.
fn ready_of(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    Some(&conditions.iter().find(|of| of.type_ == "Ready")?.status)
}

async fn node_uid(client: &Client, node: &str) -> kube::Result<Value> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    Ok(json!(nodes.get(node).await?.metadata.uid))
}

/// Whether the port of an API server is open: the probe of a kubelet asks more.
async fn is_up(pod: &Value) -> bool {
    let port = manifest::flag(pod, Component::ApiServer, "secure-port").unwrap();
    tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.is_ok()
}
