//! What `verify` answers: every file of the slots against its list of digests.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{boot::slot::Slot, digest::Sha256};

/// How a file compares with its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// It is what the list says.
    Good,
    /// Its bytes are others.
    Damaged,
    /// It is there, and the list does not name it.
    Unlisted,
    /// It is not there.
    Missing,
}

impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileState::Good => "good",
            FileState::Damaged => "damaged: its SHA-256 is not the one listed",
            FileState::Unlisted => "not listed: nothing says what it should be",
            FileState::Missing => "missing",
        })
    }
}

/// One file of a slot, checked on the medium.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FileCheck {
    /// Its name.
    pub name: String,
    /// How it compares.
    pub state: FileState,
    /// Size in bytes, where it is there.
    pub size: Option<u64>,
    /// SHA-256 as listed.
    pub expected: Option<Sha256>,
    /// SHA-256 of what is on the medium.
    pub actual: Option<Sha256>,
    /// Byte offset of its data on the disk.
    pub offset: Option<u64>,
}

/// Whether every file of the slots is what its SHA256SUMS says.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VerifyReport {
    /// Which disk.
    pub disk: String,
    /// Whether everything that was checked is good.
    pub ok: bool,
    /// Files by slot. A slot that is empty by boot.env is not in it.
    pub slots: BTreeMap<Slot, SlotCheck>,
}

/// One slot, checked.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SlotCheck {
    /// Its files.
    pub files: Vec<FileCheck>,
    /// Why they could not be listed or read.
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
