//! No all-clear, and no circle of advice, for a disk on which something was not read.

use serde_json::json;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{Node, Outcome, World, flip, installer, json_of, on_disk, partition, write_at},
};

/// The finding: `repair` said "nothing to do" of a disk with a slot in it that it had not read.
#[test]
fn a_repair_gives_no_all_clear_to_a_damaged_slot() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    let says = |slot: &str, is_default: bool| {
        let at = node.file(slot, "rootfs.squashfs");
        flip(&node.disk, at);
        let said = on_disk(&node.disk, &["repair"]).succeeds();
        assert!(!said.stdout.contains("nothing to do"), "{}", said.stdout);
        let what = if is_default { "and is damaged".to_owned() } else { format!("and slot {slot} is damaged") };
        assert!(said.stdout.contains(&what) && said.stdout.contains("`installer verify`"), "{}", said.stdout);
        assert!(said.stderr.contains(&format!("slot {slot} is damaged (rootfs.squashfs: ")), "{}", said.stderr);
        // What was not read is not called good.
        let picture = Outcome::of(installer(["inspect"]).arg(&node.disk)).succeeds().stdout;
        assert!(picture.contains("not read") && picture.contains("`installer verify --disk"), "{picture}");
        flip(&node.disk, at);
    };
    says("B", false);
    node.grub_tries();
    says("B", false);
    node.run('B', true, &["confirm"]).succeeds();
    says("B", true);
    says("A", false);
    assert!(on_disk(&node.disk, &["repair"]).succeeds().stdout.starts_with("nothing to do"));
}

/// The finding: in a trial whose squashfs is damaged `status` said confirm, `confirm` refused, and `status` said confirm. It reads
/// no squashfs there unasked, because a trial has no time for that: it says so.
#[test]
fn a_trial_that_is_damaged_is_not_to_be_confirmed_for_ever() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let next_of = |arguments: &[&str]| {
        let report = node.run('B', true, &[&["status", "--output=json"], arguments].concat()).json();
        (report["next_step"]["command"].clone(), report["next_step"]["why"].as_str().unwrap().to_owned())
    };
    let next = || next_of(&["--full"]);
    assert!(next().0.as_str().unwrap().starts_with("installer confirm "));
    let fallback = node.file("A", "rootfs.squashfs");
    flip(&node.disk, fallback);
    assert!(next().1.contains("There is no way back"), "{:?}", next());
    flip(&node.disk, fallback);
    flip(&node.disk, node.file("B", "rootfs.squashfs"));
    assert!(next().0.as_str().unwrap().starts_with("installer rollback "), "{:?}", next());
    let (command, why) = next_of(&[]);
    assert!(command.as_str().unwrap().starts_with("installer confirm ") && why.contains("`installer verify "), "{why}");
    node.run('B', true, &["confirm"]).exits(INSTALL).says(&["installer verify"]);
    let verified = node.run('B', true, &["verify"]).exits(INSTALL).stdout;
    assert!(verified.contains("installer rollback"), "{verified}");
    node.run('B', true, &["rollback"]).succeeds();
}

/// The finding: a system that runs, whose ESP is lost and whose squashfs is damaged, was sent from `status` to `repair` and back.
#[test]
fn a_lost_esp_beside_a_damaged_root_file_system_ends_the_advice() {
    let world = World::new();
    let node = Node::installed(&world);
    flip(&node.disk, node.file("A", "rootfs.squashfs"));
    write_at(&node.disk, partition(&node.disk, "EFI").offset, &vec![0; MIB as usize]);
    let inside = node.run('A', false, &["status", "--output=json"]).json();
    assert_eq!(inside["next_step"]["command"], json!(null), "{inside}");
    assert!(inside["next_step"]["why"].as_str().unwrap().contains("start a live medium"), "{inside}");
    // There it is mended.
    let outside = json_of(&node.disk, &["status"]);
    assert!(outside["next_step"]["command"].as_str().unwrap().starts_with("installer repair "), "{outside}");
}
