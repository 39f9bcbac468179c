//! The choice of a channel.
//!
//! * The newest image counts, by its version. Two images with the same version are both refused: a person who can push could
//!   else put one in the place of the other. Build metadata makes no version another one, nor newer. An index and its manifest
//!   for the architecture, each with a tag, are one image.
//! * Unknown facts refuse an image: one that cannot be read, a source that has not looked, a signature.
//! * Ages count from when the channel saw an image. What an image says of its own age may be anything.
//! * No node goes back: one that runs a newer version gets nothing. Going back is a rollback, which people request.
//! * No floor is skipped. One that is missing holds those nodes back that would have to go through it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use semver::{BuildMetadata, Version};
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::{
    candidate::Candidate,
    refusal::Refusal,
    spec::{Deny, Promotion, Select, Spec},
};

/// A channel's choice, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The image.
    pub digest: Sha256,
    /// Since when.
    pub from: Timestamp,
    /// Until when; `None` if it still is.
    pub until: Option<Timestamp>,
}

/// The channel from which images are promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its earlier choices.
    pub held: Vec<Held>,
    /// Its choice now.
    pub choice: Choice,
}

/// An image with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The digest of its index, or of its manifest if there is none.
    pub digest: Sha256,
    /// Its version.
    pub version: Version,
}

/// The choice, and why no other image was chosen. Every candidate is in it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The newest that may be used.
    pub chosen: Option<Image>,
    /// The floors on the way there, the oldest first. `None` if the version is not there, or may not be used.
    pub floors: Vec<(Version, Option<Image>)>,
    /// Why each other one was not chosen. A floor is also here.
    pub refused: BTreeMap<Sha256, Refusal>,
}

/// Why a node gets nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUpdate {
    /// The channel has chosen nothing.
    #[error("the channel has chosen no image")]
    NoChoice,
    /// It runs something newer.
    #[error(
        "it runs {running}, and the channel's choice is {chosen}: a channel takes no node back to an older version"
    )]
    NotOlder { running: Version, chosen: Version },
    /// It runs another image with that version: somebody has built the version anew, or moved its tag.
    #[error(
        "it runs {running}, and the channel's choice is another build of that version: a channel takes no node from one build \
         to another; give the new one a version of its own, or name image and payload in spec.target, until it runs them"
    )]
    SameVersionDiffers { running: Version },
    /// Its version is unknown: it may be newer, or have floors to go through.
    #[error(
        "the channel does not know the version that it runs, and takes no node back to an older version: name image and payload in \
         spec.target, until it runs them"
    )]
    Unknown,
    /// It would have to go through this one.
    #[error("it must go through {floor} first, which is not there or may not be used")]
    NoFloor { floor: Version },
}

/// The choice of the channel `spec` among `candidates`, of which each is there once.
pub fn choose(spec: &Spec, candidates: &[Candidate], source: Option<&Source>, now: Timestamp) -> Choice {
    let mut refused = BTreeMap::new();
    // The usable images apart from the range: floors need not be in it.
    let mut usable: BTreeMap<Version, Vec<(&Candidate, Version)>> = BTreeMap::new();
    let manifests = candidates.iter().map(|candidate| (candidate.digest, candidate.manifest())).collect();
    for candidate in candidates {
        match may_be_used(spec, candidate, &manifests, source, now) {
            Err(why) => drop(refused.insert(candidate.digest, why)),
            Ok(version) => usable.entry(without_build(&version)).or_default().push((candidate, version)),
        }
    }
    let image = |(compared, same)| Some((compared, only(same, &mut refused)?));
    let usable: BTreeMap<Version, Image> = usable.into_iter().filter_map(image).collect();
    let in_range = |image: &&Image| spec.range.as_ref().is_none_or(|range| range.matches(&image.version));
    let chosen = usable.values().rev().find(in_range).cloned();
    let floors = floors(spec, &usable, chosen.as_ref());
    for Image { digest, version } in usable.into_values() {
        let why = match (&spec.range, &chosen) {
            (Some(range), _) if !range.matches(&version) => Refusal::Range { version, range: range.clone() },
            (_, Some(chosen)) if chosen.digest != digest => Refusal::Older { chosen: chosen.version.clone() },
            _ => continue,
        };
        refused.insert(digest, why);
    }
    Choice { chosen, floors, refused }
}

/// The image of one version; `None` if these are several. Of several names of one image that counts whose tag is the version,
/// or else an index: it is what people sign.
fn only(mut same: Vec<(&Candidate, Version)>, refused: &mut BTreeMap<Sha256, Refusal>) -> Option<Image> {
    same.sort_by_cached_key(|(of, _)| (!of.is_tagged(), of.manifest() == of.digest, of.first_seen, of.digest));
    let (first, version) = same.first()?;
    let is_one = same.iter().all(|(of, _)| of.manifest() == first.manifest());
    for (of, _) in &same {
        let other = same.iter().find(|(other, _)| other.manifest() != of.manifest());
        let why = match other {
            Some((other, _)) => Refusal::SameVersion { other: other.digest },
            None if of.digest != first.digest => Refusal::SameImage { other: first.digest },
            None => continue,
        };
        refused.insert(of.digest, why);
    }
    is_one.then(|| Image { digest: first.digest, version: version.clone() })
}

/// The version as it is compared with others: its build metadata is for people.
fn without_build(version: &Version) -> Version {
    Version { build: BuildMetadata::EMPTY, ..version.clone() }
}

/// The floors below the choice.
fn floors(spec: &Spec, usable: &BTreeMap<Version, Image>, chosen: Option<&Image>) -> Vec<(Version, Option<Image>)> {
    let below = |floor: &&Version| chosen.is_some_and(|chosen| floor.cmp_precedence(&chosen.version).is_lt());
    let image = |floor: &Version| usable.get(&without_build(floor)).cloned();
    let floors: BTreeMap<_, _> = spec.floors.iter().filter(below).map(|floor| (floor.clone(), image(floor))).collect();
    floors.into_iter().collect()
}

/// The version of a candidate that may be used, whatever the range. `manifests` are those of all candidates, by their digests.
fn may_be_used(
    spec: &Spec,
    candidate: &Candidate,
    manifests: &BTreeMap<Sha256, Sha256>,
    source: Option<&Source>,
    now: Timestamp,
) -> Result<Version, Refusal> {
    belongs(&spec.select, candidate)?;
    let version = candidate.version();
    let is_denied = |deny: &&Deny| match deny {
        // By any of its names.
        Deny::Digest(digest) => *manifests.get(digest).unwrap_or(digest) == candidate.manifest(),
        Deny::Version(denied) => version.as_ref().is_some_and(|version| denied.cmp_precedence(version).is_eq()),
    };
    if let Some(deny) = spec.deny.iter().find(is_denied) {
        return Err(Refusal::Denied(deny.clone()));
    }
    let version = version.ok_or(Refusal::NoVersion)?;
    // Clocks of two controllers differ, and what one has taken the other would give up again, and so on.
    let now = candidate.taken.map_or(now, |taken| taken.max(now));
    let until = spec.min_age.map(|age| age.after(candidate.first_seen));
    if let Some(until) = until.filter(|until| now < *until) {
        return Err(Refusal::TooYoung { until });
    }
    if let Some(promotion) = &spec.promote_from {
        is_promoted(promotion, candidate.digest, source, now)?;
    }
    // The last check: images that are refused anyway need no look for signatures.
    if let Some(demand) = &spec.signatures {
        demand.are_met(candidate.signed.as_ref()).map_err(Refusal::Unsigned)?;
    }
    Ok(version)
}

fn belongs(select: &Select, candidate: &Candidate) -> Result<(), Refusal> {
    let labels = candidate.labels.as_ref().map_err(|why| Refusal::Unreadable(why.clone()))?;
    match select {
        Select::Label(wanted) if !labels.channels.contains(wanted) => {
            Err(Refusal::OtherChannel { has: labels.channels.iter().cloned().collect(), wanted: wanted.clone() })
        }
        Select::Tags(wanted) if !candidate.tags.iter().any(|tag| wanted.matches(tag)) => {
            Err(Refusal::OtherTags { has: candidate.tags.iter().cloned().collect(), wanted: wanted.clone() })
        }
        _ => Ok(()),
    }
}

fn is_promoted(promotion: &Promotion, digest: Sha256, source: Option<&Source>, now: Timestamp) -> Result<(), Refusal> {
    let channel = promotion.channel.clone();
    let Some(source) = source else { return Err(Refusal::NoSource { channel }) };
    if !source.choice.may_be_used(digest) {
        let why = source.choice.refused.get(&digest).map_or_else(|| "it is not there".to_owned(), Refusal::to_string);
        return Err(Refusal::RefusedThere { channel, why });
    }
    let long_enough = |held: &Held| {
        held.digest == digest && promotion.after.after(held.from) <= held.until.map_or(now, |until| until.min(now))
    };
    if source.held.iter().any(long_enough) {
        return Ok(());
    }
    Err(Refusal::NotPromoted { channel, after: promotion.after.to_string() })
}

impl Choice {
    /// The images whose payload is needed: the choice and the floors. With floors also every other one that has a version: a
    /// node that runs it must be told from one that is older.
    pub fn needs(&self, candidates: &[Candidate]) -> BTreeSet<Sha256> {
        let floors = self.floors.iter().filter_map(|(_, image)| image.as_ref());
        let all = candidates.iter().filter(|of| !self.floors.is_empty() && of.labels.is_ok() && of.version().is_some());
        let mut needed: BTreeSet<Sha256> = self.chosen.iter().chain(floors).map(|image| image.digest).collect();
        needed.extend(all.map(|candidate| candidate.digest));
        needed
    }

    /// True if it matters who has signed this one: a node may be sent there, or it has the version of another one, and only
    /// one of them is the owner's.
    pub fn waits_for_signatures(&self, digest: Sha256) -> bool {
        let floors = self.floors.iter().filter_map(|(_, image)| image.as_ref());
        let is_double = matches!(self.refused.get(&digest), Some(Refusal::SameVersion { .. }));
        is_double || self.chosen.iter().chain(floors).any(|image| image.digest == digest)
    }

    /// It is not chosen only because something newer is. One that was denied since, or is young again, is not chosen.
    fn was_good(&self, digest: Sha256) -> bool {
        matches!(self.refused.get(&digest), Some(Refusal::Older { .. }))
    }

    /// True if it is chosen, or is not only because something newer is. Another name of an image is as good.
    pub fn may_be_used(&self, digest: Sha256) -> bool {
        let digest = match self.refused.get(&digest) {
            Some(Refusal::SameImage { other }) => *other,
            _ => digest,
        };
        self.chosen.as_ref().is_some_and(|chosen| chosen.digest == digest) || self.was_good(digest)
    }

    /// The target of a node with this version, which does not run the choice: the first floor above it, or else the choice.
    /// Nothing if the version is not known.
    pub fn next(&self, running: Option<&Version>) -> Result<Image, NoUpdate> {
        let chosen = self.chosen.as_ref().ok_or(NoUpdate::NoChoice)?;
        let running = running.ok_or(NoUpdate::Unknown)?;
        // Build metadata is for people: it makes no version older than another.
        let order = running.cmp_precedence(&chosen.version);
        if order.is_ge() {
            let (running, chosen) = (running.clone(), chosen.version.clone());
            let is_same = order.is_eq();
            let differs = NoUpdate::SameVersionDiffers { running: running.clone() };
            return Err(if is_same { differs } else { NoUpdate::NotOlder { running, chosen } });
        }
        match self.floors.iter().find(|(floor, _)| floor.cmp_precedence(running).is_gt()) {
            None => Ok(chosen.clone()),
            Some((_, Some(image))) => Ok(image.clone()),
            Some((floor, None)) => Err(NoUpdate::NoFloor { floor: floor.clone() }),
        }
    }
}
