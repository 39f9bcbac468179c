//! Verbs to which no disk is named: they take the one that the system was booted from, by the kernel command line.

use std::fs;

use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{DISK_BYTES, Loop, Node, Outcome, World, json_of, read_at, tool, write_at},
};

use super::clones::with_serials;

/// No disk has this GUID.
const ELSEWHERE: &str = "11111111-2222-3333-4444-555555555555";

/// The command line of a slot. Words in front, such as a payload's own, do not count.
fn booted_from(node: &Node, slot: char, trial: bool) -> String {
    format!("slipway.disk={ELSEWHERE} {}", node.cmdline(slot, trial))
}

fn under(world: &World, cmdline: &str, before: &str, args: &[&str]) -> Outcome {
    Outcome::of(&mut world.command_under(cmdline, before, args))
}

#[test]
fn it_is_the_disk_that_was_booted() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let node = Node::onto(&world, disk.node.clone());
    let other = Loop::attach(&world.sparse("other.img", DISK_BYTES), &[]);
    world.install(&other.node, &[]).succeeds();
    let before = other.content();
    let source = format!("--source={}", node.next.source());
    let (a, trial) = (booted_from(&node, 'A', false), booted_from(&node, 'B', true));
    let path = disk.node.to_str().unwrap();
    let run = |cmdline: &str, args: &[&str]| under(&world, cmdline, "", args).succeeds();

    for verb in ["status", "inspect"] {
        let report = run(&a, &[verb, "--output=json"]).json();
        assert_eq!(report["disk"]["path"], path, "{verb}");
    }
    assert!(run(&a, &["status"]).stderr.is_empty(), "of one disk nothing is said");
    assert_eq!(run(&a, &["verify", "--output=json", "--progress=none"]).json()["disk"], path);
    run(&a, &["meta", "set", "10=x"]);
    assert_eq!(run(&a, &["meta", "get", "10"]).stdout, "x\n");
    run(&a, &["meta", "delete", "10"]);
    run(&a, &["repair"]);
    run(&a, &["stage", &source]);
    run(&a, &["activate"]);
    run(&a, &["rollback"]);
    let upgraded = run(&a, &["install", "--upgrade", &source, "--output=json"]).json();
    assert_eq!(upgraded["disk"]["path"], path);
    run(&a, &["upgrade", &source]);
    node.grub_tries();
    run(&trial, &["confirm"]);
    assert_eq!(json_of(&disk.node, &["status"])["next_boot"]["slot"], "B");
    run(&trial, &["wipe", "EPHEMERAL", "--progress=none"]);
    assert!(other.content() == before, "another disk was written to");

    // An install overwrites what is on a disk: it takes none by itself.
    let says = "no disk: give --disk PATH, or a machine config";
    under(&world, &a, "", &["install", &source, "--force"]).exits(INPUT).says(&[says]);
}

/// The ways back are needed on disks that are half dead.
#[test]
fn a_disk_with_one_copy_of_its_partition_table_is_found() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let node = Node::onto(&world, disk.node.clone());
    let cmdline = booted_from(&node, 'A', false);
    // The header; the entries, which leaves a header that is valid by itself; the backup.
    for at in [512, 1024, DISK_BYTES - 512] {
        let good = read_at(&disk.node, at, 512);
        write_at(&disk.node, at, &[0xff; 512]);
        let report = under(&world, &cmdline, "", &["status", "--output=json"]).exits(INSTALL).json();
        assert_eq!(report["disk"]["path"], disk.node.to_str().unwrap());
        under(&world, &cmdline, "", &["confirm"]).succeeds();
        write_at(&disk.node, at, &good);
    }
    under(&world, &cmdline, "", &["status"]).succeeds();
}

/// Typed in a boot menu, or added by firmware.
#[test]
fn a_word_that_is_not_utf_8_hides_no_other() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let cmdline = [b"caf\xe9=1 ", node.cmdline('B', true).as_bytes()].concat();
    for verb in ["status", "verify", "confirm"] {
        let mut command = world.command_under(&cmdline, "", &[verb, "--disk"]);
        Outcome::of(command.arg(&node.disk)).succeeds();
    }
    assert_eq!(json_of(&node.disk, &["status"])["boot_env"]["default"], "B");
}

#[test]
fn of_clones_it_is_the_drive_that_was_installed() {
    let world = World::new();
    let (file, copy) = (world.sparse("disk.img", DISK_BYTES), world.path("copy.img"));
    let disk = Loop::attach(&file, &[]);
    let args = world.install_args(&disk.node, &[]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    with_serials(&world, &[(&disk, "S 1")], "", &args).succeeds();
    tool!("cp", "--sparse=always", &file, &copy);
    let clone = Loop::attach(&copy, &[]);
    let [node, clone_node] = [&disk, &clone].map(|disk| disk.node.to_str().unwrap());
    let guid = json_of(&file, &["status"])["disk_guid"].as_str().unwrap().to_owned();
    let cmdline = format!("slipway.slot=A slipway.disk={guid} slipway.try=0");
    let run = |drives: &[(&Loop, &str)], args: &[&str]| with_serials(&world, drives, &cmdline, args);

    // Whichever comes first.
    for (serials, original, other) in [(["S 1", "S 2"], node, clone_node), (["S 2", "S 1"], clone_node, node)] {
        let drives = [(&disk, serials[0]), (&clone, serials[1])];
        let outcome = run(&drives, &["status", "--output=json"]).exits(INSTALL);
        assert_eq!(outcome.json()["disk"]["path"], original);
        let note = format!("{original} (model none, serial S 1) is the one that was installed; also: {other}");
        outcome.says(&[&note]);
    }
    let verbs =
        [&["status"][..], &["confirm"], &["rollback"], &["repair"], &["wipe", "STATE"], &["meta", "set", "10=x"]];
    // No record fits one of them alone: it cannot be known which was booted.
    let before = [&disk, &clone].map(Loop::content);
    for serials in [["S 1", "S 1"], ["S 3", "S 2"]] {
        let drives = [(&disk, serials[0]), (&clone, serials[1])];
        let lines = [(node, serials[0]), (clone_node, serials[1])];
        let lines = lines.map(|(node, serial)| format!("\n  - {node} (model none, serial {serial})"));
        for args in verbs {
            let texts = ["which more than one disk has", "give --disk PATH", &lines[0], &lines[1]];
            run(&drives, args).exits(INPUT).says(&texts);
        }
    }
    assert!([&disk, &clone].map(Loop::content) == before, "something was written");
    // Only a copy is found, on what firmware does not start from: the original may be a drive that does not answer.
    drop(clone);
    for args in verbs {
        let texts = ["may be a copy of the one that was booted", "another drive (serial S 1)", "give --disk PATH"];
        run(&[(&disk, "S 2")], args).exits(INPUT).says(&texts);
    }
    assert!(disk.content() == before[0], "something was written");
    run(&[(&disk, "S 1")], &["confirm"]).succeeds();
    // The same disk under another name is no clone.
    let canonical = fs::canonicalize(&disk.node).unwrap();
    let same = Loop::attach(&canonical, &[]);
    run(&[(&disk, "S 1"), (&same, "S 1")], &["status"]).succeeds();
}

#[test]
fn where_there_is_none_it_is_said_what_to_give() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let node = Node::onto(&world, disk.node.clone());
    let (guid, before) = (node.guid(), disk.content());
    let ours = node.cmdline('A', false);
    // The last word counts, and no disk has that GUID.
    let gone = format!("{ours} slipway.disk={ELSEWHERE}");
    let live = "slipway.medium=0123456789abcdef talos.platform=metal";
    // A container: the command line and /sys are the host's, the device nodes are not.
    let no_nodes = "&& mount -t tmpfs none /dev";
    let no_sys = "&& mount -t tmpfs none /sys";
    let not_looked_at = format!("{}: No such file or directory", disk.node.display());
    for (cmdline, before, texts) in [
        (gone.as_str(), "", &[ELSEWHERE, "and no disk of this machine has it"][..]),
        (&ours, no_nodes, &[guid.as_str(), "no disk of this machine has it", "Not looked at:", &not_looked_at]),
        (&ours, no_sys, &["cannot be listed (/sys/block: ", "`mount -t sysfs sysfs /sys`"]),
        ("quiet", "", &["slipway.disk= is not on the kernel command line"]),
        ("slipway.disk=sda", "", &["slipway.disk= is not on the kernel command line"]),
        (live, "", &["this is a live system, which runs from no disk"]),
    ] {
        for args in [&["status"][..], &["rollback"], &["confirm"], &["repair"], &["grow"], &["upgrade"], &["inspect"]] {
            let outcome = under(&world, cmdline, before, args).exits(INPUT);
            let way = if args == ["inspect"] { "`installer inspect PATH`" } else { "give --disk PATH" };
            outcome.says(texts).says(&["no disk is named", way, "`lsblk -o PATH,SIZE,MODEL,SERIAL`"]);
        }
    }
    assert!(disk.content() == before, "something was written");
}
