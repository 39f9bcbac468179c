//! Places of the partitions on the disk.
//!
//! Their numbers and order are fixed, because the boot rule addresses them by number. An upgrade never resizes one.
//! They start and end on multiples of 1 MiB.

use serde::{Deserialize, Serialize};
use uuid::{Uuid, uuid};

use crate::{
    boot::slot::Slot,
    units::{ByteSize, Extent, GIB, MIB, SectorSize, approx, round_down},
};

/// One of the seven partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Part {
    /// EFI system partition (ESP), FAT32: the UEFI boot image and boot.env.
    #[serde(rename = "EFI")]
    Esp = 1,
    /// BIOS boot partition: GRUB's raw core image.
    #[serde(rename = "BIOS")]
    Bios = 2,
    /// Slot A, FAT32.
    #[serde(rename = "BOOT-A")]
    BootA = 3,
    /// Slot B, FAT32.
    #[serde(rename = "BOOT-B")]
    BootB = 4,
    /// META tags in a Talos ADV.
    #[serde(rename = "META")]
    Meta = 5,
    /// Machine state, XFS or blank.
    #[serde(rename = "STATE")]
    State = 6,
    /// Everything else, XFS or blank.
    #[serde(rename = "EPHEMERAL")]
    Ephemeral = 7,
}

// UEFI specification 2.10, table 5-7.
const TYPE_ESP: Uuid = uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
// GRUB manual, "BIOS installation".
const TYPE_BIOS_BOOT: Uuid = uuid!("21686148-6449-6e6f-744e-656564454649");
// Linux filesystem data (Discoverable Partitions Specification).
const TYPE_LINUX: Uuid = uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4");
// GPT attribute bits (UEFI specification 2.10, table 5-8).
const NO_BLOCK_IO_PROTOCOL: u64 = 1 << 1;
const LEGACY_BIOS_BOOTABLE: u64 = 1 << 2;

impl Part {
    /// All seven, in order of number and of offset.
    pub const ALL: [Part; 7] =
        [Part::Esp, Part::Bios, Part::BootA, Part::BootB, Part::Meta, Part::State, Part::Ephemeral];

    /// Place in [`Part::ALL`], and in every array that has something of each, from 0.
    pub const fn index(self) -> usize {
        self as usize - 1
    }

    /// Number in the GPT, from 1.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// GPT partition name.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Esp => "EFI",
            Part::Bios => "BIOS",
            Part::BootA => "BOOT-A",
            Part::BootB => "BOOT-B",
            Part::Meta => "META",
            Part::State => "STATE",
            Part::Ephemeral => "EPHEMERAL",
        }
    }

    /// GPT partition type.
    pub const fn type_guid(self) -> Uuid {
        match self {
            Part::Esp => TYPE_ESP,
            Part::Bios => TYPE_BIOS_BOOT,
            _ => TYPE_LINUX,
        }
    }

    /// GPT attribute bits.
    pub const fn attributes(self) -> u64 {
        match self {
            Part::Bios => LEGACY_BIOS_BOOTABLE,
            _ => 0,
        }
    }

    /// Attribute bits that it must not have: UEFI shows no file system there, and what boots is read from it.
    pub const fn forbidden_attributes(self) -> u64 {
        match self {
            Part::Esp | Part::BootA | Part::BootB => NO_BLOCK_IO_PROTOCOL,
            _ => 0,
        }
    }
}

impl From<Slot> for Part {
    fn from(slot: Slot) -> Part {
        match slot {
            Slot::A => Part::BootA,
            Slot::B => Part::BootB,
        }
    }
}

impl core::fmt::Display for Part {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

// FAT32 needs 65,525 clusters. On 4096-byte sectors they take 256 MiB, and the FATs come on top.
/// Byte offset of the ESP.
pub const ESP_OFFSET: u64 = MIB;
/// Size of the ESP.
pub const ESP_BYTES: u64 = 300 * MIB;
/// Bytes of the BIOS partition: a core image takes less than half of it.
pub const BIOS_BYTES: u64 = MIB;
/// Byte offset of the BIOS partition, the same on every disk: the boot code and the core image contain it.
pub const BIOS_OFFSET: u64 = ESP_OFFSET + ESP_BYTES;
/// Bytes of META; machined requires exactly this size.
pub const META_BYTES: u64 = MIB;
/// Bytes of STATE.
pub const STATE_BYTES: u64 = 100 * MIB;
/// Default bytes of a slot.
pub const DEFAULT_SLOT_BYTES: u64 = GIB;
/// Fewest bytes of EPHEMERAL on a disk.
pub const MIN_EPHEMERAL_DISK: u64 = 2 * GIB;
/// Fewest bytes of EPHEMERAL in a disk image. The OS grows it on the disk it is written to.
pub const MIN_EPHEMERAL_IMAGE: u64 = 64 * MIB;

/// Bytes of a GPT entry array: 128 entries of 128 bytes (UEFI specification 2.10, section 5.3.2).
pub const ENTRY_ARRAY_BYTES: u64 = 128 * 128;

/// The layout of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Layout {
    /// Logical block size.
    pub sector_size: SectorSize,
    /// Size of the disk in bytes.
    pub disk_bytes: u64,
    parts: [Extent; 7],
}

/// Why no layout fits.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The disk is too small for the partitions.
    #[error(
        "the disk is too small: {} MiB are needed, it has {} MiB ({} MiB short). Needed: 1 MiB partition table + 300 MiB EFI + 1 MiB \
         BIOS + 2 x {} slot + 1 MiB META + 100 MiB STATE + {} EPHEMERAL + {} backup GPT",
        need.div_ceil(MIB), have / MIB, need.div_ceil(MIB) - have / MIB, ByteSize(*slot), ByteSize(*ephemeral), approx(*backup)
    )]
    TooSmall {
        /// Bytes needed.
        need: u64,
        /// Bytes of the disk.
        have: u64,
        /// Bytes of one slot.
        slot: u64,
        /// Bytes of the smallest EPHEMERAL.
        ephemeral: u64,
        /// Bytes of the backup GPT.
        backup: u64,
        /// Bytes needed with the smallest slots.
        least: u64,
    },
    /// A slot of this size cannot hold FAT32, or is not a multiple of 1 MiB.
    #[error(
        "a slot of {} is not possible: on a disk with {}-byte sectors it has at least {} (FAT32 needs 65525 clusters), and at \
         most 32 GiB",
        ByteSize(*slot), sector.bytes(), ByteSize(*min)
    )]
    SlotSize {
        /// Bytes asked for.
        slot: u64,
        /// Fewest bytes possible.
        min: u64,
        /// Logical block size.
        sector: SectorSize,
    },
}

impl LayoutError {
    /// Whether slots of any size are too large for the disk.
    pub const fn holds_no_slots(&self) -> bool {
        matches!(self, LayoutError::TooSmall { have, least, .. } if *have < *least)
    }

    /// The remedy: a clause behind the reason.
    pub const fn remedy(&self) -> &'static str {
        match self {
            LayoutError::TooSmall { .. } if self.holds_no_slots() => {
                "take a larger one: it is too small for slots of any size"
            }
            LayoutError::TooSmall { .. } => "a smaller --slot-size needs less",
            LayoutError::SlotSize { .. } => "use a multiple of 1 MiB between these",
        }
    }
}

/// Fewest bytes of a slot: FAT32 needs 65,525 clusters of at least one sector, and the FATs.
pub const fn min_slot_bytes(sector: SectorSize) -> u64 {
    match sector {
        SectorSize::S512 => 36 * MIB,
        SectorSize::S4096 => 260 * MIB,
    }
}

/// Bytes of the header and entries of a GPT; they stand behind the protective MBR and at the end of the disk.
pub const fn gpt_bytes(sector: SectorSize) -> u64 {
    sector.bytes() + ENTRY_ARRAY_BYTES
}

impl Layout {
    /// Lay out a disk. EPHEMERAL takes the rest, at least `min_ephemeral` bytes.
    pub fn new(
        disk_bytes: u64,
        sector_size: SectorSize,
        slot_bytes: u64,
        min_ephemeral: u64,
    ) -> Result<Self, LayoutError> {
        let min = min_slot_bytes(sector_size);
        if !slot_bytes.is_multiple_of(MIB) || slot_bytes < min || slot_bytes > 32 * GIB {
            return Err(LayoutError::SlotSize { slot: slot_bytes, min, sector: sector_size });
        }
        let mut parts = as_installed(slot_bytes);
        let ephemeral = parts[6].offset;
        let backup = gpt_bytes(sector_size);
        let need = ephemeral + min_ephemeral + backup;
        if disk_bytes < need {
            return Err(LayoutError::TooSmall {
                need,
                have: disk_bytes,
                slot: slot_bytes,
                ephemeral: min_ephemeral,
                backup,
                least: need - 2 * (slot_bytes - min),
            });
        }
        // EPHEMERAL reaches as far as the backup GPT allows.
        parts[6].len = round_down(disk_bytes - backup, MIB) - ephemeral;
        Ok(Layout { sector_size, disk_bytes, parts })
    }

    /// The bytes of one partition.
    pub const fn part(&self, part: Part) -> Extent {
        self.parts[part.index()]
    }

    pub(crate) const fn disk_sectors(&self) -> u64 {
        self.disk_bytes / self.sector_size.bytes()
    }
}

/// Where an installation puts the partitions; the last one takes all room that is left, and has no length here.
pub fn as_installed(slot_bytes: u64) -> [Extent; 7] {
    // The first MiB holds the MBR and the primary GPT.
    let mut offset = ESP_OFFSET;
    [ESP_BYTES, BIOS_BYTES, slot_bytes, slot_bytes, META_BYTES, STATE_BYTES, 0].map(|len| {
        let part = Extent { offset, len };
        offset += len;
        part
    })
}

/// Two partitions that overlap: writing to one would change the other. `parts` is in the order of [`Part::ALL`].
pub fn overlap(parts: &[Extent; 7]) -> Option<(Part, Part)> {
    let mut sorted = Part::ALL.map(|part| (parts[part.index()], part));
    sorted.sort_by_key(|(extent, part)| (extent.offset, part.number()));
    sorted.windows(2).find(|pair| pair[0].0.meets(pair[1].0)).map(|pair| (pair[0].1, pair[1].1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::units::Lba;

    #[test]
    fn default_layout_on_8_gib() {
        let l = Layout::new(8 * GIB, SectorSize::S512, DEFAULT_SLOT_BYTES, MIN_EPHEMERAL_DISK).unwrap();
        let at = |p| (l.part(p).offset / MIB, l.part(p).len / MIB);
        assert_eq!(at(Part::Esp), (1, 300));
        assert_eq!(at(Part::Bios), (301, 1));
        assert_eq!(l.part(Part::Bios).offset, BIOS_OFFSET);
        assert_eq!(at(Part::BootA), (302, 1024));
        assert_eq!(at(Part::BootB), (1326, 1024));
        assert_eq!(at(Part::Meta), (2350, 1));
        assert_eq!(at(Part::State), (2351, 100));
        assert_eq!(at(Part::Ephemeral), (2451, 8192 - 2451 - 1));
        assert_eq!(l.part(Part::Esp).first_lba(SectorSize::S512), Lba(2048));
    }

    #[test]
    fn one_sector_too_small_is_too_small() {
        for sector in [SectorSize::S512, SectorSize::S4096] {
            let slot = min_slot_bytes(sector);
            let need = match Layout::new(0, sector, slot, MIN_EPHEMERAL_IMAGE) {
                Err(LayoutError::TooSmall { need, have: 0, .. }) => need,
                other => panic!("{other:?}"),
            };
            assert!(Layout::new(need, sector, slot, MIN_EPHEMERAL_IMAGE).is_ok());
            let short = need - sector.bytes();
            let text = Layout::new(short, sector, slot, MIN_EPHEMERAL_IMAGE).unwrap_err().to_string();
            // The difference of the two numbers that stand before it.
            let (need, have) = (need.div_ceil(MIB), short / MIB);
            let says = format!("{need} MiB are needed, it has {have} MiB ({} MiB short)", need - have);
            assert!(text.contains(&says), "{says}: {text}");
        }
    }

    #[test]
    fn smaller_slots_are_advised_where_they_would_fit() {
        let remedy = |slots: u64, disk: u64| {
            Layout::new(disk, SectorSize::S512, slots, MIN_EPHEMERAL_IMAGE).unwrap_err().remedy()
        };
        // 1 + 300 + 1 + 2 * 36 + 1 + 100 + 64 MiB, and the backup GPT.
        let least = 539 * MIB + gpt_bytes(SectorSize::S512);
        for slots in [64 * MIB, GIB] {
            assert_eq!(remedy(slots, least), "a smaller --slot-size needs less");
            assert!(remedy(slots, least - 512).starts_with("take a larger one"));
        }
        assert!(remedy(36 * MIB, least - 512).starts_with("take a larger one"));
        assert!(Layout::new(least, SectorSize::S512, 36 * MIB, MIN_EPHEMERAL_IMAGE).is_ok());
    }

    #[test]
    fn parts_never_overlap_and_stay_off_the_labels() {
        for sector in [SectorSize::S512, SectorSize::S4096] {
            for disk in [2 * GIB + 7 * 4096, 10 * GIB, 10 * GIB + MIB - 4096, 9_999_999 * 4096] {
                let l = Layout::new(disk, sector, 300 * MIB, MIN_EPHEMERAL_IMAGE).unwrap();
                let mut end = gpt_bytes(sector) + sector.bytes();
                for part in Part::ALL {
                    let e = l.part(part);
                    assert!(
                        e.offset >= end && e.offset.is_multiple_of(MIB) && e.len.is_multiple_of(MIB),
                        "{part} {e:?}"
                    );
                    end = e.end();
                }
                assert!(end + gpt_bytes(sector) <= disk);
            }
        }
    }

    #[test]
    fn odd_slot_sizes_are_refused() {
        for slot in [0, MIB, 36 * MIB + 512, 33 * GIB] {
            assert!(matches!(Layout::new(100 * GIB, SectorSize::S512, slot, 0), Err(LayoutError::SlotSize { .. })));
        }
    }
}
