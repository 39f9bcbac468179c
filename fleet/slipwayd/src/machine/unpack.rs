//! The root file system of an image: its layers, one over the other. OCI image specification 1.1, layer.md.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, BufReader, Read, Seek as _},
    path::{Component, Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256 as Hasher};
use slipway_core::digest::Sha256;
use tar::{Archive, Entry};

use crate::world::{Progress, Watcher};

/// A name that begins so hides what lower layers have under the rest of the name.
const WHITEOUT: &[u8] = b".wh.";
/// Hides all that lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bytes that are read at once.
const CHUNK: usize = 1 << 16;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blob {
    digest: String,
    #[serde(default)]
    media_type: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Blob,
    layers: Vec<Blob>,
}

/// The part of an image's configuration that a container gets.
#[derive(Default, Deserialize)]
struct Config {
    #[serde(default, rename = "Env")]
    env: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ImageConfig {
    #[serde(default)]
    config: Config,
}

/// Unpack the image with this manifest, from an OCI layout into a directory that does not exist yet. Every blob is
/// compared with its digest first. The image's environment.
///
/// # Errors
/// A file that cannot be read or written; `InvalidData` where the image is at fault.
pub fn unpack(layout: &Path, manifest: Sha256, to: &Path, watcher: &dyn Watcher) -> io::Result<Vec<String>> {
    watcher.tell(Progress::Part("unpack     the image".to_owned()));
    fs::create_dir_all(to)?;
    // Every way into it is compared with its real name.
    let to = to.canonicalize()?;
    let blob = |digest: &str| open(layout, digest, watcher);
    let manifest: Manifest = serde_json::from_reader(blob(&format!("sha256:{manifest}"))?).map_err(invalid)?;
    let image: ImageConfig = serde_json::from_reader(blob(&manifest.config.digest)?).map_err(invalid)?;
    for layer in &manifest.layers {
        let bytes = blob(&layer.digest)?;
        if layer.media_type.ends_with("gzip") {
            apply(MultiGzDecoder::new(bytes), &to, watcher)?;
        } else if layer.media_type.ends_with("zstd") {
            apply(zstd::Decoder::new(bytes)?, &to, watcher)?;
        } else {
            apply(bytes, &to, watcher)?;
        }
    }
    Ok(image.config.env.unwrap_or_default())
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

fn ended(watcher: &dyn Watcher) -> io::Result<()> {
    if watcher.wants_end() { Err(io::Error::other("the operation is to end")) } else { Ok(()) }
}

/// A blob that has its digest.
fn open(layout: &Path, digest: &str, watcher: &dyn Watcher) -> io::Result<BufReader<File>> {
    let wanted = digest.strip_prefix("sha256:").and_then(|hex| hex.parse::<Sha256>().ok());
    let wanted = wanted.ok_or_else(|| invalid(format!("{digest:?} is no digest that is known")))?;
    let mut file = File::open(layout.join("blobs/sha256").join(wanted.to_string()))?;
    let (mut hasher, mut chunk) = (Hasher::new(), vec![0; CHUNK]);
    loop {
        ended(watcher)?;
        match file.read(&mut chunk)? {
            0 => break,
            n => hasher.update(&chunk[..n]),
        }
    }
    if hasher.finalize()[..] != wanted.0 {
        return Err(invalid(format!("the blob sha256:{wanted} is damaged")));
    }
    file.rewind()?;
    Ok(BufReader::with_capacity(CHUNK, file))
}

/// Lay one layer over the present files.
fn apply(layer: impl Read, to: &Path, watcher: &dyn Watcher) -> io::Result<()> {
    let mut archive = Archive::new(layer);
    archive.set_preserve_permissions(true);
    // The files of this layer: its own whiteouts do not hide them.
    let mut own = HashSet::new();
    for entry in archive.entries()? {
        ended(watcher)?;
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        let Some(name) = path.file_name().map(OsStr::to_owned) else { continue };
        let parent = path.parent().unwrap_or(Path::new(""));
        if let Some(hidden) = name.as_encoded_bytes().strip_prefix(WHITEOUT) {
            // A directory that is not there hides nothing.
            if let Some(parent) = real(&to.join(parent), to)? {
                hide(&parent, &name, hidden, &own)?;
            }
            continue;
        }
        let at = made(parent, to)?.join(&name);
        make_room(&entry, &at)?;
        if !entry.unpack_in(to)? {
            return Err(invalid(format!("{} is not unpacked", path.display())));
        }
        own.insert(at);
    }
    Ok(())
}

/// A path of an archive: below its root.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let mut names = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir | Component::RootDir => {}
            _ => return Err(invalid(format!("{} leads out of the image", path.display()))),
        }
    }
    Ok(names)
}

/// A directory by its real name, which must lie in the root; `None` if it is not there.
fn real(directory: &Path, root: &Path) -> io::Result<Option<PathBuf>> {
    match directory.canonicalize() {
        Ok(real) if real.starts_with(root) => Ok(Some(real)),
        Ok(real) => Err(invalid(format!("{} is {}, outside of the image", directory.display(), real.display()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// A directory of the root by its real name; made where it is missing, which no link leads out of the root.
fn made(path: &Path, root: &Path) -> io::Result<PathBuf> {
    path.iter().try_fold(root.to_owned(), |directory, name| {
        let next = directory.join(name);
        if fs::symlink_metadata(&next).is_err() {
            fs::create_dir(&next)?;
        }
        real(&next, root)?.ok_or_else(|| invalid(format!("{} is a link to nothing", next.display())))
    })
}

/// Remove what a whiteout in this directory hides, but not what the layer itself has brought.
fn hide(directory: &Path, name: &OsStr, hidden: &[u8], own: &HashSet<PathBuf>) -> io::Result<()> {
    let hides = |file: &OsString| name.as_encoded_bytes() == OPAQUE || file.as_encoded_bytes() == hidden;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        // A directory of the layer may have what a lower one had in it: whiteouts in it say what goes.
        if hides(&entry.file_name()) && !own.contains(&path) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// A directory takes the place of another kind of file, and the other way round.
fn make_room(entry: &Entry<impl Read>, at: &Path) -> io::Result<()> {
    let Ok(old) = fs::symlink_metadata(at) else { return Ok(()) };
    let is_directory = entry.header().entry_type().is_dir();
    // A link to a directory may stay: the layer's files go to where it leads.
    let stays = is_directory && (old.is_dir() || fs::metadata(at).is_ok_and(|target| target.is_dir()));
    if stays { Ok(()) } else { remove(at) }
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
