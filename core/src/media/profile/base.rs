//! Base profiles: one word for the purpose of an image. Names, platforms, formats and sizes are those of Talos'
//! imager, except sizes that are too small for two slots of 1 GiB.

use crate::prelude::*;

use super::{Draft, Fault, OutFormat, OutputKind, SecureBoot, secure_boot::wants_it};
use crate::{
    kernel::platform::Platform,
    media::format::{DEFAULT_IMAGE_BYTES, ImageKind},
    units::{GIB, SectorSize},
};

// Talos has 1246 MiB here.
const SMALL_BYTES: u64 = DEFAULT_IMAGE_BYTES;
const CLOUD_BYTES: u64 = 8 * GIB;
const EXOSCALE_BYTES: u64 = 10 * GIB;

// Disk images: name, size of the disk, formats. Except for metal-4k, the name is also the platform's.
//
// Two differences from Talos: its qcow2 images for exoscale and oracle have clusters of 8 KiB, ours have qemu-img's
// default of 64 KiB. And for alibabacloud we only know the size that it uses, not the formats.
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

// Bare metal with 4096-byte sectors.
const METAL_4K: &str = "metal-4k";

const OTHERS: [(&str, OutputKind); 3] =
    [("iso", OutputKind::Iso), ("installer", OutputKind::Installer), ("metal-uki", OutputKind::Uki)];

impl Draft {
    /// The base profile of this name.
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
        if let Some(plain) = wants_it(name)
            && let Ok(draft) = Draft::base(plain)
            && draft.secure_boot.is_none()
        {
            return Ok(Draft { secure_boot: Some(SecureBoot::default()), ..draft });
        }
        let names = Draft::base_names().collect::<Vec<_>>().join(", ");
        Err(Fault::Wrong(format!("{name:?} is not a base profile; known are {names}")))
    }

    /// Names of the base profiles.
    pub fn base_names() -> impl Iterator<Item = &'static str> {
        IMAGES.iter().map(|(name, ..)| *name).chain(OTHERS.iter().map(|(name, _)| *name))
    }
}
