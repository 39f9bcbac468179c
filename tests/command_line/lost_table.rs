//! A disk without a partition table, or with a wrong one: what it is, and what brings the table back.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use serde_json::json;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, IMAGE_BYTES, IMAGE_BYTES_4096, Loop, Node, Outcome, Range, SLOT_4096, World, finished, flip,
        installer, json_of, noise, on_disk, partition, program, read_at, tool, write_at,
    },
};

use super::volumes::THEIRS;

/// The damage that a tool does to a disk image, and its name.
type Use<'u> = (&'u str, &'u dyn Fn(&Path));

fn repair_command(image: &Path) -> String {
    format!("`installer repair --disk {}`", image.display())
}

/// Whatever became of LBA 0: it is as before, and so is all else. The boot code stands on the ESP as a digest only, so that it
/// is known to be the right one.
#[test]
fn repair_writes_lba_0_again() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    let (before, lba0) = (Content::of(&image), read_at(&image, 0, 512));
    let lost: [(&str, &dyn Fn()); 6] = [
        ("zeroed", &|| write_at(&image, 0, &[0; 512])),
        ("garbage", &|| write_at(&image, 0, &[0xa7; 512])),
        ("its partition lost", &|| write_at(&image, 446, &[0; 64])),
        ("a wrong bit in its signature", &|| flip(&image, 510)),
        ("a wrong bit in the type of its partition", &|| flip(&image, 446 + 4)),
        ("a wrong bit in the first block of its partition", &|| flip(&image, 446 + 8)),
    ];
    for (n, (what, lose)) in lost.into_iter().enumerate() {
        lose();
        for verb in [&["status"][..], &["verify"], &["meta", "list"], &["history"]] {
            let outcome = on_disk(&image, verb).exits(INSTALL);
            let says = ["LBA 0 is lost", "all data is there", &repair_command(&image)];
            assert!(says.iter().all(|says| outcome.stderr.contains(says)), "{what}: {verb:?}: {}", outcome.stderr);
        }
        let inspect = Outcome::of(installer(["inspect"]).arg(&image));
        inspect.exits(INSTALL).says(&["LBA 0 is lost", &repair_command(&image)]);
        let seen = Content::of(&image);
        let dry = on_disk(&image, &["repair", "--dry-run"]).succeeds().stdout;
        assert!(dry.contains("write      LBA 0: boot code and protective MBR   <- commit point"), "{dry}");
        assert!(Content::of(&image) == seen, "a dry run writes nothing");
        let report = on_disk(&image, &["repair", "--output=json"]).succeeds().json();
        assert_eq!(report["changed"], true, "{what}");
        // It may have been marked as bootable.
        let warnings = report["plan"]["warnings"].to_string();
        assert_eq!((warnings.contains("marked as bootable"), warnings == "[]"), (n < 3, n >= 3), "{what}: {warnings}");
        assert_eq!(read_at(&image, 0, 512), lba0, "{what}");
        assert!(Content::of(&image) == before, "{what}: something else was written");
        on_disk(&image, &["verify"]).succeeds();
    }
    let again = on_disk(&image, &["repair"]).succeeds().stdout;
    assert!(again.starts_with("nothing to do"), "{again}");
}

/// A BIOS that wants the mark does not start the disk without it.
#[test]
fn an_lba_0_that_was_marked_as_bootable_still_is() {
    let world = World::new();
    let image = world.installed(&[]);
    write_at(&image, 446, &[0x80]);
    let lba0 = read_at(&image, 0, 512);
    for at in [510, 450, 454] {
        flip(&image, at);
        on_disk(&image, &["repair"]).succeeds();
        assert_eq!(read_at(&image, 0, 512), lba0, "{at}");
    }
    // What is all lost is not guessed, and the command that is told marks it again.
    write_at(&image, 0, &[0; 512]);
    let told = on_disk(&image, &["repair"]).succeeds().stderr;
    let command = told.split('`').find(|word| word.starts_with("printf ")).unwrap_or_else(|| panic!("{told}"));
    tool!("sh", "-c", command);
    assert_eq!(read_at(&image, 0, 512), lba0);
    on_disk(&image, &["verify"]).succeeds();
}

/// The first MiB is what `dd` hits most often: LBA 0 and the first copy of the table.
#[test]
fn the_second_copy_of_the_table_is_enough() {
    let world = World::new();
    let image = world.installed(&[]);
    write_at(&image, 0, &vec![0; MIB as usize]);
    let first = on_disk(&image, &["repair"]).succeeds().stdout;
    assert!(first.contains("LBA 0 is still lost"), "{first}");
    on_disk(&image, &["repair"]).succeeds();
    let status = json_of(&image, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["problems"]), (&json!("A"), &json!([])));
}

/// Nothing tells the sectors of an image file but what is in it.
#[test]
fn an_image_with_sectors_of_4096_bytes_keeps_them() {
    let world = World::new();
    for lost in [&[0][..], &[0, IMAGE_BYTES_4096 - MIB]] {
        let image = world.sparse("4096.img", IMAGE_BYTES_4096);
        world.install(&image, &[SLOT_4096, "--sector-size=4096"]).succeeds();
        let table = read_at(&image, 4096, 4096 + 16384);
        lost.iter().for_each(|at| write_at(&image, *at, &vec![0; MIB as usize]));
        on_disk(&image, &["repair"]).succeeds();
        on_disk(&image, &["repair"]).succeeds();
        let status = json_of(&image, &["status"]);
        assert_eq!((&status["sector_bytes"], &status["problems"]), (&json!(4096), &json!([])));
        if lost.len() == 1 {
            assert!(read_at(&image, 4096, 4096 + 16384) == table);
        }
    }
}

/// A table for the sectors that a USB bridge shows would be none without it.
#[test]
fn no_table_is_written_for_sectors_of_another_size() {
    let world = World::new();
    for (own, other) in [("512", "4096"), ("4096", "512")] {
        for lost in [&[0][..], &[0, IMAGE_BYTES_4096 - MIB]] {
            let image = world.sparse("disk.img", IMAGE_BYTES_4096);
            world.install(&image, &[SLOT_4096, &format!("--sector-size={own}")]).succeeds();
            lost.iter().for_each(|at| write_at(&image, *at, &vec![0; MIB as usize]));
            let shown = Loop::attach(&image, &["--sector-size", other]);
            let before = shown.content();
            for verb in ["status", "repair"] {
                let outcome = on_disk(&shown.node, &[verb]).exits(INSTALL);
                outcome.says(&[&format!("for sectors of {own} bytes"), &format!("sectors of {other} bytes")]);
            }
            assert!(shown.content() == before, "{own}");
        }
    }
}

/// Where the first slot has lost its beginning, too, the second one says where it is.
#[test]
fn a_table_that_is_erased_beside_a_lost_slot() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let slot = partition(&node.disk, "BOOT-A").offset;
    let guid = json_of(&node.disk, &["status"])["disk_guid"].clone();
    write_at(&node.disk, slot, &vec![0; MIB as usize]);
    tool!("sgdisk", "--zap-all", &node.disk);
    on_disk(&node.disk, &["repair"]).succeeds();
    on_disk(&node.disk, &["repair"]);
    let status = json_of(&node.disk, &["status"]);
    assert_eq!(status["next_boot"]["slot"], "B", "{status}");
    // Its systems know the disk by it.
    assert_eq!(status["disk_guid"], guid);
    assert_eq!(partition(&node.disk, "BOOT-A").offset, slot);
}

/// What a slot says that does not boot may be damage.
#[test]
fn the_guid_of_a_lost_table_is_that_of_a_slot_that_boots() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let guid = json_of(&node.disk, &["status"])["disk_guid"].clone();
    let cfg = node.file("A", "slot.cfg");
    let text = read_at(&node.disk, cfg, 1024);
    let at = text.windows(5).position(|bytes| bytes == b"guid=").unwrap();
    let other = if text[at + 5] == b'0' { b'1' } else { b'0' };
    write_at(&node.disk, cfg + at as u64 + 5, &[other]);
    tool!("sgdisk", "--zap-all", &node.disk);
    on_disk(&node.disk, &["repair"]).succeeds();
    on_disk(&node.disk, &["repair"]);
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["disk_guid"]), (&"B".into(), &guid), "{status}");
}

/// Boot code that this installer does not have is not guessed.
#[test]
fn boot_code_that_is_lost_is_told() {
    let world = World::new();
    let image = world.installed(&[]);
    write_at(&image, 0, &[0; 512]);
    let outcome = Outcome::of(installer(["repair", "--disk"]).arg(&image).env("SLIPWAY_ASSETS", world.path("nothing")));
    let update = format!("`installer bootloader update --disk {} --offline`", image.display());
    outcome.succeeds().says(&["the boot code for a BIOS is lost", &update]);
    on_disk(&image, &["bootloader", "update", "--offline", "--efi-loader=slipway"]).succeeds();
    on_disk(&image, &["verify"]).succeeds();
}

/// A sector at the end is missing, and all partitions are there: the first copy has to name the new place of the second one.
#[test]
fn a_disk_that_lost_its_last_sector() {
    let world = World::new();
    let image = world.installed(&[]);
    OpenOptions::new().write(true).open(&image).unwrap().set_len(IMAGE_BYTES - 512).unwrap();
    on_disk(&image, &["repair"]).succeeds();
    assert_eq!(json_of(&image, &["status"])["problems"], json!([]));
    let verified = tool!("sgdisk", "--verify", &image);
    assert!(verified.contains("No problems found"), "{verified}");
}

/// Nothing is made smaller to fit.
#[test]
fn a_disk_that_shrank_and_lost_its_table() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    OpenOptions::new().write(true).open(&image).unwrap().set_len(IMAGE_BYTES - 20 * MIB).unwrap();
    for lost in [0, 512] {
        write_at(&image, 512, &vec![0; lost]);
        let before = Content::of(&image);
        for verb in ["status", "repair"] {
            on_disk(&image, &[verb]).exits(INSTALL).says(&["make it as large as it was"]);
        }
        assert!(Content::of(&image) == before, "{lost} bytes of the table lost: it was written to");
    }
    OpenOptions::new().write(true).open(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    on_disk(&image, &["repair"]).succeeds();
    // What lay behind the end is lost.
    let problems = json_of(&image, &["status"])["problems"].clone();
    let [problem] = &problems.as_array().unwrap()[..] else { panic!("{problems}") };
    assert!(problem.as_str().unwrap().starts_with("EPHEMERAL: the end of its XFS file system is lost"), "{problem}");
}

/// A disk that another program has begun to use is left alone, though our table still stands behind it.
#[test]
fn what_is_in_use_by_others_is_not_mended() {
    let world = World::new();
    let put: [Use; 2] = [
        ("an MBR", &|image| {
            let script = "label: dos\nstart=2048, size=204800, type=83\n";
            finished(program("sfdisk").args(["--quiet", "--wipe", "never"]).arg(image).write_stdin(script));
        }),
        ("an ext4", &|image| drop(tool!("mkfs.ext4", "-q", "-F", image))),
    ];
    for (what, put) in put {
        let image = world.installed(&[]);
        write_at(&image, 0, &[0; 512]);
        put(&image);
        is_left_alone(&image, what);
        fs::remove_file(&image).unwrap();
    }
    let image = world.installed(&[]);
    for (what, at, magic) in &THEIRS {
        let before = read_at(&image, *at, magic.len());
        write_at(&image, 0, &[0; 512]);
        write_at(&image, *at, magic);
        is_left_alone(&image, what);
        write_at(&image, *at, &before);
    }
    // In the ring of labels of ZFS, wherever the next one goes; with it goes a block over our table.
    for at in [128 << 10, 250 << 10] {
        let theirs = [(at, &b"\x0c\xb1\xba"[..]), (8192, b"boot block")];
        theirs.iter().for_each(|(at, bytes)| write_at(&image, *at, bytes));
        is_left_alone(&image, "ZFS");
        theirs.iter().for_each(|(at, bytes)| write_at(&image, *at, &vec![0; bytes.len()]));
    }
    // What lies behind a table that is whole is older.
    write_at(&image, 512 << 10, b"old");
    on_disk(&image, &["repair"]).succeeds();
}

fn is_left_alone(image: &Path, what: &str) {
    let seen = Content::of(image);
    let outcome = on_disk(image, &["repair"]).exits(INSTALL);
    assert!(!outcome.stderr.contains("LBA 0 is lost"), "{what}: {}", outcome.stderr);
    assert!(Content::of(image) == seen, "{what}: overwritten");
}

/// Five disks without a table, and five sentences.
#[test]
fn each_disk_without_a_table_says_what_it_is() {
    let world = World::new();
    let says = |image: &Path, what: &str| {
        let stderr = on_disk(image, &["status"]).exits(INSTALL).stderr;
        assert!(stderr.contains(what), "{what}: {stderr}");
    };
    let empty = world.sparse("empty", IMAGE_BYTES);
    says(&empty, "the disk begins with 69632 zeros: it is empty, or erased");
    let random = world.sparse("random", IMAGE_BYTES);
    write_at(&random, 0, &noise(3, MIB as usize));
    says(&random, "the disk begins with data of no known format");
    let image = world.installed(&[]);
    let qcow2 = world.path("disk.qcow2");
    tool!("qemu-img", "convert", "-O", "qcow2", &image, &qcow2);
    says(&qcow2, "it is a qcow2 image: unpack it, or convert it with qemu-img convert -O raw");
    // As an installation leaves it that stops after the ESP.
    write_at(&image, 0, &vec![0; MIB as usize]);
    write_at(&image, IMAGE_BYTES - MIB, &vec![0; MIB as usize]);
    write_at(&image, 302 * MIB, &vec![0; MIB as usize]);
    says(&image, "an installation on it has not ended: run it again");
    // The command that is advised makes it.
    let command = format!("`installer install --disk {} --source SOURCE` installs it anew", image.display());
    says(&image, &command);
    world.install(&image, &[]).succeeds();
}

/// Without META nothing tells it from an installation that was cut off over an older system.
#[test]
fn a_system_that_was_in_use_and_has_lost_too_much() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let meta = partition(&node.disk, "META").offset;
    write_at(&node.disk, meta, &vec![0; MIB as usize]);
    tool!("sgdisk", "--zap-all", &node.disk);
    let before = Content::of(&node.disk);
    let new = format!("installer install --disk {} --source SOURCE --force", node.disk.display());
    let remedy = format!("next step: no data on it can be kept: `{new}` makes a new system");
    for verb in ["status", "verify", "repair"] {
        on_disk(&node.disk, &[verb]).exits(INSTALL).says(&["a Slipway system that was in use", &remedy]);
    }
    Outcome::of(installer(["inspect"]).arg(&node.disk)).exits(INSTALL).says(&[&remedy]);
    assert!(Content::of(&node.disk) == before);
    world.install(&node.disk, &["--force"]).succeeds();
}

/// It is the next step, for people and for programs.
#[test]
fn what_brings_it_back_is_the_remedy() {
    let world = World::new();
    let image = world.installed(&[]);
    write_at(&image, 0, &[0; 512]);
    for verb in ["status", "verify", "history", "inspect"] {
        let outcome = match verb {
            "inspect" => Outcome::of(installer([verb, "--output=json"]).arg(&image)),
            _ => on_disk(&image, &[verb, "--output=json"]),
        };
        let remedy = format!("`installer repair --disk {}` writes LBA 0 again, and keeps all data", image.display());
        assert_eq!(outcome.json()["remedy"], remedy);
        assert_eq!(outcome.stderr.matches(&remedy).count(), 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("\nnext step: {remedy}")), "{}", outcome.stderr);
    }
}

/// It has the second copy of its table where it ended, and only `repair` looks for it there.
#[test]
fn an_image_on_a_larger_disk_keeps_its_partuuids() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    let guid = |n: u32| {
        let info = tool!("sgdisk", "-i", n.to_string(), &image);
        info.lines().find(|line| line.contains("unique GUID")).unwrap().to_owned()
    };
    let guids = || (1..=7).map(guid).collect::<Vec<_>>();
    let before = guids();
    OpenOptions::new().write(true).open(&image).unwrap().set_len(2 * IMAGE_BYTES).unwrap();
    write_at(&image, 512, &[0; 512]);
    let report = on_disk(&image, &["repair", "--output=json"]).succeeds().json().to_string();
    assert!(!report.contains("new PARTUUIDs"), "{report}");
    assert_eq!(guids(), before);
    on_disk(&image, &["verify"]).succeeds();
}

/// Both copies of the entries of an image with sectors of 512 bytes, with checksums that fit.
pub fn set_entries(image: &Path, entries: &[u8]) {
    for (header, array) in [(512, 1024), (IMAGE_BYTES - 512, IMAGE_BYTES - 33 * 512)] {
        let mut block = read_at(image, header, 512);
        block[88..92].copy_from_slice(&crc32fast::hash(entries).to_le_bytes());
        block[16..20].fill(0);
        let crc = crc32fast::hash(&block[..92]);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
        write_at(image, array, entries);
        write_at(image, header, &block);
    }
}

pub fn entries(image: &Path) -> Vec<u8> {
    read_at(image, 1024, 128 * 128)
}

/// Partition `number`, with its first and last block so many blocks later.
pub fn shifted(entries: &[u8], number: usize, first: i64, last: i64) -> Vec<u8> {
    let mut entries = entries.to_vec();
    for (at, by) in [(32, first), (40, last)] {
        let field = &mut entries[(number - 1) * 128 + at..][..8];
        let lba = u64::from_le_bytes(<[u8; 8]>::try_from(&*field).unwrap()).checked_add_signed(by).unwrap();
        field.copy_from_slice(&lba.to_le_bytes());
    }
    entries
}

/// All but the first copy of the table: a repair leaves other bytes behind it.
fn behind_the_table(image: &Path) -> Content {
    Content::of(image).without(Range { offset: 0, len: 64 << 10 })
}

/// Words of one form do not say which partition is which. The file systems do.
#[test]
fn placeholders_of_one_form_exchange_no_partitions() {
    let world = World::new();
    let [state, ephemeral] =
        ["state", "ephemeral"].map(|part| format!("--extra-kernel-arg=data=PARTUUID=@{part}-partuuid@"));
    let image = world.installed(&["--format-data=true", &state, &ephemeral]);
    on_disk(&image, &["status"]).succeeds();
    let right = entries(&image);
    let mut wrong = right.clone();
    wrong[5 * 128..7 * 128].fill(0);
    set_entries(&image, &wrong);
    on_disk(&image, &["repair"]).succeeds();
    assert!(entries(&image) == right);
    on_disk(&image, &["status"]).succeeds();
}

/// The entries that an image has become the right ones again, by the advice of `status`, and no other byte is written.
fn is_advised_and_mended(image: &Path, right: &[u8], wrong: &[u8], what: &str) {
    let before = behind_the_table(image);
    set_entries(image, wrong);
    let status = on_disk(image, &["status"]);
    let said = format!("{}{}", status.stdout, status.stderr).replace('\u{a0}', " ");
    assert!(said.contains(&format!("installer repair --disk {}", image.display())), "{what}: {said}");
    on_disk(image, &["verify"]).exits(INSTALL);
    on_disk(image, &["repair"]).succeeds();
    assert!(entries(image) == right && behind_the_table(image) == before, "{what}");
    on_disk(image, &["verify"]).succeeds();
}

/// The boot loader goes by the number. So no name makes another version boot.
#[test]
fn names_that_were_exchanged_move_no_slot() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let (before, boots) = (entries(&node.disk), json_of(&node.disk, &["status"])["next_boot"].clone());
    tool!(
        "sgdisk",
        "--change-name=3:BOOT-B",
        "--change-name=4:BOOT-A",
        "--change-name=5:STATE",
        "--change-name=6:META",
        &node.disk
    );
    on_disk(&node.disk, &["status"])
        .exits(INSTALL)
        .says(&["partition 3 is called \"BOOT-B\"", &repair_command(&node.disk)]);
    on_disk(&node.disk, &["repair"]).succeeds();
    assert!(entries(&node.disk) == before);
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"], boots);
    // As a whole they are in the wrong order.
    tool!("sgdisk", "--transpose=3:4", &node.disk);
    on_disk(&node.disk, &["repair"]).succeeds();
    assert!(entries(&node.disk) == before);
}

/// People make a partition larger by deleting its entry, and putting another one there.
#[test]
fn an_entry_that_lies_beside_its_volume() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    let table = entries(&image);
    // The last ones reach into others.
    for (number, first, last) in [
        (6, 8, 0),
        (6, 8, 8),
        (7, 8, 0),
        (7, 4096, 0),
        (7, 0, -2048),
        (2, 8, 0),
        (1, 0, -2048),
        (1, 0, 2048),
        (3, 0, 2048),
        (4, 0, 2048),
        (6, -8, 0),
        (7, -8, 0),
    ] {
        let what = format!("partition {number} by {first} and {last} blocks");
        is_advised_and_mended(&image, &table, &shifted(&table, number, first, last), &what);
    }
}

/// An encrypted volume says where it begins.
#[test]
fn an_entry_that_lies_beside_an_encrypted_volume() {
    let world = World::new();
    let image = world.installed(&[]);
    let table = entries(&image);
    for (number, name) in [(6, "STATE"), (7, "EPHEMERAL")] {
        let place = partition(&image, name).offset;
        write_at(&image, place, b"LUKS\xba\xbe\0\x02");
        write_at(&image, place + 8 * 512, &noise(5, 4096));
        is_advised_and_mended(&image, &table, &shifted(&table, number, 8, 0), name);
    }
}

/// A table with fewer entries, as `sgdisk --resize-table` makes it, is taken as it is; and either copy of it comes back.
#[test]
fn a_copy_of_a_smaller_table_is_written_again() {
    let world = World::new();
    let image = world.installed(&[]);
    tool!("sgdisk", "--resize-table=64", &image);
    let status = || json_of(&image, &["status"]);
    assert_eq!(status()["problems"], json!([]));
    for at in [512, 1024, IMAGE_BYTES - 512] {
        write_at(&image, at, &[0; 512]);
        let next = status()["next_step"].to_string();
        assert!(next.contains("installer repair --disk"), "{next}");
        on_disk(&image, &["repair"]).succeeds();
        assert_eq!(status()["problems"], json!([]), "byte {at}");
        for header in [512, IMAGE_BYTES - 512] {
            assert_eq!(read_at(&image, header + 80, 4), [64, 0, 0, 0]);
        }
    }
}
