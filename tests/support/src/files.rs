//! Files of a payload that say the truth about themselves: kernel, initramfs and squashfs with the headers of real ones
//! around any content.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use liblzma::{
    stream::{Check, Stream},
    write::XzEncoder,
};
use slipway_core::kernel::cpio::{ALIGN, Newc};

/// Makes these bytes a kernel for amd64: their header counts all of them, but for less than 16.
pub fn kernel(mut bytes: Vec<u8>) -> Vec<u8> {
    let paragraphs = (bytes.len() as u32).checked_sub(1024).expect("a kernel has more than 1 KiB") / 16;
    // A program for UEFI without sections, as Linux makes it since 5.8.
    let (pe, mut headers) = (0x40, vec![0; 24 + 0xa0]);
    headers[..4].copy_from_slice(b"PE\0\0");
    headers[4..6].copy_from_slice(&[0x64, 0x86]);
    headers[20] = 0xa0;
    headers[24..26].copy_from_slice(&[0x0b, 2]);
    headers[68..72].copy_from_slice(&[1, 0, 1, 0]);
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x3c..0x40].copy_from_slice(&[pe as u8, 0, 0, 0]);
    bytes[pe..pe + headers.len()].copy_from_slice(&headers);
    bytes[0x1f1] = 1;
    bytes[0x1f4..0x1f8].copy_from_slice(&paragraphs.to_le_bytes());
    bytes[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    configure(&mut bytes, READS_ALL);
    bytes
}

/// All that Linux unpacks and mounts.
pub const READS_ALL: &str = "CONFIG_RD_GZIP=y\nCONFIG_RD_BZIP2=y\nCONFIG_RD_LZMA=y\nCONFIG_RD_XZ=y\nCONFIG_RD_LZO=y\nCONFIG_RD_LZ4=y\n\
    CONFIG_RD_ZSTD=y\nCONFIG_SQUASHFS=y\nCONFIG_SQUASHFS_ZLIB=y\nCONFIG_SQUASHFS_LZ4=y\nCONFIG_SQUASHFS_LZO=y\nCONFIG_SQUASHFS_XZ=y\n\
    CONFIG_SQUASHFS_ZSTD=y\n";

/// Lets a kernel of [`kernel`] say that it was built so, as Linux does with CONFIG_IKCONFIG. One that has no room for it says
/// nothing.
pub fn configure(kernel: &mut [u8], config: &str) {
    let mut marked = b"IKCFG_ST".to_vec();
    let mut encoder = GzEncoder::new(&mut marked, Compression::best());
    encoder.write_all(config.as_bytes()).expect("memory can be written");
    encoder.finish().expect("memory can be written");
    marked.extend(b"IKCFG_ED");
    // The version of its header, that it is of 64 bits, and where the kernel proper lies behind the first two sectors.
    kernel[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    kernel[0x236] |= 1;
    kernel[0x248..0x250].fill(0);
    if let Some(proper) = kernel.get_mut(1024..1024 + marked.len()) {
        proper.copy_from_slice(&marked);
        kernel[0x24c..0x250].copy_from_slice(&(marked.len() as u32).to_le_bytes());
    }
}

/// A kernel for amd64 that only a boot loader such as GRUB starts: it is no program for UEFI.
pub fn kernel_without_stub(bytes: Vec<u8>) -> Vec<u8> {
    let mut bytes = kernel(bytes);
    bytes[..2].copy_from_slice(&[0xea, 5]);
    bytes
}

/// A unified kernel image for amd64: these parts in sections, each from a multiple of 512 bytes on.
pub fn unified(kernel: &[u8], initramfs: &[u8], cmdline: &str) -> Vec<u8> {
    unified_with(kernel, initramfs, cmdline, &[])
}

/// The same with more sections behind these.
pub fn unified_with(kernel: &[u8], initramfs: &[u8], cmdline: &str, more: &[(&str, &[u8])]) -> Vec<u8> {
    const SECTOR: usize = 512;
    let mut parts = vec![(".cmdline", cmdline.as_bytes()), (".initrd", initramfs), (".linux", kernel)];
    parts.extend(more);
    let mut bytes = vec![0; (0x40 + 24 + 0xf0 + parts.len() * 40).next_multiple_of(SECTOR).max(1024)];
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x3c] = 0x40;
    bytes[0x40..0x46].copy_from_slice(b"PE\0\0\x64\x86");
    bytes[0x46] = parts.len() as u8;
    bytes[0x54] = 0xf0;
    for (n, (name, content)) in parts.into_iter().enumerate() {
        let (row, at) = (0x40 + 24 + 0xf0 + n * 40, bytes.len());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        let filled = bytes.len() - at;
        bytes[row..row + name.len()].copy_from_slice(name.as_bytes());
        for (field, value) in [(8, content.len()), (16, filled), (20, at)] {
            bytes[row + field..][..4].copy_from_slice(&(value as u32).to_le_bytes());
        }
    }
    bytes
}

/// An archive with one file of these bytes.
pub fn cpio(content: &[u8]) -> Vec<u8> {
    let mut archive = Newc::new(0, 0);
    let file = archive.file("init", content.len() as u32);
    let mut bytes = file.header;
    bytes.resize(file.content_at as usize, 0);
    bytes.extend_from_slice(content);
    let (trailer, end) = archive.finish();
    bytes.resize(trailer.at as usize, 0);
    bytes.extend_from_slice(&trailer.header);
    bytes.resize(end.next_multiple_of(ALIGN) as usize, 0);
    bytes
}

/// The same, compressed by xz.
pub fn initramfs(content: &[u8]) -> Vec<u8> {
    // Linux knows no other check.
    let stream = Stream::new_easy_encoder(0, Check::Crc32).expect("xz has a preset 0");
    let mut encoder = XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(&cpio(content)).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

/// An initramfs of just so many bytes, with zeros behind it; `content` is cut to what fits.
pub fn initramfs_of(bytes: usize, content: &[u8]) -> Vec<u8> {
    // More than all headers take.
    let room = bytes.checked_sub(500).expect("an initramfs has more than 500 bytes");
    let mut initramfs = initramfs(&content[..room.min(content.len())]);
    assert!(initramfs.len() <= bytes, "{} bytes instead of {bytes}", initramfs.len());
    initramfs.resize(bytes, 0);
    initramfs
}

/// Makes these bytes a squashfs: its superblock counts all whole blocks of 1 KiB.
pub fn squashfs(mut bytes: Vec<u8>) -> Vec<u8> {
    const BLOCK_LOG: u16 = 17;
    let used = bytes.len() as u64 / 1024 * 1024;
    bytes[..4].copy_from_slice(b"hsqs");
    bytes[12..16].copy_from_slice(&(1_u32 << BLOCK_LOG).to_le_bytes());
    // zstd.
    bytes[20..22].copy_from_slice(&6_u16.to_le_bytes());
    bytes[22..24].copy_from_slice(&BLOCK_LOG.to_le_bytes());
    bytes[26..28].copy_from_slice(&1_u16.to_le_bytes());
    bytes[28..32].copy_from_slice(&[4, 0, 0, 0]);
    // No flags, fragments, attributes and exports; the inodes are behind the superblock, and the list of users at the end.
    bytes[4..8].fill(0);
    bytes[16..20].fill(0);
    bytes[24..26].fill(0);
    let places = [0, used, used - 8, u64::MAX, 96, used - 8, u64::MAX, u64::MAX];
    bytes[32..96].copy_from_slice(&places.map(u64::to_le_bytes).concat());
    bytes
}
