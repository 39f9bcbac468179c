//! The answer of `verify`: every file in the slots compared with SHA256SUMS.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{boot::slot::Slot, digest::Sha256};

/// How a file compares with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// The checksum agrees.
    Good,
    /// The checksum differs.
    Damaged,
    /// The file exists but has no checksum.
    Unlisted,
    /// The file does not exist.
    Missing,
}

impl FileState {
    /// Whether the slot is not what was installed. A file that nothing lists does no harm: fsck leaves such files.
    pub const fn is_damage(self) -> bool {
        matches!(self, FileState::Damaged | FileState::Missing)
    }
}

impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileState::Good => "good",
            FileState::Damaged => "damaged: its SHA-256 is not the one listed",
            FileState::Unlisted => "not listed: it has no checksum to compare with",
            FileState::Missing => "missing",
        })
    }
}

/// One file of a slot, read from the disk.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct FileCheck {
    pub name: String,
    pub state: FileState,
    /// Size in bytes, if the file exists.
    pub size: Option<u64>,
    /// SHA-256 as listed.
    pub expected: Option<Sha256>,
    /// SHA-256 of what is on the disk.
    pub actual: Option<Sha256>,
    /// Byte offset of its data on the disk.
    pub offset: Option<u64>,
}

/// Whether every file in the slots matches SHA256SUMS.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VerifyReport {
    /// Path of the disk.
    pub disk: String,
    /// Whether everything that was checked is good.
    pub ok: bool,
    /// Files by slot, without slots that are empty by boot.env.
    pub slots: BTreeMap<Slot, SlotCheck>,
}

/// One slot, checked.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct SlotCheck {
    pub files: Vec<FileCheck>,
    /// Why the files could not be listed or read.
    pub error: Option<String>,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (slot, check) in &self.slots {
            for file in &check.files {
                write!(f, "slot {slot}  {:<16} {}", file.name, file.state)?;
                if let (FileState::Damaged, Some(expected), Some(actual), Some(offset)) =
                    (file.state, file.expected, file.actual, file.offset)
                {
                    write!(f, " (byte {offset} of the disk; listed {expected}, read {actual})")?;
                }
                writeln!(f)?;
            }
            if let Some(error) = &check.error {
                writeln!(f, "slot {slot}  {error}")?;
            }
        }
        let verdict = if self.ok { "every file is what SHA256SUMS says" } else { "DAMAGED" };
        write!(f, "{}: {verdict}", self.disk)
    }
}
