//! Changes in the cluster, as its API server tells them. They only trigger a round: the inputs of decisions are read
//! anew each time, because a stream of changes may be late, cut, or silent for ever, and says nothing of what it has missed.
//!
//! A stream that the API server refuses is said: in the log once, and in the metrics as long as it lasts.
//!
//! Only inputs of decisions count: specs, and of Nodes whether they come, go, or are well. This program's own writes into a
//! status do not count, nor does a kubelet's sign of life.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher as _},
    mem::take,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    api::{Object, WatchEvent, WatchParams},
    core::{ApiResource, PartialObjectMeta, Status},
};
use serde::{Deserialize, de::DeserializeOwned};
use slipway_fleet_objects::{
    channel::Channel,
    kubernetes_upgrade::KubernetesUpgrade,
    ledger::{DisruptionLedger, LEDGER},
    policy::UpgradePolicy,
    pool::NodePool,
    rollout::Rollout,
    upgrade::NodeUpgrade,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{metrics::Metrics, trigger::Triggers};

/// The longest time until the API server begins.
const ANSWER: Duration = Duration::from_secs(15);
/// A stream that says nothing for so long is dead: the API server ends each after 290 s.
const SILENT: Duration = Duration::from_secs(300);
/// The shortest and the longest pause before a stream is opened again.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// As `resourceVersion`: all objects from the cache of the API server, then the changes.
const ALL: &str = "0";

/// A Node, as far as its changes count.
type Node = Object<NodeSpec, NodeStatus>;

#[derive(Clone, Debug, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    addresses: Vec<core::NodeAddress>,
    conditions: Vec<core::NodeCondition>,
}

/// The part of an object that counts: the same as long as nothing of it has changed.
type Fingerprint = u64;

fn fingerprint(of: impl Hash) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The spec of an object of ours has a generation; labels and status do not count for it.
fn generation(meta: &ObjectMeta) -> Fingerprint {
    fingerprint((meta.generation, meta.deletion_timestamp.is_some()))
}

const NODE: Kind<Node> = Kind { meta: |node| &node.metadata, fingerprint: of_node };

fn of_node(node: &Node) -> Fingerprint {
    let status = node.status.clone().unwrap_or_default();
    let addresses: Vec<_> = status.addresses.into_iter().map(|of| (of.type_, of.address)).collect();
    let ready = status.conditions.into_iter().find(|of| of.type_ == "Ready").map(|of| of.status);
    fingerprint((&node.metadata.labels, node.spec.unschedulable, addresses, ready))
}

/// The objects of one kind, as far as a stream has told, by UID.
#[derive(Debug, Default)]
struct Known {
    now: BTreeMap<String, Fingerprint>,
    /// From before the stream began anew: a repeated event is no change.
    before: BTreeMap<String, Fingerprint>,
}

impl Known {
    /// True if this event of an object is new. Its end is `None`.
    fn changes(&mut self, meta: &ObjectMeta, to: Option<Fingerprint>) -> bool {
        let uid = meta.uid.clone().unwrap_or_default();
        let before = self.before.remove(&uid);
        let last = self.now.remove(&uid).or(before);
        self.now.extend(to.map(|to| (uid, to)));
        last != to
    }

    /// The stream begins anew, with everything.
    fn again(&mut self) {
        self.before.extend(take(&mut self.now));
    }
}

/// The parts that count of the objects of one kind.
struct Kind<K> {
    meta: fn(&K) -> &ObjectMeta,
    fingerprint: fn(&K) -> Fingerprint,
}

/// Where a stream goes on.
#[derive(Debug)]
struct StreamPosition {
    version: String,
    known: Known,
}

/// Why a stream has ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It was cut, or its time was over: it goes on where it was.
    Cut,
    /// The changes since then are lost.
    Lost,
    /// The API server does not begin it.
    Refused(String),
}

/// The reporter of refused streams.
struct WatchReporter<'a> {
    /// The kind of its objects.
    resource: String,
    metrics: &'a Metrics,
    /// The last report, as long as it is true.
    said: Option<String>,
}

impl WatchReporter<'_> {
    fn opened(&mut self) {
        self.metrics.watch_refused(&self.resource, false);
        self.said = None;
    }

    /// The change in it.
    fn refused(&mut self, why: String) -> Option<String> {
        self.metrics.watch_refused(&self.resource, true);
        if self.said.as_ref() == Some(&why) {
            return None;
        }
        let new = format!("changes of {} are not heard of, and looked for at intervals: {why}", self.resource);
        self.said = Some(why);
        Some(new)
    }
}

/// Why the API server does not begin a stream; `None` if what it is asked for is too old.
fn refusal(status: &Status, resource: &str) -> Option<String> {
    let why = format!("the API server says {}: {}", status.code, status.message);
    match status.code {
        410 => None,
        403 => Some(format!("{why}; the ClusterRole of the controller needs the verb watch for {resource}")),
        _ => Some(why),
    }
}

impl StreamPosition {
    fn new() -> Self {
        Self { version: ALL.to_owned(), known: Known::default() }
    }

    fn ended(&mut self, end: &End) {
        if *end != End::Cut {
            self.version = ALL.to_owned();
            self.known.again();
        }
    }

    /// Tells whether this is a change.
    fn apply_event<K>(&mut self, event: WatchEvent<K>, kind: &Kind<K>) -> Result<bool, End> {
        let (object, to) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let to = (kind.fingerprint)(&object);
                (object, Some(to))
            }
            WatchEvent::Deleted(object) => (object, None),
            WatchEvent::Bookmark(bookmark) => {
                self.version = bookmark.metadata.resource_version;
                return Ok(false);
            }
            WatchEvent::Error(_) => return Err(End::Lost),
        };
        let meta = (kind.meta)(&object);
        self.version = meta.resource_version.clone().unwrap_or_else(|| ALL.to_owned());
        Ok(self.known.changes(meta, to))
    }
}

/// Streams of all kinds, for ever.
pub async fn watch(client: Client, triggers: Arc<Triggers>, metrics: Arc<Metrics>) -> Infallible {
    let to = Streams { client, metrics };
    let (all, ledger) = (WatchParams::default(), WatchParams::default().fields(&format!("metadata.name={LEDGER}")));
    let (rounds, both): (&[&Notify], &[&Notify]) = (&[&triggers.rounds], &[&triggers.rounds, &triggers.channels]);
    let kubernetes: &[&Notify] = &[&triggers.kubernetes];
    let (never, ..) = tokio::join!(
        ours::<NodePool>(&to, &all, rounds),
        ours::<UpgradePolicy>(&to, &all, rounds),
        ours::<Channel>(&to, &all, both),
        ours::<Rollout>(&to, &all, rounds),
        ours::<NodeUpgrade>(&to, &all, rounds),
        ours::<KubernetesUpgrade>(&to, &all, kubernetes),
        ours::<DisruptionLedger>(&to, &ledger, rounds),
        nodes(&to, &all, rounds),
    );
    never
}

/// Where streams come from.
struct Streams {
    client: Client,
    metrics: Arc<Metrics>,
}

impl Streams {
    fn reporter<K: Resource<DynamicType = ()>>(&self) -> WatchReporter<'_> {
        WatchReporter { resource: K::plural(&()).into_owned(), metrics: &self.metrics, said: None }
    }
}

async fn ours<K>(streams: &Streams, params: &WatchParams, triggers: &[&Notify]) -> Infallible
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::all(streams.client.clone());
    let open = async |version: &str| api.watch_metadata(params, version).await;
    let kind = Kind::<PartialObjectMeta<K>> {
        meta: |object| &object.metadata,
        fingerprint: |object| generation(&object.metadata),
    };
    follow(open, &kind, triggers, streams.reporter::<K>()).await
}

async fn nodes(streams: &Streams, params: &WatchParams, triggers: &[&Notify]) -> Infallible {
    let api = Api::<Node>::all_with(streams.client.clone(), &ApiResource::erase::<core::Node>(&()));
    follow(async |version: &str| api.watch(params, version).await, &NODE, triggers, streams.reporter::<core::Node>())
        .await
}

/// The stream of one kind. When it ends it begins again, after a pause that grows while it lasts no time.
async fn follow<K, S>(
    open: impl AsyncFn(&str) -> kube::Result<S>,
    kind: &Kind<K>,
    triggers: &[&Notify],
    mut reporter: WatchReporter<'_>,
) -> Infallible
where
    S: Stream<Item = kube::Result<WatchEvent<K>>>,
{
    let ([least, most], mut position) = (AGAIN, StreamPosition::new());
    let mut pause = least;
    loop {
        let begun = Instant::now();
        let end = stream(&open, &mut position, kind, triggers, &mut reporter).await;
        position.ended(&end);
        if let End::Refused(why) = end
            && let Some(new) = reporter.refused(why)
        {
            tracing::warn!("{new}");
        }
        pause = if begun.elapsed() > most { least } else { (2 * pause).min(most) };
        sleep(pause).await;
    }
}

async fn stream<K, S>(
    open: impl AsyncFn(&str) -> kube::Result<S>,
    position: &mut StreamPosition,
    kind: &Kind<K>,
    triggers: &[&Notify],
    reporter: &mut WatchReporter<'_>,
) -> End
where
    S: Stream<Item = kube::Result<WatchEvent<K>>>,
{
    let opened = match timeout(ANSWER, open(&position.version)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(kube::Error::Api(status))) => {
            return refusal(&status, &reporter.resource).map_or(End::Lost, End::Refused);
        }
        Ok(Err(_)) | Err(_) => return End::Cut,
    };
    reporter.opened();
    let mut events = pin!(opened);
    loop {
        let event = match timeout(SILENT, events.next()).await {
            Ok(Some(Ok(event))) => event,
            // An unreadable object would be sent again.
            Ok(Some(Err(kube::Error::Api(_) | kube::Error::SerdeError(_)))) => return End::Lost,
            Ok(Some(Err(_)) | None) | Err(_) => return End::Cut,
        };
        match position.apply_event(event, kind) {
            Ok(true) => triggers.iter().for_each(|who| who.notify_one()),
            Ok(false) => {}
            Err(end) => return end,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn node(event: &str, version: &str, spec: Value, status: Value) -> WatchEvent<Node> {
        let metadata = json!({ "name": "n", "uid": "u", "resourceVersion": version, "labels": { "pool": "p" } });
        let object =
            json!({ "kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status });
        from_value(json!({ "type": event, "object": object })).unwrap()
    }

    fn apply_event(position: &mut StreamPosition, event: WatchEvent<Node>) -> Result<bool, End> {
        position.apply_event(event, &NODE)
    }

    fn ready(is_so: &str, heartbeat: &str) -> Value {
        let ready = json!({ "type": "Ready", "status": is_so, "lastHeartbeatTime": heartbeat });
        json!({ "conditions": [ready], "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] })
    }

    #[test]
    fn what_is_decided_from_counts_and_a_sign_of_life_does_not() {
        let mut position = StreamPosition::new();
        let (one, two) = ("2026-06-01T12:00:00Z", "2026-06-01T12:05:00Z");
        assert_eq!(apply_event(&mut position, node("ADDED", "1", json!({}), ready("True", one))), Ok(true));
        assert_eq!(apply_event(&mut position, node("MODIFIED", "2", json!({}), ready("True", two))), Ok(false));
        assert_eq!(apply_event(&mut position, node("MODIFIED", "3", json!({}), ready("False", two))), Ok(true));
        let cordoned = json!({ "unschedulable": true });
        assert_eq!(apply_event(&mut position, node("MODIFIED", "4", cordoned.clone(), ready("False", two))), Ok(true));
        assert_eq!(position.version, "4");
        // Cut and begun again where it was, then begun anew: a repeated event is not new, and a deletion is.
        position.ended(&End::Cut);
        assert_eq!(position.version, "4");
        position.ended(&End::Lost);
        assert_eq!(position.version, ALL);
        assert_eq!(apply_event(&mut position, node("ADDED", "4", cordoned, ready("False", two))), Ok(false));
        assert_eq!(apply_event(&mut position, node("DELETED", "5", json!({}), json!({}))), Ok(true));
        assert_eq!(apply_event(&mut position, node("ADDED", "6", json!({}), ready("True", two))), Ok(true));
    }

    #[test]
    fn a_stream_that_is_refused_is_said_once_and_again_when_it_was_there_in_between() {
        let metrics = Metrics::default();
        let mut reporter = WatchReporter { resource: "nodes".to_owned(), metrics: &metrics, said: None };
        let status = |code: u16| {
            from_value(json!({ "status": "Failure", "code": code, "message": "no", "reason": "Any" })).unwrap()
        };
        assert_eq!(refusal(&status(410), "nodes"), None, "that is its end, and it begins anew");
        let why = refusal(&status(403), "nodes").unwrap();
        assert!(why.contains("403: no") && why.contains("needs the verb watch for nodes"), "{why}");
        let counts = || metrics.text().unwrap().contains("slipway_fleet_watch_refused{resource=\"nodes\"} 1");
        assert!(reporter.refused(why.clone()).unwrap().contains("403") && counts());
        assert_eq!(reporter.refused(why.clone()), None);
        reporter.opened();
        assert!(!counts() && reporter.refused(why).is_some());
    }

    #[test]
    fn a_version_that_is_too_old_begins_anew() {
        let gone = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
            "message": "too old resource version: 1 (2)", "metadata": {} });
        let event: WatchEvent<Node> = from_value(json!({ "type": "ERROR", "object": gone })).unwrap();
        assert_eq!(apply_event(&mut StreamPosition::new(), event), Err(End::Lost));
        let mut position = StreamPosition::new();
        let bookmark = json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "resourceVersion": "7" } });
        let bookmark = from_value(json!({ "type": "BOOKMARK", "object": bookmark })).unwrap();
        assert_eq!((apply_event(&mut position, bookmark), position.version.as_str()), (Ok(false), "7"));
    }
}
