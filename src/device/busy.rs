//! Who uses a disk: mounts, swap, device mapper, md, loop devices.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use slipway_core::disk::identity::{DiskKind, DiskUse};

use super::identity::{DiskNode, read_trimmed, sysfs};
use slipway_core::units::Extent;

pub fn uses_of(node: &DiskNode) -> Vec<DiskUse> {
    let devices = match node.disk.kind {
        DiskKind::Disk => disk_devices(&node.path),
        // A loop device makes a disk of an image file. What uses the loop device uses the image.
        DiskKind::Image => loop_devices(&node.path),
    };
    let mut uses: Vec<DiskUse> = Vec::new();
    if node.disk.kind == DiskKind::Image {
        uses.extend(
            devices
                .values()
                .filter(|d| !d.partition)
                .map(|d| DiskUse { device: node.path.display().to_string(), by: format!("attached to {}", d.name) }),
        );
    }
    let mut add = |name: &str, by: String| {
        let one = DiskUse { device: name.to_owned(), by };
        if !uses.contains(&one) {
            uses.push(one);
        }
    };
    for (rdev, mount_point) in mounts() {
        if let Some(device) = devices.get(&rdev) {
            add(&device.name, format!("mounted on {mount_point}"));
        }
    }
    for rdev in swaps() {
        if let Some(device) = devices.get(&rdev) {
            add(&device.name, "used as swap".to_owned());
        }
    }
    for device in devices.values() {
        for holder in holders(&device.sys) {
            add(&device.name, format!("held by {holder}"));
        }
        for (_, loop_device) in loop_devices(Path::new(&device.name)).iter().filter(|(_, d)| !d.partition) {
            add(&device.name, format!("attached to {}", loop_device.name));
        }
    }
    uses
}

struct Device {
    name: String,
    sys: PathBuf,
    partition: bool,
}

fn disk_devices(path: &Path) -> BTreeMap<u64, Device> {
    let mut devices = BTreeMap::new();
    let Ok(meta) = fs::metadata(path) else { return devices };
    let sys = sysfs(meta.rdev());
    let partitions = subdirectories(&sys).filter(|dir| dir.join("partition").exists());
    for (sys, partition) in partitions.map(|dir| (dir, true)).chain([(sys.clone(), false)]) {
        let Some(rdev) = read_trimmed(&sys.join("dev")).as_deref().and_then(device_number) else { continue };
        let name = if partition {
            format!("/dev/{}", sys.file_name().unwrap_or_default().display())
        } else {
            path.display().to_string()
        };
        devices.insert(rdev, Device { name, sys, partition });
    }
    devices
}

/// Nodes of the partitions that fill exactly `extent`: one, or none if the kernel has no such partition.
pub(super) fn partition_nodes(disk: &Path, extent: Extent) -> Vec<PathBuf> {
    // sysfs counts in 512-byte units, whatever the sector size (Documentation/ABI/stable/sysfs-block).
    let number = |sys: &Path, name| read_trimmed(&sys.join(name))?.parse::<u64>().ok()?.checked_mul(512);
    let fills = |d: &&Device| {
        d.partition && number(&d.sys, "start") == Some(extent.offset) && number(&d.sys, "size") == Some(extent.len)
    };
    disk_devices(disk).values().filter(fills).map(|d| PathBuf::from(&d.name)).collect()
}

fn loop_devices(path: &Path) -> BTreeMap<u64, Device> {
    let loops = subdirectories(Path::new("/sys/block"));
    // Compared by inode: the loop device may have opened a hard link or a bind mount.
    let same = |file: &str| {
        let id = |p: &Path| fs::metadata(p).map(|m| (m.dev(), m.ino())).ok();
        Path::new(file) == path || id(Path::new(file)).is_some_and(|other| Some(other) == id(path))
    };
    let ours = loops.filter(|dir| read_trimmed(&dir.join("loop/backing_file")).is_some_and(|file| same(&file)));
    let nodes = ours.filter_map(|dir| Some(PathBuf::from("/dev").join(dir.file_name()?)));
    nodes.flat_map(|node| disk_devices(&node)).collect()
}

fn subdirectories(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn holders(sys: &Path) -> impl Iterator<Item = String> + use<> {
    subdirectories(&sys.join("holders")).filter_map(|path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let dm = read_trimmed(&path.join("dm/name")).map(|n| format!(" ({n})")).unwrap_or_default();
        Some(format!("{name}{dm}"))
    })
}

fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(nix::sys::stat::makedev(major.parse().ok()?, minor.parse().ok()?))
}

// Device numbers and mount points (proc_pid_mountinfo(5)). The installer often runs in a container, so the mount
// namespace of process 1 counts as well as our own.
fn mounts() -> Vec<(u64, String)> {
    let tables = ["/proc/self/mountinfo", "/proc/1/mountinfo"];
    let text: String = tables.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let mut mounts = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(number), Some(point)) = (fields.get(2), fields.get(4)) else { continue };
        // The kernel writes a space as an octal escape.
        let point = point.replace("\\040", " ");
        if let Some(rdev) = device_number(number) {
            mounts.push((rdev, point.clone()));
        }
        // btrfs and overlays have device numbers of their own. Their source field names the device.
        let source = fields.iter().position(|f| *f == "-").and_then(|dash| fields.get(dash + 2));
        if let Some(meta) = source.filter(|s| s.starts_with("/dev/")).and_then(|s| fs::metadata(s).ok()) {
            mounts.push((meta.rdev(), point));
        }
    }
    mounts
}

fn swaps() -> impl Iterator<Item = u64> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths: Vec<_> = text.lines().skip(1).filter_map(|l| l.split_whitespace().next().map(str::to_owned)).collect();
    paths.into_iter().filter_map(|path| Some(fs::metadata(path).ok()?.rdev()))
}
