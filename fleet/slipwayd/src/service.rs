//! The API's side of the node: who asks, who watches, and the thread that works.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use slipway_node::{
    facts::{Disk, Facts},
    journal::{Asked, Refusal},
    operation::Operation,
    request::{Goal, Request},
    sequence::Outcome,
};
use slipway_node_api::{
    machine::{EtcdMember, EtcdMemberAlarm, EtcdMemberStatus},
    v1::{
        PlanResponse, PullImagesRequest, ReplaceStaticPodRequest, ReplaceStaticPodResponse, StaticPodsResponse,
        StatusResponse, event::What,
    },
};
use slipway_node_server::{
    events::EventLog,
    node::{Error, Lines, Log, Node},
};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::{
    config::Config,
    control_plane::ControlPlane,
    executor::{AGAIN, Abort, Happened, Listener, Shared},
    health::{Health, QuietPeriod},
    logs,
    machine::{Machine, boot_id, etcd::Etcd, uptime},
    starts::Starts,
    store::Store,
    world::{Progress, World as _},
};

/// Between two looks at how the node is. Each asks the API server and etcd, and there may be thousands of nodes.
const LOOK: Duration = Duration::from_secs(60);

/// Events of the executor become events of the API, and lines of the log.
struct Events(EventLog);

impl Listener for Events {
    fn on_event(&self, op: &Operation, happened: Happened) {
        match &happened {
            Happened::Progress(..) => tracing::debug!("{happened}"),
            Happened::Blocked(..) | Happened::TurnedBack(_) | Happened::AsIs(_) => tracing::warn!("{happened}"),
            Happened::Ended(Outcome::CameBack(_) | Outcome::Left(_) | Outcome::Later(_)) => {
                tracing::error!("{happened}")
            }
            Happened::Asked | Happened::Began(_) | Happened::Done(_) | Happened::Ended(Outcome::Reached) => {
                tracing::info!("{happened}");
            }
        }
        let id = op.id();
        self.0.push(match happened {
            Happened::Asked => What::begins(op),
            Happened::Began(step) => What::step_begins(op, step),
            Happened::Progress(step, Progress::Bytes(done, total)) => What::progress(id, step, done, total),
            Happened::Progress(_, Progress::Part(text) | Progress::Note(text)) => What::notice(text),
            Happened::Done(step) => What::step_ends(id, step),
            Happened::Blocked(step, why) => What::blocked(id, step, &why),
            Happened::TurnedBack(why) => What::turned_back(id, &why),
            Happened::AsIs(why) => What::notice(format!("operation {id}: the node is taken as it is: {why}")),
            Happened::Ended(outcome) => What::ends(op, &outcome),
        });
    }
}

/// The node, as the API sees it.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    config: Config,
    shared: Shared<Events>,
    /// Looks at the disk while another one works on the machine.
    eyes: Mutex<Machine>,
    /// The last look's result.
    health: Mutex<Health>,
    /// Why the journal cannot be written. The operation stands still, and the journal does not say it.
    unwritten: Mutex<Option<String>>,
    wake: Sender<()>,
    /// The static pods of the control plane, if the node runs some; or why they cannot be known.
    control_plane: Result<Option<ControlPlane>, String>,
    /// Held while something new begins: an operation of the node, or a static pod's. There is one at a time.
    begins: Mutex<()>,
}

/// Works until the last client is gone.
pub struct Worker {
    inner: Arc<Inner>,
    machine: Machine,
    woken: Receiver<()>,
}

/// The node and its worker, around the journal that is on the disk.
pub fn start(name: String, config: Config, log: EventLog) -> anyhow::Result<(Service, Worker)> {
    let store = Store::open(&config.state)?;
    let (wake, woken) = channel();
    let shared = Shared::new(store, config.shape(), config.limits, Events(log));
    let eyes = Mutex::new(Machine::new(config.clone())?);
    let machine = Machine::new(config.clone())?;
    // The way back of the OS does not depend on static pods.
    let control_plane = ControlPlane::start(&config);
    let control_plane = control_plane.map_err(|e| e.to_string()).inspect_err(|why| tracing::error!("{why}"));
    let (health, unwritten, begins) = Default::default();
    let inner = Arc::new(Inner { name, config, shared, eyes, health, unwritten, wake, control_plane, begins });
    Ok((Service { inner: Arc::clone(&inner) }, Worker { inner, machine, woken }))
}

impl Worker {
    /// Go on with the journal's operation, and with requests.
    pub fn work(mut self) {
        // A rest that cannot be cleared now is cleared before the next payload is written, and that step says what blocks
        // it.
        if let Err(why) = self.machine.clear() {
            tracing::warn!("{why}");
        }
        let looker = Looker { inner: Arc::clone(&self.inner), starts: self.inner.note_start() };
        let (tell, told) = channel();
        thread::spawn(move || looker.work(&told));
        loop {
            let (pause, unwritten) = match self.inner.shared.run_once(&mut self.machine) {
                Ok(pause) => (pause, None),
                Err(e) => {
                    let what = self.inner.unwritten_because(&e);
                    tracing::error!("{what}");
                    self.inner.shared.listener().0.push(What::notice(what.clone()));
                    (AGAIN, Some(what))
                }
            };
            *self.inner.unwritten() = unwritten;
            // The effect of an operation on the node is unknown before the next look.
            if self.inner.shared.journal().operation.is_none() {
                let _ = tell.send(());
            }
            match self.woken.recv_timeout(pause) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Looks now and then how the node is, apart from operations and requests.
struct Looker {
    inner: Arc<Inner>,
    /// The boots before this one, until this one has lasted.
    starts: Option<Starts>,
}

impl Looker {
    /// Look when it is told to, and now and then, until its sender is gone.
    fn work(mut self, told: &Receiver<()>) {
        let mut machine = None;
        while !matches!(told.recv_timeout(LOOK), Err(RecvTimeoutError::Disconnected)) {
            machine = machine.or_else(|| self.inner.machine().ok());
            if let Some(machine) = &machine {
                self.look(machine);
            }
        }
    }

    fn look(&mut self, machine: &Machine) {
        let prove = self.inner.config.limits.prove;
        if let Some(starts) = self.starts.take_if(|_| uptime() >= prove) {
            starts.last().unwrap_or_else(|why| self.inner.not_noted(&why));
        }
        let before = QuietPeriod::after_operation(&self.inner.shared.journal());
        let Some(quiet) = before else { return };
        let mut look = machine.look();
        // Who starts again and again gets no time to start.
        let fault = self.starts.as_ref().and_then(|starts| starts.fault(prove));
        let started = if fault.is_some() { 0 } else { prove };
        look.ill.extend(fault);
        if QuietPeriod::after_operation(&self.inner.shared.journal()) == before {
            self.inner.health().saw(look, quiet, uptime(), started);
        }
    }
}

impl Inner {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unwritten(&self) -> MutexGuard<'_, Option<String>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Note that the machine has started. Whatever keeps it from that is no reason to do nothing else.
    fn note_start(&self) -> Option<Starts> {
        let boot = Some(boot_id()).filter(|boot| !boot.is_empty())?;
        let starts = Starts::note(&self.config.state, &boot, self.shared.journal().operation.is_some());
        starts.inspect_err(|why| self.not_noted(why)).ok()
    }

    fn not_noted(&self, why: &io::Error) {
        tracing::warn!("the starts of this machine cannot be noted in {}: {why}", self.config.state.display());
    }

    fn facts(&self) -> Facts {
        self.eyes.lock().unwrap_or_else(PoisonError::into_inner).facts(None)
    }

    /// For work that may take long, or hang: no other work waits for it.
    fn machine(&self) -> Result<Machine, Error> {
        Machine::new(self.config.clone()).map_err(|e| Error::Failed(e.to_string()))
    }

    fn wake(&self) {
        // The worker ends with the process.
        let _ = self.wake.send(());
    }

    fn plan(&self, request: Request) -> Result<PlanResponse, Error> {
        // The plan names what blocks the look for the grant. It asks no server here: readers may call for it.
        let facts = Facts { grant: request.token, ..self.facts() };
        let mut journal = self.shared.journal();
        journal.ask(request, self.config.shape(), &facts)?;
        let op = journal.operation.ok_or_else(|| Error::Failed("that request is over".to_owned()))?;
        let machine = self.machine()?;
        Ok(PlanResponse::of(&op, |step| machine.blocked(step, &op)))
    }

    fn ask(&self, request: Request) -> Result<Asked, Error> {
        let facts = Facts { grant: self.grant_for(&request)?, ..self.facts() };
        let _begins = self.begins();
        match &self.control_plane {
            Ok(pods) => pods.as_ref().and_then(ControlPlane::under_way).map_or(Ok(()), |id| Err(Refusal::Busy(id)))?,
            Err(_) if request.goal == Goal::Rollback => {}
            Err(why) => return Err(Error::Failed(why.clone())),
        }
        let asked = self.shared.ask(request, &facts).map_err(|e| self.no_journal(&e))??;
        self.wake();
        Ok(asked)
    }

    /// The ledger's grant for a request with a token. One that is under way was looked up when it came first.
    fn grant_for(&self, request: &Request) -> Result<Option<u64>, Error> {
        let is_known = self.shared.journal().operation.is_some_and(|op| op.id() == request.id);
        if is_known || request.token.is_none() {
            return Ok(None);
        }
        self.machine()?.grant().map_err(Error::NoLedger)
    }

    fn abort(&self, id: Uuid, why: &str, as_is: bool, caller: &str) -> Result<(), Error> {
        let because = if why.is_empty() { String::new() } else { format!(": {why}") };
        let aborted = if as_is {
            self.shared.accept_as_is(id, &format!("{caller}{because}"), &self.facts())
        } else {
            self.shared.abort(id, &format!("aborted by {caller}{because}"))
        };
        let aborted = aborted.map_err(|e| self.no_journal(&e))?;
        self.wake();
        match aborted {
            Abort::Journalled => Ok(()),
            Abort::NotUnderWay => Err(Error::NotUnderWay(id)),
            Abort::TooLate => Err(Error::TooLate(id)),
            Abort::TooEarly => Err(Error::TooEarly(id)),
        }
    }

    fn confirm(&self, caller: &str) -> Result<Option<String>, Error> {
        if let Some(op) = self.shared.journal().operation {
            return Err(Refusal::Busy(op.id()).into());
        }
        let disk = self.facts().disk.ok_or(Refusal::UnknownDisk)?;
        if !Disk::is_on_trial(&disk) {
            return Err(Error::NotOnTrial);
        }
        tracing::info!(caller, "the trial is confirmed by hand");
        let machine = self.machine()?;
        let warning = machine.after_confirm();
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
        machine.confirm().map_err(Error::Failed).map(|()| warning)
    }

    fn status(&self) -> StatusResponse {
        let version = env!("CARGO_PKG_VERSION");
        // One journal for all of it: a token without its outcome would free the grant of a node that is at work.
        let (facts, journal) = (self.facts(), self.shared.journal());
        let (health, no_way_back) = {
            let health = self.health();
            (Some(health.report(&journal, facts.uptime)), health.no_way_back(&journal, facts.uptime))
        };
        let status = StatusResponse::of(&self.name, version, self.config.shape(), &facts, &journal);
        let mut status = StatusResponse { health, no_way_back, ..status };
        if let Some((operation, why)) = status.operation.as_mut().zip(self.unwritten().clone()) {
            operation.blocked = Some(why);
        }
        status
    }

    /// Ask about etcd, apart from what the worker asks it.
    fn etcd<T>(&self, ask: impl FnOnce(&Etcd) -> Result<T, String>) -> Result<T, Error> {
        let config = self.config.etcd.clone();
        let config = config.ok_or_else(|| Error::NotHere("this node has no member of etcd".to_owned()))?;
        let etcd = Etcd::new(config).map_err(|e| Error::Failed(e.to_string()))?;
        ask(&etcd).map_err(Error::Etcd)
    }

    fn begins(&self) -> MutexGuard<'_, ()> {
        self.begins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control_plane(&self) -> Result<&ControlPlane, Error> {
        let why = "slipwayd.toml has no [kubernetes.static-pods]: this node runs no control plane as static pods";
        let pods = self.control_plane.as_ref().map_err(|why| Error::Failed(why.clone()))?;
        pods.as_ref().ok_or_else(|| Error::NotHere(why.to_owned()))
    }

    fn static_pods(&self) -> Result<StaticPodsResponse, Error> {
        let busy = self.shared.journal().operation.map(|op| format!("operation {}: {:?}", op.id(), op.request.goal));
        let etcd_ill = self.config.etcd.is_some().then(|| self.etcd(Etcd::not_well));
        let etcd_ill = etcd_ill.and_then(|ill| ill.unwrap_or_else(|e| Some(e.to_string())));
        let has_etcd = self.config.etcd.is_some();
        Ok(StaticPodsResponse { busy, has_etcd, ..self.control_plane()?.look(etcd_ill)? })
    }

    fn replace_static_pod(
        &self,
        request: &ReplaceStaticPodRequest,
        caller: String,
    ) -> Result<ReplaceStaticPodResponse, Error> {
        let _begins = self.begins();
        match self.shared.journal().operation {
            Some(op) => Err(Refusal::Busy(op.id()).into()),
            None => self.control_plane()?.replace(request, caller),
        }
    }

    /// The units whose logs are given: those that the configuration names, and our own.
    fn units(&self) -> Vec<String> {
        let services = &self.config.services;
        let mut units: Vec<String> = services.need.iter().chain(&services.stop).cloned().collect();
        units.push("slipwayd.service".to_owned());
        units
    }

    fn no_journal(&self, error: &io::Error) -> Error {
        Error::Failed(self.unwritten_because(error))
    }

    fn unwritten_because(&self, error: &io::Error) -> String {
        format!("the journal in {} cannot be written: {error}", self.config.state.display())
    }
}

impl Service {
    /// True as long as an operation is under way.
    pub fn is_at_work(&self) -> bool {
        self.inner.shared.journal().operation.is_some()
    }

    /// Work that looks at disks and asks servers may take its time: not on the threads that answer calls.
    async fn apart<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        spawn_blocking(move || what(&inner)).await.unwrap_or_else(|e| Err(Error::Failed(e.to_string())))
    }
}

impl Node for Service {
    async fn plan(&self, request: Request) -> Result<PlanResponse, Error> {
        self.apart(|inner| inner.plan(request)).await
    }

    async fn ask(&self, request: Request) -> Result<Asked, Error> {
        self.apart(|inner| inner.ask(request)).await
    }

    async fn abort(&self, id: Uuid, why: String, as_is: bool, caller: String) -> Result<(), Error> {
        self.apart(move |inner| inner.abort(id, &why, as_is, &caller)).await
    }

    async fn confirm(&self, caller: String) -> Result<Option<String>, Error> {
        self.apart(move |inner| inner.confirm(&caller)).await
    }

    async fn status(&self) -> Result<StatusResponse, Error> {
        self.apart(|inner| Ok(inner.status())).await
    }

    async fn log(&self, of: Log) -> Result<Lines, Error> {
        match of {
            Log::Kernel { follow, only_new } => logs::kernel(follow, only_new),
            Log::Service { name, follow, lines } => logs::unit(&self.inner.units(), &name, follow, lines),
        }
    }

    async fn etcd_members(&self) -> Result<Vec<EtcdMember>, Error> {
        self.apart(|inner| inner.etcd(Etcd::list)).await
    }

    async fn etcd_status(&self) -> Result<EtcdMemberStatus, Error> {
        self.apart(|inner| inner.etcd(Etcd::status)).await
    }

    async fn etcd_alarms(&self) -> Result<Vec<EtcdMemberAlarm>, Error> {
        self.apart(|inner| inner.etcd(Etcd::alarms)).await
    }

    async fn etcd_forfeit(&self) -> Result<Option<String>, Error> {
        self.apart(|inner| inner.etcd(Etcd::forfeit)).await
    }
    async fn static_pods(&self) -> Result<StaticPodsResponse, Error> {
        self.apart(Inner::static_pods).await
    }

    async fn replace_static_pod(
        &self,
        request: ReplaceStaticPodRequest,
        caller: String,
    ) -> Result<ReplaceStaticPodResponse, Error> {
        self.apart(move |inner| inner.replace_static_pod(&request, caller)).await
    }

    async fn pull_images(&self, request: PullImagesRequest, caller: String) -> Result<(), Error> {
        self.apart(move |inner| inner.control_plane()?.pull(request, &caller)).await
    }

    async fn snapshot_etcd(&self, id: Uuid, token: Option<u64>, caller: String) -> Result<(), Error> {
        self.apart(move |inner| inner.control_plane()?.snapshot(id, token, &caller)).await
    }

    async fn complete_static_pods(&self, token: Option<u64>, caller: String) -> Result<(), Error> {
        self.apart(move |inner| inner.control_plane()?.complete(token, &caller)).await
    }
}
