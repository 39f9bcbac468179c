//! The content of files and disks, byte by byte.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
};

use nix::unistd::Whence;
use slipway_core::{digest::Sha256, zeros::are_zeros};

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
}

/// The content of a file: equal to another when every byte is. Holes and zeros are the same.
#[derive(PartialEq, Eq)]
pub struct Content {
    len: u64,
    blocks: BTreeMap<u64, Sha256>,
}

impl Content {
    const BLOCK: u64 = 64 << 10;

    pub fn of(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let len = file.metadata().unwrap().len();
        let mut blocks = BTreeMap::new();
        for (at, bytes) in data_blocks(&file, Range { offset: 0, len }) {
            blocks.insert(at, Sha256::of(&bytes));
        }
        Content { len, blocks }
    }

    /// The same but for a range, which others write to.
    pub fn without(mut self, range: Range) -> Self {
        self.blocks.retain(|at, _| *at + Self::BLOCK <= range.offset || *at >= range.offset + range.len);
        self
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {} blocks of {} that are not zero", self.len, self.blocks.len(), Self::BLOCK)
    }
}

/// The blocks of a range that are not all zeros, with their offsets from its start. Reads no holes.
fn data_blocks(file: &File, range: Range) -> Vec<(u64, Vec<u8>)> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < range.len {
        let from = range.offset + at;
        match nix::unistd::lseek(file, from.cast_signed(), Whence::SeekData) {
            Ok(data) => at += (data.cast_unsigned() - from) / Content::BLOCK * Content::BLOCK,
            Err(nix::Error::ENXIO) => break,
            Err(e) => panic!("SEEK_DATA at {from}: {e}"),
        }
        if at >= range.len {
            break;
        }
        let mut bytes = vec![0; (range.len - at).min(Content::BLOCK) as usize];
        file.read_exact_at(&mut bytes, range.offset + at).unwrap();
        if !are_zeros(&bytes) {
            blocks.push((at, bytes));
        }
        at += Content::BLOCK;
    }
    blocks
}

/// Copy a range of an image to a file of its own, for programs that know no offsets.
pub fn extract(image: &Path, range: Range, to: &Path) {
    let target = File::create(to).unwrap();
    target.set_len(range.len).unwrap();
    for (at, bytes) in data_blocks(&File::open(image).unwrap(), range) {
        target.write_all_at(&bytes, at).unwrap();
    }
}

pub fn read_at(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Turn all bits of one byte around. Twice is as before.
pub fn flip(path: &Path, offset: u64) {
    let byte = read_at(path, offset, 1)[0];
    write_at(path, offset, &[!byte]);
}
