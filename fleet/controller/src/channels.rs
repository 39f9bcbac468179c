//! Channels, looked into and written.
//!
//! Registries are slow and may be hostile. So a look is beside all else, on a thread of its own: at most [`AT_ONCE`] of
//! them, and after [`PATIENCE`] nobody waits for it any more. What it found is written unless somebody else was faster.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, from_value};
use slipway::payload::registry::Options;
use slipway_channel::{candidate::Candidate, choose::Source, discover::Limits, look::look, spec::Spec};
use slipway_fleet_objects::channel::ChannelStatus;
use tokio::{
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{
    choices::{self, Begun, Failed, Known},
    cluster::{Cluster, Error, Result},
    events::Told,
};

/// Looks at once.
pub const AT_ONCE: usize = 4;
/// For how long a look is waited for.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A look that has ended.
struct Ended {
    name: String,
    begun: Begun,
    outcome: std::result::Result<Vec<Candidate>, Failed>,
}

/// The channels of a cluster.
pub struct Channels {
    cluster: Cluster,
    options: Options,
    limits: Limits,
    gate: Arc<Semaphore>,
}

/// What a channel is.
fn known(object: &DynamicObject) -> std::result::Result<Known, serde_json::Error> {
    let part = |name: &str| object.data.get(name).cloned().unwrap_or(Value::Null);
    let status: Option<ChannelStatus> = from_value(part("status"))?;
    let spec = from_value::<Spec>(part("spec")).map_err(|e| e.to_string());
    let uid = object.metadata.uid.clone();
    Ok(Known { uid, spec, generation: object.metadata.generation.unwrap_or(0), status: status.unwrap_or_default() })
}

impl Channels {
    /// Looked into as these options of the installer say. Credentials and certificates are read with each look: their
    /// files may change.
    pub fn new(cluster: Cluster, options: Options) -> Self {
        Self { cluster, options, limits: Limits::default(), gate: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Look, and write what follows, for ever.
    pub async fn run(&self, interval: Duration) -> Infallible {
        let mut looks = JoinSet::new();
        let mut under_way = BTreeSet::new();
        let mut ended: Vec<Ended> = Vec::new();
        loop {
            match self.turn(&mut ended, &under_way).await {
                Ok(due) => {
                    for (name, begun, job) in due {
                        under_way.insert(name.clone());
                        looks.spawn(async move { Ended { name, begun, outcome: job.await } });
                    }
                }
                Err(e) => eprintln!("{e}"),
            }
            tokio::select! {
                Some(Ok(done)) = looks.join_next() => {
                    under_way.remove(&done.name);
                    ended.push(done);
                }
                () = sleep(interval) => {}
            }
        }
    }

    /// Write what follows from the looks that have ended. What is to be looked into now.
    async fn turn(
        &self,
        ended: &mut Vec<Ended>,
        under_way: &BTreeSet<String>,
    ) -> Result<Vec<(String, Begun, impl Future<Output = std::result::Result<Vec<Candidate>, Failed>> + use<>)>> {
        let (objects, now) = (self.cluster.channels().await?, Timestamp::now());
        let mut all = BTreeMap::new();
        for (name, object) in &objects {
            match known(object) {
                Ok(known) => _ = all.insert(name.clone(), known),
                // Who knows what is lost if it is written over?
                Err(e) => eprintln!("channel {name}: its status cannot be understood, and is left as it is: {e}"),
            }
        }
        let metrics = self.cluster.metrics();
        for Ended { name, begun, outcome } in ended.drain(..) {
            metrics.looked(&name, outcome.as_ref().err().map_or("Answered", |failed| failed.word));
            let Some(known) = all.get_mut(&name) else { continue };
            if let Some(status) = choices::looked(known, &begun, outcome, now) {
                known.status = status;
            }
        }
        let mut taken = Vec::new();
        for (name, object) in &objects {
            let Some(status) = choices::status(name, &all, now) else { continue };
            taken.extend(status.latest.as_ref().map(|latest| (name.clone(), latest.version.clone())));
            self.write(name, object, &status, now).await;
        }
        metrics.channels(taken.into_iter());
        let mut due = Vec::new();
        for (name, known) in &all {
            if !under_way.contains(name)
                && let Ok(spec) = &known.spec
                && choices::is_due(name, &all, now)
            {
                due.push((
                    name.clone(),
                    Begun::of(known),
                    self.look(spec.clone(), choices::carried(known), choices::source(name, &all, now)),
                ));
            }
        }
        Ok(due)
    }

    /// Write a status that is another one, and tell of what is new in it. Who was faster has seen as much.
    async fn write(&self, name: &str, read: &DynamicObject, status: &ChannelStatus, now: Timestamp) {
        let before = known(read).map(|known| known.status).unwrap_or_default();
        if before == *status {
            return;
        }
        match self.cluster.write_channel(read, status).await {
            Ok(()) => {}
            Err(Error::Conflict(_)) => return,
            Err(e) => return eprintln!("{e}"),
        }
        let Some(latest) = status.latest.as_ref().filter(|latest| before.latest.as_ref() != Some(*latest)) else {
            return;
        };
        let told = Told {
            kind: "Channel",
            api: "fleet.slipway.dev/v1alpha1",
            name: name.to_owned(),
            uid: read.metadata.uid.clone().unwrap_or_default(),
            reason: "ImageChosen",
            which: format!("{} {now}", latest.image),
            message: format!("{} is taken: {}", latest.version, latest.image),
            is_warning: false,
        };
        eprintln!("Channel {name}: {}", told.message);
        if let Err(e) = self.cluster.tell(&told.event(now)).await {
            eprintln!("{e}");
        }
    }

    /// A look on a thread of its own.
    fn look(
        &self,
        spec: Spec,
        known: Vec<Candidate>,
        source: Option<Source>,
    ) -> impl Future<Output = std::result::Result<Vec<Candidate>, Failed>> + use<> {
        let (gate, options, limits) = (Arc::clone(&self.gate), self.options.clone(), self.limits);
        let job = async move {
            // Nobody closes the gate. A thread that hangs keeps its place: there are never more of them.
            let place = gate.acquire_owned().await;
            let job = spawn_blocking(move || {
                let found = look(&spec, &options, limits, &known, source.as_ref(), Timestamp::now());
                drop(place);
                found
            });
            let failed = |word, why| Err(Failed { word, why });
            match job.await {
                Ok(Ok(candidates)) => Ok(candidates),
                Ok(Err(e)) => failed(e.word(), e.to_string()),
                Err(e) => failed("RegistryFails", format!("the look did not come to its end: {e}")),
            }
        };
        async move {
            let late = || format!("the registry was not looked through within {} s", PATIENCE.as_secs());
            timeout(PATIENCE, job).await.unwrap_or_else(|_| Err(Failed { word: "TooLong", why: late() }))
        }
    }
}
