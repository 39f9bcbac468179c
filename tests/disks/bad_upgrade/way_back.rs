//! Where the way back is not what it should be.

use serde_json::Value;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{Content, Node, Payload, World, flip, json_of, write_at},
};

use super::refused;

#[test]
fn the_default_damaged_and_the_trial_armed() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    flip(&node.disk, node.file("A", Payload::KERNEL) + 1000);
    // Cancelling it, or writing another payload over it, would leave nothing to boot. Only a boot ends it, and all say so.
    let texts =
        ["slot B is to be tried at the next boot", "slot A, the default, is damaged", "boot the disk, which tries it"];
    refused(&node, INSTALL, &texts, || node.run('A', false, &["rollback"]));
    node.run('A', false, &["repair"]).succeeds().says(&["slot A is damaged", "says what mends it"]);
    assert_eq!(json_of(&node.disk, &["status"])["next_step"]["command"], Value::Null);
    node.next.write("cmdline", "another");
    let texts =
        ["slot A, which runs, is damaged", "slot B is the only one that boots", "reboot first: the next boot tries it"];
    refused(&node, INSTALL, &texts, || node.upgrade());
    refused(&node, INSTALL, &texts, || node.run('A', false, &["activate", "--preserve=false"]));
}

#[test]
fn a_default_that_grub_has_passed_over() {
    let world = World::new();
    let node = Node::upgraded(&world);
    flip(&node.disk, node.file("B", Payload::KERNEL) + 1000);
    refused(&node, INSTALL, &["slot B is the default, and damaged", "installer rollback"], || {
        node.run('A', false, &["confirm"])
    });
    node.run('A', false, &["rollback"]).succeeds();
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["boot_env"]["default"], &status["next_boot"]["slot"]), (&"A".into(), &"A".into()));
    assert_eq!(status["boot_env"]["bad"], serde_json::json!([]), "damage says nothing against the payload");
    node.upgrade().succeeds();
}

#[test]
fn both_slots_damaged_and_the_system_in_memory_is_mended_by_an_upgrade() {
    let world = World::new();
    let node = Node::upgraded(&world);
    for slot in ["A", "B"] {
        flip(&node.disk, node.file(slot, Payload::ROOTFS) + 30_000);
    }
    let outcome = node.run('B', false, &["upgrade", "--source", &node.next.source()]).succeeds();
    assert!(outcome.stderr.contains("no slot to fall back to"), "{}", outcome.stderr);
}

#[test]
fn kernel_arguments_that_cannot_be_read() {
    let world = World::new();
    let node = Node::installed(&world);
    flip(&node.disk, node.file("A", "manifest.json"));
    let texts = ["slot A", "manifest.json", "--extra-kernel-arg"];
    refused(&node, INSTALL, &texts, || node.upgrade());
    node.upgrade_with(&["--platform=metal", "--config=", "--extra-kernel-arg=quiet"]).succeeds();
}

/// What a cut left out, or damage took away, is made good by the same command.
#[test]
fn a_repeated_command_heals() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let [first, _] = node.boot_envs()[..] else { panic!("two copies") };
    let problems = |node: &Node| json_of(&node.disk, &["status"])["problems"].as_array().unwrap().len();
    for (slot, trial, verb) in [('B', true, "confirm"), ('A', true, "rollback")] {
        if verb == "rollback" {
            node.run('B', false, &["rollback"]).succeeds();
        }
        write_at(&node.disk, first, &[0; 512]);
        assert_eq!(problems(&node), 1);
        let slot = if verb == "rollback" { 'B' } else { slot };
        node.run(slot, trial, &[verb]).succeeds();
        assert_eq!(problems(&node), 0, "{verb}");
        let before = Content::of(&node.disk);
        node.run(slot, trial, &[verb]).succeeds();
        assert!(Content::of(&node.disk) == before, "a second {verb} has written");
    }
}

#[test]
fn a_cancelled_trial_is_cancelled_again() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.run('A', false, &["rollback"]).succeeds();
    let status = json_of(&node.disk, &["status"]);
    assert!(status["meta"].as_object().unwrap().is_empty(), "the label to return to is gone");
    let before = Content::of(&node.disk);
    node.run('A', false, &["rollback"]).succeeds();
    assert!(Content::of(&node.disk) == before);
}

#[test]
fn tags_for_meta_are_written_though_there_is_nothing_else_to_do() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.upgrade_with(&["--meta", "0x0a=later"]).succeeds();
    let meta = &json_of(&node.disk, &["status"])["meta"];
    assert_eq!((&meta["0x06"], &meta["0x0a"]), (&"A".into(), &"later".into()));
}

#[test]
fn a_rollback_from_another_system() {
    let world = World::new();
    let node = Node::upgraded(&world);
    refused(&node, INSTALL, &["it is not known which slot is safe to write"], || {
        node.run_under("quiet", &["rollback"])
    });
}
