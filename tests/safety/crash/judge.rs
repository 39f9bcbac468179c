//! Is this disk one without a partition table, or a complete install? Judged with code that is not the installer's.

use std::collections::BTreeMap;

use super::{
    pages::Pages,
    read::{Digest, Table, digest, file, table, table_of_one_copy},
};

/// The content of a complete disk of one install.
pub struct Expected {
    pub disk_guid: String,
    /// SHA-256 of files by partition number and path.
    pub files: BTreeMap<(u32, String), Digest>,
    /// Raw bytes that must stand on the disk: BIOS core image, boot code, ADV copies.
    pub raw: Vec<(u64, Vec<u8>)>,
}

/// The verdict about a state.
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
/// (`PartitionValidMbr`) and GRUB (`partmap/gpt.c`) all check it first.
pub fn judge(pages: &Pages, size: u64, installs: &[Expected]) -> Verdict {
    judged(pages, size, installs, false)
}

/// `one_will_do`: one copy of the partition table.
pub fn judged(pages: &Pages, size: u64, installs: &[Expected], one_will_do: bool) -> Verdict {
    let mut lba0 = [0; 512];
    pages.read(0, &mut lba0);
    let protective = lba0[510..] == [0x55, 0xaa] && lba0[446..510].chunks(16).any(|e| e[4] == 0xee);
    if !protective {
        return Verdict::NoTable;
    }
    let table = if one_will_do { table_of_one_copy } else { table };
    match table(pages, size).and_then(|table| complete(pages, &table, installs)) {
        Ok(which) => Verdict::Complete(which),
        Err(why) => Verdict::Broken(why),
    }
}

fn complete(pages: &Pages, table: &Table, installs: &[Expected]) -> Result<usize, String> {
    let which = installs.iter().position(|i| i.disk_guid == table.guid).ok_or("a disk GUID of no install")?;
    let expected = &installs[which];
    for ((number, path), expected) in &expected.files {
        let part = table.parts.get(number).ok_or("a partition is missing")?;
        let (bytes, _) = file(pages, *part, path).map_err(|e| format!("{path}: {e}"))?;
        if digest(&bytes) != *expected {
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
        pages.read(table.parts[&number].offset, &mut magic);
        if &magic != b"XFSB" {
            return Err(format!("no XFS in partition {number}"));
        }
    }
    Ok(which)
}
