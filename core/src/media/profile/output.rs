//! What comes out: kinds, formats, and which of them are made.

use crate::prelude::*;

use super::Fault;
use crate::media::format::{Compression, ImageKind};

/// `output.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// A disk image.
    Image,
    /// An ISO.
    Iso,
    /// A container image.
    Installer,
    /// A kernel, for PXE.
    Kernel,
    /// An initramfs, for PXE.
    Initramfs,
    /// A kernel command line, for PXE.
    Cmdline,
    /// A unified kernel image.
    Uki,
}

/// Kinds by name.
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
    /// By name.
    pub fn by_name(name: &str) -> Result<Self, Fault> {
        by_name(&KINDS, name, "kind of output")
    }

    /// The format of what is made; `disk_format` is that of a disk image.
    pub fn image_kind(self, disk_format: Option<ImageKind>) -> Result<Option<ImageKind>, Fault> {
        let what = match self {
            OutputKind::Image => return Ok(disk_format),
            OutputKind::Iso => return Ok(Some(ImageKind::Iso)),
            OutputKind::Kernel | OutputKind::Initramfs | OutputKind::Cmdline => {
                "the parts of a PXE boot are not made one by one: `installer image --kind pxe` makes a tar archive of \
                 kernel, initramfs, command line (--extra-kernel-arg) and iPXE script"
            }
            OutputKind::Installer => "container images are made by `docker build` from the image of the installer",
            OutputKind::Uki => "unified kernel images are not made: disks and ISOs boot by GRUB",
        };
        Err(Fault::Unsupported(what.to_owned()))
    }
}

/// `output.outFormat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutFormat {
    /// As it is.
    Raw,
    /// A tar archive with `disk.raw` in it, compressed.
    TarGz,
    /// xz.
    Xz,
    /// gzip.
    Gz,
    /// Zstandard.
    Zst,
}

/// Formats by name.
const FORMATS: [(&str, OutFormat); 5] = [
    ("raw", OutFormat::Raw),
    (".tar.gz", OutFormat::TarGz),
    (".xz", OutFormat::Xz),
    (".gz", OutFormat::Gz),
    (".zst", OutFormat::Zst),
];

impl OutFormat {
    /// By name.
    pub fn by_name(name: &str) -> Result<Self, Fault> {
        by_name(&FORMATS, name, "output format")
    }

    /// The format of an image that is compressed like this.
    pub const fn of(compression: Option<Compression>) -> Self {
        match compression {
            None => OutFormat::Raw,
            Some(Compression::Xz) => OutFormat::Xz,
            Some(Compression::Gz) => OutFormat::Gz,
            Some(Compression::Zst) => OutFormat::Zst,
        }
    }

    /// How the whole image is compressed.
    pub fn compression(self) -> Result<Option<Compression>, Fault> {
        match self {
            OutFormat::Raw => Ok(None),
            OutFormat::Xz => Ok(Some(Compression::Xz)),
            OutFormat::Gz => Ok(Some(Compression::Gz)),
            OutFormat::Zst => Ok(Some(Compression::Zst)),
            OutFormat::TarGz => Err(Fault::Unsupported(
                ".tar.gz is not made: write `outFormat: raw` in a profile on stdin, and pack it by `tar --format=oldgnu -Sczf`".to_owned(),
            )),
        }
    }

    /// What it is called in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            OutFormat::Raw => "raw",
            OutFormat::TarGz => ".tar.gz",
            OutFormat::Xz => ".xz",
            OutFormat::Gz => ".gz",
            OutFormat::Zst => ".zst",
        }
    }

    /// What it adds to the name of a file.
    pub const fn suffix(self) -> &'static str {
        match self {
            OutFormat::Raw => "",
            other => other.name(),
        }
    }
}

/// Formats of `output.imageOptions.diskFormat`.
const DISK_FORMATS: [ImageKind; 4] = [ImageKind::Raw, ImageKind::Qcow2, ImageKind::Vhd, ImageKind::Ova];

/// A format of a disk image by its name.
pub fn disk_format(name: &str) -> Result<ImageKind, Fault> {
    let formats = DISK_FORMATS.map(|kind| (format_name(kind), kind));
    by_name(&formats.each_ref().map(|(name, kind)| (name.as_str(), *kind)), name, "disk format")
}

/// What a format is called, which is also how the name of its file ends.
pub fn format_name(kind: ImageKind) -> String {
    kind.name().to_owned()
}

/// Options of a disk format, as qemu-img takes them. They are fixed, so only those can be asked for that are used anyway.
pub fn disk_format_options(kind: ImageKind, options: &str) -> Result<(), Fault> {
    let ours = kind.qemu_format().map_or("", |(_, options)| options);
    let used = |option: &str| ours.split(',').any(|o| o == option || o.strip_suffix("=on") == Some(option));
    match options.split(',').find(|option| !used(option)) {
        None => Ok(()),
        Some(option) => {
            let all = if ours.is_empty() { "none" } else { ours };
            let format = format_name(kind);
            Err(Fault::Unsupported(format!("{option:?} cannot be asked for: the options of {format} are fixed, {all}")))
        }
    }
}

/// `bootloader` of `output.imageOptions` and `output.isoOptions`: there is one.
pub fn bootloader(name: &str) -> Result<(), Fault> {
    match name {
        "grub" => Ok(()),
        "dual-boot" | "sd-boot" | "none" => Err(Fault::Unsupported(format!(
            "{name} is not what is made: disks and ISOs boot by GRUB; write grub, or leave it out"
        ))),
        other => Err(Fault::Wrong(format!("{other:?} is no boot loader: none, dual-boot, sd-boot, grub"))),
    }
}

fn by_name<T: Copy>(table: &[(&str, T)], name: &str, what: &str) -> Result<T, Fault> {
    let found = table.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names = table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Fault::Wrong(format!("{name:?} is no {what}: {names}"))
    })
}
