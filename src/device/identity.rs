//! Identify a disk well enough for a person to recognise it before it is overwritten.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use slipway_core::disk::identity::{DiskIdentity, DiskKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskNode {
    /// With symbolic links resolved.
    pub path: PathBuf,
    pub disk: DiskIdentity,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotADisk {
    #[error("there is no such file or device")]
    Missing,
    #[error("it is a directory: {NAME_ANOTHER}")]
    Directory,
    #[error("it is partition {number} of {disk}: {}", whole(disk))]
    Partition { number: String, disk: String },
    #[error("it is neither a block device nor a regular file")]
    Other,
    #[error("it cannot be examined: {0}")]
    Unreadable(String),
}

const NAME_ANOTHER: &str = "name a whole disk or an image file";

impl NotADisk {
    /// The remedy, as the message ends with it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            NotADisk::Directory => Some(NAME_ANOTHER.to_owned()),
            NotADisk::Partition { disk, .. } => Some(whole(disk)),
            NotADisk::Missing | NotADisk::Other | NotADisk::Unreadable(_) => None,
        }
    }
}

fn whole(disk: &str) -> String {
    format!("name the whole disk, {disk}")
}

impl DiskNode {
    /// Follows symbolic links such as those in /dev/disk/by-id.
    pub fn open(path: &Path) -> Result<Self, NotADisk> {
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
            return Ok(DiskNode::new(path, DiskKind::Image, |_| None));
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
        Ok(DiskNode::new(path, DiskKind::Disk, attribute))
    }

    fn new(path: PathBuf, kind: DiskKind, attribute: impl Fn(&[&str]) -> Option<String>) -> Self {
        let disk = DiskIdentity {
            path: path.display().to_string(),
            kind,
            model: attribute(&["device/model"]),
            serial: attribute(&["device/serial", "serial"]),
            wwid: attribute(&["wwid", "device/wwid"]),
        };
        DiskNode { path, disk }
    }
}

impl DiskNode {
    pub(super) fn is_read_only(&self) -> bool {
        let rdev = fs::metadata(&self.path).map(|m| m.rdev());
        self.disk.kind == DiskKind::Disk
            && rdev.is_ok_and(|r| read_trimmed(&sysfs(r).join("ro")).as_deref() == Some("1"))
    }
}

pub(super) fn sysfs(rdev: u64) -> PathBuf {
    let (major, minor) = (nix::sys::stat::major(rdev), nix::sys::stat::minor(rdev));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

pub(super) fn read_trimmed(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
