//! Is this disk one without a partition table, or a complete one? Judged with code that is not the
//! installer's: the `gpt` and `fatfs` crates and a few lines of our own from the specifications.

use std::{collections::BTreeMap, io::Read};

use slipway::model::digest::Sha256;

use super::disk::{Pages, PagesFile};

/// What a complete disk of one install holds.
pub struct Expected {
    pub disk_guid: String,
    /// SHA-256 of files by partition number and path.
    pub files: BTreeMap<(u32, String), Sha256>,
    /// Raw bytes that must stand on the disk: BIOS core image, boot code, ADV copies.
    pub raw: Vec<(u64, Vec<u8>)>,
}

/// What a state is.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No reader finds a partition table.
    NoTable,
    /// Complete: which of the expected installs.
    Complete(usize),
    /// Neither.
    Broken(String),
}

/// Judge a state. Without a protective MBR no reader looks further: Linux (`find_valid_gpt`), EDK2
/// (`PartitionValidMbr`) and GRUB (`partmap/gpt.c`) all check it first. With one, some may take the backup
/// where the primary is damaged and some not, so both must be there and say the same.
pub fn judge(pages: &Pages, size: u64, installs: &[Expected]) -> Verdict {
    let mut lba0 = [0; 512];
    pages.read(0, &mut lba0);
    let protective = lba0[510..] == [0x55, 0xaa] && lba0[446..510].chunks(16).any(|e| e[4] == 0xee);
    if !protective {
        return Verdict::NoTable;
    }
    match complete(pages, size, installs) {
        Ok(which) => Verdict::Complete(which),
        Err(why) => Verdict::Broken(why),
    }
}

fn complete(pages: &Pages, size: u64, installs: &[Expected]) -> Result<usize, String> {
    let whole = PagesFile { pages, offset: 0, len: size, at: 0 };
    let table = gpt::GptConfig::new().only_valid_headers(true).open_from_device(whole).map_err(|e| e.to_string())?;
    let same = |a: &gpt::header::Header, b: &gpt::header::Header| {
        (a.disk_guid, a.crc32_parts, a.current_lba, a.backup_lba)
            == (b.disk_guid, b.crc32_parts, b.backup_lba, b.current_lba)
    };
    match (table.primary_header(), table.backup_header()) {
        (Ok(p), Ok(b)) if same(p, b) => {}
        _ => return Err("primary and backup GPT differ".to_owned()),
    }
    let guid = table.guid().to_string();
    let which = installs.iter().position(|i| i.disk_guid == guid).ok_or("a disk GUID of no install")?;
    let expected = &installs[which];
    for ((number, path), digest) in &expected.files {
        let part = table.partitions().get(number).ok_or("a partition is missing")?;
        let (offset, len) = (part.first_lba * 512, (part.last_lba - part.first_lba + 1) * 512);
        let bytes = read_file(PagesFile { pages, offset, len, at: 0 }, path).map_err(|e| format!("{path}: {e}"))?;
        if Sha256::of(&bytes) != *digest {
            return Err(format!("{path} in partition {number} is damaged"));
        }
    }
    for (offset, bytes) in &expected.raw {
        let mut found = vec![0; bytes.len()];
        pages.read(*offset, &mut found);
        if found != *bytes {
            return Err(format!("bytes at {offset} are others"));
        }
    }
    for number in [6, 7] {
        let mut magic = [0; 4];
        pages.read(table.partitions()[&number].first_lba * 512, &mut magic);
        if &magic != b"XFSB" {
            return Err(format!("no XFS in partition {number}"));
        }
    }
    Ok(which)
}

fn read_file(volume: PagesFile, path: &str) -> std::io::Result<Vec<u8>> {
    let volume = fatfs::FileSystem::new(volume, fatfs::FsOptions::new().update_accessed_date(false))?;
    let mut bytes = Vec::new();
    volume.root_dir().open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
