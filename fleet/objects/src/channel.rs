//! Channel: where new images come from. What people write of a channel is [`slipway_channel::spec::Spec`] itself, so that
//! nothing is written that is not decided from.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_channel::{candidate, choose, refusal::Refusal, signature_demand::Signed, spec::Spec};
use slipway_core::digest::Sha256;

use crate::image::ImageDigest;

/// The longest reason why an image cannot be read, characters: registries write them.
const LONGEST: usize = 500;

/// Where new images come from, and which of them are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "fleet.slipway.dev",
    version = "v1alpha1",
    kind = "Channel",
    status = "ChannelStatus",
    category = "slipway",
    doc = "Where new images come from, and which of them are taken. A NodePool whose target names a channel follows \
           status.latest. Every image that was found and not taken is in status.candidates, with the reason.",
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.repository"),
    printcolumn(name = "Latest", type_ = "string", json_path = ".status.latest.version"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Looked", type_ = "date", json_path = ".status.lookedAt"),
    printcolumn(
        name = "Registry",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Looked\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(transparent)]
pub struct ChannelSpec(pub Spec);

/// The found images, and the choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelStatus {
    /// The images that were found, the newest version first.
    pub candidates: Vec<Candidate>,
    /// So many more were found, and are left out: etcd takes no larger object. They are those of the lowest versions, and
    /// those without one. None of them is taken.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// The image that a NodePool of this channel takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<Latest>,
    /// Versions that nodes with an older one go to first, the oldest first.
    pub floors: Vec<Floor>,
    /// The earlier choices with their times, the last one last: a channel that promotes from this one counts from here.
    pub held: Vec<Held>,
    /// When the last look into the registry ended, whatever came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<Timestamp>,
    /// When the last look ended that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<Timestamp>,
    /// Where the candidates were found: repository and architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_into: Option<String>,
    /// The generation of the channel that the last look was for.
    pub looked_generation: i64,
    /// The generation of the channel that this speaks of.
    pub observed_generation: i64,
    /// Ready: whether there is an image to take; its reasons are Chosen, NothingChosen, PayloadUnknown, NotLooked,
    /// SpecInvalid. Looked: whether the last look was answered; its reasons are Answered, RepositoryInvalid,
    /// RepositoryMissing, RegistryDenies, RegistryFails, TooManyTags, TooLong.
    pub conditions: Vec<Condition>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An image that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Its version; absent if it has none, or says two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The digest of the image: of its index, where it has one.
    pub digest: ImageDigest,
    /// The tags that name it now.
    #[serde(default)]
    pub tags: BTreeSet<String>,
    /// When this channel saw it first.
    pub first_seen: Timestamp,
    /// Its own words, which are not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<candidate::ImageLabels>,
    /// Why it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// The digest that names the payload in it, where it was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Sha256>,
    /// Its signers, of those that the channel asked for; absent if that was not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// Why it is not taken, in one word that stays the same; Chosen if it is.
    #[serde(default)]
    pub reason: String,
    /// Why it is not taken, for people; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_because: Option<String>,
}

/// An image with its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latest {
    /// Its version.
    pub version: String,
    /// The digest of the image.
    pub digest: ImageDigest,
    /// The image with its digest, as nodes fetch it.
    pub image: String,
    /// The digest that names the payload in it.
    pub payload: Sha256,
}

/// A version that nodes with an older one go to first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Floor {
    /// As it is written.
    pub version: String,
    /// The image; absent if there is none that may be used. Then nodes with an older version wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Latest>,
}

/// A choice, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// The digest of the image.
    pub digest: ImageDigest,
    /// Its version: who runs it is known by it when the registry has it no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The digest that names the payload in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Sha256>,
    /// When this channel saw it first: if the registry does not have it for a while, it is no younger afterwards.
    #[serde(default, rename = "firstSeen", skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<Timestamp>,
    /// Since when.
    pub from: Timestamp,
    /// Until when; absent if it still is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Candidate {
    /// The status entry of a candidate; `why` is why it is not taken.
    pub fn new(of: &candidate::Candidate, why: Option<&Refusal>) -> Self {
        Self {
            version: of.version().map(|version| version.to_string()),
            digest: ImageDigest(of.digest),
            tags: of.tags.clone(),
            first_seen: of.first_seen,
            labels: of.labels.as_ref().ok().cloned(),
            unreadable: of.labels.as_ref().err().map(|why| why.chars().take(LONGEST).collect()),
            payload: of.payload,
            signed: of.signed.clone(),
            reason: why.map_or("Chosen", Refusal::reason).to_owned(),
            refused_because: why.map(|why| why.to_string().chars().take(2 * LONGEST).collect()),
        }
    }

    /// The found image, as decisions take it; `held` has the earlier choices.
    pub fn found(&self, held: &[Held]) -> candidate::Candidate {
        let labels = match (&self.labels, &self.unreadable) {
            (Some(labels), None) => Ok(labels.clone()),
            (_, why) => Err(why.clone().unwrap_or_else(|| "its description is missing".to_owned())),
        };
        let (digest, tags, first_seen, payload) = (self.digest.0, self.tags.clone(), self.first_seen, self.payload);
        let taken = held.iter().filter(|held| held.digest == self.digest).map(|held| held.from).max();
        candidate::Candidate { digest, tags, first_seen, labels, payload, signed: self.signed.clone(), taken }
    }
}

impl From<&Held> for choose::Held {
    fn from(held: &Held) -> Self {
        Self { digest: held.digest.0, from: held.from, until: held.until }
    }
}
