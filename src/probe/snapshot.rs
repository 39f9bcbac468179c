//! The snapshots in the slots.

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    plan::GptFacts,
    snapshot::{
        content::Content,
        content_at,
        head::{Found, Head},
        head_at, room,
    },
    units::Extent,
};

use crate::{
    device::BlockIo,
    fat::{FatVolume, ReadError},
};

/// The head in a slot.
pub(super) fn head(disk: &dyn BlockIo, gpt: &GptFacts, slot: Slot) -> Found {
    let at = head_at(gpt.part(slot.into()));
    let mut bytes = vec![0; disk.sector_size().bytes() as usize];
    match disk.read_back(at.offset, &mut bytes) {
        Ok(()) => Found::parse(&bytes, slot, gpt.disk_guid),
        Err(e) => Found::Unreadable(e.to_string()),
    }
}

/// The content of a snapshot, compared with the digest in its head. The error says why it cannot be put back.
pub fn snapshot_content(disk: &dyn BlockIo, gpt: &GptFacts, head: &Head) -> Result<Content, String> {
    let at = content_at(gpt.part(head.slot.into()), head.bytes).ok_or("it says that it is larger than it may be")?;
    let mut bytes = vec![0; at.len as usize];
    disk.read_back(at.offset, &mut bytes).map_err(|e| format!("at byte {} of the disk: {e}", at.offset))?;
    bytes.truncate(head.bytes as usize);
    if Sha256::of(&bytes) != head.sha256 {
        return Err("it is not what was written: the disk is faulty, or another program wrote over it".to_owned());
    }
    Content::decode(&bytes).map_err(|e| e.to_string())
}

/// Why there is no room for a snapshot in a slot: all of it, or `range`.
pub fn snapshot_room(disk: &dyn BlockIo, part: Extent, range: Option<Extent>) -> Result<(), String> {
    match FatVolume::open(disk, part).and_then(|volume| volume.is_free(range.unwrap_or_else(|| room(part)))) {
        Ok(true) => Ok(()),
        Ok(false) => Err("files lie there".to_owned()),
        // Where there is no file system, there are no files.
        Err(ReadError::NotFat32 { .. }) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}
