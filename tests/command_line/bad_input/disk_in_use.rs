//! In use: refused whatever the flags say.

use std::fs;

use slipway_test_support::{
    exit_code::INSTALL,
    world::{self, DISK_BYTES, Loop, Mount, Swap, World, on_disk, partition, refused, refused_on},
};

/// A disk with a system on it and a node for its STATE.
fn disk_with_state(world: &World) -> (Loop, world::Range) {
    let file = world.sparse("disk.img", DISK_BYTES);
    let disk = Loop::attach(&file, &[]);
    world.install(&disk.node, &["--format-data=true"]).succeeds();
    let state = partition(&disk.node, "STATE");
    (disk, state)
}

#[test]
fn a_mounted_partition() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let mount = Mount::new(&node.node, world.path("state"));
    for flag in ["--force", "--zero", "--force=false", "--dry-run"] {
        let texts = [node.node.to_str().unwrap(), "mounted on", mount.point.to_str().unwrap()];
        refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &[flag]));
    }
}

/// The image file of a disk is the disk.
#[test]
fn an_image_with_a_mounted_partition() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let mount = Mount::new(&node.node, world.path("state"));
    let texts = ["in use", disk.node.to_str().unwrap(), "mounted on", mount.point.to_str().unwrap()];
    refused_on(&disk, INSTALL, &texts, || world.install(&world.path("disk.img"), &["--force"]));
}

/// What neither moves nor rewrites what is in use goes on working beside it.
#[test]
fn a_disk_in_use_can_be_looked_at() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let mount = Mount::new(&node.node, world.path("state"));
    fs::write(mount.point.join("file"), "content").unwrap();
    for verb in [&["status"][..], &["verify"], &["meta", "set", "10=x"], &["meta", "get", "10"], &["meta", "list"]] {
        on_disk(&disk.node, verb).succeeds();
    }
}

#[test]
fn a_partition_used_as_swap() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let swap = Swap::on(&node.node);
    // The kernel may write to its swap at any time.
    let before = disk.content().without(state);
    world.install(&disk.node, &["--force"]).exits(INSTALL).says(&[node.node.to_str().unwrap(), "swap"]);
    assert!(disk.content().without(state) == before, "{} was written to", disk.node.display());
    drop(swap);
    world.install(&disk.node, &["--force"]).succeeds();
}

#[test]
fn a_partition_attached_to_a_loop_device() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let other = Loop::attach(&node.node, &[]);
    let texts = ["in use", node.node.to_str().unwrap(), "attached to", other.node.to_str().unwrap(), "detach it first"];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &["--force"]));
    drop(other);
    world.install(&disk.node, &["--force"]).succeeds();
}

#[test]
fn an_image_attached_to_a_loop_device() {
    let world = World::new();
    let image = world.image();
    let other = Loop::attach(&image, &[]);
    let texts = ["in use", image.to_str().unwrap(), "attached to", other.node.to_str().unwrap()];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force"]));
    drop(other);
    world.install(&image, &[]).succeeds();
}

/// Two loop devices on one file are one disk: what is mounted on the other one is in use, whole or a part of it.
#[test]
fn a_mount_on_another_loop_device_of_the_same_file() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let [offset, len] = [("offset", state.offset), ("sizelimit", state.len)].map(|(name, n)| format!("--{name}={n}"));
    let other = Loop::attach(&world.path("disk.img"), &[&offset, &len]);
    let mount = Mount::new(&other.node, world.path("state"));
    let texts = ["in use", other.node.to_str().unwrap(), "mounted on", mount.point.to_str().unwrap()];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &["--force"]));
    refused_on(&disk, INSTALL, &texts, || on_disk(&disk.node, &["wipe", "STATE"]));
    // The same bytes, reached from above.
    let upper = Loop::attach(&disk.node, &[]);
    refused_on(&disk, INSTALL, &texts, || world.install(&upper.node, &["--force"]));
    drop(upper);
    drop(mount);
    // Attached alone it is no use.
    world.install(&disk.node, &["--force"]).succeeds();
}

/// The same file by another name: a hard link here, a bind mount in a container.
#[test]
fn an_image_attached_by_another_name() {
    let world = World::new();
    let image = world.image();
    let other_name = world.path("other-name.img");
    fs::hard_link(&image, &other_name).unwrap();
    let other = Loop::attach(&other_name, &[]);
    let texts = ["in use", other.node.to_str().unwrap()];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force"]));
}
