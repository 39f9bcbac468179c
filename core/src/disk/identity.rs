//! Identity and use of a disk, so that a person can recognise it before it is overwritten.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

/// The kind of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// A disk image in a regular file.
    Image,
    /// A block device.
    Disk,
}

/// A disk as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiskIdentity {
    /// Path with symbolic links resolved. Bytes that are not UTF-8 are replaced, because JSON cannot hold them.
    pub path: String,
    /// Image or disk.
    pub kind: DiskKind,
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

/// One use of a disk or of a partition of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiskUse {
    /// The device in use.
    pub device: String,
    /// Its use, such as `mounted on /mnt`.
    pub by: String,
}

impl fmt::Display for DiskUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.device, self.by)
    }
}
