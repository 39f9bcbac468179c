//! Extended attributes: capabilities, access lists, SELinux labels.

use std::{collections::BTreeMap, ffi::OsStr, io, os::unix::ffi::OsStrExt as _, path::Path};

use rustix::{
    fs::{XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr},
    io::Errno,
};

/// Linux' limits for the list and for a value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MOST: usize = 64 << 10;

/// All of a file, directory or link; none on a file system that has none.
pub fn read(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut buffer = vec![0; MOST];
    let len = match llistxattr(path, &mut buffer[..]) {
        Err(Errno::NOTSUP) => return Ok(BTreeMap::new()),
        len => len?,
    };
    let names: Vec<_> =
        buffer[..len].split(|byte| *byte == 0).filter(|name| is_kept(name)).map(<[u8]>::to_vec).collect();
    let mut found = BTreeMap::new();
    for name in names {
        match lgetxattr(path, OsStr::from_bytes(&name), &mut buffer[..]) {
            Ok(len) => {
                found.insert(name, buffer[..len].to_vec());
            }
            // It went away meanwhile.
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

/// Those of an overlay are its own bookkeeping.
fn is_kept(name: &[u8]) -> bool {
    !name.is_empty() && !name.starts_with(b"trusted.overlay.") && !name.starts_with(b"user.overlay.")
}

/// Makes them these. Returns the names of those that the file system does not take.
pub fn write(path: &Path, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) -> io::Result<Vec<String>> {
    let there = read(path)?;
    for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
        match lremovexattr(path, OsStr::from_bytes(name)) {
            // A label that the kernel keeps.
            Ok(()) | Err(Errno::NODATA | Errno::ACCESS | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let mut refused = Vec::new();
    for (name, value) in wanted.iter().filter(|(name, value)| there.get(*name) != Some(*value)) {
        match lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOTSUP) => refused.push(String::from_utf8_lossy(name).into_owned()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(refused)
}
