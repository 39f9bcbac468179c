//! Writes into an OCI layout directory. A file gets its name only once it is complete and flushed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
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
    names::{REF_NAME, SEVERAL, is_named, names_of, several},
    store::{parse_document, read_document, sha256_of},
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

/// A manifest that index.json is to list, and where.
pub type Entry = (Descriptor, Place);

pub enum Place {
    /// Under this name, in place of what has it.
    Named(String),
    /// Without a name.
    Unnamed,
    /// Wherever the manifest with this digest is listed.
    Of(Sha256),
}

impl From<Option<String>> for Place {
    fn from(tag: Option<String>) -> Self {
        tag.map_or(Place::Unnamed, Place::Named)
    }
}

impl Place {
    /// Whether an entry gives way to the new one.
    fn is_taken_by(&self, entry: &Descriptor, new: &Descriptor) -> bool {
        let is_listed = entry.digest() == new.digest();
        match self {
            Place::Named(name) => is_named(entry, name),
            Place::Unnamed => is_listed && names_of(entry).is_empty(),
            Place::Of(old) => is_listed || sha256_of(entry).is_ok_and(|digest| digest == *old),
        }
    }
}

/// Refuse a name that several images in this layout have: all but one would be lost.
pub fn check_name(dir: &Path, name: &str) -> Result<(), ImageError> {
    has_one(dir, &read_index(dir)?, name)
}

fn has_one(dir: &Path, index: &ImageIndex, name: &str) -> Result<(), ImageError> {
    let Some(whole) = several(index, name) else { return Ok(()) };
    let of = |name: &str| format!("oci:{}:{name}", dir.display());
    let others: Vec<_> = whole.iter().filter(|whole| whole.as_str() != name).map(|whole| of(whole)).collect();
    Err(ImageError::reference(of(name), SEVERAL, format!("name the whole one: {}", others.join(" or "))))
}

/// Change index.json: some manifests are gone, and these are added. A manifest that takes the place of others gets their
/// names.
pub fn change_index(dir: &Path, gone: &[Sha256], new: Vec<Entry>) -> Result<(), ImageError> {
    // What another program adds meanwhile would be lost. Not every file system has locks.
    let lock = File::open(dir).map(|dir| Flock::lock(dir, FlockArg::LockExclusive));
    write(&dir.join("index.json"), index(dir, gone, new)?.as_bytes())?;
    drop(lock);
    Ok(())
}

fn read_index(dir: &Path) -> Result<ImageIndex, ImageError> {
    let path = dir.join("index.json");
    let what = path.display().to_string();
    match open_regular(&path) {
        Ok(file) => parse_document(&read_document(file, &what)?)
            .map_err(|e| ImageError::invalid(what, format!("not an image index: {e}"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => empty_index(),
        Err(e) => Err(io_error(&path, e)),
    }
}

fn index(dir: &Path, gone: &[Sha256], new: Vec<Entry>) -> Result<String, ImageError> {
    let mut index = read_index(dir)?;
    let stays = |d: &&Descriptor| !sha256_of(d).is_ok_and(|digest| gone.contains(&digest));
    index.set_manifests(index.manifests().iter().filter(stays).cloned().collect());
    for (descriptor, place) in new {
        if let Place::Named(name) = &place {
            has_one(dir, &index, name)?;
        }
        let (replaced, mut manifests): (Vec<_>, Vec<_>) =
            index.manifests().iter().cloned().partition(|entry| place.is_taken_by(entry, &descriptor));
        let mut names: BTreeSet<BTreeMap<_, _>> = replaced.iter().map(names_of).collect();
        if names.is_empty() {
            names.insert(match place {
                Place::Named(name) => [(REF_NAME.to_owned(), name)].into(),
                Place::Unnamed | Place::Of(_) => BTreeMap::new(),
            });
        }
        manifests.extend(names.into_iter().map(|names| listed(&descriptor, names)));
        index.set_manifests(manifests);
    }
    serde_json::to_string(&index).map_err(|e| ImageError::invalid(dir.display().to_string(), e.to_string()))
}

fn listed(descriptor: &Descriptor, names: BTreeMap<String, String>) -> Descriptor {
    let mut entry = descriptor.clone();
    entry.set_annotations(Some(names.into_iter().collect()).filter(|names: &HashMap<_, _>| !names.is_empty()));
    entry
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
    use crate::image::names::{CONTAINERD_NAME, annotation};

    /// Reads nothing, and lets another run look for what killed ones left.
    struct Meanwhile<'a>(&'a Path);

    impl io::Read for Meanwhile<'_> {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            remove_left(self.0);
            Ok(0)
        }
    }

    const OS: &str = "r.example/os:1";

    /// A manifest, its name, and its whole name.
    type Named<T> = (T, Option<T>, Option<T>);

    /// A layout whose index.json lists these.
    fn layout(listed: &[Named<&str>]) -> tempfile::TempDir {
        let entry = |(bytes, name, whole): &Named<&str>| {
            let names = [(REF_NAME, *name), (CONTAINERD_NAME, *whole)];
            let names = names.into_iter().filter_map(|(key, name)| Some((key.to_owned(), name?.to_owned())));
            super::listed(&manifest(bytes), names.collect())
        };
        let mut index = empty_index().unwrap();
        index.set_manifests(listed.iter().map(entry).collect());
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("index.json"), index.to_string().unwrap().as_bytes()).unwrap();
        dir
    }

    fn manifest(bytes: &str) -> Descriptor {
        descriptor_of(&MediaType::ImageManifest, bytes.as_bytes()).unwrap()
    }

    /// Lists the manifest `new` there too; what index.json lists then.
    fn after(place: Place, dir: &tempfile::TempDir) -> Result<Vec<Named<String>>, String> {
        change_index(dir.path(), &[], vec![(manifest("new"), place)]).map_err(|e| e.to_string())?;
        let digests = ["old", "other", "new"].map(|bytes| (manifest(bytes).digest().clone(), bytes.to_owned()));
        let entry = |d: &Descriptor| {
            let (_, bytes) = digests.iter().find(|(digest, _)| digest == d.digest()).unwrap();
            (bytes.clone(), annotation(d, REF_NAME), annotation(d, CONTAINERD_NAME))
        };
        Ok(read_index(dir.path()).unwrap().manifests().iter().map(entry).collect())
    }

    fn own((bytes, name, whole): Named<&str>) -> Named<String> {
        (bytes.to_owned(), name.map(str::to_owned), whole.map(str::to_owned))
    }

    #[test]
    fn a_new_image_takes_all_names_of_the_old_one() {
        let old = || Place::Of(Sha256::of(b"old"));
        let named = |name: &str| Place::Named(name.to_owned());
        let app = ("other", Some("1"), Some("r.example/app:1"));
        let whole = |bytes| (bytes, Some("1"), Some(OS));
        for (listed, place, then) in [
            (&[][..], named("1"), &[("new", Some("1"), None)][..]),
            (&[], Place::Unnamed, &[("new", None, None)]),
            (&[whole("old")], named("1"), &[whole("new")]),
            (&[whole("old"), app], named(OS), &[app, whole("new")]),
            (&[whole("old"), app], old(), &[app, whole("new")]),
            (&[("old", None, Some(OS))], old(), &[("new", None, Some(OS))]),
            (&[("old", None, None), ("other", None, None)], old(), &[("other", None, None), ("new", None, None)]),
            // Once more.
            (&[whole("new"), ("old", None, None)], old(), &[("new", None, None), whole("new")]),
            (&[("new", None, None), whole("new")], Place::Unnamed, &[whole("new"), ("new", None, None)]),
            // One image under two names, and what was listed beside the image of the same whole name.
            (
                &[whole("old"), ("old", Some("1"), Some("x"))],
                named("1"),
                &[whole("new"), ("new", Some("1"), Some("x"))],
            ),
            (&[whole("old"), ("other", Some(OS), None)], named(OS), &[whole("new"), ("new", Some(OS), None)]),
            // Another program has taken it away.
            (&[app], old(), &[app, ("new", None, None)]),
        ] {
            assert_eq!(after(place, &layout(listed)), Ok(then.iter().copied().map(own).collect()), "{listed:?}");
        }
    }

    #[test]
    fn no_other_image_loses_its_name() {
        let os = ("old", Some("1"), Some(OS));
        let dir = |other| layout(&[os, other]);
        for other in [("other", Some("1"), Some("r.example/app:1")), ("other", Some("1"), None)] {
            let dir = dir(other);
            let error = after(Place::Named("1".to_owned()), &dir).unwrap_err();
            let whole = other.2.map(|whole| format!("{}:{whole} or ", at(&dir))).unwrap_or_default();
            let said = "its index.json lists more than one image of this name: name the whole one";
            assert_eq!(error, format!("{0}:1: {said}: {whole}{0}:{OS}", at(&dir)));
            assert_eq!(check_name(dir.path(), "1").unwrap_err().to_string(), error);
            assert_eq!(read_index(dir.path()).unwrap().manifests().len(), 2);
            check_name(dir.path(), OS).unwrap();
        }
        // Two of one name, as other programs leave them, and signatures, which are joined.
        let same = |name| layout(&[("old", Some(name), None), ("other", Some(name), None)]);
        check_name(same("1").path(), "1").unwrap();
        let signed = format!("sha256-{}.sig", Sha256::of(b"x"));
        let both = layout(&[("old", Some(&signed), Some("a")), ("other", Some(&signed), Some("b"))]);
        assert_eq!(after(Place::Named(signed), &both).unwrap().len(), 2);
    }

    fn at(dir: &tempfile::TempDir) -> String {
        format!("oci:{}", dir.path().display())
    }

    /// As `umoci init` makes it.
    #[test]
    fn an_index_that_lists_null_lists_nothing() {
        let dir = layout(&[]);
        write(&dir.path().join("index.json"), br#"{"schemaVersion": 2, "manifests": null}"#).unwrap();
        assert_eq!(after(Place::Unnamed, &dir), Ok(vec![own(("new", None, None))]));
        for wrong in [r#"{"schemaVersion": 2}"#, r#"{"schemaVersion": 2, "manifests": 0}"#, "null"] {
            write(&dir.path().join("index.json"), wrong.as_bytes()).unwrap();
            assert!(after(Place::Unnamed, &dir).unwrap_err().contains("not an image index"), "{wrong}");
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
