//! The disks of this machine, with the traits that a disk selector matches.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::identity::read_trimmed;
use slipway_core::config::DiskTraits;

const SYS_BLOCK: &str = "/sys/block";
/// Devices that are no disks to install onto, by their names without a number.
const NEVER: [&str; 3] = ["ram", "zram", "fd"];

/// The disks of this machine.
#[derive(Default)]
pub struct DiskList {
    /// Sorted by name. Loop devices and the like are listed with an empty transport.
    pub disks: Vec<DiskTraits>,
    /// Disks that the kernel lists and does not know the size of: their paths, and why. Nothing is known of them.
    pub unknown: Vec<(String, String)>,
}

/// All whole disks. Not listed are drives without a medium, devices without content, and those that lose their
/// content when the power goes (RAM disks, zram), or are too small for a system (floppies, the boot areas of an eMMC).
pub fn disks() -> io::Result<DiskList> {
    let (links, mut list) = (links(), DiskList::default());
    let mut names = Vec::new();
    for entry in fs::read_dir(SYS_BLOCK)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    for name in names {
        let sys = Path::new(SYS_BLOCK).join(&name);
        let flag = |file: &str| read_trimmed(&sys.join(file)).as_deref() == Some("1");
        // sysfs also lists the single paths of a multipath NVMe disk. They are hidden and have no node.
        let numbered = |kind: &str| name.strip_prefix(kind).is_some_and(|number| number.parse::<u32>().is_ok());
        if flag("hidden") || NEVER.into_iter().any(numbered) || is_boot_area(&name) {
            continue;
        }
        match fs::read_to_string(sys.join("size")).map(|text| text.trim().parse()) {
            Ok(Ok(0)) if flag("removable") || !sys.join("device").exists() => {}
            // As a SCSI disk is listed that does not tell its capacity.
            Ok(Ok(0)) => list.unknown.push((dev_path(&name), "its size is 0: the drive does not answer".to_owned())),
            Ok(Ok(blocks)) => list.disks.push(traits(&name, blocks, &links)),
            Ok(Err(e)) => list.unknown.push((dev_path(&name), format!("its size cannot be read: {e}"))),
            Err(e) => list.unknown.push((dev_path(&name), format!("its size cannot be read: {e}"))),
        }
    }
    Ok(list)
}

// Linux lists the boot areas of an eMMC beside it, as mmcblk0boot0 and mmcblk0boot1.
fn is_boot_area(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let parts = name.strip_prefix("mmcblk").and_then(|rest| rest.split_once("boot"));
    parts.is_some_and(|(disk, area)| is_number(disk) && is_number(area))
}

/// Whether firmware can start from such a disk only through the disks below it, which are listed, too: a logical or
/// encrypted volume, a mapped partition, and a device that unites the paths to one disk.
pub fn lies_on_others(disk: &DiskTraits) -> bool {
    let name = disk.dev_path.trim_start_matches("/dev/");
    let uuid = read_trimmed(&Path::new(SYS_BLOCK).join(name).join("dm/uuid")).unwrap_or_default();
    ["LVM-", "CRYPT-", "part", "mpath-"].iter().any(|prefix| uuid.starts_with(prefix))
}

// sysfs writes the `/` of a name as `!`.
fn dev_path(name: &str) -> String {
    format!("/dev/{}", name.replace('!', "/"))
}

fn traits(name: &str, blocks: u64, links: &BTreeMap<PathBuf, Vec<String>>) -> DiskTraits {
    let sys = Path::new(SYS_BLOCK).join(name);
    let text = |names: &[&str]| names.iter().find_map(|n| read_trimmed(&sys.join(n))).unwrap_or_default();
    let number = |name: &str| text(&[name]).parse().unwrap_or(0u64);
    // Two levels above the disk is its controller: …/block/sda, …/nvme0/nvme0n1.
    let place = fs::canonicalize(&sys).unwrap_or_default();
    let bus = place.parent().and_then(Path::parent).and_then(|p| p.strip_prefix("/sys/devices").ok());
    let bus_path = bus.map_or_else(String::new, |p| format!("/{}", p.display()));
    let dev_path = dev_path(name);
    DiskTraits {
        // sysfs counts in 512-byte units, for any sector size.
        size: blocks.saturating_mul(512),
        io_size: number("queue/optimal_io_size"),
        sector_size: number("queue/logical_block_size"),
        readonly: number("ro") == 1,
        cdrom: name.starts_with("sr"),
        rotational: number("queue/rotational") == 1,
        model: text(&["device/model"]),
        serial: text(&["device/serial", "serial"]),
        modalias: text(&["device/modalias"]),
        wwid: text(&["wwid", "device/wwid"]),
        uuid: text(&["uuid"]),
        name: text(&["device/name"]),
        transport: transport(name, &bus_path).to_owned(),
        symlinks: links.get(Path::new(&dev_path)).cloned().unwrap_or_default(),
        dev_path,
        bus_path,
    }
}

// Transport of a disk, from its name and its place in the device tree. Empty for virtual devices.
fn transport(name: &str, bus_path: &str) -> &'static str {
    const NAMES: [(&str, &str); 4] = [("nvme", "nvme"), ("mmcblk", "mmc"), ("vd", "virtio"), ("xvd", "xen")];
    const PLACES: [(&str, &str); 6] = [
        ("/usb", "usb"),
        ("/ata", "sata"),
        ("/session", "iscsi"),
        ("/end_device", "sas"),
        ("/rport", "fc"),
        ("/virtio", "virtio"),
    ];
    let by_name = NAMES.iter().find(|(prefix, _)| name.starts_with(prefix));
    let by_place = || PLACES.iter().find(|(part, _)| bus_path.contains(part));
    let scsi = if name.starts_with("sd") || name.starts_with("sr") { "scsi" } else { "" };
    by_name.or_else(by_place).map_or(scsi, |(_, transport)| transport)
}

// The links in `/dev/disk`, by device. Empty where no udev runs.
fn links() -> BTreeMap<PathBuf, Vec<String>> {
    let below = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut links: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for link in below(Path::new("/dev/disk")).flat_map(|dir| below(&dir).collect::<Vec<_>>()) {
        if let Ok(device) = fs::canonicalize(&link) {
            links.entry(device).or_default().push(link.display().to_string());
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_areas() {
        let named =
            ["mmcblk0boot0", "mmcblk12boot1", "mmcblk0", "mmcblk0p1", "mmcblk0gp0", "bootmmcblk0", "mmcblkboot0"];
        assert_eq!(named.map(is_boot_area), [true, true, false, false, false, false, false]);
    }

    #[test]
    fn transports() {
        for (name, bus_path, expected) in [
            ("nvme0n1", "/pci0000:00/0000:00:1d.0/0000:03:00.0/nvme", "nvme"),
            ("sda", "/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0", "sata"),
            ("sdb", "/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/host6/target6:0:0/6:0:0:0", "usb"),
            ("sdc", "/pci0000:00/0000:00:05.0/virtio2/host2/target2:0:1/2:0:1:0", "virtio"),
            ("sdd", "/platform/host0/session1/target0:0:0/0:0:0:1", "iscsi"),
            ("sde", "/LNXSYSTM:00/host0/target0:0:0/0:0:0:0", "scsi"),
            ("vda", "/pci0000:00/0000:00:05.0/virtio2", "virtio"),
            ("mmcblk0", "/platform/soc/mmc0/mmc0:0001", "mmc"),
            ("loop0", "/virtual", ""),
            ("zram0", "/virtual", ""),
        ] {
            assert_eq!(transport(name, bus_path), expected, "{name} {bus_path}");
        }
    }
}
