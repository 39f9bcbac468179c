//! Not our disk, or not all of it: partition table, META and boot.env.

use std::fs::{self, File};

use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{self, Node, Payload, SmallFs, World, json_of, noise, on_disk, partition, read_at, tool, write_at},
};

use super::refused;

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
    refused(&node, INSTALL, &["partition 4 (BOOT-B) is missing from the table", "`installer repair --disk"], || {
        node.run_under(&cmdline, &["upgrade", "--source", &node.next.source()])
    });
}

#[test]
fn a_table_whose_slots_are_one_place() {
    let world = World::new();
    let node = Node::installed(&world);
    let cmdline = node.cmdline('A', false);
    // The primary table: BOOT-B where BOOT-A is, every checksum right.
    with_primary_table(&node, |entries| entries.copy_within(2 * 128 + 32..2 * 128 + 48, 3 * 128 + 32));
    refused(&node, INSTALL, &["BOOT-A and BOOT-B overlap", "`installer repair --disk"], || {
        node.run_under(&cmdline, &["upgrade", "--source", &node.next.source()])
    });
    let said = on_disk(&node.disk, &["repair"]).succeeds().stdout;
    assert!(said.contains("its first copy is wrong: partitions BOOT-A and BOOT-B overlap"), "{said}");
    node.run_under(&cmdline, &["upgrade", "--source", &node.next.source()]).succeeds();
}

/// The first table has a slot, or the last partition, elsewhere than it lies; the second one is right, to the byte.
#[test]
fn a_table_that_moves_a_partition() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let lba = |entries: &mut [u8], at: usize, change: i64| {
        let field: &mut [u8; 8] = (&mut entries[at..at + 8]).try_into().unwrap();
        *field = u64::from_le_bytes(*field).wrapping_add_signed(change).to_le_bytes();
    };
    // BOOT-A begins late; EPHEMERAL ends early.
    for (n, at, change) in [(3, 32, 8), (7, 40, -8)] {
        let tables = || {
            let len = 512 + 128 * 128;
            [512, fs::metadata(&node.disk).unwrap().len() - len as u64].map(|at| read_at(&node.disk, at, len))
        };
        let before = tables();
        with_primary_table(&node, |entries| lba(entries, (n - 1) * 128 + at, change));
        let next = &json_of(&node.disk, &["status"])["next_step"];
        let command = next["command"].as_str().unwrap_or_default();
        assert!(command.starts_with("installer repair --disk"), "{next}");
        let why = next["why"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("its first copy is wrong: partition {n}")), "{next}");
        on_disk(&node.disk, &["repair"]).succeeds();
        assert!(tables() == before, "partition {n}: the table is what it was");
    }
    node.run('B', true, &["confirm"]).succeeds();
    with_primary_table(&node, |entries| lba(entries, 2 * 128 + 32, 8));
    let newest = Payload::new(&world.path("newest"));
    newest.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    refused(&node, INSTALL, &["its first copy is wrong: partition 3", "`installer repair --disk "], || {
        node.run_under(&node.cmdline('B', false), &["upgrade", "--source", &newest.source()])
    });
    on_disk(&node.disk, &["repair"]).succeeds();
    node.run_under(&node.cmdline('B', false), &["rollback"]).succeeds();
}

/// Another program has put a partition of its own onto bytes of one of ours, which no tool does without being forced.
#[test]
fn a_table_with_another_partition_inside_a_slot() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let slot = partition(&node.disk, "BOOT-A");
    let (first, last) = (slot.offset / 512 + 40_000, slot.offset / 512 + 40_100);
    with_primary_table(&node, |entries| {
        // Linux data, in entry 8.
        let (ours, other) = entries.split_at_mut(7 * 128);
        other[..56].copy_from_slice(&ours[6 * 128..6 * 128 + 56]);
        other[16] ^= 1;
        other[32..40].copy_from_slice(&first.to_le_bytes());
        other[40..48].copy_from_slice(&last.to_le_bytes());
        other[56..60].copy_from_slice(&[b'x', 0, b'y', 0]);
    });
    let inside = ["partition 8", "xy", "lies on bytes of BOOT-A, and would be overwritten"];
    let source = node.next.source();
    let upgrade = ["upgrade", "--source", &source, "--extra-kernel-arg=x"];
    refused(&node, INSTALL, &inside, || node.run('B', false, &upgrade));
    // The ways back write no byte of it.
    let told = node.run('B', false, &["rollback"]).succeeds().stderr;
    assert!(told.contains("partition 8"), "{told}");
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
}

/// Change the entries of the primary table, with the right checksums.
fn with_primary_table(node: &Node, change: impl FnOnce(&mut [u8])) {
    let mut table = read_at(&node.disk, 512, 512 + 128 * 128);
    let (header, entries) = table.split_at_mut(512);
    change(entries);
    header[88..92].copy_from_slice(&crc32fast::hash(entries).to_le_bytes());
    header[16..20].fill(0);
    let crc = crc32fast::hash(&header[..92]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    write_at(&node.disk, 512, &table);
}

#[test]
fn a_running_system_that_is_not_known() {
    let world = World::new();
    let node = Node::installed(&world);
    let source = node.next.source();
    let other = "slipway.slot=A slipway.disk=00000000-0000-0000-0000-000000000007 slipway.try=0";
    let why = "it is not known which slot is safe to write; ";
    for (verb, why) in [
        (&["upgrade", "--source", &source][..], why),
        (&["stage", "--source", &source], why),
        (&["activate"], why),
        (&["confirm"], "there is no running trial to confirm"),
    ] {
        let texts = ["not a system that Slipway's boot rule started", why];
        refused(&node, INSTALL, &texts, || node.run_under("quiet", verb));
        let texts = ["a system on the disk 00000000-0000-0000-0000-000000000007", why];
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
    // One copy is enough.
    let told = node.run('A', false, &["confirm"]).succeeds().stderr;
    assert!(told.contains("slipway/boot.env alone holds the boot state"), "{told}");
    tool!("mdel", "-i", &esp, "::/slipway/boot.env");
    for attempt in [&["confirm"][..], &["rollback"], &["upgrade", "--source", &node.next.source()]] {
        let mended = format!("`installer repair --disk {}` puts them", node.disk.display());
        let texts = ["neither slipway/boot.env nor slipway/boot2.env on the ESP", &mended];
        // Nothing to confirm is found first only where the boot state can be told.
        refused(&node, INSTALL, &texts, || node.run('A', false, attempt));
    }
    node.run('A', false, &["repair"]).succeeds();
    node.upgrade().succeeds();
}

#[test]
fn both_copies_of_boot_env_damaged() {
    let world = World::new();
    let node = Node::installed(&world);
    for at in node.boot_envs() {
        write_at(&node.disk, at, &[0; 512]);
    }
    // A slot that is not whole is not made the default.
    let texts = ["both copies of boot.env are damaged", "installer repair"];
    refused(&node, INSTALL, &texts, || node.run('B', true, &["confirm"]));
    node.upgrade().succeeds();
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["next_boot"]["trial"]), (&"B".into(), &true.into()));
    assert_eq!(status["boot_env"]["default"], "A");
}

/// Until the loader is back, nothing that is upgraded starts under UEFI. That is said first, whatever else the ESP has.
#[test]
fn an_esp_without_a_loader_and_with_files_that_share_clusters() {
    let world = World::new();
    let node = Node::installed(&world);
    let offset = partition(&node.disk, "EFI").offset;
    let at = format!("{}@@{offset}", node.disk.display());
    tool!("mdel", "-i", &at, "::/EFI/BOOT/BOOTX64.EFI");
    let shown = tool!("mshowfat", "-i", &at, "::/SLIPWAY/history");
    let history: u64 = shown.split_once('<').unwrap().1.split(['-', '>']).next().unwrap().parse().unwrap();
    let fat = offset + u64::from(u16::from_le_bytes(read_at(&node.disk, offset + 14, 2).try_into().unwrap())) * 512;
    let second = fat + u64::from(u32::from_le_bytes(read_at(&node.disk, offset + 36, 4).try_into().unwrap())) * 512;
    // It goes on in the root directory.
    [fat, second].iter().for_each(|fat| write_at(&node.disk, fat + 4 * history, &2_u32.to_le_bytes()));
    let upgrade = ["upgrade", "--output=json", "--source", &node.next.source()];
    let report = node.run_under(&node.cmdline('A', false), &upgrade).succeeds().json();
    let repair = format!("`installer repair --disk {}` makes the ESP again", node.disk.display());
    let missing = format!("EFI/BOOT/BOOTX64.EFI is missing from the ESP; {repair}");
    let warnings = report["plan"]["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning.as_str().unwrap().contains(&missing)), "{report}");
    on_disk(&node.disk, &["repair"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["problems"], serde_json::json!([]));
}

/// The other slot is not given up for a payload that there is no room for.
#[test]
fn an_image_file_on_a_full_file_system() {
    let world = World::new();
    let small = SmallFs::new(&world);
    let disk = small.path("os.img");
    File::create(&disk).unwrap().set_len(world::IMAGE_BYTES).unwrap();
    world.install(&disk, &["--format-data=false"]).succeeds();
    let node = Node::of(&world, disk);
    let (cmdline, source) = (node.cmdline('A', false), node.next.source());
    let upgrade = || node.run_under(&cmdline, &["upgrade", "--source", &source]);
    small.leave_free(64 << 10);
    refused(&node, INSTALL, &["nothing was written: no room for ", "No space left on device"], upgrade);
    fs::remove_file(small.path("filler")).unwrap();
    upgrade().succeeds();
}
