//! Short (8.3) and long names in FAT (Microsoft FAT specification, 2005, "Long File Name Implementation").

use crate::prelude::*;

use super::{ATTR_LONG_NAME, DIR_ENTRY_BYTES};

pub(crate) fn short_label(label: &str) -> [u8; 11] {
    let mut out = [b' '; 11];
    for (to, from) in out.iter_mut().zip(label.bytes()) {
        *to = from.to_ascii_uppercase();
    }
    out
}

// The 8.3 alias of a name: the name in upper case if that fits, else `PREFIX~N`. `None` if FAT cannot store the name.
pub(crate) fn short_name(name: &str, taken: &[[u8; 11]]) -> Option<[u8; 11]> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"$%'-_@~`!(){}^#&".contains(&b);
    let long_legal = |c: char| !c.is_control() && !"\"*/:<>?\\|".contains(c);
    if name.is_empty() || name.len() > 255 || !name.chars().all(long_legal) || name.ends_with(['.', ' ']) {
        return None;
    }
    let (base, ext) = name.rsplit_once('.').unwrap_or((name, ""));
    let pack = |base: &str, ext: &str| {
        let mut out = [b' '; 11];
        for (to, from) in out[..8].iter_mut().zip(base.bytes()) {
            *to = from;
        }
        for (to, from) in out[8..].iter_mut().zip(ext.bytes()) {
            *to = from;
        }
        out
    };
    let clean =
        |s: &str| -> String { s.bytes().filter(|b| legal(*b)).map(|b| b.to_ascii_uppercase() as char).collect() };
    let fits = (1..=8).contains(&base.len()) && ext.len() <= 3 && base.bytes().chain(ext.bytes()).all(legal);
    if fits {
        let short = pack(&clean(base), &clean(ext));
        return (!taken.contains(&short)).then_some(short);
    }
    let (base, ext) = (clean(base), clean(ext));
    (1..1000).find_map(|n| {
        let tail = format!("~{n}");
        let base = &base[..base.len().min(8 - tail.len())];
        let short = pack(&format!("{base}{tail}"), &ext[..ext.len().min(3)]);
        (!taken.contains(&short)).then_some(short)
    })
}

/// A short name as text, `NAME.EXT`.
pub fn display_short(short: &[u8; 11]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match (text(&short[..8]), text(&short[8..])) {
        (base, ext) if ext.is_empty() => base,
        (base, ext) => format!("{base}.{ext}"),
    }
}

// Checksum of a short name. Each entry of a long name repeats it, which ties the two together.
pub(crate) fn checksum(short: &[u8; 11]) -> u8 {
    short.iter().fold(0u8, |sum, b| sum.rotate_right(1).wrapping_add(*b))
}

/// Byte positions of the 13 UTF-16 units in a long-name entry.
const LONG_NAME_UNITS: [usize; 13] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];

// In the order on the disk, which is last part first, in front of the 8.3 entry.
pub(crate) fn long_name_entries(name: &str, checksum: u8) -> Vec<u8> {
    let units: Vec<u16> = name.encode_utf16().collect();
    let parts = units.chunks(LONG_NAME_UNITS.len()).enumerate();
    let last = units.len().div_ceil(LONG_NAME_UNITS.len());
    let mut entries: Vec<[u8; DIR_ENTRY_BYTES]> = parts
        .map(|(i, part)| {
            let mut e = [0; DIR_ENTRY_BYTES];
            // 0x40 marks the last part of the name.
            e[0] = (i + 1) as u8 | if i + 1 == last { 0x40 } else { 0 };
            e[11] = ATTR_LONG_NAME;
            e[13] = checksum;
            // One zero ends the name, and ones fill the entry.
            let padded = part.iter().copied().chain([0]).chain(core::iter::repeat(0xffff));
            for (at, unit) in LONG_NAME_UNITS.into_iter().zip(padded) {
                e[at..at + 2].copy_from_slice(&unit.to_le_bytes());
            }
            e
        })
        .collect();
    entries.reverse();
    entries.concat()
}

/// The long-name entries that stand before an 8.3 entry.
#[derive(Default)]
pub struct LongName {
    parts: Vec<(u8, u8, [u16; 13])>,
}

impl LongName {
    /// Take the next entry, 32 bytes.
    pub fn push(&mut self, raw: &[u8]) {
        // The last part of a name is marked and comes first. Parts without it are no name, for GRUB neither.
        if raw[0] & 0x40 != 0 {
            self.parts.clear();
        } else if self.parts.is_empty() {
            return;
        }
        let units = LONG_NAME_UNITS.map(|at| u16::from_le_bytes([raw[at], raw[at + 1]]));
        self.parts.push((raw[0] & 0x3f, raw[13], units));
    }

    /// `None` unless the parts are complete and belong to this 8.3 name.
    pub fn name(self, short: &[u8; 11]) -> Option<String> {
        let sum = checksum(short);
        let count = self.parts.len();
        let complete = self.parts.iter().enumerate().all(|(i, (n, s, _))| usize::from(*n) == count - i && *s == sum);
        if count == 0 || !complete {
            return None;
        }
        let units = self.parts.iter().rev().flat_map(|(_, _, units)| units.iter().copied());
        let units: Vec<u16> = units.take_while(|u| *u != 0).collect();
        String::from_utf16(&units).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names() {
        let name = |s, taken: &[[u8; 11]]| short_name(s, taken).map(|n| String::from_utf8(n.to_vec()).unwrap());
        assert_eq!(name("vmlinuz", &[]).unwrap(), "VMLINUZ    ");
        assert_eq!(name("BOOTX64.EFI", &[]).unwrap(), "BOOTX64 EFI");
        assert_eq!(name("initramfs.xz", &[]).unwrap(), "INITRA~1XZ ");
        assert_eq!(name("rootfs.squashfs", &[]).unwrap(), "ROOTFS~1SQU");
        assert_eq!(name("rootfs.squashfz", &[*b"ROOTFS~1SQU"]).unwrap(), "ROOTFS~2SQU");
        for bad in ["", "a/b", "a:b", "x.", "x "] {
            assert_eq!(name(bad, &[]), None, "{bad:?}");
        }
    }

    /// As GRUB and Linux read them.
    #[test]
    fn a_long_name_begins_with_its_marked_part() {
        let short = short_name("rootfs.squashfs", &[]).unwrap();
        let entries = long_name_entries("rootfs.squashfs", checksum(&short));
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let (mut bytes, mut long) = (entries.clone(), LongName::default());
            change(&mut bytes);
            bytes.chunks_exact(DIR_ENTRY_BYTES).for_each(|raw| long.push(raw));
            long.name(&short)
        };
        assert_eq!(read(&|_| ()).as_deref(), Some("rootfs.squashfs"));
        assert_eq!(read(&|bytes| bytes[0] ^= 0x40), None);
        assert_eq!(read(&|bytes| bytes[DIR_ENTRY_BYTES] ^= 0x40).as_deref(), Some("rootfs.squash"));
        assert_eq!(read(&|bytes| bytes[13] ^= 1), None);
        assert_eq!(read(&|bytes| bytes[0] ^= 1), None);
    }
}
