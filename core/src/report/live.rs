//! What `image` made of a live medium.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Sha256,
    media::{
        format::{Compression, ImageKind},
        medium_id::MediumId,
    },
    units::approx,
};

/// A live medium that was made, or with `--dry-run` would be.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LiveReport {
    /// Whether it was made.
    pub changed: bool,
    /// The file.
    pub out: String,
    /// ISO or PXE.
    pub kind: ImageKind,
    /// How it is compressed.
    pub compression: Option<Compression>,
    /// Size of the file, bytes; none where it was not made.
    pub file_bytes: Option<u64>,
    /// Name of the medium.
    pub medium: MediumId,
    /// Version of the payload.
    pub version: Option<String>,
    /// Digest that names the payload.
    pub payload: Sha256,
    /// Digest of the manifest of the container image that it carries.
    pub container: Option<Sha256>,
    /// The kernel's arguments.
    pub cmdline: String,
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LiveReport { out, medium, cmdline, .. } = self;
        let version = self.version.as_deref().unwrap_or("(no version)");
        match self.file_bytes {
            Some(bytes) => {
                write!(f, "made: live medium {medium} with {version}; {out}, {}, is flushed", approx(bytes))
            }
            None => write!(
                f,
                "{out} would be live medium {medium} with {version}; kernel arguments: {cmdline}\ndry run: nothing was written"
            ),
        }
    }
}
