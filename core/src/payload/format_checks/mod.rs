//! Checks that each payload file is complete and of a supported format.
//!
//! A payload that was cut off on its way has the right beginning, and `installer checksum` would make it official. So
//! the end of every file is checked:
//!
//! - A kernel, a squashfs and a unified kernel image say it in their first 4 KiB: [`check_head`].
//! - An initramfs says it piece by piece. [`InitramfsWatch`] sees the bytes go by and keeps none of them.
//!
//! And whether Linux reads what is in it, and the very kernel of the payload: [`configured`].
//!
//! None of this finds a byte that changed. Checksums do.

mod bzip2;
mod configured;
mod cpio;
mod gzip;
mod heading;
mod initramfs;
mod kernel;
mod lzop;
mod part;
mod squashfs;
mod uki;
mod unpack;
mod xz;

pub use configured::{Unconfirmed, configured, unconfirmed_note};
pub use initramfs::InitramfsWatch;
pub use squashfs::needs as squashfs_needs;
pub use uki::{UnifiedWatch, look_at, parts};
pub use unpack::{Decoders, Packed, Unpack, UnpackError, Unpacked};

use super::manifest::{INITRAMFS, KERNEL, ROOTFS, UKI};
use crate::{
    bytes::{get_le16, get_le32},
    kernel::arch::Arch,
    prelude::*,
    units::approx,
};

/// Request of a part after a heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Pass over `skip` bytes; the next `need` bytes are a heading.
    Heading { skip: u64, need: usize },
    /// Every byte: only unpacking them finds the end.
    Stream,
    /// The part ends behind `skip` more bytes.
    End { skip: u64 },
    /// The next bytes are unknown.
    Unknown,
    /// It is not a heading.
    Damaged,
    /// Linux does not unpack it: the fault of the part, and the option that makes another.
    Refused(&'static str),
}

/// The bytes that [`check_head`] must see of a longer file. systemd's stubs have room for 50 sections in their headers.
pub const HEAD_BYTES: u64 = 4096;

/// Why a file of a payload cannot boot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the variants are")]
pub enum Unbootable {
    #[error(
        "not a Linux kernel: neither x86 (`HdrS` at byte 514) nor arm64 (`ARM\\x64` at byte 56; one that is compressed \
         as a whole, such as Image.gz, has to be unpacked)"
    )]
    NotKernel,
    #[error("a kernel for x86 of 32 bits (i386): amd64 takes one of 64 bits (CONFIG_X86_64)")]
    Of32Bits,
    #[error("not a squashfs (no magic `hsqs` at byte 0)")]
    NotSquashfs,
    #[error("a squashfs that Linux does not mount: {0}")]
    OtherSquashfs(&'static str),
    #[error(
        "not an initramfs: it begins neither as a cpio archive of the format newc nor as what Linux unpacks (gzip, xz, \
         zstd, lz4 -l, lzop, bzip2, lzma)"
    )]
    NotInitramfs,
    #[error("not a unified kernel image for UEFI: {0}; `installer uki` makes one")]
    NotUnified(&'static str),
    #[error(
        "GRUB cannot read it: {0} does not begin at a multiple of 512 bytes. Put kernel and initramfs beside it, or make it \
         with `installer uki`"
    )]
    NotForGrub(&'static str),
    #[error(
        "it has its kernel or its initramfs elsewhere, or another kernel command line, than manifest.json says, so GRUB would \
         not start it; run `installer checksum` again"
    )]
    OtherUnified,
    /// The file ends too early. Sizes are bytes.
    #[error(
        "cut off: by its {what} it has {needs} bytes or more, but there are {has}; copy it again, then run `installer \
         checksum`"
    )]
    Cut { what: &'static str, needs: u64, has: u64 },
    #[error("it has {}, and the file system of a slot, FAT32, holds files of less than 4 GiB", approx(*.0))]
    TooLarge(u64),
    #[error("Linux does not unpack it: its {what} {why}")]
    NotUnpacked { what: &'static str, why: &'static str },
    #[error("the kernel of this payload was built without {option}, which reading it takes; {instead}")]
    NotConfigured { option: &'static str, instead: String },
    #[error("damaged: its {what} makes no sense at byte {at}; copy or make it again, then run `installer checksum`")]
    Damaged { what: &'static str, at: u64 },
}

/// Whether the contents of this file are watched to their end.
pub fn is_initramfs(name: &str) -> bool {
    INITRAMFS.contains(&name)
}

/// Check the first [`HEAD_BYTES`] of a file: its format, and for a kernel and a squashfs its length. `size` is that of
/// the file. Returns the architecture of a kernel. Files of other names always pass.
pub fn check_head(name: &str, head: &[u8], size: u64) -> Result<Option<Arch>, Unbootable> {
    if [KERNEL, ROOTFS, UKI].contains(&name) || is_initramfs(name) {
        fits_a_slot(size)?;
    }
    match name {
        KERNEL => kernel::check(head, size).map(Some),
        ROOTFS => squashfs::check(head, size).map(|()| None),
        UKI => uki::check(head, size).map(Some),
        _ if is_initramfs(name) && size > head.len() as u64 => InitramfsWatch::begins(head).map(|()| None),
        _ => Ok(None),
    }
}

/// Checks that a slot's file system can hold a file of so many bytes.
pub fn fits_a_slot(size: u64) -> Result<(), Unbootable> {
    if u32::try_from(size).is_err() { Err(Unbootable::TooLarge(size)) } else { Ok(()) }
}

// Sizes that a file claims: one that does not fit is too large for any file.
const fn cut(what: &'static str, needs: u64, has: u64) -> Result<(), Unbootable> {
    if needs > has { Err(Unbootable::Cut { what, needs, has }) } else { Ok(()) }
}

fn le16(bytes: &[u8], at: usize) -> Option<u64> {
    get_le16(bytes, at).map(u64::from)
}

fn le32(bytes: &[u8], at: usize) -> Option<u64> {
    get_le32(bytes, at).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FAT32's own limit: otherwise `install` would refuse a file that `inspect` calls good.
    #[test]
    fn what_no_slot_holds() {
        const MOST: u64 = u32::MAX as u64;
        for name in [KERNEL, ROOTFS, UKI].into_iter().chain(INITRAMFS) {
            assert_eq!(check_head(name, &[], MOST + 1), Err(Unbootable::TooLarge(MOST + 1)), "{name}");
            assert!(!matches!(check_head(name, &[], MOST), Err(Unbootable::TooLarge(_))), "{name}");
        }
        assert_eq!(check_head("notes", &[], MOST + 1), Ok(None));
    }
}
