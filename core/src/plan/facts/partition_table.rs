//! The partition table of an installed disk, and what is wrong with it.

use crate::prelude::*;

use core::fmt;

use uuid::Uuid;

use crate::{
    disk::{gpt::GptError, layout::Part},
    text::quoted,
    units::{Extent, SectorSize},
};

/// The partition table of an installed disk.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct GptFacts {
    pub disk_guid: Uuid,
    /// Byte ranges of our seven partitions, in order.
    pub parts: [Extent; 7],
    /// PARTUUIDs, in the same order.
    pub guids: [Uuid; 7],
    pub copies: GptCopies,
    /// Foreign partitions that lie on bytes of ours.
    pub intruders: Vec<Intruder>,
    /// Faults for which firmware does not find what it shall, each as a sentence. All verbs work; `repair` mends them.
    pub faults: Vec<String>,
    /// Partitions of ours that do not lie where the table says, each with a sentence. `repair` writes the table again.
    pub misplaced: Vec<(Part, String)>,
}

/// A foreign partition that lies on bytes of one of ours. A write there damages it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are what their names say")]
pub struct Intruder {
    pub number: u32,
    pub name: String,
    pub on: Part,
    /// The numbers of all such partitions: `sgdisk` writes no table in which one of them is left.
    pub all: Vec<u32>,
    /// The sectors of the disk.
    pub sector: SectorSize,
}

impl Intruder {
    /// The remedy. `disk`: its path, quoted for a shell.
    pub fn remedy(&self, disk: &str) -> String {
        let deletes: Vec<String> = self.all.iter().map(|number| format!("--delete={number}")).collect();
        let what = match self.all.len() {
            0 | 1 => "delete or move it, or delete its entry",
            _ => "delete or move all that lie so, or delete their entries at once",
        };
        // It takes a file for a disk with sectors of 512 bytes.
        let attach = match self.sector {
            SectorSize::S512 => String::new(),
            SectorSize::S4096 => {
                format!("; for an image file, on what `losetup --find --show --sector-size=4096 {disk}` prints")
            }
        };
        format!("{what} with `sgdisk {} {disk}`{attach}", deletes.join(" "))
    }
}

impl fmt::Display for Intruder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Intruder { number, name, on, .. } = self;
        let name = if name.is_empty() { String::new() } else { format!(" ({})", quoted(name)) };
        write!(f, "partition {number}{name}, which is none of ours, lies on bytes of {on}")
    }
}

/// A volume whose file system is whole, and goes on behind the end of its entry, in partitions of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Bytes that it reaches further.
    pub beyond: u64,
    /// The first of those partitions.
    pub by: Intruder,
}

/// The two copies of a GPT.
#[derive(Clone, Debug)]
pub struct GptCopies {
    /// The fault of the primary header or its entries, if they are not valid.
    pub primary: Result<(), GptError>,
    /// The fault of the backup copy.
    pub backup: Result<(), GptError>,
    /// Byte offset of the backup header, if it is valid.
    pub backup_offset: Option<u64>,
    /// Whether the last block holds the backup header of another table.
    pub foreign_backup: bool,
}

impl GptFacts {
    /// Whether a repair of the table has something to do.
    pub const fn is_damaged(&self) -> bool {
        let says_wrong = !self.faults.is_empty() || !self.misplaced.is_empty();
        self.copies.primary.is_err() || self.copies.backup.is_err() || says_wrong
    }

    /// The fault to be mended before all else.
    pub fn urgent(&self) -> Option<String> {
        if self.copies.primary.is_err() {
            return Some(
                "the first copy of the partition table is damaged, and the boot loader reads no other".to_owned(),
            );
        }
        let misplaced = || Some(format!("the partition table is damaged ({})", self.misplaced.first()?.1));
        self.faults.first().cloned().or_else(misplaced)
    }

    /// The bytes of a partition.
    pub const fn part(&self, part: Part) -> Extent {
        self.parts[part.index()]
    }

    /// The PARTUUID of a partition.
    pub const fn guid(&self, part: Part) -> Uuid {
        self.guids[part.index()]
    }
}
