//! Puts back what belongs to a system. Each file takes its place at once, whole and flushed. Where a run is interrupted, the
//! next one finds the missing files, and goes on.

use std::{
    fs::{self, File, FileTimes, OpenOptions},
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{OpenOptionsExt as _, PermissionsExt as _, lchown, symlink},
    },
    path::Path,
    time::{Duration, SystemTime},
};

use slipway_core::{
    report::Observer,
    snapshot::content::{Change, Content, Node, NodeKind},
};

use super::{Collected, NEW, Root, SnapshotError, io_at, root::Place, xattrs};

/// Make the present files (`there`) those of `wanted`.
pub fn put_back(
    root: &Root,
    wanted: &Content,
    there: &Collected,
    observer: &mut dyn Observer,
) -> Result<(), SnapshotError> {
    for path in &there.leftovers {
        let place = root.place(path).map_err(io_at(path))?;
        fs::remove_file(place.path()).map_err(io_at(path))?;
    }
    let changes = wanted.changes_of(&there.content);
    for change in &changes {
        observer.advance(0);
        match change {
            Change::Remove(path) => remove(root, path, observer).map_err(io_at(path))?,
            Change::Put(path) => put(root, path, &wanted.nodes[path], observer).map_err(io_at(path))?,
        }
    }
    // Putting files into a directory has changed its time. The deepest first.
    for change in changes.iter().rev() {
        let Change::Put(path) = change else { continue };
        let node = &wanted.nodes[path];
        if node.kind == NodeKind::Directory {
            let place = root.place(path).map_err(io_at(path))?;
            File::open(place.path()).and_then(|dir| dir.set_times(times(node))).map_err(io_at(path))?;
        }
    }
    for path in &wanted.paths {
        match root.place(path.as_bytes()) {
            Ok(place) => Root::sync(&place).map_err(io_at(path.as_bytes()))?,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => return Err(io_at(path.as_bytes())(e)),
        }
        // It may be a file system of its own.
        sync_mounted(root, path).map_err(io_at(path.as_bytes()))?;
    }
    Ok(())
}

fn sync_mounted(root: &Root, path: &str) -> io::Result<()> {
    match root.place(&[path.as_bytes(), b"/."].concat()) {
        Ok(place) => Root::sync(&place),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        Err(e) => Err(e),
    }
}

fn remove(root: &Root, path: &[u8], observer: &mut dyn Observer) -> io::Result<()> {
    let place = root.place(path)?;
    let found = fs::symlink_metadata(place.path())?;
    if !found.is_dir() {
        return fs::remove_file(place.path());
    }
    match fs::remove_dir(place.path()) {
        // Something in it was left out, or a file system is mounted there.
        Err(e) if matches!(e.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy) => {
            observer.note(&format!("{} stays: {e}", String::from_utf8_lossy(path)));
            Ok(())
        }
        removed => removed,
    }
}

fn put(root: &Root, path: &[u8], node: &Node, observer: &mut dyn Observer) -> io::Result<()> {
    let place = root.made_place(path)?;
    if node.kind == NodeKind::Directory {
        match fs::create_dir(place.path()) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        return attributes(&place.path(), path, node, observer);
    }
    let new = place.sibling(NEW.as_bytes());
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    match &node.kind {
        NodeKind::Link(target) => {
            symlink(std::ffi::OsStr::from_bytes(target), &new)?;
            attributes(&new, path, node, observer)?;
        }
        NodeKind::File(bytes) => {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            attributes(&new, path, node, observer)?;
            file.set_times(times(node))?;
            file.sync_all()?;
        }
        NodeKind::Directory => {}
    }
    rename(&place, &new)
}

fn rename(place: &Place, new: &Path) -> io::Result<()> {
    fs::rename(new, place.path())?;
    File::open(place.directory())?.sync_all()
}

/// Owner first: a change of it takes away capabilities and the set-user-ID bit.
fn attributes(at: &Path, path: &[u8], node: &Node, observer: &mut dyn Observer) -> io::Result<()> {
    lchown(at, Some(node.uid), Some(node.gid))?;
    if !matches!(node.kind, NodeKind::Link(_)) {
        fs::set_permissions(at, fs::Permissions::from_mode(node.mode.into()))?;
    }
    for name in xattrs::write(at, &node.xattrs)? {
        let path = String::from_utf8_lossy(path);
        observer.note(&format!("{path}: its file system does not take the attribute {name}"));
    }
    Ok(())
}

fn times(node: &Node) -> FileTimes {
    let (seconds, nanoseconds) = node.modified;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    let time = base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds.into())));
    FileTimes::new().set_modified(time.unwrap_or(SystemTime::UNIX_EPOCH))
}
