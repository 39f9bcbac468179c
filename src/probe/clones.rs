//! Other disks of this machine with the same disk GUID.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use uuid::Uuid;

use crate::device::{self, Disk};
use slipway_core::{
    config::DiskTraits,
    disk::{
        gpt::Header,
        identity::{DiskIdentity, DiskKind},
    },
    units::Lba,
};

/// The clones of a disk. The boot rule hands the disk GUID to the system, and with a clone attached that says no longer
/// which disk was booted. A disk that cannot be read is none: it cannot be mistaken for this one either.
pub fn clones(disk: &Disk, guid: Uuid) -> io::Result<Vec<DiskIdentity>> {
    let own = disk.identity();
    // An image file is not what a machine was booted from.
    if own.kind == DiskKind::Image {
        return Ok(vec![]);
    }
    let others = device::disks()?.disks.into_iter().filter(|other| !other.cdrom && !is_same(own, other));
    // Firmware starts from no others, and a volume whose server is gone would be waited for.
    let hardware = |path: &str| {
        let name = Path::new(path).file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("device").exists()
    };
    let own_hardware = hardware(&own.path);
    let others = others.filter(|other| !device::lies_on_others(other) && (!own_hardware || hardware(&other.dev_path)));
    Ok(others.filter(|other| guid_of(other).is_some_and(|g| g == guid)).map(identity).collect())
}

/// Whether it is the disk itself, under another name or one level of the device mapper, md or loop above or below it.
fn is_same(own: &DiskIdentity, other: &DiskTraits) -> bool {
    let number = |path: &str| fs::metadata(path).map(|m| m.rdev()).ok();
    let name = |path: &str| Path::new(path).file_name().map(OsString::from);
    let related = |from: &str, dir: &str, to: &str| {
        let (Some(from), Some(to)) = (name(from), name(to)) else { return false };
        Path::new("/sys/block").join(from).join(dir).join(to).exists()
    };
    let (own_path, path) = (own.path.as_str(), other.dev_path.as_str());
    let backing = name(path).map(|name| Path::new("/sys/block").join(name).join("loop/backing_file"));
    let loop_of = backing.and_then(|file| fs::read_to_string(file).ok()).is_some_and(|file| file.trim() == own_path);
    // Two paths of one drive.
    let same_drive = own.wwid.as_ref().is_some_and(|wwid| is_worldwide(wwid) && *wwid == other.wwid);
    let one_level = related(own_path, "holders", path) || related(own_path, "slaves", path);
    number(own_path) == number(path) || one_level || loop_of || same_drive
}

/// Whether no two drives have it. A WWID of any other kind is made from the serial number, which users set on virtual
/// drives.
fn is_worldwide(wwid: &str) -> bool {
    ["naa.", "eui.", "uuid."].iter().any(|kind| wwid.starts_with(kind))
}

fn guid_of(disk: &DiskTraits) -> Option<Uuid> {
    let mut block = vec![0; usize::try_from(disk.sector_size).ok().filter(|n| (512..=65536).contains(n))?];
    File::open(&disk.dev_path).ok()?.read_exact_at(&mut block, disk.sector_size).ok()?;
    Some(Header::decode(&block, Lba(1)).ok()?.disk_guid)
}

fn identity(disk: DiskTraits) -> DiskIdentity {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    DiskIdentity {
        path: disk.dev_path,
        kind: DiskKind::Disk,
        model: some(disk.model),
        serial: some(disk.serial),
        wwid: some(disk.wwid),
    }
}
