//! The decisions for channels from the found images: the choice of each, and its status for people. No I/O, no clock.
//!
//! * What a look found is written only over what it began from: of two controllers that look at once, one is written. So
//!   no controller's first sight of an image is lost or moved.
//! * A look that failed changes only its own condition. Deny list, range and ages hold all the same: the choice is
//!   made anew among the images that are known.
//! * A channel that is not understood, and one that was not looked into, has no choice for others to promote from; what it
//!   took last stays.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    mem,
};

use jiff::Timestamp;
use semver::Version;
use serde::Serialize;
use slipway_channel::{
    candidate,
    choose::{Choice, Image, Source, choose},
    lookup::{lacks_payload, lacks_signatures},
    spec::{Select, Spec},
};
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    channel::{Candidate, ChannelStatus, Floor, Held, Latest},
    condition,
    image::ImageDigest,
};
use slipway_node_api::text::{clean, clean_and_cut};
use slipway_rollout::duration::PositiveDuration;

/// So many choices are kept in `status.held`.
const KEPT: usize = 64;
/// The longest message of a condition, bytes.
const LONGEST: usize = 1000;
/// The largest status, bytes. etcd takes 1.5 MiB for the whole object, whose other half people write: the largest list of
/// the denied ones have a quarter of a MiB.
const LARGEST: usize = 1 << 20;
/// Characters that are kept of a reason where all of them are too much.
const SHORT: usize = 80;

/// A channel as it was read.
#[derive(Clone, Debug)]
pub struct KnownChannel {
    /// The UID of the object: another one after it was deleted and made again.
    pub uid: Option<String>,
    /// The spec, or why it cannot be understood.
    pub spec: Result<Spec, String>,
    /// Its generation: another one after each change of what people wrote.
    pub generation: i64,
    /// Its status.
    pub status: ChannelStatus,
}

/// The starting point of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookStart {
    uid: Option<String>,
    generation: i64,
    looked_at: Option<Timestamp>,
    answered_at: Option<Timestamp>,
}

impl LookStart {
    /// A look that begins now.
    pub fn at_known(known: &KnownChannel) -> Self {
        let ChannelStatus { looked_at, answered_at, .. } = known.status;
        Self { uid: known.uid.clone(), generation: known.generation, looked_at, answered_at }
    }

    /// True if its result may be written over this. Otherwise another controller was faster, or other things are wanted
    /// now. Another controller's missing answer takes nothing from one that came.
    fn counts(&self, known: &KnownChannel, answered: bool) -> bool {
        let now = Self::at_known(known);
        *self == if answered { Self { looked_at: self.looked_at, ..now } } else { now }
    }
}

/// Why a look found nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookFailure {
    /// In one word that stays the same.
    pub word: &'static str,
    /// The same for people.
    pub why: String,
}

/// Where a look goes: repository and architecture.
pub fn place(spec: &Spec) -> String {
    format!("{} {}", spec.repository, spec.arch)
}

fn found(status: &ChannelStatus) -> Vec<candidate::Candidate> {
    status.candidates.iter().map(|of| of.found(&status.held)).collect()
}

/// The images that the next look need not read again. Of another repository or another architecture only the times count: an
/// index has one digest, and another image and payload for each architecture.
pub fn carried(known: &KnownChannel) -> Vec<candidate::Candidate> {
    let is_the_same = known.spec.as_ref().is_ok_and(|spec| known.status.looked_into.as_ref() == Some(&place(spec)));
    let of_another_place = |candidate: candidate::Candidate| candidate::Candidate {
        labels: Err("it was read in another place".to_owned()),
        payload: None,
        signed: None,
        ..candidate
    };
    let all = found(&known.status).into_iter();
    let all: Vec<_> = if is_the_same { all.collect() } else { all.map(of_another_place).collect() };
    let gone = gone(&known.status);
    all.into_iter().chain(gone).collect()
}

/// Images that were taken, and that the registry did not have at the last look. They are read anew if they come back.
fn gone(status: &ChannelStatus) -> impl Iterator<Item = candidate::Candidate> {
    let there: BTreeSet<Sha256> = status.candidates.iter().map(|of| of.digest.0).collect();
    let mut seen = BTreeMap::new();
    for held in status.held.iter().filter(|held| !there.contains(&held.digest.0)) {
        seen.entry(held.digest.0).or_insert(held.first_seen.unwrap_or(held.from));
    }
    seen.into_iter().map(|(digest, first_seen)| candidate::Candidate {
        digest,
        tags: BTreeSet::new(),
        first_seen,
        labels: Err("the registry does not have it".to_owned()),
        payload: None,
        signed: None,
        taken: None,
    })
}

fn short(message: &str) -> String {
    clean_and_cut(message, LONGEST)
}

/// The choice of a channel; `None` if there is nothing that it could be made among.
pub fn choice(name: &str, all: &BTreeMap<String, KnownChannel>, now: Timestamp) -> Option<Choice> {
    choice_of(name, all, &mut BTreeSet::new(), now)
}

/// `path` has the channels that are promoted from this one: one that comes back to itself has no source.
fn choice_of<'a>(
    name: &'a str,
    all: &'a BTreeMap<String, KnownChannel>,
    path: &mut BTreeSet<&'a str>,
    now: Timestamp,
) -> Option<Choice> {
    let known = all.get(name)?;
    let spec = known.spec.as_ref().ok()?;
    if known.status.looked_into.as_ref() != Some(&place(spec)) || !path.insert(name) {
        return None;
    }
    let source = source_of(spec, all, path, now);
    path.remove(name);
    Some(choose(spec, &found(&known.status), source.as_ref(), now))
}

fn source_of<'a>(
    spec: &'a Spec,
    all: &'a BTreeMap<String, KnownChannel>,
    path: &mut BTreeSet<&'a str>,
    now: Timestamp,
) -> Option<Source> {
    let from = &spec.promote_from.as_ref()?.channel;
    let choice = choice_of(from, all, path, now)?;
    Some(Source { held: all.get(from)?.status.held.iter().map(Into::into).collect(), choice })
}

/// The channel that this one is promoted from, as decisions take it.
pub fn source(name: &str, all: &BTreeMap<String, KnownChannel>, now: Timestamp) -> Option<Source> {
    source_of(all.get(name)?.spec.as_ref().ok()?, all, &mut BTreeSet::from([name]), now)
}

/// True if the registry is to be asked now.
pub fn is_due(name: &str, all: &BTreeMap<String, KnownChannel>, now: Timestamp) -> bool {
    let Some(KnownChannel { spec: Ok(spec), generation, status, .. }) = all.get(name) else { return false };
    let Some(looked_at) = status.looked_at.filter(|at| *at <= now) else { return true };
    let answered = status.conditions.iter().any(|of| of.type_ == "Looked" && of.status == "True");
    if status.looked_generation != *generation || (answered && lacks(name, spec, status, all, now)) {
        return true;
    }
    let pause = if answered { spec.interval() } else { again(spec) };
    pause.after(looked_at) <= now
}

/// Time without a look into a registry after one that failed.
pub fn again(spec: &Spec) -> PositiveDuration {
    spec.interval().min(PositiveDuration::minutes(1))
}

/// An image may be taken now whose signatures or payload were not needed yet.
fn lacks(
    name: &str,
    spec: &Spec,
    status: &ChannelStatus,
    all: &BTreeMap<String, KnownChannel>,
    now: Timestamp,
) -> bool {
    let (found, source) = (found(status), source(name, all, now));
    lacks_payload(spec, &found, source.as_ref(), now).is_some()
        || lacks_signatures(spec, &found, source.as_ref(), now).is_some()
}

/// The state after a look that ended now; `None` if its result does not count any more.
pub fn looked(
    known: &KnownChannel,
    begun: &LookStart,
    outcome: Result<Vec<candidate::Candidate>, LookFailure>,
    now: Timestamp,
) -> Option<ChannelStatus> {
    if !begun.counts(known, outcome.is_ok()) {
        return None;
    }
    let mut status = known.status.clone();
    (status.looked_at, status.looked_generation) = (Some(now), known.generation);
    let (is_so, word, message) = match outcome {
        Ok(candidates) => {
            let message = format!("{} images were found", candidates.len());
            status.candidates = candidates.iter().map(|of| Candidate::new(of, None)).collect();
            (status.answered_at, status.left_out) = (Some(now), 0);
            status.looked_into = known.spec.as_ref().ok().map(place);
            (true, "Answered", message)
        }
        Err(LookFailure { word, why }) => (false, word, short(&why)),
    };
    status.conditions = condition::set(&status.conditions, "Looked", is_so, word, &message, now);
    Some(status)
}

/// The status of a channel for people, and the choice that pools follow.
pub fn status(name: &str, all: &BTreeMap<String, KnownChannel>, now: Timestamp) -> Option<ChannelStatus> {
    let KnownChannel { spec, generation, status, .. } = all.get(name)?;
    let mut status = status.clone();
    status.observed_generation = *generation;
    let (is_so, word, message) = match (spec, choice(name, all, now)) {
        (Err(why), _) => (false, "SpecInvalid", format!("the channel cannot be understood: {why}")),
        (Ok(spec), None) => {
            // The earlier choice may be of another place, where signatures were not looked for.
            if spec.signatures.is_some() {
                set_latest(&mut status, None, now);
            }
            // A pool that follows the channel says only this.
            let failed = status.conditions.iter().find(|of| of.type_ == "Looked" && of.status == "False");
            let failed = failed.filter(|_| status.looked_generation == *generation);
            let why = failed.map_or_else(
                || "was not looked into yet".to_owned(),
                |of| format!("cannot be looked into: {}", of.message),
            );
            (false, "NotLooked", format!("{} {why}", spec.repository))
        }
        (Ok(spec), Some(choice)) => write_choice(spec, &choice, &mut status, now),
    };
    status.conditions = condition::set(&status.conditions, "Ready", is_so, word, &short(&message), now);
    show_clean(&mut status);
    fit(&mut status);
    Some(status)
}

/// Who can push an image writes its labels, and a registry says why it fails.
fn show_clean(status: &mut ChannelStatus) {
    for of in &mut status.candidates {
        of.tags = of.tags.iter().map(|tag| clean(tag)).collect();
        if let Some(labels) = &mut of.labels {
            labels.channels = labels.channels.iter().map(|name| clean(name)).collect();
            labels.created = labels.created.as_deref().map(clean);
        }
        for text in [&mut of.unreadable, &mut of.refused_because].into_iter().flatten() {
            *text = clean(text);
        }
    }
}

fn size(of: &impl Serialize) -> usize {
    serde_json::to_vec(of).map_or(usize::MAX, |bytes| bytes.len())
}

/// Cut a status to the size that etcd takes: reasons become short, then images are left out, from the end. What is taken and
/// what is gone through on the way there stays.
fn fit(status: &mut ChannelStatus) {
    let all = size(status);
    // Where something was left out already it is cut as it was then.
    if all <= LARGEST && status.left_out == 0 {
        return;
    }
    let mut of_images = 0;
    for of in &mut status.candidates {
        of_images += size(of);
        for text in [&mut of.unreadable, &mut of.refused_because].into_iter().flatten() {
            *text = text.chars().take(SHORT).collect();
        }
    }
    let mut left = LARGEST.saturating_sub(all.saturating_sub(of_images));
    let floors = status.floors.iter().filter_map(|floor| floor.image.as_ref());
    let stays: BTreeSet<Sha256> = floors.chain(&status.latest).map(|image| image.digest.0).collect();
    let (needed, others): (Vec<_>, Vec<_>) =
        mem::take(&mut status.candidates).into_iter().enumerate().partition(|(_, of)| stays.contains(&of.digest.0));
    let count = others.len();
    let mut fits = |of: &(usize, Candidate)| match left.checked_sub(size(&of.1) + 1) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    needed.iter().for_each(|of| _ = fits(of));
    let others: Vec<_> = others.into_iter().take_while(fits).collect();
    status.left_out = status.left_out.saturating_add(u32::try_from(count - others.len()).unwrap_or(u32::MAX));
    let mut all: Vec<_> = needed.into_iter().chain(others).collect();
    all.sort_by_key(|(n, _)| *n);
    status.candidates = all.into_iter().map(|(_, of)| of).collect();
}

/// Write a choice down. Whether there is an image to take, why in one word, and for people.
fn write_choice(
    spec: &Spec,
    choice: &Choice,
    status: &mut ChannelStatus,
    now: Timestamp,
) -> (bool, &'static str, String) {
    let mut candidates = found(status);
    candidates.sort_by_key(|of| Reverse((of.version(), of.first_seen, of.digest)));
    let payloads: BTreeMap<Sha256, Sha256> =
        candidates.iter().filter_map(|of| Some((of.digest, of.payload?))).collect();
    let whole = |image: &Image| {
        let (version, digest) = (image.version.to_string(), ImageDigest(image.digest));
        let name = format!("docker://{}@sha256:{}", spec.repository, image.digest);
        payloads.get(&image.digest).map(|payload| Latest { version, digest, image: name, payload: *payload })
    };
    status.candidates = candidates.iter().map(|of| Candidate::new(of, choice.refused.get(&of.digest))).collect();
    let floor = |(version, image): &(Version, Option<Image>)| Floor {
        version: version.to_string(),
        image: image.as_ref().and_then(whole),
    };
    status.floors = choice.floors.iter().map(floor).collect();
    let Some(chosen) = &choice.chosen else {
        set_latest(status, None, now);
        return (false, "NothingChosen", nothing(spec, status));
    };
    match whole(chosen) {
        Some(latest) => {
            let message = format!("{} is taken", latest.version);
            set_latest(status, Some(latest), now);
            (true, "Chosen", message)
        }
        None => {
            // The earlier choice stays until then, if it is still allowed.
            let still = status.latest.clone().filter(|latest| choice.may_be_used(latest.digest.0));
            // Leave out floors of an image that is not taken yet: nodes would go through a version that is above the choice.
            let below = still.as_ref().and_then(|still| still.version.parse::<Version>().ok());
            let is_below = |floor: &Floor| {
                let floor = floor.version.parse::<Version>().ok();
                floor.zip(below.as_ref()).is_some_and(|(floor, below)| floor.cmp_precedence(below).is_lt())
            };
            status.floors.retain(is_below);
            set_latest(status, still, now);
            (false, "PayloadUnknown", format!("{} is the choice; its payload is looked up", chosen.version))
        }
    }
}

fn nothing(spec: &Spec, status: &ChannelStatus) -> String {
    match status.candidates.first() {
        None => match &spec.select {
            Select::Label(_) => format!("{} has no image", spec.repository),
            Select::Tags(wanted) => format!("no tag of {} is like {wanted}: see spec.select", spec.repository),
        },
        Some(Candidate { digest, version, refused_because, .. }) => {
            let name = version.clone().unwrap_or_else(|| String::from(*digest));
            let why = refused_because.as_deref().unwrap_or_default();
            format!("none of {} images may be taken; {name}: {why}", status.candidates.len())
        }
    }
}

/// Set `latest`, and record in `held` since when it is the choice.
fn set_latest(status: &mut ChannelStatus, latest: Option<Latest>, now: Timestamp) {
    let digest = latest.as_ref().map(|latest| latest.digest);
    let first_seen = status.candidates.iter().find(|of| Some(of.digest) == digest).map(|of| of.first_seen);
    let open = status.held.last_mut().filter(|held| held.until.is_none());
    let held = open.as_ref().map(|held| held.digest);
    if held != digest {
        if let Some(open) = open {
            open.until = Some(now);
        }
        let held = |of: &Latest| Held {
            digest: of.digest,
            version: Some(of.version.clone()),
            payload: Some(of.payload),
            first_seen,
            from: now,
            until: None,
        };
        status.held.extend(latest.as_ref().map(held));
        let old = status.held.len().saturating_sub(KEPT);
        status.held.drain(..old);
    } else if let (Some(open), Some(latest)) = (open, &latest) {
        (open.version, open.payload) = (Some(latest.version.clone()), Some(latest.payload));
        open.first_seen = first_seen.or(open.first_seen);
    }
    status.latest = latest;
}
