//! Upgrades of disks that are not as an install left them, or not as most are: all of them work, or say why not.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use assert_cmd::Command;
use serde_json::json;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        self, Content, DISK_BYTES, IMAGE_BYTES, Loop, Mount, Node, Outcome, SLOT_4096, SmallFs, World,
        assert_clean_fat, assets, extract, flip, installer, json_of, on_disk, partition, program, read_at, tool,
        write_at,
    },
};

/// There and back again, whatever the disk.
#[track_caller]
fn goes_all_the_way(node: &Node) {
    let problems = json_of(&node.disk, &["status"])["problems"].clone();
    node.upgrade().succeeds();
    node.grub_tries();
    node.run('B', true, &["confirm", "--progress=none"]).succeeds();
    node.run('B', false, &["rollback", "--progress=none"]).succeeds();
    // The slots are whole, whatever was wrong with the disk from the beginning.
    let code = if problems == json!([]) { 0 } else { INSTALL };
    on_disk(&node.disk, &["verify", "--progress=none"]).exits(code);
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["boot_env"]["default"]), (&json!("A"), &json!("A")));
    assert_eq!(status["problems"], problems, "an upgrade is no reason to change the partition table");
}

/// One sector of boot.env has 4096 bytes here, and its file 512.
#[test]
fn sectors_of_4096_bytes() {
    let world = World::new();
    let mut node = Node::installed(&world);
    let file = world.sparse("4096.img", DISK_BYTES);
    let disk = Loop::attach(&file, &["--sector-size", "4096"]);
    world.install(&disk.node, &[SLOT_4096]).succeeds();
    node.disk = disk.node.clone();
    goes_all_the_way(&node);
    for name in ["EFI", "BOOT-A", "BOOT-B"] {
        let volume = world.path("volume");
        extract(&file, partition(&node.disk, name), &volume);
        assert_clean_fat(&volume);
    }
}

/// A block device: the nodes of its partitions show nothing old to any reader.
#[test]
fn a_block_device() {
    let world = World::new();
    let mut node = Node::installed(&world);
    let file = world.sparse("512.img", DISK_BYTES);
    let disk = Loop::attach(&file, &[]);
    world.install(&disk.node, &["--format-data=true"]).succeeds();
    node.disk = disk.node.clone();
    let slot = disk.partition(4, partition(&node.disk, "BOOT-B"));
    // All zeros, and now in the page cache of the node.
    let reader = fs::File::open(&slot.node).unwrap();
    assert_eq!(world::read_at(&slot.node, 0, 3), [0; 3]);
    node.upgrade().succeeds();
    drop(reader);
    assert_eq!(tool!("blkid", "-p", "-o", "value", "-s", "TYPE", &slot.node).trim(), "vfat");
    node.upgrade_with(&["--preserve=false"]).succeeds();
    let ephemeral = disk.partition(7, partition(&node.disk, "EPHEMERAL"));
    tool!("xfs_repair", "-n", &ephemeral.node);
}

#[test]
fn an_image_that_was_written_to_a_larger_disk() {
    let world = World::new();
    let node = Node::installed(&world);
    OpenOptions::new().write(true).open(&node.disk).unwrap().set_len(IMAGE_BYTES + 64 * MIB).unwrap();
    assert!(json_of(&node.disk, &["status"])["notes"].to_string().contains("the backup GPT is not at the end"));
    goes_all_the_way(&node);
}

/// Either copy of the partition table will do.
#[test]
fn a_damaged_partition_table() {
    for (at, which) in [(512, "primary"), (IMAGE_BYTES - 512, "backup")] {
        let world = World::new();
        let node = Node::installed(&world);
        flip(&node.disk, at + 20);
        assert!(json_of(&node.disk, &["status"])["problems"].to_string().contains(&format!("the {which} GPT")));
        goes_all_the_way(&node);
    }
}

/// Some other program has written boot.env again: to another place, as one sector still.
#[test]
fn a_boot_env_that_moved() {
    let world = World::new();
    let node = Node::installed(&world);
    let esp = format!("{}@@{}", node.disk.display(), partition(&node.disk, "EFI").offset);
    let copy = world.path("boot.env");
    tool!("mcopy", "-n", "-i", &esp, "::/slipway/boot.env", &copy);
    fs::write(world.path("filler"), [7; 5000]).unwrap();
    tool!("mdel", "-i", &esp, "::/slipway/boot.env");
    let places = node.boot_envs();
    write_at(&node.disk, places[0], &[0; 512]);
    tool!("mcopy", "-i", &esp, world.path("filler"), "::/filler");
    tool!("mcopy", "-i", &esp, &copy, "::/slipway/boot.env");
    assert_ne!(node.boot_envs(), places);
    goes_all_the_way(&node);
}

/// As `grub-editenv create` makes it: 1024 bytes cannot be replaced whole or not at all.
#[test]
fn a_boot_env_of_two_sectors() {
    let world = World::new();
    let node = Node::installed(&world);
    let esp = format!("{}@@{}", node.disk.display(), partition(&node.disk, "EFI").offset);
    let made = world.path("made.env");
    tool!("grub-editenv", &made, "create");
    tool!("grub-editenv", &made, "set", "seq=1", "default=A", "once=", "a=good", "b=empty");
    tool!("mcopy", "-o", "-n", "-i", &esp, &made, "::/slipway/boot.env");
    let at = |node: &Node| {
        let copy = world.path("read.env");
        tool!("mcopy", "-o", "-n", "-i", &esp, "::/slipway/boot.env", &copy);
        assert_eq!(fs::read(copy).unwrap(), fs::read(&made).unwrap(), "{} was written to", node.disk.display());
    };
    // It counts, for GRUB and for us, until the other copy has a higher number.
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
    let source = format!("--source={}", node.next.source());
    let told = node.run('A', false, &["upgrade", &source]).succeeds().stderr;
    assert!(told.contains("not exactly one sector of its own: slipway/boot2.env alone holds the boot state"), "{told}");
    at(&node);
    let next = json_of(&node.disk, &["status"])["next_boot"].clone();
    assert_eq!((&next["slot"], &next["trial"]), (&"B".into(), &true.into()));
    node.run('A', false, &["rollback"]).succeeds();
    at(&node);
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
}

/// GRUB does not find boot.env in it either. What it boots then can be told, but not changed.
#[test]
fn an_esp_that_is_damaged() {
    let world = World::new();
    let node = Node::installed(&world);
    write_at(&node.disk, partition(&node.disk, "EFI").offset, &[0; 512]);
    let before = Content::of(&node.disk);
    let status = json_of(&node.disk, &["status"]);
    assert_eq!(status["next_boot"]["slot"], "A");
    assert!(
        status["problems"].to_string().contains("the second copy of the boot state is lost or damaged"),
        "{status}"
    );
    for verb in ["confirm", "rollback"] {
        node.run('A', false, &[verb])
            .exits(INSTALL)
            .says(&["on the ESP is there and exactly one sector", "`installer repair --disk "]);
    }
    node.upgrade().exits(INSTALL).says(&["on the ESP is there and exactly one sector", "`installer repair --disk "]);
    assert!(Content::of(&node.disk) == before, "it was written to");
}

/// A slot with a foreign file system: not ours, and nothing to keep.
#[test]
fn a_target_that_holds_something_else() {
    let world = World::new();
    let node = Node::installed(&world);
    let slot = partition(&node.disk, "BOOT-B");
    let other = world.sparse("ext4", slot.len);
    tool!("mkfs.ext4", "-q", "-F", &other);
    write_at(&node.disk, slot.offset, &world::read_at(&other, 0, 4 << 20));
    goes_all_the_way(&node);
}

#[test]
fn a_disk_that_is_read_only() {
    let world = World::new();
    let node = Node::installed(&world);
    let cmdline = node.cmdline('A', false);
    fs::set_permissions(&node.disk, fs::Permissions::from_mode(0o444)).unwrap();
    let before = Content::of(&node.disk);
    let texts = [node.disk.to_str().unwrap(), "read-only"];
    let run = |args: &[&str]| -> Outcome { node.run_under(&cmdline, args) };
    run(&["upgrade", "--source", &node.next.source()]).exits(INSTALL).says(&texts);
    run(&["confirm"]).exits(INSTALL).says(&texts);
    run(&["status"]).succeeds();
    assert!(Content::of(&node.disk) == before, "it was written to");
}

/// A hard disk has some ten million MiB, and reads a hundred places a second.
#[test]
fn an_empty_disk_is_looked_at_in_a_few_places() {
    let world = World::new();
    let reads = |bytes: u64, command: &mut dyn FnMut(&Path) -> Command| {
        let (image, trace) = (world.sparse("empty.img", bytes), world.path("trace"));
        let look = command(&image);
        let mut strace = program("strace");
        strace.args(["-f", "-e", "trace=pread64", "-o"]).arg(&trace).arg(look.get_program()).args(look.get_args());
        Outcome::of(strace.env("SLIPWAY_ASSETS", assets()));
        fs::read_to_string(&trace).unwrap().lines().filter(|line| line.contains("pread64(")).count()
    };
    let mut looks: [&mut dyn FnMut(&Path) -> Command; 3] = [
        &mut |image| installer([OsStr::new("status"), OsStr::new("--disk"), image.as_ref()]),
        &mut |image| installer([OsStr::new("inspect"), image.as_ref()]),
        &mut |image| world.install_command(image, &["--dry-run"]),
    ];
    for (n, look) in looks.iter_mut().enumerate() {
        let (small, large) = (reads(8 << 30, look), reads(8 << 40, look));
        assert!(small > 0 && large <= small + 10 && large < 300, "{n}: {small} and {large} reads");
    }
}

/// Larger than any file of ext4, with hardly any room for temporary files, and the same when EPHEMERAL is made anew.
#[test]
fn a_disk_of_20_tib() {
    let world = World::new();
    let small = SmallFs::new(&world);
    small.leave_free(64 << 10);
    // XFS holds such a file.
    let file = world.sparse("large.xfs", 8 << 30);
    tool!("mkfs.xfs", "-q", &file);
    let large = Loop::attach(&file, &[]);
    let mount = Mount::new(&large.node, world.path("large"));
    let image = mount.point.join("disk.img");
    fs::File::create(&image).unwrap().set_len(20 << 40).unwrap();
    let mut install = world.install_command(&image, &["--format-data=true"]);
    Outcome::of(install.env("TMPDIR", small.path(""))).succeeds();
    on_disk(&image, &["verify", "--progress=none"]).succeeds();
    let whole = |image: &Path| {
        let at = partition(image, "EPHEMERAL");
        assert!(at.len > 19 << 40, "{at:?}");
        let volume = Loop::attach(image, &["--offset", &at.offset.to_string(), "--sizelimit", &at.len.to_string()]);
        tool!("xfs_repair", "-n", &volume.node);
        let mounted = Mount::new(&volume.node, world.path("volume"));
        fs::write(mounted.point.join("file"), "content").unwrap();
        drop(mounted);
        fs::remove_dir(world.path("volume")).unwrap();
    };
    whole(&image);
    Outcome::of(
        installer(["wipe", "EPHEMERAL", "--progress=none", "--disk"]).arg(&image).env("TMPDIR", small.path("")),
    )
    .succeeds();
    whole(&image);
}

/// As an install makes it: with its label, and with nothing for fsck to mend.
#[test]
fn a_root_directory_of_the_esp_that_was_lost_has_its_label_again() {
    let world = World::new();
    let image = world.installed(&[]);
    let boot = read_at(&image, MIB, 512);
    let number = |at: usize, len: usize| boot[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let root = MIB + (number(14, 2) + number(16, 1) * number(36, 4)) * 512;
    let label = read_at(&image, root, 12);
    write_at(&image, root, &[0; 512]);
    on_disk(&image, &["repair"]).succeeds();
    on_disk(&image, &["verify"]).succeeds();
    assert_eq!(read_at(&image, root, 12), label);
    let volume = world.path("volume");
    extract(&image, partition(&image, "EFI"), &volume);
    assert_clean_fat(&volume);
}

/// Nothing fails without them, so `status` has to say what its next step is about, or that something is gone.
#[test]
fn a_damaged_marker_and_a_lost_history_are_told() {
    let world = World::new();
    let image = world.installed(&[]);
    let said = || on_disk(&image, &["status"]).succeeds().stdout;
    let at = |part: &str| format!("{}@@{}", image.display(), partition(&image, part).offset);
    let zeros = world.path("zeros");
    fs::write(&zeros, [0; 512]).unwrap();
    tool!("mcopy", "-o", "-i", at("BOOT-A"), &zeros, "::slot.env");
    assert!(said().contains("slot.env on BOOT-A does not say that the slot is good"), "{}", said());
    on_disk(&image, &["repair"]).succeeds();
    assert!(!said().contains("\nnote "), "{}", said());
    tool!("mdel", "-i", at("EFI"), "::/slipway/history");
    assert!(said().contains("slipway/history on the ESP is missing or damaged"), "{}", said());
}
