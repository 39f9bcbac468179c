//! Numbers for Prometheus, in the OpenMetrics text format. What a pool and a channel are like now is set as a whole with each
//! look, so that one that is gone is gone here, too.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use slipway_fleet_objects::kubernetes_upgrade::KubernetesUpgradeStatus;
use slipway_rollout::ledger::Ledger;

/// The longest round that has a bucket of its own is 2 minutes; a round over 10,000 nodes takes some seconds.
const ROUND_SECONDS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 120.0];

/// Of which pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    pool: String,
}

/// Which nodes of which pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    pool: String,
    state: String,
}

/// From where nodes of which pool took bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct From {
    pool: String,
    from: &'static str,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

/// The outcome of looks, by channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Looked {
    channel: String,
    result: String,
}

/// The choice of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Takes {
    channel: String,
    version: String,
}

/// Of which kind of objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: String,
}

/// The state of the Kubernetes upgrade, and the reason why it goes no further.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKubernetes {
    state: String,
    reason: String,
}

/// The metrics of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolMetrics {
    /// The state, in the word that its status has.
    pub state: String,
    /// Number of its nodes that may be unavailable at once; `None` if unknown.
    pub budget: Option<u32>,
    /// Nodes that failed in the rollout that is followed.
    pub failures: usize,
    /// So many nodes for each word of their status.
    pub nodes: BTreeMap<String, usize>,
    /// Bytes of the payload that its nodes have moved, by where they came from.
    pub moved: [(&'static str, u64); 2],
    /// Bytes of it that they have written into slots.
    pub written: u64,
    /// Grants that its nodes hold.
    pub grants: usize,
    /// Something of it cannot be written.
    pub refused: bool,
    /// Its rollout has stopped by itself, and is not denied: only a person has it tried again.
    pub stopped: bool,
    /// When the first certificate expires that one of its nodes names, seconds since 1970; `None` if none does.
    pub certificate_expiry: Option<i64>,
}

/// The end of a request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiAnswer {
    /// As it should.
    Answered,
    /// Another program has written the object meanwhile.
    Conflict,
    /// The API server refuses it.
    Refused,
    /// No answer came in time.
    Silent,
}

/// The end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundEnd {
    /// To its end.
    Done,
    /// The API server refused something, or did not answer.
    Failed,
}

#[derive(Default)]
struct Now {
    grants: Family<OfPool, Gauge>,
    budget: Family<OfPool, Gauge>,
    failures: Family<OfPool, Gauge>,
    refused: Family<OfPool, Gauge>,
    stopped: Family<OfPool, Gauge>,
    certificate_expiry: Family<OfPool, Gauge>,
    moved: Family<From, Gauge>,
    written: Family<OfPool, Gauge>,
    states: Family<InState, Gauge>,
    nodes: Family<InState, Gauge>,
    takes: Family<Takes, Gauge>,
    epoch: Gauge,
    claimed: Gauge,
    kubernetes: Family<OfKubernetes, Gauge>,
    kubernetes_left: Gauge,
}

/// The numbers of one controller.
pub struct Metrics {
    registry: Registry,
    /// The handle for the writer and for the reader of all numbers.
    now: Mutex<Now>,
    /// When the controller's own certificate expires, as pools have it.
    own_certificate: Mutex<Option<i64>>,
    rounds: Family<Ended, Counter>,
    seconds: Histogram,
    last_round: Gauge,
    requests: Family<Ended, Counter>,
    looks: Family<Looked, Counter>,
    watches: Family<OfResource, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("slipway_fleet");
        let now = Now::default();
        registry.register("grants", "Grants that nodes of a pool hold", now.grants.clone());
        registry.register("budget", "Nodes of a pool that may be unavailable at once", now.budget.clone());
        registry.register("failures", "Nodes that failed in the rollout that is followed", now.failures.clone());
        let help = "1 if the API server refuses to write something of a pool, and nothing of it begins";
        registry.register("pool_refused", help, now.refused.clone());
        let help = "1 if the rollout of a pool has stopped by itself, and its payload is not denied";
        registry.register("pool_stopped", help, now.stopped.clone());
        let help = "When the first certificate of a pool's nodes expires, or that of the controller";
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            help,
            Unit::Seconds,
            now.certificate_expiry.clone(),
        );
        let help = "Bytes of the payload that nodes of a pool have moved, from a registry or from their own slots";
        registry.register_with_unit("payload_moved", help, Unit::Bytes, now.moved.clone());
        let help = "Bytes of the payload that nodes of a pool have written into slots: the others were in place";
        registry.register_with_unit("payload_written", help, Unit::Bytes, now.written.clone());
        registry.register("pool_state", "1 for the word that the pool's status has", now.states.clone());
        registry.register("nodes", "Nodes of a pool, by the word of their NodeUpgrade", now.nodes.clone());
        registry.register("channel_takes", "1 for the version that a channel takes", now.takes.clone());
        registry.register("ledger_epoch", "The highest token that was ever given", now.epoch.clone());
        let help = "1 while an upgrade of Kubernetes has a claim: no node is granted meanwhile";
        registry.register("ledger_claimed", help, now.claimed.clone());
        let help = "1 for the words that the status of the KubernetesUpgrade has";
        registry.register("kubernetes_upgrade_state", help, now.kubernetes.clone());
        let help = "Static pods that are still to be replaced, as its Job says";
        registry.register("kubernetes_upgrade_steps_left", help, now.kubernetes_left.clone());
        let rounds = Family::default();
        registry.register("rounds", "Looks at all objects and nodes, by how they ended", rounds.clone());
        let seconds = Histogram::new(ROUND_SECONDS);
        registry.register_with_unit("round_duration", "How long they took", Unit::Seconds, seconds.clone());
        let last_round = Gauge::default();
        let help = "When the last one ended that came to its end";
        registry.register_with_unit("last_round_timestamp", help, Unit::Seconds, last_round.clone());
        let requests = Family::default();
        registry.register("api_requests", "Requests to the API server, by how they ended", requests.clone());
        let looks = Family::default();
        registry.register("channel_looks", "Looks into registries, by what came of them", looks.clone());
        let watches = Family::default();
        let help = "1 if the API server refuses to tell of changes: they are looked for at intervals";
        registry.register("watch_refused", help, watches.clone());
        let (now, own_certificate) = (Mutex::new(now), Mutex::default());
        Self { registry, now, own_certificate, rounds, seconds, last_round, requests, looks, watches }
    }
}

impl Metrics {
    fn now(&self) -> MutexGuard<'_, Now> {
        // A panic here leaves numbers behind, and nothing else.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round has ended.
    pub fn round(&self, end: RoundEnd, took: Duration, now: Timestamp) {
        let result = match end {
            RoundEnd::Done => "done",
            RoundEnd::Failed => "failed",
        };
        self.rounds.get_or_create(&Ended { result }).inc();
        self.seconds.observe(took.as_secs_f64());
        if end == RoundEnd::Done {
            self.last_round.set(now.as_second());
        }
    }

    /// When the first of the controller's own certificates expires: without them no node of any pool is reached.
    pub fn own_certificate(&self, expires: Option<i64>) {
        *self.own_certificate.lock().unwrap_or_else(PoisonError::into_inner) = expires;
    }

    /// Set the metrics of all pools, and of the ledger.
    pub fn pools(&self, pools: &BTreeMap<String, PoolMetrics>, ledger: &Ledger) {
        let own_certificate = *self.own_certificate.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        for family in [&now.grants, &now.budget, &now.failures, &now.refused, &now.stopped] {
            family.clear();
        }
        now.certificate_expiry.clear();
        now.written.clear();
        now.moved.clear();
        now.states.clear();
        now.nodes.clear();
        for (name, figures) in pools {
            let (pool, set) = (OfPool { pool: name.clone() }, |gauge: &Gauge, n: usize| _ = gauge.set(number(n)));
            set(&now.grants.get_or_create(&pool), figures.grants);
            set(&now.failures.get_or_create(&pool), figures.failures);
            set(&now.refused.get_or_create(&pool), usize::from(figures.refused));
            set(&now.stopped.get_or_create(&pool), usize::from(figures.stopped));
            if let Some(budget) = figures.budget {
                now.budget.get_or_create(&pool).set(i64::from(budget));
            }
            if let Some(expiry) = figures.certificate_expiry.into_iter().chain(own_certificate).min() {
                now.certificate_expiry.get_or_create(&pool).set(expiry);
            }
            for (from, bytes) in figures.moved {
                let from = From { pool: name.clone(), from };
                now.moved.get_or_create(&from).set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
            now.written.get_or_create(&pool).set(i64::try_from(figures.written).unwrap_or(i64::MAX));
            let in_state = |state: &String| InState { pool: name.clone(), state: state.clone() };
            now.states.get_or_create(&in_state(&figures.state)).set(1);
            for (state, count) in &figures.nodes {
                set(&now.nodes.get_or_create(&in_state(state)), *count);
            }
        }
        now.epoch.set(i64::try_from(ledger.epoch).unwrap_or(i64::MAX));
        now.claimed.set(i64::from(ledger.kubernetes.is_some()));
    }

    /// Set the choices of all channels: name and version.
    pub fn channels(&self, takes: impl Iterator<Item = (String, String)>) {
        let now = self.now();
        now.takes.clear();
        for (channel, version) in takes {
            now.takes.get_or_create(&Takes { channel, version }).set(1);
        }
    }

    /// Set what goes on with the version of Kubernetes.
    pub fn kubernetes(&self, statuses: &[KubernetesUpgradeStatus]) {
        let now = self.now();
        now.kubernetes.clear();
        now.kubernetes_left.set(0);
        for KubernetesUpgradeStatus { state, reason, job, run, .. } in statuses {
            now.kubernetes.get_or_create(&OfKubernetes { state: state.clone(), reason: reason.clone() }).set(1);
            if let Some(run) = run.as_ref().filter(|_| job.is_some()) {
                now.kubernetes_left.set(i64::from(run.left));
            }
        }
    }

    /// A look into a registry has ended; `result` is the reason that the channel's condition has.
    pub fn looked(&self, channel: &str, result: &str) {
        let looked = Looked { channel: channel.to_owned(), result: result.to_owned() };
        self.looks.get_or_create(&looked).inc();
    }

    /// Records whether the API server refuses to tell of changes of these objects.
    pub fn watch_refused(&self, resource: &str, is_so: bool) {
        let of = OfResource { resource: resource.to_owned() };
        self.watches.get_or_create(&of).set(i64::from(is_so));
    }

    /// A request to the API server has ended.
    pub fn asked(&self, answer: ApiAnswer) {
        let result = match answer {
            ApiAnswer::Answered => "answered",
            ApiAnswer::Conflict => "conflict",
            ApiAnswer::Refused => "refused",
            ApiAnswer::Silent => "silent",
        };
        self.requests.get_or_create(&Ended { result }).inc();
    }

    /// All of them, as Prometheus reads them.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let _whole = self.now();
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn number(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
