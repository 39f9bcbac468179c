//! One writer for one disk, whatever node it is reached by: containers share nothing but the device.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use slipway::device::{Access, Disk};
use slipway_test_support::{
    exit_code::INSTALL,
    world::{Loop, Node, Outcome, World, json_of, on_disk, partition, tool},
};

fn held(disk: &Path) -> Disk {
    Disk::open(disk, Access::Write, None, Duration::ZERO).unwrap()
}

/// Another node of the same device, as another container has one.
fn other_node(world: &World, of: &Path) -> PathBuf {
    let node = world.path("other-node");
    let number = |format: &str| tool!("stat", "--format", format, of).trim().to_owned();
    let [major, minor] = ["%Hr", "%Lr"].map(number);
    tool!("mknod", &node, "b", major, minor);
    node
}

/// A writer is kept out, and a reader told of it.
#[track_caller]
fn keeps_out(disk: &Path) {
    let who = format!("is locked by process {} (", std::process::id());
    on_disk(disk, &["meta", "set", "10=x", "--lock-timeout=0.2"]).exits(INSTALL).says(&[&who]);
}

/// What claims the whole device names the writer that has it, too.
#[track_caller]
fn keeps_out_who_needs_all_of_it(world: &World, disk: &Path) {
    let who = format!("is locked by process {} (", std::process::id());
    let says = [who.as_str()];
    world.install(disk, &["--force", "--lock-timeout=0.2"]).exits(INSTALL).says(&says);
    on_disk(disk, &["rollback", "--offline", "--lock-timeout=0.2"]).exits(INSTALL).says(&says);
}

#[test]
fn by_another_node() {
    let world = World::new();
    let image = world.installed(&[]);
    let disk = Loop::attach(&image, &[]);
    let other = other_node(&world, &disk.node);
    for with_partitions in [false, true] {
        // Where the kernel reads partitions they may be mounted, and then no program can claim the disk as a whole.
        let parts = ["BIOS", "BOOT-A"].map(|name| partition(&image, name));
        let parts = parts.into_iter().zip([2, 3]).take(if with_partitions { 2 } else { 0 });
        let _parts: Vec<_> = parts.map(|(range, number)| disk.partition(number, range)).collect();
        let writer = held(&disk.node);
        keeps_out(&other);
        keeps_out_who_needs_all_of_it(&world, &other);
        let seen = json_of(&other, &["status"])["writer"].clone();
        assert_eq!(seen["pid"], json!(std::process::id()), "{with_partitions}");
        drop(writer);
        assert_eq!(json_of(&other, &["status"])["writer"], json!(null), "{with_partitions}");
        on_disk(&other, &["meta", "set", "10=x", "--lock-timeout=0.2"]).succeeds();
    }
}

#[test]
fn by_a_loop_device_on_it() {
    let world = World::new();
    let image = world.installed(&[]);
    let disk = Loop::attach(&image, &[]);
    let upper = Loop::attach(&disk.node, &[]);
    let writer = held(&disk.node);
    keeps_out(&upper.node);
    drop(writer);
    let writer = held(&image);
    keeps_out(&disk.node);
    keeps_out(&upper.node);
    drop(writer);
    on_disk(&upper.node, &["meta", "set", "10=x"]).succeeds();
}

/// Two upgrades, each by its own node: the second waits, and both tell what is so.
#[test]
fn two_upgrades_come_one_after_the_other() {
    let world = World::new();
    let node = Node::installed(&world);
    let cmdline = node.cmdline('A', false);
    let disk = Loop::attach(&node.disk, &[]);
    let other = other_node(&world, &disk.node);
    let upgrade = |path: &Path, timeout: &str| {
        let source = format!("--source={}", node.next.source());
        let args = ["upgrade", "--progress=none", &source, timeout, "--disk", path.to_str().unwrap()];
        Outcome::of(&mut world.command_under(&cmdline, "", &args))
    };
    let writer = held(&disk.node);
    upgrade(&other, "--lock-timeout=0.2").exits(INSTALL).says(&["is locked by process"]);
    drop(writer);
    upgrade(&other, "--lock-timeout=0.2").succeeds();
    upgrade(&disk.node, "--lock-timeout=0.2").succeeds();
}
