//! The root file system of an image: its layers, one over the other. OCI image specification 1.1, layer.md.

use std::{
    collections::HashSet,
    error::Error as _,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, BufRead as _, BufReader, ErrorKind, Read, Seek as _},
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
// The first bytes of gzip (RFC 1952) and of a frame of zstd (RFC 8878).
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Links that are followed on the way to one file, as in Linux.
const MAX_LINKS: usize = 40;
/// The most bytes that a layer may unpack to: so many, and so many for each of its own.
const FREE_BYTES: u64 = 64 << 20;
const MAX_RATIO: u64 = 200;

#[derive(Deserialize)]
struct Blob {
    digest: String,
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
    config: Option<Config>,
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
        apply(archive(blob(&layer.digest)?)?, &to, watcher)?;
    }
    Ok(image.config.and_then(|config| config.env).unwrap_or_default())
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_string())
}

/// Where the file system has no room, or fails, another attempt may do. Anything else is the archive's fault, for ever.
fn fault(error: io::Error) -> io::Error {
    use ErrorKind::{
        AlreadyExists, InvalidData, InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, Other,
        UnexpectedEof,
    };
    match error.kind() {
        AlreadyExists | InvalidData | InvalidFilename | InvalidInput | IsADirectory | NotADirectory | NotFound
        | Other | UnexpectedEof => {
            // The archive's reader keeps the cause behind its own words.
            let (mut text, mut cause) = (error.to_string(), error.source());
            while let Some(why) = cause {
                text = format!("{text}: {why}");
                cause = why.source();
            }
            invalid(text)
        }
        _ => error,
    }
}

/// The archive of a layer. Its first bytes tell the packing: builders have called gzip a plain archive, and the other way round.
fn archive(mut blob: BufReader<File>) -> io::Result<Box<dyn Read>> {
    let most = FREE_BYTES.saturating_add(blob.get_ref().metadata()?.len().saturating_mul(MAX_RATIO));
    let first = blob.fill_buf()?;
    let reader: Box<dyn Read> = if first.starts_with(GZIP) {
        Box::new(MultiGzDecoder::new(blob))
    } else if first.starts_with(ZSTD) {
        Box::new(zstd::Decoder::with_buffer(blob)?)
    } else {
        Box::new(blob)
    };
    Ok(Box::new(Bounded { reader, left: most }))
}

/// A reader that ends with an error where a layer unpacks to far more than an image has.
struct Bounded {
    reader: Box<dyn Read>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(out).map_err(fault)?;
        let left = self.left.checked_sub(n as u64);
        self.left = left.ok_or_else(|| invalid(format!("a layer unpacks to over {MAX_RATIO} times its size")))?;
        Ok(n)
    }
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
    for entry in archive.entries().map_err(fault)? {
        ended(watcher)?;
        let mut entry = entry.map_err(fault)?;
        let path = inside(&entry.path()?)?;
        let Some(name) = path.file_name().map(OsStr::to_owned) else { continue };
        let parent = path.parent().unwrap_or(Path::new(""));
        if let Some(hidden) = name.as_encoded_bytes().strip_prefix(WHITEOUT) {
            // A directory that is not there hides nothing.
            if let Some(parent) = directory(parent, to, false)? {
                hide(&parent, &name, hidden, &own)?;
            }
            continue;
        }
        let parent = directory(parent, to, true)?.ok_or_else(|| invalid(format!("{} has no place", path.display())))?;
        let at = parent.join(&name);
        make_room(&entry, &at)?;
        put(&mut entry, &at, to).map_err(fault)?;
        own.insert(at);
    }
    Ok(())
}

/// Put an entry there. A hard link names a file of the image, with or without its root before it.
fn put(entry: &mut Entry<impl Read>, at: &Path, root: &Path) -> io::Result<()> {
    if !entry.header().entry_type().is_hard_link() {
        return entry.unpack(at).map(drop);
    }
    let target = entry.link_name()?.ok_or_else(|| invalid(format!("{} is a link to nothing", at.display())))?;
    let target = inside(&target)?;
    let parent = directory(target.parent().unwrap_or(Path::new("")), root, false)?;
    let (Some(parent), Some(name)) = (parent, target.file_name()) else {
        return Err(invalid(format!("{} is a link to {}, which is not there", at.display(), target.display())));
    };
    fs::hard_link(parent.join(name), at)
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

/// A directory of the image by its real name, as programs in it find it: links are followed below the root, which nothing leads
/// out of. `None` if it is not there, and is not to be made.
fn directory(path: &Path, root: &Path, make: bool) -> io::Result<Option<PathBuf>> {
    let parts = |path: &Path| path.iter().rev().map(OsStr::to_owned).collect::<Vec<_>>();
    let (mut at, mut left, mut links) = (root.to_owned(), parts(path), 0);
    while let Some(name) = left.pop() {
        if name == "/" {
            root.clone_into(&mut at);
            continue;
        }
        if name == ".." {
            // As in any root: above it is itself.
            _ = at != root && at.pop();
            continue;
        }
        let next = at.join(&name);
        match fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(invalid(format!("{} is behind too many links", path.display())));
                }
                left.extend(parts(&fs::read_link(&next)?));
            }
            Ok(found) if found.is_dir() => at = next,
            Ok(_) if !make => return Ok(None),
            Ok(_) => return Err(invalid(format!("{} is no directory", next.display()))),
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            Err(_) if !make => return Ok(None),
            Err(_) => {
                fs::create_dir(&next)?;
                at = next;
            }
        }
    }
    Ok(Some(at))
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

/// A directory takes the place of another kind of file, a link to one included, and the other way round: as in containerd.
fn make_room(entry: &Entry<impl Read>, at: &Path) -> io::Result<()> {
    let Ok(old) = fs::symlink_metadata(at) else { return Ok(()) };
    if entry.header().entry_type().is_dir() && old.is_dir() { Ok(()) } else { remove(at) }
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
