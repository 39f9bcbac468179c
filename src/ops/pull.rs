//! Copies a container image into an OCI image layout.

use super::{TrustRequest, payload::failure, trust};
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
    let store = image_store(&request.source, &request.registry).map_err(|e| failure(&request.source, e.into()))?;
    let pull = Pull::new(&*store, request.arch).map_err(|e| failure(&request.source, e.into()))?;
    let evidence = || pull.evidence().map_err(|e| failure(&request.source, e.into()));
    trust::signers(&request.trust, &request.source, evidence, observer)?;
    observer.phase(&format!("pull       {} into {}", request.source, request.to), pull.bytes());
    let pulled = pull.into(&request.to.dir, request.to.tag.as_deref(), &mut |n| observer.advance(n));
    let pulled = pulled.map_err(|e| failure(&request.source, e.into()))?;
    if let Some(error) = &pulled.unknown {
        observer.note(&format!("no signatures were copied: whether there are any is not known: {error}"));
    }
    Ok(PullReport {
        source: request.source.to_string(),
        to: request.to.to_string(),
        manifest: pulled.manifest,
        fetched_bytes: pulled.fetched,
        kept_bytes: pulled.kept,
        signatures: pulled.signatures,
    })
}
