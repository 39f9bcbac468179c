//! Recognises file systems, images and archives by their magic numbers.

use super::xfs;

/// Bytes from the start that [`recognise`] needs.
pub const HEAD_BYTES: usize = 68 << 10;

/// A format with a known magic.
#[derive(Debug, PartialEq, Eq)]
pub struct Magic {
    /// Name for a sentence: `an XFS file system`.
    pub name: &'static str,
    /// Short name for a table: `XFS`, at most 11 characters.
    pub short: &'static str,
    /// What it is for.
    pub kind: Kind,
    at: usize,
    magic: &'static [u8],
}

/// What a format is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A disk image in another format than raw: `qemu-img` converts it.
    DiskImage,
    /// A compressed file or an archive. A disk image may be in it.
    Packed,
    /// A volume that people make of a whole partition or disk, and that no installation makes.
    Volume,
    /// What an installation makes, what lies in files, and tables.
    Other,
}

const fn content(name: &'static str, short: &'static str, at: usize, magic: &'static [u8]) -> Magic {
    Magic { name, short, kind: Kind::Other, at, magic }
}

impl Magic {
    /// Whether it is a disk in another form than its bytes, or may have one in it.
    pub fn is_other_format(&self) -> bool {
        matches!(self.kind, Kind::DiskImage | Kind::Packed)
    }
}

const fn volume(name: &'static str, short: &'static str, at: usize, magic: &'static [u8]) -> Magic {
    Magic { name, short, kind: Kind::Volume, at, magic }
}

const fn disk_image(name: &'static str, short: &'static str, magic: &'static [u8]) -> Magic {
    Magic { name, short, kind: Kind::DiskImage, at: 0, magic }
}

const fn packed(name: &'static str, short: &'static str, magic: &'static [u8]) -> Magic {
    Magic { name, short, kind: Kind::Packed, at: 0, magic }
}

/// A VHD image. Programs take a fixed one for a raw one, unless they are told.
pub const VHD: Magic = disk_image("a VHD image", "VHD", VHD_COOKIE);

// The first match counts. Long magics come before short ones, which match by chance more often. A boot sector comes
// last, because file systems begin with one, too.
const MAGICS: &[Magic] = &[
    disk_image("a qcow2 image", "qcow2", b"QFI\xfb"),
    disk_image("a VMDK image", "VMDK", b"KDMV"),
    disk_image("a VMDK image", "VMDK", b"COWD"),
    disk_image("a VMDK descriptor", "VMDK", b"# Disk DescriptorFile"),
    VHD,
    disk_image("a VHDX image", "VHDX", b"vhdxfile"),
    disk_image("a VDI image", "VDI", b"<<< "),
    disk_image("a QED image", "QED", b"QED\0"),
    packed("a file compressed with xz", "xz", b"\xfd7zXZ\0"),
    packed("a file compressed with zstd", "zstd", b"\x28\xb5\x2f\xfd"),
    packed("a file compressed with gzip", "gzip", b"\x1f\x8b\x08"),
    packed("a file compressed with lz4", "lz4", b"\x04\x22\x4d\x18"),
    packed("a file compressed with lzop", "lzop", b"\x89LZO\0\r\n\x1a\n"),
    packed("a zip archive", "zip", b"PK\x03\x04"),
    packed("a 7z archive", "7z", b"7z\xbc\xaf\x27\x1c"),
    // The magic of the first block: that of the file is three letters.
    Magic { at: 4, ..packed("a file compressed with bzip2", "bzip2", b"1AY&SY") },
    content("an XFS file system", "XFS", 0, xfs::MAGIC),
    volume("a LUKS volume", "LUKS", 0, b"LUKS\xba\xbe"),
    content("a squashfs", "squashfs", 0, b"hsqs"),
    content("META tags", "Talos ADV", 0, b"\x5a\x4b\x3c\x2d"),
    volume("a Ceph OSD", "Ceph OSD", 0, b"bluestore block device"),
    volume("a dm-integrity volume", "integrity", 0, b"integrt\0"),
    volume("the hash tree of dm-verity", "verity", 0, b"verity\0\0"),
    volume("a VDO volume", "VDO", 0, b"dmvdo001"),
    volume("a BitLocker volume", "BitLocker", 3, b"-FVE-FS-"),
    volume("a ReFS", "ReFS", 3, b"ReFS\0\0\0\0\0"),
    volume("an APFS container", "APFS", 32, b"NXSB"),
    volume("an Oracle ASM disk", "Oracle ASM", 32, b"ORCLDISK"),
    volume("an LVM physical volume", "LVM", 512, b"LABELONE"),
    volume("a Stratis pool member", "Stratis", 516, b"!Stra0tis\x86\xff\x02^\x41rh"),
    volume("an HFS+ file system", "HFS+", 1024, b"H+\0\x04"),
    volume("an HFS+ file system", "HFS+", 1024, b"HX\0\x05"),
    volume("an f2fs file system", "f2fs", 1024, b"\x10\x20\xf5\xf2"),
    // Its revision stands before the two bytes that are its magic.
    volume("a NILFS2 file system", "NILFS2", 1024, b"\x02\0\0\0\0\0\x34\x34"),
    volume("a bcache device", "bcache", 4120, &BCACHE),
    volume("a bcachefs file system", "bcachefs", 4120, &BCACHEFS),
    volume("an md RAID member", "md RAID", 0, b"\xfc\x4e\x2b\xa9"),
    volume("an md RAID member", "md RAID", 4096, b"\xfc\x4e\x2b\xa9"),
    volume("swap space", "swap", 4086, b"SWAPSPACE2"),
    volume("swap space", "swap", 65526, b"SWAPSPACE2"),
    volume("a suspended system", "swsuspend", 4086, b"S1SUSPEND"),
    volume("an OCFS2 file system", "OCFS2", 8192, b"OCFSV2"),
    // The beginning of a list of names and values, by hosts of either byte order.
    volume("a ZFS pool member", "ZFS", 16384, b"\x01\x01\0\0\0\0\0\0\0\0\0\x01"),
    volume("a ZFS pool member", "ZFS", 16384, b"\x01\0\0\0\0\0\0\0\0\0\0\x01"),
    volume("a JFS file system", "JFS", 32768, b"JFS1"),
    volume("a UDF file system", "UDF", 32769, b"BEA01"),
    volume("a GFS2 file system", "GFS2", 65536, b"\x01\x16\x19\x70\0\0\0\x01"),
    volume("a Reiser4 file system", "Reiser4", 65536, b"ReIsEr4"),
    volume("a ReiserFS", "ReiserFS", 65588, b"ReIsEr"),
    content("an ISO 9660 image", "ISO 9660", 32769, b"CD001"),
    volume("a btrfs file system", "btrfs", 65600, b"_BHRfS_M"),
    content("a FAT file system", "FAT32", 82, b"FAT32   "),
    content("a FAT file system", "FAT", 54, b"FAT1"),
    volume("an exFAT file system", "exFAT", 3, b"EXFAT   "),
    volume("an NTFS file system", "NTFS", 3, b"NTFS    "),
    volume("an ext2/3/4 file system", "ext2/3/4", 1080, b"\x53\xef"),
    content("an MBR partition table or boot sector", "boot sector", 510, b"\x55\xaa"),
];

const BCACHE: [u8; 16] = 0xc685_73f6_4e1a_45ca_8265_f57f_48ba_6d81_u128.to_be_bytes();
const BCACHEFS: [u8; 16] = 0xc685_73f6_66ce_90a9_d96a_60cf_803d_f7ef_u128.to_be_bytes();

/// Bytes of the footer of a fixed VHD image. It stands behind those of the disk, and they look like a raw image.
pub const VHD_FOOTER_BYTES: usize = 512;
/// The first bytes of a VHD's footer.
pub const VHD_COOKIE: &[u8] = b"conectix";

/// Whether this is that footer: cookie, and the type "fixed" (Virtual Hard Disk Image Format Specification, "Hard Disk
/// Footer Format").
pub fn is_fixed_vhd(footer: &[u8; VHD_FOOTER_BYTES]) -> bool {
    footer.starts_with(VHD_COOKIE) && footer[60..64] == [0, 0, 0, 2]
}

/// Whether it is an ISO 9660 image, by the volume descriptor in sector 16 (ECMA-119, 8.1.2).
pub fn is_iso9660(head: &[u8]) -> bool {
    recognise(head).is_some_and(|s| s.magic == b"CD001")
}

/// The format that begins with these bytes: [`HEAD_BYTES`] of them, or fewer from something shorter.
pub fn recognise(head: &[u8]) -> Option<&'static Magic> {
    MAGICS.iter().find(|s| head.get(s.at..s.at + s.magic.len()) == Some(s.magic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_recognised_and_none_lies_beyond_what_is_read() {
        for signature in MAGICS {
            let mut head = vec![0; HEAD_BYTES];
            head[signature.at..signature.at + signature.magic.len()].copy_from_slice(signature.magic);
            assert_eq!(recognise(&head), Some(signature));
            assert!(signature.short.len() <= 11, "{}", signature.short);
        }
        let mut footer = [0; VHD_FOOTER_BYTES];
        footer[..8].copy_from_slice(VHD_COOKIE);
        // Fixed, dynamic, differencing.
        for (kind, is_fixed) in [(2, true), (3, false), (4, false)] {
            footer[63] = kind;
            assert_eq!(is_fixed_vhd(&footer), is_fixed);
        }
        assert!(!is_fixed_vhd(&[0; VHD_FOOTER_BYTES]));
        assert_eq!(recognise(&[0; HEAD_BYTES]), None);
        assert_eq!(recognise(&[]), None);
    }
}
