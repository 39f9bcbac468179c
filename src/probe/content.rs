//! What a target disk holds before an install: nothing, or something worth a refusal.

use std::io;

use crate::{
    bootloader::{Assets, info},
    device::{AlignedBuf, BlockIo, Busy, CHUNK_BYTES, Disk},
    model::{
        gpt::{GptError, Header, is_protective_mbr},
        manifest::Arch,
        units::{Lba, MIB, SectorSize},
    },
    plan::{AssetFacts, DiskFacts, Found},
};

/// Look at a target disk.
pub fn disk_facts(disk: &Disk) -> io::Result<DiskFacts> {
    Ok(DiskFacts {
        identity: disk.identity().clone(),
        bytes: disk.size(),
        sector: disk.sector_size(),
        busy: Busy::of(disk.identity()),
        found: found(disk)?,
    })
}

/// Sizes and digests of the boot assets, for the plan.
pub fn asset_facts(assets: &Assets, arch: Arch) -> AssetFacts {
    AssetFacts {
        efi: info(arch.efi_image(), &assets.efi),
        core: assets.bios.as_ref().map(|bios| info("core.img", &bios.core_image(Lba(0)))),
    }
}

/// A disk is empty when its first and last MiB are zero, or hold a GPT without partitions. Whatever else is
/// there, known or not, is somebody's.
fn found(disk: &dyn BlockIo) -> io::Result<Found> {
    let len = disk.size().min(MIB) as usize;
    let (mut head, mut tail) = (AlignedBuf::new(CHUNK_BYTES), AlignedBuf::new(CHUNK_BYTES));
    disk.read_at(0, &mut head[..len])?;
    disk.read_at(disk.size() - len as u64, &mut tail[..len])?;
    let (head, tail) = (&head[..len], &tail[..len]);
    let zero = |bytes: &[u8]| bytes.iter().position(|b| *b != 0);
    match (zero(head), zero(tail)) {
        (None, None) => return Ok(Found::Nothing),
        (None, Some(at)) => {
            return Ok(Found::Something(format!("data at byte {}", disk.size() - len as u64 + at as u64)));
        }
        _ => {}
    }
    if let Some(found) = gpt(head, disk.sector_size()) {
        return Ok(found);
    }
    let known = SIGNATURES.iter().find(|(_, at, magic)| head.get(*at..at + magic.len()) == Some(magic));
    let what = match (known, zero(head)) {
        (Some((name, ..)), _) => (*name).to_owned(),
        (None, at) => format!("data at byte {}", at.unwrap_or(0)),
    };
    Ok(Found::Something(what))
}

/// Name, byte offset and magic of what is worth naming (libblkid knows many more; anything that is not zero
/// counts all the same).
const SIGNATURES: [(&str, usize, &[u8]); 11] = [
    ("an XFS file system", 0, b"XFSB"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a squashfs", 0, b"hsqs"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an md RAID member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("an ext2/3/4 file system", 1080, b"\x53\xef"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("an ISO 9660 image", 32769, b"CD001"),
    ("a btrfs file system", 65600, b"_BHRfS_M"),
    ("a FAT file system", 82, b"FAT32   "),
    ("an MBR partition table or boot sector", 510, b"\x55\xaa"),
];

fn gpt(head: &[u8], sector: SectorSize) -> Option<Found> {
    let bytes = sector.bytes() as usize;
    let header = match Header::decode(head.get(bytes..2 * bytes)?, Lba(1)) {
        Ok(header) => header,
        Err(GptError::NoSignature) if is_protective_mbr(head) => {
            return Some(Found::Something("a protective MBR without a GPT behind it".to_owned()));
        }
        Err(GptError::NoSignature) => return None,
        Err(e) => return Some(Found::Something(format!("a damaged partition table ({e})"))),
    };
    let at = header.entries_lba.offset(sector).and_then(|at| usize::try_from(at).ok())?;
    let entries = match head.get(at..).ok_or(GptError::EntriesCrc).and_then(|b| header.decode_entries(b)) {
        Ok(entries) => entries,
        Err(e) => return Some(Found::Something(format!("a damaged partition table ({e})"))),
    };
    if entries.is_empty() {
        return Some(Found::Nothing);
    }
    let names: Vec<&str> = entries.iter().map(|e| if e.name.is_empty() { "(no name)" } else { &e.name }).collect();
    Some(Found::Something(format!("a GPT with {} partitions: {}", names.len(), names.join(", "))))
}
