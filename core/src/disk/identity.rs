//! Which disk it is, and who uses it: enough for a person to recognise it before it is overwritten.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

/// A disk image in a file, or a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// Regular file.
    Image,
    /// Block device.
    Disk,
}

/// A disk as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiskIdentity {
    /// Path with symbolic links resolved. What is not UTF-8 in it is replaced: JSON is UTF-8, a path need not be.
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
    /// By what.
    pub by: String,
}

impl fmt::Display for DiskUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.device, self.by)
    }
}
