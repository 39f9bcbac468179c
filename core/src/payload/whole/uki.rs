//! What a unified kernel image is and how long, by its headers (PE/COFF specification; UAPI Group, "Unified Kernel Image").
//! Whether it is signed the firmware finds out: that takes a key which nobody here has.

use super::{Unbootable, cut, le16, le32};
use crate::kernel::arch::Arch;

const SECTION_BYTES: usize = 40;
/// Without these it is a program, and no system.
const NEEDED: [&[u8]; 3] = [b".linux\0\0", b".initrd\0", b".cmdline"];

/// `head` are the first [`super::HEAD_BYTES`]: the headers of a stub and of what is added to it have room there.
pub fn check(head: &[u8], size: u64) -> Result<Arch, Unbootable> {
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
    let mut found = [false; NEEDED.len()];
    for n in 0..count as usize {
        let section =
            head.get(first + n * SECTION_BYTES..).and_then(|rest| rest.get(..SECTION_BYTES)).ok_or_else(short)?;
        for (name, found) in NEEDED.iter().zip(&mut found) {
            *found |= section[..8] == **name;
        }
        let (bytes, from) = (le32(section, 16).unwrap_or_default(), le32(section, 20).unwrap_or_default());
        cut("section table", from + bytes, size)?;
    }
    match found {
        [true, true, true] => Ok(arch),
        _ => Err(not("it lacks .linux, .initrd or .cmdline")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

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
