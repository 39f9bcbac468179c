//! The history that the finished program keeps on a disk: what it shows after each verb, who asked, how trials ended, and
//! what it says of disks that have none or were damaged.

use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::INSTALL,
    world::{Node, World, json_of, on_disk, partition, read_at, tool, write_at},
};

const MIB: usize = 1 << 20;

fn history(node: &Node) -> Vec<Value> {
    json_of(&node.disk, &["history"])["entries"].as_array().unwrap().clone()
}

/// Verb, slot and version of the newest entry.
fn newest(node: &Node) -> (String, String, String) {
    let entry = &history(node)[0];
    let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
    (text("verb"), text("slot"), text("version"))
}

fn three(verb: &str, slot: &str, version: &str) -> (String, String, String) {
    (verb.to_owned(), slot.to_owned(), version.to_owned())
}

/// Byte offset of the record of the first entry.
fn first_record(node: &Node) -> u64 {
    let esp = partition(&node.disk, "EFI").offset;
    let head = read_at(&node.disk, esp, 16 * MIB);
    let mut sectors = (esp..).step_by(512).zip(head.chunks(512));
    sectors.find(|(_, sector)| sector.get(16..24) == Some(b" {\"n\":1,")).unwrap().0
}

#[test]
fn every_change_leaves_an_entry() {
    let world = World::new();
    let node = Node::installed(&world);
    assert_eq!(newest(&node), three("install", "A", "1.2.3"));
    assert!(history(&node)[0]["by"].as_str().is_some_and(|by| by.starts_with("root")), "{:?}", history(&node));
    // What was not done leaves none.
    node.upgrade_with(&["--dry-run"]).succeeds();
    node.run('A', false, &["confirm"]).succeeds();
    assert_eq!(history(&node).len(), 1);

    node.upgrade().succeeds();
    assert_eq!((newest(&node), &history(&node)[0]["trial"]), (three("upgrade", "B", "1.3.0"), &Value::Null));
    node.grub_tries();
    // It runs: that is no end.
    let inside = node.run('B', true, &["history", "--output=json"]).succeeds().json();
    assert_eq!(inside["entries"][0]["trial"], Value::Null);
    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!(newest(&node), three("confirm", "B", "1.3.0"));
    assert_eq!(
        history(&node)[1]["trial"],
        json!({"how": "confirmed", "reason": null, "panic": null, "recorded": true})
    );

    node.run('B', false, &["rollback", "--reason=the disk is slow"]).succeeds();
    assert_eq!(
        (newest(&node), &history(&node)[0]["reason"]),
        (three("rollback", "A", "1.2.3"), &json!("the disk is slow"))
    );
    node.run('A', false, &["stage", "--retry-bad", &format!("--source={}", node.next.source())]).succeeds();
    assert_eq!(newest(&node), three("stage", "B", "1.3.0"));
    node.run('A', false, &["activate"]).succeeds();
    assert_eq!(newest(&node), three("activate", "B", "1.3.0"));
    node.run('A', false, &["rollback"]).succeeds();
    assert_eq!(history(&node)[1]["trial"]["how"], "cancelled");
    node.run('A', false, &["wipe", "STATE"]).succeeds();
    assert_eq!(history(&node)[0]["volumes"], json!(["STATE"]));

    let numbers: Vec<_> = history(&node).iter().map(|entry| entry["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [8, 7, 6, 5, 4, 3, 2, 1]);
    assert!(history(&node).iter().all(|entry| entry["took_effect"] == true));
    assert_eq!(json_of(&node.disk, &["history", "--limit=2"])["entries"].as_array().unwrap()[..], history(&node)[..2]);
    assert_eq!(json_of(&node.disk, &["status"])["history"].as_array().unwrap()[..], history(&node)[..3]);

    let shown = on_disk(&node.disk, &["history"]).succeeds().stdout;
    assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 80), "{shown}");
    for part in ["  upgrade   slot B, 1.3.0", "trial: ran and was confirmed", "reason: the disk is slow", "wiped STATE"]
    {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let status = on_disk(&node.disk, &["status"]).succeeds().stdout;
    assert!(status.contains("\nhistory    20") && status.contains("  wipe      wiped STATE\n"), "{status}");
}

/// The end of an unconfirmed trial is told at once, and stays when the slot is written again.
#[test]
fn a_trial_that_came_back_is_recorded_by_the_next_change() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let live = json!({"how": "not-confirmed", "reason": null, "panic": null, "recorded": false});
    assert_eq!(history(&node)[0]["trial"], live);
    node.upgrade_with(&["--retry-bad"]).succeeds();
    let recorded = json!({"how": "not-confirmed", "reason": null, "panic": null, "recorded": true});
    assert_eq!((&history(&node)[1]["trial"], &history(&node)[0]["trial"]), (&recorded, &Value::Null));
    // The second one is given up from inside.
    node.grub_tries();
    node.run('B', true, &["rollback", "--reason", "health check failed: \u{1b}[31mno answer"]).succeeds();
    assert_eq!(history(&node)[1]["trial"]["how"], "given-up");
    let shown = on_disk(&node.disk, &["history"]).succeeds().stdout;
    assert!(shown.contains("reason: health check failed: \\x1b[31mno answer"), "{shown}");
}

/// The plan hash is the same for everybody, at any time, for any reason.
#[test]
fn who_asks_is_no_part_of_the_plan_hash() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let hash = |args: &[&str]| {
        let args = [&["rollback", "--dry-run", "--output=json"], args].concat();
        node.run('B', false, &args).succeeds().json()["plan_hash"].clone()
    };
    assert_eq!(hash(&[]), hash(&["--reason=why not"]));
    let hash = hash(&[]).as_str().unwrap().to_owned();
    node.run('B', false, &["rollback", "--plan-hash", &hash, "--reason=as planned"]).succeeds();
    assert_eq!(history(&node)[0]["reason"], "as planned");
}

/// It reads like advice, and is what somebody said.
#[test]
fn a_reason_that_names_a_command_stays_as_it_is() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    let reason = "as `installer status` said";
    let args = ["rollback", "--offline", "--output=json", "--reason", reason];
    assert!(on_disk(&node.disk, &args).succeeds().json().to_string().contains(reason));
    assert_eq!(history(&node)[0]["reason"], reason);
    for (verb, shown) in [("history", "reason: "), ("status", "reason: ")] {
        let text = on_disk(&node.disk, &[verb]).succeeds().stdout;
        assert!(text.contains(&format!("{shown}{reason}")), "{text}");
    }
}

/// A disk of an earlier version: everything works as before, and `history` says that there is none.
#[test]
fn a_disk_without_a_history() {
    let world = World::new();
    let node = Node::installed(&world);
    let esp = partition(&node.disk, "EFI");
    let volume = format!("{}@@{}", node.disk.display(), esp.offset);
    let deleted = std::process::Command::new("mdel").args(["-i", &volume, "::slipway/history"]).status();
    assert!(deleted.unwrap().success());
    let shown = on_disk(&node.disk, &["history"]).succeeds().stdout;
    assert!(shown.contains("keeps no history: an earlier version installed it"), "{shown}");
    let plan = node.upgrade_with(&["--output=json"]).succeeds().json()["plan"].to_string();
    assert!(!plan.contains("write-history"), "{plan}");
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    on_disk(&node.disk, &["repair"]).succeeds();
    let report = json_of(&node.disk, &["history"]);
    assert_eq!((&report["kept"], &report["entries"]), (&json!(false), &json!([])));
    on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
}

#[test]
fn a_damaged_record_hides_none_of_the_others() {
    let world = World::new();
    let node = Node::upgraded(&world);
    write_at(&node.disk, first_record(&node) + 512 + 40, b"#");
    let report = json_of(&node.disk, &["history"]);
    let numbers: Vec<_> = report["entries"].as_array().unwrap().iter().map(|entry| entry["number"].clone()).collect();
    assert_eq!((numbers, &report["lost"]), (vec![json!(3), json!(1)], &json!(1)));
    let shown = on_disk(&node.disk, &["history"]).succeeds().stdout;
    assert!(shown.ends_with("1 entry is lost: its record cannot be read\n"), "{shown}");
    node.run('B', false, &["rollback"]).succeeds();
    assert_eq!(newest(&node), three("rollback", "A", "1.2.3"));
}

/// One wrong number in its entry: the history begins where another file lies. A record of it would be written into that file.
#[test]
fn a_history_that_shares_the_bytes_of_another_file_is_told() {
    let world = World::new();
    let whole = Node::installed(&world).disk;
    let esp = partition(&whole, "EFI").offset;
    let head = read_at(&whole, esp, 16 * MIB);
    // Of an entry of a directory: its name; two halves of its first cluster at 20 and 26.
    let entry = |name: &[u8; 11]| head.chunks(32).position(|entry| entry.starts_with(name)).unwrap() * 32;
    for name in [b"CHAIN~1 SHA", b"BOOT    ENV", b"BOOTX64 EFI"] {
        let disk = world.path("shared.img");
        tool!("cp", "--sparse=always", &whole, &disk);
        let (history, other) = (entry(b"HISTORY    "), entry(name));
        for at in [20, 26] {
            write_at(&disk, esp + (history + at) as u64, &head[other + at..][..2]);
        }
        for verb in ["status", "verify"] {
            let said = on_disk(&disk, &[verb]).exits(INSTALL).stdout;
            assert!(said.contains("two files share a cluster") && said.contains("fsck.vfat -a"), "{said}");
        }
    }
}
