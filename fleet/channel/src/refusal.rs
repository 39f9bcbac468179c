//! Why an image was not chosen.

use jiff::Timestamp;
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::{pattern::Pattern, spec::Deny};

/// Why an image was not chosen. The first that applies, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Its content is unknown.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It belongs to others.
    #[error("its label dev.slipway.channel names {}, not {wanted}", list(.has))]
    OtherChannel { has: Vec<String>, wanted: String },
    /// None of its tags is meant.
    #[error("none of its tags ({}) is like {wanted}", list(.has))]
    OtherTags { has: Vec<String>, wanted: Pattern },
    /// A person says so.
    #[error("{0} is on the channel's deny list")]
    Denied(Deny),
    /// Those who must have signed it have not.
    #[error("the channel demands signatures: {0}")]
    Unsigned(String),
    /// It cannot be compared with others.
    #[error(
        "it has no version: neither its label org.opencontainers.image.version nor exactly one of the tags that the channel \
         looks at is a version, such as 1.2.3"
    )]
    NoVersion,
    /// It is not wanted.
    #[error("its version {version} is not in the range {range}")]
    Range { version: Version, range: VersionReq },
    /// It is new.
    #[error("it is too young until {until:.0}")]
    TooYoung { until: Timestamp },
    /// The other channel is not known.
    #[error("the channel {channel}, from which it would come, is not there, or has not looked yet")]
    NoSource { channel: String },
    /// The other channel does not want it.
    #[error("the channel {channel}, from which it would come, does not choose it: {why}")]
    RefusedThere { channel: String, why: String },
    /// The other channel did not have it for long enough.
    #[error("it was not the choice of the channel {channel} for {after} without a break")]
    NotPromoted { channel: String, after: String },
    /// It is unclear which one is meant.
    #[error("another image has the same version, sha256:{other}: deny one of the two by its digest")]
    SameVersion { other: Sha256 },
    /// It is another name of one that counts.
    #[error("it is another name of the image sha256:{other}")]
    SameImage { other: Sha256 },
    /// Another one is newer.
    #[error("{chosen} is newer")]
    Older { chosen: Version },
}

impl Refusal {
    /// The reason in one word, which stays the same.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "Unreadable",
            Self::OtherChannel { .. } => "OtherChannel",
            Self::OtherTags { .. } => "OtherTags",
            Self::Denied(_) => "Denied",
            Self::Unsigned(_) => "Unsigned",
            Self::NoVersion => "NoVersion",
            Self::Range { .. } => "NotInRange",
            Self::TooYoung { .. } => "TooYoung",
            Self::NoSource { .. } => "NoSource",
            Self::RefusedThere { .. } => "RefusedThere",
            Self::NotPromoted { .. } => "NotPromoted",
            Self::SameVersion { .. } => "SameVersion",
            Self::SameImage { .. } => "SameImage",
            Self::Older { .. } => "Older",
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}
