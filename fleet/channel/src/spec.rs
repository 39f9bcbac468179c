//! What a channel is, as people write it.

use core::fmt;

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};
use slipway_core::{digest::Sha256, payload::image_ref::parse_digest};
use slipway_rollout::span::Span;

use crate::{candidate::version, pattern::Pattern};

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// `HOST[:PORT]/PATH`, without a tag.
    pub repository: String,
    /// Which images of it belong to the channel.
    pub select: Select,
    /// Which versions. A prerelease is in a range only if the range names one of the same major, minor and patch number.
    #[serde(default)]
    pub range: Option<VersionReq>,
    /// How long an image must have been known to this channel.
    #[serde(default)]
    pub min_age: Option<Span>,
    /// Versions that a node with an older one goes to first. Each must be there; the range does not hold for them.
    #[serde(default)]
    pub floors: Vec<Version>,
    /// Images that are never used.
    #[serde(default)]
    pub deny: Vec<Deny>,
    /// Only what was another channel's choice for long enough.
    #[serde(default)]
    pub promote_from: Option<Promotion>,
    /// Only images with a signature. Nobody looks at signatures yet, so such a channel chooses nothing.
    #[serde(default)]
    pub signature_required: bool,
}

/// Which images belong to the channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Select {
    /// Those whose label or annotation `dev.slipway.channel` names this.
    Label(String),
    /// Those with a tag like this.
    Tags(Pattern),
}

/// From another channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Promotion {
    /// Its name.
    pub channel: String,
    /// For how long an image must have been its choice without a break.
    pub after: Span,
}

/// An image that is never used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Deny {
    /// Every one of this version, whatever its build metadata.
    Version(Version),
    /// This one.
    Digest(Sha256),
}

/// A text that is neither a version nor a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a version such as 1.2.3 nor a digest such as sha256: and 64 hex digits")]
pub struct NoDeny(String);

impl TryFrom<String> for Deny {
    type Error = NoDeny;

    fn try_from(text: String) -> Result<Self, NoDeny> {
        let digest = parse_digest(&text).map(Self::Digest);
        digest.or_else(|| version(&text).map(Self::Version)).ok_or(NoDeny(text))
    }
}

impl From<Deny> for String {
    fn from(deny: Deny) -> Self {
        deny.to_string()
    }
}

impl fmt::Display for Deny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "{version}"),
            Self::Digest(digest) => write!(f, "sha256:{digest}"),
        }
    }
}

impl Deny {
    /// Whether it is meant.
    pub fn means(&self, digest: Sha256, version: Option<&Version>) -> bool {
        match self {
            Self::Digest(denied) => *denied == digest,
            Self::Version(denied) => version.is_some_and(|version| denied.cmp_precedence(version).is_eq()),
        }
    }
}
