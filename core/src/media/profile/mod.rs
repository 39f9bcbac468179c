//! Imager profiles: YAML with the keys of Talos' imager that describes the image to make.
//!
//! A profile starts from a base profile ([`Draft::base`]) or from nothing, and its own keys override the base. Unknown
//! keys are errors. A known key that asks for something unsupported, such as an overlay, is refused with its line and
//! column, never ignored: a request for a signed image must not yield another. A key that asks for nothing
//! (`secureboot: false`, `systemExtensions: []`) counts as absent.

use crate::prelude::*;

mod base;
mod draft;
mod output;
mod print;
mod read;
mod secure_boot;

pub use draft::Draft;
pub use output::{OutFormat, OutputKind};
pub use secure_boot::{DEFAULT_DIR, EnrolledKeys, SecureBoot};

use crate::{
    boot::EfiLoader,
    efi::enroll_mode::EnrollMode,
    kernel::{arch::Arch, platform::Platform},
    media::format::{Compression, ImageKind},
    payload::{
        image_ref::ImageRef,
        manifest::{INITRAMFS, KERNEL},
    },
    units::SectorSize,
    yaml::{ConfigError, Field, Pos},
};

/// A complete profile: the product, and its sources.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Profile {
    pub arch: Arch,
    pub platform: Platform,
    /// Kernel arguments, as `--extra-kernel-arg` takes them.
    pub extra_kernel_args: Vec<String>,
    pub meta: Vec<(u8, String)>,
    pub origin: PayloadInput,
    pub product: Product,
    /// The disk in the image; an ISO and a unified kernel image have none.
    pub disk: Option<DiskOptions>,
    pub compression: Option<Compression>,
    /// systemd's stub, which a unified kernel image begins with; none: Debian's.
    pub stub: Option<String>,
    /// The signer of the loader and of a unified kernel image, if any.
    pub secure_boot: Option<SecureBoot>,
    /// When the loader of a signed ISO puts its keys into firmware; none: the image brings no keys.
    pub enroll: Option<EnrollMode>,
}

/// Product of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// An image of this format: one of a disk, or an ISO.
    Image(ImageKind),
    /// A unified kernel image.
    Uki,
}

/// The disk of a disk image; sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct DiskOptions {
    pub bytes: u64,
    pub sector: SectorSize,
    pub efi_loader: EfiLoader,
}

/// Source of a profile's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadInput {
    /// `input.kernel` and `input.initramfs`: the directory that holds both, without a trailing slash.
    Directory(String),
    /// `input.baseInstaller.imageRef`: an image in a registry.
    Registry {
        /// Name of the image.
        image: ImageRef,
        /// `forceInsecure`: do not check the registry's certificate.
        insecure: bool,
    },
    /// `input.baseInstaller.ociPath`: an OCI layout.
    Layout(String),
    /// `input.baseInstaller.tarballPath`: an OCI layout in a tar archive.
    Archive(String),
}

impl PayloadInput {
    /// The directory in which a container image carries its own payload.
    fn default_of(arch: Arch) -> Self {
        PayloadInput::Directory(format!("/usr/install/{arch}"))
    }
}

// A payload directory prefers this initramfs to the other names.
const INITRAMFS_NAME: &str = INITRAMFS[0];
const KERNEL_NAME: &str = KERNEL;

impl Profile {
    /// Read a profile, and notes on keys that are understood but have no effect.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<String>), ProfileError> {
        read::profile(bytes)
    }

    /// Name of the output file, as Talos' imager names it: `metal-amd64.raw.zst`, `metal-amd64.iso`,
    /// `metal-amd64-secureboot.raw.zst`, `metal-amd64-uki.efi`.
    pub fn file_name(&self) -> String {
        let format = OutFormat::from_compression(self.compression).suffix();
        let signed = if self.secure_boot.is_some() { "-secureboot" } else { "" };
        let name = format!("{}-{}{signed}", self.platform, self.arch);
        match self.product {
            Product::Image(kind) => format!("{name}.{}{format}", output::format_name(kind)),
            Product::Uki => format!("{name}-uki.efi"),
        }
    }
}

/// Fault of a profile, without the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is invalid.
    #[error("{0}")]
    Wrong(String),
    /// It is valid, but asks for something unsupported.
    #[error("{0}")]
    Unsupported(String),
}

/// Fault of a profile, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {fault}")]
pub struct ProfileError {
    /// Line and column.
    pub at: Pos,
    /// The fault, which names the key.
    pub fault: Fault,
}

impl From<ConfigError> for ProfileError {
    fn from(error: ConfigError) -> Self {
        ProfileError { at: error.at, fault: Fault::Wrong(error.what) }
    }
}

/// Add a key's line and column to a fault.
fn at<T>(field: &Field, result: Result<T, Fault>) -> Result<T, ProfileError> {
    result.map_err(|fault| match fault {
        Fault::Wrong(what) => field.wrong(what).into(),
        Fault::Unsupported(what) => unsupported(field, what),
    })
}

/// The fault of a known key that asks for something unsupported.
fn unsupported(field: &Field, what: impl core::fmt::Display) -> ProfileError {
    let ConfigError { at, what } = field.wrong(what);
    ProfileError { at, fault: Fault::Unsupported(what) }
}

/// Refuse a known key unless it asks for nothing.
fn refuse(parent: &Field, key: &str, why: &str) -> Result<(), ProfileError> {
    match parent.get(key)?.filter(|field| !field.asks_nothing()) {
        Some(field) => Err(unsupported(&field, why)),
        None => Ok(()),
    }
}
