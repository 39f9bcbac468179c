//! What `repair` brings back, and what nothing says is well: the partition table, the ESP with what others have on it, and
//! the volumes of the OS.

use std::path::Path;

use serde_json::json;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, IMAGE_BYTES, Node, Outcome, Payload, Range, World, extract, finished, flip, installer, json_of, noise,
        on_disk, partition, program, read_at, refused, tool, write_at,
    },
};

pub const PARTS: [&str; 7] = ["EFI", "BIOS", "BOOT-A", "BOOT-B", "META", "STATE", "EPHEMERAL"];

pub fn installed(world: &World) -> std::path::PathBuf {
    world.installed(&["--format-data=true"])
}

/// `status` and `verify` say what is wrong, `repair` mends it, and then all is well.
#[track_caller]
pub fn is_mended(image: &Path, problem: &str) {
    let (status, verify) = (on_disk(image, &["status"]).exits(INSTALL), on_disk(image, &["verify"]).exits(INSTALL));
    for outcome in [&status, &verify] {
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(text.contains(problem), "{problem}: {text}");
        assert!(text.contains(&format!("installer repair --disk {}", image.display())), "{problem}: {text}");
    }
    let said = on_disk(image, &["repair"]).succeeds().stdout;
    assert!(!said.contains("nothing to do"), "{problem}: {said}");
    on_disk(image, &["verify"]).succeeds();
    assert_eq!(json_of(image, &["status"])["problems"], json!([]), "{problem}");
}

/// A number in the first sector of the ESP.
fn field(image: &Path, at: u64, len: usize) -> u64 {
    read_at(image, MIB + at, len).iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Where the directory EFI/BOOT lies on the disk: the root comes first, and then EFI.
fn third_cluster(image: &Path) -> u64 {
    MIB + (field(image, 14, 2) + 2 * field(image, 36, 4) + 2 * field(image, 13, 1)) * 512
}

fn esp(image: &Path) -> String {
    format!("{}@@1M", image.display())
}

/// Linux does not mount an ESP without the number of free clusters, and its first sector may be lost some day.
#[test]
fn a_sector_of_the_esp_that_has_a_copy_is_as_it_was() {
    let world = World::new();
    let image = installed(&world);
    let count = "the sector with the number of free clusters";
    for (number, what) in [(1, count), (6, "the copy of the first sector"), (7, &format!("the copy of {count}"))] {
        let at = MIB + number * 512;
        let before = read_at(&image, at, 512);
        write_at(&image, at, &[0; 512]);
        is_mended(&image, &format!("{what} of the ESP is damaged (byte {at} of the disk)"));
        assert!(read_at(&image, at, 512) == before, "{what}");
    }
}

/// By fields that other kinds of FAT have, and by its version.
#[test]
fn a_first_sector_of_the_esp_that_grub_refuses_is_as_it_was() {
    let world = World::new();
    let image = installed(&world);
    let before = read_at(&image, MIB, 512);
    for field in [19, 42] {
        write_at(&image, MIB + field, &[0x80]);
        is_mended(&image, "the first sector of the ESP is damaged");
        assert!(read_at(&image, MIB, 512) == before, "{field}");
    }
    // Its copy says the same. No boot loader finds what is put onto such an ESP: it is made again.
    [0, 6].iter().for_each(|number| write_at(&image, MIB + number * 512 + 42, &[0x80]));
    is_mended(&image, "the ESP cannot be read");
}

/// Of two FATs the one that does not begin as a FAT is the damaged one, and the other one brings it back.
#[test]
fn a_fat_that_does_not_begin_as_one_is_not_copied_over_the_other() {
    let world = World::new();
    let image = installed(&world);
    let first = MIB + field(&image, 14, 2) * 512;
    for (at, which) in [(first, "first"), (first + field(&image, 36, 4) * 512, "second")] {
        let before = read_at(&image, at, 512);
        write_at(&image, at, &[before[0] ^ 1]);
        let status = on_disk(&image, &["status"]).exits(INSTALL).stdout;
        assert!(status.contains(&format!("the {which} FAT of the ESP is damaged (byte {at} of the disk)")), "{status}");
        on_disk(&image, &["repair"]).succeeds();
        on_disk(&image, &["verify"]).succeeds();
        assert!(read_at(&image, at, 512) == before, "{which}");
    }
}

/// A repair of blank META begins with one of two copies. A power cut ends the write of that anywhere.
#[test]
fn a_repair_of_blank_meta_that_was_cut_is_finished() {
    let world = World::new();
    let image = installed(&world);
    let meta = partition(&image, "META");
    let copy = 256 << 10;
    write_at(&image, meta.offset, &vec![0; 2 * copy]);
    on_disk(&image, &["repair"]).succeeds();
    let written = read_at(&image, meta.offset, copy);
    for part in [0..512, 512..copy] {
        write_at(&image, meta.offset, &vec![0; 2 * copy]);
        write_at(&image, meta.offset + part.start as u64, &written[part]);
        is_mended(&image, "the first copy of META is not valid");
        assert!(read_at(&image, meta.offset, copy) == written);
    }
}

#[test]
fn an_entry_with_another_type_or_name_is_as_it_was() {
    let world = World::new();
    let image = installed(&world);
    // sgdisk writes an LBA 0 of its own.
    let table = Range { offset: 0, len: 64 << 10 };
    let content = || Content::of(&image).without(table);
    let entry = |n: usize| tool!("sgdisk", format!("--info={n}"), &image);
    let before = content();
    for (n, name) in (1..).zip(PARTS) {
        let entry_before = entry(n);
        tool!("sgdisk", format!("--typecode={n}:8200"), &image);
        is_mended(&image, &format!("partition {n} ({name}) has the wrong type in the table: Linux swap"));
        assert!(content() == before && entry(n) == entry_before, "type of {name}");
        tool!("sgdisk", format!("--change-name={n}:other"), &image);
        is_mended(&image, &format!("partition {n} is called \"other\" in the table, and not {name}"));
        assert!(content() == before && entry(n) == entry_before, "name of {name}");
    }
}

/// All but the PARTUUID is as it was; of the volumes of the OS that, too.
#[test]
fn an_entry_that_was_deleted_is_there_again() {
    let world = World::new();
    let image = installed(&world);
    let is = |n: usize| {
        let info = tool!("sgdisk", format!("--info={n}"), &image);
        let line = |begin: &str| info.lines().find(|line| line.starts_with(begin)).unwrap().to_owned();
        let unique = line("Partition unique GUID");
        (["Partition GUID code", "First sector", "Last sector", "Attribute flags", "Partition name"].map(line), unique)
    };
    for (n, name) in (1..).zip(PARTS) {
        let before = is(n);
        tool!("sgdisk", format!("--delete={n}"), &image);
        is_mended(&image, &format!("partition {n} ({name}) is missing from the table"));
        let after = is(n);
        assert_eq!(after.0, before.0, "{name}");
        assert_eq!(after.1 == before.1, n > 5, "{name}: {before:?} {after:?}");
    }
    assert!(tool!("sgdisk", "--verify", &image).contains("No problems found"));
}

#[test]
fn both_copies_of_the_table_are_made_from_what_lies_on_the_disk() {
    for data in ["--format-data=true", "--format-data=false"] {
        let world = World::new();
        let image = world.installed(&[data]);
        let parts = json_of(&image, &["status"])["partitions"].clone();
        let lose = |from: u64| {
            write_at(&image, from, &vec![0; (MIB - from) as usize]);
            write_at(&image, IMAGE_BYTES - 33 * 512, &[0; 33 * 512]);
        };
        lose(512);
        is_mended(&image, "both copies of it are lost");
        assert_eq!(json_of(&image, &["status"])["partitions"], parts);
        // LBA 0, too, as `sgdisk --zap-all` and `wipefs` leave it. It is no empty disk, though it was never in use.
        lose(0);
        refused(&image, INSTALL, &["not empty", "a Slipway system"], || world.install(&image, &[data]));
        let first = on_disk(&image, &["repair"]).succeeds().stdout;
        assert!(first.contains("LBA 0 is still lost"), "{first}");
        on_disk(&image, &["repair"]).succeeds();
        on_disk(&image, &["verify"]).succeeds();
        assert_eq!(json_of(&image, &["status"])["partitions"], parts);
        assert!(tool!("sgdisk", "--verify", &image).contains("No problems found"));
    }
}

/// Nothing else says that it is wrong: its checksums are right.
#[test]
fn a_first_copy_with_wrong_places() {
    let world = World::new();
    let image = installed(&world);
    let header = read_at(&image, 512, 512);
    for (field, lba) in [(32, 0), (32, IMAGE_BYTES / 512 - 100), (40, IMAGE_BYTES / 512), (48, IMAGE_BYTES / 512 + 7)] {
        let mut wrong = header.clone();
        wrong[field..field + 8].copy_from_slice(&lba.to_le_bytes());
        wrong[16..20].fill(0);
        let crc = crc32fast::hash(&wrong[..92]);
        wrong[16..20].copy_from_slice(&crc.to_le_bytes());
        write_at(&image, 512, &wrong);
        is_mended(&image, "the first copy of the partition table is damaged");
        assert!(read_at(&image, 512, 512) == header, "{field}");
    }
}

/// FAT32 keeps a copy of it. What others have on the ESP stays.
#[test]
fn the_first_sector_of_the_esp_comes_back() {
    let world = World::new();
    let image = installed(&world);
    tool!("mmd", "-i", esp(&image), "::EFI/others");
    let before = Content::of(&image);
    let lost: [&dyn Fn(); 7] = [
        &|| write_at(&image, MIB, &[0; 512]),
        &|| flip(&image, MIB + 13),
        &|| flip(&image, MIB + 82),
        &|| flip(&image, MIB + 510),
        // More sectors than the partition has; one FAT alone in force; EFI as the root.
        &|| write_at(&image, MIB + 34, &[0xff]),
        &|| write_at(&image, MIB + 40, &[0x81]),
        &|| write_at(&image, MIB + 44, &[3]),
    ];
    for lose in lost {
        lose();
        is_mended(&image, "the first sector of the ESP is damaged");
        assert!(Content::of(&image) == before);
    }
    // What is lost behind it is mended by the same command.
    tool!("mdel", "-i", esp(&image), "::slipway/boot2.env");
    write_at(&image, MIB, &[0; 512]);
    let said = on_disk(&image, &["repair"]).succeeds();
    assert!(said.stderr.contains("the first sector of the ESP is written again"), "{}", said.stderr);
    assert!(said.stdout.contains("the boot state has two copies"), "{}", said.stdout);
    on_disk(&image, &["verify"]).succeeds();
}

/// One wrong character of its long name makes it a file of others, with the short name of ours: `fsck.vfat` finds no fault.
#[test]
fn a_file_that_has_a_name_of_ours_is_told() {
    let world = World::new();
    let image = installed(&world);
    let head = read_at(&image, MIB, 16 << 20);
    let short = head.chunks(32).position(|entry| entry.starts_with(b"BOOT2   ENV")).unwrap() as u64;
    write_at(&image, MIB + (short - 1) * 32 + 9, b"3");
    for verb in ["status", "repair"] {
        let said = on_disk(&image, &[verb]).exits(INSTALL);
        let said = [said.stdout, said.stderr].concat();
        assert!(said.contains("elsewhere (slipway/boot3.env)") && !said.contains("fsck"), "{said}");
    }
    let dry = on_disk(&image, &["repair", "--dry-run"]).succeeds().stderr;
    assert!(dry.contains("not repaired: slipway/boot2.env"), "{dry}");
    tool!("mdel", "-i", esp(&image), "::slipway/boot3.env");
    on_disk(&image, &["repair"]).succeeds();
    on_disk(&image, &["verify"]).succeeds();
}

/// `repair` says so, too; it does not make a new one.
#[test]
fn a_default_without_a_marker_is_told() {
    let world = World::new();
    let image = installed(&world);
    tool!("mdel", "-i", format!("{}@@{}", image.display(), partition(&image, "BOOT-A").offset), "::slot.env");
    for (verb, code) in [("status", 0), ("verify", 0), ("repair", INSTALL)] {
        let said = on_disk(&image, &[verb]).exits(code);
        assert!([said.stdout, said.stderr].concat().contains("next upgrade writes a slot that has one"), "{verb}");
    }
}

/// What others made of the disk since is theirs.
#[test]
fn a_table_of_others_is_not_mended() {
    let world = World::new();
    let image = installed(&world);
    tool!("sgdisk", "--clear", "--new=1:2048:+100M", "--new=2:0:+300M", &image);
    let seen = Content::of(&image);
    on_disk(&image, &["status"]).exits(INSTALL).says(&["no Slipway system is found on it"]);
    on_disk(&image, &["repair"]).exits(INSTALL);
    assert!(Content::of(&image) == seen, "it was written to");
}

#[test]
fn a_disk_that_shrank_says_how_large_it_was() {
    let world = World::new();
    let image = installed(&world);
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    let command = format!("truncate --size={IMAGE_BYTES} {}", image.display());
    // All of EPHEMERAL is there, and the second copy of the table would be written over its end.
    file.set_len(IMAGE_BYTES - MIB).unwrap();
    refused(&image, INSTALL, &["leaves no room there", &command], || on_disk(&image, &["repair"]));
    assert!(json_of(&image, &["status"])["next_step"].to_string().contains(&command), "status leads to a refusal");
    file.set_len(IMAGE_BYTES - 5 * MIB).unwrap();
    for verb in ["status", "verify", "repair"] {
        on_disk(&image, &[verb]).exits(INSTALL).says(&["EPHEMERAL ends beyond the end of the disk", &command]);
    }
    finished(program("sh").args(["-c", &command]));
    // The last allocation group begins before that, so nothing else tells of it afterwards.
    on_disk(&image, &["repair"]).succeeds().says(&[
        "the place of the backup GPT is blank",
        "EPHEMERAL has lost its end",
        "xfs_repair",
    ]);
    on_disk(&image, &["verify"]).succeeds();
}

/// It is as large as it was, and the table is whole again: that is no proof that all of EPHEMERAL is there.
#[test]
fn a_volume_that_lost_its_end_is_told() {
    let world = World::new();
    let image = installed(&world);
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.set_len(IMAGE_BYTES - 20 * MIB).unwrap();
    file.set_len(IMAGE_BYTES).unwrap();
    on_disk(&image, &["repair"]).succeeds();
    let at = partition(&image, "EPHEMERAL").offset;
    for verb in ["status", "verify"] {
        let text = on_disk(&image, &[verb]).exits(INSTALL).stdout;
        for says in
            ["EPHEMERAL: the end of its XFS file system is lost", "xfs_repair ", &format!("byte {at} of the disk")]
        {
            assert!(text.contains(says), "{verb}: {says}: {text}");
        }
    }
}

/// Whichever of the two FATs is damaged, the other one is taken.
#[test]
fn a_damaged_fat_is_what_the_other_one_is() {
    let world = World::new();
    let image = installed(&world);
    let before = Content::of(&image);
    let boot = read_at(&image, MIB, 512);
    let number = |at: usize, len: usize| boot[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let fats = [number(14, 2), number(14, 2) + number(36, 4)].map(|sectors| MIB + sectors * 512);
    for (fat, which) in fats.into_iter().zip(["first", "second"]) {
        let problem = format!("the {which} FAT of the ESP is damaged");
        for (at, damage) in [(8, noise(5, 4088)), (8, vec![0; 4088]), (0, noise(5, 4096)), (0, vec![0; 512])] {
            write_at(&image, fat + at, &damage);
            is_mended(&image, &problem);
            assert!(Content::of(&image) == before, "{which}");
        }
    }
}

/// On an ESP that is whole otherwise: all else on it stays, also what others have there.
#[test]
fn a_file_that_is_missing_from_the_esp_is_put_back() {
    let world = World::new();
    let image = installed(&world);
    tool!("mmd", "-i", esp(&image), "::/EFI/debian");
    let theirs = world.path("theirs");
    std::fs::write(&theirs, noise(9, 100_000)).unwrap();
    tool!("mcopy", "-i", esp(&image), &theirs, "::/EFI/debian/grubx64.efi");
    let [first, second, loader] = ["slipway/boot.env", "slipway/boot2.env", "EFI/BOOT/BOOTX64.EFI"];
    let (list, directory) = ("slipway/chain.sha256", "slipway");
    for missing in [
        &[first][..],
        &[second],
        &[first, second],
        &[loader],
        &[first, second, loader],
        &[list],
        &[list, loader],
        &[directory],
        &["EFI/BOOT"],
        &[directory, "EFI/BOOT"],
    ] {
        for file in missing {
            tool!("mdeltree", "-i", esp(&image), format!("::/{file}"));
        }
        let status = on_disk(&image, &["status"]).exits(INSTALL).stdout;
        let repair = format!("installer repair --disk {}", image.display());
        assert!(status.contains(&repair) && !status.contains("erases"), "{missing:?}: {status}");
        let verify = on_disk(&image, &["verify"]).exits(INSTALL).stdout;
        assert!(verify.contains(&repair), "{missing:?}: {verify}");
        let report = on_disk(&image, &["repair"]).succeeds();
        assert!(!report.stderr.contains("formatted"), "{missing:?}: {}", report.stderr);
        let verify = on_disk(&image, &["verify", "--output=json"]).succeeds().json();
        assert_eq!(verify["boot_chain"]["links"].as_array().map(Vec::len), Some(3), "{missing:?}: {verify}");
        let back = world.path("back");
        tool!("mcopy", "-n", "-o", "-i", esp(&image), "::/EFI/debian/grubx64.efi", &back);
        assert!(std::fs::read(&back).unwrap() == noise(9, 100_000), "{missing:?}: what others have is lost");
        let volume = world.path("esp");
        extract(&image, Range { offset: MIB, len: 300 * MIB }, &volume);
        tool!("fsck.vfat", "-n", &volume);
        assert_eq!(json_of(&image, &["status"])["problems"], json!([]), "{missing:?}");
    }
}

/// One bit makes a directory of a file, or a file of a directory: a second entry by its name could not be told from it. GRUB
/// passes over an entry with another bit, and all that is below.
#[test]
fn a_bit_of_a_directory_entry_keeps_nothing_from_being_mended() {
    const CLUSTER: u64 = 4096;
    let world = World::new();
    let image = installed(&world);
    let boot = third_cluster(&image);
    let (root, slipway) = (boot - 2 * CLUSTER, boot + CLUSTER);
    for (directory, name, bit, problem) in [
        (boot, b"BOOTX64 EFI", 0x10, "EFI/BOOT/BOOTX64.EFI"),
        (root, b"EFI        ", 0x10, "EFI/BOOT/BOOTX64.EFI"),
        (root, b"SLIPWAY    ", 0x10, "slipway/boot.env"),
        (root, b"SLIPWAY    ", 0x40, "slipway/boot.env"),
        (slipway, b"BOOT    ENV", 0x40, "slipway/boot.env"),
        (slipway, b"BOOT2   ENV", 0x80, "slipway/boot2.env"),
    ] {
        let entries = read_at(&image, directory, 512);
        // The volume's label is EFI, too.
        let is_it = |entry: &[u8]| entry.starts_with(name) && entry[11] != 8;
        let at = entries.chunks(32).position(is_it).unwrap() as u64 * 32 + 11;
        let attributes = read_at(&image, directory + at, 1)[0];
        write_at(&image, directory + at, &[attributes ^ bit]);
        is_mended(&image, problem);
    }
}

/// It is for another verb, which also knows whether the firmware starts the new one.
#[test]
fn a_repair_passes_over_no_damaged_loader_in_silence() {
    let world = World::new();
    let image = installed(&world);
    let links = on_disk(&image, &["verify", "--output=json"]).json()["boot_chain"]["links"].clone();
    flip(&image, links[0]["offset"].as_u64().unwrap() + 100);
    let command = format!("; `installer bootloader update --disk {} --offline` writes it anew", image.display());
    on_disk(&image, &["repair"]).succeeds().says(&["boot chain: EFI/BOOT/BOOTX64.EFI: damaged: ", &command]);
}

/// A history that begins anew goes on.
#[test]
fn what_is_done_after_the_directory_was_put_back_is_recorded() {
    let world = World::new();
    let node = Node::installed(&world);
    tool!("mdeltree", "-i", esp(&node.disk), "::/slipway");
    on_disk(&node.disk, &["repair"]).succeeds();
    node.upgrade().succeeds();
    let history = json_of(&node.disk, &["history"]);
    let verbs: Vec<_> = history["entries"].as_array().unwrap().iter().map(|entry| entry["verb"].clone()).collect();
    assert_eq!(verbs, ["upgrade", "repair"], "{history}");
}

/// A list is made of what this installer ships, and of nothing else that happens to be there.
#[test]
fn loaders_that_nothing_vouches_for_are_not_listed() {
    let world = World::new();
    let image = installed(&world);
    let loader = world.path("loader");
    tool!("mcopy", "-n", "-i", esp(&image), "::/EFI/BOOT/BOOTX64.EFI", &loader);
    flip(&loader, 5000);
    tool!("mcopy", "-o", "-i", esp(&image), &loader, "::/EFI/BOOT/BOOTX64.EFI");
    tool!("mdel", "-i", esp(&image), "::/slipway/chain.sha256");
    let update = ["bootloader", "update", "--disk", image.to_str().unwrap(), "--offline"];
    let says = ["slipway/chain.sha256 is missing", &format!("`installer {}`", update.join(" "))];
    refused(&image, INSTALL, &says, || on_disk(&image, &["repair"]));
    assert_eq!(json_of(&image, &["status"])["next_step"]["command"], format!("installer {}", update.join(" ")));
    Outcome::of(&mut installer(update)).succeeds();
    on_disk(&image, &["repair"]).succeeds();
    on_disk(&image, &["verify"]).succeeds();
    assert_eq!(json_of(&image, &["status"])["next_step"]["why"], "nothing to do");
}

/// An ESP that has to be formatted is not, while others have files on it.
#[test]
fn what_others_have_on_an_esp_is_not_formatted_unasked() {
    let world = World::new();
    let image = installed(&world);
    tool!("mmd", "-i", esp(&image), "::/EFI/Microsoft");
    tool!("mmd", "-i", esp(&image), "::/EFI/BOOT/keys");
    tool!("mdel", "-i", esp(&image), "::/EFI/BOOT/BOOTX64.EFI");
    // A directory without its entry for itself: nothing can be added to it.
    write_at(&image, third_cluster(&image), &[0; 64]);
    let says = ["files of others", "EFI/Microsoft", "--force"];
    let status = on_disk(&image, &["status"]).exits(INSTALL).stdout;
    assert!(["EFI/Microsoft", "--force", "First copy"].iter().all(|says| status.contains(says)), "{status}");
    refused(&image, INSTALL, &says, || on_disk(&image, &["repair"]));
    let dry = on_disk(&image, &["repair", "--force", "--dry-run", "--efi-loader=grub"]).succeeds().stdout;
    assert!(dry.contains("this is lost: EFI/Microsoft"), "{dry}");
    on_disk(&image, &["repair", "--force"]).succeeds();
    on_disk(&image, &["verify"]).succeeds();
}

/// A file of another format than raw is no disk, whatever is forced. Its own size is not that of the disk in it.
#[test]
fn an_image_in_another_format_is_not_overwritten() {
    let world = World::new();
    for format in ["qcow2", "vmdk", "vhdx", "vdi", "vpc", "qed"] {
        let image = world.path(&format!("disk.{format}"));
        tool!("qemu-img", "create", "-f", format, &image, "2G");
        let convert = if format == "vpc" { "qemu-img convert -f vpc -O raw" } else { "qemu-img convert -O raw" };
        for force in ["--force=false", "--force"] {
            refused(&image, INSTALL, &["written:\n  - the file is", convert], || world.install(&image, &[force]));
        }
    }
}

#[test]
fn two_payloads_have_two_plans_even_where_nothing_is_to_be_done() {
    let world = World::new();
    let node = slipway_test_support::world::Node::upgraded(&world);
    let plan = |payload: &Payload| {
        let source = payload.source();
        let report = on_disk(&node.disk, &["upgrade", "--offline", "--dry-run", "--output=json", "--source", &source]);
        report.json()["plan_hash"].as_str().unwrap().to_owned()
    };
    assert_ne!(plan(&node.next), plan(&world.payload));
}
