//! Snapshots: files, directories and META tags that belong to a system, and go back when it goes back.
//!
//! [`declaration`] is what a system says belongs to it, [`content`] a copy of that, and [`head`] the sector by which such a
//! copy counts. A snapshot lies at the end of the slot of its system, in clusters that no file has:
//!
//! ```text
//! … files of the slot … free … │ content, to a whole 4 KiB │ head, 4 KiB │ end of the partition
//! ```
//!
//! The content is written first, then the head: one sector, which has the digest of the content. So a power cut leaves the
//! snapshot from before, none, or the new one.

pub mod content;
pub mod declaration;
pub mod head;

use crate::units::Extent;

/// Most bytes of an encoded content.
pub const MAX_BYTES: u64 = 16 << 20;
/// Bytes at the end of a slot's partition that are the head's. It fills the first sector of them.
pub const HEAD_BYTES: u64 = 4096;

/// Where the head lies in a slot's partition.
pub const fn head_at(slot: Extent) -> Extent {
    Extent { offset: slot.end() - HEAD_BYTES, len: HEAD_BYTES }
}

/// Where a content of `bytes` lies, to a whole 4 KiB. `None` if the partition is too small.
pub const fn content_at(slot: Extent, bytes: u64) -> Option<Extent> {
    let len = bytes.div_ceil(HEAD_BYTES) * HEAD_BYTES;
    if bytes > MAX_BYTES || len + HEAD_BYTES > slot.len {
        return None;
    }
    Some(Extent { offset: slot.end() - HEAD_BYTES - len, len })
}

/// All that the largest snapshot of a slot may fill: no file may have a cluster there.
pub const fn room(slot: Extent) -> Extent {
    let len = if slot.len < MAX_BYTES + HEAD_BYTES { slot.len } else { MAX_BYTES + HEAD_BYTES };
    Extent { offset: slot.end() - len, len }
}
