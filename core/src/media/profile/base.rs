//! Base profiles: what an image is for, by one word. Names, platforms, formats and sizes are those of Talos' imager, but
//! where a size is too small for two slots of 1 GiB.

use crate::prelude::*;

use super::{Draft, Fault, OutFormat, OutputKind};
use crate::{
    kernel::platform::Platform,
    media::format::{DEFAULT_IMAGE_BYTES, ImageKind},
    units::{GIB, SectorSize},
};

/// Talos has 1246 MiB there.
const SMALL_BYTES: u64 = DEFAULT_IMAGE_BYTES;
/// As Talos has it.
const CLOUD_BYTES: u64 = 8 * GIB;
/// As Talos has it for this cloud.
const EXOSCALE_BYTES: u64 = 10 * GIB;

/// Disk images: name, which is the platform's too but for metal-4k; size of the disk, bytes; formats.
///
/// Talos' qcow2 images of exoscale and oracle have clusters of 8 KiB, ours qemu-img's 64 KiB. Of its alibabacloud only the
/// size is known to us.
const IMAGES: [(&str, u64, ImageKind, OutFormat); 19] = [
    ("metal", SMALL_BYTES, ImageKind::Raw, OutFormat::Zst),
    (METAL_4K, SMALL_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("akamai", SMALL_BYTES, ImageKind::Raw, OutFormat::Gz),
    ("aws", CLOUD_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("azure", CLOUD_BYTES, ImageKind::Vhd, OutFormat::Zst),
    ("cloudstack", CLOUD_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("digital-ocean", CLOUD_BYTES, ImageKind::Raw, OutFormat::Gz),
    ("exoscale", EXOSCALE_BYTES, ImageKind::Qcow2, OutFormat::Zst),
    ("gcp", CLOUD_BYTES, ImageKind::Raw, OutFormat::TarGz),
    ("hcloud", SMALL_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("nocloud", SMALL_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("opennebula", SMALL_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("openstack", SMALL_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("oracle", CLOUD_BYTES, ImageKind::Qcow2, OutFormat::Zst),
    ("scaleway", SMALL_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("upcloud", CLOUD_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("vmware", CLOUD_BYTES, ImageKind::Ova, OutFormat::Raw),
    ("vultr", CLOUD_BYTES, ImageKind::Raw, OutFormat::Zst),
    ("alibabacloud", CLOUD_BYTES, ImageKind::Raw, OutFormat::Zst),
];

/// Metal with sectors of 4096 bytes.
const METAL_4K: &str = "metal-4k";

/// What is no disk image.
const OTHERS: [(&str, OutputKind); 3] =
    [("iso", OutputKind::Iso), ("installer", OutputKind::Installer), ("metal-uki", OutputKind::Uki)];

/// Begins the names of profiles for Secure Boot that stand for the name behind it.
const SECUREBOOT: &str = "secureboot-";

impl Draft {
    /// What a base profile says.
    pub fn base(name: &str) -> Result<Self, Fault> {
        if let Some((_, disk_bytes, format, out_format)) = IMAGES.iter().find(|(n, ..)| *n == name) {
            let (platform, sector) = match name {
                METAL_4K => (Some(Platform::METAL), SectorSize::S4096),
                name => (Platform::by_name(name), SectorSize::S512),
            };
            return Ok(Draft {
                platform,
                kind: Some(OutputKind::Image),
                disk_bytes: Some(*disk_bytes),
                disk_format: Some(*format),
                sector: Some(sector),
                out_format: Some(*out_format),
                ..Draft::default()
            });
        }
        if let Some((_, kind)) = OTHERS.iter().find(|(n, _)| *n == name) {
            return Ok(Draft {
                platform: Some(Platform::METAL),
                kind: Some(*kind),
                out_format: Some(OutFormat::Raw),
                ..Draft::default()
            });
        }
        if name.strip_prefix(SECUREBOOT).is_some_and(|plain| Draft::base(plain).is_ok()) {
            return Err(Fault::Unsupported(format!("{name}: Secure Boot is not supported")));
        }
        let names = Draft::base_names().collect::<Vec<_>>().join(", ");
        Err(Fault::Wrong(format!("{name:?} is no base profile: {names}")))
    }

    /// Names of the base profiles.
    pub fn base_names() -> impl Iterator<Item = &'static str> {
        IMAGES.iter().map(|(name, ..)| *name).chain(OTHERS.iter().map(|(name, _)| *name))
    }
}
