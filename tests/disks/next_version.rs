//! Two versions of the installer on one disk, each of which is the way back of the other: this one, and the next one, which
//! writes formats that this one does not know (hack/release.d/next).
//!
//! Needs: root boot-assets programs next
//! Subject: hack/release.d/next core/src/boot core/boot/src core/src/payload core/src/plan core/src/snapshot src/ops src/probe src/execute

use std::{ffi::OsStr, fs, path::Path};

use assert_cmd::Command;
use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    project,
    world::{Node, Outcome, World, assets, json_of, on_disk, program, read_at, refused},
};

use super::{earlier::of_0_1_0, released::is_tried};

/// The next version's installer, started by a shell that may change what it sees.
fn next_in<S: AsRef<OsStr>>(before: &str, args: &[S]) -> Command {
    let path = project().join("out/next/installer");
    assert!(path.is_file(), "{} is missing: hack/artefacts next builds it", path.display());
    let mut command = program("unshare");
    command.args(["--mount", "/bin/sh", "-c", &format!("{before} exec \"$@\""), "sh"]).arg(path).args(args);
    command.env("SLIPWAY_ASSETS", assets());
    command
}

fn next(args: &[&str]) -> Outcome {
    Outcome::of(&mut next_in("", args))
}

fn next_on(disk: &Path, args: &[&str]) -> Outcome {
    Outcome::of(next_in("", args).arg("--disk").arg(disk))
}

/// Its answer as JSON. This version need not be able to read that.
#[track_caller]
fn next_says(disk: &Path, args: &[&str]) -> Value {
    let said = next_on(disk, &[args, &["--output=json"]].concat()).succeeds().stdout;
    serde_json::from_str(&said).unwrap()
}

/// A verb as the system would run it that was booted from a slot and has the next version in it.
fn next_runs(world: &World, node: &Node, slot: char, trial: bool, args: &[&str]) -> Outcome {
    next_runs_with("", world, node, (slot, trial), args)
}

/// The same after more that it sees.
fn next_runs_with(more: &str, world: &World, node: &Node, (slot, trial): (char, bool), args: &[&str]) -> Outcome {
    let file = world.path("cmdline of the next version");
    fs::write(&file, node.cmdline(slot, trial)).unwrap();
    let before = format!("{more} mount --bind '{}' /proc/cmdline &&", file.display());
    Outcome::of(next_in(&before, args).arg("--disk").arg(&node.disk))
}

/// Both versions see that this slot boots next, and that everything on the disk is whole.
#[track_caller]
fn both_see(disk: &Path, slot: &str, version: &str) {
    for status in [json_of(disk, &["status"]), next_says(disk, &["status"])] {
        assert_eq!((&status["next_boot"]["slot"], &status["problems"]), (&json!(slot), &json!([])), "{status:#}");
        assert_eq!(status["slots"][slot]["version"], version, "{status:#}");
    }
    on_disk(disk, &["verify", "--progress=none"]).succeeds();
    next_on(disk, &["verify", "--progress=none"]).succeeds();
}

/// The key that the next version has in boot.env is in both copies.
#[track_caller]
fn keeps_its_key(node: &Node) {
    let copies = node.boot_envs();
    assert_eq!(copies.len(), 2);
    for at in copies {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        assert!(sector.contains("\nmaker=next\n"), "{sector}");
    }
}

fn verbs(entries: &Value) -> Vec<String> {
    let of = |entry: &Value| entry.get("later").unwrap_or(&entry["verb"]).as_str().unwrap().to_owned();
    entries["entries"].as_array().unwrap().iter().map(of).collect()
}

/// The version of the installer is the next one's.
#[test]
#[ignore = "campaign"]
fn the_next_version_is_another_one() {
    assert_eq!(next(&["--version"]).succeeds().stdout, "installer 9.0.0\n");
}

/// A disk that 0.1.0 left on trial: the next version confirms, upgrades it, and goes back to the system of 0.1.0, on which this
/// version goes on.
#[test]
#[ignore = "campaign"]
fn the_next_version_goes_on_with_a_disk_of_0_1_0_and_back() {
    let world = World::new();
    let node = Node::of(&world, of_0_1_0(&world));
    let entries = verbs(&next_says(&node.disk, &["history"]));
    assert_eq!(entries, ["upgrade", "rollback", "upgrade", "confirm", "upgrade", "install"]);
    is_tried(&node, 'A');
    next_runs(&world, &node, 'A', true, &["confirm"]).succeeds();
    both_see(&node.disk, "A", "1.0.0");
    keeps_its_key(&node);
    let source = format!("--source={}", node.next.source());
    // 1.3.0 is three minor versions up.
    let upgrade = ["upgrade", "--progress=none", "--allow-any-version", &source];
    next_runs(&world, &node, 'A', false, &upgrade).succeeds();
    is_tried(&node, 'B');
    // The system on trial has the next version, and the one before has this one: it is what runs if the trial fails.
    let failed = node.run('A', false, &["status", "--output=json"]).json();
    assert_eq!(failed["next_boot"]["slot"], "A", "{failed:#}");
    next_runs(&world, &node, 'B', true, &["confirm"]).succeeds();
    both_see(&node.disk, "B", "1.3.0");
    node.run('B', false, &["rollback"]).succeeds();
    both_see(&node.disk, "A", "1.0.0");
    keeps_its_key(&node);
    let meta = on_disk(&node.disk, &["meta", "list"]).succeeds().stdout;
    assert_eq!(meta, "0x0a=fixture\n0x0b=set later\n");
}

/// A disk that the next version installed: this one says what it does not know, upgrades it, goes back to the slot of the next
/// version, and the next version goes on there with nothing lost.
#[test]
#[ignore = "campaign"]
fn this_version_goes_on_with_a_disk_of_the_next_one_and_back() {
    let world = World::new();
    let disk = world.image();
    next(&world.install_args(&disk, &[]).iter().map(String::as_str).collect::<Vec<_>>()).succeeds();
    let node = Node::of(&world, disk);
    keeps_its_key(&node);
    let notes = json_of(&node.disk, &["status"])["notes"].to_string();
    for told in ["boot.env has keys of a later version", "maker", "manifest.json of slot A", "format 2"] {
        assert!(notes.contains(told), "{told} is not in {notes}");
    }
    both_see(&node.disk, "A", "1.2.3");
    next_runs(&world, &node, 'A', false, &["wipe", "EPHEMERAL"]).succeeds();
    assert_eq!(verbs(&json_of(&node.disk, &["history"])), ["erase", "install"]);

    node.upgrade().succeeds();
    is_tried(&node, 'B');
    node.run('B', true, &["confirm"]).succeeds();
    both_see(&node.disk, "B", "1.3.0");
    node.run('B', false, &["rollback"]).succeeds();
    both_see(&node.disk, "A", "1.2.3");
    keeps_its_key(&node);
    assert_eq!(verbs(&next_says(&node.disk, &["history"])), ["rollback", "confirm", "upgrade", "erase", "install"]);
    next_runs(&world, &node, 'A', false, &["bootloader", "menu", "off"]).succeeds();
    both_see(&node.disk, "A", "1.2.3");
}

/// A trial that the next version began fails: this version, in the slot before, gives it up, and the system that failed is not
/// taken again by either.
#[test]
#[ignore = "campaign"]
fn a_trial_of_the_next_version_is_given_up_by_this_one() {
    let world = World::new();
    let node = Node::installed(&world);
    let source = format!("--source={}", node.next.source());
    next_runs(&world, &node, 'A', false, &["upgrade", "--progress=none", &source]).succeeds();
    is_tried(&node, 'B');
    node.run('B', true, &["rollback", "--reason=it does not serve"]).succeeds();
    both_see(&node.disk, "A", "1.2.3");
    keeps_its_key(&node);
    let history = next_says(&node.disk, &["history"]);
    assert_eq!(history["entries"][0]["reason"], "it does not serve", "{history:#}");
}

/// The configuration that the next version keeps for its own way back: this one, on trial, says what it is, leaves it alone, and
/// finds no fault in it.
#[test]
#[ignore = "campaign"]
fn a_snapshot_of_the_next_version_waits_for_it() {
    let world = World::new();
    let node = Node::installed(&world);
    let etc = world.path("etc");
    fs::create_dir_all(etc.join("slipway")).unwrap();
    fs::write(etc.join("slipway/state.toml"), "paths = [\"/etc/app.conf\"]\n").unwrap();
    fs::write(etc.join("app.conf"), "of the next version").unwrap();
    let with_etc = format!("mount --bind '{}' /etc &&", etc.display());
    let source = format!("--source={}", node.next.source());
    let upgrade = ["upgrade", "--progress=none", &source];
    next_runs_with(&with_etc, &world, &node, ('A', false), &upgrade).succeeds();
    is_tried(&node, 'B');
    let not_read = "only a later version of the installer can read it (format 2)";
    let status = json_of(&node.disk, &["status"]);
    let snapshot = &status["slots"]["A"]["snapshot"];
    assert_eq!((&snapshot["put_back"], &snapshot["problem"]), (&json!(not_read), &Value::Null), "{status:#}");
    both_see(&node.disk, "A", "1.2.3");
    on_disk(&node.disk, &["snapshot", "list"]).succeeds().says(&[not_read]);
    on_disk(&node.disk, &["snapshot", "show", "--slot=A"])
        .exits(INSTALL)
        .says(&[not_read, "nothing of it is put back"]);
    fs::write(etc.join("app.conf"), "of this one").unwrap();
    let said = "only a later version of the installer can read the snapshot in slot A (format 2)";
    node.run('B', true, &["rollback"]).succeeds().says(&[said]);
    next_runs_with(&with_etc, &world, &node, ('A', false), &["snapshot", "restore", "--boot"]).succeeds();
    assert_eq!(fs::read_to_string(etc.join("app.conf")).unwrap(), "of the next version");
    assert_eq!(json_of(&node.disk, &["status"])["problems"], json!([]));
}

/// A payload that only the next version can read is refused with its number, and nothing is written. The next version takes
/// one of this version.
#[test]
#[ignore = "campaign"]
fn a_payload_of_the_next_version_is_refused_by_its_number() {
    let world = World::new();
    let node = Node::installed(&world);
    next(&["checksum", node.next.dir().to_str().unwrap(), "--progress=none"]).succeeds();
    assert!(String::from_utf8(node.next.read("manifest.json")).unwrap().contains("\"maker\": \"next\""));
    let texts = ["manifest.json", "it has format 2, and this version reads format 1", "use a later installer"];
    refused(&node.disk, INPUT, &texts, || node.upgrade());

    ["manifest.json", "SHA256SUMS"].into_iter().for_each(|name| node.next.remove(name));
    node.next.checksum().succeeds();
    let source = format!("--source={}", node.next.source());
    next_runs(&world, &node, 'A', false, &["upgrade", "--progress=none", &source]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["trial"], true);
}
