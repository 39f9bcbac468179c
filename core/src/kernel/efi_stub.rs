//! Checks that a kernel starts under UEFI as Slipway's own loader starts it: as a program, which asks for its initramfs
//! by the LoadFile2 protocol.
//!
//! The kernel's EFI stub makes it a program. Since Linux 5.8 its PE header has 1 or more for the major version of the image,
//! on every architecture, which says that the stub asks for the initramfs so (include/linux/pe.h; GRUB 2.12 goes by the same
//! number).

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::bytes::get_le32;

/// The feature that a kernel lacks, so that Slipway's own loader cannot start it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StubLack {
    /// It has no EFI stub, so no firmware can start it.
    Missing,
    /// Its EFI stub does not ask for the initramfs.
    Old,
}

impl StubLack {
    /// By the first 1 KiB of a kernel. `None`: it lacks nothing, or its headers are elsewhere.
    pub fn find(head: &[u8]) -> Option<Self> {
        // Offsets from the PE signature (Microsoft, "PE Format"): the COFF header has 20 bytes, and in the optional header,
        // of 32 bits or 64, this is at 44.
        const MAJOR_IMAGE_VERSION: usize = 4 + 20 + 44;
        if !head.starts_with(b"MZ") {
            return Some(StubLack::Missing);
        }
        let at = usize::try_from(get_le32(head, 0x3c)?).ok()?;
        let pe = head.get(at..).filter(|pe| pe.len() > MAJOR_IMAGE_VERSION + 1)?;
        match (pe.starts_with(b"PE\0\0"), &pe[MAJOR_IMAGE_VERSION..MAJOR_IMAGE_VERSION + 2]) {
            (false, _) => Some(StubLack::Missing),
            (true, [0, 0]) => Some(StubLack::Old),
            (true, _) => None,
        }
    }
}

/// A fault of a kernel, as the end of a sentence.
impl fmt::Display for StubLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StubLack::Missing => "it has no EFI stub (CONFIG_EFI_STUB)",
            StubLack::Old => "its EFI stub is older than Linux 5.8 and does not ask for the initramfs",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn program(pe: usize, major: u16) -> Vec<u8> {
        let mut head = vec![0; 1024];
        head[..2].copy_from_slice(b"MZ");
        head[0x3c..0x40].copy_from_slice(&(pe as u32).to_le_bytes());
        head[pe..pe + 4].copy_from_slice(b"PE\0\0");
        head[pe + 68..pe + 70].copy_from_slice(&major.to_le_bytes());
        head
    }

    #[test]
    fn by_the_version_of_its_image() {
        // Debian's Linux 6.1 has it at 0x40, and the version 1.0, on amd64 and arm64.
        for pe in [0x40, 0x80, 0xb8, 1024 - 70] {
            assert_eq!(StubLack::find(&program(pe, 0)), Some(StubLack::Old), "{pe}");
            for major in [1, 3, 0x100] {
                assert_eq!(StubLack::find(&program(pe, major)), None, "{pe} {major}");
            }
        }
    }

    #[test]
    fn without_a_stub() {
        let mut x86 = program(0x40, 1);
        x86[..2].copy_from_slice(&[0xea, 5]);
        assert_eq!(StubLack::find(&x86), Some(StubLack::Missing));
        let mut dos = program(0x40, 1);
        dos[0x40] = b'N';
        assert_eq!(StubLack::find(&dos), Some(StubLack::Missing));
        assert_eq!(StubLack::find(b""), Some(StubLack::Missing));
    }

    #[test]
    fn headers_elsewhere_are_no_reason_for_an_alarm() {
        for pe in [1024 - 69, 1024, u32::MAX] {
            let mut head = program(0x40, 0);
            head[0x3c..0x40].copy_from_slice(&pe.to_le_bytes());
            assert_eq!(StubLack::find(&head), None, "{pe}");
        }
        let whole = program(0x40, 0);
        for len in 2..0x40 + 70 {
            assert_eq!(StubLack::find(&whole[..len]), None, "{len}");
        }
    }
}
