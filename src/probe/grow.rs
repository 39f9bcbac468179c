//! Facts that growing needs: both copies of the partition table, and the content of EPHEMERAL.

use super::{
    error::ProbeError,
    gpt::{is_backup_gone, lba1, raw_table},
    lba0::gpt,
    read, table_bytes,
};
use crate::device::BlockIo;
use slipway_core::{
    disk::{
        layout::Part,
        magic::{HEAD_BYTES, recognise},
        xfs::{XfsSize, is_intact},
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
    let end_is_blank = is_backup_gone(disk, &gpt.copies);
    let known = disk.known(ephemeral.offset).map_err(|source| ProbeError::Io { offset: ephemeral.offset, source })?;
    Ok((GrowFacts { gpt, sector, disk_bytes, primary, last, held, end_is_blank, known }, lba1))
}

fn held(disk: &dyn BlockIo, part: Extent) -> Result<EphemeralContent, ProbeError> {
    let mut head = vec![0; part.len.min(HEAD_BYTES as u64) as usize];
    read(disk, part.offset, &mut head)?;
    if let Some(name) = at_end(disk, part)? {
        return Ok(EphemeralContent::Unsafe(name));
    }
    Ok(match recognise(&head) {
        // A LUKS volume has both copies of its header at the beginning.
        Some(magic) if matches!(magic.short, "LUKS" | "ext2/3/4" | "btrfs" | "LVM") => {
            EphemeralContent::Other(magic.name)
        }
        Some(magic) => match XfsSize::from_superblock(&head) {
            Some(size) if is_intact(&head) => EphemeralContent::Xfs(size),
            Some(_) => EphemeralContent::Damaged,
            None => EphemeralContent::Unsafe(magic.name),
        },
        None if are_zeros(&head) => EphemeralContent::Blank,
        None => EphemeralContent::Unsafe("something that is not known"),
    })
}

// What keeps its superblock at the end of a partition, and whose file system begins where the partition does: md of the versions
// 0.90 and 1.0 (md(4)), and DRBD with internal metadata (libblkid, drbd.c).
pub(super) fn at_end(disk: &dyn BlockIo, part: Extent) -> Result<Option<&'static str>, ProbeError> {
    const STEP: u64 = 64 << 10;
    const MD: [u32; 2] = [0xa92b_4efc, 0xa92b_4efc_u32.swap_bytes()];
    // Of the versions 8 and 9, and of 8.4 while it is in use; big-endian.
    const DRBD: [u32; 3] = [0x6b02_7483, 0x6c02_7483, 0x6d02_7483];
    let (steps, pages) = (part.len / STEP * STEP, part.len / 4096 * 4096);
    let places: [(Option<u64>, &[u32], _); 3] = [
        (steps.checked_sub(STEP), &MD, "an md RAID member"),
        (pages.checked_sub(8192), &MD, "an md RAID member"),
        (pages.checked_sub(4096 - 60), &DRBD, "a DRBD device"),
    ];
    for (at, magics, name) in places {
        let Some(at) = at else { continue };
        let mut magic = [0; 4];
        read(disk, part.offset + at, &mut magic)?;
        if magics.contains(&u32::from_le_bytes(magic)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
