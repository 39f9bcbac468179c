//! Two disks with one disk GUID: a cloned VM disk, or a drive that was copied to a new one.

use std::fs;

use slipway_test_support::world::{DISK_BYTES, Loop, World, on_disk, tool};

/// The boot rule hands over the disk GUID alone, so the system may take one for the other.
#[test]
fn status_names_a_clone_that_is_attached() {
    let world = World::new();
    let (file, copy) = (world.sparse("disk.img", DISK_BYTES), world.path("copy.img"));
    let disk = Loop::attach(&file, &[]);
    world.install(&disk.node, &[]).succeeds();
    on_disk(&disk.node, &["status"]).succeeds();
    tool!("cp", "--sparse=always", &file, &copy);
    {
        let clone = Loop::attach(&copy, &[]);
        let human = on_disk(&disk.node, &["status"]).exits(7).stdout;
        let says = format!("\nproblem    {} has the same disk GUID: it is a copy of this disk", clone.node.display());
        assert!(human.contains(&says), "{human}");
        // It damages nothing.
        on_disk(&disk.node, &["verify"]).succeeds();
        // A file is not what a machine was booted from.
        on_disk(&file, &["status"]).succeeds();
    }
    on_disk(&disk.node, &["status"]).succeeds();
    // The same disk under another name is no clone.
    let node = fs::canonicalize(&disk.node).unwrap();
    let _same = Loop::attach(&node, &[]);
    on_disk(&disk.node, &["status"]).succeeds();
}
