//! `--offline`: a disk that nothing runs from, as the image of a machine that is switched off.

use slipway_core::{boot::slot::Slot, plan::Refusal};
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, DISK_BYTES, Loop, Node, Outcome, Payload, Running, World, flip, json_of, partition, refused, tool,
        wait_until_unclaimed, write_at,
    },
};

/// Another machine's system runs, or nothing of ours.
const ELSEWHERE: [&str; 2] =
    ["quiet", "slipway.slot=B slipway.disk=11111111-2222-3333-4444-555555555555 slipway.try=1"];

fn offline(node: &Node, args: &[&str]) -> Outcome {
    node.run_under(ELSEWHERE[0], &[args, &["--offline", "--progress=none"]].concat())
}

fn source(payload: &Payload) -> String {
    format!("--source={}", payload.source())
}

/// The same once more: done, and not a byte is written.
#[track_caller]
fn changes_nothing(node: &Node, args: &[&str]) {
    let before = Content::of(&node.disk);
    offline(node, args).succeeds();
    assert!(Content::of(&node.disk) == before, "{args:?} has written again");
}

/// The slot that boots next, and whether as a trial.
fn next(node: &Node) -> (String, bool) {
    let boot = &json_of(&node.disk, &["status"])["next_boot"];
    (boot["slot"].as_str().unwrap().to_owned(), boot["trial"].as_bool().unwrap())
}

#[test]
fn an_image_of_a_machine_that_is_switched_off_is_upgraded() {
    for cmdline in ELSEWHERE {
        let world = World::new();
        let node = Node::installed(&world);
        let upgrade = ["upgrade", &source(&node.next)];
        node.run_under(cmdline, &[&upgrade[..], &["--offline=true", "--progress=none"]].concat()).succeeds();
        assert_eq!(next(&node), ("B".to_owned(), true));
        assert_eq!(json_of(&node.disk, &["status"])["meta"]["0x06"], "A", "the slot to come back to");
        changes_nothing(&node, &upgrade);
        node.grub_tries();
        node.run('B', true, &["confirm"]).succeeds();
        // Both halves, one after the other.
        let stage = ["stage", &source(&world.payload)];
        let staged = offline(&node, &stage).succeeds().stdout;
        let command = format!("`installer activate --disk {} --offline` has the next boot try it", node.disk.display());
        assert!(staged.contains(&command), "{staged}");
        assert_eq!(next(&node), ("B".to_owned(), false));
        changes_nothing(&node, &stage);
        offline(&node, &["activate"]).succeeds();
        assert_eq!(next(&node), ("A".to_owned(), true));
        changes_nothing(&node, &["activate"]);
        // A trial that never ran is called off.
        offline(&node, &["rollback"]).succeeds();
        assert_eq!(next(&node), ("B".to_owned(), false));
        changes_nothing(&node, &["rollback"]);
        // No message advises to undo that.
        let next_step = json_of(&node.disk, &["status"])["next_step"].clone();
        assert_eq!(next_step["command"], serde_json::Value::Null);
        assert!(next_step["why"].as_str().unwrap().starts_with("none: the trial of "), "{next_step}");
        // It is staged still.
        offline(&node, &["activate"]).succeeds();
        offline(&node, &["rollback", "--dry-run"]).succeeds();
        assert_eq!(next(&node), ("A".to_owned(), true));
    }
}

#[test]
fn a_block_device_is_served_as_a_whole() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let node = Node::onto(&world, disk.node.clone());
    let upgrade = ["upgrade", &source(&node.next), "--preserve=false"];
    {
        let state = partition(&disk.node, "STATE");
        let part = disk.partition(6, state);
        tool!("mkfs.ext4", "-q", "-F", &part.node);
        let _mounted = Running::mount(&part.node, &world.path("mnt"));
        for verb in [&upgrade[..], &["rollback"]] {
            let before = disk.content();
            offline(&node, verb).exits(INSTALL).says(&["in use"]);
            assert!(disk.content() == before, "{verb:?} has written");
        }
    }
    wait_until_unclaimed(&disk.node);
    offline(&node, &upgrade).succeeds();
    assert_eq!(next(&node), ("B".to_owned(), true));
}

#[test]
fn a_virtual_machine_that_is_switched_on_keeps_its_image() {
    let world = World::new();
    let node = Node::installed(&world);
    let _machine = Running::qemu(&node.disk);
    for verb in ["rollback", "activate"] {
        refused(&node.disk, INSTALL, &["is locked by process", "(qemu-io)"], || {
            offline(&node, &[verb, "--lock-timeout=0"])
        });
    }
}

#[test]
fn going_back_is_done_once() {
    let world = World::new();
    let node = Node::upgraded(&world);
    offline(&node, &["rollback"]).succeeds();
    assert_eq!(next(&node), ("A".to_owned(), false));
    // As after an interruption: not back to where it came from.
    changes_nothing(&node, &["rollback"]);
    let upgrade = ["upgrade", &source(&node.next)];
    refused(&node.disk, INSTALL, &["--retry-bad"], || offline(&node, &upgrade));
    offline(&node, &[&upgrade[..], &["--retry-bad"]].concat()).succeeds();
    // It came back by itself, and this is the system to go back to.
    node.grub_tries();
    let back = offline(&node, &["rollback"]).succeeds().stdout;
    assert!(back.contains("boots next already"), "{back}");
    changes_nothing(&node, &["rollback"]);
    assert_eq!(next(&node), ("A".to_owned(), false));
}

#[test]
fn a_damaged_default_is_left_and_then_replaced() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let rootfs = ["A", "B"].map(|slot| node.file(slot, Payload::ROOTFS) + 30_000);
    flip(&node.disk, rootfs[1]);
    let upgrade = ["upgrade", &source(&node.next)];
    for verb in [&upgrade[..], &["stage", &source(&node.next)], &["activate"]] {
        let settles = format!("`installer rollback --disk {} --offline`", node.disk.display());
        refused(&node.disk, INSTALL, &["its default, slot B, is damaged on the disk", &settles], || {
            offline(&node, verb)
        });
    }
    flip(&node.disk, rootfs[0]);
    refused(&node.disk, INSTALL, &["slot A is damaged on the disk"], || offline(&node, &["rollback"]));
    flip(&node.disk, rootfs[0]);
    offline(&node, &["rollback"]).succeeds();
    assert_eq!(next(&node), ("A".to_owned(), false));
    // What is damaged did not fail: it may be written again.
    offline(&node, &upgrade).succeeds();
    assert_eq!(next(&node), ("B".to_owned(), true));
    on_the_way(&node);
}

/// The disk boots, and what was armed offline is confirmed from inside.
fn on_the_way(node: &Node) {
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!(next(node), ("B".to_owned(), false));
}

#[test]
fn what_is_not_settled_is_refused() {
    let world = World::new();
    let node = Node::installed(&world);
    let (upgrade, other) = (["upgrade", &source(&node.next)], ["upgrade", &source(&world.payload)]);
    // Without the word: as it always was, and the message names the word.
    for verb in [&upgrade[..], &["stage", &source(&node.next)], &["activate"], &["rollback"]] {
        refused(&node.disk, INSTALL, &["give --offline if nothing runs from this disk"], || {
            node.run_under("quiet", verb)
        });
        // With it, from inside.
        let inside = node.cmdline('A', false);
        refused(&node.disk, INSTALL, &[&Refusal::NotOffline(Slot::A).to_string()], || {
            node.run_under(&inside, &[verb, &["--offline"]].concat())
        });
    }
    // Only a running trial can confirm.
    refused(&node.disk, INSTALL, &["there is no running trial to confirm: the running system is not"], || {
        node.run_under("quiet", &["confirm"])
    });
    refused(&node.disk, INSTALL, &["slot B is empty, not staged"], || offline(&node, &["activate"]));
    refused(&node.disk, INSTALL, &["slot B is empty: there is no good system"], || offline(&node, &["rollback"]));
    // Another trial is pending.
    offline(&node, &upgrade).succeeds();
    for verb in [&other[..], &["stage", &source(&world.payload)]] {
        let settles = format!("`installer rollback --disk {} --offline`", node.disk.display());
        let texts = ["slot B is to be tried at the next boot", &settles];
        refused(&node.disk, INSTALL, &texts, || offline(&node, verb));
    }
    // Both copies of boot.env are lost.
    node.boot_envs().iter().for_each(|at| write_at(&node.disk, *at, &[0; 512]));
    let mended = format!("`installer repair --disk {}`", node.disk.display());
    for verb in [&upgrade[..], &["activate"]] {
        refused(&node.disk, INSTALL, &["both copies of boot.env are lost", &mended], || offline(&node, verb));
    }
    refused(&node.disk, INSTALL, &[&mended], || offline(&node, &["rollback"]));
    node.run_under("quiet", &["repair"]).succeeds();
    assert_eq!(next(&node), ("A".to_owned(), false));
    offline(&node, &upgrade).succeeds();
}

/// Each verb once named another one. Only a boot ends it.
#[test]
fn a_trial_that_waits_beside_a_damaged_default() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    flip(&node.disk, node.file("A", Payload::KERNEL) + 1000);
    let texts =
        ["slot B is to be tried at the next boot", "slot A, the default, is damaged", "boot the disk, which tries it"];
    let source = source(&world.payload);
    for verb in [&["upgrade", &source][..], &["stage", &source], &["rollback"]] {
        let before = Content::of(&node.disk);
        let said = offline(&node, verb).exits(INSTALL).says(&texts).stderr;
        assert!(Content::of(&node.disk) == before, "{verb:?} has written");
        let circle = ["upgrade", "rollback", "repair"].map(|verb| format!("installer {verb}"));
        assert!(!circle.iter().any(|verb| said.contains(verb)), "{verb:?}: {said}");
    }
    node.run_under("quiet", &["repair"]).succeeds().says(&["slot A is damaged", "says what mends it"]);
    let step = json_of(&node.disk, &["status"])["next_step"]["why"].clone();
    assert!(step.as_str().unwrap().starts_with("boot this disk: that tries 1.3.0 in slot B once"), "{step}");
}
