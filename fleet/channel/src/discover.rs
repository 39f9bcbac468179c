//! The content of a registry: tags, digests, and descriptions of images. It uses the installer's client, with its
//! credentials, mirrors and TLS. One client serves all images of a repository: their requests share connections and tokens.
//! It blocks.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_core::{
    digest::Sha256,
    kernel::arch::Arch,
    payload::image_ref::{ImageRef, ImageRefError},
};
use slipway_payload::{
    image::{Description, ImageError},
    registry::{Options, Registry},
};

use crate::{
    candidate::{Candidate, ImageLabels},
    spec::{Deny, Select, Spec},
};

/// The limits of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tags that are looked at, each with a request. With more nothing is looked at: a tag that is left out might be the newest.
    pub tags: usize,
    /// Bytes of layers that are read to find out which payload is in one image.
    pub payload_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tags: 1000, payload_bytes: 64 << 20 }
    }
}

/// Why a lookup failed. Earlier knowledge stays.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The channel's repository is no name of one.
    #[error("{repository}: {source}")]
    Name {
        /// As it was written.
        repository: String,
        /// The fault.
        source: ImageRefError,
    },
    /// A repository has no tag.
    #[error("{0}: a channel's repository is written without a tag or a digest")]
    Tagged(String),
    /// There are too many.
    #[error(
        "{tags} tags may belong to the channel, and no more than {limit} are looked at: select.tags can be narrower"
    )]
    TooMany {
        /// So many tags.
        tags: usize,
        /// So many are looked at.
        limit: usize,
    },
    /// The time was over before all was read.
    #[error("the registry was not looked through in time: {why}")]
    TooLong {
        /// The work that was under way.
        why: String,
        /// The images read by then: the next look need not read them again.
        read: Vec<Candidate>,
    },
    /// The registry or an image cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl DiscoverError {
    /// The reason in one word, which stays the same.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name { .. } | Self::Tagged(_) => "RepositoryInvalid",
            Self::TooMany { .. } => "TooManyTags",
            Self::TooLong { .. } => "TooLong",
            Self::Image(ImageError::NotFound { .. }) => "RepositoryMissing",
            Self::Image(ImageError::Denied { .. }) => "RegistryDenies",
            Self::Image(_) => "RegistryFails",
        }
    }
}

/// The repository of a channel.
pub struct Repository {
    registry: Registry,
    arch: Arch,
}

impl Repository {
    /// Of this channel. Nothing is sent yet.
    pub fn for_channel(spec: &Spec, options: &Options) -> Result<Self, DiscoverError> {
        Ok(Self { registry: Registry::new(&named(&spec.repository)?, options)?, arch: spec.arch })
    }

    /// For which architecture images are read.
    pub(crate) fn arch(&self) -> Arch {
        self.arch
    }

    /// An image of it.
    pub(crate) fn image(&self, digest: Sha256) -> Registry {
        self.registry.of_digest(digest)
    }

    fn read(&self, digest: Sha256) -> Result<ImageLabels, ImageError> {
        let of = Description::read(&self.image(digest), self.arch)?;
        Ok(ImageLabels { manifest: Some(of.manifest), ..ImageLabels::from_labels(&of.labels, of.created) })
    }
}

/// Look into a channel's repository. What `known` has is not read again: an image with the same
/// digest says the same. Only its tags may be others. What could not be read is tried again.
pub fn discover(
    spec: &Spec,
    repository: &Repository,
    limits: Limits,
    known: &[Candidate],
    now: Timestamp,
) -> Result<Vec<Candidate>, DiscoverError> {
    let tags = repository.registry.tags()?;
    let tags: Vec<String> = tags.into_iter().filter(|tag| is_wanted(&spec.select, tag)).collect();
    if tags.len() > limits.tags {
        return Err(DiscoverError::TooMany { tags: tags.len(), limit: limits.tags });
    }
    let mut found: BTreeMap<Sha256, BTreeSet<String>> = BTreeMap::new();
    for tag in tags {
        match repository.registry.tagged_as(&tag).digest() {
            Ok(digest) => drop(found.entry(digest).or_default().insert(tag)),
            // It was taken away since the list was made.
            Err(ImageError::NotFound { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let known: BTreeMap<Sha256, &Candidate> = known.iter().map(|candidate| (candidate.digest, candidate)).collect();
    // One that is denied tells which manifest is, also when its tag is gone, and that of the manifest is left.
    for deny in &spec.deny {
        if let Deny::Digest(digest) = deny
            && known.get(digest).is_some_and(|candidate| candidate.labels.is_ok())
        {
            found.entry(*digest).or_default();
        }
    }
    let candidate = |(digest, tags): (Sha256, BTreeSet<String>)| {
        let before = known.get(&digest);
        let labels = match before.map(|before| &before.labels) {
            // Without a manifest they are of an older controller.
            Some(Ok(labels)) if labels.manifest.is_some() => Ok(labels.clone()),
            _ => repository.read(digest).map_err(|e| e.to_string()),
        };
        let first_seen = before.map_or(now, |before| before.first_seen);
        // A signature stays one. Another signer may sign until the next look.
        let signed = before.and_then(|before| before.signed.clone());
        let signed =
            signed.filter(|signed| spec.signatures.as_ref().is_some_and(|of| of.are_met(Some(signed)).is_ok()));
        let (payload, taken) = (before.and_then(|before| before.payload), before.and_then(|before| before.taken));
        Candidate { digest, tags, first_seen, labels, payload, signed, taken }
    };
    Ok(found.into_iter().map(candidate).collect())
}

/// With a label every tag must be looked at; with a pattern, only tags that match it. Signatures and what else
/// belongs to an image may be under a tag that begins with its digest, `sha256-HEX`: that is no image.
fn is_wanted(select: &Select, tag: &str) -> bool {
    let hex = tag.strip_prefix("sha256-").and_then(|rest| rest.get(..64));
    match select {
        _ if hex.is_some_and(|hex| hex.parse::<Sha256>().is_ok()) => false,
        Select::Label(_) => true,
        Select::Tags(pattern) => pattern.matches(tag),
    }
}

/// The repository as a reference.
pub fn named(repository: &str) -> Result<ImageRef, DiscoverError> {
    let wrong = |source| DiscoverError::Name { repository: repository.to_owned(), source };
    let name: ImageRef = repository.parse().map_err(wrong)?;
    let last = repository.rsplit('/').next().unwrap_or(repository);
    if last.contains(['@', ':']) {
        return Err(DiscoverError::Tagged(repository.to_owned()));
    }
    Ok(name)
}
