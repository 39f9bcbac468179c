//! Disks, payloads and moments in which the boot state must not be changed: refused with the exit code of the public
//! table, with a text that names the reason and what helps, and without a byte written.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod world;

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt as _, time::Duration};

use nix::libc;
use slipway::{
    device::{Access, Disk},
    execute::{self, Observer, Sources},
    payload::{DirSource, Sums, image::Inspection},
    probe,
};
use slipway_core::{
    payload::manifest::Arch,
    plan::{self, Origin, RequestBase, UpgradeRequest},
    units::MIB,
};
use world::{
    Content, Loop, Mount, Outcome, Payload, SmallFs, World, boot::Node, flip, json_of, noise, partition, read_at, tool,
    wait_until_unclaimed, write_at,
};

const INPUT: i32 = 2;
const INSTALL: i32 = 7;

/// The promise of every test here: refused with this exit code and these words, and not a byte written.
#[track_caller]
fn refused(node: &Node, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let before = Content::of(&node.disk);
    attempt().exits(code).says(texts);
    assert!(Content::of(&node.disk) == before, "{} was written to", node.disk.display());
}

// ---------------------------------------------------------------------------------------------------
// Not our disk, or not all of it.

#[test]
fn a_disk_without_a_table() {
    let world = World::new();
    let mut node = Node::installed(&world);
    let cmdline = node.cmdline('A', false);
    node.disk = world.sparse("blank.img", world::IMAGE_BYTES);
    for verb in ["confirm", "rollback", "activate"] {
        refused(&node, INSTALL, &["blank.img", "no partition table"], || node.run_under(&cmdline, &[verb]));
    }
}

#[test]
fn a_foreign_table() {
    let world = World::new();
    let mut node = Node::installed(&world);
    let cmdline = node.cmdline('A', false);
    node.disk = world.sparse("foreign.img", world::IMAGE_BYTES);
    tool!("sgdisk", "--new=1:2048:+100M", "--change-name=1:EFI", &node.disk);
    refused(&node, INSTALL, &["not a Slipway disk", "partition 2 is not BIOS"], || {
        node.run_under(&cmdline, &["upgrade", "--source", &node.next.source()])
    });
}

#[test]
fn a_disk_with_one_slot() {
    let world = World::new();
    let node = Node::installed(&world);
    let cmdline = node.cmdline('A', false);
    tool!("sgdisk", "--delete=4", &node.disk);
    refused(&node, INSTALL, &["not a Slipway disk", "partition 4 is not BOOT-B"], || {
        node.run_under(&cmdline, &["upgrade", "--source", &node.next.source()])
    });
}

#[test]
fn a_table_whose_slots_are_one_place() {
    let world = World::new();
    let node = Node::installed(&world);
    let cmdline = node.cmdline('A', false);
    // The primary table: BOOT-B where BOOT-A is, every checksum right.
    let mut table = read_at(&node.disk, 512, 512 + 128 * 128);
    let (header, entries) = table.split_at_mut(512);
    entries.copy_within(2 * 128 + 32..2 * 128 + 48, 3 * 128 + 32);
    header[88..92].copy_from_slice(&crc32fast::hash(entries).to_le_bytes());
    header[16..20].fill(0);
    let crc = crc32fast::hash(&header[..92]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    write_at(&node.disk, 512, &table);
    refused(&node, INSTALL, &["not a Slipway disk", "BOOT-A and BOOT-B overlap"], || {
        node.run_under(&cmdline, &["upgrade", "--source", &node.next.source()])
    });
}

#[test]
fn a_running_system_that_is_not_known() {
    let world = World::new();
    let node = Node::installed(&world);
    let source = node.next.source();
    let other = "slipway.slot=A slipway.disk=00000000-0000-0000-0000-000000000007 slipway.try=0";
    for verb in [&["upgrade", "--source", &source][..], &["stage", "--source", &source], &["activate"], &["confirm"]] {
        let texts = ["not a system Slipway's boot rule has started", "not guessed"];
        refused(&node, INSTALL, &texts, || node.run_under("quiet", verb));
        let texts = ["a system of the disk 00000000-0000-0000-0000-000000000007", "not guessed"];
        refused(&node, INSTALL, &texts, || node.run_under(other, verb));
    }
}

#[test]
fn a_limit_that_is_none() {
    let world = World::new();
    let node = Node::installed(&world);
    for (rate, text) in [("0", "at least 1 MiB"), ("100KiB/s", "at least 1 MiB"), ("50MiB/h", "is not a unit")] {
        for verb in ["stage", "upgrade"] {
            let limit = format!("--limit-rate={rate}");
            refused(&node, INPUT, &[text], || node.run('A', false, &[verb, "--source", &node.next.source(), &limit]));
        }
    }
}

// ---------------------------------------------------------------------------------------------------
// META and boot.env.

#[test]
fn a_damaged_meta() {
    let world = World::new();
    let node = Node::installed(&world);
    let meta = partition(&node.disk, "META").offset;
    write_at(&node.disk, meta, &noise(7, 600_000));
    refused(&node, INSTALL, &["META: neither copy is valid", "installer meta set"], || node.upgrade());
    // Blank is nothing lost.
    write_at(&node.disk, meta, &vec![0; MIB as usize]);
    node.upgrade().succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["meta"]["0x06"], "A");
}

#[test]
fn a_boot_env_that_is_not_there() {
    let world = World::new();
    let node = Node::installed(&world);
    let esp = format!("{}@@{}", node.disk.display(), partition(&node.disk, "EFI").offset);
    tool!("mdel", "-i", &esp, "::/slipway/boot2.env");
    for attempt in [&["confirm"][..], &["rollback"], &["upgrade", "--source", &node.next.source()]] {
        let texts = ["slipway/boot.env and slipway/boot2.env on the ESP", "reinstall"];
        // Nothing to confirm is found first only where the boot state can be told.
        refused(&node, INSTALL, &texts, || node.run('A', false, attempt));
    }
}

#[test]
fn both_copies_of_boot_env_damaged() {
    let world = World::new();
    let node = Node::installed(&world);
    for at in node.boot_envs() {
        write_at(&node.disk, at, &[0; 512]);
    }
    // A trial's boot state cannot be made up.
    refused(&node, INSTALL, &["both copies of boot.env are damaged", "reboot"], || node.run('B', true, &["confirm"]));
    node.upgrade().succeeds();
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["next_boot"]["trial"]), (&"B".into(), &true.into()));
    assert_eq!(status["boot_env"]["default"], "A");
}

// ---------------------------------------------------------------------------------------------------
// Payloads.

#[test]
fn a_payload_larger_than_the_slot() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 80 * MIB);
    refused(&node, INPUT, &["does not fit into a slot of 64.0 MiB", "too few", "slots cannot grow"], || node.upgrade());
}

/// A seal is believed until its files are written: then they are compared, and the slot stays empty.
#[test]
fn a_sealed_directory_that_is_not_what_its_seal_tells() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let payload = &world.payload;
    Outcome::of(world::installer(["seal", "--progress=none"]).arg(payload.dir())).succeeds();
    let source = format!("--source={}", payload.source());
    let upgrade =
        || node.run('B', false, &["upgrade", "--progress=none", "--retry-bad", "--extra-kernel-arg=x", &source]);

    let size = payload.read(Payload::ROOTFS).len() as u64;
    payload.resize(Payload::ROOTFS, size + 1);
    refused(&node, INPUT, &["rootfs.squashfs", "SHA256SUMS says"], upgrade);
    payload.resize(Payload::ROOTFS, size);

    flip(&payload.path(Payload::ROOTFS), 50_000);
    upgrade().exits(INSTALL).says(&["rootfs.squashfs", "its manifest.json lies", "slot B, which runs, still boots"]);
    let slots = &json_of(&node.disk, &["status"])["slots"];
    assert_eq!((&slots["A"]["state"], &slots["B"]["state"]), (&"empty".into(), &"good".into()));
    assert_eq!(read_at(&node.disk, partition(&node.disk, "BOOT-A").offset, 512), [0; 512], "a file system");

    flip(&payload.path(Payload::ROOTFS), 50_000);
    upgrade().succeeds();
}

/// Between the moment it was checked and the moment it is written.
#[test]
fn a_payload_that_changes_while_it_is_read() {
    struct Silent;
    impl Observer for Silent {
        fn step(&mut self, _: usize, _: usize, _: &str, _: u64) {}
        fn advance(&mut self, _: u64) {}
        fn note(&mut self, _: &str) {}
    }
    let world = World::new();
    let node = Node::installed(&world);
    let source = DirSource::new(node.next.dir());
    let payload = source.facts(Sums::wanted(false), Inspection::Everything, |_| ()).unwrap();
    let disk = Disk::open(&node.disk, Access::Write, None, Duration::ZERO).unwrap();
    let system = probe::system(&disk, &node_cmdline(&disk)).unwrap();
    let request = UpgradeRequest {
        base: RequestBase { disk: "disk".into(), now: 1 },
        origin: Origin::Inside,
        activate: true,
        preserve: true,
        blank_ephemeral: false,
        retry_bad: false,
        allow_any_version: false,
        args: Default::default(),
        meta: vec![],
        arch: Arch::Amd64,
    };
    let plan = plan::upgrade(&request, &system, &payload).unwrap();
    flip(&node.next.path(Payload::ROOTFS), 50_000);
    let sources = Sources { payload: Some(&source), assets: None };
    let error = execute::run(&plan, &disk, sources, &mut Silent).unwrap_err();
    assert_eq!(error.kind.exit_code(), 7);
    let text = format!("{:#}", anyhow_chain(&error));
    assert!(
        text.contains("it changed since it was checked") && text.contains("slot A, which runs, still boots"),
        "{text}"
    );
    drop(disk);
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
    // And again, with what it is now.
    node.upgrade().succeeds();
}

fn node_cmdline(disk: &Disk) -> String {
    let guid = probe::label(disk).unwrap().disk_guid;
    format!("slipway.slot=A slipway.disk={guid} slipway.try=0")
}

fn anyhow_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

// ---------------------------------------------------------------------------------------------------
// The moment.

#[test]
fn an_unconfirmed_trial_that_runs() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let source = node.next.source();
    for verb in [&["upgrade", "--source", &source][..], &["stage", "--source", &source], &["activate"]] {
        let texts = ["slot B, which runs, is a trial that nobody has confirmed", "installer confirm"];
        refused(&node, INSTALL, &texts, || node.run('B', true, verb));
    }
}

#[test]
fn confirm_when_the_trial_does_not_run() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    refused(&node, INSTALL, &["not the trial", "the next boot is to try slot B"], || {
        node.run('A', false, &["confirm"])
    });
    node.grub_tries();
    refused(&node, INSTALL, &["not the trial", "slot B was tried and came back"], || {
        node.run('A', false, &["confirm"])
    });
    node.run('B', true, &["rollback"]).succeeds();
    refused(&node, INSTALL, &["not the trial", "given up"], || node.run('B', true, &["confirm"]));
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
    for args in [&["rollback"][..], &["rollback", "--check"]] {
        refused(&node, INSTALL, &["slot A is damaged", "rootfs.squashfs"], || node.run('B', false, args));
    }
}

// ---------------------------------------------------------------------------------------------------
// Who uses what.

#[test]
fn encrypted_volumes_are_left_alone() {
    let world = World::new();
    let node = Node::installed(&world);
    let (state, ephemeral) = (partition(&node.disk, "STATE"), partition(&node.disk, "EPHEMERAL"));
    let luks = [b"LUKS\xba\xbe\x00\x02".to_vec(), noise(5, 100_000)].concat();
    write_at(&node.disk, state.offset, &luks);
    write_at(&node.disk, ephemeral.offset, &luks);
    node.upgrade().succeeds();
    assert_eq!(read_at(&node.disk, state.offset, luks.len()), luks);
    assert_eq!(read_at(&node.disk, ephemeral.offset, luks.len()), luks);
    // Made anew only when asked, and blank: the key is the OS' own affair.
    node.upgrade_with(&["--preserve=false"]).succeeds();
    assert_eq!(read_at(&node.disk, state.offset, luks.len()), luks);
    assert!(read_at(&node.disk, ephemeral.offset, luks.len()).iter().all(|b| *b == 0));
    node.run('A', false, &["wipe", "STATE"]).succeeds();
    assert!(read_at(&node.disk, state.offset, luks.len()).iter().all(|b| *b == 0));
}

/// `stage` and what belongs to it work while the OS uses its volumes; what makes one anew does not.
#[test]
fn a_volume_in_use() {
    let world = World::new();
    let mut node = Node::installed(&world);
    let (slot, ephemeral) = (partition(&node.disk, "BOOT-B"), partition(&node.disk, "EPHEMERAL"));
    let esp = partition(&node.disk, "EFI");
    node.run('A', false, &["wipe", "EPHEMERAL", "--format-data", "--progress=none"]).succeeds();
    let cmdline = node.cmdline('A', false);
    let disk = Loop::attach(&node.disk.clone(), &[]);
    let (image, node_of) = (node.disk.clone(), disk.node.clone());
    node.disk = node_of;
    let (p1, p4, p7) = (disk.partition(1, esp), disk.partition(4, slot), disk.partition(7, ephemeral));
    let source = node.next.source();
    let stage = ["stage", "--progress=none", "--source", &source];
    {
        let mount = Mount::new(&p7.node, world.path("var"));
        node.run_under(&cmdline, &stage).succeeds();
        node.run_under(&cmdline, &["activate", "--progress=none"]).succeeds();
        let texts = [p7.node.to_str().unwrap(), mount.point.to_str().unwrap(), "in use"];
        node.run_under(&cmdline, &["wipe", "EPHEMERAL"]).exits(INSTALL).says(&texts);
        node.run_under(&cmdline, &["activate", "--preserve=false"]).exits(INSTALL).says(&texts);
    }
    for part in [&p1, &p4] {
        wait_until_unclaimed(&part.node);
        let held = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&part.node).unwrap();
        let before = Content::of(&image);
        node.next.write("os-release", format!("VERSION_ID=1.3.{}\n", part.node.display().to_string().len()));
        node.next.write("cmdline", format!("held={}", part.node.display()));
        node.run_under(&cmdline, &stage).exits(INSTALL).says(&[part.node.to_str().unwrap(), "in use"]);
        assert!(Content::of(&image) == before, "it was written to");
        drop(held);
    }
}

#[test]
fn an_image_that_is_attached() {
    let world = World::new();
    let node = Node::installed(&world);
    let disk = Loop::attach(&node.disk, &[]);
    refused(&node, INSTALL, &["attached to", disk.node.to_str().unwrap()], || node.upgrade());
}

/// A side file for mkfs.xfs that cannot be made is found before anything is written.
#[test]
fn no_room_for_temporary_files() {
    let world = World::new();
    let node = Node::installed(&world);
    node.run('A', false, &["wipe", "EPHEMERAL", "--format-data", "--progress=none"]).succeeds();
    let small = SmallFs::new(&world);
    small.leave_free(64 << 10);
    let before = Content::of(&node.disk);
    let mut command = node.command_under(
        &node.cmdline('A', false),
        &["upgrade", "--preserve=false", "--progress=none", "--source", &node.next.source()],
    );
    let outcome = Outcome::of(command.env("TMPDIR", small.path("")));
    assert!(matches!(outcome.code, 4 | 5), "{}: {}", outcome.code, outcome.stderr);
    assert!(Content::of(&node.disk) == before, "it was written to");
}

// ---------------------------------------------------------------------------------------------------
// Where the way back is not what it should be.

#[test]
fn the_default_damaged_and_the_trial_armed() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    flip(&node.disk, node.file("A", Payload::KERNEL) + 1000);
    // Cancelling it, or writing another payload over it, would leave nothing to boot.
    refused(&node, INSTALL, &["slot A is damaged"], || node.run('A', false, &["rollback"]));
    node.next.write("cmdline", "another");
    let texts = ["slot A, which runs, is damaged", "slot B is the only one that boots"];
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
    assert!(outcome.stderr.contains("nothing to come back to"), "{}", outcome.stderr);
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
    refused(&node, INSTALL, &["not guessed"], || node.run_under("quiet", &["rollback"]));
}
