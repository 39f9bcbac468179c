//! Copies a container image into an OCI image layout.

use super::{
    TrustRequest,
    source_failure::source_failure,
    trust::{self, Located},
};
use crate::{
    error::Failure,
    payload::{LayoutRef, SourceRef, image::Pull, image_store, registry::Options},
};
use slipway_core::{
    kernel::arch::Arch,
    report::{Observer, PullReport},
};

#[derive(Clone, Debug)]
pub struct Request {
    pub source: SourceRef,
    pub to: LayoutRef,
    /// Chooses from an image that has several architectures.
    pub arch: Arch,
    pub registry: Options,
    pub trust: TrustRequest,
}

pub fn run(request: &Request, observer: &mut dyn Observer) -> Result<PullReport, Failure> {
    let located = Located::new(&request.source, &request.trust);
    let store =
        image_store(&located.source, &request.registry).map_err(|e| source_failure(&request.source, e.into()))?;
    let pull = Pull::new(&*store, request.arch).map_err(|e| source_failure(&request.source, e.into()))?;
    trust::signers(&request.trust, &located, || Ok(pull.evidence()), observer)?;
    observer.phase(&format!("pull       {} into {}", request.source, request.to), pull.bytes());
    let pulled = pull.into(&request.to.dir, request.to.tag.as_deref(), &mut |n| observer.advance(n));
    let pulled = pulled.map_err(|e| source_failure(&request.source, e.into()))?;
    pulled.left.iter().for_each(|left| observer.note(&format!("not copied: {left}")));
    if let Some(error) = &pulled.unknown {
        let copied = if pulled.signatures == 0 { "no signatures" } else { "perhaps not all signatures" };
        observer.note(&format!("{copied} were copied: whether there are any more is not known: {error}"));
    }
    Ok(PullReport {
        source: request.source.to_string(),
        to: request.to.to_string(),
        manifest: pulled.manifest,
        fetched_bytes: pulled.fetched,
        kept_bytes: pulled.kept,
        signatures: pulled.signatures,
        signatures_unknown: pulled.unknown.map(|error| error.to_string()),
        left_behind: pulled.left,
    })
}
