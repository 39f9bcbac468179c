//! Recognises a unified kernel image and its length, by its headers (PE/COFF specification; UAPI Group, "Unified Kernel
//! Image"). The firmware verifies signatures: that takes a key which is not here.

use crate::prelude::*;

use core::ops::Range;

use super::{HEAD_BYTES, Unbootable, cut, le16, le32};
use crate::{
    kernel::arch::Arch,
    payload::unified::{GRUB_SECTOR, Places, Sectors, Unified},
};

// Linux takes 2 KiB on x86 and arm64.
const MAX_CMDLINE_BYTES: u64 = 64 << 10;

const SECTION_BYTES: usize = 40;
/// Without these it is a program, and no system.
const NEEDED: [&[u8]; 3] = [b".linux\0\0", b".initrd\0", b".cmdline"];

/// `head` are the first [`super::HEAD_BYTES`]: the headers of a stub and of its added sections have room there.
pub fn check(head: &[u8], size: u64) -> Result<Arch, Unbootable> {
    let (arch, sections) = sections(head)?;
    for section in &sections {
        cut("section table", section.from + section.filled, size)?;
    }
    for name in NEEDED {
        find(&sections, name)?;
    }
    Ok(arch)
}

/// Places of kernel, initramfs and command line. An error, too, if GRUB cannot read them there.
pub fn places(head: &[u8]) -> Result<Places, Unbootable> {
    let (_, sections) = sections(head)?;
    let [kernel, initramfs, cmdline] = NEEDED.map(|name| find(&sections, name));
    let (kernel, initramfs, cmdline) = (kernel?, initramfs?, cmdline?);
    if cmdline.filled.min(cmdline.bytes) > MAX_CMDLINE_BYTES {
        return Err(Unbootable::NotUnified("its .cmdline is no kernel command line"));
    }
    Ok(Places {
        kernel: kernel.for_grub("its kernel")?,
        initramfs: initramfs.for_grub("its initramfs")?,
        cmdline: cmdline.from..cmdline.from + cmdline.filled.min(cmdline.bytes),
    })
}

/// Ranges of kernel and initramfs in the file, bytes. `None` if it is no unified kernel image.
pub fn parts(head: &[u8]) -> Option<[Range<u64>; 2]> {
    let (_, sections) = sections(head).ok()?;
    let of =
        |name| find(&sections, name).ok().map(|section| section.from..section.from + section.filled.min(section.bytes));
    let [kernel, initramfs, _] = NEEDED;
    Some([of(kernel)?, of(initramfs)?])
}

struct Section {
    name: [u8; 8],
    /// Length of its content.
    bytes: u64,
    /// Length of its content with the padding.
    filled: u64,
    /// Offset in the file.
    from: u64,
}

impl Section {
    fn for_grub(&self, what: &'static str) -> Result<Sectors, Unbootable> {
        let bytes = self.filled.min(self.bytes);
        if !self.from.is_multiple_of(GRUB_SECTOR) || bytes == 0 {
            return Err(Unbootable::NotForGrub(what));
        }
        Ok(Sectors { first: self.from / GRUB_SECTOR, count: bytes.div_ceil(GRUB_SECTOR) })
    }
}

/// As systemd's stub finds it if nobody chooses a profile: the sections of the first one override those of the base, which is
/// before it.
fn find<'s>(sections: &'s [Section], name: &[u8]) -> Result<&'s Section, Unbootable> {
    let mut groups = sections.split(|section| section.name == *b".profile");
    let [base, profile] = [groups.next(), groups.next()].map(Option::unwrap_or_default);
    let found = profile.iter().chain(base).find(|section| section.name == *name);
    found.ok_or(Unbootable::NotUnified("it lacks .linux, .initrd or .cmdline"))
}

fn sections(head: &[u8]) -> Result<(Arch, Vec<Section>), Unbootable> {
    let not = |why| Unbootable::NotUnified(why);
    let at = le32(head, 0x3c).filter(|_| head.starts_with(b"MZ")).ok_or_else(|| not("no program for UEFI"))?;
    let coff = usize::try_from(at).unwrap_or(usize::MAX);
    if !head.get(coff..).is_some_and(|rest| rest.starts_with(b"PE\0\0")) {
        return Err(not("no program for UEFI"));
    }
    let arch = match le16(head, coff + 4) {
        Some(0x8664) => Arch::Amd64,
        Some(0xaa64) => Arch::Arm64,
        _ => return Err(not("for another architecture")),
    };
    let short = || not("its headers are too long");
    let count = le16(head, coff + 6).ok_or_else(short)?;
    let optional = le16(head, coff + 20).ok_or_else(short)?;
    let first = coff + 24 + optional as usize;
    let row = |n: usize| head.get(first + n * SECTION_BYTES..).and_then(|rest| rest.first_chunk::<SECTION_BYTES>());
    let rows = (0..count as usize).map(row).collect::<Option<Vec<_>>>().ok_or_else(short)?;
    let number = |row: &[u8], at| le32(row, at).unwrap_or_default();
    let sections = rows.into_iter().map(|row| Section {
        name: row.first_chunk().copied().unwrap_or_default(),
        bytes: number(row, 8),
        filled: number(row, 16),
        from: number(row, 20),
    });
    Ok((arch, sections.collect()))
}

/// Sees a unified kernel image go by, and keeps its command line.
#[derive(Clone, Debug, Default)]
pub struct UnifiedWatch {
    head: Vec<u8>,
    seen: u64,
    cmdline: Vec<u8>,
}

impl UnifiedWatch {
    /// The next bytes. The first ones are all headers, or more.
    pub fn see(&mut self, bytes: &[u8]) {
        let from = self.seen;
        self.seen += bytes.len() as u64;
        let more = bytes.len().min((HEAD_BYTES as usize).saturating_sub(self.head.len()));
        self.head.extend_from_slice(&bytes[..more]);
        let Ok(Places { cmdline, .. }) = places(&self.head) else { return };
        let (begin, end) = (cmdline.start.max(from), cmdline.end.min(self.seen));
        if begin < end {
            self.cmdline.extend_from_slice(&bytes[(begin - from) as usize..(end - from) as usize]);
        }
    }

    /// After the last byte.
    pub fn finish(self) -> Result<Unified, Unbootable> {
        unified(places(&self.head)?, &self.cmdline)
    }
}

/// Its contents, where any of its bytes can be read. `head` are the first [`super::HEAD_BYTES`].
pub fn look_at<E>(
    head: &[u8],
    read: impl FnOnce(Range<u64>) -> Result<Vec<u8>, E>,
) -> Result<Result<Unified, Unbootable>, E> {
    Ok(match places(head) {
        Ok(places) => {
            let cmdline = read(places.cmdline.clone())?;
            unified(places, &cmdline)
        }
        Err(why) => Err(why),
    })
}

/// `bytes` is the command line.
fn unified(places: Places, bytes: &[u8]) -> Result<Unified, Unbootable> {
    let Places { kernel, initramfs, cmdline } = places;
    let text = core::str::from_utf8(bytes).ok().filter(|_| bytes.len() as u64 == cmdline.end - cmdline.start);
    let text = text.ok_or(Unbootable::NotUnified("its .cmdline is no text"))?;
    let cmdline = text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned();
    Ok(Unified { kernel, initramfs, cmdline })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(machine: u16, sections: &[(&str, u32, u32)]) -> Vec<u8> {
        let mut head = vec![0; 1024];
        head[..2].copy_from_slice(b"MZ");
        head[0x3c] = 0x80;
        head[0x80..0x84].copy_from_slice(b"PE\0\0");
        head[0x84..0x86].copy_from_slice(&machine.to_le_bytes());
        head[0x86] = sections.len() as u8;
        head[0x94] = 0xf0;
        for (n, (name, bytes, from)) in sections.iter().enumerate() {
            let at = 0x80 + 24 + 0xf0 + n * SECTION_BYTES;
            head[at..at + name.len()].copy_from_slice(name.as_bytes());
            head[at + 8..at + 12].copy_from_slice(&bytes.saturating_sub(12).to_le_bytes());
            head[at + 16..at + 20].copy_from_slice(&bytes.to_le_bytes());
            head[at + 20..at + 24].copy_from_slice(&from.to_le_bytes());
        }
        head
    }

    const WHOLE: [(&str, u32, u32); 3] = [(".cmdline", 512, 1024), (".initrd", 512, 1536), (".linux", 1024, 2048)];

    #[test]
    fn by_its_headers() {
        let head = program(0x8664, &WHOLE);
        assert_eq!(check(&head, 3072), Ok(Arch::Amd64));
        assert_eq!(check(&head, 4000), Ok(Arch::Amd64), "a signature follows");
        assert_eq!(check(&head, 3071), Err(Unbootable::Cut { what: "section table", needs: 3072, has: 3071 }));
        assert_eq!(check(&program(0xaa64, &WHOLE), 3072), Ok(Arch::Arm64));
        let huge = program(0x8664, &[(".linux", u32::MAX, u32::MAX)]);
        assert!(matches!(check(&huge, 3072), Err(Unbootable::Cut { .. })));
    }

    #[test]
    fn where_grub_finds_its_parts() {
        let head = program(0x8664, &WHOLE);
        let places = places(&head).unwrap();
        assert_eq!((places.kernel.to_string(), places.initramfs.to_string()), ("4+2".to_owned(), "3+1".to_owned()));
        assert_eq!(places.cmdline, 1024..1524, "without what fills it up");
        assert_eq!(parts(&head), Some([2048..3060, 1536..2036]));
        assert_eq!(parts(&head[..500]), None);
        for (n, what) in [(1, "its initramfs"), (2, "its kernel")] {
            for from in [1537, 2000] {
                let mut odd = WHOLE;
                odd[n].2 = from;
                assert_eq!(super::places(&program(0x8664, &odd)), Err(Unbootable::NotForGrub(what)));
            }
        }
        let mut large = WHOLE;
        large[0].1 = 1 << 20;
        assert!(super::places(&program(0x8664, &large)).is_err());
    }

    #[test]
    fn the_first_profile_overrides_the_base() {
        let cmdline =
            |more: &[(&str, u32, u32)]| places(&program(0x8664, &[&WHOLE[..], more].concat())).unwrap().cmdline;
        let (first, second) = ([(".profile", 512, 3072), (".cmdline", 512, 3584)], [(".profile", 512, 4096)]);
        assert_eq!(cmdline(&first), 3584..4084);
        assert_eq!(cmdline(&[first, first].concat()), 3584..4084);
        assert_eq!(cmdline(&[&second[..], &first].concat()), 1024..1524, "the second one has no effect");
        let initrd = [(".profile", 512, 3072), (".initrd", 512, 3584), (".linux", 512, 4096)];
        assert_eq!(parts(&program(0x8664, &[&WHOLE[..], &initrd].concat())), Some([4096..4596, 3584..4084]));
        // Not in the base, and not in the first profile.
        let late = [&WHOLE[1..], &second, &first].concat();
        assert!(places(&program(0x8664, &late)).is_err());
        assert!(places(&program(0x8664, &[&WHOLE[1..], &first].concat())).is_ok());
    }

    #[test]
    fn the_command_line_is_found_however_the_file_comes() {
        let mut file = program(0x8664, &WHOLE);
        file.resize(3072, 7);
        file[1024..1536].fill(0);
        file[1024..1036].copy_from_slice(b"quiet root=x");
        for chunk in [1024, 1030, 1100, 3072] {
            let mut watch = UnifiedWatch::default();
            file.chunks(chunk).for_each(|bytes| watch.see(bytes));
            assert_eq!(watch.finish().unwrap().cmdline, "quiet root=x", "{chunk}");
        }
        let finish = |bytes: &[u8]| {
            let mut watch = UnifiedWatch::default();
            watch.see(bytes);
            watch.finish()
        };
        assert!(finish(&file[..1500]).is_err(), "cut off");
        file[1030] = 0xff;
        assert!(finish(&file).is_err(), "no text");
    }

    #[test]
    fn what_is_none() {
        let not = |head: &[u8]| matches!(check(head, 3072), Err(Unbootable::NotUnified(_)));
        let whole = program(0x8664, &WHOLE);
        assert!(not(b"") && not(b"MZ") && not(&[0; 1024]) && not(&whole[..0x80]) && not(&whole[..500]));
        assert!(not(&program(0x14c, &WHOLE)), "32 bits");
        for missing in 0..WHOLE.len() {
            let rest: Vec<_> = WHOLE.into_iter().enumerate().filter(|(n, _)| *n != missing).map(|(_, s)| s).collect();
            assert!(not(&program(0x8664, &rest)));
        }
        let mut far = whole;
        far[0x3c..0x40].fill(0xff);
        assert!(not(&far));
    }
}
