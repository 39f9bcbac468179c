//! Copies a container image into an OCI image layout.

use std::{path::PathBuf, time::Duration};

use super::{
    DiskRequest, TrustRequest, source_failure,
    trust::{self, Located},
};
use crate::{
    device::Disk,
    error::Failure,
    execute::{Slots, old_of},
    payload::{LayoutRef, SourceRef, image::Pull, image_store, registry::Options},
    probe,
};
use slipway_core::{
    disk::own::NoDisk,
    kernel::arch::Arch,
    report::{Observer, PullReport},
    units::Extent,
};

#[derive(Clone, Debug)]
pub struct PullRequest {
    pub source: SourceRef,
    pub to: LayoutRef,
    /// Chooses from an image that has several architectures.
    pub arch: Arch,
    /// A disk whose slots may hold parts of it. The inner `None`: the one that the system was booted from.
    pub reuse: Option<Option<PathBuf>>,
    pub registry: Options,
    pub trust: TrustRequest,
}

pub fn run(request: &PullRequest, observer: &mut dyn Observer) -> Result<PullReport, Failure> {
    let located = Located::new(&request.source, &request.trust);
    let store =
        image_store(&located.source, &request.registry).map_err(|e| source_failure(&request.source, e.into()))?;
    let pull = Pull::new(&*store, request.arch).map_err(|e| source_failure(&request.source, e.into()))?;
    let demands = trust::demands(&request.trust, &located)?;
    trust::signers(&request.trust, &located, &demands, || Ok(pull.evidence()), observer)?;
    let left = pull.left_platforms();
    if !left.is_empty() {
        let left = left.join(", ");
        observer.note(&format!(
            "not copied: the image for {left}. A tag that this copy is pushed to has it no more: push to a tag of its own, and \
             join them there"
        ));
    }
    observer.phase(&format!("pull       {} into {}", request.source, request.to), pull.bytes());
    let slots = request.reuse.as_ref().and_then(|named| match slots(named.clone(), observer) {
        Ok(slots) => Some(slots),
        Err(why) => {
            let why = match why.error.downcast_ref::<NoDisk>() {
                Some(none) => none.asking_for("--reuse=PATH"),
                None => why.to_string(),
            };
            observer.note(&format!("nothing is reused: {why}"));
            None
        }
    });
    let reading = slots.as_ref().map(|(disk, files)| (Slots(disk), files));
    let old = reading.as_ref().map(|(slots, files)| old_of(files, slots));
    let pulled = pull.into(&request.to.dir, request.to.tag.as_deref(), old.as_ref(), &mut |n| observer.advance(n));
    old.iter().flat_map(|old| old.said.why()).for_each(|why| observer.note(&why));
    let pulled = pulled.map_err(|e| source_failure(&request.source, e.into()))?;
    pulled.left.iter().for_each(|left| observer.note(&format!("not copied: {left}")));
    if let Some(error) = &pulled.unknown {
        let copied = if pulled.signatures == 0 { "no signatures" } else { "perhaps not all signatures" };
        observer.note(&format!("{copied} were copied; it is unknown whether there are more: {error}"));
    }
    Ok(PullReport {
        source: request.source.to_string(),
        to: request.to.to_string(),
        manifest: pulled.manifest,
        fetched_bytes: pulled.fetched,
        reused_bytes: pulled.reused,
        kept_bytes: pulled.kept,
        signatures: pulled.signatures,
        signatures_unknown: pulled.unknown.map(|error| error.to_string()),
        left_behind: pulled.left,
    })
}

/// A disk, and the places of the files in its slots. They are read without a lock: each chunk is compared with its digest.
fn slots(named: Option<PathBuf>, observer: &mut dyn Observer) -> Result<(Disk, Vec<Vec<Extent>>), Failure> {
    let request = DiskRequest::for_disk(named, Duration::ZERO, observer)?;
    let disk = request.look()?;
    let gpt = super::ours(probe::gpt(&disk), &request.path.display().to_string())?;
    let files = probe::slot_files(&disk, &gpt);
    Ok((disk, files))
}
