//! Imager profiles: YAML that says which image is wanted, with the keys of Talos' imager.
//!
//! A profile starts from a base profile ([`Draft::base`]), or from nothing; its own keys go before the base's. What is
//! unknown is wrong. What is known and asks for something that is not done here, such as Secure Boot, is refused by its
//! name and its place, never left out in silence: whoever asks for a signed image is not given another. Keys that ask for
//! nothing (`secureboot: false`, `systemExtensions: []`) are as good as not there.

use crate::prelude::*;

mod base;
mod draft;
mod output;
mod print;
mod read;

pub use draft::Draft;
pub use output::{OutFormat, OutputKind};

use crate::{
    kernel::platform::Platform,
    media::format::{Compression, ImageKind},
    payload::{
        image_ref::ImageRef,
        manifest::{Arch, INITRAMFS, KERNEL},
    },
    units::SectorSize,
    yaml::{ConfigError, Pos},
};

/// A profile that says everything: what is made, of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Architecture of the machine.
    pub arch: Arch,
    /// Where it runs.
    pub platform: Platform,
    /// Kernel arguments, as `--extra-kernel-arg` takes them.
    pub extra_kernel_args: Vec<String>,
    /// META tags and values.
    pub meta: Vec<(u8, String)>,
    /// Where the payload comes from.
    pub origin: PayloadInput,
    /// Format of the image: one of a disk, or an ISO.
    pub kind: ImageKind,
    /// Its disk; an ISO has none.
    pub disk: Option<DiskOptions>,
    /// How the whole image is compressed.
    pub compression: Option<Compression>,
}

/// The disk of a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Size, bytes.
    pub bytes: u64,
    /// Logical sector size.
    pub sector: SectorSize,
}

/// Where the payload of a profile comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadInput {
    /// `input.kernel` and `input.initramfs`: the directory that holds both, without a slash at its end.
    Directory(String),
    /// `input.baseInstaller.imageRef`: an image in a registry.
    Registry {
        /// Its name.
        image: ImageRef,
        /// `forceInsecure`: the registry's certificate is not checked.
        insecure: bool,
    },
    /// `input.baseInstaller.ociPath`: an OCI layout.
    Layout(String),
    /// `input.baseInstaller.tarballPath`: the same in a tar archive.
    Archive(String),
}

impl PayloadInput {
    /// Where a container image carries its own payload.
    fn default_of(arch: Arch) -> Self {
        PayloadInput::Directory(format!("/usr/install/{arch}"))
    }
}

/// The initramfs that a payload directory has before any other.
const INITRAMFS_NAME: &str = INITRAMFS[0];
/// The kernel.
const KERNEL_NAME: &str = KERNEL;

impl Profile {
    /// Read a profile, and what is understood and ignored all the same.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<String>), ProfileError> {
        read::profile(bytes)
    }

    /// Name of the file that is made, as Talos' imager names it: `metal-amd64.raw.zst`, `metal-amd64.iso`.
    pub fn file_name(&self) -> String {
        let format = OutFormat::of(self.compression).suffix();
        format!("{}-{}.{}{format}", self.platform, self.arch, output::format_name(self.kind))
    }
}

/// Why there is no such profile, without the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is wrong.
    #[error("{0}")]
    Wrong(String),
    /// It is right, and asks for something that is not done here.
    #[error("{0}")]
    Unsupported(String),
}

/// Why there is no such profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {fault}")]
pub struct ProfileError {
    /// Where.
    pub at: Pos,
    /// Why, with the path of the key.
    pub fault: Fault,
}

impl From<ConfigError> for ProfileError {
    fn from(error: ConfigError) -> Self {
        ProfileError { at: error.at, fault: Fault::Wrong(error.what) }
    }
}
