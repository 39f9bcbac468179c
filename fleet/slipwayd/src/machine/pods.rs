//! The containers in pods' sandboxes, and their end, by the CRI. They outlive the kubelet and containerd, and hold volumes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};
use tonic::transport::Channel;

use super::cri::{
    ANSWER, Result,
    api::{
        self, ContainerState, ListContainersRequest, ListPodSandboxRequest, PodSandboxState, StopContainerRequest,
        StopPodSandboxRequest, runtime_service_client::RuntimeServiceClient,
    },
    connect, listens, within,
};

/// Most bytes of an answer, as the kubelet has it: dead containers are listed, too.
const MOST: usize = 16 << 20;
/// Pods that a message names.
const NAMED: usize = 10;
/// containerd's namespace for containers of the CRI.
const NAMESPACE: &str = "k8s.io";

type Client = RuntimeServiceClient<Channel>;

/// The pods of this node, as containerd knows them.
#[derive(Debug)]
pub struct Pods {
    socket: PathBuf,
    grace: Duration,
    runtime: Runtime,
}

/// A pod in whose sandbox something runs.
struct Pod {
    sandbox: String,
    name: String,
    /// Those of its containers that run, or of which containerd does not know whether they do.
    containers: Vec<String>,
}

impl Pods {
    /// Behind this socket. Nothing is connected yet.
    pub fn new(socket: PathBuf, grace: Duration) -> io::Result<Self> {
        Ok(Self { socket, grace, runtime: Builder::new_current_thread().enable_all().build()? })
    }

    /// Stop all that runs in pods' sandboxes. It is done when a look finds nothing there, and not before.
    pub fn stop(&self) -> Result<()> {
        match listens(&self.socket) {
            Ok(()) => self.runtime.block_on(self.stop_all()),
            // It was stopped already: this step may come twice.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                self.is_empty_without_containerd()
            }
            Err(e) => Err(format!("containerd does not answer: {}: {e}", self.socket.display())),
        }
    }

    async fn stop_all(&self) -> Result<()> {
        let client = self.connect().await?;
        let running = pods(&client).await?;
        // First they are asked: to end a sandbox kills its containers at once.
        let mut asked = JoinSet::new();
        for (pod, container) in running.iter().flat_map(|pod| pod.containers.iter().map(move |one| (pod, one))) {
            asked.spawn(stop_container(client.clone(), pod.sandbox.clone(), container.clone(), self.grace));
        }
        asked.join_all().await;
        let mut ended = JoinSet::new();
        for pod in &running {
            ended.spawn(stop_sandbox(client.clone(), pod.sandbox.clone()));
        }
        let refused: Vec<_> = ended.join_all().await.into_iter().flatten().collect();
        // Only running containers count. A network that cannot be taken down any more, because what made it was a pod, holds
        // no volume.
        let left = pods(&client).await?;
        if left.is_empty() {
            return Ok(());
        }
        let why = |pod: &Pod| {
            let why = refused.iter().find(|(sandbox, _)| *sandbox == pod.sandbox);
            format!("{}: {}", pod.name, why.map_or("it runs again: who starts it?", |(_, why)| why))
        };
        let named: Vec<_> = left.iter().take(NAMED).map(why).collect();
        Err(format!("{} pods still run: {}", left.len(), named.join("; ")))
    }

    async fn connect(&self) -> Result<Client> {
        Ok(Client::new(connect(&self.socket).await?).max_decoding_message_size(MOST))
    }

    /// Without containerd there is no one to ask. Each pod has a shim, and that names containerd's socket.
    fn is_empty_without_containerd(&self) -> Result<()> {
        let shims = shims(Path::new("/proc"), &self.socket).map_err(|e| format!("/proc: {e}"))?;
        if shims.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = shims.iter().take(NAMED).map(String::as_str).collect();
        Err(format!("containerd does not run, and {} pods do: sandbox {}", shims.len(), named.join(", ")))
    }
}

/// The pods in whose sandboxes something runs, or may run.
async fn pods(client: &Client) -> Result<Vec<Pod>> {
    let mut client = client.clone();
    let sandboxes = within(ANSWER, client.list_pod_sandbox(ListPodSandboxRequest {})).await?.into_inner().items;
    let containers = within(ANSWER, client.list_containers(ListContainersRequest {})).await?.into_inner().containers;
    // A container in an unknown state may still run.
    let may_run = |one: &api::Container| matches!(one.state(), ContainerState::Running | ContainerState::Unknown);
    let mut running: Vec<_> = containers.into_iter().filter(may_run).collect();
    let mut pods: Vec<Pod> = Vec::new();
    for sandbox in sandboxes {
        let is_ready = sandbox.state() == PodSandboxState::Ready;
        let pod = sandbox.metadata.unwrap_or_default();
        let name = format!("{}/{}", pod.namespace, pod.name);
        let of_it = running.extract_if(.., |one| one.pod_sandbox_id == sandbox.id);
        let containers: Vec<_> = of_it.map(|one| one.id).collect();
        if is_ready || !containers.is_empty() {
            pods.push(Pod { sandbox: sandbox.id, name, containers });
        }
    }
    let alone = running.into_iter().map(|one| Pod {
        name: format!("the container {}, whose pod is gone", one.id),
        sandbox: one.pod_sandbox_id,
        containers: vec![one.id],
    });
    pods.extend(alone);
    Ok(pods)
}

/// Ask a container to end; containerd kills it after `grace`. Whatever comes of it, its sandbox is ended next.
async fn stop_container(mut client: Client, sandbox: String, container_id: String, grace: Duration) {
    let seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
    let request = StopContainerRequest { container_id, timeout: seconds };
    if let Err(why) = within(grace.saturating_add(ANSWER), client.stop_container(request)).await {
        tracing::warn!("a container of the sandbox {sandbox} does not end: {why}");
    }
}

/// The sandbox, and why it did not end.
async fn stop_sandbox(mut client: Client, sandbox: String) -> Option<(String, String)> {
    let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    within(ANSWER, client.stop_pod_sandbox(request)).await.err().map(|why| (sandbox, why))
}

/// Sandboxes with a shim of the containerd that had this socket.
fn shims(proc: &Path, socket: &Path) -> io::Result<Vec<String>> {
    let mut shims = Vec::new();
    for entry in fs::read_dir(proc)? {
        // A process that has ended meanwhile runs no pod.
        let Ok(line) = fs::read(entry?.path().join("cmdline")) else { continue };
        let args: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let value = |flag: &str| args.iter().skip_while(|arg| *arg != flag).nth(1);
        let is_shim = args[0].rsplit('/').next().is_some_and(|name| name.starts_with("containerd-shim"));
        let is_ours = value("-address").is_some_and(|address| Path::new(&**address) == socket);
        if is_shim && is_ours && value("-namespace").is_some_and(|namespace| namespace == NAMESPACE) {
            shims.extend(value("-id").map(ToString::to_string));
        }
    }
    Ok(shims)
}
