//! Facts that growing needs: both copies of the partition table, and the content of EPHEMERAL.

use super::{
    at_end::at_end,
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
