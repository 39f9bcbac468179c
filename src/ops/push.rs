//! Copies a container image into a registry, with its signatures.

use super::source_failure;
use crate::{
    error::{Failure, OrFail as _},
    payload::{
        SourceRef,
        image::{ImageError, ImageStore, Signable, WholeImage, push},
        image_store,
        registry::{Options, Registry},
    },
};
use slipway_core::{
    digest::Sha256,
    payload::image_ref::ImageRef,
    report::{FailureKind, Observer, PushReport},
};

#[derive(Clone, Debug)]
pub struct PushRequest {
    /// An image in a layout or an archive.
    pub source: SourceRef,
    pub to: ImageRef,
    pub registry: Options,
}

/// Why a payload cannot be pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error("{0}: a payload directory is no image; put it into one first (docs/auto-upgrade.md)")]
    Directory(SourceRef),
    #[error("{0}: it is in a registry; {PULL}")]
    Registry(SourceRef),
    #[error("{to}: the image in {from} has the digest sha256:{found}")]
    OtherDigest { to: ImageRef, from: SourceRef, found: Sha256 },
}

const PULL: &str = "copy it into a layout first, with `installer pull`";

impl PushError {
    /// The remedy, as the message ends with it.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            PushError::Registry(_) => Some(PULL),
            PushError::Directory(_) | PushError::OtherDigest { .. } => None,
        }
    }
}

pub fn run(request: &PushRequest, observer: &mut dyn Observer) -> Result<PushReport, Failure> {
    let PushRequest { source, to, registry } = request;
    match source {
        SourceRef::Oci(..) | SourceRef::OciArchive(..) => {}
        SourceRef::Dir(_) => return Err(PushError::Directory(source.clone())).or_fail(FailureKind::Input),
        SourceRef::Docker(_) => return Err(PushError::Registry(source.clone())).or_fail(FailureKind::Unsupported),
    }
    let target = SourceRef::Docker(to.clone());
    let failed = |e: ImageError| source_failure(source, e.into());
    let image = image_store(source, registry).and_then(WholeImage::open).map_err(failed)?;
    if to.digest.is_some_and(|digest| digest != image.digest()) {
        let (to, from, found) = (to.clone(), source.clone(), image.digest());
        return Err(PushError::OtherDigest { to, from, found }).or_fail(FailureKind::Input);
    }
    let there = Registry::to_push(to, registry).map_err(|e| source_failure(&target, e.into()))?;
    observer.phase(&format!("push       {source} to {target}"), image.bytes());
    let signable = |digest| {
        let one = there.of_digest(digest);
        Ok(Signable::new(WholeImage::open(Box::new(one))?, Box::new(there.clone())))
    };
    // A digest alone names the image already.
    let tag = match to.digest {
        Some(_) => to.tag.clone(),
        None => Some(to.wanted()),
    };
    let named = tag.as_ref().map(|tag| there.tagged_as(tag));
    let tag = tag.as_deref().zip(named.as_ref().map(|named| named as &dyn ImageStore));
    let pushed = push(&image, &signable, &there, tag, &mut |n| observer.advance(n));
    let pushed = pushed.map_err(|e| source_failure(&target, e.into()))?;
    pushed.left.iter().for_each(|left| observer.note(&format!("not copied: {left}")));
    Ok(PushReport {
        source: source.to_string(),
        to: target.to_string(),
        digest: pushed.digest,
        sent_bytes: pushed.sent,
        kept_bytes: pushed.kept,
        signatures: pushed.signatures,
        left_behind: pushed.left,
    })
}
