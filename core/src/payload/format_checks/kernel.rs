//! The length of a kernel, by its headers: `setup_sects` and `syssize` on x86 (Documentation/arch/x86/boot.rst), and the
//! sections of the PE program that it is for UEFI (Microsoft, "PE Format"; the same on arm64).
//!
//! A kernel may be longer: a signature for Secure Boot stands behind the bytes that the headers count. `image_size` of
//! arm64 is no help, because it counts memory that the file does not fill.

use super::{Unbootable, cut, le16, le32};
use crate::kernel::arch::Arch;

// `setup_sects` of 0 means 4, for the sake of very old kernels.
const DEFAULT_SETUP_SECTORS: u64 = 4;
// `syssize` counts these, rounded up.
const PARAGRAPH_BYTES: u64 = 16;
const SECTION_BYTES: usize = 40;
// `xloadflags` are there since protocol 2.12 (Linux 3.8). Every kernel of 64 bits has the first of them, `XLF_KERNEL_64`.
const WITH_XLOADFLAGS: core::ops::Range<u64> = 0x20c..0x300;
const XLF_KERNEL_64: u64 = 1;

pub fn check(head: &[u8], size: u64) -> Result<Arch, Unbootable> {
    let arch = Arch::of_kernel(head).ok_or(Unbootable::NotKernel)?;
    if arch == Arch::Amd64 {
        if is_for_32_bits(head) {
            return Err(Unbootable::Of32Bits);
        }
        cut("header", setup_and_system(head).unwrap_or(0), size)?;
    }
    cut("table of sections", end_of_sections(head).unwrap_or(0), size)?;
    cut("table of certificates", end_of_certificates(head).unwrap_or(0), size)?;
    Ok(arch)
}

/// Whether it is for i386. The header is the same as for amd64.
fn is_for_32_bits(head: &[u8]) -> bool {
    let (version, flags) = (le16(head, 0x206).unwrap_or(0), le16(head, 0x236).unwrap_or(0));
    WITH_XLOADFLAGS.contains(&version) && flags & XLF_KERNEL_64 == 0
}

fn setup_and_system(head: &[u8]) -> Option<u64> {
    let setup = match *head.get(0x1f1)? {
        0 => DEFAULT_SETUP_SECTORS,
        sectors => u64::from(sectors),
    };
    // The last paragraph may be an incomplete one.
    let system = (le32(head, 0x1f4)? * PARAGRAPH_BYTES).saturating_sub(PARAGRAPH_BYTES - 1);
    Some((setup + 1) * 512 + system)
}

/// Where the PE header begins, if it is in the head.
fn pe_header(head: &[u8]) -> Option<usize> {
    let pe = usize::try_from(le32(head, 0x3c)?).ok()?;
    (head.starts_with(b"MZ") && head.get(pe..)?.get(..4)? == b"PE\0\0").then_some(pe)
}

/// End of the signatures for Secure Boot in the file. None if there are none.
fn end_of_certificates(head: &[u8]) -> Option<u64> {
    let pe = pe_header(head)?;
    // The fifth of the data directories, of PE32+ and of PE32.
    let at = pe + 24 + if le16(head, pe + 24)? == 0x20b { 144 } else { 128 };
    let is_there = at + 8 <= pe + 24 + le16(head, pe + 20)? as usize;
    let (begins, bytes) = (le32(head, at)?, le32(head, at + 4)?);
    (is_there && bytes > 0).then_some(begins + bytes)
}

/// End of the last section in the file. None if there are no sections, or if they are not in the head.
fn end_of_sections(head: &[u8]) -> Option<u64> {
    let pe = pe_header(head)?;
    let (count, optional) = (le16(head, pe + 6)? as usize, le16(head, pe + 20)? as usize);
    let table = head.get(pe + 24 + optional..)?.chunks_exact(SECTION_BYTES).take(count);
    // Bytes in the file, and where they begin.
    table.filter_map(|section| Some(le32(section, 16)? + le32(section, 20)?)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn x86(setup: u8, paragraphs: u32) -> Vec<u8> {
        let mut head = vec![0; 1024];
        head[0x1f1] = setup;
        head[0x1f4..0x1f8].copy_from_slice(&paragraphs.to_le_bytes());
        head[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        head[0x202..0x206].copy_from_slice(b"HdrS");
        head
    }

    fn with_sections(mut head: Vec<u8>, sections: &[(u32, u32)]) -> Vec<u8> {
        head[..2].copy_from_slice(b"MZ");
        head[0x3c] = 0x40;
        head[0x40..0x44].copy_from_slice(b"PE\0\0");
        head[0x46] = sections.len() as u8;
        head[0x54] = 160;
        for (n, (bytes, at)) in sections.iter().enumerate() {
            let section = 0x40 + 24 + 160 + n * SECTION_BYTES;
            head[section + 16..section + 20].copy_from_slice(&bytes.to_le_bytes());
            head[section + 20..section + 24].copy_from_slice(&at.to_le_bytes());
        }
        head
    }

    fn needs(head: &[u8]) -> u64 {
        match check(head, 0) {
            Err(Unbootable::Cut { needs, .. }) => needs,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn x86_by_its_header() {
        for (setup, paragraphs, bytes) in [(1, 10, 1024 + 145), (27, 1, 28 * 512 + 1), (0, 0, 5 * 512)] {
            let head = x86(setup, paragraphs);
            assert_eq!(needs(&head), bytes);
            assert_eq!(check(&head, bytes), Ok(Arch::Amd64));
            assert!(check(&head, bytes - 1).is_err());
            assert_eq!(check(&head, bytes + 5000), Ok(Arch::Amd64), "a signature follows");
        }
        assert_eq!(needs(&x86(255, u32::MAX)), 256 * 512 + u64::from(u32::MAX) * 16 - 15, "no number overflows");
    }

    #[test]
    fn of_32_bits() {
        let mut head = x86(1, 10);
        for (version, flags, is_taken) in
            [(0x20b_u16, 0_u8, true), (0x20c, 0, false), (0x20f, 0x7e, false), (0x20f, 0x7f, true)]
        {
            head[0x206..0x208].copy_from_slice(&version.to_le_bytes());
            head[0x236] = flags;
            assert_eq!(check(&head, 4096) == Ok(Arch::Amd64), is_taken, "{version:x} {flags:x}");
        }
        head[0x236] = 0;
        assert_eq!(check(&head, 4096), Err(Unbootable::Of32Bits));
    }

    #[test]
    fn by_the_sections() {
        let head = with_sections(x86(1, 10), &[(512, 512), (4096, 1024), (0, 0)]);
        assert_eq!(check(&head, 5120), Ok(Arch::Amd64));
        assert_eq!(check(&head, 5119), Err(Unbootable::Cut { what: "table of sections", needs: 5120, has: 5119 }));
        let mut arm = vec![0; 1024];
        arm[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        arm[56..60].copy_from_slice(b"ARM\x64");
        assert_eq!(check(&arm, 1024), Ok(Arch::Arm64), "image_size is one of memory");
        let arm = with_sections(arm, &[(u32::MAX, u32::MAX), (512, 512)]);
        assert_eq!(needs(&arm), 2 * u64::from(u32::MAX));
    }

    #[test]
    fn by_the_certificates() {
        for (magic, at) in [([0x0b, 2], 144), ([0x0b, 1], 128)] {
            let mut head = with_sections(x86(1, 10), &[(512, 512)]);
            head[0x58..0x5a].copy_from_slice(&magic);
            head[0x58 + at..0x58 + at + 4].copy_from_slice(&8192_u32.to_le_bytes());
            assert_eq!(check(&head, 4096), Ok(Arch::Amd64), "there are none");
            head[0x58 + at + 4..0x58 + at + 8].copy_from_slice(&1472_u32.to_le_bytes());
            assert_eq!(check(&head, 9664), Ok(Arch::Amd64));
            assert_eq!(
                check(&head, 9663),
                Err(Unbootable::Cut { what: "table of certificates", needs: 9664, has: 9663 })
            );
        }
    }

    #[test]
    fn sections_elsewhere_are_not_looked_for() {
        for pe in [u32::MAX, 1023, 1000, 0] {
            let mut head = with_sections(x86(1, 0), &[(u32::MAX, 0)]);
            head[0x3c..0x40].copy_from_slice(&pe.to_le_bytes());
            assert_eq!(check(&head, 1024), Ok(Arch::Amd64), "{pe}");
        }
    }
}
