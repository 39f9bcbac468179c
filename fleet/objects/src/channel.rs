//! Where new images come from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;
use slipway_rollout::span::Span;

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
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ChannelSpec {
    /// The repository: registry.example/os.
    #[schemars(length(min = 1, max = 1024))]
    pub repository: String,
    /// Which images of it are of this channel.
    #[serde(default)]
    pub images: Images,
    /// Which versions are taken, as Cargo writes it: ">=1.4, <2". Without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// How often the registry is asked: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// How old an image must be before it is taken: 168h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_age: Option<Span>,
    /// Keys, in PEM, one of which must have signed an image. Without any, no signature is asked for.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Versions that must be passed through: whoever runs an older one goes to the lowest of these first.
    #[serde(default)]
    pub floors: Vec<String>,
    /// Versions and digests that are never taken.
    #[serde(default)]
    pub deny: Vec<Deny>,
    /// Only images that are the latest of this other channel, or were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_from: Option<String>,
}

/// Which images are of a channel: those that meet both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Images {
    /// Labels or annotations that the image must have, such as dev.slipway.channel: stable.
    pub labels: BTreeMap<String, String>,
    /// A pattern for the whole tag: v*, or *-beta.*. Each * stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// What is never taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deny {
    /// A version, or the digest of an image.
    #[schemars(length(min = 1, max = 253))]
    pub image: String,
    /// Why, for whoever asks where it is.
    #[schemars(length(min = 1, max = 1024))]
    pub why: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelStatus {
    /// Every image that was looked at, the newest version first.
    pub candidates: Vec<Candidate>,
    /// What a NodePool that names this channel takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<Latest>,
    /// Ready: whether the registry answered and something was found.
    pub conditions: Vec<Condition>,
}

/// An image that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Its version.
    pub version: String,
    /// The digest of the image.
    pub digest: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Why it was not taken; absent if it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_because: Option<String>,
}

/// What is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latest {
    /// Its version.
    pub version: String,
    /// The image with its digest, as nodes fetch it.
    pub image: String,
    /// The digest that names the payload in it.
    pub payload: Sha256,
}
