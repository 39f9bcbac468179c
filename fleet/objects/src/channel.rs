//! Where new images come from.

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
    /// The repository, without a tag: registry.example/os.
    #[schemars(length(min = 1, max = 1024))]
    pub repository: String,
    /// Which images of it are of this channel: {label: stable}, or {tags: "v*"}.
    pub select: Select,
    /// Which versions are taken, as Cargo writes it: ">=1.4, <2". Without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// How often the registry is asked: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// How long this channel must have known an image before it is taken: 168h. What an image says of its own age does not
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_age: Option<Span>,
    /// Versions that a node with an older one goes to first. Each must be there; the range does not hold for them.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub floors: Vec<String>,
    /// Images that are never taken: a version such as 1.2.3, or a digest such as sha256: and 64 hex digits.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub deny: Vec<String>,
    /// Only images that were another channel's choice for long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_from: Option<Promotion>,
    /// Only images with a signature.
    #[serde(default)]
    pub signature_required: bool,
}

/// Which images are of a channel: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Select {
    /// Those whose label or annotation dev.slipway.channel names this: stable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Those with a tag like this: v*, or *-beta.*. Each * stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<String>,
}

/// From another channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Promotion {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub channel: String,
    /// For how long an image must have been its choice without a break: 72h.
    pub after: Span,
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
    /// When this channel saw it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<Timestamp>,
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
