//! Directory entries for files and directories that are not there yet.

use crate::prelude::*;

use super::{
    ATTR_ARCHIVE, ATTR_DIRECTORY, ATTR_VOLUME_LABEL, DIR_ENTRY_BYTES, Directory,
    entry::FileAt,
    layout::{FatTime, raw_entry, split_path},
    map::{FatMap, Run},
    name::{checksum, display_short, long_name_entries, short_label, short_name},
};

/// The kind of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
}

impl FatMap {
    /// The first cluster of a directory that is there; 0 of the root, as directories call it.
    pub fn directory_at(&self, path: &str) -> Option<u32> {
        let directory = self.directories.get(&path.to_ascii_lowercase())?;
        Some(if path.is_empty() { 0 } else { directory.first })
    }

    /// The directories of this path that are not there, the outermost first.
    pub fn missing_directories<'p>(&self, path: &'p str) -> Vec<&'p str> {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        above.filter(|directory| self.directory_at(directory).is_none()).collect()
    }

    /// Whether a file with this path can be made: it or one of its directories gets an entry that nothing has.
    pub fn has_room(&self, path: &str) -> bool {
        let first = self.missing_directories(path).first().copied().unwrap_or(path);
        // Its short name may be that of an entry with another long one.
        !self.is_there(first) && self.room(first, &[]).is_some() && self.free_short_name(first).is_some()
    }

    /// Whether this path leads through a directory that GRUB passes over.
    pub fn is_passed_over(&self, path: &str) -> bool {
        let path = path.to_ascii_lowercase();
        let leads = |directory: &String| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        self.passed_over.iter().any(leads)
    }

    /// Whether a file or directory has this path.
    pub fn is_there(&self, path: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(path)) || self.directory_at(path).is_some()
    }

    /// Where the entry of a new file or directory may begin, as a byte offset in the volume: no file has it nor is it one
    /// of those `taken`, and all of it lies in one sector. Its directory must be there.
    pub fn room(&self, path: &str, taken: &[u64]) -> Option<u64> {
        let (directory, name) = split_path(path);
        let directory = self.directories.get(&directory.to_ascii_lowercase())?;
        let is_free = |entry: &u64| self.is_free(directory, *entry) && !taken.contains(entry);
        directory.unused.iter().copied().find(|first| {
            let entries = span(*first, name);
            is_in_one_sector(&entries, self.sector) && entries.iter().all(is_free)
        })
    }

    /// Whether the entry may begin there.
    pub fn is_room(&self, path: &str, first: u64) -> bool {
        let (directory, name) = split_path(path);
        let directory = self.directories.get(&directory.to_ascii_lowercase());
        let entries = span(first, name);
        is_in_one_sector(&entries, self.sector)
            && directory.is_some_and(|directory| entries.iter().all(|entry| self.is_free(directory, *entry)))
    }

    fn is_free(&self, directory: &Directory, entry: u64) -> bool {
        directory.unused.contains(&entry) && self.place_of_the_label() != Some(entry)
    }

    // The first entry of the root directory, if nothing has it.
    fn place_of_the_label(&self) -> Option<u64> {
        let root = self.directories.get("")?;
        let first = self.extent(Run { first: root.first, count: 1 }).offset;
        (root.unused.first() == Some(&first)).then_some(first)
    }

    /// The label, if it is missing from the sector at this byte of the volume, where the root directory begins.
    pub fn label(&self, sector: u64, name: &str, time: FatTime) -> Option<[u8; DIR_ENTRY_BYTES]> {
        let label = || raw_entry(short_label(name), ATTR_VOLUME_LABEL, 0, 0, time);
        (self.place_of_the_label() == Some(sector)).then(label)
    }

    /// The entry of a new file or directory, in a directory that is there. None if FAT has no such name.
    pub fn new_entry(&self, path: &str, kind: Kind, at: FileAt, time: FatTime) -> Option<Vec<u8>> {
        let (_, name) = split_path(path);
        let short = self.free_short_name(path)?;
        let attributes = if kind == Kind::Directory { ATTR_DIRECTORY } else { ATTR_ARCHIVE };
        let mut raw = raw_entry(short, attributes, 0, 0, time);
        at.put_into(&mut raw);
        let is_said = display_short(&short).eq_ignore_ascii_case(name);
        let long = if is_said { vec![] } else { long_name_entries(name, checksum(&short)) };
        raw[12] = if is_said { small_letters(name) } else { 0 };
        Some([long, raw.to_vec()].concat())
    }

    /// The short name of a new entry, in a directory that is there. None if FAT has none for it, or another entry has that.
    fn free_short_name(&self, path: &str) -> Option<[u8; 11]> {
        let (directory, name) = split_path(path);
        short_name(name, &self.directories.get(&directory.to_ascii_lowercase())?.short_names)
    }

    /// The offsets of entries in a new directory whose first cluster lies at this byte: those behind `.` and `..`.
    pub fn entries_of_a_new_directory(&self, offset: u64) -> Vec<u64> {
        let first = offset + 2 * DIR_ENTRY_BYTES as u64;
        (first..offset + self.sector).step_by(DIR_ENTRY_BYTES).collect()
    }
}

/// The first cluster of a new directory, without files, for one in the directory with the cluster `above`.
pub fn empty_directory(bytes: u64, own: u32, above: u32, time: FatTime) -> Vec<u8> {
    let entries = [(*b".          ", own), (*b"..         ", above)];
    let entry = |(name, cluster)| raw_entry(name, ATTR_DIRECTORY, cluster, 0, time);
    let mut content: Vec<u8> = entries.into_iter().flat_map(entry).collect();
    content.resize(bytes as usize, 0);
    content
}

/// Which parts of a name of 8.3 are in small letters, as Windows NT and Linux write it.
fn small_letters(name: &str) -> u8 {
    let (base, ext) = name.split_once('.').unwrap_or((name, ""));
    let is_small = |part: &str| part != part.to_ascii_uppercase() && part == part.to_ascii_lowercase();
    (u8::from(is_small(base)) << 3) | (u8::from(is_small(ext)) << 4)
}

/// The number of entries that a name takes.
pub fn entries(name: &str) -> usize {
    let is_short = short_name(name, &[]).is_some_and(|short| display_short(&short).eq_ignore_ascii_case(name));
    if is_short { 1 } else { 1 + name.encode_utf16().count().div_ceil(13) }
}

/// The offsets of the entries of a name, from the first.
fn span(first: u64, name: &str) -> Vec<u64> {
    (first..).step_by(DIR_ENTRY_BYTES).take(entries(name)).collect()
}

fn is_in_one_sector(entries: &[u64], sector: u64) -> bool {
    let number = |entry: &u64| entry / sector;
    entries.first().map(number) == entries.last().map(number)
}
