//! 2 and 7: which disk, and what is on it afterwards.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use nix::fcntl::{Flock, FlockArg};
use serde_json::json;
use slipway_core::{disk::meta::ADV_BYTES, units::MIB};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{
        self, Content, DISK_BYTES, Loop, Node, Outcome, SLOT, World, assets, finished, installer, json_of, on_disk,
        partition, program, read_at, tool,
    },
};

use super::{CONFIG, install, install_with};

/// `install` without `--disk`.
fn unnamed(world: &World, extra: &[&str], config: &str) -> Outcome {
    let mut command = installer(["install", SLOT, "--format-data=false", "--source"]);
    Outcome::of(command.arg(world.payload.source()).args(extra).write_stdin(config))
}

fn config(install: &str) -> String {
    format!("version: v1alpha1\nmachine:\n  install: {{{install}}}\n")
}

/// 2.5
#[test]
fn the_config_names_the_disk_unless_an_argument_does() {
    let world = World::new();
    let (image, other) = (world.image(), world.sparse("other.img", world::IMAGE_BYTES));
    let named = config(&format!("disk: {}", image.display()));
    let argument = format!("--disk={}", other.display());
    unnamed(&world, &[&argument, "--force=true"], &named).succeeds();
    assert!(Content::of(&image) == Content::of(&world.sparse("empty.img", world::IMAGE_BYTES)));
    unnamed(&world, &[], &named).succeeds();
    for disk in [&image, &other] {
        on_disk(disk, &["verify"]).succeeds();
    }
    for nothing in ["", &config("")] {
        unnamed(&world, &[], nothing).exits(INPUT).says(&["no disk: give --disk PATH, or a machine config"]);
    }
}

fn unattended(expression: &str) -> String {
    let head =
        "apiVersion: v1alpha1\nkind: UnattendedInstallConfig\nprovisioning:\n  diskSelector:\n    match: >-\n      ";
    format!("{head}{expression}\n")
}

/// 2.6
#[test]
fn a_selector_means_exactly_one_disk() {
    let world = World::new();
    // A size that no other disk of this machine has.
    let bytes = DISK_BYTES + 3 * MIB;
    let files = [world.sparse("one", bytes), world.sparse("two", bytes)];
    let loops = files.each_ref().map(|file| Loop::attach(file, &[]));
    let [one, two] = loops.each_ref().map(|disk| disk.node.display().to_string());
    let ours = format!("glob(\"/dev/loop*\", disk.dev_path) && disk.size == {bytes}u");

    let both = unnamed(&world, &[], &unattended(&ours)).exits(INPUT);
    both.says(&["more than one disk matches what the machine config selects", &one, &two, "by its path"]);
    let none = unnamed(&world, &[], &unattended(&format!("{ours} && disk.readonly"))).exits(INPUT);
    none.says(&["no disk matches what the machine config selects", &one, &two, "readonly is false"]);
    // Loop devices have no transport: what diskSelector means is hardware.
    let hardware = unnamed(&world, &[], &config(&format!("diskSelector: {{size: {bytes}}}")));
    hardware.exits(INPUT).says(&["no disk matches what", &one, "transport is \"\", not != \"\""]);
    unnamed(&world, &[], &unattended("system_disk"))
        .exits(INPUT)
        .says(&["line 6, column", "\"system_disk\" is not understood"]);

    // An argument takes precedence, also over what is not understood.
    let named = unnamed(&world, &["--disk", &one, "--dry-run"], &unattended("!disk.model.contains(\"x\")")).succeeds();
    assert!(named.stderr.contains("line 6, column"), "{}", named.stderr);

    let exact = unnamed(&world, &[], &unattended(&format!("{ours} && disk.dev_path == \"{two}\""))).succeeds();
    assert!(exact.stderr.contains(&format!("{two} is the disk that the machine config selects")), "{}", exact.stderr);
    on_disk(Path::new(&two), &["verify"]).succeeds();
    assert!(Content::of(&files[0]) == Content::of(&world.sparse("empty", bytes)), "the other one is written to");
}

/// 2.7
#[test]
fn wipe_is_what_the_config_says_unless_an_argument_does() {
    let world = World::new();
    let image = world.installed(&[]);
    let run = |extra: &[&str], wipe: &str| {
        install_with(&world, &image, &[&["--format-data=false", "--dry-run"], extra].concat(), &config(wipe))
    };
    let wiped = run(&[], "wipe: yes").succeeds().stdout;
    assert!(wiped.contains(" erase "), "{wiped}");
    run(&["--zero=false"], "wipe: yes").exits(INSTALL).says(&["not empty"]);
    run(&[], "wipe: no").exits(INSTALL).says(&["not empty"]);
    // Talos' default is true, but a config that leaves the key out has not asked for an erased disk.
    run(&[], "").exits(INSTALL).says(&["not empty"]);
    let forced = run(&["--force=true", "--zero=false"], "wipe: yes").succeeds().stdout;
    assert!(!forced.contains(" erase "), "{forced}");
    let zeroed = run(&["--zero"], "wipe: no").succeeds().stdout;
    assert!(zeroed.contains(" erase "), "{zeroed}");
}

/// 2.8
#[test]
fn legacy_bios_support_marks_the_protective_mbr_bootable() {
    let world = World::new();
    let image = world.image();
    for (config, status) in [(config("legacyBIOSSupport: true"), 0x80), (CONFIG.to_owned(), 0)] {
        install_with(&world, &image, &["--force", "--format-data=false"], &config).succeeds();
        // Status, CHS, type and CHS of the one entry.
        assert_eq!(read_at(&image, 446, 8), [status, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
        let report = tool!("sgdisk", "-v", &image);
        assert!(report.contains("No problems found"), "{report}");
        let report = tool!("sfdisk", "--verify", &image);
        assert!(report.contains("No errors detected"), "{report}");
    }
}

/// The first bytes of a data volume.
fn head(disk: &Path, part: &str) -> Vec<u8> {
    read_at(disk, partition(disk, part).offset, 4)
}

/// 2.9
#[test]
fn encrypted_volumes_are_left_blank() {
    let world = World::new();
    let image = world.sparse("disk.img", DISK_BYTES);
    let state = "machine: {install: {}, systemDiskEncryption: {state: {provider: luks2}}}\n";
    let ephemeral = "kind: VolumeConfig\napiVersion: v1alpha1\nname: EPHEMERAL\nencryption: {provider: luks2}\n";
    let blank = [0; 4];
    for (extra, config, expected) in [
        (&["--force"][..], state.to_owned(), [&blank, b"XFSB"]),
        (&["--force"], ephemeral.to_owned(), [b"XFSB", &blank]),
        (&["--force"], format!("{state}---\n{ephemeral}"), [&blank, &blank]),
        // An argument goes before it.
        (&["--force", "--format-data=true"], state.to_owned(), [b"XFSB", b"XFSB"]),
    ] {
        install_with(&world, &image, extra, &config).succeeds();
        assert_eq!([head(&image, "STATE"), head(&image, "EPHEMERAL")], expected, "{extra:?} {config}");
    }
}

/// 2.10
#[test]
fn an_encrypted_ephemeral_that_is_not_preserved_is_left_blank() {
    let world = World::new();
    let node = Node::installed(&world);
    let format = || node.run('A', false, &["wipe", "EPHEMERAL", "--format-data"]).succeeds();
    let source = format!("--source={}", node.next.source());
    let upgrade = |extra: &[&str], config: &str| {
        let args = [&["upgrade", "--platform=metal", source.as_str()], extra].concat();
        Outcome::of(node.command_under(&node.cmdline('A', false), &args).write_stdin(config)).succeeds();
        head(&node.disk, "EPHEMERAL")
    };
    let encrypted = "machine: {install: {}, systemDiskEncryption: {ephemeral: {}}}\n";
    format();
    assert_eq!(upgrade(&[], encrypted), b"XFSB", "it is preserved");
    assert_eq!(upgrade(&["--preserve=false"], CONFIG), b"XFSB", "it is what it was");
    assert_eq!(upgrade(&["--preserve=false"], encrypted), [0; 4]);
    // And stays so, whatever the next one is not told.
    assert_eq!(upgrade(&["--preserve=false"], ""), [0; 4]);
}

/// 7.1
#[test]
fn the_whole_disk_is_locked_for_as_long_as_it_runs() {
    let world = World::new();
    let image = world.image();
    let try_lock = || Flock::lock(File::open(&image).unwrap(), FlockArg::LockExclusiveNonblock);
    {
        let _lock = try_lock().map_err(|(_, e)| e).unwrap();
        let locked = install(&world, &image, &["--lock-timeout=0"]).output().unwrap();
        assert_eq!(locked.status.code(), Some(INSTALL));
        assert!(String::from_utf8_lossy(&locked.stderr).contains("lock"), "{locked:?}");
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_installer"))
        .args(world.install_args(&image, &["--progress=json"]))
        .env("SLIPWAY_ASSETS", assets())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    let signal = |name: &str| finished(program("/bin/sh").args(["-c", &format!("kill -{name} {id}")]));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("\"event\":\"step\"")).unwrap();
    signal("STOP");
    assert!(try_lock().is_err(), "not locked while it runs");
    signal("CONT");
    // To the end, so that it is not held up.
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    try_lock().map_err(|(_, e)| e).expect("still locked after its end");
}

/// 7.2
#[test]
fn an_upgrade_leaves_the_label_to_return_to_in_meta_and_keeps_other_tags() {
    let world = World::new();
    let node = Node::installed(&world);
    on_disk(&node.disk, &["meta", "set", "0x0a=kept"]).succeeds();
    node.upgrade_with(&["--meta=0x0b=new"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["meta"], json!({ "0x06": "A", "0x0a": "kept", "0x0b": "new" }));
    // From slot B it is B.
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["meta"], json!({ "0x0a": "kept", "0x0b": "new" }));
    node.next.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    let kernel = node.next.read("vmlinuz");
    node.next.write("vmlinuz", [kernel.as_slice(), &[1]].concat());
    node.run('B', false, &["upgrade", "--source", &node.next.source()]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["meta"]["0x06"], "B");
}

/// 7.3
#[test]
fn meta_is_where_machined_looks_for_it() {
    let world = World::new();
    let image = world.installed(&["--meta=0x0a=hello"]);
    let info = tool!("sgdisk", "-i", "5", &image);
    assert!(info.contains("Partition name: 'META'") && info.contains("Partition size: 2048 sectors"), "{info}");
    let at = partition(&image, "META");
    assert_eq!(at.len, MIB);
    let copies = read_at(&image, at.offset, 2 * ADV_BYTES);
    let (first, second) = copies.split_at(ADV_BYTES);
    assert!(first == second, "the copies differ");
    assert_eq!(first[..17], *b"\x5a\x4b\x3c\x2d\0\0\0\x0a\0\0\0\x05hello");
    assert_eq!(first[ADV_BYTES - 4..], [0xa5, 0xb4, 0xc3, 0xd2]);
    // The digest by coreutils, over the copy with the digest's place zeroed.
    let mut zeroed = first.to_vec();
    zeroed[ADV_BYTES - 36..ADV_BYTES - 4].fill(0);
    let file = world.path("adv");
    std::fs::write(&file, zeroed).unwrap();
    let digest: String = first[ADV_BYTES - 36..ADV_BYTES - 4].iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(tool!("sha256sum", &file).starts_with(&digest));
}

/// 7.4
#[test]
fn after_a_kexec_the_running_slot_is_not_guessed() {
    let world = World::new();
    let node = Node::installed(&world);
    let before = Content::of(&node.disk);
    let source = format!("--source={}", node.next.source());
    for args in [&["upgrade", &source][..], &["install", "--upgrade=true", &source], &["confirm"], &["rollback"]] {
        let outcome = node.run_under("talos.platform=metal talos.config=none console=tty0", args);
        outcome
            .exits(INSTALL)
            .says(&["not all of slipway.slot, slipway.disk and slipway.try are on the kernel command line"]);
    }
    let upgrade = node.run_under("talos.platform=metal", &["upgrade", &source]).exits(INSTALL);
    upgrade.says(&["it is not known which slot is safe to write", "booted from this disk"]);
    assert!(Content::of(&node.disk) == before, "written");
}
