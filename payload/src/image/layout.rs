//! Writes into an OCI layout directory. A file gets its name only once it is complete and flushed.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    str::FromStr as _,
};

use nix::{
    fcntl::{Flock, FlockArg},
    libc,
};
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
use tempfile::NamedTempFile;

/// How the names of side files begin.
const SIDE: &str = ".pull-";

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
    let (mut file, lock) = side_file(dir).map_err(io)?;
    fill(file.as_file_mut())?;
    publish(file, path, true).map_err(io)?;
    drop(lock);
    Ok(())
}

/// A side file, and the lock by which other runs know that it is in use. Not every file system has locks.
fn side_file(dir: &Path) -> io::Result<(NamedTempFile, Option<Flock<File>>)> {
    let public = || fs::Permissions::from_mode(0o644);
    let make = || tempfile::Builder::new().prefix(SIDE).permissions(public()).tempfile_in(dir);
    loop {
        let file = side(make, |file| file.path().to_owned())?;
        let lock = Flock::lock(file.as_file().try_clone()?, FlockArg::LockExclusive).ok();
        // Another run may have removed it before it was locked.
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok((file, lock));
        }
    }
}

/// Remove the side files of runs that were killed. Those of runs that go on are locked.
pub fn remove_left(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(SIDE.as_bytes())) {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(file) = File::options().write(true).custom_flags(flags).open(entry.path()) else { continue };
        let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
        if let (true, Ok(lock)) = (is_file, Flock::lock(file, FlockArg::LockExclusiveNonblock)) {
            // Another run may have removed it first.
            let _ = fs::remove_file(entry.path());
            drop(lock);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads nothing, and lets another run look for what killed ones left.
    struct Meanwhile<'a>(&'a Path);

    impl io::Read for Meanwhile<'_> {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            remove_left(self.0);
            Ok(0)
        }
    }

    #[test]
    fn only_what_no_run_writes_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let entries =
                fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = entries.collect();
            names.sort();
            names
        };
        for left in [".pull-a1B2c3", ".pull-x", "pull-1"] {
            fs::write(dir.path().join(left), left).unwrap();
        }
        fs::create_dir(dir.path().join(".pull-dir")).unwrap();
        std::os::unix::fs::symlink("pull-1", dir.path().join(".pull-link")).unwrap();
        write_blob(Meanwhile(dir.path()), "x", &dir.path().join("blob"), &mut |_| ()).unwrap();
        assert_eq!(names(), [".pull-dir", ".pull-link", "blob", "pull-1"]);
    }
}
