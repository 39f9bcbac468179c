//! The block devices of this machine, and the bytes that each of them lies on.

use std::{
    fs::{self, File},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::{libc, sys::stat::makedev};
use slipway_core::units::Extent;

use crate::device::{
    identity::{read_trimmed, sysfs},
    ioctl,
};

/// A store that a device can lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Device(u64),
    /// The file that a loop device makes a disk of. By inode: it may have several names, or none any more.
    File {
        dev: u64,
        inode: u64,
    },
}

impl Store {
    /// None if it is neither a block device nor a regular file.
    pub fn of_metadata(meta: &fs::Metadata) -> Option<Self> {
        match meta.file_type() {
            kind if kind.is_block_device() => Some(Store::Device(meta.rdev())),
            kind if kind.is_file() => Some(Store::File { dev: meta.dev(), inode: meta.ino() }),
            _ => None,
        }
    }

    /// The store of a path, without waiting for a server that is gone.
    pub fn at(path: &Path) -> Option<Self> {
        let status = ioctl::status_without_sync(path).ok()?;
        let device = |major, minor| makedev(u64::from(major), u64::from(minor));
        match u32::from(status.stx_mode) & libc::S_IFMT {
            libc::S_IFBLK => Some(Store::Device(device(status.stx_rdev_major, status.stx_rdev_minor))),
            libc::S_IFREG => {
                Some(Store::File { dev: device(status.stx_dev_major, status.stx_dev_minor), inode: status.stx_ino })
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Disk,
    /// A part of its disk, and no use of it by itself. The partitions of a multipath disk are device-mapper devices.
    Partition {
        /// None for a device-mapper device.
        number: Option<i32>,
    },
    Loop,
    /// By device mapper, md, bcache. The name is for people.
    Mapping(String),
}

#[derive(Clone, Debug)]
pub struct Device {
    pub rdev: u64,
    pub node: PathBuf,
    pub kind: Kind,
    on: Vec<(Store, Extent)>,
}

/// Store of a loop device, and its offset there.
pub struct Backing {
    pub store: Store,
    pub offset: u64,
}

/// All of a store, however long it is.
pub const ALL: Extent = Extent { offset: 0, len: u64::MAX };

pub struct Devices(Vec<Device>);

/// sysfs is not mounted: which devices there are is not known.
#[derive(Debug)]
pub struct NoSysfs;

impl Devices {
    pub fn of_this_machine() -> Result<Self, NoSysfs> {
        Devices::read(Path::new("/sys"), &backing, &mapped)
    }

    // sysfs does not tell where a mapping lies, and not for sure the store of a loop device: these ask the kernel.
    fn read(
        sys: &Path,
        backing: &dyn Fn(&Path, &Path) -> Option<Backing>,
        mapped: &dyn Fn(u64) -> Option<Vec<(Store, Extent)>>,
    ) -> Result<Self, NoSysfs> {
        let mut devices = Vec::new();
        let disks = fs::read_dir(sys.join("block")).map_err(|_| NoSysfs)?;
        for dir in disks.flatten().map(|entry| entry.path()) {
            let Some(rdev) = number_of(&dir) else { continue };
            let node = node_of(&dir);
            let (kind, on) = if dir.join("loop").is_dir() {
                let to_the_end = |offset| Extent { offset, len: size_of(&dir).unwrap_or(u64::MAX - offset) };
                let on = backing(&node, &dir).map(|backing| (backing.store, to_the_end(backing.offset)));
                (Kind::Loop, on.into_iter().collect())
            } else {
                let below = subdirectories(&dir.join("slaves")).filter_map(|slave| number_of(&slave));
                let below: Vec<_> = below.map(|rdev| (Store::Device(rdev), ALL)).collect();
                match below.is_empty() {
                    true => (Kind::Disk, below),
                    // The table of an encrypted volume has its key.
                    false if is_encrypted(&dir) => (mapping(&dir), below),
                    false => (mapping(&dir), mapped(rdev).unwrap_or(below)),
                }
            };
            devices.push(Device { rdev, node, kind, on });
            for part in subdirectories(&dir) {
                let Some(number) = read_trimmed(&part.join("partition")).and_then(|text| text.parse().ok()) else {
                    continue;
                };
                let (Some(own), Some(start), Some(len)) = (number_of(&part), bytes(&part, "start"), size_of(&part))
                else {
                    continue;
                };
                let on = vec![(Store::Device(rdev), Extent { offset: start, len })];
                let kind = Kind::Partition { number: Some(number) };
                devices.push(Device { rdev: own, node: node_of(&part), kind, on });
            }
        }
        devices.sort_by_key(|device| device.rdev);
        Ok(Devices(devices))
    }

    /// The devices that lie directly on any of these bytes, each with the bytes of its own that do.
    pub fn on<'d>(&'d self, store: Store, wanted: &[Extent]) -> impl Iterator<Item = (&'d Device, Vec<Extent>)> {
        self.0.iter().filter_map(move |device| {
            let on = device.on.iter().filter(|(on, _)| *on == store);
            let shared = on.flat_map(|(_, lies)| wanted.iter().filter_map(|wanted| within(*lies, *wanted)));
            // The range of its own bytes is known only for a device on one range: not for md, or dm-crypt.
            let one_range = matches!(device.on[..], [(_, lies)] if lies != ALL);
            let shared: Vec<_> = if one_range { shared.collect() } else { shared.map(|_| ALL).collect() };
            (!shared.is_empty()).then_some((device, shared))
        })
    }

    /// The store below these bytes of a device: the device as it is known, the store below it, and the bytes there. None
    /// if it lies on nothing else, or where it lies is not known.
    pub fn below(&self, store: Store, wanted: &[Extent]) -> Option<(&Device, Store, Vec<Extent>)> {
        let device = self.0.iter().find(|device| Store::Device(device.rdev) == store)?;
        let [(below, lies)] = device.on[..] else { return None };
        let there = |wanted: &Extent| {
            let len = wanted.len.min(lies.len.checked_sub(wanted.offset)?);
            Some(Extent { offset: lies.offset.checked_add(wanted.offset)?, len })
        };
        (lies != ALL).then(|| (device, below, wanted.iter().filter_map(there).collect()))
    }

    /// The store below a loop device.
    pub fn loop_on(&self, store: Store) -> Option<Store> {
        let device = self.0.iter().find(|device| device.kind == Kind::Loop && Store::Device(device.rdev) == store)?;
        device.on.first().map(|(below, _)| *below)
    }

    /// The usual node of a device.
    pub fn node(&self, rdev: u64) -> Option<PathBuf> {
        self.0.iter().find(|device| device.rdev == rdev).map(|device| device.node.clone())
    }

    /// The path of the file that a loop device lies on, as the kernel has it.
    pub fn backing_path(&self, file: Store) -> Option<PathBuf> {
        let device = self.0.iter().find(|device| device.on.first().is_some_and(|(on, _)| *on == file))?;
        read_trimmed(&sysfs(device.rdev).join("loop/backing_file")).map(PathBuf::from)
    }

    /// The partitions that lie on any of these bytes.
    pub fn partitions(&self, store: Store, wanted: &[Extent]) -> impl Iterator<Item = &Device> {
        self.on(store, wanted).map(|(device, _)| device).filter(|device| matches!(device.kind, Kind::Partition { .. }))
    }
}

impl Device {
    /// The bytes of its disk that a partition lies on.
    pub fn extent(&self) -> Option<Extent> {
        self.on.first().map(|(_, extent)| *extent)
    }
}

// The part that both ranges share, counted from the beginning of the first.
fn within(lies: Extent, wanted: Extent) -> Option<Extent> {
    let end = |extent: Extent| extent.offset.saturating_add(extent.len);
    let (from, to) = (lies.offset.max(wanted.offset), end(lies).min(end(wanted)));
    (from < to).then(|| Extent { offset: from - lies.offset, len: to - from })
}

fn subdirectories(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn number_of(sys: &Path) -> Option<u64> {
    device_number(&read_trimmed(&sys.join("dev"))?)
}

pub fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(nix::sys::stat::makedev(major.parse().ok()?, minor.parse().ok()?))
}

// sysfs writes the `/` of a name as `!`.
fn node_of(sys: &Path) -> PathBuf {
    Path::new("/dev").join(sys.file_name().unwrap_or_default().to_string_lossy().replace('!', "/"))
}

// sysfs counts in 512-byte units, for any sector size (Documentation/ABI/stable/sysfs-block).
fn bytes(sys: &Path, attribute: &str) -> Option<u64> {
    read_trimmed(&sys.join(attribute))?.parse::<u64>().ok()?.checked_mul(512)
}

fn size_of(sys: &Path) -> Option<u64> {
    bytes(sys, "size").filter(|size| *size > 0)
}

fn mapping(sys: &Path) -> Kind {
    // kpartx and libdevmapper mark partitions so.
    let uuid = read_trimmed(&sys.join("dm/uuid")).unwrap_or_default();
    let number = uuid.strip_prefix("part").and_then(|rest| rest.split_once('-')).map(|(number, _)| number);
    if number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())) {
        return Kind::Partition { number: None };
    }
    let name = sys.file_name().unwrap_or_default().to_string_lossy();
    Kind::Mapping(match read_trimmed(&sys.join("dm/name")) {
        Some(given) => format!("{name} ({given})"),
        None => name.into_owned(),
    })
}

// The kernel is asked first: the path in sysfs is that of another mount namespace, or of a file that has lost its name.
fn backing(node: &Path, sys: &Path) -> Option<Backing> {
    let open = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(node);
    let asked = open.and_then(|device| ioctl::loop_status(&device));
    if let Ok(status) = asked {
        let store = match status.rdev {
            0 => Store::File { dev: status.dev, inode: status.inode },
            rdev => Store::Device(rdev),
        };
        return Some(Backing { store, offset: status.offset });
    }
    let store = Store::of_metadata(&fs::metadata(read_trimmed(&sys.join("loop/backing_file"))?).ok()?)?;
    Some(Backing { store, offset: read_trimmed(&sys.join("loop/offset"))?.parse().ok()? })
}

fn is_encrypted(sys: &Path) -> bool {
    read_trimmed(&sys.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("CRYPT-"))
}

// Only where every piece of a mapping is a plain range of another device: the table says which.
fn mapped(rdev: u64) -> Option<Vec<(Store, Extent)>> {
    let control = File::options().read(true).write(true).open("/dev/mapper/control").ok()?;
    let targets = ioctl::dm_table(&control, rdev).ok()?;
    let range = |target: ioctl::DmTarget| {
        let (device, start) = target.parameters.split_once(' ')?;
        let start = start.trim().parse::<u64>().ok()?.checked_mul(512)?;
        let lies = Extent { offset: start, len: target.sectors.checked_mul(512)? };
        (target.kind == "linear").then_some((Store::Device(device_number(device)?), lies))
    };
    targets.into_iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn number(minor: u64) -> u64 {
        nix::sys::stat::makedev(259, minor)
    }

    // A disk with two partitions. md on the second, bcache on md. A mapping with a table that is known on the first, one
    // with another on the disk; the first is a disk with a partition of its own, as multipath makes it.
    fn machine() -> Devices {
        let sys = tempfile::tempdir().unwrap();
        let block = sys.path().join("block");
        let put = |path: &str, text: String| {
            let path = block.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let device = |path: &str, minor: u64, bytes: u64| {
            put(&format!("{path}/dev"), format!("259:{minor}\n"));
            put(&format!("{path}/size"), format!("{}\n", bytes / 512));
        };
        let below = |upper: &str, lower: &str| {
            fs::create_dir_all(block.join(upper).join("slaves")).unwrap();
            let name = lower.rsplit('/').next().unwrap();
            symlink(block.join(lower), block.join(upper).join("slaves").join(name)).unwrap();
        };
        device("sda", 0, 8 * GIB);
        for (name, minor, start) in [("sda1", 1, 1), ("sda2", 2, 4)] {
            device(&format!("sda/{name}"), minor, 2 * GIB);
            put(&format!("sda/{name}/partition"), format!("{minor}\n"));
            put(&format!("sda/{name}/start"), format!("{}\n", start * GIB / 512));
        }
        device("md0", 10, 2 * GIB);
        below("md0", "sda/sda2");
        device("bcache0", 11, 2 * GIB);
        below("bcache0", "md0");
        for (name, minor, lower, given, uuid) in [
            ("dm-0", 20, "sda/sda1", "volume", "LVM-x"),
            ("dm-1", 21, "dm-0", "volume1", "part1-LVM-x"),
            ("dm-2", 22, "sda", "secret", "CRYPT-LUKS2-x"),
        ] {
            device(name, minor, GIB);
            below(name, lower);
            put(&format!("{name}/dm/name"), format!("{given}\n"));
            put(&format!("{name}/dm/uuid"), format!("{uuid}\n"));
        }
        let linear = |lower: u64, offset: u64| Some(vec![(Store::Device(lower), Extent { offset, len: GIB / 2 })]);
        let mapped = |rdev: u64| match rdev {
            rdev if rdev == number(20) => linear(number(1), GIB),
            rdev if rdev == number(21) => linear(number(20), GIB / 4),
            _ => None,
        };
        Devices::read(sys.path(), &|_, _| None, &mapped).unwrap()
    }

    fn names(devices: &Devices, store: u64, offset: u64, len: u64) -> Vec<String> {
        let wanted = [Extent { offset, len }];
        let on = devices.on(Store::Device(number(store)), &wanted);
        on.map(|(device, shared)| format!("{} {:?} {}", device.node.display(), device.kind, shared[0].offset)).collect()
    }

    #[test]
    fn ranges_of_devices() {
        let devices = machine();
        let everything = r#"/dev/dm-2 Mapping("dm-2 (secret)") 0"#;
        // A device that does not tell its place may lie anywhere.
        assert_eq!(names(&devices, 0, 0, GIB), [everything]);
        assert_eq!(
            names(&devices, 0, 2 * GIB, 2 * GIB + 1),
            [
                &format!("/dev/sda1 Partition {{ number: Some(1) }} {GIB}"),
                "/dev/sda2 Partition { number: Some(2) } 0",
                everything
            ]
        );
        assert_eq!(names(&devices, 2, 5, 1), [r#"/dev/md0 Mapping("md0") 0"#]);
        assert_eq!(names(&devices, 10, 5, 1), [r#"/dev/bcache0 Mapping("bcache0") 0"#]);
        assert_eq!(names(&devices, 1, 0, GIB), [""; 0]);
        assert_eq!(names(&devices, 1, GIB / 2, GIB), [r#"/dev/dm-0 Mapping("dm-0 (volume)") 0"#]);
        assert_eq!(names(&devices, 20, 0, GIB), ["/dev/dm-1 Partition { number: None } 0"]);
        let below = |minor: u64, offset: u64, len: u64| {
            let (_, below, there) = devices.below(Store::Device(number(minor)), &[Extent { offset, len }])?;
            Some((below, there[0].offset, there[0].len))
        };
        assert_eq!(below(2, 5, 1), Some((Store::Device(number(0)), 4 * GIB + 5, 1)));
        assert_eq!(below(1, GIB, u64::MAX), Some((Store::Device(number(0)), 2 * GIB, GIB)));
        // A disk lies on nothing, and an md array somewhere.
        assert_eq!((below(0, 0, 1), below(10, 0, 1)), (None, None));
        assert!(Devices::read(Path::new("/nowhere"), &|_, _| None, &|_| None).is_err());
    }
}
