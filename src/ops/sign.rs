//! Signs a payload directory, another directory with a list of its files, or an image in an OCI layout or a registry. The
//! content is verified first, to its last byte.

use std::path::Path;

use super::{
    checksum::write,
    signing::{self, SigningRequest},
    source_failure,
};
use crate::{
    error::{Failure, OrFail as _},
    payload::{
        ChecksumPolicy, DirSource, SourceRef, WRAPPED_COLUMNS,
        image::{ImageError, Inspection, LayoutSink, Local, Signable, SignedLayer, WholeImage},
        registry::{Options, Registry},
    },
    trust::{SigningKey, simple_signing, text_of},
};
use slipway_core::{
    digest::Sha256,
    payload::{
        manifest::{SHA256SUMS, SHA256SUMS_SIG},
        signer::Signer,
    },
    report::{FailureKind, Observer, SignReport},
};

#[derive(Clone, Debug)]
pub struct SignRequest {
    /// A directory, or an image in a layout or a registry.
    pub target: SourceRef,
    pub signing: SigningRequest,
    pub registry: Options,
    /// The repository that signatures of an image name. Of one in a registry it is its own, unless another is given.
    pub identity: Option<String>,
}

/// Why a payload cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("{0}: nothing can be added to an archive; {COPY}")]
    Archive(SourceRef),
    #[error("{0}: an attestation is about a container image: oci:DIR[:TAG] or docker://HOST/REPOSITORY[:TAG]")]
    NoImage(SourceRef),
    #[error("{0}: a directory's signature names no repository: --identity is for an image")]
    Identity(SourceRef),
    #[error("--identity {0:?} names no repository: write it as a policy does, such as registry.example/os")]
    Unnamed(String),
    #[error("{0}: it has no {SHA256SUMS}: {LIST}")]
    NoChecksums(SourceRef),
}

const COPY: &str = "copy the image into a layout with `installer pull`, and sign it there";
const LIST: &str = "run `installer checksum DIR` first";

impl SignError {
    /// The remedy, as the message ends with it.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            SignError::Archive(_) => Some(COPY),
            SignError::NoChecksums(_) => Some(LIST),
            SignError::NoImage(_) | SignError::Identity(_) | SignError::Unnamed(_) => None,
        }
    }
}

pub fn run(request: &SignRequest, observer: &mut dyn Observer) -> Result<SignReport, Failure> {
    let (target, identity) = (&request.target, request.identity.as_deref());
    if let Some(wrong) = identity.filter(|named| named.is_empty() || named.contains("://")) {
        return Err(SignError::Unnamed(wrong.to_owned())).or_fail(FailureKind::Input);
    }
    match target {
        SourceRef::Dir(_) if identity.is_some() => Err(SignError::Identity(target.clone())).or_fail(FailureKind::Input),
        SourceRef::Dir(dir) => directory(dir, target, &signing::keys(&request.signing, observer)?, observer),
        SourceRef::OciArchive(..) => Err(SignError::Archive(target.clone())).or_fail(FailureKind::Unsupported),
        SourceRef::Oci(..) | SourceRef::Docker(_) => {
            image(request, &signing::keys(&request.signing, observer)?, observer)
        }
    }
}

/// A signature that was made, in base64.
fn made(key: &SigningKey, message: &[u8]) -> Result<String, Failure> {
    key.sign(message).map(|raw| text_of(&raw)).or_fail(FailureKind::Dependency)
}

pub(super) fn signers(keys: &[SigningKey], over: Sha256) -> Vec<Signer> {
    let keys = keys.iter().map(SigningKey::public_key);
    keys.map(|key| Signer { key: key.id, name: key.name.clone(), over }).collect()
}

/// Whether one of the keys made this. It is then replaced by the new one.
fn is_ours(keys: &[SigningKey], signed: &[u8], signature: &[u8]) -> bool {
    keys.iter().any(|key| key.public_key().verifies(signed, signature))
}

fn directory(
    dir: &Path,
    target: &SourceRef,
    keys: &[SigningKey],
    observer: &mut dyn Observer,
) -> Result<SignReport, Failure> {
    // The list is read once. The files are compared with the very bytes that are signed.
    let mut source = DirSource::new(dir);
    source.evidence().or_fail(FailureKind::Input)?;
    let Some(sums) = source.list().map(<[u8]>::to_vec) else {
        return Err(SignError::NoChecksums(target.clone())).or_fail(FailureKind::Input);
    };
    if source.is_payload().or_fail(FailureKind::Input)? {
        observer.phase(&format!("check      payload {target}"), source.bytes());
        let compared = source.facts(ChecksumPolicy::Required, Inspection::Everything, |bytes| observer.advance(bytes));
        compared.or_fail(FailureKind::Input)?;
    } else {
        observer.phase(&format!("check      files of {target}"), source.bytes());
        source.compare(|bytes| observer.advance(bytes)).or_fail(FailureKind::Input)?;
    }
    let ours = keys.iter().map(|key| made(key, &sums)).collect::<Result<Vec<_>, _>>()?;
    // Only now: a command may take its time, and others may sign meanwhile.
    let evidence = DirSource::new(dir).evidence().or_fail(FailureKind::Input)?;
    let others = evidence.signatures.iter().filter(|found| !is_ours(keys, &found.signed, &found.signature));
    let others: Vec<_> = others.map(|found| text_of(&found.signature)).collect();
    // A line that is too short for a signature would have the file taken for one raw signature.
    let (mut lines, junk): (Vec<_>, Vec<_>) = others.into_iter().partition(|line| line.len() > WRAPPED_COLUMNS);
    if !junk.is_empty() {
        observer.note(&format!("{SHA256SUMS_SIG} had something in it that is no signature: it is left out"));
    }
    let kept = lines.len();
    lines.extend(ours);
    let path = dir.join(SHA256SUMS_SIG);
    write(dir, &[(path.clone(), lines.join("\n") + "\n")])?;
    let over = Sha256::of(&sums);
    let written = path.display().to_string();
    Ok(SignReport {
        target: target.to_string(),
        over,
        predicate_type: None,
        signed_by: signers(keys, over),
        kept,
        written,
    })
}

fn image(request: &SignRequest, keys: &[SigningKey], observer: &mut dyn Observer) -> Result<SignReport, Failure> {
    let target = &request.target;
    let failed = |e| source_failure(target, anyhow::Error::new(e));
    let own = match target {
        SourceRef::Docker(image) => image.place(),
        _ => String::new(),
    };
    let identity = request.identity.as_deref().unwrap_or(&own);
    let opened = signable(target, &request.registry).map_err(failed)?;
    let (image, place) = opened.ok_or_else(|| SignError::NoImage(target.clone())).or_fail(FailureKind::Input)?;
    observer.phase(&format!("check      image {target}"), image.bytes());
    image.check(&mut |bytes| observer.advance(bytes)).map_err(failed)?;
    let document = simple_signing::document(image.digest(), identity);
    let signed = |key| SignedLayer::new(document.clone(), made(key, &document)?).map_err(failed);
    let ours = keys.iter().map(signed).collect::<Result<Vec<_>, _>>()?;
    // Only now, as above.
    let mut layers = image.layers().map_err(failed)?;
    layers.retain(|layer| {
        !layer.signature.as_ref().is_some_and(|signature| is_ours(keys, &layer.document, signature.as_bytes()))
    });
    let kept = layers.iter().filter(|layer| layer.signature.is_some()).count();
    layers.extend(ours);
    image.put(&layers).map_err(failed)?;
    Ok(SignReport {
        target: target.to_string(),
        over: image.digest(),
        predicate_type: None,
        signed_by: signers(keys, image.digest()),
        kept,
        written: format!("{place}:{}", image.tag()),
    })
}

/// An image that can be signed, and the place's name for people: `oci:DIR` or `docker://HOST/REPOSITORY`. `None`: the
/// source is no such image.
pub(super) fn signable(target: &SourceRef, options: &Options) -> Result<Option<(Signable, String)>, ImageError> {
    Ok(match target {
        SourceRef::Oci(dir, wanted) => {
            let store = Local::directory(dir, wanted.clone(), target.to_string())?;
            let signable = Signable::new(WholeImage::open(Box::new(store))?, Box::new(LayoutSink::new(dir)));
            Some((signable, format!("oci:{}", dir.display())))
        }
        SourceRef::Docker(image) => {
            let registry = Registry::to_push(image, options)?;
            let place = format!("docker://{}/{}", image.host, image.repository);
            Some((Signable::new(WholeImage::open(Box::new(registry.clone()))?, Box::new(registry)), place))
        }
        SourceRef::Dir(_) | SourceRef::OciArchive(..) => None,
    })
}
