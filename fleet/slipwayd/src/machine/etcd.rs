//! This node's member of etcd, and the lock that lets one member at a time go down.
//!
//! The lock is a key that says which operation holds it. It has no lease: a node that went silent keeps it until a person
//! looks, because only a person can know whether its member is coming back.

mod connection;
mod host;
mod requests;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use etcd_client::{
    AlarmAction, AlarmType, Client, Compare, CompareOp, GetOptions, MemberAddOptions, MemberListResponse, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use serde::Deserialize;
use slipway_node::quorum::{Answer, Blocked, Cluster, Going, Member, NotWell};
use tokio::{
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};
use uuid::Uuid;

use host::host;

/// The key of the lock. Its value is the operation that holds it, and the node's name.
pub const HOLDER: &str = "/slipway/v1/upgrade/holder";

/// The longest time for one answer of a member. A member that takes longer counts as one that does not answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The longest time for a follower to apply what the leader had applied.
const CATCH_UP: Duration = Duration::from_secs(15);
/// The time that a new member has to take the data of the others, before it is started once more: that begins with an empty
/// directory.
const JOINS: Duration = Duration::from_secs(120);
/// The quota of etcd's database if etcd does not report it.
const DEFAULT_QUOTA: u64 = 2 << 30;

/// The configuration's part about etcd.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of this node's member.
    pub name: String,
    /// Client URLs of the cluster: this node's, and others for when it is down.
    pub endpoints: Vec<String>,
    /// Peer URLs of this node's member, for when it comes back.
    #[serde(default)]
    pub peer_urls: Vec<String>,
    /// A program that starts etcd as a new member. It gets `ETCD_INITIAL_CLUSTER` and `ETCD_INITIAL_CLUSTER_STATE`.
    #[serde(default)]
    pub join: Option<PathBuf>,
    /// PEM: who signs the certificates of the members.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// PEM: our certificate.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// PEM: its key.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// Bytes that a database may have, where etcd does not say it itself (before 3.6).
    #[serde(default)]
    pub quota_bytes: Option<u64>,
    /// How snapshots are made; `None` for none.
    #[serde(default)]
    pub snapshot: Option<SnapshotConfig>,
    /// etcd is a part of the payload. Not so where the same etcd runs with each system, as from a static pod on STATE.
    #[serde(default = "yes")]
    pub in_payload: bool,
}

/// How snapshots are made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotConfig {
    /// A directory for nothing else, with room for the database, twice.
    pub directory: PathBuf,
    /// etcdutl; or etcdctl, of etcd before 3.6.
    pub etcdutl: PathBuf,
    /// etcd.
    pub etcd: PathBuf,
}

fn yes() -> bool {
    true
}

impl Config {
    /// Why this cannot be meant.
    pub fn check(&self) -> Result<()> {
        match (&self.ca, &self.cert, &self.key) {
            (Some(_), Some(_), Some(_)) | (_, None, None) => Ok(()),
            _ => Err("etcd.cert and etcd.key need each other, and etcd.ca".to_owned()),
        }
    }
}

/// The cluster, seen from this node.
#[derive(Debug)]
pub struct Etcd {
    config: Config,
    runtime: Runtime,
    /// When this node's member was started as a new one.
    started: Mutex<Option<Instant>>,
}

/// Nothing is left to do, or the reason why something is.
type Result<T> = std::result::Result<T, String>;

impl Etcd {
    /// The cluster that the configuration describes. Nothing is connected yet.
    pub fn new(config: Config) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { config, runtime, started: Mutex::default() })
    }

    /// The identifier of this node's member; `None` if it is not in the member list.
    pub fn member(&self) -> Result<Option<u64>> {
        self.runtime.block_on(async {
            let list = within(ANSWER, self.connect().await?.member_list()).await?;
            Ok(self.own(&list)?.map(etcd_client::Member::id))
        })
    }

    /// Take the lock for this operation. It may have it already.
    pub fn lock(&self, op: Uuid) -> Result<()> {
        let ours = self.holder(op);
        let txn = Txn::new()
            .when([Compare::create_revision(HOLDER, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(HOLDER, ours.clone(), None)])
            .or_else([TxnOp::get(HOLDER, None)]);
        self.runtime.block_on(async {
            let answer = within(ANSWER, self.connect().await?.txn(txn)).await?;
            let holder = holder_in(&answer).unwrap_or_default();
            if answer.succeeded() || holder == ours {
                return Ok(());
            }
            Err(format!(
                "{holder} holds etcd's upgrade lock: wait for it; if that node is gone for good, delete the key {HOLDER}"
            ))
        })
    }

    /// The value of the lock's key while this operation holds it.
    fn holder(&self, op: Uuid) -> String {
        format!("{op} {}", self.config.name)
    }

    /// Whether this operation holds the lock, by a read that a majority answers.
    pub fn is_held(&self, op: Uuid) -> Result<bool> {
        let ours = self.holder(op);
        self.runtime.block_on(async {
            let answer = within(ANSWER, self.connect().await?.get(HOLDER, Some(GetOptions::new()))).await?;
            Ok(answer.kvs().first().and_then(|kv| kv.value_str().ok()) == Some(ours.as_str()))
        })
    }

    /// Give the lock back. What another operation holds stays.
    pub fn unlock(&self, op: Uuid) -> Result<()> {
        let txn = Txn::new()
            .when([Compare::value(HOLDER, CompareOp::Equal, self.holder(op))])
            .and_then([TxnOp::delete(HOLDER, None)]);
        self.runtime.block_on(async {
            within(ANSWER, self.connect().await?.txn(txn)).await?;
            Ok(())
        })
    }

    /// Whether its version changes with the system.
    pub fn is_in_payload(&self) -> bool {
        self.config.in_payload
    }

    /// Ask about what all members report; with this node's member.
    pub fn with_cluster<T>(&self, ask: impl FnOnce(&Cluster, u64) -> T) -> Result<T> {
        self.runtime.block_on(async {
            let (cluster, _, me) = self.look(&mut self.connect().await?).await?;
            Ok(ask(&cluster, me))
        })
    }

    /// Whether this node's member may go.
    pub fn may_go(&self, going: Going) -> Result<()> {
        self.runtime.block_on(async {
            let mut client = self.connect().await?;
            let (cluster, since, me) = self.look(&mut client).await?;
            cluster.may_go(me, since, going).map_err(|blocked| blocked.to_string())
        })
    }

    /// Whether this node's member votes, follows the leader that a majority sees, and has caught up with it. An alarm that
    /// another one has raised is not its fault; nor is any, if the operation `began_in_spite` of alarms.
    pub fn is_well(&self, began_in_spite: bool) -> Result<()> {
        let fault = self.fault()?.filter(|(fault, _)| !fault.is_no_fault(began_in_spite));
        fault.map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Why this node's member is not well, if it is not. An error: it could not be looked at, or it has no fault but an alarm,
    /// which all members report, whichever of them raised it.
    pub fn not_well(&self) -> Result<Option<String>> {
        match self.fault()? {
            Some((NotWell::Alarm { .. }, why)) => Err(why),
            fault => Ok(fault.map(|(_, why)| why)),
        }
    }

    /// The fault of this node's member, and its words.
    fn fault(&self) -> Result<Option<(NotWell, String)>> {
        self.runtime.block_on(async {
            let (cluster, since, me) = self.look(&mut self.connect().await?).await?;
            let Some(fault) = cluster.not_well(me, since) else { return Ok(None) };
            let why = match &fault {
                NotWell::Alarm { name, .. } => Blocked::Alarm(name.clone()).to_string(),
                NotWell::Itself(errors) => {
                    let errors = if errors.is_empty() { String::new() } else { format!(": {}", errors.join("; ")) };
                    let unknown = cluster.foreign().map(|member| format!(", and the state of {member} is unknown"));
                    format!("this node's member of etcd is not well yet{errors}{}", unknown.unwrap_or_default())
                }
            };
            Ok(Some((fault, why)))
        })
    }

    /// Whether the others do without this node's member: it takes part, or it was taken out of the cluster.
    pub fn is_well_or_out(&self) -> Result<()> {
        let Err(why) = self.is_well(true) else { return Ok(()) };
        self.runtime.block_on(async {
            // This client has just had an answer that a majority gave: its list is not older.
            let list = within(ANSWER, self.connect().await?.member_list()).await?;
            // Of two with its name one may be well: no command names either.
            self.own(&list)?;
            match list.members().iter().find(|member| self.is_ours(member)) {
                None => Ok(()),
                Some(member) => Err(format!(
                    "{why}; if it is gone for good, take it out of the cluster: `etcdctl member remove {:x}`",
                    member.id()
                )),
            }
        })
    }

    /// True of this node's member. One that has not started yet has no name: it is known by where it listens. etcd has its
    /// addresses in an order of its own.
    fn is_ours(&self, member: &etcd_client::Member) -> bool {
        member.name() == self.config.name || member.peer_urls().iter().any(|url| self.config.peer_urls.contains(url))
    }

    /// Whether this node's member leads.
    pub fn leads(&self) -> Result<bool> {
        self.runtime.block_on(async {
            let (cluster, _, me) = self.look(&mut self.connect().await?).await?;
            Ok(leads(&cluster, me))
        })
    }

    /// Give the leadership away, if this node's member has it.
    pub fn hand_over(&self) -> Result<()> {
        self.runtime.block_on(async {
            let mut client = self.connect().await?;
            let (cluster, since, me) = self.look(&mut client).await?;
            let Some(to) = cluster.successor(me, since) else {
                return if leads(&cluster, me) { Err("no other member of etcd can lead".to_owned()) } else { Ok(()) };
            };
            // Only the leader itself can give it away.
            let urls = within(ANSWER, client.member_list()).await?;
            let urls =
                urls.members().iter().find(|member| member.id() == me).map(|member| member.client_urls().to_vec());
            let mut mine = self.connect_to(&urls.unwrap_or_default()).await?;
            within(ANSWER, mine.move_leader(to)).await?;
            Ok(())
        })
    }

    /// Leave the cluster. A member that is not in the list any more has left.
    pub fn leave(&self, member: u64) -> Result<()> {
        self.runtime.block_on(async {
            let mut client = self.connect().await?;
            let list = within(ANSWER, client.member_list()).await?;
            if list.members().iter().any(|found| found.id() == member) {
                within(ANSWER, client.member_remove(member)).await?;
            }
            Ok(())
        })
    }

    /// Come back: as a learner first, then as a voter.
    pub fn rejoin(&self) -> Result<()> {
        self.runtime.block_on(async {
            let mut client = self.connect().await?;
            let list = within(ANSWER, client.member_list()).await?;
            let Some(ours) = list.members().iter().find(|member| self.is_ours(member)) else {
                let options = MemberAddOptions::new().with_is_learner();
                within(ANSWER, client.member_add(self.config.peer_urls.clone(), Some(options))).await?;
                return Err("it was added to etcd's cluster and has to start".to_owned());
            };
            if ours.name().is_empty() {
                self.start(&list)?;
                return Err("etcd starts as a new member".to_owned());
            }
            if ours.is_learner() {
                within(ANSWER, client.member_promote(ours.id())).await?;
            }
            Ok(())
        })
    }

    /// Start etcd as a new member of what the list says.
    fn start(&self, list: &MemberListResponse) -> Result<()> {
        let Some(program) = &self.config.join else { return Ok(()) };
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if started.is_some_and(|at| at.elapsed() < JOINS) {
            return Ok(());
        }
        let named = |name: &str, url: &String| format!("{name}={url}");
        let of = |member: &etcd_client::Member| {
            let name = if member.name().is_empty() { &self.config.name } else { member.name() }.to_owned();
            member.peer_urls().iter().map(|url| named(&name, url)).collect::<Vec<_>>()
        };
        let cluster: Vec<String> = list.members().iter().flat_map(of).collect();
        let status = Command::new(program)
            .env("ETCD_INITIAL_CLUSTER", cluster.join(","))
            .env("ETCD_INITIAL_CLUSTER_STATE", "existing")
            .status()
            .map_err(|e| format!("{} cannot be run: {e}", program.display()))?;
        *started = status.success().then(Instant::now);
        if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", program.display())) }
    }

    pub(super) fn snapshot_config(&self) -> Option<&SnapshotConfig> {
        self.config.snapshot.as_ref()
    }

    pub(super) fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// This node's member. Of two with its name it is unknown which of them goes.
    fn own<'a>(&self, list: &'a MemberListResponse) -> Result<Option<&'a etcd_client::Member>> {
        let name = &self.config.name;
        match list.members().iter().filter(|member| member.name() == name).collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [own] => Ok(Some(own)),
            [one, other, ..] => Err(format!(
                "two members of etcd have the name {name}, {:x} and {:x}: take the one that is gone out of the cluster, by \
                 `etcdctl member remove`, or start each with a name of its own",
                one.id(),
                other.id()
            )),
        }
    }

    /// The members of this list, without their answers. Who listens where this node's member does goes with it.
    fn members(&self, list: &MemberListResponse) -> Result<(Vec<Member>, u64)> {
        let own = self.own(list)?;
        let me = own.map_or(0, etcd_client::Member::id);
        let here: BTreeSet<&str> = own.iter().flat_map(|own| own.peer_urls()).filter_map(|url| host(url)).collect();
        let member = |of: &etcd_client::Member| Member {
            id: of.id(),
            name: of.name().to_owned(),
            learner: of.is_learner(),
            beside: of.id() != me && of.peer_urls().iter().filter_map(|url| host(url)).any(|at| here.contains(at)),
            ..Member::default()
        };
        Ok((list.members().iter().map(member).collect(), me))
    }

    /// The reports of all members, the index that the leader had applied when the look began, and our own member.
    async fn look(&self, client: &mut Client) -> Result<(Cluster, u64, u64)> {
        let list = within(ANSWER, client.member_list()).await?;
        let alarms = within(ANSWER, client.alarm(AlarmAction::Get, AlarmType::None, None)).await?;
        let alarms = alarms.alarms().iter().map(|alarm| format!("{:?}", alarm.alarm()).to_uppercase()).collect();
        let (members, me) = self.members(&list)?;
        let (mut cluster, mut since) = (Cluster { members, alarms }, 0);
        // Those that lag get time to apply what the leader had applied at first.
        for round in 0..=CATCH_UP.as_secs() {
            if round > 0 {
                sleep(Duration::from_secs(1)).await;
            }
            for (member, listed) in cluster.members.iter_mut().zip(list.members()) {
                (member.foreign, member.says) = self.ask(member.id, listed.client_urls()).await;
            }
            let applied = |member: &Member| member.says.as_ref().map_or(0, |says| says.applied);
            if round == 0 {
                let leads = |member: &&Member| member.says.as_ref().is_some_and(|says| says.leader == member.id);
                since = cluster.members.iter().find(leads).map_or(0, applied);
            }
            if cluster.members.iter().all(|member| member.says.is_none() || applied(member) >= since) {
                break;
            }
        }
        Ok((cluster, since, me))
    }

    /// What this member says, at the first of its URLs that leads to it; else the other member that answers, if all lead
    /// elsewhere. A URL of the loopback leads to this node's member, whose health says nothing of the others'.
    async fn ask(&self, id: u64, urls: &[String]) -> (Option<u64>, Option<Answer>) {
        let (mut foreign, mut is_silent) = (None, false);
        for url in urls.chunks(1) {
            match self.ask_at(url).await {
                Ok((who, says)) if who == id => return (None, Some(says)),
                Ok((who, _)) => foreign = Some(who),
                Err(_) => is_silent = true,
            }
        }
        (foreign.filter(|_| !is_silent), None)
    }

    /// The member at this URL, and its status. It must also answer a read that a majority agrees on.
    async fn ask_at(&self, url: &[String]) -> Result<(u64, Answer)> {
        let mut client = self.connect_to(url).await?;
        within(ANSWER, client.get(HOLDER, None)).await?;
        let status = within(ANSWER, client.status()).await?;
        let downgrade = status.downgrade_info().filter(|to| to.enabled());
        let quota = u64::try_from(status.db_size_quota()).ok().filter(|quota| *quota > 0);
        let who = status.header().map_or(0, |header| header.member_id());
        let answer = Answer {
            leader: status.leader(),
            term: status.raft_term(),
            applied: status.raft_applied_index(),
            errors: status.errors().to_vec(),
            db_bytes: u64::try_from(status.db_size()).unwrap_or(0),
            quota_bytes: quota.or(self.config.quota_bytes).unwrap_or(DEFAULT_QUOTA),
            version: status.version().to_owned(),
            storage: status.storage_version().to_owned(),
            downgrade: downgrade.map(|to| to.target_version().to_owned()).unwrap_or_default(),
        };
        Ok((who, answer))
    }
}

/// The holder of the lock, where it was taken already.
fn holder_in(answer: &TxnResponse) -> Option<String> {
    answer.op_responses().into_iter().find_map(|response| match response {
        TxnOpResponse::Get(get) => get.kvs().first()?.value_str().ok().map(str::to_owned),
        _ => None,
    })
}

fn leads(cluster: &Cluster, me: u64) -> bool {
    cluster.members.iter().any(|member| member.id == me && member.says.as_ref().is_some_and(|says| says.leader == me))
}

pub(super) async fn within<T, E: std::fmt::Display>(
    time: Duration,
    what: impl Future<Output = std::result::Result<T, E>>,
) -> Result<T> {
    match timeout(time, what).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(e)) => Err(format!("etcd: {e}")),
        Err(_) => Err(format!("etcd does not answer within {} s", time.as_secs())),
    }
}
