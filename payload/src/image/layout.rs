//! Writes into an OCI layout directory. A file gets its name only once it is complete and flushed.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    str::FromStr as _,
};

use nix::fcntl::{Flock, FlockArg};
use oci_spec::image::{Descriptor, ImageIndex, ImageIndexBuilder, MediaType, Sha256Digest};

use super::{
    ImageError,
    local::REF_NAME,
    store::{read_document, sha256_of},
};
use crate::{
    open_regular,
    side_file::{publish, side},
};
use slipway_core::digest::Sha256;

pub fn write_blob(
    mut blob: impl io::Read,
    what: &str,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    replace_durably(path, |file| {
        let mut buf = vec![0; 256 << 10];
        loop {
            let n = blob.read(&mut buf).map_err(|e| ImageError::of_io(what, e))?;
            if n == 0 {
                return Ok(());
            }
            file.write_all(&buf[..n]).map_err(|e| io_error(path, e))?;
            progress(n as u64);
        }
    })
}

pub fn write(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    replace_durably(path, |file| file.write_all(bytes).map_err(|e| io_error(path, e)))
}

fn replace_durably(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), ImageError>) -> Result<(), ImageError> {
    let io = |e| io_error(path, e);
    let dir = path.parent().ok_or_else(|| io(io::ErrorKind::InvalidInput.into()))?;
    let public = fs::Permissions::from_mode(0o644);
    let make = || tempfile::Builder::new().prefix(".pull-").permissions(public).tempfile_in(dir);
    let mut file = side(make, |file| file.path().to_owned()).map_err(io)?;
    fill(file.as_file_mut())?;
    publish(file, path, true).map_err(io)
}

/// Change index.json: some manifests are gone, and these are added, and replace others of the same name.
pub fn change_index(dir: &Path, gone: &[Sha256], new: Vec<(Descriptor, Option<String>)>) -> Result<(), ImageError> {
    // What another program adds meanwhile would be lost. Not every file system has locks.
    let lock = File::open(dir).map(|dir| Flock::lock(dir, FlockArg::LockExclusive));
    write(&dir.join("index.json"), index(dir, gone, new)?.as_bytes())?;
    drop(lock);
    Ok(())
}

fn index(dir: &Path, gone: &[Sha256], new: Vec<(Descriptor, Option<String>)>) -> Result<String, ImageError> {
    let path = dir.join("index.json");
    let wrong = |why: String| ImageError::invalid(path.display().to_string(), why);
    let mut index: ImageIndex = match open_regular(&path) {
        Ok(file) => {
            let bytes = read_document(file, &path.display().to_string())?;
            serde_json::from_slice(&bytes).map_err(|e| wrong(format!("not an image index: {e}")))?
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => empty_index()?,
        Err(e) => return Err(io_error(&path, e)),
    };
    let name = |d: &Descriptor| d.annotations().as_ref().and_then(|a| a.get(REF_NAME)).cloned();
    let stays = |d: &&Descriptor| !sha256_of(d).is_ok_and(|digest| gone.contains(&digest));
    index.set_manifests(index.manifests().iter().filter(stays).cloned().collect());
    for (mut descriptor, tag) in new {
        let same = |d: &Descriptor| match &tag {
            Some(tag) => name(d).as_ref() == Some(tag),
            None => name(d).is_none() && d.digest() == descriptor.digest(),
        };
        let mut manifests: Vec<_> = index.manifests().iter().filter(|d| !same(d)).cloned().collect();
        if let Some(tag) = tag {
            descriptor.set_annotations(Some([(REF_NAME.to_owned(), tag)].into()));
        }
        manifests.push(descriptor);
        index.set_manifests(manifests);
    }
    serde_json::to_string(&index).map_err(|e| wrong(e.to_string()))
}

pub fn empty_index() -> Result<ImageIndex, ImageError> {
    let builder = ImageIndexBuilder::default().schema_version(2u32).media_type(MediaType::ImageIndex);
    builder.manifests(Vec::new()).build().map_err(|e| ImageError::invalid("index.json", e.to_string()))
}

pub fn descriptor_of(media_type: &MediaType, bytes: &[u8]) -> Result<Descriptor, ImageError> {
    let digest = Sha256Digest::from_str(&Sha256::of(bytes).to_string());
    let digest = digest.map_err(|e| ImageError::invalid("index.json", e.to_string()))?;
    Ok(Descriptor::new(media_type.clone(), bytes.len() as u64, digest))
}

pub fn io_error(path: &Path, source: io::Error) -> ImageError {
    ImageError::Io { what: PathBuf::from(path).display().to_string(), source }
}
