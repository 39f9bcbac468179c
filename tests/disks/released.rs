//! Disks of released versions: the program of today reads them, goes on with them, and goes back on them. And it writes nothing
//! that none of them has: what is new on a disk needs a disk that has it, before a release promises to read it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use slipway_test_support::world::{Node, World, json_of, on_disk, partition, read_at, tool, write_at};

use super::earlier::{of_0_1_0, without_stubs};

/// The boot loader spends the try of a slot.
pub fn is_tried(node: &Node, slot: char) {
    let state = slot.to_ascii_lowercase();
    for at in node.boot_envs() {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        let spent = sector
            .replace(&format!("\nonce={slot}\n"), "\nonce=\n")
            .replace(&format!("\n{state}=trial\n"), &format!("\n{state}=tried\n"));
        assert_ne!(spent, sector, "no trial of slot {slot} is armed");
        write_at(&node.disk, at, format!("{spent:#<512}").as_bytes());
    }
}

#[track_caller]
fn boots(node: &Node, slot: &str, version: &str) {
    tries(node, slot, version, false);
}

/// The slot that boots next; if it is a trial, one time.
#[track_caller]
fn tries(node: &Node, slot: &str, version: &str, trial: bool) {
    let status = json_of(&node.disk, &["status"]);
    assert_eq!(status["problems"], json!([]), "{status:#}");
    let next = &status["next_boot"];
    assert_eq!((&next["slot"], &next["trial"]), (&json!(slot), &json!(trial)), "{status:#}");
    assert_eq!(status["slots"][slot]["version"], version);
    assert_eq!(json_of(&node.disk, &["verify"])["ok"], true);
}

#[test]
fn all_that_0_1_0_wrote_is_read() {
    let world = World::new();
    let node = Node::of(&world, of_0_1_0(&world));
    tries(&node, "A", "1.0.0", true);
    let status = json_of(&node.disk, &["status"]);
    let state = |slot: &str| (status["slots"][slot]["state"].clone(), status["slots"][slot]["epoch"].clone());
    assert_eq!((state("A"), state("B")), ((json!("trial"), json!(2)), (json!("good"), json!(2))), "{status:#}");
    let history = json_of(&node.disk, &["history"])["entries"].as_array().unwrap().clone();
    let said: Vec<_> = history.iter().rev().map(|entry| format!("{} {}", entry["verb"], entry["version"])).collect();
    let expected =
        ["install 1.0.0", "upgrade 1.1.0", "confirm 1.1.0", "upgrade 1.2.0", "rollback 1.1.0", "upgrade 1.0.0"];
    assert_eq!(said.iter().map(|one| one.replace('"', "")).collect::<Vec<_>>(), expected);
    assert_eq!(history[1]["reason"], "the fixture gives it up");
    let ends: Vec<_> = history.iter().map(|entry| entry["trial"]["how"].clone()).collect();
    assert_eq!((&ends[2], &ends[4]), (&json!("given-up"), &json!("confirmed")), "{ends:?}");
    // During a trial META names the slot to return to.
    let meta = on_disk(&node.disk, &["meta", "list"]).succeeds().stdout;
    assert_eq!(meta, "0x06=B\n0x0a=fixture\n0x0b=set later\n");
}

#[test]
fn what_0_1_0_has_begun_goes_on_and_back() {
    let world = World::new();
    let node = Node::of(&world, of_0_1_0(&world));
    is_tried(&node, 'A');
    node.run('A', true, &["confirm"]).succeeds();
    boots(&node, "A", "1.0.0");
    node.run('A', false, &["rollback"]).succeeds();
    boots(&node, "B", "1.1.0");
}

#[test]
fn a_disk_of_0_1_0_is_upgraded_and_goes_back_to_it() {
    let world = World::new();
    let node = Node::of(&world, of_0_1_0(&world));
    let source = format!("--source={}", node.next.source());
    node.run('B', false, &["upgrade", "--progress=none", &source]).succeeds();
    is_tried(&node, 'A');
    node.run('A', true, &["confirm"]).succeeds();
    boots(&node, "A", "1.3.0");
    node.run('A', false, &["rollback", "--reason=as before"]).succeeds();
    boots(&node, "B", "1.1.0");
    let meta = on_disk(&node.disk, &["meta", "list"]).succeeds().stdout;
    assert_eq!(meta, "0x0a=fixture\n0x0b=set later\n");
}

/// Paths of all keys of a JSON value; items of a list are one.
fn keys(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            let at = format!("{at}.{key}");
            keys(&at, value, found);
            found.insert(at);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(at, item, found)),
        _ => {}
    }
}

/// What there is on a disk for a later version to read: files, and the keys in them.
fn shape(world: &World, disk: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in ["EFI", "BOOT-A", "BOOT-B"] {
        let at = format!("{}@@{}", disk.display(), partition(disk, part).offset);
        let files = tool!("mdir", "-b", "-/", "-i", &at, "::/");
        let kind = part.split('-').next().unwrap();
        for file in files.lines().map(|line| line.trim_start_matches("::/")).filter(|line| !line.ends_with('/')) {
            found.insert(format!("{kind}: {file}"));
            let to = world.path("file of a disk");
            tool!("mcopy", "-n", "-o", "-i", &at, format!("::/{file}"), &to);
            let bytes = std::fs::read(to).unwrap();
            let name = file.rsplit('/').next().unwrap();
            inside(name, &bytes, &mut found);
        }
    }
    found
}

fn inside(name: &str, bytes: &[u8], found: &mut BTreeSet<String>) {
    let text = String::from_utf8_lossy(bytes);
    match name {
        "manifest.json" => keys(name, &serde_json::from_slice(bytes).unwrap(), found),
        "history" => {
            let records =
                bytes.chunks(512).filter_map(|record| std::str::from_utf8(record).ok()?.trim_end().split_once(' '));
            records.filter_map(|(_, json)| serde_json::from_str(json).ok()).for_each(|entry| keys(name, &entry, found));
        }
        _ if name.ends_with(".env") || name == "slot.cfg" => {
            let named = text.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| format!("{name}: {key}"));
            found.extend(named);
        }
        _ => {}
    }
}

/// The properties of all disks of released versions.
fn released(world: &World) -> BTreeSet<String> {
    let disks: [fn(&World) -> PathBuf; 2] = [of_0_1_0, without_stubs];
    disks.iter().flat_map(|disk| shape(world, &disk(world))).collect()
}

#[test]
fn nothing_is_written_that_no_disk_of_a_released_version_has() {
    let world = World::new();
    let known = released(&world);
    let node = Node::upgraded(&world);
    node.run('B', false, &["rollback", "--reason=as before"]).succeeds();
    let today = shape(&world, &node.disk);
    assert!(today.len() > 40, "{today:#?}");
    let new: Vec<_> = today.difference(&known).collect();
    assert!(new.is_empty(), "add a disk that has these to tests/fixtures/disks, and read it here: {new:#?}");
    // Something new is found.
    for at in node.boot_envs() {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        write_at(
            &node.disk,
            at,
            format!("{:#<512}", sector.trim_end_matches('#').to_owned() + "lock=tpm\n").as_bytes(),
        );
    }
    let changed = shape(&world, &node.disk);
    assert_eq!(changed.difference(&known).collect::<Vec<_>>(), ["boot.env: lock", "boot2.env: lock"]);
}
