//! The answer of `image` for an installed disk.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Sha256,
    media::format::{Compression, ImageKind},
    plan::Plan,
    units::approx,
};

/// A disk image that was made.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct ImageReport {
    /// Path of the image.
    pub out: String,
    pub kind: ImageKind,
    pub compression: Option<Compression>,
    /// Size of the disk in the image, in bytes.
    pub disk_bytes: u64,
    /// Size of the file in bytes; a raw image is sparse and takes less room.
    pub file_bytes: u64,
    /// Digest that names the payload.
    pub payload: Sha256,
    /// The plan that was carried out.
    pub plan: Plan,
}

impl fmt::Display for ImageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, file) = (approx(self.disk_bytes), approx(self.file_bytes));
        write!(f, "made: {}; a disk of {disk} in a file of {file}, flushed to storage", self.plan.result)
    }
}
