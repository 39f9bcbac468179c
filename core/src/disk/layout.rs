//! Where everything lies on the disk.
//!
//! Numbers and order of the partitions are fixed: the boot rule addresses them by number, and an
//! upgrade never renumbers or resizes one. Partitions start and end on multiples of 1 MiB, on disks
//! with 512-byte and with 4096-byte logical blocks alike.

use serde::{Deserialize, Serialize};
use uuid::{Uuid, uuid};

use crate::{
    boot::slot::Slot,
    units::{ByteSize, Extent, GIB, MIB, SectorSize, round_down},
};

/// One of the seven partitions; the discriminant is its number in the GPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Part {
    /// EFI system partition, FAT32: the UEFI boot image and boot.env.
    #[serde(rename = "EFI")]
    Esp = 1,
    /// BIOS boot partition: GRUB's core image, raw.
    #[serde(rename = "BIOS")]
    Bios = 2,
    /// Slot A, FAT32.
    #[serde(rename = "BOOT-A")]
    BootA = 3,
    /// Slot B, FAT32.
    #[serde(rename = "BOOT-B")]
    BootB = 4,
    /// Talos ADV, exactly 1 MiB.
    #[serde(rename = "META")]
    Meta = 5,
    /// Machine state, XFS or blank.
    #[serde(rename = "STATE")]
    State = 6,
    /// Everything else, XFS or blank.
    #[serde(rename = "EPHEMERAL")]
    Ephemeral = 7,
}

/// EFI system partition (UEFI specification 2.10, table 5-7).
const TYPE_ESP: Uuid = uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
/// BIOS boot partition (GRUB manual, "BIOS installation").
const TYPE_BIOS_BOOT: Uuid = uuid!("21686148-6449-6e6f-744e-656564454649");
/// Linux filesystem data (Discoverable Partitions Specification).
const TYPE_LINUX: Uuid = uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4");
/// GPT attribute bit 2, "legacy BIOS bootable" (UEFI specification 2.10, table 5-8).
const LEGACY_BIOS_BOOTABLE: u64 = 1 << 2;

impl Part {
    /// All seven, in order of number and of place on the disk.
    pub const ALL: [Part; 7] =
        [Part::Esp, Part::Bios, Part::BootA, Part::BootB, Part::Meta, Part::State, Part::Ephemeral];

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

/// ESP: FAT32 needs 65,525 clusters, which on 4096-byte sectors is 256 MiB and its tables.
const ESP_BYTES: u64 = 300 * MIB;
/// BIOS boot partition; the core image takes about a fifth of it.
const BIOS_BYTES: u64 = MIB;
/// machined finds META by this exact size.
pub const META_BYTES: u64 = MIB;
const STATE_BYTES: u64 = 100 * MIB;
/// Default size of a slot.
pub const DEFAULT_SLOT_BYTES: u64 = GIB;
/// Smallest EPHEMERAL on a real disk, bytes.
pub const MIN_EPHEMERAL_DISK: u64 = 2 * GIB;
/// Smallest EPHEMERAL in an image file, bytes (the OS grows it on the disk it is written to).
pub const MIN_EPHEMERAL_IMAGE: u64 = 64 * MIB;

/// GPT entry array: 128 entries of 128 bytes (UEFI specification 2.10, section 5.3.2).
pub const ENTRY_ARRAY_BYTES: u64 = 128 * 128;

/// A complete layout of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Layout {
    /// Logical block size the GPT counts in.
    pub sector_size: SectorSize,
    /// Size of the disk in bytes.
    pub disk_bytes: u64,
    parts: [Extent; 7],
}

/// Why no layout fits.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The disk is smaller than the sum of its parts.
    #[error(
        "the disk is too small: {need} bytes are needed ({}), it has {have} bytes ({} short). Needed: 1 MiB label \
         + 300 MiB EFI + 1 MiB BIOS + 2 x {} slot + 1 MiB META + 100 MiB STATE + {} EPHEMERAL + {} bytes backup label; a smaller --slot-size needs less",
        crate::units::approx(*need), need - have, ByteSize(*slot), ByteSize(*ephemeral), backup
    )]
    TooSmall {
        /// Bytes needed.
        need: u64,
        /// Bytes there.
        have: u64,
        /// Bytes of one slot.
        slot: u64,
        /// Bytes of the smallest EPHEMERAL.
        ephemeral: u64,
        /// Bytes of the backup GPT.
        backup: u64,
    },
    /// A slot that is no legal FAT32 file system or not a whole number of MiB.
    #[error(
        "a slot of {} is not possible: use a multiple of 1 MiB, at least {} on a disk with {}-byte sectors \
         (FAT32 needs 65525 clusters) and at most 32 GiB",
        ByteSize(*slot), ByteSize(*min), sector.bytes()
    )]
    SlotSize {
        /// Bytes asked for.
        slot: u64,
        /// Smallest legal size in bytes.
        min: u64,
        /// Logical block size.
        sector: SectorSize,
    },
}

/// Smallest slot that is legal FAT32, in bytes: 65,525 clusters of one sector and the tables.
pub const fn min_slot_bytes(sector: SectorSize) -> u64 {
    match sector {
        SectorSize::S512 => 36 * MIB,
        SectorSize::S4096 => 260 * MIB,
    }
}

/// Bytes of a GPT label behind the protective MBR, or at the end of the disk: header and entries.
pub const fn label_bytes(sector: SectorSize) -> u64 {
    sector.bytes() + ENTRY_ARRAY_BYTES
}

impl Layout {
    /// Lay out a disk of `disk_bytes` with slots of `slot_bytes` and an EPHEMERAL of at least
    /// `min_ephemeral` bytes that takes the rest.
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
        let sizes = [ESP_BYTES, BIOS_BYTES, slot_bytes, slot_bytes, META_BYTES, STATE_BYTES];
        let ephemeral = MIB + sizes.iter().sum::<u64>();
        let backup = label_bytes(sector_size);
        let need = ephemeral + min_ephemeral + backup;
        if disk_bytes < need {
            return Err(LayoutError::TooSmall {
                need,
                have: disk_bytes,
                slot: slot_bytes,
                ephemeral: min_ephemeral,
                backup,
            });
        }
        let mut parts = [Extent { offset: 0, len: 0 }; 7];
        let mut offset = MIB;
        for (part, len) in parts.iter_mut().zip(sizes) {
            *part = Extent { offset, len };
            offset += len;
        }
        parts[6] = Extent { offset, len: round_down(disk_bytes - backup, MIB) - offset };
        Ok(Layout { sector_size, disk_bytes, parts })
    }

    /// The bytes of one partition.
    pub const fn part(&self, part: Part) -> Extent {
        self.parts[part as usize - 1]
    }

    /// Number of logical blocks on the disk.
    pub const fn disk_sectors(&self) -> u64 {
        self.disk_bytes / self.sector_size.bytes()
    }
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
            assert!(text.contains(&need.to_string()) && text.contains(&short.to_string()), "{text}");
        }
    }

    #[test]
    fn parts_never_overlap_and_stay_off_the_labels() {
        for sector in [SectorSize::S512, SectorSize::S4096] {
            for disk in [2 * GIB + 7 * 4096, 10 * GIB, 10 * GIB + MIB - 4096, 9_999_999 * 4096] {
                let l = Layout::new(disk, sector, 300 * MIB, MIN_EPHEMERAL_IMAGE).unwrap();
                let mut end = label_bytes(sector) + sector.bytes();
                for part in Part::ALL {
                    let e = l.part(part);
                    assert!(
                        e.offset >= end && e.offset.is_multiple_of(MIB) && e.len.is_multiple_of(MIB),
                        "{part} {e:?}"
                    );
                    end = e.end();
                }
                assert!(end + label_bytes(sector) <= disk);
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
