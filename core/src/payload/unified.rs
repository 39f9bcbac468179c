//! A payload whose kernel and initramfs are in its unified kernel image and nowhere else: where GRUB reads them there.

use crate::prelude::*;

use core::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

/// GRUB counts in these, bytes.
pub const GRUB_SECTOR: u64 = 512;

/// A part of a file as GRUB's block lists name it: `17+27708`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sectors {
    /// Where it begins, in sectors of 512 bytes.
    pub first: u64,
    /// The number of its sectors; the last one is filled up.
    pub count: u64,
}

impl fmt::Display for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.first, self.count)
    }
}

/// The parts of a unified kernel image, for a boot loader that does not start the image itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unified {
    /// The kernel.
    pub kernel: Sectors,
    /// The initramfs.
    pub initramfs: Sectors,
    /// Its kernel command line: the one under UEFI, and so the one under BIOS.
    pub cmdline: String,
}

/// Places of the parts of a unified kernel image in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The kernel.
    pub kernel: Sectors,
    /// The initramfs.
    pub initramfs: Sectors,
    /// The command line, bytes.
    pub cmdline: Range<u64>,
}
