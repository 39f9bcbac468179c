//! Readers of a disk that are not the installer's: the `gpt` and `fatfs` crates, SHA-256, and a few lines of our own
//! from the descriptions of GRUB's environment block and Talos' ADV.

use std::{collections::BTreeMap, io::Read};

use sha2::{Digest as _, Sha256};
use slipway_core::units::Extent;

use super::pages::{Pages, PagesFile, SECTOR};

pub type Digest = [u8; 32];

pub fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// The partition table: the GUID of the disk, and the partitions by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub guid: String,
    pub parts: BTreeMap<u32, Extent>,
}

/// Read it. Some readers take the backup where the primary is damaged and some do not, so both must be there and say
/// the same.
pub fn table(pages: &Pages, size: u64) -> Result<Table, String> {
    table_of(pages, size, false)
}

/// The table by one of its copies, where the other one is lost. The reader takes no header whose entries are damaged, so each
/// header is taken away in turn.
pub fn table_of_one_copy(pages: &Pages, size: u64) -> Result<Table, String> {
    let without = |header: u64| {
        let mut pages = pages.clone();
        pages.write(header, &[0; SECTOR]);
        table_of(&pages, size, true)
    };
    table(pages, size).or_else(|_| without(SECTOR as u64)).or_else(|_| without(size - SECTOR as u64))
}

fn table_of(pages: &Pages, size: u64, one_will_do: bool) -> Result<Table, String> {
    let whole = PagesFile::new(pages, Extent { offset: 0, len: size });
    let table =
        gpt::GptConfig::new().only_valid_headers(!one_will_do).open_from_device(whole).map_err(|e| e.to_string())?;
    let same = |a: &gpt::header::Header, b: &gpt::header::Header| {
        (a.disk_guid, a.crc32_parts, a.current_lba, a.backup_lba)
            == (b.disk_guid, b.crc32_parts, b.backup_lba, b.current_lba)
    };
    match (table.primary_header(), table.backup_header()) {
        (Ok(p), Ok(b)) if same(p, b) => {}
        (Ok(_), Err(_)) | (Err(_), Ok(_)) if one_will_do => {}
        _ => return Err("primary and backup GPT differ".to_owned()),
    }
    let bytes = |p: &gpt::partition::Partition| Extent {
        offset: p.first_lba * SECTOR as u64,
        len: (p.last_lba - p.first_lba + 1) * SECTOR as u64,
    };
    let parts = table.partitions().iter().map(|(number, p)| (*number, bytes(p))).collect();
    Ok(Table { guid: table.guid().to_string(), parts })
}

/// A file, and where its last piece lies on the disk; files of one sector have no other.
pub fn file(pages: &Pages, part: Extent, path: &str) -> std::io::Result<(Vec<u8>, u64)> {
    let volume = PagesFile::new(pages, part);
    let last = volume.last_read();
    let volume = fatfs::FileSystem::new(volume, fatfs::FsOptions::new().update_accessed_date(false))?;
    let mut file = volume.root_dir().open_file(path)?;
    let (mut bytes, mut at) = (Vec::new(), 0);
    let mut buf = [0; 4096];
    loop {
        let n = file.read(&mut buf)?;
        if n == 0 {
            return Ok((bytes, at));
        }
        at = last.get();
        bytes.extend_from_slice(&buf[..n]);
    }
}

/// All files of the root directory.
pub fn files(pages: &Pages, part: Extent) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let volume =
        fatfs::FileSystem::new(PagesFile::new(pages, part), fatfs::FsOptions::new().update_accessed_date(false))?;
    let mut files = BTreeMap::new();
    for entry in volume.root_dir().iter() {
        let entry = entry?;
        let mut bytes = Vec::new();
        if entry.is_file() {
            entry.to_file().read_to_end(&mut bytes)?;
        }
        files.insert(entry.file_name(), bytes);
    }
    Ok(files)
}

const BLOCK: &[u8] = b"# GRUB Environment Block\n";
/// What a block is filled up with. It says nothing, and is most of it.
const PADDING: [u8; SECTOR] = [b'#'; SECTOR];

/// The variables of an environment block, as GRUB's `load_env` sets them (lib/envblk.c: `grub_envblk_iterate`).
pub fn env_block(bytes: &[u8]) -> Option<BTreeMap<String, String>> {
    let bytes = bytes.strip_prefix(BLOCK)?;
    let mut at = bytes.iter().copied().peekable();
    let mut vars = BTreeMap::new();
    while let Some(first) = at.peek().copied() {
        if PADDING.starts_with(&bytes[bytes.len() - at.len()..]) {
            break;
        }
        let (mut name, mut value) = (Vec::new(), Vec::new());
        if first != b'#' {
            name.extend(std::iter::from_fn(|| at.next_if(|b| *b != b'=')));
            if at.next().is_none() {
                break;
            }
        }
        while let Some(byte) = at.next().filter(|b| *b != b'\n') {
            value.extend(if byte == b'\\' { at.next() } else { Some(byte) });
        }
        if first != b'#' {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            vars.insert(text(&name), text(&value));
        }
    }
    Some(vars)
}

/// A block with variables set or (`None`) deleted, as GRUB's `save_env` changes it: in place, the rest as it is.
/// `None` where it is no block, or has no room.
pub fn env_block_with(bytes: &[u8], vars: &[(&str, Option<&String>)]) -> Option<Vec<u8>> {
    let text = bytes.strip_prefix(BLOCK)?;
    let used = text.iter().rposition(|b| *b != b'#').map_or(0, |last| last + 1);
    // None of our values has a backslash or a newline.
    let mut lines: Vec<String> = String::from_utf8_lossy(&text[..used]).lines().map(str::to_owned).collect();
    for (name, value) in vars {
        let start = format!("{name}=");
        let line = lines.iter().position(|line| line.starts_with(&start));
        match (line, value) {
            (Some(n), Some(value)) => lines[n] = start + value,
            (None, Some(value)) => lines.push(start + value),
            (Some(n), None) => drop(lines.remove(n)),
            (None, None) => {}
        }
    }
    let mut out = BLOCK.to_vec();
    lines.iter().for_each(|line| out.extend(format!("{line}\n").bytes()));
    (out.len() <= bytes.len()).then(|| {
        out.resize(bytes.len(), b'#');
        out
    })
}

/// The tags of META: of the first ADV copy whose magics and digest are right.
pub fn meta(pages: &Pages, part: Extent) -> Option<BTreeMap<u32, Vec<u8>>> {
    const COPY: usize = 256 << 10;
    [0, COPY].into_iter().find_map(|at| {
        let mut copy = vec![0; COPY];
        pages.read(part.offset + at as u64, &mut copy);
        let word = |at: usize| u32::from_be_bytes([copy[at], copy[at + 1], copy[at + 2], copy[at + 3]]);
        let mut blank = copy.clone();
        blank[COPY - 36..COPY - 4].fill(0);
        if (word(0), word(COPY - 4)) != (0x5a4b_3c2d, 0xa5b4_c3d2) || digest(&blank) != copy[COPY - 36..COPY - 4] {
            return None;
        }
        let (mut tags, mut at) = (BTreeMap::new(), 4);
        while word(at) != 0 {
            let len = word(at + 4) as usize;
            tags.insert(word(at), copy.get(at + 8..at + 8 + len)?.to_vec());
            at += 8 + len;
        }
        Some(tags)
    })
}
