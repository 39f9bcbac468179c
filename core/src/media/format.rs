//! The formats of disk images and live media, and how images are made reproducible.

use crate::prelude::*;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    disk::magic::{VHD_COOKIE, VHD_FOOTER_BYTES},
    units::{GIB, SectorSize},
};

/// Default size of an image's disk in bytes: two slots, and 1.5 GiB for the OS. EPHEMERAL is last, so that the OS can
/// grow it when it first runs on a larger disk.
pub const DEFAULT_IMAGE_BYTES: u64 = 4 * GIB;

/// Format of a disk image or live medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// The bytes of the disk, sparse.
    Raw,
    /// QEMU's format, version 3: KVM, OpenStack.
    Qcow2,
    /// Fixed VHD for Azure: the bytes of the disk and a footer.
    Vhd,
    /// VMware's monolithicSparse: Workstation, VirtualBox.
    Vmdk,
    /// OVF 1.1 in a tar archive, with a streamOptimized VMDK: vSphere, VirtualBox.
    Ova,
    /// A live system on a CD or a USB stick, for BIOS and UEFI.
    Iso,
    /// A live system to boot over the network: kernel, initramfs, command line and iPXE script in a tar archive.
    Pxe,
}

/// A live medium: its payload boots from memory and can be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveKind {
    /// CD or USB stick.
    Iso,
    /// Network.
    Pxe,
}

impl ImageKind {
    /// Every format with its help text.
    pub const ALL: [(ImageKind, &str); 7] = [
        (ImageKind::Raw, "The bytes of the disk, sparse"),
        (ImageKind::Qcow2, "QEMU's format, version 3: KVM, OpenStack"),
        (ImageKind::Vhd, "Fixed VHD, as Azure takes it: the bytes of the disk and a footer"),
        (ImageKind::Vmdk, "VMware's monolithicSparse: Workstation, VirtualBox"),
        (ImageKind::Ova, "OVF 1.1 in a tar archive, with a streamOptimized VMDK: vSphere, VirtualBox"),
        (ImageKind::Iso, "A live system on a CD or a USB stick, for BIOS and UEFI"),
        (
            ImageKind::Pxe,
            "A live system for a boot from the network: kernel, initramfs, command line and iPXE script in a tar archive",
        ),
    ];

    /// Name on the command line and end of the file name.
    pub const fn name(self) -> &'static str {
        match self {
            ImageKind::Raw => "raw",
            ImageKind::Qcow2 => "qcow2",
            ImageKind::Vhd => "vhd",
            ImageKind::Vmdk => "vmdk",
            ImageKind::Ova => "ova",
            ImageKind::Iso => "iso",
            ImageKind::Pxe => "pxe",
        }
    }

    /// Format and options for `qemu-img convert`; `None` if nothing is converted. (qemu-img(1), "Disk image file formats")
    pub const fn qemu_format(self) -> Option<(&'static str, &'static str)> {
        match self {
            ImageKind::Raw | ImageKind::Iso | ImageKind::Pxe => None,
            ImageKind::Qcow2 => Some(("qcow2", "compat=1.1")),
            // Without force_size the size is rounded to cylinders.
            ImageKind::Vhd => Some(("vpc", "subformat=fixed,force_size=on")),
            ImageKind::Vmdk => Some(("vmdk", "subformat=monolithicSparse")),
            // The disk says its controller, too: the one in the OVF is for SCSI, and of those a VMDK knows this one.
            ImageKind::Ova => Some(("vmdk", "subformat=streamOptimized,adapter_type=lsilogic")),
        }
    }

    /// The kind of live medium; `None` for an installed disk.
    pub const fn live(self) -> Option<LiveKind> {
        match self {
            ImageKind::Iso => Some(LiveKind::Iso),
            ImageKind::Pxe => Some(LiveKind::Pxe),
            ImageKind::Raw | ImageKind::Qcow2 | ImageKind::Vhd | ImageKind::Vmdk | ImageKind::Ova => None,
        }
    }

    /// The largest disk that the format can hold; `None` if no disk is too large for it. (A VHD's footer has cylinders, heads and
    /// sectors: qemu-img and Azure end at 2040 GiB.)
    pub const fn max_bytes(self) -> Option<u64> {
        match self {
            ImageKind::Vhd => Some(2040 * GIB),
            _ => None,
        }
    }

    /// Whether the format can hold a disk with these logical sectors. Hypervisors show 512-byte sectors for VHD and VMDK.
    pub const fn takes(self, sector: SectorSize) -> bool {
        match self {
            ImageKind::Raw | ImageKind::Qcow2 | ImageKind::Iso | ImageKind::Pxe => true,
            ImageKind::Vhd | ImageKind::Vmdk | ImageKind::Ova => matches!(sector, SectorSize::S512),
        }
    }
}

/// Compression of a whole image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// xz, LZMA2.
    Xz,
    /// Zstandard (RFC 8878).
    Zst,
    /// gzip (RFC 1952).
    Gz,
}

impl Compression {
    /// By the end of the file name.
    pub fn from_path(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?;
        match name.rsplit_once('.')? {
            // `.xz` is a hidden file without an extension.
            ("", _) => None,
            (_, "xz") => Some(Compression::Xz),
            (_, "zst") => Some(Compression::Zst),
            (_, "gz") => Some(Compression::Gz),
            _ => None,
        }
    }
}

/// The name of a file promises another format than the one that would be in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongName {
    /// By its ending.
    #[error("--out {path}: .{ending} is {promised}, and this is --kind {}: {remedy}", kind.name())]
    Format {
        /// The whole name.
        path: String,
        /// Its ending.
        ending: String,
        /// The format of that ending.
        promised: &'static str,
        /// The format that is made.
        kind: ImageKind,
        /// The remedy.
        remedy: String,
    },
    /// Only small letters choose a compression, as they do for xz(1) itself.
    #[error("--out {path}: .{ending} does not choose a compression: {}", in_small_letters(small))]
    Capitals {
        /// The whole name.
        path: String,
        /// Its ending.
        ending: String,
        /// The name that would do.
        small: String,
    },
}

fn in_small_letters(name: &str) -> String {
    format!("write {name}, in small letters")
}

impl WrongName {
    /// The remedy, as the message ends with it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Format { remedy, .. } => remedy.clone(),
            Self::Capitals { small, .. } => in_small_letters(small),
        }
    }
}

/// Endings of file names, in lower case: their meaning, and the formats whose images have it. Other endings (`img`,
/// `bin`) promise nothing.
const ENDINGS: [(&str, &str, &[ImageKind]); 35] = [
    ("raw", "the bytes of a disk", &[ImageKind::Raw]),
    ("qcow2", "QEMU's format", &[ImageKind::Qcow2]),
    ("vhd", "a VHD", &[ImageKind::Vhd]),
    ("vmdk", "a VMDK", &[ImageKind::Vmdk]),
    ("ova", "an OVA", &[ImageKind::Ova]),
    ("iso", "an ISO", &[ImageKind::Iso]),
    ("tar", "a tar archive", &[ImageKind::Pxe, ImageKind::Ova]),
    ("pxe", "a PXE archive", &[ImageKind::Pxe]),
    // No image of ours is one of these.
    ("qcow", "QEMU's old format", &[]),
    ("qed", "QEMU's old format", &[]),
    ("vhdx", "a VHDX", &[]),
    ("vdi", "VirtualBox's own format", &[]),
    ("ovf", "the description in an OVA", &[]),
    ("dmg", "a disk image of macOS", &[]),
    ("wim", "a disk image of Windows", &[]),
    ("xz", "compressed with xz", &[]),
    ("gz", "compressed with gzip", &[]),
    ("zst", "compressed with zstd", &[]),
    ("zstd", "compressed with zstd", &[]),
    ("bz2", "compressed with bzip2", &[]),
    ("lz", "compressed with lzip", &[]),
    ("lz4", "compressed with lz4", &[]),
    ("lzma", "compressed with lzma", &[]),
    ("lzo", "compressed with lzop", &[]),
    ("br", "compressed with brotli", &[]),
    ("z", "compressed with compress", &[]),
    ("zip", "a zip archive", &[]),
    ("7z", "a 7-Zip archive", &[]),
    ("rar", "a RAR archive", &[]),
    ("cpio", "a cpio archive", &[]),
    ("tgz", "a compressed tar archive", &[]),
    ("txz", "a compressed tar archive", &[]),
    ("tzst", "a compressed tar archive", &[]),
    ("tbz", "a compressed tar archive", &[]),
    ("tbz2", "a compressed tar archive", &[]),
];

impl ImageKind {
    /// The ending that images of this format have by custom.
    const fn ending(self) -> &'static str {
        match self {
            ImageKind::Pxe => "tar",
            other => other.name(),
        }
    }

    /// Refuse a name that promises another format or compression than it would get. `path` is that of the image.
    pub fn check_name(self, path: &str) -> Result<(), WrongName> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let inner = match Compression::from_path(name) {
            Some(_) => name.rsplit_once('.').map_or(name, |(inner, _)| inner),
            None => name,
        };
        let Some((_, ending)) = inner.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) else { return Ok(()) };
        let lower = ending.to_ascii_lowercase();
        if lower != ending && inner == name && Compression::from_path(&format!("x.{lower}")).is_some() {
            let (path, ending) = (path.to_owned(), ending.to_owned());
            let small = format!("{}{lower}", &path[..path.len() - lower.len()]);
            return Err(WrongName::Capitals { path, ending, small });
        }
        let Some((_, promised, kinds)) = ENDINGS.iter().find(|(known, ..)| *known == lower) else { return Ok(()) };
        if kinds.contains(&self) {
            return Ok(());
        }
        let own = self.ending();
        let other = kinds.first().map_or_else(String::new, |kind| format!(", or give --kind {}", kind.name()));
        let remedy = format!("end the name in .{own}, or in .{own}.xz, .{own}.zst or .{own}.gz to compress it{other}");
        Err(WrongName::Format { path: path.to_owned(), ending: ending.to_owned(), promised, kind: self, remedy })
    }
}

/// Replaces the values that qemu-img takes from the clock and a random generator, so that images are reproducible.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The disk GUID.
    pub id: Uuid,
    /// Seconds since 1970 UTC.
    pub time: u64,
}

/// The file that qemu-img made lacks something that must be there.
#[derive(Debug, thiserror::Error)]
#[error("qemu-img's output has no {0} in its place")]
pub struct Unstampable(&'static str);

/// Set time, unique identifier and checksum of a VHD. (Virtual Hard Disk Image Format Specification 1.0, "Hard Disk
/// Footer Format": integers are big-endian, times count from 2000.)
pub fn stamp_vhd(footer: &mut [u8; VHD_FOOTER_BYTES], stamp: Stamp) -> Result<(), Unstampable> {
    const Y2000: u64 = 946_684_800;
    if !footer.starts_with(VHD_COOKIE) {
        return Err(Unstampable("VHD footer"));
    }
    let time = u32::try_from(stamp.time.saturating_sub(Y2000)).unwrap_or(u32::MAX);
    footer[24..28].copy_from_slice(&time.to_be_bytes());
    footer[68..84].copy_from_slice(stamp.id.as_bytes());
    footer[64..68].fill(0);
    let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
    footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
    Ok(())
}

/// Set the content identifier in a VMDK's descriptor. (Virtual Disk Format 5.0, "The Descriptor File")
///
/// It has 32 bits; all ones are reserved for "no parent". qemu-img writes it without leading zeros, so the text behind it
/// may move. Zeros fill the rest.
pub fn stamp_vmdk(descriptor: &mut [u8], stamp: Stamp) -> Result<(), Unstampable> {
    const KEY: &[u8] = b"\nCID=";
    let text = descriptor.split(|byte| *byte == 0).next().unwrap_or_default();
    let key = text.windows(KEY.len()).position(|window| window == KEY).ok_or(Unstampable("CID"))?;
    let (before, rest) = text.split_at(key + KEY.len());
    let after = rest.iter().position(|byte| *byte == b'\n').map(|end| &rest[end..]);
    let id = (stamp.id.as_u128() >> 96) as u32 & 0x7fff_ffff;
    let mut new = [before, format!("{id:08x}").as_bytes(), after.ok_or(Unstampable("CID"))?].concat();
    if new.len() > descriptor.len() {
        return Err(Unstampable("room for a CID"));
    }
    new.resize(descriptor.len(), 0);
    descriptor.copy_from_slice(&new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { id: Uuid::from_u128(0x8123_4567 << 96), time: 946_684_801 };

    #[test]
    fn a_vhd_is_stamped() {
        let mut footer = [0; VHD_FOOTER_BYTES];
        assert!(stamp_vhd(&mut footer, STAMP).is_err());
        footer[..8].copy_from_slice(VHD_COOKIE);
        stamp_vhd(&mut footer, STAMP).unwrap();
        assert_eq!(footer[24..28], [0, 0, 0, 1]);
        assert_eq!(footer[68..72], [0x81, 0x23, 0x45, 0x67]);
        let sum: u32 = b"conectix\x01\x81\x23\x45\x67".iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(footer[64..68], (!sum).to_be_bytes());
    }

    #[test]
    fn a_vmdk_is_stamped() {
        for old in ["9d6dacec", "dacec", "0"] {
            let mut descriptor = format!("version=1\nCID={old}\nparentCID=ffffffff\n").into_bytes();
            descriptor.resize(60, 0);
            stamp_vmdk(&mut descriptor, STAMP).unwrap();
            let text = b"version=1\nCID=01234567\nparentCID=ffffffff\n";
            assert_eq!(&descriptor[..text.len()], text);
            assert!(descriptor[text.len()..].iter().all(|byte| *byte == 0));
        }
        assert!(stamp_vmdk(&mut b"version=1\nCID=1\nparentCID=ffffffff\n".to_vec(), STAMP).is_err());
        assert!(stamp_vmdk(&mut b"version=1\nparentCID=ffffffff\n".to_vec(), STAMP).is_err());
    }

    #[test]
    fn a_name_promises_what_is_in_the_file() {
        for (kind, _) in ImageKind::ALL {
            for name in
                ["os", "os.img", "a.iso/os", "a.zip/os.disk", "os-1.2", ".raw", ".iso.xz", "os.qcow2.img.gz", ""]
            {
                assert_eq!(kind.check_name(name), Ok(()), "{kind:?} {name}");
            }
            for end in ["", ".xz", ".zst", ".gz"] {
                let name = format!("dir/os.{}{end}", kind.ending());
                assert_eq!(kind.check_name(&name), Ok(()));
                assert_eq!(kind.check_name(&name.replace(kind.ending(), kind.name())), Ok(()));
                let others = ImageKind::ALL.into_iter().filter(|(other, _)| *other != kind);
                for (other, _) in others {
                    let refused = other.check_name(&name);
                    assert_eq!(
                        refused.is_err(),
                        !(other == ImageKind::Ova && kind == ImageKind::Pxe),
                        "{other:?} {name}"
                    );
                }
            }
            for name in
                ["os.bz2", "os.raw.zip", "os.ZIP", "os.raw.XZ", "os.xz.gz", "os.raw.xz.zst", "os.tgz", "os.vhdx"]
            {
                assert!(kind.check_name(name).is_err(), "{kind:?} {name}");
            }
        }
        let text = |kind: ImageKind, name: &str| kind.check_name(name).unwrap_err().to_string();
        assert_eq!(
            text(ImageKind::Iso, "x.qcow2"),
            "--out x.qcow2: .qcow2 is QEMU's format, and this is --kind iso: end the name in .iso, or in .iso.xz, .iso.zst \
             or .iso.gz to compress it, or give --kind qcow2"
        );
        assert_eq!(
            text(ImageKind::Raw, "x.bz2"),
            "--out x.bz2: .bz2 is compressed with bzip2, and this is --kind raw: end the name in .raw, or in .raw.xz, \
             .raw.zst or .raw.gz to compress it"
        );
        assert!(text(ImageKind::Raw, "x.tar.gz").contains("or give --kind pxe"));
        // Only small letters choose the compression, as they do for xz itself.
        for (name, ending, small) in [("x.RAW.XZ", "XZ", "x.RAW.xz"), ("os.img.Zst", "Zst", "os.img.zst")] {
            let says =
                format!("--out {name}: .{ending} does not choose a compression: write {small}, in small letters");
            assert_eq!(text(ImageKind::Raw, name), says);
        }
    }

    #[test]
    fn the_suffix_decides() {
        let of = |name: &str| Compression::from_path(name);
        assert_eq!(of("os.raw.xz"), Some(Compression::Xz));
        assert_eq!(of("dir.gz/os.qcow2.zst"), Some(Compression::Zst));
        assert_eq!(of("os.gz"), Some(Compression::Gz));
        for none in ["os.raw", "xz", ".xz", "os.xz.raw", "os.XZ"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
