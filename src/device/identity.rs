//! What disk this is: enough for a person to recognise it before it is overwritten.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use serde::{Serialize, Serializer};

/// A disk image in a file, or a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Regular file.
    Image,
    /// Block device.
    Disk,
}

/// A disk as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Identity {
    /// Path with symbolic links resolved.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Image or disk.
    pub kind: Kind,
    /// Model, as the drive reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number, as the drive reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// World-wide identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
}

/// JSON is UTF-8, a path need not be.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// What a path names, if not a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotADisk {
    /// Nothing there.
    #[error("there is no such file or device")]
    Missing,
    /// A directory.
    #[error("it is a directory: name a whole disk or an image file")]
    Directory,
    /// A partition.
    #[error("it is partition {number} of {disk}: name the whole disk, {disk}")]
    Partition {
        /// Its number.
        number: String,
        /// Its disk.
        disk: String,
    },
    /// Something else.
    #[error("it is neither a block device nor a regular file")]
    Other,
    /// Not to be looked at.
    #[error("it cannot be looked at: {0}")]
    Unreadable(String),
}

impl Identity {
    /// Look at a path; follows links such as those in /dev/disk/by-id.
    pub fn of(path: &Path) -> Result<Self, NotADisk> {
        let path = fs::canonicalize(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => NotADisk::Missing,
            _ => NotADisk::Unreadable(e.to_string()),
        })?;
        let meta = fs::metadata(&path).map_err(|e| NotADisk::Unreadable(e.to_string()))?;
        let kind = meta.file_type();
        if kind.is_dir() {
            return Err(NotADisk::Directory);
        }
        if kind.is_file() {
            return Ok(Identity { path, kind: Kind::Image, model: None, serial: None, wwid: None });
        }
        if !kind.is_block_device() {
            return Err(NotADisk::Other);
        }
        let sys = sysfs(meta.rdev());
        if let Some(number) = read_trimmed(&sys.join("partition")) {
            let disk = fs::canonicalize(&sys).ok().and_then(|p| Some(p.parent()?.file_name()?.to_owned()));
            let disk = disk.map_or_else(|| "its disk".to_owned(), |d| format!("/dev/{}", d.display()));
            return Err(NotADisk::Partition { number, disk });
        }
        let attribute = |names: &[&str]| names.iter().find_map(|n| read_trimmed(&sys.join(n)));
        Ok(Identity {
            path,
            kind: Kind::Disk,
            model: attribute(&["device/model"]),
            serial: attribute(&["device/serial", "serial"]),
            wwid: attribute(&["wwid", "device/wwid"]),
        })
    }
}

impl Identity {
    /// Whether a block device is set read-only.
    pub(super) fn is_read_only(&self) -> bool {
        let rdev = fs::metadata(&self.path).map(|m| m.rdev());
        self.kind == Kind::Disk && rdev.is_ok_and(|r| read_trimmed(&sysfs(r).join("ro")).as_deref() == Some("1"))
    }
}

/// sysfs directory of a block device.
pub(super) fn sysfs(rdev: u64) -> PathBuf {
    let (major, minor) = (nix::sys::stat::major(rdev), nix::sys::stat::minor(rdev));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

pub(super) fn read_trimmed(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
