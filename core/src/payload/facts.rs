//! What is known of a payload once it was looked at.

use crate::prelude::*;

use super::manifest::{Arch, FileInfo, Manifest};

/// A payload whose files were read and hashed, or whose checksums are compared while they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadFacts {
    /// Where it comes from, as `--source` names it.
    pub source: String,
    /// Architecture of the kernel.
    pub arch: Arch,
    /// `VERSION_ID` of its os-release.
    pub version: Option<String>,
    /// Kernel, initramfs, squashfs if there is one.
    pub files: Vec<FileInfo>,
    /// Content of its `cmdline` file, if it has one.
    pub cmdline: Option<String>,
    /// Whether it brought a SHA256SUMS, which then agreed.
    pub checksums: bool,
}

impl PayloadFacts {
    /// The kernel.
    pub fn kernel(&self) -> &FileInfo {
        &self.files[0]
    }

    /// The initramfs.
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
            cmdline: self.cmdline.clone(),
            kernel_args: None,
        }
    }
}
