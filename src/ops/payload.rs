//! Opening a source and looking at its payload, with progress and the right exit code.

use slipway_core::{
    kernel::arch::Arch,
    payload::facts::PayloadFacts,
    report::{FailureKind, Observer},
};

use super::{SourceRequest, input};
use crate::{
    device::RateLimiter,
    error::Failure,
    payload::{
        ChecksumPolicy, Source, SourceRef,
        image::{ImageError, Inspection},
        registry::Options,
    },
};

/// A source that is open.
pub struct OpenSource {
    named: SourceRef,
    source: Source,
}

/// A payload that was looked at.
pub struct Payload {
    /// Where its bytes come from.
    pub source: Source,
    /// What is known of it.
    pub facts: PayloadFacts,
}

/// Open the source that was asked for, else the one a container image carries. A reference that leads nowhere fails here.
pub fn open(request: &SourceRequest, arch: Arch) -> Result<OpenSource, Failure> {
    let named = request.source.clone().unwrap_or_else(|| SourceRef::default_of(arch));
    is_there(&named, arch, "--source")?;
    open_ref(named, arch, &request.registry)
}

/// Refuse the payload that a container image carries, outside of such an image; `other` names another.
pub fn is_there(named: &SourceRef, arch: Arch, other: &str) -> Result<(), Failure> {
    match named {
        SourceRef::Dir(dir) if *named == SourceRef::default_of(arch) && !dir.exists() => input(Err(format!(
            "{}: missing; a container image with a payload has it there: name another by {other}",
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// Open this source.
pub fn open_ref(named: SourceRef, arch: Arch, options: &Options) -> Result<OpenSource, Failure> {
    match Source::open(&named, arch, options) {
        Ok(source) => Ok(OpenSource { named, source }),
        Err(e) => Err(failure(&named, e.into())),
    }
}

impl OpenSource {
    /// What it was opened by.
    pub const fn named(&self) -> &SourceRef {
        &self.named
    }

    /// Look at the payload, no faster than `limiter` allows: it may lie on the disk that is to be spared.
    pub fn look(
        mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        limiter: Option<&RateLimiter>,
        observer: &mut dyn Observer,
    ) -> Result<Payload, Failure> {
        observer.phase(&format!("check      payload {}", self.named), self.source.bytes(inspection));
        let facts = self.source.facts(policy, inspection, &mut |bytes| {
            if let Some(limiter) = limiter {
                limiter.wait(bytes);
            }
            observer.advance(bytes);
        });
        let facts = facts.map_err(|e| failure(&self.named, e))?;
        Ok(Payload { source: self.source, facts })
    }
}

/// What a registry does not deliver is a dependency, a local image that cannot be read or written the environment, and what
/// is wrong with the reference or the image wrong input.
pub fn failure(source: &SourceRef, error: anyhow::Error) -> Failure {
    let kind = match (error.downcast_ref::<ImageError>(), source) {
        (Some(ImageError::Fetch { .. }), _) | (Some(ImageError::NotFound { .. }), SourceRef::Docker(_)) => {
            FailureKind::Dependency
        }
        (Some(ImageError::Io { .. }), _) => FailureKind::Environment,
        _ => FailureKind::Input,
    };
    Failure { kind, error }
}
