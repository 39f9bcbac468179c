//! Writes SHA256SUMS and manifest.json for a payload directory.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    TrustRequest,
    payload::{self, Payload},
};
use crate::{
    error::{Failure, OrFail as _},
    payload::{
        ChecksumPolicy, SourceRef, TEXTS,
        image::Inspection,
        registry::Options,
        side_file::{publish, side},
    },
};
use slipway_core::{
    digest::{self, Sha256},
    kernel::arch::Arch,
    payload::{
        components::{Component, Components},
        manifest::{self, MANIFEST, Manifest, SHA256SUMS, SHA256SUMS_SIG},
    },
    report::{ChecksumReport, FailureKind, Observer},
};

/// Without an `epoch` that of the manifest.json there stays, and so do its components without a change.
pub fn run(
    dir: &Path,
    epoch: Option<u32>,
    components: Vec<Component>,
    observer: &mut dyn Observer,
) -> Result<ChecksumReport, Failure> {
    let list = dir.join(SHA256SUMS);
    // An old SHA256SUMS is ignored, because it is about to be replaced.
    let opened =
        payload::open_ref(SourceRef::Dir(dir.to_owned()), Arch::NATIVE, &Options::default(), &TrustRequest::default())?;
    let Payload { facts, .. } = opened.look(ChecksumPolicy::Ignored, Inspection::Everything, None, observer)?;
    let old = fs::read(dir.join(MANIFEST)).unwrap_or_default();
    if let Some(lack) = facts.stub_lack {
        observer.note(&format!("under UEFI Slipway's own loader does not start the kernel: {lack}"));
    }
    let manifest = Manifest {
        epoch: epoch.or_else(|| manifest::epoch(&old).ok()).unwrap_or_default(),
        components: Components::of_manifest(&old).with(components),
        ..facts.manifest()
    };
    let text = manifest.render();
    let mut sums = digest::Sums(facts.files.iter().map(|f| (f.name.clone(), f.sha256)).collect());
    for name in TEXTS {
        if let Ok(bytes) = fs::read(dir.join(name)) {
            sums.0.insert(name.to_owned(), Sha256::of(&bytes));
        }
    }
    sums.0.insert(MANIFEST.to_owned(), Sha256::of(text.as_bytes()));
    let files = [(dir.join(MANIFEST), text), (list, sums.render())];
    let old = fs::read(&files[1].0).ok();
    write(dir, &files)?;
    if old.is_some_and(|old| old != files[1].1.as_bytes()) && dir.join(SHA256SUMS_SIG).exists() {
        observer.note(&format!("{SHA256SUMS_SIG} is over another list: remove it, and sign again"));
    }
    Ok(ChecksumReport {
        payload: manifest.payload_digest(),
        version: manifest.version,
        epoch: manifest.epoch,
        components: manifest.components,
        dir: dir.display().to_string(),
        written: files.map(|(path, _)| path.display().to_string()).to_vec(),
    })
}

/// Replaces these files durably, or none if there is no room for all. After a power cut between two renames the old list
/// does not match the new manifest, and such a payload is refused.
pub(super) fn write(dir: &Path, files: &[(PathBuf, String)]) -> Result<(), Failure> {
    replace(dir, files).with_context(|| format!("writing into {}", dir.display())).or_fail(FailureKind::Environment)
}

fn replace(dir: &Path, files: &[(PathBuf, String)]) -> io::Result<()> {
    let new = |(_, text): &(PathBuf, String)| {
        let make = || tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o644)).tempfile_in(dir);
        let mut file = side(make, |file| file.path().to_owned())?;
        file.as_file_mut().write_all(text.as_bytes())?;
        // A lack of room shows here at the latest, before either file is replaced.
        file.as_file().sync_all()?;
        Ok(file)
    };
    let written = files.iter().map(new).collect::<io::Result<Vec<_>>>()?;
    written.into_iter().zip(files).try_for_each(|(file, (path, _))| publish(file, path, true))
}
