//! Opens a source and examines its payload, with progress and the right exit code.

use slipway_core::{
    kernel::arch::Arch,
    payload::{facts::PayloadFacts, format_checks::unconfirmed_note, signer::FoundSignature},
    report::{FailureKind, Observer},
};

use super::{
    SourceRequest, TrustRequest, source_failure,
    trust::{self, Demand, Located},
};
use crate::{
    device::RateLimiter,
    error::{Failure, OrFail as _},
    payload::{ChecksumPolicy, PayloadError, Source, SourceRef, delta::Old, image::Inspection, registry::Options},
    trust::Evidence,
};

pub struct OpenSource {
    located: Located,
    source: Source,
    trust: TrustRequest,
    // The demands, and the signatures, that were read ahead of their use.
    demands: Option<Result<Vec<Demand>, Failure>>,
    evidence: Option<Evidence>,
}

pub struct Payload {
    pub source: Source,
    pub facts: PayloadFacts,
}

/// Without a source in the request it opens /usr/install/ARCH, where installer container images keep their payload.
pub fn open(request: &SourceRequest, arch: Arch) -> Result<OpenSource, Failure> {
    let named = request.named(arch);
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
    let located = Located::new(&named, trust);
    match Source::open(&located.source, arch, options) {
        Ok(source) => Ok(OpenSource { located, source, trust: trust.clone(), demands: None, evidence: None }),
        Err(e) => Err(source_failure(&located.source, e.into())),
    }
}

impl OpenSource {
    pub const fn named(&self) -> &SourceRef {
        &self.located.source
    }

    /// The signatures that lie beside the payload, by any key.
    pub fn signatures(&mut self, observer: &mut dyn Observer) -> Result<Vec<FoundSignature>, Failure> {
        let evidence = self.source.evidence().map_err(|e| source_failure(&self.located.source, e))?;
        let demands = trust::demands(&self.trust, &self.located);
        // The look reports faults of the keys.
        let found = trust::found(demands.as_deref().unwrap_or_default(), &evidence);
        evidence.faults.iter().for_each(|fault| observer.note(&format!("passed over: {fault}")));
        if let Some(error) = &evidence.unanswered {
            observer.note(&format!("it is unknown whether these are all signatures: {error}"));
        }
        (self.demands, self.evidence) = (Some(demands), Some(evidence));
        Ok(found)
    }

    /// `limiter` counts reading, because the payload may lie on the disk whose use is limited.
    pub fn look(
        self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        limiter: Option<&RateLimiter>,
        observer: &mut dyn Observer,
    ) -> Result<Payload, Failure> {
        self.look_until(policy, inspection, |_| true, None, limiter, observer)
    }

    /// Looks for a verb that may write nothing: no write compares a layer then. So all of an image is read if its
    /// declarations are not `enough`, as far as possible from the disk.
    pub fn look_until(
        mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        enough: impl FnOnce(&PayloadFacts) -> bool,
        old: Option<&Old<'_>>,
        limiter: Option<&RateLimiter>,
        observer: &mut dyn Observer,
    ) -> Result<Payload, Failure> {
        // First of all: an unsigned payload is not even looked at.
        let evidence = || match self.evidence.take() {
            Some(evidence) => Ok(evidence),
            None => self.source.evidence().map_err(|e| source_failure(&self.located.source, e)),
        };
        let demands = self.demands.take().unwrap_or_else(|| trust::demands(&self.trust, &self.located))?;
        let signed_by = trust::signers(&self.trust, &self.located, &demands, evidence, observer)?;
        // The signed bytes are compared before the first write. From a registry that would fetch everything twice;
        // there the digest that is signed is that of the image, and each layer is compared on its way.
        let inspection = match &self.located.source {
            SourceRef::Docker(_) => inspection,
            _ if signed_by.is_empty() => inspection,
            _ => Inspection::Everything,
        };
        let mut facts = self.facts(policy, inspection, None, limiter, observer)?;
        let is_image = !matches!(self.located.source, SourceRef::Dir(_));
        let signed = |facts| PayloadFacts { signed_by: signed_by.clone(), ..facts };
        if is_image && inspection == Inspection::Declared && !enough(&signed(facts.clone())) {
            facts = self.facts(policy, Inspection::Everything, old, limiter, observer)?;
        }
        if let Some(note) = self.source.unused() {
            observer.note(&note);
        }
        unconfirmed_note(&facts.unconfirmed).iter().chain(&facts.init_note()).for_each(|note| observer.note(note));
        let facts = signed(facts);
        Ok(Payload { source: self.source, facts })
    }

    fn facts(
        &mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        old: Option<&Old<'_>>,
        limiter: Option<&RateLimiter>,
        observer: &mut dyn Observer,
    ) -> Result<PayloadFacts, Failure> {
        observer.phase(&format!("check      payload {}", self.located.source), self.source.bytes(inspection));
        let mut progress = |bytes| {
            if let Some(limiter) = limiter {
                limiter.wait(bytes);
            }
            observer.advance(bytes);
        };
        let facts = match old {
            None => self.source.facts(policy, inspection, &mut progress),
            Some(old) => match self.source.facts_over(policy, old, &mut progress) {
                Err(error) if old.is_to_blame(&error) => self.source.facts(policy, inspection, &mut progress),
                facts => facts,
            },
        };
        old.iter().flat_map(|old| old.said.why()).for_each(|why| observer.note(&why));
        facts.map_err(|e| source_failure(&self.located.source, e))
    }
}
