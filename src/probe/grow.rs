//! Facts that growing needs: both copies of the partition table, and the content of EPHEMERAL.

use super::{
    error::ProbeError,
    gpt::{lba1, raw_table},
    lba0::gpt,
    read, table_bytes,
};
use crate::device::BlockIo;
use slipway_core::{
    disk::{
        layout::Part,
        magic::{HEAD_BYTES, recognise},
        xfs::XfsSize,
    },
    plan::{EphemeralContent, GrowFacts},
    units::{Extent, Lba},
    zeros::are_zeros,
};

/// Reads little, so the check of a disk that cannot grow costs next to nothing. Also reads LBA 1.
pub fn grow_facts(disk: &dyn BlockIo) -> Result<(GrowFacts, Option<Vec<u8>>), ProbeError> {
    let (sector, disk_bytes) = (disk.sector_size(), table_bytes(disk));
    let gpt = gpt(disk)?;
    let lba1 = lba1(disk);
    let primary = raw_table(disk, Lba(1));
    let last = raw_table(disk, Lba(disk_bytes / sector.bytes() - 1));
    let ephemeral = gpt.part(Part::Ephemeral);
    let held = held(disk, ephemeral)?;
    let known = disk.known(ephemeral.offset).map_err(|source| ProbeError::Io { offset: ephemeral.offset, source })?;
    Ok((GrowFacts { gpt, sector, disk_bytes, primary, last, held, known }, lba1))
}

fn held(disk: &dyn BlockIo, part: Extent) -> Result<EphemeralContent, ProbeError> {
    let mut head = vec![0; part.len.min(HEAD_BYTES as u64) as usize];
    read(disk, part.offset, &mut head)?;
    if has_raid_at_end(disk, part)? {
        return Ok(EphemeralContent::Unsafe("an md RAID member"));
    }
    Ok(match recognise(&head) {
        // A LUKS volume has both copies of its header at the beginning.
        Some(magic) if matches!(magic.short, "LUKS" | "ext2/3/4" | "btrfs" | "LVM") => {
            EphemeralContent::Other(magic.name)
        }
        Some(magic) => match XfsSize::from_superblock(&head) {
            Some(size) => EphemeralContent::Xfs(size),
            None => EphemeralContent::Unsafe(magic.name),
        },
        None if are_zeros(&head) => EphemeralContent::Blank,
        None => EphemeralContent::Unsafe("something that is not known"),
    })
}

// Versions 0.90 and 1.0 keep their superblock at the end, and the file system begins where the partition does (md(4)).
fn has_raid_at_end(disk: &dyn BlockIo, part: Extent) -> Result<bool, ProbeError> {
    const STEP: u64 = 64 << 10;
    let aligned = part.len / STEP * STEP;
    let (old, new) = (aligned.checked_sub(STEP), (part.len / 4096 * 4096).checked_sub(8192));
    for at in [old, new].into_iter().flatten() {
        let mut magic = [0; 4];
        read(disk, part.offset + at, &mut magic)?;
        if u32::from_le_bytes(magic) == 0xa92b_4efc || u32::from_be_bytes(magic) == 0xa92b_4efc {
            return Ok(true);
        }
    }
    Ok(false)
}
