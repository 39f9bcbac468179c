//! Payloads that do not fit, are damaged, or change while they are read.

use std::time::Duration;

use slipway::{
    device::{Access, Disk},
    execute::{self, Sources},
    payload::{ChecksumPolicy, DirSource, image::Inspection},
    probe,
};
use slipway_core::{
    plan::{self, Asked, RequestBase, UpgradeRequest},
    units::MIB,
};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    fixtures::Silent,
    system,
    world::{Node, Payload, World, flip, json_of, partition, read_at},
};

use super::refused;

#[test]
fn a_payload_larger_than_the_slot() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 80 * MIB);
    refused(&node, INPUT, &["does not fit into a slot of 64 MiB", "too few", "slots cannot grow"], || node.upgrade());
}

/// A list of checksums is believed until its files are written: then they are compared, and the slot stays empty.
#[test]
fn a_directory_that_is_not_what_its_checksums_say() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let payload = &world.payload;
    payload.checksum().succeeds();
    let source = format!("--source={}", payload.source());
    let upgrade =
        || node.run('B', false, &["upgrade", "--progress=none", "--retry-bad", "--extra-kernel-arg=x", &source]);

    let size = payload.read(Payload::ROOTFS).len() as u64;
    payload.resize(Payload::ROOTFS, size + 1);
    refused(&node, INPUT, &["rootfs.squashfs", "SHA256SUMS says"], upgrade);
    payload.resize(Payload::ROOTFS, size);

    flip(&payload.path(Payload::ROOTFS), 50_000);
    upgrade().exits(INSTALL).says(&[
        "rootfs.squashfs",
        "its manifest.json is wrong",
        "copy or make the payload again, then run the same command again",
        "the change is not in force: slot B boots next (A empty, B good)",
    ]);
    let slots = &json_of(&node.disk, &["status"])["slots"];
    assert_eq!((&slots["A"]["state"], &slots["B"]["state"]), (&"empty".into(), &"good".into()));
    assert_eq!(read_at(&node.disk, partition(&node.disk, "BOOT-A").offset, 512), [0; 512], "a file system");

    flip(&payload.path(Payload::ROOTFS), 50_000);
    upgrade().succeeds();
}

/// Between the moment it was checked and the moment it is written.
#[test]
fn a_payload_that_changes_while_it_is_read() {
    let world = World::new();
    let node = Node::installed(&world);
    let mut source = DirSource::new(node.next.dir());
    let payload = source.facts(ChecksumPolicy::from_strict(false), Inspection::Everything, |_| ()).unwrap();
    let disk = Disk::open(&node.disk, Access::Write, None, Duration::ZERO).unwrap();
    let system = probe::system(&disk, &node_cmdline(&disk)).unwrap();
    let request = UpgradeRequest {
        base: RequestBase { disk: "disk".into(), now: 1, asked: Asked::default() },
        ..system::upgrade()
    };
    let plan = plan::upgrade(&request, &system, &payload).unwrap();
    flip(&node.next.path(Payload::ROOTFS), 50_000);
    let sources = Sources { payload: Some(&source), ..Sources::default() };
    let error = execute::run(&plan, &disk, sources, &mut Silent).unwrap_err();
    assert_eq!(error.kind.exit_code(), 7);
    let text = format!("{:#}", anyhow_chain(&error));
    assert!(text.contains("it changed since it was checked") && text.contains("something was written"), "{text}");
    drop(disk);
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
    // And again, with what it is now.
    node.upgrade().succeeds();
}

fn node_cmdline(disk: &Disk) -> String {
    let guid = probe::gpt(disk).unwrap().disk_guid;
    format!("slipway.slot=A slipway.disk={guid} slipway.try=0")
}

fn anyhow_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
