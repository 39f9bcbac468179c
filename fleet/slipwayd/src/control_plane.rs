//! The API's side of the node's static pods, and the thread that replaces them.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use slipway_kubernetes::{
    component::Component,
    manifest,
    replacement::{Asked, Ended, Journal, Next, Refusal, Replacement, Request},
    version::{Version, is_of_version},
};
use slipway_node::journal;
use slipway_node_api::v1::{
    CertificateFile, PullImagesRequest, ReplaceStaticPodRequest, ReplaceStaticPodResponse, RequestState, StaticPod,
    StaticPodReplacement, StaticPodsResponse,
};
use slipway_node_server::node::Error;
use uuid::Uuid;

use crate::{
    config::Config as NodeConfig,
    durable::Disk,
    etcd_snapshots::EtcdSnapshots,
    image_pulls::ImagePulls,
    machine::{
        certificates,
        kube::{Config, Kube},
        uptime,
    },
    static_pods::{Pods, StaticPods, came_back},
};

/// Between two looks at a pod that is not well yet.
const AGAIN: Duration = Duration::from_secs(1);
/// Without anything to do.
const IDLE: Duration = Duration::from_secs(3600);

impl Pods for Kube {
    fn ill(&self, of: &Replacement) -> Option<String> {
        self.replaced_ill(of)
    }

    fn uptime(&self) -> u64 {
        uptime()
    }
}

/// Why the replacement that is under way does not go on, if that is not its pod's.
type Stuck = Arc<Mutex<Option<String>>>;

/// The static pods of this node.
#[derive(Debug)]
pub struct ControlPlane {
    kube: Config,
    pods: Arc<Mutex<StaticPods<Disk>>>,
    stuck: Stuck,
    snapshots: EtcdSnapshots,
    pulls: ImagePulls,
    wake: Sender<()>,
}

impl ControlPlane {
    /// Around the journal of the node; what is under way goes on. `None` if it runs no static pods of the control plane.
    pub fn start(config: &NodeConfig) -> io::Result<Option<Self>> {
        let NodeConfig { kubernetes, etcd, containerd, state, .. } = config;
        let Some((kube, of)) = kubernetes.as_ref().and_then(|kube| Some((kube.clone(), kube.static_pods.clone()?)))
        else {
            return Ok(None);
        };
        let pods = Arc::new(Mutex::new(StaticPods::open(of, state, Disk)?));
        let ((wake, woken), stuck) = (channel(), Stuck::default());
        let worker =
            Worker { kube: Kube::new(kube.clone())?, pods: Arc::clone(&pods), stuck: Arc::clone(&stuck), woken };
        thread::Builder::new().name("static-pods".to_owned()).spawn(move || worker.work())?;
        let snapshots = EtcdSnapshots::open(etcd.clone(), state);
        let pulls = ImagePulls::new(containerd.as_ref().map(|of| of.socket.clone()));
        Ok(Some(Self { kube, pods, stuck, snapshots, pulls, wake }))
    }

    /// The replacement that is under way.
    pub fn under_way(&self) -> Option<Uuid> {
        self.pods().journal().under_way.as_ref().map(|of| of.request.id)
    }

    /// Looks at what is there. The lock is not held while servers are asked. An etcd that is ill is not asked for more.
    pub fn look(&self, etcd_ill: Option<String>) -> Result<StaticPodsResponse, Error> {
        let (journal, manifests) = {
            let pods = self.pods();
            (pods.journal().clone(), pods.manifests().map_err(failed)?)
        };
        let mut ill = Kube::new(self.kube.clone()).map_err(failed)?.static_pods_ill(&manifests);
        let stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ill.extend(journal.under_way.as_ref().map(|of| of.request.component).zip(stuck));
        let mut found = Vec::new();
        for (component, text) in &manifests {
            let image = manifest::image(text, *component).map_err(|e| Error::Failed(e.to_string()))?;
            let kept = journal.kept.get(component).and_then(|kept| manifest::image(kept, *component).ok());
            let (expires_first, no_expiry) = match expiry(text, *component) {
                Ok(first) => (first, None),
                Err(why) => (None, Some(why)),
            };
            let trial = manifest::minor(text, *component).and_then(|of| manifest::emulating(text, *component, of));
            found.push(StaticPod {
                component: component.to_string(),
                image,
                kept,
                ill: ill.remove(component),
                expires_first,
                no_expiry,
                emulates: journal.emulates(*component, text).map(|of| of.to_string()),
                no_emulation: Some(trial.err().map_or_else(String::new, |why| why.to_string())),
            });
        }
        let Journal { under_way, ended, .. } = journal;
        Ok(StaticPodsResponse {
            pods: found,
            under_way: under_way.map(|of| told(&of.request, None)),
            ended: ended.iter().map(|Ended { request, outcome }| told(request, came_back(outcome))).collect(),
            no_snapshot: etcd_ill.clone().or_else(|| self.snapshots.impossible()),
            etcd_ill,
            snapshot: self.snapshots.last(),
            no_pull: self.pulls.impossible(),
            pull: self.pulls.last(),
            ..StaticPodsResponse::default()
        })
    }

    /// A caller requests a replacement.
    pub fn replace(
        &self,
        request: &ReplaceStaticPodRequest,
        caller: String,
    ) -> Result<ReplaceStaticPodResponse, Error> {
        let component: Component = request.component.parse().map_err(Error::Invalid)?;
        let id = Uuid::try_parse(&request.id).map_err(|_| Error::Invalid(format!("{:?} is no UUID", request.id)))?;
        let version: Version = request.version.parse().map_err(Error::Invalid)?;
        let kube = Kube::new(self.kube.clone()).map_err(failed)?;
        if let Some(token) = request.token {
            is_claimed(&kube, token, Some(&version))?;
            self.changes_the_version_alone(&request.image, &version, Some(component))?;
        }
        // Without it, it could not be told whether the kubelet has taken the new manifest.
        let hash = kube.static_pod_hash(component).map_err(Error::Failed)?;
        let ReplaceStaticPodRequest { image, emulate, .. } = request.clone();
        let request = Request { id, component, image, version, emulate, caller };
        let asked = self.pods().ask(request, hash).map_err(failed)?.map_err(refused)?;
        if asked == Asked::New {
            tracing::info!(%id, "asked for: another image of {component}");
            let _ = self.wake.send(());
        }
        let (state, came_back) = match asked {
            Asked::New => (RequestState::New, None),
            Asked::UnderWay => (RequestState::UnderWay, None),
            Asked::Ended(outcome) => (RequestState::Ended, came_back(&outcome)),
        };
        Ok(ReplaceStaticPodResponse { state: state.into(), came_back })
    }

    /// A caller requests images to be pulled.
    pub fn pull(&self, request: PullImagesRequest, caller: &str) -> Result<(), Error> {
        let id = Uuid::try_parse(&request.id).map_err(|_| Error::Invalid(format!("{:?} is no UUID", request.id)))?;
        let version: Version = request.version.parse().map_err(Error::Invalid)?;
        if let Some(token) = request.token {
            is_claimed(&Kube::new(self.kube.clone()).map_err(failed)?, token, Some(&version))?;
            request.images.iter().try_for_each(|image| self.changes_the_version_alone(image, &version, None))?;
        }
        tracing::info!(%id, caller, "asked for: images {}", request.images.join(", "));
        self.pulls.pull(id, request.images)
    }

    /// A caller requests a snapshot of etcd.
    pub fn snapshot(&self, id: Uuid, token: Option<u64>, caller: &str) -> Result<(), Error> {
        if let Some(token) = token {
            is_claimed(&Kube::new(self.kube.clone()).map_err(failed)?, token, None)?;
        }
        self.snapshots.make(id)?;
        tracing::info!(%id, caller, "asked for: a snapshot of etcd");
        Ok(())
    }

    /// The way back closes.
    pub fn complete(&self, token: Option<u64>, caller: &str) -> Result<(), Error> {
        if let Some(token) = token {
            is_claimed(&Kube::new(self.kube.clone()).map_err(failed)?, token, None)?;
        }
        self.pods().complete().map_err(failed)?.map_err(refused)?;
        self.snapshots.forget()?;
        tracing::info!(caller, "the manifests from before the upgrade are forgotten");
        Ok(())
    }

    /// A request with a token may be a controller's, which is trusted with less than an admin: it does not choose from where
    /// an image comes.
    fn changes_the_version_alone(
        &self,
        image: &str,
        version: &Version,
        component: Option<Component>,
    ) -> Result<(), Error> {
        let manifests = self.pods().manifests().map_err(failed)?;
        let of = manifests.iter().filter(|(of, _)| component.is_none_or(|component| component == **of));
        let there: Vec<_> = of.filter_map(|(of, text)| manifest::image(text, *of).ok()).collect();
        if there.iter().any(|there| is_of_version(image, there, version)) {
            return Ok(());
        }
        let has = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Err(Error::Invalid(format!("{image} is not the present image ({has}) with the version {version}")))
    }

    fn pods(&self) -> MutexGuard<'_, StaticPods<Disk>> {
        lock(&self.pods)
    }
}

fn expiry(text: &str, component: Component) -> Result<Option<CertificateFile>, String> {
    let pod = manifest::pod(text, component).map_err(|e| e.to_string())?;
    let first = certificates::expires_first(&pod, component)?;
    Ok(first.map(|(file, expires)| CertificateFile { file: file.display().to_string(), expires }))
}

// After a panic the disk's state counts: a change takes effect only when it was written.
fn lock(pods: &Mutex<StaticPods<Disk>>) -> MutexGuard<'_, StaticPods<Disk>> {
    pods.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ledger has the claim with this token, for this version if one is named.
fn is_claimed(kube: &Kube, token: u64, version: Option<&Version>) -> Result<(), Error> {
    match kube.claimed(token).map_err(Error::NoLedger)? {
        Ok(claimed) if version.is_none_or(|version| claimed == version.to_string()) => Ok(()),
        Ok(claimed) => Err(Error::NotClaimed { token, has: format!("it is for {claimed}") }),
        Err(has) => Err(Error::NotClaimed { token, has }),
    }
}

fn told(of: &Request, came_back: Option<String>) -> StaticPodReplacement {
    let Request { id, component, image, caller, .. } = of;
    let (id, component) = (id.to_string(), component.to_string());
    StaticPodReplacement { id, component, image: image.clone(), caller: caller.clone(), came_back }
}

fn failed(error: io::Error) -> Error {
    Error::Failed(format!("the static pods: {error}"))
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Busy(id) => journal::Refusal::Busy(id).into(),
        Refusal::Uncompleted(_) | Refusal::Emulates(_) | Refusal::Unclear(_) => Error::Invalid(refusal.to_string()),
    }
}

struct Worker {
    kube: Kube,
    pods: Arc<Mutex<StaticPods<Disk>>>,
    stuck: Stuck,
    woken: Receiver<()>,
}

impl Worker {
    /// The lock is not held while servers are asked: others ask this node meanwhile.
    fn turn(&self) -> io::Result<Option<Next>> {
        let Some(look) = lock(&self.pods).look()? else { return Ok(None) };
        let ill = look.ill(&self.kube);
        lock(&self.pods).act(&look, ill, self.kube.uptime()).map(Some)
    }

    /// Go on with what the journal says, and with what is asked for.
    fn work(self) {
        let mut told = None;
        loop {
            let turn = self.turn();
            let pause = match &turn {
                Ok(None) => IDLE,
                Ok(Some(Next::Wait(_))) => AGAIN,
                Ok(Some(_)) => Duration::ZERO,
                Err(_) => AGAIN,
            };
            let stuck = turn.as_ref().err().map(|e| format!("its replacement does not go on: {e}"));
            *self.stuck.lock().unwrap_or_else(PoisonError::into_inner) = stuck;
            let says = format!("{turn:?}");
            match turn {
                _ if told.as_ref() == Some(&says) => {}
                Ok(Some(Next::Wait(why))) => tracing::info!("waits: {why}"),
                Ok(Some(Next::Turn(why))) => tracing::warn!("the old manifest comes back: {why}"),
                Ok(Some(Next::End(outcome))) => tracing::info!("ended: {outcome:?}"),
                Ok(Some(Next::Write(_))) => tracing::info!("the manifest is put into its place"),
                Ok(_) => {}
                Err(e) => tracing::error!("the static pods: {e}"),
            }
            told = Some(says);
            match self.woken.recv_timeout(pause) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
