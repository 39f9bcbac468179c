//! Content of a target disk before an installation: nothing, or something that needs `--force`.

use super::{
    error::ProbeError,
    gpt::for_other_sectors,
    has_vhd_footer,
    lba0::{self, Behind, is_unfinished},
};
use std::io;

use crate::device::{AlignedBuf, BlockIo, CHUNK_BYTES, Disk};
use slipway_core::{
    disk::{
        gpt::{GptError, Header, is_protective_mbr},
        magic::{VHD, recognise},
    },
    plan::{DiskFacts, Found},
    units::{Lba, MIB, SectorSize},
    zeros::{are_zeros, data_at},
};

/// Behind what is found, if it is a system of ours that has lost its table.
pub const BRINGS_BACK: &str = "`installer status` says what brings it back";

pub fn disk_facts(disk: &Disk) -> io::Result<DiskFacts> {
    Ok(DiskFacts {
        identity: disk.identity().clone(),
        bytes: disk.size(),
        sector: disk.sector_size(),
        busy: disk.uses(),
        found: found(disk)?,
    })
}

/// A disk counts as empty if its first and last MiB are zero, or hold nothing but a GPT without partitions, and nothing that
/// is known stands where first partitions begin. Anything else, known or not, may be data in use.
pub(super) fn found(disk: &dyn BlockIo) -> io::Result<Found> {
    let len = disk.size().min(MIB) as usize;
    if len == 0 {
        return Ok(Found::Nothing);
    }
    if has_vhd_footer(disk) {
        return Ok(Found::OtherFormat(&VHD));
    }
    if let Err(lost @ (ProbeError::Lba0Lost | ProbeError::TableLost(_) | ProbeError::Shrunk { .. })) = lba0::gpt(disk) {
        let unused = "; nothing on it was in use yet, as after an installation that has not ended";
        let unused = if is_unfinished(disk).unwrap_or(false) { unused } else { "" };
        return Ok(Found::Something(format!("a Slipway system: {lost}{unused}; {BRINGS_BACK}")));
    }
    let tail_at = disk.size() - len as u64;
    let (mut head, mut tail) = (AlignedBuf::new(CHUNK_BYTES), AlignedBuf::new(CHUNK_BYTES));
    disk.read_back(0, &mut head[..len])?;
    disk.read_back(tail_at, &mut tail[..len])?;
    let (head, tail) = (&head[..len], &tail[..len]);
    let (in_head, in_tail) = (data_at(head), data_at(tail));
    let last = Lba(disk.size() / disk.sector_size().bytes() - 1);
    if in_head.or(in_tail).is_none() || is_empty_gpt(head, tail, disk.sector_size(), last) {
        return Ok(match lba0::without_table(disk) {
            Some(Behind::Used) => {
                Found::Something("a Slipway system that was in use, without a partition table".to_owned())
            }
            Some(Behind::Data(what)) => Found::Something(what),
            Some(Behind::Unfinished) | None => Found::Nothing,
        });
    }
    if let Some(format) = recognise(head).filter(|format| format.is_other_format()) {
        return Ok(Found::OtherFormat(format));
    }
    let data = |at: usize, from: u64| format!("data at byte {}", from + at as u64);
    let what = described(disk, head).or_else(|| recognise(head).map(|s| s.name.to_owned()));
    let what = what.or_else(|| in_head.map(|at| data(at, 0))).or_else(|| in_tail.map(|at| data(at, tail_at)));
    Ok(Found::Something(what.unwrap_or_default()))
}

// Protective MBR without boot code, both headers, no entries, and zeros elsewhere.
fn is_empty_gpt(head: &[u8], tail: &[u8], sector: SectorSize, last: Lba) -> bool {
    let block = sector.bytes() as usize;
    if head.len() < 3 * block || tail.len() < block {
        return false;
    }
    // Up to byte 440 is boot code. The protective entry, at 446, is the only one.
    let mbr_only = is_protective_mbr(head)
        && are_zeros(&head[..440])
        && are_zeros(&head[462..510])
        && are_zeros(&head[512..block]);
    let header = |bytes: &[u8], at| Header::decode(bytes, at).is_ok();
    let (tail, backup) = tail.split_at(tail.len() - block);
    mbr_only
        && header(&head[block..2 * block], Lba(1))
        && header(backup, last)
        && are_zeros(&head[2 * block..])
        && are_zeros(tail)
}

fn described(disk: &dyn BlockIo, head: &[u8]) -> Option<String> {
    let sector = disk.sector_size();
    let bytes = sector.bytes() as usize;
    let header = match Header::decode(head.get(bytes..2 * bytes)?, Lba(1)) {
        Ok(header) if is_protective_mbr(head) => header,
        Err(GptError::NoSignature) if is_protective_mbr(head) => {
            let other = for_other_sectors(disk);
            return Some(other.unwrap_or_else(|| "a protective MBR without a GPT behind it".to_owned()));
        }
        // Without a protective MBR this is not a GPT disk (UEFI 2.10, 5.2.3).
        Ok(_) | Err(GptError::NoSignature) => return None,
        Err(e @ GptError::Unsupported { .. }) => return Some(format!("a partition table that is not supported ({e})")),
        Err(e) => return Some(format!("a damaged partition table ({e})")),
    };
    let at = header.entries_lba.offset(sector).and_then(|at| usize::try_from(at).ok())?;
    let entries = match head.get(at..).ok_or(GptError::EntriesCrc).and_then(|b| header.decode_entries(b)) {
        Ok(entries) => entries,
        Err(e) => return Some(format!("a damaged partition table ({e})")),
    };
    let names: Vec<&str> = entries.iter().map(|e| if e.name.is_empty() { "(no name)" } else { &e.name }).collect();
    Some(match names.len() {
        0 => "a GPT without partitions, and data beside it".to_owned(),
        1 => format!("a GPT with 1 partition: {}", names[0]),
        n => format!("a GPT with {n} partitions: {}", names.join(", ")),
    })
}
