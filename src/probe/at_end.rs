//! Recognises what lies at the end of a partition.

use super::{error::ProbeError, read};
use crate::device::BlockIo;
use slipway_core::units::Extent;

/// What keeps its superblock at the end of a partition, and whose file system begins where the partition does: md of the versions
/// 0.90 and 1.0 (md(4)), and DRBD with internal metadata (libblkid, drbd.c).
pub fn at_end(disk: &dyn BlockIo, part: Extent) -> Result<Option<&'static str>, ProbeError> {
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
