//! Kinds and formats of output that Talos' imager knows, and which of them we make.

use crate::prelude::*;

use super::{Fault, Product, secure_boot::NOT_GRUB};
use crate::{
    boot::EfiLoader,
    media::format::{Compression, ImageKind},
};

/// `output.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// A disk image.
    Image,
    /// A live medium.
    Iso,
    /// A container image.
    Installer,
    /// The kernel of a PXE boot.
    Kernel,
    /// The initramfs of a PXE boot.
    Initramfs,
    /// The kernel command line of a PXE boot.
    Cmdline,
    /// A unified kernel image.
    Uki,
}

const KINDS: [(&str, OutputKind); 7] = [
    ("iso", OutputKind::Iso),
    ("image", OutputKind::Image),
    ("installer", OutputKind::Installer),
    ("kernel", OutputKind::Kernel),
    ("initramfs", OutputKind::Initramfs),
    ("uki", OutputKind::Uki),
    ("cmdline", OutputKind::Cmdline),
];

impl OutputKind {
    /// The kind of this name.
    pub fn by_name(name: &str) -> Result<Self, Fault> {
        by_name(&KINDS, name, "kind of output")
    }

    /// The product; a disk image has the format `disk_format`. Refuses kinds that we do not make.
    pub fn product(self, disk_format: Option<ImageKind>) -> Result<Option<Product>, Fault> {
        let what = match self {
            OutputKind::Image => return Ok(disk_format.map(Product::Image)),
            OutputKind::Iso => return Ok(Some(Product::Image(ImageKind::Iso))),
            OutputKind::Uki => return Ok(Some(Product::Uki)),
            OutputKind::Kernel | OutputKind::Initramfs | OutputKind::Cmdline => {
                "the parts of a PXE boot are not made one by one: `installer image --kind pxe` makes a tar archive of \
                 kernel, initramfs, command line (--extra-kernel-arg) and iPXE script"
            }
            OutputKind::Installer => "container images are made by `docker build` from the image of the installer",
        };
        Err(Fault::Unsupported(what.to_owned()))
    }
}

/// To Talos: GRUB under BIOS, and under UEFI a loader that starts unified kernel images.
pub const DUAL_BOOT: &str = "dual-boot";
pub const GRUB: &str = "grub";

/// `output.outFormat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutFormat {
    /// No compression.
    Raw,
    /// A compressed tar archive with `disk.raw` in it.
    TarGz,
    /// xz.
    Xz,
    /// gzip.
    Gz,
    /// Zstandard.
    Zst,
}

const FORMATS: [(&str, OutFormat); 5] = [
    ("raw", OutFormat::Raw),
    (".tar.gz", OutFormat::TarGz),
    (".xz", OutFormat::Xz),
    (".gz", OutFormat::Gz),
    (".zst", OutFormat::Zst),
];

impl OutFormat {
    /// The format of this name.
    pub fn by_name(name: &str) -> Result<Self, Fault> {
        by_name(&FORMATS, name, "output format")
    }

    /// The format of an image with this compression.
    pub const fn from_compression(compression: Option<Compression>) -> Self {
        match compression {
            None => OutFormat::Raw,
            Some(Compression::Xz) => OutFormat::Xz,
            Some(Compression::Gz) => OutFormat::Gz,
            Some(Compression::Zst) => OutFormat::Zst,
        }
    }

    /// Compression of the whole image. Refuses `.tar.gz`, which we do not make.
    pub fn compression(self) -> Result<Option<Compression>, Fault> {
        match self {
            OutFormat::Raw => Ok(None),
            OutFormat::Xz => Ok(Some(Compression::Xz)),
            OutFormat::Gz => Ok(Some(Compression::Gz)),
            OutFormat::Zst => Ok(Some(Compression::Zst)),
            OutFormat::TarGz => Err(Fault::Unsupported(
                ".tar.gz is not made: write `outFormat: raw` in a profile on stdin, and pack the image with `tar --format=oldgnu -Sczf`".to_owned(),
            )),
        }
    }

    /// Name in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            OutFormat::Raw => "raw",
            OutFormat::TarGz => ".tar.gz",
            OutFormat::Xz => ".xz",
            OutFormat::Gz => ".gz",
            OutFormat::Zst => ".zst",
        }
    }

    /// The suffix of the file name.
    pub const fn suffix(self) -> &'static str {
        match self {
            OutFormat::Raw => "",
            other => other.name(),
        }
    }
}

const DISK_FORMATS: [ImageKind; 4] = [ImageKind::Raw, ImageKind::Qcow2, ImageKind::Vhd, ImageKind::Ova];

/// The value of `output.imageOptions.diskFormat`.
pub fn disk_format(name: &str) -> Result<ImageKind, Fault> {
    let formats = DISK_FORMATS.map(|kind| (format_name(kind), kind));
    by_name(&formats.each_ref().map(|(name, kind)| (name.as_str(), *kind)), name, "disk format")
}

/// Name of a format, which is also its file extension.
pub fn format_name(kind: ImageKind) -> String {
    kind.name().to_owned()
}

/// Check `output.imageOptions.diskFormatOptions`. Our options for qemu-img are fixed, so a profile may only repeat them.
pub fn disk_format_options(kind: ImageKind, options: &str) -> Result<(), Fault> {
    let ours = kind.qemu_format().map_or("", |(_, options)| options);
    let used = |option: &str| ours.split(',').any(|o| o == option || o.strip_suffix("=on") == Some(option));
    match options.split(',').find(|option| !used(option)) {
        None => Ok(()),
        Some(option) => {
            let all = if ours.is_empty() { "none" } else { ours };
            let format = format_name(kind);
            Err(Fault::Unsupported(format!("{option:?} is not supported: the options of {format} are fixed ({all})")))
        }
    }
}

/// `bootloader` of `output.imageOptions`: the disk's boot loader under UEFI. Under BIOS that is GRUB in either case.
pub fn disk_loader(name: &str) -> Result<EfiLoader, Fault> {
    match name {
        DUAL_BOOT => Ok(EfiLoader::Slipway),
        GRUB => Ok(EfiLoader::Grub),
        other => Err(other_loader(other, "write dual-boot or grub")),
    }
}

/// `bootloader` of `output.isoOptions`. Under BIOS, ISOs boot with GRUB in either case.
pub fn iso_loader(name: &str, signed: bool) -> Result<(), Fault> {
    match (name, signed) {
        (GRUB, true) => Err(Fault::Wrong(NOT_GRUB.to_owned())),
        (DUAL_BOOT, true) | (GRUB, false) => Ok(()),
        (other, true) => Err(other_loader(other, "write dual-boot")),
        (other, false) => Err(other_loader(other, "an ISO boots with GRUB: write grub")),
    }
}

fn other_loader(name: &str, remedy: &str) -> Fault {
    match name {
        DUAL_BOOT | "sd-boot" | "none" => {
            Fault::Unsupported(format!("{name} is not supported: {remedy}, or leave it out"))
        }
        other => Fault::Wrong(format!("{other:?} is not a boot loader: none, dual-boot, sd-boot, grub")),
    }
}

/// A profile's name of a disk's boot loader.
pub const fn loader_name(loader: EfiLoader) -> &'static str {
    match loader {
        EfiLoader::Slipway => DUAL_BOOT,
        EfiLoader::Grub => GRUB,
    }
}

fn by_name<T: Copy>(table: &[(&str, T)], name: &str, what: &str) -> Result<T, Fault> {
    let found = table.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names = table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Fault::Wrong(format!("{name:?} is not a known {what}: {names}"))
    })
}
