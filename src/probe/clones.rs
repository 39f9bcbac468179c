//! Disks of this machine by their disk GUID: the one that was booted, and its clones.

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
    units::{Lba, SectorSize},
};

/// The clones of a disk. The boot rule hands the disk GUID to the system, and with a clone attached that says no longer
/// which disk was booted. An unreadable disk is not one: it cannot be mistaken for this one either.
pub fn clones(disk: &Disk, guid: Uuid) -> io::Result<Vec<DiskIdentity>> {
    let own = disk.identity();
    // A machine is not booted from an image file.
    if own.kind == DiskKind::Image {
        return Ok(vec![]);
    }
    let own_is_hardware = is_hardware(&own.path);
    let others = device::disks()?.disks.into_iter().filter(may_boot);
    // A volume whose server is gone would be waited for.
    let others = others.filter(|other| !own_is_hardware || is_hardware(&other.dev_path));
    let others = others.filter(|other| !is_same(own, &identity(other)));
    Ok(others.filter(|other| guid_of(other).is_ok_and(|found| found == Some(guid))).map(|o| identity(&o)).collect())
}

/// Disks of this machine.
#[derive(Default)]
pub struct DisksWith {
    /// Disks with the GUID, each drive once.
    pub disks: Vec<DiskIdentity>,
    /// Whether they are drives. Loop devices and the like have been looked at only where this is false.
    pub are_hardware: bool,
    /// Disks whose GUID is not known: the path, and why.
    pub unknown: Vec<String>,
}

/// The disks of this machine with this GUID. Takes no locks. Loop devices, md, network block devices and the like count
/// only if no hardware has it: firmware starts from hardware, and a volume whose server is gone would be waited for.
pub fn disks_with(guid: Uuid) -> io::Result<DisksWith> {
    let list = device::disks()?;
    let mut found = DisksWith::default();
    let (hardware, others): (Vec<_>, Vec<_>) =
        list.disks.into_iter().filter(may_boot).partition(|disk| is_hardware(&disk.dev_path));
    for disk in hardware {
        found.look(&disk, guid);
    }
    found.are_hardware = !found.disks.is_empty();
    if !found.are_hardware {
        others.iter().for_each(|disk| found.look(disk, guid));
    }
    found.unknown.extend(list.unknown.into_iter().map(|(path, why)| format!("{path}: {why}")));
    Ok(found)
}

impl DisksWith {
    fn look(&mut self, disk: &DiskTraits, guid: Uuid) {
        match guid_of(disk) {
            Ok(found) if found == Some(guid) => {
                let disk = identity(disk);
                if !self.disks.iter().any(|known| is_same(known, &disk)) {
                    self.disks.push(disk);
                }
            }
            Ok(_) => {}
            Err(why) => self.unknown.push(format!("{}: {why}", disk.dev_path)),
        }
    }
}

/// Whether firmware may start from it.
fn may_boot(disk: &DiskTraits) -> bool {
    !disk.cdrom && !device::lies_on_others(disk)
}

fn is_hardware(path: &str) -> bool {
    let name = Path::new(path).file_name().unwrap_or_default();
    Path::new("/sys/block").join(name).join("device").exists()
}

/// Whether it is the disk itself, under another name or one level of the device mapper, md or loop above or below it.
fn is_same(own: &DiskIdentity, other: &DiskIdentity) -> bool {
    let number = |path: &str| fs::metadata(path).map(|m| m.rdev()).ok();
    let name = |path: &str| Path::new(path).file_name().map(OsString::from);
    let related = |from: &str, dir: &str, to: &str| {
        let (Some(from), Some(to)) = (name(from), name(to)) else { return false };
        Path::new("/sys/block").join(from).join(dir).join(to).exists()
    };
    let (own_path, path) = (own.path.as_str(), other.path.as_str());
    let loop_of = |path: &str, below: &str| {
        let file = name(path).map(|name| Path::new("/sys/block").join(name).join("loop/backing_file"));
        file.and_then(|file| fs::read_to_string(file).ok()).is_some_and(|file| file.trim() == below)
    };
    // Two paths of one drive.
    let same_drive = own.wwid.as_ref().is_some_and(|wwid| is_worldwide(wwid) && Some(wwid) == other.wwid.as_ref());
    let one_level = related(own_path, "holders", path) || related(own_path, "slaves", path);
    let a_loop = loop_of(path, own_path) || loop_of(own_path, path);
    number(own_path) == number(path) || one_level || a_loop || same_drive
}

/// Whether no two drives have it. A WWID of any other kind is made from the serial number, which users set on virtual
/// drives.
fn is_worldwide(wwid: &str) -> bool {
    ["naa.", "eui.", "uuid."].iter().any(|kind| wwid.starts_with(kind))
}

/// The disk GUID of the copy of the GPT that is in use: the primary, or the backup if that is damaged.
fn guid_of(disk: &DiskTraits) -> io::Result<Option<Uuid>> {
    let Some(sector) = u32::try_from(disk.sector_size).ok().and_then(|bytes| SectorSize::try_from(bytes).ok()) else {
        return Ok(None);
    };
    let file = File::open(&disk.dev_path)?;
    let primary = guid_in(&file, sector, Lba(1));
    if let Ok(Some(_)) = primary {
        return primary;
    }
    let last = Lba((disk.size / sector.bytes()).saturating_sub(1));
    match guid_in(&file, sector, last)? {
        Some(guid) => Ok(Some(guid)),
        None => primary,
    }
}

/// The disk GUID of the copy with its header at `at`, if header and entries are valid.
fn guid_in(file: &File, sector: SectorSize, at: Lba) -> io::Result<Option<Uuid>> {
    let read = |lba: Lba, len: usize| {
        let mut bytes = vec![0; len];
        let offset = lba.offset(sector).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        file.read_exact_at(&mut bytes, offset).map(|()| bytes)
    };
    let Ok(header) = Header::decode(&read(at, sector.bytes() as usize)?, at) else { return Ok(None) };
    let entries = read(header.entries_lba, header.entries_bytes())?;
    Ok(header.decode_entries(&entries).is_ok().then_some(header.disk_guid))
}

fn identity(disk: &DiskTraits) -> DiskIdentity {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    DiskIdentity {
        path: disk.dev_path.clone(),
        kind: DiskKind::Disk,
        model: some(&disk.model),
        serial: some(&disk.serial),
        wwid: some(&disk.wwid),
    }
}
