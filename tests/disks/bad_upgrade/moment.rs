//! Verbs at a moment in which they must not be run.

use slipway_test_support::{
    exit_code::INSTALL,
    world::{Node, Payload, World, flip, json_of},
};

use super::refused;

#[test]
fn an_unconfirmed_trial_that_runs() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let source = node.next.source();
    for verb in [&["upgrade", "--source", &source][..], &["stage", "--source", &source], &["activate"]] {
        let texts = ["slot B, which runs, is an unconfirmed trial", "installer confirm"];
        refused(&node, INSTALL, &texts, || node.run('B', true, verb));
    }
}

#[test]
fn confirm_when_the_trial_does_not_run() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    refused(&node, INSTALL, &["no running trial to confirm", "the next boot is to try slot B"], || {
        node.run('A', false, &["confirm"])
    });
    node.grub_tries();
    refused(&node, INSTALL, &["no running trial to confirm", "slot B was tried and never confirmed"], || {
        node.run('A', false, &["confirm"])
    });
    node.run('B', true, &["rollback"]).succeeds();
    refused(&node, INSTALL, &["no running trial to confirm", "given up"], || node.run('B', true, &["confirm"]));
}

#[test]
fn nothing_staged() {
    let world = World::new();
    let node = Node::installed(&world);
    refused(&node, INSTALL, &["slot B is empty, not staged", "installer stage"], || {
        node.run('A', false, &["activate"])
    });
}

#[test]
fn a_staged_slot_that_was_damaged_since() {
    let world = World::new();
    let node = Node::installed(&world);
    node.run('A', false, &["stage", "--source", &node.next.source()]).succeeds();
    flip(&node.disk, node.file("B", Payload::ROOTFS) + 30_000);
    refused(&node, INSTALL, &["slot B is damaged", "rootfs.squashfs"], || node.run('A', false, &["activate"]));
    // Writing it again mends it.
    node.upgrade().succeeds();
}

#[test]
fn the_running_slot_damaged_and_the_other_the_only_one_that_boots() {
    let world = World::new();
    let node = Node::upgraded(&world);
    flip(&node.disk, node.file("B", Payload::KERNEL) + 1000);
    node.next.write("os-release", "VERSION_ID=1.4.0\n");
    node.next.write(Payload::KERNEL, {
        let mut k = node.next.read(Payload::KERNEL);
        k[9000] ^= 1;
        k
    });
    let texts =
        ["slot B, which runs, is damaged", "vmlinuz", "slot A is the only one that boots", "installer rollback"];
    refused(&node, INSTALL, &texts, || node.run('B', false, &["upgrade", "--source", &node.next.source()]));
    node.run('B', false, &["rollback"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
}

#[test]
fn no_way_back() {
    let world = World::new();
    let node = Node::installed(&world);
    refused(&node, INSTALL, &["slot B is empty", "no good system to go back to"], || {
        node.run('A', false, &["rollback"])
    });
    let world = World::new();
    let node = Node::upgraded(&world);
    flip(&node.disk, node.file("A", Payload::ROOTFS) + 30_000);
    for args in [&["rollback"][..], &["rollback", "--dry-run"]] {
        refused(&node, INSTALL, &["slot A is damaged", "rootfs.squashfs"], || node.run('B', false, args));
    }
}
