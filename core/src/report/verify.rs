//! The answer of `verify`: the boot chain and every file in the slots compared with their digests.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{next_step::NextStep, rows, writer::Writer};
use crate::{boot::slot::Slot, digest::Sha256};

/// The result of comparing a file with its checksum.
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
    /// The lists of the slot do not agree on a file that a boot loader or an upgrade uses.
    Disputed,
}

impl FileState {
    /// Whether the slot differs from the installed system. A file that nothing lists and nothing uses does no harm:
    /// fsck leaves such files.
    pub const fn is_damage(self) -> bool {
        matches!(self, FileState::Damaged | FileState::Missing | FileState::Disputed)
    }
}

impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileState::Good => "good",
            FileState::Damaged => "damaged: its SHA-256 is not the one listed",
            FileState::Unlisted => "not listed: it has no checksum to compare with",
            FileState::Missing => "missing",
            FileState::Disputed => {
                "not what was installed: SHA256SUMS, boot.sha256 and manifest.json do not agree on it"
            }
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

impl FileCheck {
    /// Its fault.
    pub fn problem(&self) -> Option<String> {
        self.state.is_damage().then(|| format!("{}: {}", self.name, self.finding()))
    }

    /// The state, and where and how it differs.
    fn finding(&self) -> String {
        match (self.state, self.expected, self.actual, self.offset) {
            (FileState::Damaged, Some(expected), Some(actual), Some(offset)) => {
                format!("{} (byte {offset} of the disk; listed {expected}, read {actual})", self.state)
            }
            _ => self.state.to_string(),
        }
    }
}

/// The findings of `verify`.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VerifyReport {
    /// Path of the disk.
    pub disk: String,
    /// Whether everything that was checked is good.
    pub ok: bool,
    /// The programs that the firmware starts before any slot.
    pub boot_chain: ChainCheck,
    /// Files by slot, without slots that are empty by boot.env.
    pub slots: BTreeMap<Slot, SlotCheck>,
    /// Copies of the partition table, of the boot state and of META that are lost.
    pub problems: Vec<String>,
    /// Findings that need no attention, such as a backup GPT that is not at the end of a larger disk.
    pub notes: Vec<String>,
    /// Who writes to the disk meanwhile. What it writes is not reported as damage.
    #[serde(default)]
    pub writer: Option<Writer>,
    /// The command to type next.
    #[serde(default)]
    pub next_step: NextStep,
    /// The versions in the slots.
    #[serde(skip)]
    pub versions: Vec<String>,
}

/// The boot chain: what the firmware starts before any slot.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChainCheck {
    /// Whether the ESP has a list of digests. Without one nothing is compared.
    pub recorded: bool,
    /// The UEFI image and, on a disk that a BIOS boots, `boot code` and `core image`.
    pub links: Vec<FileCheck>,
    /// Why the list or a link could not be read.
    pub errors: Vec<String>,
}

impl ChainCheck {
    /// Its faults, where it is said that they are the boot chain's.
    pub fn damage(&self) -> Vec<String> {
        self.links.iter().filter_map(FileCheck::problem).chain(self.errors.iter().cloned()).collect()
    }

    /// The same beside faults of other parts of a disk.
    pub fn problems(&self) -> Vec<String> {
        self.damage().into_iter().map(|problem| format!("boot chain: {problem}")).collect()
    }
}

/// One slot, checked.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct SlotCheck {
    pub files: Vec<FileCheck>,
    /// Why the files could not be listed or read.
    pub error: Option<String>,
    /// The digest that names the payload in it, of what was read; none if a file of it was not read.
    #[serde(default)]
    pub payload: Option<Sha256>,
}

impl SlotCheck {
    /// Its faults.
    pub fn problems(&self) -> Vec<String> {
        self.files.iter().filter_map(FileCheck::problem).chain(self.error.clone()).collect()
    }
}

/// Shown if nothing can be compared.
pub(super) const NOT_RECORDED: &str = "not listed on the ESP, nothing to compare with";

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = |what: &str, files: &[FileCheck], errors: &[String]| {
            files.iter().try_for_each(|file| writeln!(f, "{what}  {:<16} {}", file.name, file.finding()))?;
            errors.iter().try_for_each(|error| writeln!(f, "{what}  {error}"))
        };
        list("boot  ", &self.boot_chain.links, &self.boot_chain.errors)?;
        if !self.boot_chain.recorded {
            list("boot  ", &[], &[NOT_RECORDED.to_owned()])?;
        }
        for (slot, check) in &self.slots {
            list(&format!("slot {slot}"), &check.files, check.error.as_slice())?;
        }
        self.problems.iter().try_for_each(|problem| writeln!(f, "problem {problem}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note    {note}"))?;
        if let Some(writer) = &self.writer {
            writeln!(f, "writer  {writer}")?;
        }
        let verdict = match (self.ok, &self.writer) {
            (false, _) => "DAMAGED",
            (true, None) => "every file is what SHA256SUMS says",
            (true, Some(_)) => "every file that is not being replaced is what SHA256SUMS says",
        };
        write!(f, "{}: {verdict}", self.disk)?;
        if self.ok {
            return Ok(());
        }
        rows::lines(&self.next_step.rows(), None).iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}
