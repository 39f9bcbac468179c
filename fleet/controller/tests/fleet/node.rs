//! A node. Real: the protocol and its certificates, the journal on a disk, the order of the steps, the look at the ledger,
//! cordon, drain and uncordon, all with the credentials of its own kubelet. A stand-in: the machine below, which is two
//! slots and the boot rule. A reboot takes no time, and the service lives through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use slipway_core::{
    boot::slot::{PerSlot, Slot, SlotState},
    digest::Sha256,
    payload::components::Components,
};
use slipway_node::{
    drain::Policy,
    facts::{Disk, Facts},
    journal::{Asked, Refusal},
    operation::{Installed, Learned, Moved, Operation, Shape, Tried},
    request::{Goal, Request},
    sequence,
    step::Step,
};
use slipway_node_api::{
    machine::{EtcdMember, EtcdMemberAlarm, EtcdMemberStatus},
    v1::{
        PlanResponse, PullImagesRequest, ReplaceStaticPodRequest, ReplaceStaticPodResponse, StaticPodsResponse,
        StatusResponse,
    },
};
use slipway_node_server::{
    events::{Bound, EventLog},
    limits::Limits,
    node::{Error, Lines, Log, Node},
    serve::{Listeners, serve},
    tls::{Files, Trust},
};
use slipwayd::{
    executor::{Abort, Happened, Listener, Shared},
    health::{Health, Look, QuietPeriod},
    machine::{
        installer::InstallError,
        kube::{Config, Kube},
    },
    store::Store,
    world::{Watcher, World},
};
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot, task::spawn_blocking};
use uuid::Uuid;

use crate::releases;

/// It is a node of a cluster, and has no member of etcd.
const SHAPE: Shape = Shape { kubernetes: true, etcd: false };
/// Between two looks of the thread that works.
const PAUSE: Duration = Duration::from_millis(20);

/// The digest that stands for a payload of this name.
pub fn payload(name: &str) -> Sha256 {
    Sha256::of(name.as_bytes())
}

/// The payload in an image: of one with a digest, the real one in the registry; of others their tag stands for it.
fn in_image(source: &str) -> Option<Sha256> {
    match source.strip_prefix("docker://")?.split_once("@sha256:") {
        Some((repository, digest)) => releases::payload_of(repository, digest.parse().unwrap()),
        None => source.rsplit(':').next().map(payload),
    }
}

/// The step's name, as the journal has it.
fn word(step: Step) -> String {
    serde_json::to_value(step).unwrap().as_str().unwrap().to_owned()
}

/// The events of all nodes, in their order.
#[derive(Default)]
pub struct Chronicle {
    lines: Mutex<Vec<String>>,
    /// A node waits before these steps: `n1 drain`.
    holds: Mutex<BTreeSet<String>>,
    released: Condvar,
    /// Payloads that are never well.
    sick: Mutex<BTreeSet<Sha256>>,
}

impl Chronicle {
    /// The event: `n1 cordon`.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The number of times that this happened.
    pub fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|of| *of == line).count()
    }

    /// The most nodes that were disturbed at once: from a cordon to its end.
    pub fn most_at_once(&self) -> usize {
        let (mut now, mut most) = (BTreeSet::new(), 0);
        for line in self.lines() {
            match line.split_once(' ').unwrap() {
                (node, "cordon") => _ = now.insert(node.to_owned()),
                (node, "uncordon") => _ = now.remove(node),
                _ => {}
            }
            most = most.max(now.len());
        }
        most
    }

    /// A node waits before this step until it is released.
    pub fn hold(&self, line: &str) {
        self.holds.lock().unwrap().insert(line.to_owned());
    }

    /// It waits no more.
    pub fn release(&self, line: &str) {
        self.holds.lock().unwrap().remove(line);
        self.released.notify_all();
    }

    /// This payload is never well.
    pub fn sicken(&self, payload: Sha256) {
        self.sick.lock().unwrap().insert(payload);
    }

    fn pass(&self, line: &str, is_over: &AtomicBool) {
        let mut holds = self.holds.lock().unwrap();
        while holds.contains(line) && !is_over.load(Ordering::SeqCst) {
            holds = self.released.wait(holds).unwrap();
        }
    }
}

struct State {
    chronicle: Arc<Chronicle>,
    boot: u32,
    disk: Disk,
    default: Slot,
    /// When the machine started; earlier than it did, where a test does not wait for time to pass.
    started: Instant,
    skipped: u64,
    /// Payloads that are no good on this node.
    bad: BTreeSet<Sha256>,
    /// The versions that payloads name.
    components: BTreeMap<Sha256, Components>,
}

impl State {
    fn new(chronicle: Arc<Chronicle>) -> Self {
        let disk = Disk {
            running: Slot::A,
            states: PerSlot { a: Some(SlotState::Good), b: Some(SlotState::Empty) },
            payloads: PerSlot { a: Some(payload("old")), b: None },
            next: Some(Slot::A),
            versions: PerSlot { a: None, b: None },
            components: PerSlot::default(),
            blank: false,
        };
        Self {
            chronicle,
            boot: 1,
            disk,
            default: Slot::A,
            started: Instant::now(),
            skipped: 100,
            bad: BTreeSet::from([payload("bad")]),
            components: BTreeMap::new(),
        }
    }

    fn reboot(&mut self) {
        (self.boot, self.started, self.skipped) = (self.boot + 1, Instant::now(), 10);
        let tries = self.disk.next.filter(|next| self.disk.states[*next] == Some(SlotState::Untried));
        if let Some(slot) = tries {
            self.disk.states[slot] = Some(SlotState::Tried);
        }
        self.disk.running = tries.unwrap_or(self.default);
        self.disk.next = Some(self.default);
    }

    /// The payload `bad` is never well, nor is one that was spoilt on this node, or for all of them.
    fn is_sick(&self) -> bool {
        let sick = |runs| self.bad.contains(runs) || self.chronicle.sick.lock().unwrap().contains(runs);
        self.disk.payloads[self.disk.running].as_ref().is_some_and(sick)
    }

    fn facts(&self) -> Facts {
        let (disk, uptime) = (Some(self.disk.clone()), self.started.elapsed().as_secs() + self.skipped);
        Facts { boot: self.boot.to_string(), uptime, disk, ..Facts::default() }
    }

    fn change(&mut self, step: Step, op: &Operation) -> Tried {
        let other = !self.disk.running;
        match step {
            Step::Stage => {
                let named = in_image(&op.request.source);
                if named != op.request.payload {
                    return Tried::Failed("the image has another payload".to_owned());
                }
                self.disk.states[other] = Some(SlotState::Untried);
                self.disk.payloads[other] = named;
                let components = named.and_then(|named| self.components.get(&named)).cloned();
                self.disk.components[other] = components.unwrap_or_default();
                let moved = Moved { fetched: 1000, reused: 9000, written: 2000 };
                return Tried::Done(Learned::Staged(Installed { slot: other, payload: named }, moved));
            }
            Step::Prove if self.is_sick() => {
                self.skipped += 300;
                return Tried::Blocked("it is not well".to_owned());
            }
            // A confirmed system is no trial.
            Step::Activate if op.request.goal == Goal::Rollback => {
                self.default = op.to.as_ref().map_or(other, |to| to.slot);
                self.disk.next = Some(self.default);
            }
            Step::Activate => self.disk.next = Some(other),
            Step::Deactivate => self.disk.next = Some(self.default),
            Step::GiveUp => self.disk.states[self.disk.running] = Some(SlotState::Bad),
            Step::Confirm => {
                self.disk.states[self.disk.running] = Some(SlotState::Good);
                self.default = self.disk.running;
                self.disk.next = Some(self.default);
            }
            Step::Reboot | Step::Return => {
                self.reboot();
                return Tried::Blocked("the machine goes down".to_owned());
            }
            _ => {}
        }
        Tried::Done(Learned::Nothing)
    }
}

struct Quiet;

impl Listener for Quiet {
    fn on_event(&self, _op: &Operation, _happened: Happened) {}
}

struct Inner {
    name: String,
    shared: Shared<Quiet>,
    state: Mutex<State>,
    health: Mutex<Health>,
    kube: Config,
    chronicle: Arc<Chronicle>,
    stops: AtomicBool,
}

/// The thread that works.
struct Hands {
    inner: Arc<Inner>,
    kube: Kube,
}

impl World for Hands {
    fn facts(&mut self, op: Option<&Operation>) -> Facts {
        let cordons = op.is_some_and(|op| op.cordon.is_none() && op.at <= Step::Cordon);
        let node = if cordons { self.kube.node().ok() } else { None };
        Facts { node, ..self.inner.state.lock().unwrap().facts() }
    }

    fn perform(&mut self, step: Step, op: &Operation, _watcher: &dyn Watcher) -> Tried {
        let line = format!("{} {}", self.inner.name, word(step));
        self.inner.chronicle.pass(&line, &self.inner.stops);
        if self.inner.stops.load(Ordering::SeqCst) {
            return Tried::Blocked("the test is over".to_owned());
        }
        let again = |done: Result<(), String>| done.map_or_else(Tried::Blocked, |()| Tried::Done(Learned::Nothing));
        let granted = || match op.request.token.map(|token| self.kube.is_granted(token)) {
            None | Some(Ok(())) => Tried::Done(Learned::Nothing),
            Some(Err(InstallError::Transient(why))) => Tried::Blocked(why),
            Some(Err(InstallError::Permanent(why))) => Tried::Failed(why),
        };
        let tried = match step {
            Step::Grant => granted(),
            Step::Cordon => again(self.kube.cordon(op.id())),
            Step::Drain => again(self.kube.drain()),
            Step::Uncordon => again(self.kube.uncordon(op.id())),
            Step::Recheck => match self.kube.is_drained(op.id()) {
                Ok(()) => granted(),
                Err(why) => Tried::Blocked(why),
            },
            _ => self.inner.state.lock().unwrap().change(step, op),
        };
        if matches!(tried, Tried::Done(_)) || matches!(step, Step::Reboot | Step::Return) {
            self.inner.chronicle.lines.lock().unwrap().push(line);
        }
        tried
    }
}

/// A node that serves. It ends with this.
pub struct StandIn {
    inner: Arc<Inner>,
    works: Option<thread::JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
}

impl StandIn {
    /// It keeps its journal in `dir`, listens at `address` with the certificate `NAME.crt` in `pki`, and is a node of the
    /// cluster of `kubeconfig`.
    pub fn new(name: &str, dir: &Path, kubeconfig: &Path, chronicle: Arc<Chronicle>) -> Self {
        let store = Store::open(&dir.join(format!("{name}-state"))).unwrap();
        let shared = Shared::new(store, SHAPE, sequence::Limits::default(), Quiet);
        let state = Mutex::new(State::new(Arc::clone(&chronicle)));
        let stops = AtomicBool::new(false);
        let (node, kubeconfig) = (name.to_owned(), kubeconfig.to_owned());
        let config = Config { node, kubeconfig, drain: Policy::default(), static_pods: None };
        let (name, health, kube) = (name.to_owned(), Mutex::default(), config.clone());
        let inner = Arc::new(Inner { name, shared, state, health, kube, chronicle, stops });
        let mut hands = Hands { inner: Arc::clone(&inner), kube: Kube::new(config).unwrap() };
        let works = thread::spawn(move || {
            while !hands.inner.stops.load(Ordering::SeqCst) {
                let inner = Arc::clone(&hands.inner);
                inner.shared.run_once(&mut hands).unwrap();
                thread::sleep(PAUSE);
            }
        });
        Self { inner, works: Some(works), stop: None, served: None }
    }

    /// Answer at this address.
    pub fn serve(&mut self, runtime: &Runtime, pki: &Path, address: SocketAddr) {
        let _inside = runtime.enter();
        let log = EventLog::new(Bound::default());
        let at = |name: &str| pki.join(name);
        let name = &self.inner.name;
        let (certificate, key) = (at(&format!("{name}.crt")), at(&format!("{name}.key")));
        let files = Files { certificate, key, ca: at("ca.crt"), revoked: None };
        let tcp = runtime.block_on(TcpListener::bind(address)).unwrap();
        let listeners = Listeners { tcp: Some((tcp, Trust::load(files, log.clone()).unwrap())), socket: None };
        let (stop, stopped) = oneshot::channel::<()>();
        let node = Arc::new(Api(Arc::clone(&self.inner)));
        let limits = Limits { grace: Duration::ZERO, ..Limits::default() };
        let served = serve(node, log, listeners, limits, async move {
            let _ = stopped.await;
        });
        (self.stop, self.served) = (Some(stop), Some(runtime.spawn(served)));
    }

    /// It gives no more answers. What it does goes on.
    pub fn fall_silent(&mut self, runtime: &Runtime) {
        drop(self.stop.take());
        runtime.block_on(self.served.take().unwrap()).unwrap().unwrap();
    }

    /// This is what it runs, from its first day on.
    pub fn installed(&self, name: &str) {
        let disk = &mut self.inner.state.lock().unwrap().disk;
        let running = disk.running;
        disk.payloads[running] = Some(payload(name));
    }

    /// A payload names this component.
    pub fn names(&self, name: &str, component: &str) {
        let components = Components::default().with([component.parse().unwrap()]);
        self.inner.state.lock().unwrap().components.insert(payload(name), components);
    }

    /// A payload is no good on this node.
    pub fn spoil(&self, name: &str) {
        self.inner.state.lock().unwrap().bad.insert(payload(name));
    }

    /// The payload that runs.
    pub fn runs(&self) -> Sha256 {
        let disk = &self.inner.state.lock().unwrap().disk;
        disk.payloads[disk.running].unwrap()
    }

    /// The upgrades that it took on and that have ended.
    pub fn upgrades(&self) -> usize {
        let journal = self.inner.shared.journal();
        journal.ended.iter().filter(|ended| ended.request.goal == Goal::Upgrade).count()
    }
}

impl Drop for StandIn {
    /// Its thread has ended after this: the API server may go to another test, whose nodes have the same names.
    fn drop(&mut self) {
        let chronicle = &self.inner.chronicle;
        let holds = chronicle.holds.lock();
        self.inner.stops.store(true, Ordering::SeqCst);
        drop(holds);
        chronicle.released.notify_all();
        // After a panic the API server may stand still, and goes to no other test.
        if !thread::panicking() {
            let _ = self.works.take().unwrap().join();
        }
    }
}

/// The requests of the API.
struct Api(Arc<Inner>);

impl Node for Api {
    async fn plan(&self, _request: Request) -> Result<PlanResponse, Error> {
        Err(Error::NotHere("no plans here".to_owned()))
    }

    async fn ask(&self, request: Request) -> Result<Asked, Error> {
        let grant = match request.token {
            // A Kube blocks, and so it is made and dropped where a thread may block.
            Some(_) => {
                let config = self.0.kube.clone();
                spawn_blocking(move || Kube::new(config).unwrap().grant()).await.unwrap().map_err(Error::NoLedger)?
            }
            None => None,
        };
        let facts = Facts { grant, ..self.0.state.lock().unwrap().facts() };
        let asked = self.0.shared.ask(request, &facts).map_err(|e| Error::Failed(e.to_string()))?;
        asked.map_err(|refused: Refusal| refused.into())
    }

    async fn abort(&self, id: Uuid, why: String, _as_is: bool, caller: String) -> Result<(), Error> {
        let why = format!("aborted by {caller}: {why}");
        match self.0.shared.abort(id, &why).map_err(|e| Error::Failed(e.to_string()))? {
            Abort::Journalled => Ok(()),
            Abort::NotUnderWay => Err(Error::NotUnderWay(id)),
            Abort::TooLate => Err(Error::TooLate(id)),
            Abort::TooEarly => Err(Error::TooEarly(id)),
        }
    }

    async fn confirm(&self, _caller: String) -> Result<Option<String>, Error> {
        Err(Error::NotOnTrial)
    }

    async fn status(&self) -> Result<StatusResponse, Error> {
        let state = self.0.state.lock().unwrap();
        let (facts, is_sick) = (state.facts(), state.is_sick());
        drop(state);
        let journal = self.0.shared.journal();
        let mut health = self.0.health.lock().unwrap();
        if let Some(quiet) = QuietPeriod::after_operation(&journal) {
            let ill = if is_sick { vec!["it is not well".to_owned()] } else { Vec::new() };
            health.saw(Look { ill, ..Look::default() }, quiet, facts.uptime, 0);
        }
        let health = Some(health.report(&journal, facts.uptime));
        Ok(StatusResponse { health, ..StatusResponse::of(&self.0.name, "test", SHAPE, &facts, &journal) })
    }

    async fn log(&self, _of: Log) -> Result<Lines, Error> {
        Err(Error::NotHere("nothing is logged here".to_owned()))
    }

    async fn etcd_members(&self) -> Result<Vec<EtcdMember>, Error> {
        Err(Error::NotHere("this node has no member of etcd".to_owned()))
    }

    async fn etcd_status(&self) -> Result<EtcdMemberStatus, Error> {
        Err(Error::NotHere("this node has no member of etcd".to_owned()))
    }

    async fn etcd_alarms(&self) -> Result<Vec<EtcdMemberAlarm>, Error> {
        Err(Error::NotHere("this node has no member of etcd".to_owned()))
    }

    async fn etcd_forfeit(&self) -> Result<Option<String>, Error> {
        Err(Error::NotHere("this node has no member of etcd".to_owned()))
    }

    async fn static_pods(&self) -> Result<StaticPodsResponse, Error> {
        Err(Error::NotHere("this node has no static pods".to_owned()))
    }

    async fn replace_static_pod(
        &self,
        _: ReplaceStaticPodRequest,
        _: String,
    ) -> Result<ReplaceStaticPodResponse, Error> {
        Err(Error::NotHere("this node has no static pods".to_owned()))
    }

    async fn pull_images(&self, _: PullImagesRequest, _: String) -> Result<(), Error> {
        unreachable!("no test of the fleet upgrades Kubernetes")
    }

    async fn snapshot_etcd(&self, _: Uuid, _: Option<u64>, _: String) -> Result<(), Error> {
        unreachable!("no test of the fleet upgrades Kubernetes")
    }

    async fn complete_static_pods(&self, _: Option<u64>, _: String) -> Result<(), Error> {
        Err(Error::NotHere("this node has no static pods".to_owned()))
    }
}
