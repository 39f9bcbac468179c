//! LAYER 2: where kernel, initramfs and squashfs come from.

mod dir;
pub mod image;
pub mod registry;
mod stream;

pub use dir::{DirSource, PayloadError, Sums, TEXTS};
pub use stream::{StreamError, digest_file, read_back_digest, write_stream};

use std::path::PathBuf;

use crate::model::manifest::{Arch, FileInfo, Manifest};

/// What `--source` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRef {
    /// `dir:PATH`.
    Dir(PathBuf),
}

impl SourceRef {
    /// Where a container image carries its own payload.
    pub fn default_of(arch: Arch) -> Self {
        SourceRef::Dir(format!("/usr/install/{arch}").into())
    }
}

impl std::str::FromStr for SourceRef {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(SourceRef::Dir(path.into())),
            _ => Err(format!("{s:?} is not a source: write dir:PATH")),
        }
    }
}

impl std::fmt::Display for SourceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SourceRef::Dir(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

/// A payload that was looked at: every file read and hashed, digests compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Where it comes from.
    pub source: SourceRef,
    /// Architecture of the kernel.
    pub arch: Arch,
    /// `VERSION_ID` of its os-release.
    pub version: Option<String>,
    /// Kernel, initramfs, squashfs if there is one.
    pub files: Vec<FileInfo>,
    /// Content of its `cmdline` file, if it has one.
    pub cmdline: Option<String>,
    /// Whether it brought a SHA256SUMS (which then agreed).
    pub sealed: bool,
}

impl Facts {
    /// The kernel's file name.
    pub fn kernel(&self) -> &FileInfo {
        &self.files[0]
    }

    /// The initramfs' file name.
    pub fn initramfs(&self) -> &FileInfo {
        &self.files[1]
    }

    /// The manifest of this payload.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            format: Manifest::FORMAT,
            version: self.version.clone(),
            arch: self.arch,
            files: self.files.clone(),
            cmdline: None,
            kernel_args: None,
        }
    }
}
