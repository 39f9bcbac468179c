//! Finds the users of any byte of a range of a disk or image file: through partitions, loop devices, device mapper,
//! md, swap and mounts, one on top of the other.
//!
//! The kernel's own claim (`O_EXCL`) keeps others away, but it only knows exact devices: a loop device on a range
//! of a disk does not claim it. This module finds those users, and names them.

mod devices;
mod mounts;
pub mod processes;

use std::{fs, path::Path};

use slipway_core::{
    disk::identity::{DiskKind, DiskUse},
    units::Extent,
};

use super::identity::DiskNode;
pub use devices::{ALL, Device, Devices, Kind, NoSysfs, Store};
pub use mounts::{out_of_reach, xfs_mounts};

/// The uses of these ranges. A partition alone is no use.
pub fn uses_of(node: &DiskNode, extents: &[Extent]) -> Result<Vec<DiskUse>, NoSysfs> {
    let Some(store) = store_of(&node.path) else { return Ok(vec![]) };
    let (devices, mounts, swaps) = (Devices::of_this_machine()?, mounts::mounts(), mounts::swaps());
    let mut uses: Vec<DiskUse> = Vec::new();
    let mut next = vec![(store, node.path.display().to_string(), extents.to_vec())];
    next.extend(beside(&devices, store, extents));
    // A device is asked about once for each range of it: a cycle, which no kernel makes, would end, too.
    let mut asked = Vec::new();
    while let Some((store, name, wanted)) = next.pop() {
        if asked.contains(&(store, wanted.clone())) {
            continue;
        }
        let mut add = |by: String| {
            let one = DiskUse { device: name.clone(), by };
            if !uses.contains(&one) {
                uses.push(one);
            }
        };
        let here = mounts.iter().filter(|mount| store == Store::Device(mount.rdev));
        here.for_each(|mount| add(format!("mounted on {}", mount.place)));
        if swaps.contains(&store) {
            add("used as swap".to_owned());
        }
        for (device, shared) in devices.on(store, &wanted) {
            match &device.kind {
                Kind::Loop => add(format!("attached to {}", device.node.display())),
                Kind::Mapping(by) => add(format!("held by {by}")),
                Kind::Disk | Kind::Partition { .. } => {}
            }
            next.push((Store::Device(device.rdev), device.node.display().to_string(), shared));
        }
        asked.push((store, wanted));
    }
    Ok(uses)
}

/// The other devices that lie on the same bytes of a store below: two loop devices on one file, or a loop device on a disk,
/// and a partition of it. Alone they are no use. Mappings are left out: the kernel lets none lie on bytes of another.
fn beside(devices: &Devices, store: Store, extents: &[Extent]) -> Vec<(Store, String, Vec<Extent>)> {
    let mut others = Vec::new();
    let (mut above, mut wanted) = (store, extents.to_vec());
    while let Some((device, below, there)) = devices.below(above, &wanted) {
        let shares =
            |other: &Device| matches!(other.kind, Kind::Loop | Kind::Partition { .. }) && other.rdev != device.rdev;
        let lie_there = devices.on(below, &there).filter(|(other, _)| shares(other));
        others.extend(
            lie_there.map(|(other, shared)| (Store::Device(other.rdev), other.node.display().to_string(), shared)),
        );
        (above, wanted) = (below, there);
    }
    others
}

/// The partitions that lie on any of these ranges. An image file has none of its own.
pub fn partitions(node: &DiskNode, extents: &[Extent]) -> Result<Vec<Device>, NoSysfs> {
    let Some(store) = store_of(&node.path).filter(|_| node.disk.kind == DiskKind::Disk) else { return Ok(vec![]) };
    Ok(Devices::of_this_machine()?.partitions(store, extents).cloned().collect())
}

/// A process that has one of these partitions open for writing.
pub fn writer_of(parts: &[Device]) -> Option<DiskUse> {
    open_in(parts, processes::writes, &|who| format!("open for writing in {who}"))
}

/// A process that has one of these partitions open.
pub fn opener_of(parts: &[Device]) -> Option<DiskUse> {
    open_in(parts, |_| true, &|who| format!("open in {who}"))
}

fn open_in(parts: &[Device], wanted: impl Fn(&str) -> bool, by: &dyn Fn(String) -> String) -> Option<DiskUse> {
    let stores: Vec<Store> = parts.iter().map(|part| Store::Device(part.rdev)).collect();
    let (pid, which) = processes::with_open(&stores, wanted)?;
    Some(DiskUse { device: parts[which].node.display().to_string(), by: by(processes::named(pid)) })
}

fn store_of(path: &Path) -> Option<Store> {
    Store::of_metadata(&fs::metadata(path).ok()?)
}
