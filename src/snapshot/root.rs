//! Paths of a system, looked up below the directory where it is mounted: an absolute link in it stays in it.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, openat2, statx};

/// The root of a system.
pub struct Root {
    dir: OwnedFd,
}

/// A directory in a system, and a name in it.
pub struct Place {
    pub dir: OwnedFd,
    name: Vec<u8>,
}

impl Place {
    /// A path for calls that take one. No link in it leads elsewhere: the directory is open.
    pub fn path(&self) -> PathBuf {
        self.sibling(&self.name)
    }

    /// Of another name in the same directory.
    pub fn sibling(&self, name: &[u8]) -> PathBuf {
        self.directory().join(OsStr::from_bytes(name))
    }

    pub fn directory(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()))
    }
}

impl Root {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root { dir: openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())? })
    }

    /// The directory that an absolute path lies in.
    pub fn place(&self, path: &[u8]) -> io::Result<Place> {
        let at = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (above, name) = (&path[..at], &path[at..]);
        let name = name.strip_prefix(b"/").unwrap_or(name).to_vec();
        Ok(Place { dir: self.directory(above)?, name })
    }

    /// The same; directories that are missing are made.
    pub fn made_place(&self, path: &[u8]) -> io::Result<Place> {
        for (at, _) in path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/') {
            let place = self.place(&path[..at])?;
            match fs::create_dir(place.path()) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        self.place(path)
    }

    fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let relative = if relative.is_empty() { &b"."[..] } else { relative };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat2(&self.dir, OsStr::from_bytes(relative), flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
    }

    /// Whether a file system is mounted on a directory.
    pub fn is_mount_point(&self, path: &str) -> io::Result<bool> {
        let dir = match self.directory(path.as_bytes()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            dir => dir?,
        };
        let found = statx(&dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        Ok(StatxAttributes::from_bits_retain(found.stx_attributes.bits()).contains(StatxAttributes::MOUNT_ROOT))
    }

    /// Have the file system of a directory write all that it holds.
    pub fn sync(place: &Place) -> io::Result<()> {
        let dir = fs::File::open(place.directory())?;
        dir.sync_all()?;
        Ok(rustix::fs::syncfs(&dir)?)
    }
}

/// Whether another file system begins at a path.
pub fn begins_a_mount(path: &Path) -> io::Result<bool> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
    Ok(StatxAttributes::from_bits_retain(found.stx_attributes.bits()).contains(StatxAttributes::MOUNT_ROOT))
}
