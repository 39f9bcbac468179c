//! A partition table whose checksums are right, and of which firmware does not take what it shall.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, IMAGE_BYTES, Loop, Range, World, json_of, noise, on_disk, partition, read_at, refused, tool, write_at,
    },
};

use super::damage::{PARTS, installed, is_mended};

/// What is damaged, and how.
type Damage<'d> = (&'d str, &'d dyn Fn(&Path));

#[track_caller]
fn says(image: &Path, verb: &str, texts: &[&str]) {
    let outcome = on_disk(image, &[verb]).exits(INSTALL);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    texts.iter().for_each(|text| assert!(said.contains(text), "{verb}: {text}: {said}"));
}

/// All but the blocks behind the table, where its entries stand for a moment while it is written again.
fn content(image: &Path) -> (Content, Vec<u8>) {
    (Content::of(image).without(Range { offset: 0, len: 64 << 10 }), read_at(image, 0, 34 * 512))
}

/// Change the header and the entries of copies of the table, with the right checksums.
fn change_table(image: &Path, copies: &[usize], change: impl Fn(&mut [u8], &mut [u8])) {
    let last = IMAGE_BYTES / 512 - 1;
    for copy in copies {
        let [header_at, entries_at] = [[1, 2], [last, last - 32]][*copy].map(|lba| lba * 512);
        let (mut header, mut entries) = (read_at(image, header_at, 512), read_at(image, entries_at, 128 * 128));
        change(&mut header, &mut entries);
        header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
        header[16..20].fill(0);
        let crc = crc32fast::hash(&header[..92]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        write_at(image, header_at, &header);
        write_at(image, entries_at, &entries);
    }
}

/// UEFI has no file system where a partition is hidden from it. Other bits are people's.
#[test]
fn an_entry_with_other_attributes_is_as_firmware_wants_it() {
    let world = World::new();
    let image = installed(&world);
    let before = content(&image);
    let attributes = |row: usize, bits: u64| {
        let at = row * 128 + 48;
        change_table(&image, &[0, 1], |_, entries| entries[at..at + 8].copy_from_slice(&bits.to_le_bytes()));
    };
    for (row, name) in [(0, "EFI"), (2, "BOOT-A"), (3, "BOOT-B")] {
        attributes(row, 1 << 1);
        is_mended(&image, &format!("partition {} ({name}) has attribute bit 1 in the table", row + 1));
        assert!(content(&image) == before, "{name}");
    }
    attributes(1, 0);
    is_mended(&image, "partition 2 (BIOS) lacks attribute bit 2 in the table");
    assert!(content(&image) == before);
    attributes(6, 1 << 1 | 1 << 63);
    on_disk(&image, &["status"]).succeeds();
}

/// Linux and GRUB do not mind these blocks, and UEFI takes no partition that lies outside of them.
#[test]
fn usable_blocks_without_a_partition_of_ours() {
    let world = World::new();
    let image = installed(&world);
    let before = content(&image);
    let told = "lies outside of the blocks that the table calls usable";
    for (field, lba, copies, problem) in [
        (40, 4096, &[0, 1][..], told),
        (48, IMAGE_BYTES / 1024, &[0, 1][..], told),
        (40, 2049, &[0][..], told),
        (48, 4096, &[1][..], "the backup GPT is damaged"),
    ] {
        change_table(&image, copies, |header, _| header[field..field + 8].copy_from_slice(&u64::to_le_bytes(lba)));
        on_disk(&image, &["meta", "list"]).succeeds();
        is_mended(&image, problem);
        assert!(content(&image) == before, "{field} {lba}");
    }
}

/// A file system of that size would overwrite that copy.
#[test]
fn a_volume_that_lies_on_the_second_copy_of_the_table() {
    let world = World::new();
    let image = installed(&world);
    let (before, volume) = (content(&image), partition(&image, "EPHEMERAL"));
    let longer = || {
        change_table(&image, &[0, 1], |_, entries| {
            let last = IMAGE_BYTES / 512 - 1;
            entries[6 * 128 + 40..6 * 128 + 48].copy_from_slice(&last.to_le_bytes());
        });
    };
    longer();
    let repair = format!("`installer repair --disk {}` writes", image.display());
    refused(&image, INSTALL, &["lies on the second copy of the table", &repair], || {
        on_disk(&image, &["wipe", "EPHEMERAL", "--format-data"])
    });
    is_mended(&image, "partition 7 (EPHEMERAL) lies on the second copy of the table");
    assert!(content(&image) == before);
    // So a repair left it that was cut off while it wrote the second copy, or one that was full.
    longer();
    write_at(&image, IMAGE_BYTES - 33 * 512, &noise(3, 33 * 512));
    is_mended(&image, "partition 7 (EPHEMERAL) lies on the second copy of the table");
    assert!(content(&image) == before);
    // What is in it may have grown as far. No volume is made smaller than what is in it.
    longer();
    write_at(&image, volume.offset + 8, &((IMAGE_BYTES - volume.offset) / 4096).to_be_bytes());
    let seen = content(&image);
    for verb in ["status", "repair"] {
        says(&image, verb, &["make it as large as it was"]);
    }
    assert!(content(&image) == seen);
}

/// Its entry was made anew, too small, and another one behind it. A repair of the file system would not bring that back.
#[test]
fn a_volume_that_goes_on_in_a_partition_of_others() {
    let world = World::new();
    let image = installed(&world);
    let before = content(&image).0;
    for (number, name) in [(6, "STATE"), (7, "EPHEMERAL")] {
        let volume = partition(&image, name);
        let (middle, end) = (volume.offset + volume.len / 2 / MIB * MIB, volume.offset + volume.len);
        change_table(&image, &[0, 1], |_, entries| {
            let last = middle / 512 - 1;
            entries[(number - 1) * 128 + 40..][..8].copy_from_slice(&last.to_le_bytes());
        });
        let new = format!("--new=8:{}:{}", middle / 512, end / 512 - 1);
        tool!("sgdisk", new, "--change-name=8:data", &image);
        let next = json_of(&image, &["status"])["next_step"]["why"].to_string();
        let path = image.display();
        for text in [
            format!("It reaches {} bytes further", end - middle),
            format!("partition 8 (data), which is none of ours, lies on bytes of {name}"),
            format!(
                "`sgdisk --delete=8 {path}`; then `installer repair --disk {path}` makes {name} as large as it was"
            ),
        ] {
            assert!(next.contains(&text), "{text}: {next}");
        }
        assert!(!next.contains("xfs_repair"), "{next}");
        says(&image, "verify", &["larger than the partition"]);
        let grown = on_disk(&image, &["grow"]).succeeds().stdout;
        assert_eq!(grown.contains("has all of it"), name == "STATE", "{grown}");
        tool!("sgdisk", "--delete=8", &image);
        on_disk(&image, &["repair"]).succeeds();
        on_disk(&image, &["verify"]).succeeds();
        assert!(partition(&image, name) == volume && content(&image).0 == before, "{name}");
    }
}

/// A table with fewer entries has a smaller second copy, and EPHEMERAL may end right before that.
#[test]
fn the_second_copy_is_as_large_as_its_table() {
    let world = World::new();
    let image = installed(&world);
    let bytes = IMAGE_BYTES + MIB + 24 * 512;
    let resize = |bytes: u64| drop(tool!("truncate", format!("--size={bytes}"), &image));
    resize(bytes);
    tool!("sgdisk", "--resize-table=64", &image);
    let end = || {
        let part = partition(&image, "EPHEMERAL");
        part.offset + part.len
    };
    let is_well = |what: &str| {
        assert_eq!(json_of(&image, &["status"])["problems"], json!([]), "{what}");
        let repaired = on_disk(&image, &["repair"]).succeeds().stdout;
        assert!(repaired.starts_with("nothing to do"), "{what}: {repaired}");
        assert_eq!(end(), IMAGE_BYTES + MIB, "{what}");
        assert!(tool!("sgdisk", "--verify", &image).contains("No problems found"), "{what}");
    };
    on_disk(&image, &["grow"]).succeeds();
    is_well("it has grown");
    on_disk(&image, &["wipe", "EPHEMERAL", "--format-data"]).succeeds();
    is_well("its file system has all of it");
    for at in [512, bytes - 512] {
        write_at(&image, at, &[0; 512]);
        on_disk(&image, &["repair"]).succeeds();
        is_well(&format!("a copy was lost at byte {at}"));
    }
    tool!("sgdisk", "--delete=7", &image);
    on_disk(&image, &["repair"]).succeeds();
    is_well("its entry was deleted");
    resize(bytes - 7 * 512);
    on_disk(&image, &["repair"]).succeeds();
    is_well("the rest of the disk is gone");
    resize(bytes - 8 * 512);
    let larger = format!("`truncate --size={} {}`", bytes - 7 * 512, image.display());
    for verb in ["status", "repair"] {
        says(&image, verb, &[&larger]);
    }
}

/// The remedy is the other way round.
#[test]
fn a_table_that_somebody_made_larger() {
    let world = World::new();
    let image = installed(&world);
    tool!("sgdisk", "--resize-table=256", &image);
    for verb in ["status", "repair"] {
        says(&image, verb, &["its table has 256 entries, not 128; `sgdisk --resize-table=128 DISK` makes it as small"]);
    }
    tool!("sgdisk", "--resize-table=128", &image);
    on_disk(&image, &["verify"]).succeeds();
}

/// A disk with a partition of others behind EPHEMERAL, and the table as `sfdisk` tells it.
fn with_photos(world: &World, data: &str) -> (PathBuf, String) {
    let image = world.installed(&[data]);
    tool!("truncate", "--size=+100M", &image);
    tool!("sgdisk", "-e", "--new=8:0:+64M", "--change-name=8:photos", &image);
    let table = tool!("sfdisk", "--dump", &image);
    (image, table)
}

/// So do `wipefs` and `fdisk` leave it, which clear no more than what a disk is known by.
#[test]
fn a_table_that_only_lacks_its_signatures_is_as_it_was() {
    let world = World::new();
    let last = IMAGE_BYTES + 100 * MIB - 512;
    let clear: [Damage; 3] = [
        ("wipefs", &|image| drop(tool!("wipefs", "--all", "--force", image))),
        ("both signatures", &|image| [512, last].iter().for_each(|at| write_at(image, *at, &[0; 8]))),
        ("the first copy, and the signature of the second", &|image| {
            write_at(image, 512, &[0; 33 * 512]);
            write_at(image, last, &[0; 8]);
        }),
    ];
    for (what, clear) in clear {
        let (image, table) = with_photos(&world, "--format-data=false");
        clear(&image);
        says(&image, "status", &["both copies of it are lost", "`installer repair --disk "]);
        let told = on_disk(&image, &["repair"]).succeeds().stderr;
        assert!(!told.contains("note: if others") && !told.contains("new PARTUUIDs"), "{what}: {told}");
        on_disk(&image, &["repair"]).succeeds();
        assert_eq!(tool!("sfdisk", "--dump", &image), table, "{what}");
        on_disk(&image, &["verify"]).succeeds();
    }
}

/// A stale copy that has not our partitions is no table of this disk.
#[test]
fn signatures_are_given_back_to_no_table_of_others() {
    let world = World::new();
    let image = installed(&world);
    let table = tool!("sfdisk", "--dump", &image);
    let others = world.sparse("others.img", IMAGE_BYTES);
    tool!("sgdisk", "--new=1:2048:+100M", "--change-name=1:data", &others);
    write_at(&image, 512, &read_at(&others, 512, 33 * 512));
    write_at(&image, 512, &[0; 8]);
    write_at(&image, IMAGE_BYTES - 512, &[0; 512]);
    on_disk(&image, &["repair"]).succeeds();
    let lines = |table: &str| table.lines().filter(|line| line.contains("name=")).count();
    assert_eq!(lines(&tool!("sfdisk", "--dump", &image)), lines(&table));
    on_disk(&image, &["verify"]).succeeds();
}

/// An image leaves the end of a larger disk as it was: with the table of an earlier life, from which `wipefs` took the signature.
#[test]
fn signatures_are_given_back_to_no_table_of_an_earlier_life() {
    const TABLE: usize = 33 * 512;
    let world = World::new();
    let (bytes, end) = (IMAGE_BYTES + 200 * MIB, IMAGE_BYTES + 200 * MIB - TABLE as u64);
    for (slot, are_slots_lost) in [("64MiB", false), ("80MiB", false), ("64MiB", true)] {
        let old = world.sparse("old.img", bytes);
        world.install(&old, &[&format!("--slot-size={slot}")]).succeeds();
        tool!("wipefs", "--all", "--force", &old);
        let image = world.installed(&[]);
        let (guid, slots) = (tool!("sfdisk", "--disk-id", &image), slots(&image));
        tool!("truncate", format!("--size={bytes}"), &image);
        write_at(&image, end, &read_at(&old, end, TABLE));
        write_at(&image, 512, &[0; TABLE]);
        if are_slots_lost {
            slots.iter().for_each(|at| write_at(&image, *at, &[0; 4096]));
            on_disk(&image, &["repair"]).exits(INSTALL);
        } else {
            on_disk(&image, &["repair"]).succeeds();
            assert_eq!(tool!("sfdisk", "--disk-id", &image), guid, "{slot}");
            on_disk(&image, &["verify"]).succeeds();
        }
        fs::remove_file(&image).unwrap();
    }
}

/// Where the slots do not say which disk they are of, the ESP does.
#[test]
fn signatures_are_given_back_where_the_slots_are_lost() {
    let world = World::new();
    let (image, table) = with_photos(&world, "--format-data=false");
    let slots = slots(&image);
    tool!("wipefs", "--all", "--force", &image);
    slots.iter().for_each(|at| write_at(&image, *at, &[0; 4096]));
    for _ in ["the table", "LBA 0"] {
        on_disk(&image, &["repair"]).succeeds();
    }
    assert_eq!(tool!("sfdisk", "--dump", &image), table);
}

fn slots(image: &Path) -> [u64; 2] {
    ["BOOT-A", "BOOT-B"].map(|name| partition(image, name).offset)
}

/// Nothing says any more that others had a partition, and EPHEMERAL is not laid over it where what is in it says its size.
#[test]
fn a_volume_ends_where_it_says_if_all_entries_are_lost() {
    const NOTE: &str = "note: if others had partitions behind EPHEMERAL";
    let world = World::new();
    for (data, make, is_known) in [
        ("--format-data=false", Some("mkfs.ext4"), true),
        ("--format-data=true", None, true),
        ("--format-data=false", None, false),
    ] {
        let (image, table) = with_photos(&world, data);
        let before = partition(&image, "EPHEMERAL");
        if let Some(make) = make {
            let [at, len] =
                [("offset", before.offset), ("sizelimit", before.len)].map(|(name, n)| format!("--{name}={n}"));
            tool!(make, "-q", "-F", &Loop::attach(&image, &[&at, &len]).node);
        }
        tool!("sgdisk", "--zap-all", &image);
        assert!(on_disk(&image, &["repair"]).succeeds().stderr.contains(NOTE), "{make:?}");
        on_disk(&image, &["repair"]).succeeds();
        let after = partition(&image, "EPHEMERAL");
        assert_eq!((after.offset, after.len == before.len), (before.offset, is_known), "{make:?}: {table}");
        on_disk(&image, &["verify"]).succeeds();
    }
    // Where it has all room, there were none.
    let image = installed(&world);
    tool!("sgdisk", "--zap-all", &image);
    assert!(!on_disk(&image, &["repair"]).succeeds().stderr.contains(NOTE));
}

/// `repair` begins with the table, for which there is no room: so it is not advised, whatever else it would mend.
#[test]
fn a_disk_that_shrank_beside_another_fault() {
    let world = World::new();
    let faults: [Damage; 4] = [
        ("the type of the ESP", &|image| drop(tool!("sgdisk", "--typecode=1:8300", image))),
        ("the status byte", &|image| write_at(image, 446, &[8])),
        ("a copy of the boot state", &|image| {
            let esp = format!("{}@@{}", image.display(), partition(image, "EFI").offset);
            drop(tool!("mdel", "-i", esp, "::/slipway/boot.env"));
        }),
        ("the first sector of the ESP", &|image| write_at(image, partition(image, "EFI").offset, &[0; 512])),
    ];
    for (what, damage) in faults {
        let image = installed(&world);
        damage(&image);
        let resize = |bytes: u64| drop(tool!("truncate", format!("--size={bytes}"), &image));
        resize(IMAGE_BYTES - MIB + 8 * 512);
        let next = json_of(&image, &["status"])["next_step"].clone();
        assert_eq!(next["command"], json!(null), "{what}: {next}");
        assert!(next["why"].as_str().unwrap().starts_with("make it as large as it was"), "{what}: {next}");
        says(&image, "repair", &["make it as large as it was"]);
        resize(IMAGE_BYTES);
        for _ in 0..2 {
            on_disk(&image, &["repair"]).succeeds();
        }
        assert_eq!(json_of(&image, &["status"])["next_step"]["command"], json!(null), "{what}");
        fs::remove_file(&image).unwrap();
    }
}

/// UEFI takes neither of two partitions that overlap, and a change is refused.
#[test]
fn a_partition_of_others_that_lies_on_one_of_ours() {
    let world = World::new();
    let image = installed(&world);
    for name in PARTS {
        let first = partition(&image, name).offset / 512;
        change_table(&image, &[0, 1], |_, entries| {
            let (ours, other) = entries.split_at_mut(7 * 128);
            other[..56].copy_from_slice(&ours[6 * 128..6 * 128 + 56]);
            other[16] ^= 1;
            other[32..40].copy_from_slice(&first.to_le_bytes());
            other[40..48].copy_from_slice(&(first + 7).to_le_bytes());
        });
        let delete = format!("`sgdisk --delete=8 {}`", image.display());
        for verb in ["status", "verify", "repair"] {
            says(&image, verb, &[&format!("partition 8, which is none of ours, lies on bytes of {name}"), &delete]);
        }
        tool!("sgdisk", "--delete=8", &image);
        assert_eq!(json_of(&image, &["status"])["problems"], json!([]), "{name}");
    }
}

/// `sgdisk` writes no table in which any two overlap.
#[test]
fn partitions_of_others_on_ours_are_deleted_by_one_command() {
    let world = World::new();
    let image = installed(&world);
    let places = ["META", "EPHEMERAL", "EPHEMERAL"].map(|name| partition(&image, name).offset / 512);
    change_table(&image, &[0, 1], |_, entries| {
        let (ours, others) = entries.split_at_mut(7 * 128);
        for (n, (other, first)) in others.chunks_exact_mut(128).zip(places).enumerate() {
            let first = first + 100 * n as u64;
            other[..56].copy_from_slice(&ours[6 * 128..6 * 128 + 56]);
            other[16] ^= 1 + n as u8;
            other[32..40].copy_from_slice(&first.to_le_bytes());
            other[40..48].copy_from_slice(&(first + 7).to_le_bytes());
        }
    });
    let command = "`sgdisk --delete=8 --delete=9 --delete=10 ";
    refused(&image, INSTALL, &["partition 9", command], || on_disk(&image, &["wipe", "EPHEMERAL", "--format-data"]));
    says(&image, "repair", &[&format!("{command}{}`", image.display())]);
    let why = json_of(&image, &["status"])["next_step"]["why"].as_str().unwrap().to_owned();
    tool!("sh", "-c", why.split('`').nth(1).unwrap());
    assert_eq!(json_of(&image, &["status"])["problems"], json!([]));
}

/// Linux and a BIOS do not mind it. A disk for some BIOSes is marked there.
#[test]
fn a_status_byte_in_lba_0_that_uefi_refuses() {
    let world = World::new();
    let image = installed(&world);
    for status in [0, 0x80] {
        write_at(&image, 446, &[status]);
        let before = content(&image);
        write_at(&image, 446, &[status ^ 8]);
        on_disk(&image, &["history"]).succeeds();
        is_mended(&image, "the protective MBR in LBA 0 has a wrong status byte");
        assert!(content(&image) == before, "{status:#x}");
    }
}
