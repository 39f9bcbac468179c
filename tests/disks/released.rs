//! Disks of released versions: the program of today reads them, goes on with them, and goes back on them. And it writes nothing
//! that none of them has: what is new on a disk needs a disk that has it, before a release promises to read it.

use std::{collections::BTreeSet, path::Path};

use schemars::schema_for;
use serde_json::{Value, json};
use slipway_core::{
    boot::{
        env::KEYS,
        history::{Entry, RECORD_BYTES},
    },
    payload::manifest::Manifest,
    snapshot::{HEAD_BYTES, head::Head},
};
use slipway_test_support::world::{Node, World, json_of, on_disk, partition, read_at, tool, write_at};

use super::{
    earlier::{SCENARIOS, of_0_1_0, of_scenarios, pack, without_stubs},
    scenarios::{arm64, sectors_of_4096, settings},
};

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

/// Paths of all keys of a JSON value; items of a list are one. Of words that a later version could add to, also the words.
fn keys(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            let at = format!("{at}.{key}");
            if let (true, Some(word)) = (CLOSED.contains(&key.as_str()), value.as_str()) {
                found.insert(format!("{at}={word}"));
            }
            keys(&at, value, found);
            found.insert(at);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(at, item, found)),
        _ => {}
    }
}

/// Keys with values out of a list of words: in JSON, and in environment blocks.
const CLOSED: [&str; 6] = ["verb", "how", "state", "arch", "efi_stub", "slot"];
const CLOSED_IN_BLOCKS: [&str; 10] =
    ["default", "once", "a", "b", "check", "menu", "format", "rebuilt", "refused", "state"];

/// What there is on a disk for a later version to read: files, and the keys in them; and snapshots.
fn shape(world: &World, disk: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in ["EFI", "BOOT-A", "BOOT-B"] {
        let place = partition(disk, part);
        let at = format!("{}@@{}", disk.display(), place.offset);
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
        records("snapshot", &read_at(disk, place.offset + place.len - HEAD_BYTES, RECORD_BYTES), &mut found);
    }
    found
}

/// Records of a checksum and JSON.
fn records(name: &str, bytes: &[u8], found: &mut BTreeSet<String>) {
    let text = |record| std::str::from_utf8(record).ok().map(str::trim_end);
    let jsons = bytes.chunks(RECORD_BYTES).filter_map(|record| Some(text(record)?.split_once(' ')?.1));
    jsons.filter_map(|json| serde_json::from_str(json).ok()).for_each(|record| keys(name, &record, found));
}

fn inside(name: &str, bytes: &[u8], found: &mut BTreeSet<String>) {
    let text = String::from_utf8_lossy(bytes);
    match name {
        "manifest.json" => keys(name, &serde_json::from_slice(bytes).unwrap(), found),
        "history" => records(name, bytes, found),
        _ if name.ends_with(".env") || name == "slot.cfg" => {
            for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
                found.insert(format!("{name}: {key}"));
                if CLOSED_IN_BLOCKS.contains(&key) {
                    found.insert(format!("{name}: {key}={value}"));
                }
            }
        }
        _ => {}
    }
}

/// The properties of all disks of released versions.
fn released(world: &World) -> BTreeSet<String> {
    let other = World::new();
    let disks = [of_0_1_0(world), without_stubs(&other)];
    let disks = disks.iter().chain(&of_scenarios(world)).map(|disk| shape(world, disk)).collect::<Vec<_>>();
    disks.into_iter().flatten().collect()
}

#[test]
fn nothing_is_written_that_no_disk_of_a_released_version_has() {
    let world = World::new();
    let worlds = [World::new(), World::new(), World::new()];
    let made = [settings(&worlds[0]), sectors_of_4096(&worlds[1]), arm64(&worlds[2])];
    if std::env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        made.iter().zip(SCENARIOS).for_each(|(disk, name)| pack(disk, name));
    }
    let known = released(&world);
    let other = World::new();
    let node = Node::upgraded(&other);
    node.run('B', false, &["rollback", "--reason=as before"]).succeeds();
    let today: BTreeSet<_> = made.iter().chain([&node.disk]).flat_map(|disk| shape(&world, disk)).collect();
    assert!(today.len() > 100, "{today:#?}");
    let new: Vec<_> = today.difference(&known).collect();
    assert!(new.is_empty(), "add a disk that has these to tests/fixtures/disks, and read it here: {new:#?}");
    // Something new is found: a key, and a word.
    for at in node.boot_envs() {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        let text = sector.trim_end_matches('#').replace("\nb=good\n", "\nb=idle\n") + "lock=tpm\n";
        write_at(&node.disk, at, format!("{text:#<512}").as_bytes());
    }
    let changed = shape(&world, &node.disk);
    let new: Vec<_> = changed.difference(&known).collect();
    assert_eq!(new, ["boot.env: b=idle", "boot.env: lock", "boot2.env: b=idle", "boot2.env: lock"]);
}

/// The names of all properties of a type, and all words that a value may be.
fn of_schema(schema: &Value, names: &mut BTreeSet<String>, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            match (key.as_str(), value) {
                ("properties", Value::Object(properties)) => names.extend(properties.keys().cloned()),
                ("const", Value::String(word)) => _ = words.insert(word.clone()),
                ("enum", Value::Array(all)) => words.extend(all.iter().filter_map(Value::as_str).map(str::to_owned)),
                _ => {}
            }
            of_schema(value, names, words);
        }),
        Value::Array(items) => items.iter().for_each(|item| of_schema(item, names, words)),
        _ => {}
    }
}

/// The types themselves say what there is to have: a key, or a verb, that no scenario writes is found, too.
#[test]
fn disks_of_released_versions_have_every_key_there_is() {
    let known = released(&World::new());
    let entry = schema_for!(Entry);
    let mut wanted: BTreeSet<String> = KEYS.iter().map(|key| format!("boot.env: {key}")).collect();
    wanted.extend(["wwid", "serial"].map(|key| format!("drive.env: {key}")));
    let (mut names, mut verbs) = Default::default();
    of_schema(&entry.as_value()["$defs"]["Verb"], &mut names, &mut verbs);
    assert!(verbs.remove("later") && verbs.len() > 10, "{verbs:?}");
    wanted.extend(verbs.iter().map(|verb| format!("history.verb={verb}")));
    // The loader notes it in the copy that does not count.
    let has = |key: &String| known.contains(key) || known.contains(&key.replace("boot.env", "boot2.env"));
    let mut lacks: Vec<String> = wanted.into_iter().filter(|key| !has(key)).collect();
    let types = [("manifest.json", schema_for!(Manifest)), ("history", entry), ("snapshot", schema_for!(Head))];
    for (name, schema) in types {
        let (mut names, mut words) = Default::default();
        of_schema(schema.as_value(), &mut names, &mut words);
        assert!(names.len() > 5, "{names:?}");
        let has = |key: &str| known.iter().any(|of| of.starts_with(name) && of.ends_with(&format!(".{key}")));
        lacks.extend(names.iter().filter(|key| !has(key)).map(|key| format!("{name}: {key}")));
    }
    assert!(lacks.is_empty(), "no disk of a released version has these: {lacks:#?}");
}

/// A disk with everything: read, gone on with, and gone back on.
#[test]
fn all_settings_of_0_1_0_are_read_and_kept() {
    let world = World::new();
    let [settings, of_4096, of_arm64] = of_scenarios(&world);
    let status = json_of(&settings, &["status"]);
    let env = &status["boot_env"];
    let said = ["no_menu", "check", "format_ephemeral", "medium", "refused"].map(|key| env[key].clone());
    let refused = json!({"slot": "A", "fault": "digest"});
    assert_eq!(said, [json!(true), json!(false), json!(true), json!("00000000000000a1"), refused], "{status:#}");
    let problem = "the boot loader could not start slot A: a file of it did not match its digest";
    assert_eq!((&status["next_boot"]["slot"], &status["problems"]), (&json!("B"), &json!([problem])), "{status:#}");
    for slot in ["A", "B"] {
        let snapshot = &status["slots"][slot]["snapshot"];
        assert_eq!((snapshot.is_object(), &snapshot["problem"]), (true, &Value::Null), "{status:#}");
    }
    assert_eq!(status["slots"]["B"]["signed_by"].as_array().map(Vec::len), Some(1));
    let node = Node::of(&world, settings);
    let source = format!("--source={}", node.next.source());
    let upgrade = ["upgrade", "--progress=none", "--allow-unsigned", &source];
    node.run('B', false, &upgrade).succeeds();
    is_tried(&node, 'A');
    node.run('A', true, &["confirm"]).succeeds();
    boots(&node, "A", "1.3.0");
    node.run('A', false, &["rollback"]).succeeds();
    boots(&node, "B", "1.1.0");
    let env = &json_of(&node.disk, &["status"])["boot_env"];
    assert_eq!(
        (&env["no_menu"], &env["check"], &env["medium"]),
        (&json!(true), &json!(false), &json!("00000000000000a1"))
    );

    let other = World::new();
    let node = Node::of(&other, of_4096);
    assert_eq!(json_of(&node.disk, &["status"])["boot_env"]["rebuilt"], true);
    node.run('B', false, &["rollback"]).succeeds();
    boots(&node, "A", "1.2.3");
    on_disk(&of_arm64, &["verify", "--progress=none"]).succeeds();
    on_disk(&of_arm64, &["activate", "--offline", "--arch=arm64", "--progress=none"]).succeeds();
    let status = json_of(&of_arm64, &["status"]);
    assert_eq!(
        (&status["next_boot"]["slot"], &status["next_boot"]["trial"]),
        (&json!("B"), &json!(true)),
        "{status:#}"
    );
}
