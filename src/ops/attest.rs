//! Attests something about an image in an OCI layout or a registry, signed. The image is verified first, to its last
//! byte.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    sign::signable,
    sign::{SignError, signers},
    signing::{self, SigningRequest},
    source_failure,
};
use crate::{
    error::{Failure, OrFail as _},
    payload::{SourceRef, image::MAX_DOCUMENT_BYTES, registry::Options},
    trust::{PredicateType, attested, bundle_of, statement},
};
use slipway_core::report::{FailureKind, Observer, SignReport};

#[derive(Clone, Debug)]
pub struct AttestRequest {
    /// An image in a layout or a registry.
    pub target: SourceRef,
    /// A file with a JSON object.
    pub predicate: PathBuf,
    pub predicate_type: PredicateType,
    pub signing: SigningRequest,
    pub registry: Options,
}

/// Why a predicate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PredicateError {
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path}: it has {bytes} bytes, and no reader takes a bundle of more than {} MiB", MAX_DOCUMENT_BYTES >> 20, path = path.display())]
    Large { path: PathBuf, bytes: u64 },
    #[error("{path}: not a JSON object", path = path.display())]
    NoObject { path: PathBuf },
}

pub fn run(request: &AttestRequest, observer: &mut dyn Observer) -> Result<SignReport, Failure> {
    let AttestRequest { target, predicate, predicate_type, signing, registry } = request;
    match target {
        SourceRef::Oci(..) | SourceRef::Docker(_) => {}
        SourceRef::Dir(_) => return Err(SignError::NoImage(target.clone())).or_fail(FailureKind::Input),
        SourceRef::OciArchive(..) => return Err(SignError::Archive(target.clone())).or_fail(FailureKind::Unsupported),
    }
    let predicate_text = read(predicate).or_fail(FailureKind::Input)?;
    let keys = signing::keys(signing, observer)?;
    let failed = |e| source_failure(target, anyhow::Error::new(e));
    let opened = signable(target, registry).map_err(failed)?;
    let (image, place) = opened.ok_or_else(|| SignError::NoImage(target.clone())).or_fail(FailureKind::Input)?;
    observer.phase(&format!("check      image {target}"), image.bytes());
    image.check(&mut |bytes| observer.advance(bytes)).map_err(failed)?;
    let said = statement(image.digest(), predicate_type, &predicate_text)
        .ok_or_else(|| PredicateError::NoObject { path: predicate.clone() })
        .or_fail(FailureKind::Input)?;
    let (mut replaced, mut kept) = (Vec::new(), 0);
    for bundle in image.bundles().map_err(failed)? {
        match attested(&bundle.signed) {
            Some(claim) if claim.predicate_type == predicate_type.to_string() => {}
            _ => continue,
        }
        let ours =
            |signature: &String| keys.iter().any(|key| key.public_key().verifies(&bundle.signed, signature.as_bytes()));
        match bundle.signatures.iter().any(ours) {
            true => replaced.push(bundle.manifest),
            false => kept += 1,
        }
    }
    let bundles = keys.iter().map(|key| bundle_of(&said, key).or_fail(FailureKind::Dependency));
    let bundles = bundles.collect::<Result<Vec<_>, _>>()?;
    let tag = image.attach(&bundles, &predicate_type.to_string(), &replaced).map_err(failed)?;
    Ok(SignReport {
        target: target.to_string(),
        over: image.digest(),
        predicate_type: Some(predicate_type.to_string()),
        signed_by: signers(&keys, image.digest()),
        kept,
        written: format!("{place}:{tag}"),
    })
}

/// In base64 a statement grows by a third.
const MAX_PREDICATE_BYTES: u64 = MAX_DOCUMENT_BYTES / 4 * 3 - (64 << 10);

fn read(path: &Path) -> Result<String, PredicateError> {
    let failed = |source| PredicateError::Unreadable { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(failed)?.len();
    if bytes > MAX_PREDICATE_BYTES {
        return Err(PredicateError::Large { path: path.to_owned(), bytes });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    // Some editors begin a file with a mark.
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}
