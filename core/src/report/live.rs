//! The answer of `image` for a live medium.

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

/// The live medium that was made, or with `--dry-run` would be.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct LiveReport {
    /// Whether it was made.
    pub changed: bool,
    /// Path of the file.
    pub out: String,
    pub kind: ImageKind,
    pub compression: Option<Compression>,
    /// Size of the file in bytes; `null` in a dry run.
    pub file_bytes: Option<u64>,
    /// ID of the live medium.
    pub medium: MediumId,
    pub version: Option<String>,
    /// Digest that names the payload.
    pub payload: Sha256,
    /// Manifest digest of the container image on the medium, if it carries one.
    pub container: Option<Sha256>,
    /// SHA-256 of the certificate whose key has signed what starts under UEFI; `null` if it is unsigned.
    #[serde(default)]
    pub signed_by: Option<Sha256>,
    pub cmdline: String,
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LiveReport { out, medium, cmdline, .. } = self;
        let version = self.version.as_deref().unwrap_or("(no version)");
        match self.file_bytes {
            Some(bytes) => {
                write!(f, "made: live medium {medium} with {version}; {out}, {}, is flushed to storage", approx(bytes))
            }
            None => write!(
                f,
                "{out} would be live medium {medium} with {version}; kernel arguments: {cmdline}\ndry run: nothing was written"
            ),
        }
    }
}
