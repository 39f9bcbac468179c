//! Which formats a disk image comes in.

use std::path::Path;

use serde::Serialize;

use super::units::{GIB, SectorSize};

/// Size of an image's disk unless another is asked for, bytes: two slots, and 1.5 GiB for the OS. The OS may grow
/// EPHEMERAL, which is last, when it first runs on a larger disk.
pub const DEFAULT_IMAGE_BYTES: u64 = 4 * GIB;

/// Format of a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// The bytes of the disk, sparse.
    Raw,
    /// QEMU's format, version 3: KVM, OpenStack.
    Qcow2,
    /// Fixed VHD, as Azure takes it: the bytes of the disk and a footer.
    Vhd,
    /// VMware's monolithicSparse: Workstation, VirtualBox.
    Vmdk,
    /// OVF 1.1 in a tar archive, with a streamOptimized VMDK: vSphere, VirtualBox.
    Ova,
}

impl ImageKind {
    /// What `qemu-img convert` is told; none where nothing is converted. (qemu-img(1), "Disk image file formats")
    pub const fn qemu_format(self) -> Option<(&'static str, &'static str)> {
        match self {
            ImageKind::Raw => None,
            ImageKind::Qcow2 => Some(("qcow2", "compat=1.1")),
            // Without force_size the size is rounded to cylinders.
            ImageKind::Vhd => Some(("vpc", "subformat=fixed,force_size=on")),
            ImageKind::Vmdk => Some(("vmdk", "subformat=monolithicSparse")),
            ImageKind::Ova => Some(("vmdk", "subformat=streamOptimized")),
        }
    }

    /// Whether a disk with these logical sectors can be told apart in this format: VHD and VMDK count 512-byte sectors,
    /// and what runs them shows these to the machine.
    pub const fn takes(self, sector: SectorSize) -> bool {
        match self {
            ImageKind::Raw | ImageKind::Qcow2 => true,
            ImageKind::Vhd | ImageKind::Vmdk | ImageKind::Ova => matches!(sector, SectorSize::S512),
        }
    }
}

/// How a whole image is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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
    /// By the end of the file's name.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "xz" => Some(Compression::Xz),
            "zst" => Some(Compression::Zst),
            "gz" => Some(Compression::Gz),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_decides() {
        let of = |name: &str| Compression::of(Path::new(name));
        assert_eq!(of("os.raw.xz"), Some(Compression::Xz));
        assert_eq!(of("dir.gz/os.qcow2.zst"), Some(Compression::Zst));
        assert_eq!(of("os.gz"), Some(Compression::Gz));
        for none in ["os.raw", "xz", ".xz", "os.xz.raw", "os.XZ"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
