//! Disks on which a later version of the installer has written: keys and verbs that this one does not know, in every record
//! that it reads. It goes on, says so, and loses none of them.

use std::fs;

use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_test_support::{
    exit_code::INPUT,
    world::{Node, World, json_of, on_disk, partition, read_at, refused, tool, write_at},
};

/// A key in both copies of boot.env, in the room behind the others.
fn lock_boot_env(node: &Node) {
    for at in node.boot_envs() {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        let text = format!("{}lock=tpm\\\\2\n", sector.trim_end_matches('#'));
        write_at(&node.disk, at, format!("{text:#<512}").as_bytes());
    }
}

/// Whether every copy still has it.
#[track_caller]
fn is_locked(node: &Node) {
    let copies = node.boot_envs();
    assert_eq!(copies.len(), 2);
    for at in copies {
        let sector = String::from_utf8(read_at(&node.disk, at, 512)).unwrap();
        assert!(sector.contains("\nlock=tpm\\\\2\n"), "{sector}");
    }
}

/// Rewrites the record of an entry.
fn rewrite_entry(node: &Node, n: u32, change: impl Fn(&mut Value)) {
    let esp = partition(&node.disk, "EFI").offset;
    let head = read_at(&node.disk, esp, 16 << 20);
    let begins = format!(" {{\"n\":{n},");
    let mut sectors = (esp..).step_by(512).zip(head.chunks(512));
    let (at, record) = sectors.find(|(_, sector)| sector[16..].starts_with(begins.as_bytes())).unwrap();
    let text = String::from_utf8(record.to_vec()).unwrap();
    let mut entry: Value = serde_json::from_str(text.trim_end().split_once(' ').unwrap().1).unwrap();
    change(&mut entry);
    let text = entry.to_string();
    let line = format!("{} {text}", &Sha256::of(text.as_bytes()).to_string()[..16]);
    write_at(&node.disk, at, format!("{line:<511}\n").as_bytes());
}

/// Changes manifest.json of a slot, and SHA256SUMS with it. Lengths stay what they are.
fn rewrite_manifest(world: &World, node: &Node, slot: &str, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let copy = world.path("file of a slot");
    let at = format!("{}@@{}", node.disk.display(), partition(&node.disk, &format!("BOOT-{slot}")).offset);
    let [old, sums] = ["manifest.json", "SHA256SUMS"].map(|name| {
        tool!("mcopy", "-n", "-o", "-i", &at, format!("::/{name}"), &copy);
        fs::read_to_string(&copy).unwrap()
    });
    assert!(old.contains(from), "{from} is not in {old}");
    let new = old.replacen(from, to, 1);
    let digest = |text: &str| Sha256::of(text.as_bytes()).to_string();
    for (name, text) in [("manifest.json", new.clone()), ("SHA256SUMS", sums.replace(&digest(&old), &digest(&new)))] {
        fs::write(&copy, text).unwrap();
        tool!("mcopy", "-o", "-i", &at, &copy, format!("::/{name}"));
    }
}

fn notes(node: &Node) -> String {
    json_of(&node.disk, &["status"])["notes"].to_string()
}

#[test]
fn keys_of_boot_env_stay_whatever_is_done() {
    let world = World::new();
    let node = Node::installed(&world);
    lock_boot_env(&node);
    assert!(
        notes(&node).contains("boot.env has keys of a later version, which stay as they are: lock"),
        "{}",
        notes(&node)
    );
    on_disk(&node.disk, &["status"]).succeeds();
    node.upgrade().succeeds();
    is_locked(&node);
    node.grub_tries();
    is_locked(&node);
    node.run('B', true, &["confirm"]).succeeds();
    node.run('B', false, &["rollback"]).succeeds();
    node.run('A', false, &["bootloader", "menu", "off"]).succeeds();
    node.run('A', false, &["wipe", "EPHEMERAL"]).succeeds();
    is_locked(&node);
    assert_eq!(json_of(&node.disk, &["status"])["boot_env"]["later"], json!([["lock", "tpm\\2"]]));
    // One copy is made again from the other.
    write_at(&node.disk, node.boot_envs()[1], &[0; 512]);
    node.run('A', false, &["repair"]).succeeds();
    is_locked(&node);
}

/// A verb, and what it says, in a change that was made, and is the trial that runs.
#[test]
fn entries_of_the_history_are_shown_and_not_overwritten() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    rewrite_entry(&node, 2, |entry| {
        entry["verb"] = "exchange".into();
        entry["volumes"] = json!(["EVERYTHING"]);
        entry["shift"] = json!({"by": 3});
    });
    let entry = json_of(&node.disk, &["history"])["entries"][0].clone();
    let told = ["number", "verb", "later", "slot", "version", "took_effect"].map(|key| entry[key].clone());
    assert_eq!(json!(told), json!([2, "later", "exchange", "B", "1.3.0", true]));
    let shown = on_disk(&node.disk, &["history"]).succeeds().stdout;
    assert!(shown.contains("  exchange  slot B, 1.3.0") && !shown.contains("lost"), "{shown}");
    assert!(shown.contains("a later version of the installer did this"), "{shown}");
    assert!(on_disk(&node.disk, &["status"]).succeeds().stdout.contains("exchange"), "status");

    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    let entries = json_of(&node.disk, &["history"])["entries"].clone();
    assert_eq!([0, 1, 2].map(|n| entries[n]["verb"].as_str().unwrap()), ["confirm", "later", "install"]);
    assert_eq!(entries[1]["trial"]["how"], "confirmed", "{entries}");

    // An entry that never was in force has its number all the same, and no other entry gets it.
    node.run('B', false, &["wipe", "STATE"]).succeeds();
    rewrite_entry(&node, 4, |entry| {
        entry["verb"] = "exchange".into();
        entry.as_object_mut().unwrap().remove("done");
    });
    node.run('B', false, &["rollback"]).succeeds();
    let numbers = json_of(&node.disk, &["history"])["entries"].clone();
    assert_eq!([0, 1].map(|n| numbers[n]["number"].as_u64().unwrap()), [5, 4]);
    assert_eq!(numbers[1]["took_effect"], false, "{numbers}");
}

/// What is kept may have keys of a later version, or another format. What it says of itself counts as far as it is known.
#[test]
fn manifests_of_slots_are_read_as_far_as_they_are_known() {
    for (from, to, told) in [
        ("\"format\": 1,\n", "\"format\": 2,\n", "format 2"),
        ("    \"platform\": \"", "    \"platforms\":\"", "kernel_args.platforms"),
    ] {
        let world = World::new();
        let node = Node::installed(&world);
        rewrite_manifest(&world, &node, "A", from, to);
        on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
        let status = json_of(&node.disk, &["status"]);
        if told == "format 2" {
            assert_eq!(status["slots"]["A"]["version"], "1.2.3", "{status}");
        }
        assert!(notes(&node).contains("manifest.json of slot A") && notes(&node).contains(told), "{}", notes(&node));
        if told == "format 2" {
            let report = node.upgrade_with(&["--output=json"]).succeeds().json();
            let said = "manifest.json of slot A says what only a later version knows: format 2";
            assert!(report["plan"]["warnings"].to_string().contains(said), "{report}");
            node.grub_tries();
            node.run('B', true, &["confirm"]).succeeds();
            node.run('B', false, &["rollback"]).succeeds();
        }
    }
}

/// It is unknown whether it was signed.
#[test]
fn nothing_follows_what_cannot_be_read_unless_somebody_says_so() {
    let world = World::new();
    let node = Node::installed(&world);
    rewrite_manifest(&world, &node, "A", "\"arch\": \"amd64\"", "\"arch\": \"amd99\"");
    // A way back all the same.
    on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
    assert!(
        notes(&node).contains("manifest.json of slot A is one that only a later version can read"),
        "{}",
        notes(&node)
    );
    let all_said = ["--platform=metal", "--config=none", "--extra-kernel-arg=a=1"];
    refused(&node.disk, INPUT, &["slot A, which is kept, was written by a later version", "--allow-unsigned"], || {
        node.upgrade_with(&all_said)
    });
    node.upgrade_with(&[&all_said[..], &["--allow-unsigned"]].concat()).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "B");
    node.run('A', false, &["rollback"]).succeeds();
    node.run('A', false, &["bootloader", "menu", "off"]).succeeds();
}
