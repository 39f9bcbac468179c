//! Channels, looked into and written.
//!
//! Registries are slow and may be hostile. So a look is beside all else, on a thread of its own: at most [`AT_ONCE`] of
//! them, and one into each registry. It has [`PATIENCE`] from its own beginning; a request that is under way then is
//! cut, so that the thread ends. Its findings are written unless another controller was faster. The next look goes on where a
//! look ended that was too long.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    mem::take,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, from_value};
use slipway_channel::{
    candidate::Candidate,
    choose::Source,
    discover::{DiscoverError, Limits, named},
    lookup::resume_lookup,
    signature_demand::Signatures,
    spec::Spec,
};
use slipway_fleet_objects::channel::{Channel, ChannelStatus};
use slipway_payload::registry::Options;
use tokio::task::{JoinSet, spawn_blocking};

use crate::{
    channel_status::{self, KnownChannel, LookFailure, LookStart, place},
    cluster::{Cluster, Error, Result},
    events::EventRecord,
    registry_concurrency::RegistryConcurrency,
    trigger::{SOON, Triggers, rest},
};

/// Looks at once.
pub const AT_ONCE: usize = 4;
/// The longest time for a look.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A look that has ended.
struct Ended {
    name: String,
    begun: LookStart,
    outcome: std::result::Result<Vec<Candidate>, LookFailure>,
}

/// The partial results of looks that did not end, by channel.
type Read = BTreeMap<String, Unfinished>;

/// The partial result of a look.
struct Unfinished {
    /// Where.
    place: String,
    /// The keys whose signatures it has looked for.
    demand: Option<Signatures>,
    read: Vec<Candidate>,
}

impl Unfinished {
    /// The part that counts for a look by this spec.
    fn of(self, spec: &Spec) -> Vec<Candidate> {
        let mut read = if self.place == place(spec) { self.read } else { Vec::new() };
        if self.demand != spec.signatures {
            read.iter_mut().for_each(|of| of.signed = None);
        }
        read
    }
}

/// The state of the looks.
#[derive(Default)]
struct Busy {
    /// Looks that have ended.
    ended: Vec<Ended>,
    /// Channels that are being looked into.
    under_way: BTreeSet<String>,
    /// Channels of which the API server has refused the status: when, and of which generation. What was found is lost with it,
    /// and the registry is not asked for it again and again.
    refused: BTreeMap<String, (Timestamp, i64)>,
}

impl Busy {
    /// True if this channel is left alone for now.
    fn rests(&self, name: &str, known: &KnownChannel, spec: &Spec, now: Timestamp) -> bool {
        let waits =
            |(at, of): &(Timestamp, i64)| *of == known.generation && now < channel_status::again(spec).after(*at);
        self.under_way.contains(name) || self.refused.get(name).is_some_and(waits)
    }
}

/// The channels of a cluster.
pub struct Channels {
    cluster: Cluster,
    options: Options,
    limits: Limits,
    places: Arc<RegistryConcurrency>,
    read: Arc<Mutex<Read>>,
    triggers: Arc<Triggers>,
}

/// A channel, as the API server has it.
fn known(object: &DynamicObject) -> std::result::Result<KnownChannel, serde_json::Error> {
    let part = |name: &str| object.data.get(name).cloned().unwrap_or(Value::Null);
    let status: Option<ChannelStatus> = from_value(part("status"))?;
    let spec = from_value::<Spec>(part("spec")).map_err(|e| e.to_string());
    let uid = object.metadata.uid.clone();
    Ok(KnownChannel {
        uid,
        spec,
        generation: object.metadata.generation.unwrap_or(0),
        status: status.unwrap_or_default(),
    })
}

impl Channels {
    /// Looked into as these options of the installer say. Credentials and certificates are read with each look: their
    /// files may change.
    pub fn new(cluster: Cluster, options: Options, triggers: Arc<Triggers>) -> Self {
        Self {
            cluster,
            options,
            limits: Limits::default(),
            places: Arc::new(RegistryConcurrency::new(AT_ONCE)),
            read: Arc::default(),
            triggers,
        }
    }

    /// Look, and write what follows, for ever.
    pub async fn run(&self, interval: Duration) -> Infallible {
        let mut looks = JoinSet::new();
        let mut busy = Busy::default();
        loop {
            match self.reconcile(&mut busy).await {
                Ok(due) => {
                    for (name, begun, job) in due {
                        busy.under_way.insert(name.clone());
                        looks.spawn(async move { Ended { name, begun, outcome: job.await } });
                    }
                }
                Err(e) => tracing::error!("{e}"),
            }
            tokio::select! {
                Some(Ok(done)) = looks.join_next() => {
                    busy.under_way.remove(&done.name);
                    busy.ended.push(done);
                }
                () = rest(interval, SOON, &self.triggers.channels) => {}
            }
        }
    }

    /// Write the results of the looks that have ended. Returns the channels that are to be looked into now.
    async fn reconcile(
        &self,
        busy: &mut Busy,
    ) -> Result<Vec<(String, LookStart, impl Future<Output = std::result::Result<Vec<Candidate>, LookFailure>> + use<>)>>
    {
        let (objects, now) = (self.cluster.channels().await?, Timestamp::now());
        let mut all = BTreeMap::new();
        for (name, object) in &objects {
            match known(object) {
                Ok(known) => _ = all.insert(name.clone(), known),
                // A write over it could lose data.
                Err(e) => tracing::error!(channel = name, "its status cannot be understood, and is left as it is: {e}"),
            }
        }
        let metrics = self.cluster.metrics();
        for Ended { name, begun, outcome } in busy.ended.drain(..) {
            metrics.looked(&name, outcome.as_ref().err().map_or("Answered", |failed| failed.word));
            let Some(known) = all.get_mut(&name) else { continue };
            if let Some(status) = channel_status::looked(known, &begun, outcome, now) {
                known.status = status;
            }
        }
        let mut taken = Vec::new();
        for (name, object) in &objects {
            let Some(status) = channel_status::status(name, &all, now) else { continue };
            taken.extend(status.latest.as_ref().map(|latest| (name.clone(), latest.version.clone())));
            match self.write(object, &status, now).await {
                Ok(()) => {}
                // The faster controller has seen as much.
                Err(Error::Conflict(_)) => {}
                Err(e) => {
                    tracing::error!(channel = name, "{e}");
                    busy.refused.insert(name.clone(), (now, all.get(name).map_or(0, |known| known.generation)));
                }
            }
        }
        busy.refused.retain(|name, _| all.contains_key(name));
        metrics.channels(taken.into_iter());
        self.read.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| all.contains_key(name));
        let mut due = Vec::new();
        for (name, known) in &all {
            if let Ok(spec) = &known.spec
                && !busy.rests(name, known, spec, now)
                && channel_status::is_due(name, &all, now)
            {
                due.push((
                    name.clone(),
                    LookStart::at_known(known),
                    self.lookup(
                        name,
                        spec.clone(),
                        channel_status::carried(known),
                        channel_status::source(name, &all, now),
                    ),
                ));
            }
        }
        Ok(due)
    }

    /// Write a status that differs, and tell of its news.
    async fn write(&self, read: &DynamicObject, status: &ChannelStatus, now: Timestamp) -> Result<()> {
        let before = known(read).map(|known| known.status).unwrap_or_default();
        if before == *status {
            return Ok(());
        }
        self.cluster.write_raw::<Channel>("channel", read, status).await?;
        if (&before.latest, &before.floors) != (&status.latest, &status.floors) {
            // Pools follow it.
            self.triggers.rounds.notify_one();
        }
        let Some(latest) = status.latest.as_ref().filter(|latest| before.latest.as_ref() != Some(*latest)) else {
            return Ok(());
        };
        let which = format!("{} {now}", latest.image);
        let message = format!("{} is taken: {}", latest.version, latest.image);
        let told = EventRecord::of_fleet_object("Channel", &read.metadata, "ImageChosen", which, message, false);
        told.log();
        if let Err(e) = self.cluster.tell(&told.event(now)).await {
            tracing::warn!("{e}");
        }
        Ok(())
    }

    /// A look on a thread of its own.
    fn lookup(
        &self,
        name: &str,
        spec: Spec,
        known: Vec<Candidate>,
        source: Option<Source>,
    ) -> impl Future<Output = std::result::Result<Vec<Candidate>, LookFailure>> + use<> {
        let (name, options, limits) = (name.to_owned(), self.options.clone(), self.limits);
        let (places, read) = (Arc::clone(&self.places), Arc::clone(&self.read));
        let registry = named(&spec.repository).map_or_else(|_| spec.repository.clone(), |name| name.host);
        async move {
            // The semaphores are never closed. Waiting for a place takes none of the look's own time.
            let taken = places.acquire(&registry).await;
            let job = spawn_blocking(move || {
                let before = read.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                let before = before.map(|before| before.of(&spec)).unwrap_or_default();
                let known = with(known, before.clone());
                let options = Options { deadline: Some(Instant::now() + PATIENCE), ..options };
                let all = (&known[..], &before[..]);
                let mut found = resume_lookup(&spec, &options, limits, all, source.as_ref(), Timestamp::now());
                if let Err(error) = &mut found {
                    let new = if let DiscoverError::TooLong { read, .. } = error { take(read) } else { Vec::new() };
                    let all = if new.is_empty() { before } else { new };
                    let unfinished = Unfinished { place: place(&spec), demand: spec.signatures, read: all };
                    read.lock().unwrap_or_else(PoisonError::into_inner).insert(name, unfinished);
                }
                drop(taken);
                found
            });
            let failed = |word, why| Err(LookFailure { word, why });
            match job.await {
                Ok(Ok(candidates)) => Ok(candidates),
                Ok(Err(e)) => failed(e.reason(), e.to_string()),
                Err(e) => failed("RegistryFails", format!("the look did not come to its end: {e}")),
            }
        }
    }
}

/// Both lists, one candidate for each digest. Where both have it, `known` counts, with its times; `others` fills what it lacks.
fn with(known: Vec<Candidate>, others: Vec<Candidate>) -> Vec<Candidate> {
    let mut all: BTreeMap<_, _> = others.into_iter().map(|other| (other.digest, other)).collect();
    for of in known {
        let both = match all.remove(&of.digest) {
            Some(other) if of.labels.is_err() => {
                Candidate { labels: other.labels, payload: other.payload, signed: other.signed, ..of }
            }
            Some(other) => {
                Candidate { payload: of.payload.or(other.payload), signed: of.signed.or(other.signed), ..of }
            }
            None => of,
        };
        all.insert(both.digest, both);
    }
    all.into_values().collect()
}
