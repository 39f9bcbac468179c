//! Opens a source and examines its payload, with progress and the right exit code.

use slipway_core::{
    kernel::arch::Arch,
    payload::{facts::PayloadFacts, signer::FoundSignature},
    report::{FailureKind, Observer},
};

use super::{SourceRequest, TrustRequest, trust};
use crate::{
    device::RateLimiter,
    error::{Failure, OrFail as _},
    payload::{
        ChecksumPolicy, PayloadError, Source, SourceRef,
        image::{ImageError, Inspection},
        registry::Options,
    },
    trust::Evidence,
};

pub struct OpenSource {
    named: SourceRef,
    source: Source,
    trust: TrustRequest,
    // What was asked for before it is needed.
    evidence: Option<Evidence>,
}

pub struct Payload {
    pub source: Source,
    pub facts: PayloadFacts,
}

/// Without a source in the request it opens /usr/install/ARCH, where installer container images keep their payload.
pub fn open(request: &SourceRequest, arch: Arch) -> Result<OpenSource, Failure> {
    let named = request.source.clone().unwrap_or_else(|| SourceRef::default_of(arch));
    is_there(&named, arch, "--source")?;
    open_ref(named, arch, &request.registry, &request.trust)
}

/// Explains why the default payload is missing outside a container image. `other` is the flag that names another one.
pub fn is_there(named: &SourceRef, arch: Arch, other: &'static str) -> Result<(), Failure> {
    match named {
        SourceRef::Dir(dir) if *named == SourceRef::default_of(arch) && !dir.exists() => {
            Err(PayloadError::NoneHere { path: dir.clone(), other }).or_fail(FailureKind::Input)
        }
        _ => Ok(()),
    }
}

pub fn open_ref(named: SourceRef, arch: Arch, options: &Options, trust: &TrustRequest) -> Result<OpenSource, Failure> {
    match Source::open(&named, arch, options) {
        Ok(source) => Ok(OpenSource { named, source, trust: trust.clone(), evidence: None }),
        Err(e) => Err(failure(&named, e.into())),
    }
}

impl OpenSource {
    pub const fn named(&self) -> &SourceRef {
        &self.named
    }

    /// The signatures that lie beside the payload, whoever made them.
    pub fn signatures(&mut self) -> Result<Vec<FoundSignature>, Failure> {
        let evidence = self.source.evidence().map_err(|e| failure(&self.named, e))?;
        let found = trust::found(&self.trust, &self.named, &evidence);
        self.evidence = Some(evidence);
        Ok(found)
    }

    /// `limiter` counts reading, because the payload may lie on the disk whose use is limited.
    pub fn look(
        mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        limiter: Option<&RateLimiter>,
        observer: &mut dyn Observer,
    ) -> Result<Payload, Failure> {
        // First of all: what nobody has signed is not even looked at.
        let evidence = || match self.evidence.take() {
            Some(evidence) => Ok(evidence),
            None => self.source.evidence().map_err(|e| failure(&self.named, e)),
        };
        let signed_by = trust::signers(&self.trust, &self.named, evidence, observer)?;
        // What a signature is over is compared before the first write. From a registry that would fetch everything twice; there
        // the digest that is signed is that of the image, and each layer is compared on its way.
        let inspection = match &self.named {
            SourceRef::Docker(_) => inspection,
            _ if signed_by.is_empty() => inspection,
            _ => Inspection::Everything,
        };
        observer.phase(&format!("check      payload {}", self.named), self.source.bytes(inspection));
        let facts = self.source.facts(policy, inspection, &mut |bytes| {
            if let Some(limiter) = limiter {
                limiter.wait(bytes);
            }
            observer.advance(bytes);
        });
        let facts = facts.map_err(|e| failure(&self.named, e))?;
        if let Some(note) = self.source.unused() {
            observer.note(&note);
        }
        Ok(Payload { source: self.source, facts: PayloadFacts { signed_by, ..facts } })
    }
}

/// Maps a failure to the public exit codes. A registry that does not deliver is a failed dependency; a local image that
/// cannot be read or written is a problem of the environment; a wrong reference or image is wrong input.
pub fn failure(source: &SourceRef, error: anyhow::Error) -> Failure {
    let kind = match (error.downcast_ref::<ImageError>(), source) {
        (Some(ImageError::Fetch { .. } | ImageError::Denied { .. }), _)
        | (Some(ImageError::NotFound { .. }), SourceRef::Docker(_)) => FailureKind::Dependency,
        (Some(ImageError::Io { .. }), _) => FailureKind::Environment,
        _ => FailureKind::Input,
    };
    Failure { kind, error }
}
