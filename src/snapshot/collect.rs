//! Copies what belongs to a system.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::Path,
};

use slipway_core::{
    snapshot::{
        MAX_BYTES,
        content::{Content, Node, NodeKind},
    },
    units::approx,
};

use super::{NEW, Root, SnapshotError, io_at, root::begins_a_mount, xattrs};

/// The number of times that all is read again if a file changes meanwhile.
const TRIES: usize = 3;

/// The collected files and tags.
pub struct Collected {
    pub content: Content,
    /// The paths that are left out, each with the reason.
    pub left_out: Vec<String>,
    /// Files that an interrupted run left behind.
    pub leftovers: Vec<Vec<u8>>,
}

/// The marks of a changed file: inode, size, and times of modification and change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp([i64; 6]);

impl Stamp {
    fn from_metadata(found: &Metadata) -> Self {
        let ino = found.ino().cast_signed();
        let size = found.size().cast_signed();
        Stamp([ino, size, found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()])
    }
}

/// Copy what `asked` names; its tags stay as they are. What changes meanwhile is read again, and is an error if it goes on
/// changing.
pub fn collect(root: &Root, asked: &Content) -> Result<Collected, SnapshotError> {
    for path in &asked.mounted {
        if !root.is_mount_point(path).map_err(io_at(path.as_bytes()))? {
            return Err(SnapshotError::NotMounted(path.clone()));
        }
    }
    let mut changed = String::new();
    for _ in 0..TRIES {
        let (first, second) = (Walk::collect(root, asked, true)?, Walk::collect(root, asked, false)?);
        match first.differs_from(&second) {
            None => return Ok(first.collected(asked)),
            Some(path) => changed = String::from_utf8_lossy(path).into_owned(),
        }
    }
    Err(SnapshotError::Changes(changed))
}

/// One walk over all.
struct Walk {
    /// Whether files are read, or only looked at.
    reads: bool,
    bytes: u64,
    nodes: BTreeMap<Vec<u8>, Node>,
    stamps: BTreeMap<Vec<u8>, Stamp>,
    left_out: Vec<String>,
    leftovers: Vec<Vec<u8>>,
}

impl Walk {
    fn collect(root: &Root, asked: &Content, reads: bool) -> Result<Self, SnapshotError> {
        let (nodes, stamps) = (BTreeMap::new(), BTreeMap::new());
        let mut walk = Walk { reads, bytes: 0, nodes, stamps, left_out: vec![], leftovers: vec![] };
        for path in &asked.paths {
            let path = path.as_bytes();
            match root.place(path) {
                Ok(place) => walk.node(path, &place.path(), true)?,
                // Nothing is there, then.
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(e) => return Err(io_at(path)(e)),
            }
        }
        Ok(walk)
    }

    fn differs_from<'w>(&'w self, other: &'w Walk) -> Option<&'w Vec<u8>> {
        let differs = |(path, stamp): &(&Vec<u8>, &Stamp)| other.stamps.get(*path) != Some(*stamp);
        let gone = other.stamps.keys().find(|path| !self.stamps.contains_key(*path));
        self.stamps.iter().find(differs).map(|(path, _)| path).or(gone)
    }

    fn collected(self, asked: &Content) -> Collected {
        let content = Content { nodes: self.nodes, ..asked.clone() };
        Collected { content, left_out: self.left_out, leftovers: self.leftovers }
    }

    /// `at` is where `path` is found.
    fn node(&mut self, path: &[u8], at: &Path, is_declared: bool) -> Result<(), SnapshotError> {
        let found = match fs::symlink_metadata(at) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(io_at(path))?,
        };
        if let Some(why) = left_out(&found) {
            self.left_out.push(format!("{} is left out: it is {why}", String::from_utf8_lossy(path)));
            return Ok(());
        }
        if !is_declared && found.is_dir() && begins_a_mount(at).map_err(io_at(path))? {
            self.left_out.push(format!(
                "{} is left out: another file system is mounted there; declare it by itself",
                String::from_utf8_lossy(path)
            ));
            return Ok(());
        }
        self.stamps.insert(path.to_vec(), Stamp::from_metadata(&found));
        if self.reads {
            let node = self.read(path, at, &found)?;
            self.nodes.insert(path.to_vec(), node);
        }
        if found.is_dir() { self.directory(path, at) } else { Ok(()) }
    }

    fn directory(&mut self, path: &[u8], at: &Path) -> Result<(), SnapshotError> {
        let names: io::Result<Vec<_>> =
            fs::read_dir(at).and_then(|entries| entries.map(|e| Ok(e?.file_name())).collect());
        let mut names = names.map_err(io_at(path))?;
        names.sort();
        for name in names {
            let below = [path, b"/", name.as_bytes()].concat();
            if name == NEW {
                self.leftovers.push(below);
            } else {
                self.node(&below, &at.join(&name), false)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, path: &[u8], at: &Path, found: &Metadata) -> Result<Node, SnapshotError> {
        self.bytes += found.len().max(1);
        if self.bytes > MAX_BYTES {
            let (most, path) = (approx(MAX_BYTES), String::from_utf8_lossy(path));
            return Err(SnapshotError::TooLarge(format!("with {path} it has more than {most}")));
        }
        let kind = match found.file_type() {
            kind if kind.is_dir() => NodeKind::Directory,
            kind if kind.is_symlink() => {
                NodeKind::Link(fs::read_link(at).map_err(io_at(path))?.into_os_string().into_vec())
            }
            _ => NodeKind::File(fs::read(at).map_err(io_at(path))?),
        };
        let is_link = matches!(kind, NodeKind::Link(_));
        Ok(Node {
            kind,
            mode: if is_link { 0o777 } else { (found.mode() & 0o7777) as u16 },
            uid: found.uid(),
            gid: found.gid(),
            modified: (found.mtime(), found.mtime_nsec().unsigned_abs() as u32),
            xattrs: xattrs::read(at).map_err(io_at(path))?,
        })
    }
}

/// Kinds of files that belong to a running program, not to a system.
fn left_out(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    [
        (kind.is_socket(), "a socket"),
        (kind.is_fifo(), "a pipe"),
        (kind.is_block_device() || kind.is_char_device(), "a device"),
    ]
    .into_iter()
    .find_map(|(is, what)| is.then_some(what))
}
