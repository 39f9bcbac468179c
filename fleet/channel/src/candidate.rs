//! An image found in the registry, with its labels, which are not verified.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::signature_demand::Signed;

/// The label or annotation that names an image's channels, separated by commas: `stable` or `beta,alpha`.
pub const CHANNEL: &str = "dev.slipway.channel";
/// The label or annotation that has its version.
pub const VERSION: &str = "org.opencontainers.image.version";
/// Labels of Slipway's own image, which an image that is made `FROM` it has, too: what it is, and its version again.
const TITLE: (&str, &str) = ("org.opencontainers.image.title", "Slipway");
const OWN_VERSION: &str = "alpha.talos.dev/version";

/// An image that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The digest of its index, or of its manifest if there is none.
    pub digest: Sha256,
    /// Its tags, as they are now.
    pub tags: BTreeSet<String>,
    /// When this channel saw it first. An image's own timestamps are not trusted.
    pub first_seen: Timestamp,
    /// Its description, or why that cannot be read.
    pub labels: Result<ImageLabels, String>,
    /// The digest that names the payload in it, where it was needed.
    pub payload: Option<Sha256>,
    /// Its signers; `None` if its signatures were not looked for.
    pub signed: Option<Signed>,
    /// When this channel took it last. By the clock of the controller that chose it, so
    /// another controller with a slower clock does not find the image too young again.
    pub taken: Option<Timestamp>,
}

/// The description in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageLabels {
    /// Its version, from its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub version: Option<Version>,
    /// Its channels, from its label.
    #[serde(default)]
    pub channels: BTreeSet<String>,
    /// When it was made; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The digest of its manifest for the channel's architecture: its own, if it is no index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Sha256>,
}

/// The longest text that is taken from an image, bytes, and the most channels: otherwise a person who can push could fill
/// the channel's status.
const MAX_LABEL_BYTES: usize = 64;
const MAX_CHANNELS: usize = 8;

impl ImageLabels {
    /// From labels and annotations. A text that is too long counts as missing.
    pub fn from_labels(labels: &BTreeMap<String, String>, created: Option<String>) -> Self {
        let fits = |text: &&str| !text.is_empty() && text.len() <= MAX_LABEL_BYTES;
        let channels = labels.get(CHANNEL).into_iter().flat_map(|names| names.split(','));
        let channels = channels.map(str::trim).filter(fits).take(MAX_CHANNELS).map(str::to_owned).collect();
        // Slipway's own version says nothing of what was put on top of it.
        let is_inherited =
            labels.get(TITLE.0).is_some_and(|title| title == TITLE.1) && labels.get(VERSION) == labels.get(OWN_VERSION);
        let own = labels.get(VERSION).filter(|_| !is_inherited).map(String::as_str).filter(fits);
        let created = created.filter(|text| fits(&text.as_str()));
        Self { version: own.and_then(version), channels, created, manifest: None }
    }
}

/// A version, with or without a leading `v`.
pub fn version(text: &str) -> Option<Version> {
    text.strip_prefix('v').unwrap_or(text).parse().ok()
}

impl Candidate {
    /// The manifest that nodes get. An index and what it names have one, and so do two indexes with the same.
    pub fn manifest(&self) -> Sha256 {
        self.labels.as_ref().ok().and_then(|labels| labels.manifest).unwrap_or(self.digest)
    }

    /// One of its tags is its version.
    pub fn is_tagged(&self) -> bool {
        let own = self.version();
        own.is_some() && self.tags.iter().any(|tag| version(tag) == own)
    }

    /// Its version: what its label says, or else what its tags say, if they say one.
    pub fn version(&self) -> Option<Version> {
        let own = self.labels.as_ref().ok().and_then(|labels| labels.version.clone());
        let mut of_tags: Vec<Version> = self.tags.iter().filter_map(|tag| version(tag)).collect();
        of_tags.dedup();
        own.or_else(|| of_tags.pop().filter(|_| of_tags.is_empty()))
    }
}
