//! A channel, as people write it. `kubectl explain channel.spec` shows these texts.

use core::fmt;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};
use slipway_core::{digest::Sha256, kernel::arch::Arch, payload::image_ref::parse_digest};
use slipway_rollout::duration::PositiveDuration;

use crate::{candidate::version, pattern::Pattern, signature_demand::Signatures};

/// The default interval between looks into a registry, minutes.
const INTERVAL: u32 = 10;

/// A number of a version, as a pattern: one that 64 bits have, without a zero before it.
pub const NUMBER: &str = "(0|[1-9][0-9]{0,17})";

/// What may follow the three numbers of a version (Semantic Versioning 2.0.0), as a pattern: a prerelease.
pub const PRERELEASE: &str =
    "(-(0|[1-9][0-9]{0,17}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)([.](0|[1-9][0-9]{0,17}|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?";

/// And behind that the build metadata.
const BUILD: &str = "([+][0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?";

fn version_pattern() -> String {
    format!("{NUMBER}[.]{NUMBER}[.]{NUMBER}{PRERELEASE}{BUILD}")
}

fn floor_pattern() -> String {
    format!("^{}$", version_pattern())
}

/// What Cargo's parser takes as a range: `*` alone, or at most 32 comparisons, in which nothing but `*` follows a `*`. It is one
/// expression: an API server takes rules only up to a cost, and that of a list is the one of its longest text for each entry.
fn range_rule() -> String {
    let numbers = format!("{NUMBER}([.]([*xX]([.][*xX])?|{NUMBER}([.]([*xX]|{NUMBER}{PRERELEASE}{BUILD}))?))?");
    let comparison = format!(" *(=|>|>=|<|<=|[~^])? *{numbers} *");
    format!("self.matches('^( *[*xX] *|{comparison}(,{comparison}){{0,31}})$')")
}

/// What is taken as a repository: with a host, if its first part has a dot or a port or is localhost; else one of Docker Hub.
fn repository_rule() -> String {
    let label = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?";
    let port = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
    let part = "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*";
    let without_dots = "[a-z0-9]+((_|__|-+)[a-z0-9]+)*";
    let host = format!("(({label}([.]{label})+|localhost|{})(:{port})?|{label}:{port})", v6());
    format!("self.matches('^({host}/{part}(/{part})*|{without_dots}(/{part})+|{part})$')")
}

/// An address of IPv6 in brackets, with at most one `::` in it.
fn v6() -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let inside = (1..=6).map(|before| format!("({group}:){{1,{before}}}(:{group}){{1,{}}}", 7 - before));
    let inside: Vec<String> = inside.collect();
    let ends = format!("({group}:){{7}}{group}|({group}:){{1,7}}:|:((:{group}){{1,7}}|:)");
    format!("[[]({}|{ends})[]]", inside.join("|"))
}

/// Where new images come from, and which of them are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// The repository, without a tag: registry.example/os.
    #[schemars(length(min = 1, max = 1024), extend("x-kubernetes-validations" = [{
        "rule": repository_rule(),
        "message": "a repository is written in lower case, without a scheme, a tag or a digest: registry.example/os",
    }]))]
    pub repository: String,
    /// Which images of it belong to the channel: {label: stable}, or {tags: "v*"}.
    pub select: Select,
    /// For which architecture. A pool of the other one needs a channel of its own.
    #[serde(default = "amd64")]
    pub arch: Arch,
    /// How often the registry is asked: 30m. Without it, every ten minutes; after a failure at least once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<PositiveDuration>,
    /// Which versions are taken, as Cargo writes it: ">=1.4, <2". Without it, any. A prerelease is in a range only if the
    /// range names one of the same major, minor and patch number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(min = 1, max = 256), extend("x-kubernetes-validations" = [{
        "rule": range_rule(),
        "message": "a range is written as Cargo writes it: >=1.4, <2",
    }]))]
    pub range: Option<VersionReq>,
    /// How long this channel must have known an image before it is taken: 168h. What an image says of its own age does not
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_age: Option<PositiveDuration>,
    /// Versions that a node with an older one goes to first. Each must be there; the range does not hold for them.
    #[serde(default)]
    #[schemars(with = "Vec<String>", length(max = 256), inner(length(max = 256), regex(pattern = floor_pattern())))]
    pub floors: Vec<Version>,
    /// Images that are never taken: a version such as 1.2.3, or a digest such as sha256: and 64 hex digits.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub deny: Vec<Deny>,
    /// Only images that were another channel's choice for long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_from: Option<Promotion>,
    /// Whose signatures an image needs, as cosign makes them. Without it, none. Nodes have a policy of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signatures: Option<Signatures>,
}

fn amd64() -> Arch {
    Arch::Amd64
}

impl Spec {
    /// How often the registry is asked.
    pub fn interval(&self) -> PositiveDuration {
        self.interval.unwrap_or_else(|| PositiveDuration::minutes(INTERVAL))
    }
}

/// Which images belong to the channel: one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Select {
    /// Those whose label or annotation `dev.slipway.channel` names this.
    Label(String),
    /// Those with a tag like this.
    Tags(Pattern),
}

impl JsonSchema for Select {
    fn schema_name() -> Cow<'static, str> {
        "Select".into()
    }

    /// As Kubernetes takes it: the fields once, and beside them that exactly one is there.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "label": {
                    "type": "string", "minLength": 1, "maxLength": 64,
                    "description": "Those whose label or annotation dev.slipway.channel names this: stable.",
                },
                "tags": {
                    "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.*-]+$",
                    "description": "Those with a tag like this: v*, or *-beta.*. Each * stands for any text.",
                },
            },
            "oneOf": [{ "required": ["label"] }, { "required": ["tags"] }],
        })
    }
}

/// From another channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Promotion {
    /// The name of the other channel: beta.
    #[schemars(length(min = 1, max = 253))]
    pub channel: String,
    /// For how long an image must have been its choice without a break: 72h.
    pub after: PositiveDuration,
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

impl JsonSchema for Deny {
    fn schema_name() -> Cow<'static, str> {
        "Deny".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "minLength": 1, "maxLength": 256,
            "pattern": format!("^(sha256:[0-9a-f]{{64}}|v?{})$", version_pattern()),
        })
    }
}

/// A text that is neither a version nor a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a version such as 1.2.3 nor a digest such as sha256: and 64 hex digits")]
pub struct DenyError(String);

impl TryFrom<String> for Deny {
    type Error = DenyError;

    fn try_from(text: String) -> Result<Self, DenyError> {
        let digest = parse_digest(&text).map(Self::Digest);
        digest.or_else(|| version(&text).map(Self::Version)).ok_or(DenyError(text))
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
