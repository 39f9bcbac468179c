//! Content of STATE and EPHEMERAL, and whether a file system that was there is lost.

use std::collections::BTreeMap;

use super::{
    gpt::{Gpt, intruders, second_copy},
    part_content::volume,
    read,
};
use crate::device::BlockIo;
use slipway_core::{
    disk::{
        gpt_mend::with_rest,
        layout::{Part, gpt_bytes, overlap},
        magic::{HEAD_BYTES, recognise},
        volume_fault::{Format, VolumeFault},
        xfs::{self, XfsSize, is_intact},
    },
    plan::{Covered, GptFacts, VolumeHolds},
    units::{Extent, MIB},
    zeros::{are_zeros, data_at},
};

/// Content of both volumes.
#[derive(Default)]
pub struct Volumes {
    pub held: BTreeMap<Part, VolumeHolds>,
    /// Their faults.
    pub faults: BTreeMap<Part, VolumeFault>,
    /// The one that goes on in a partition of others.
    pub covered: Option<Covered>,
    /// The places that could not be read.
    pub unreadable: Vec<String>,
}

/// Looks at their beginnings. LUKS1 and LUKS2 begin with the same magic (LUKS2 On-Disk Format, 2.1).
pub fn volumes(disk: &dyn BlockIo, gpt: &GptFacts) -> Volumes {
    let mut found = Volumes::default();
    for part in [Part::State, Part::Ephemeral] {
        let extent = gpt.part(part);
        let mut head = vec![0; HEAD_BYTES.min(extent.len as usize)];
        let unread = read(disk, extent.offset, &mut head).err().map(|e| format!("its beginning cannot be read: {e}"));
        found.unreadable.extend(unread.as_ref().map(|why| format!("{part}: {why}")));
        let held = match &head[..] {
            [b'L', b'U', b'K', b'S', 0xba, 0xbe, ..] => VolumeHolds::Luks,
            [b'X', b'F', b'S', b'B', ..] => VolumeHolds::Xfs,
            _ if unread.is_none() && are_zeros(&head) => VolumeHolds::Blank,
            _ => VolumeHolds::Other,
        };
        let fault = match held {
            _ if unread.is_some() => unread,
            VolumeHolds::Xfs => {
                fault_of_xfs(&head, extent).map(str::to_owned).or_else(|| lost_end(disk, &head, extent))
            }
            VolumeHolds::Luks => None,
            VolumeHolds::Blank | VolumeHolds::Other => lost(disk, &head, extent),
        };
        // What erases a volume leaves all of its first MiB zeros.
        let held = if held == VolumeHolds::Blank && fault.is_some() { VolumeHolds::Other } else { held };
        if held == VolumeHolds::Xfs && fault.is_some() {
            found.covered = found.covered.or_else(|| covered(disk, gpt, part));
        }
        found.faults.extend(fault.map(|fault| {
            let what = format!("{part}: {fault} (the partition begins at byte {} of the disk)", extent.offset);
            (part, VolumeFault { what, format: format_of(disk, extent) })
        }));
        found.held.insert(part, held);
    }
    found
}

fn fault_of_xfs(head: &[u8], extent: Extent) -> Option<&'static str> {
    let bytes = XfsSize::from_superblock(head).and_then(|size| size.bytes());
    match bytes {
        None => Some("the superblock of its XFS file system makes no sense"),
        Some(bytes) if bytes > extent.len => Some("its XFS file system is larger than the partition"),
        Some(_) if !is_intact(head) => Some("the superblock of its XFS file system is damaged"),
        Some(_) => None,
    }
}

/// Whether the volume is whole, and ends behind its entry in a partition of others: somebody made both anew.
fn covered(disk: &dyn BlockIo, gpt: &GptFacts, part: Part) -> Option<Covered> {
    let Extent { offset, len } = gpt.part(part);
    let room = second_copy(disk, gpt_bytes(disk.sector_size())).checked_sub(offset)?;
    let bytes = with_rest(volume(disk, offset)?, room)?;
    let (mut parts, tables, sector) = (gpt.parts, Gpt::tables(disk), disk.sector_size());
    parts[part.index()].len = bytes;
    let beyond = bytes.checked_sub(len).filter(|_| overlap(&parts).is_none())?;
    let by = intruders(&tables.in_use().ok()?.1, &parts, sector).into_iter().find(|intruder| intruder.on == part)?;
    Some(Covered { beyond, by })
}

/// Each of its allocation groups begins with a copy of the superblock. The last one lacks it where the disk was made smaller,
/// and as large as before again.
fn lost_end(disk: &dyn BlockIo, head: &[u8], extent: Extent) -> Option<String> {
    let at = XfsSize::from_superblock(head)?.last_group()?;
    let mut copy = vec![0; disk.sector_size().bytes() as usize];
    match read(disk, extent.offset + at, &mut copy) {
        Ok(()) if copy.starts_with(xfs::MAGIC) => None,
        Ok(()) => Some(format!(
            "the end of its XFS file system is lost, as where the disk was smaller for a time: there is no superblock at byte {at} \
             of it"
        )),
        Err(e) => Some(format!("the end of its XFS file system cannot be read: {e}")),
    }
}

/// A volume that begins neither as a file system nor blank: a wipe, ours or the OS's, leaves its first MiB zero.
fn lost(disk: &dyn BlockIo, head: &[u8], extent: Extent) -> Option<String> {
    if recognise(head).is_some() {
        return None;
    }
    let mut first = vec![0; MIB.min(extent.len) as usize];
    disk.read_back(extent.offset, &mut first).ok()?;
    let at = data_at(&first)?;
    Some(match format_of(disk, extent) {
        Format::Xfs => "the superblock of its XFS file system is lost".to_owned(),
        Format::Luks2 => "the first header of its LUKS volume is lost, and there is a second one".to_owned(),
        Format::Unknown => {
            format!("it begins with no known file system, and it is not blank: there is data at byte {at} of it")
        }
    })
}

fn format_of(disk: &dyn BlockIo, extent: Extent) -> Format {
    Format::of(|at, bytes| {
        let mut found = vec![0; bytes.len()];
        let is_inside = at + bytes.len() as u64 <= extent.len;
        is_inside && disk.read_back(extent.offset + at, &mut found).is_ok() && found == bytes
    })
}
