//! A stand-in for a node: it writes down what it is asked for, decides with the real journal, and does nothing. The real
//! node is slipwayd.

use std::sync::{Arc, Mutex};

use slipway_core::{
    boot::slot::{PerSlot, Slot, SlotState},
    digest::Sha256,
};
use slipway_node::{
    facts::{Disk, Facts},
    journal::{Asked, Journal, Refusal},
    operation::{Operation, Shape},
    request::Request,
    sequence::{Next, Outcome, steps},
    step::Step,
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
use tokio::sync::{Semaphore, mpsc};
use uuid::Uuid;

/// The stand-in's way with an operation that begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Nothing: it stays under way.
    #[default]
    Stays,
    /// It tells every step, and ends like this.
    Ends(Outcome),
}

/// The answer of etcd.
#[derive(Clone, Debug, Default)]
pub struct Etcd {
    pub members: Vec<EtcdMember>,
    pub status: EtcdMemberStatus,
    pub alarms: Vec<EtcdMemberAlarm>,
}

/// The stand-in.
#[derive(Debug)]
pub struct Recorder {
    /// The requests that came, one line each.
    pub calls: Mutex<Vec<String>>,
    /// One for each call that came.
    pub came: Semaphore,
    /// One for each call that may be answered.
    pub may_answer: Semaphore,
    pub journal: Mutex<Journal>,
    pub then: Mutex<Then>,
    /// The answer of etcd; `None` if there is none. The first member leads, and is this node's.
    pub etcd: Mutex<Option<Etcd>>,
    /// Its static pods; `None` if it has none.
    pub static_pods: Mutex<Option<StaticPodsResponse>>,
    /// The lines of each log.
    pub lines: Mutex<Vec<String>>,
    log: EventLog,
    facts: Facts,
}

impl Recorder {
    pub fn new(log: EventLog) -> Arc<Self> {
        let disk = Disk {
            running: Slot::A,
            states: PerSlot { a: Some(SlotState::Good), b: Some(SlotState::Good) },
            payloads: PerSlot { a: None, b: Some(Sha256::of(b"other")) },
            next: Some(Slot::A),
            versions: PerSlot { a: Some("1.4.0".to_owned()), b: None },
            components: PerSlot::default(),
            blank: false,
        };
        let facts = Facts { boot: "boot-1".to_owned(), uptime: 7200, disk: Some(disk), ..Facts::default() };
        Arc::new(Self {
            calls: Mutex::default(),
            came: Semaphore::new(0),
            may_answer: Semaphore::new(Semaphore::MAX_PERMITS),
            journal: Mutex::default(),
            then: Mutex::default(),
            etcd: Mutex::default(),
            static_pods: Mutex::default(),
            lines: Mutex::new(["one\n", "two\n"].map(str::to_owned).to_vec()),
            log,
            facts,
        })
    }

    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    async fn record(&self, call: String) {
        self.calls.lock().unwrap().push(call);
        self.came.add_permits(1);
        let abandoned = Abandoned(self);
        self.may_answer.acquire().await.unwrap().forget();
        std::mem::forget(abandoned);
    }

    /// The journal has this from before the service was started: no event tells of it.
    #[allow(dead_code, reason = "not every test program needs it")]
    pub fn remember(&self, request: Request, ended: Option<Outcome>) {
        let mut journal = self.journal.lock().unwrap();
        journal.ask(request, SHAPE, &self.facts).unwrap();
        if let Some(outcome) = ended {
            journal.take(Next::End(outcome), &self.facts);
        }
    }

    /// The operation under way ends.
    pub fn end(&self, outcome: Outcome) {
        let mut journal = self.journal.lock().unwrap();
        let op = journal.operation.clone().unwrap();
        journal.take(Next::End(outcome.clone()), &self.facts);
        self.log.push(What::ends(&op, &outcome));
    }

    async fn etcd(&self, call: &str) -> Result<Etcd, Error> {
        self.record(call.to_owned()).await;
        self.etcd.lock().unwrap().clone().ok_or_else(|| Error::NotHere("this node has no member of etcd".to_owned()))
    }

    fn play(&self, op: &Operation, outcome: &Outcome) {
        self.log.push(What::begins(op));
        for step in steps(op) {
            self.log.push(What::step_begins(op, step));
            if step == Step::Stage {
                self.log.push(What::progress(op.id(), step, 1 << 20, 4 << 20));
            }
            self.log.push(What::step_ends(op.id(), step));
        }
        if let Outcome::CameBack(why) = outcome {
            self.log.push(What::turned_back(op.id(), why));
        }
        self.end(outcome.clone());
    }
}

/// Records that the client no longer waits for an answer.
struct Abandoned<'a>(&'a Recorder);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.0.calls.lock().unwrap().push("abandoned".to_owned());
    }
}

const SHAPE: Shape = Shape { kubernetes: true, etcd: false };

impl Node for Recorder {
    async fn plan(&self, request: Request) -> Result<PlanResponse, Error> {
        self.record(format!("plan {:?} for {}", request.goal, request.caller)).await;
        let op = Operation::new(request, SHAPE, &self.facts).ok_or(Refusal::UnknownDisk)?;
        Ok(PlanResponse::of(&op, |step| {
            (step == Step::Drain).then(|| "default/db: no controller makes it again".to_owned())
        }))
    }

    async fn ask(&self, request: Request) -> Result<Asked, Error> {
        self.record(format!("{:?} {} for {}", request.goal, request.source, request.caller)).await;
        // Each token was granted.
        let facts = Facts { grant: request.token, ..self.facts.clone() };
        let asked = self.journal.lock().unwrap().ask(request, SHAPE, &facts)?;
        if let (Asked::New, Then::Ends(outcome)) = (&asked, &*self.then.lock().unwrap()) {
            let op = self.journal.lock().unwrap().operation.clone().unwrap();
            self.play(&op, outcome);
        }
        Ok(asked)
    }

    async fn abort(&self, id: Uuid, why: String, as_is: bool, caller: String) -> Result<(), Error> {
        self.record(format!("abort{} {id} ({why}) for {caller}", if as_is { " as it is" } else { "" })).await;
        if self.journal.lock().unwrap().operation.as_ref().is_none_or(|op| op.id() != id) {
            return Err(Error::NotUnderWay(id));
        }
        self.end(if as_is { Outcome::Left(why) } else { Outcome::CameBack(why) });
        Ok(())
    }

    async fn confirm(&self, caller: String) -> Result<Option<String>, Error> {
        self.record(format!("confirm for {caller}")).await;
        match &self.journal.lock().unwrap().operation {
            Some(op) => Err(Refusal::Busy(op.id()).into()),
            None => Err(Error::NotOnTrial),
        }
    }

    async fn status(&self) -> Result<StatusResponse, Error> {
        self.record("status".to_owned()).await;
        Ok(StatusResponse::of("node-1", "0.1.0", SHAPE, &self.facts, &self.journal.lock().unwrap()))
    }

    async fn log(&self, of: Log) -> Result<Lines, Error> {
        self.record(format!("{of:?}")).await;
        let said = self.lines.lock().unwrap().clone();
        let (to, lines) = mpsc::channel(said.len() + 1);
        for line in said {
            to.try_send(Ok(line.into())).unwrap();
        }
        match of {
            Log::Service { name, .. } if name == "broken" => {
                to.try_send(Err(Error::Failed("the disk is full".to_owned()))).unwrap();
            }
            // It goes on until the client is gone.
            Log::Kernel { follow: true, .. } | Log::Service { follow: true, .. } => {
                tokio::spawn(async move { to.closed().await });
            }
            _ => {}
        }
        Ok(lines)
    }

    async fn etcd_members(&self) -> Result<Vec<EtcdMember>, Error> {
        Ok(self.etcd("etcd members").await?.members)
    }

    async fn etcd_status(&self) -> Result<EtcdMemberStatus, Error> {
        Ok(self.etcd("etcd status").await?.status)
    }

    async fn etcd_alarms(&self) -> Result<Vec<EtcdMemberAlarm>, Error> {
        Ok(self.etcd("etcd alarms").await?.alarms)
    }

    async fn etcd_forfeit(&self) -> Result<Option<String>, Error> {
        Ok(self.etcd("etcd forfeit").await?.members.get(1).map(|member| member.hostname.clone()))
    }

    async fn static_pods(&self) -> Result<StaticPodsResponse, Error> {
        self.record("static pods".to_owned()).await;
        let pods = self.static_pods.lock().unwrap().clone();
        pods.ok_or_else(|| Error::NotHere("this node has no static pods".to_owned()))
    }

    async fn replace_static_pod(
        &self,
        request: ReplaceStaticPodRequest,
        caller: String,
    ) -> Result<ReplaceStaticPodResponse, Error> {
        self.record(format!("replace {} for {caller}", request.component)).await;
        Err(Error::NotHere("this node has no static pods".to_owned()))
    }

    async fn pull_images(&self, request: PullImagesRequest, caller: String) -> Result<(), Error> {
        self.record(format!("pull {:?} for {caller}", request.images)).await;
        Err(Error::NotHere("this node has no static pods".to_owned()))
    }

    async fn snapshot_etcd(&self, id: Uuid, _: Option<u64>, caller: String) -> Result<(), Error> {
        self.record(format!("snapshot {id} for {caller}")).await;
        Err(Error::NotHere("this node has no static pods".to_owned()))
    }

    async fn complete_static_pods(&self, _: Option<u64>, caller: String) -> Result<(), Error> {
        self.record(format!("complete static pods for {caller}")).await;
        Err(Error::NotHere("this node has no static pods".to_owned()))
    }
}
