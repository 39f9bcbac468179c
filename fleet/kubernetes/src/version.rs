//! Versions of Kubernetes, and what an image says of its version.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use slipway_core::payload::minor_version::MinorVersion;

/// A version: 1.31.2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(semver::Version);

impl Version {
    /// The part of it that the version skew policy is about.
    pub fn minor(&self) -> MinorVersion {
        // Larger numbers are refused where a version is read.
        let part = |of: u64| u32::try_from(of).unwrap_or(u32::MAX);
        MinorVersion::new(part(self.0.major), part(self.0.minor))
    }

    /// Its three numbers. What a distributor writes behind them does not count.
    pub fn release(&self) -> [u64; 3] {
        [self.0.major, self.0.minor, self.0.patch]
    }

    /// Of the tag of an image, as `registry.k8s.io/kube-apiserver:v1.31.2`, with or without a digest behind it.
    pub fn of_image(image: &str) -> Option<Self> {
        let name = image.split('@').next().unwrap_or_default();
        let (_, tag) = name.rsplit_once(':')?;
        tag.parse().ok()
    }
}

impl FromStr for Version {
    type Err = String;

    /// Of `1.31.2` or `v1.31.2`. What is built into it, behind a `+`, does not count.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no version of Kubernetes: 1.31.2");
        let mut version = semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).map_err(|_| wrong())?;
        version.build = semver::BuildMetadata::EMPTY;
        let is_small = [version.major, version.minor].iter().all(|part| u32::try_from(*part).is_ok());
        if is_small { Ok(Self(version)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

/// The repository of an image: its reference without tag and digest.
pub fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    // A colon before the last slash is a port's.
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    }
}

/// Whether an image is what is there, but for the version in its tag and a digest.
pub fn is_of_version(image: &str, there: &str, version: &Version) -> bool {
    image == there || image_of(there, version).as_deref() == image.split('@').next()
}

/// The image with another version in its tag. `None` if it has no version there. A digest behind it goes: it is the old
/// image's.
pub fn image_of(image: &str, version: &Version) -> Option<String> {
    Version::of_image(image)?;
    Some(format!("{}:v{version}", repository(image)))
}
