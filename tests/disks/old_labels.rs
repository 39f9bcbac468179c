//! What an older use of a disk has left at the ends of what is a partition now: for `blkid` and `wipefs` it counts, unless it
//! was cleared. Everything that an install, a growth and an image make is what they see, and nothing else is.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use slipway_core::units::{GIB, MIB};
use slipway_test_support::world::{
    Node, Outcome, SLOT, World, finished, installer, on_disk, partition, program, read_at, write_at,
};

use super::marks::{MARKS, Mark};

/// A part of a disk: what it is called, and where it lies.
type Region = (&'static str, u64, u64);

const PARTS: [&str; 7] = ["EFI", "BIOS", "BOOT-A", "BOOT-B", "META", "STATE", "EPHEMERAL"];

fn regions(disk: &Path) -> Vec<Region> {
    let parts = PARTS.map(|name| (name, partition(disk, name)));
    let whole = ("disk", 0, fs::metadata(disk).unwrap().len());
    parts.into_iter().map(|(name, at)| (name, at.offset, at.len)).chain([whole]).collect()
}

/// The answer of blkid about it: `TYPE=vfat`, `PTTYPE=gpt`, nothing, or that there is more than one thing.
fn seen(disk: &Path, (_, offset, len): Region) -> Vec<String> {
    let args = ["-p", "-o", "export", "-O", &offset.to_string(), "-S", &len.to_string()];
    let out = program("blkid").args(args).arg(disk).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let kept = |line: &&str| line.starts_with("TYPE=") || line.starts_with("PTTYPE=") || line.contains("ambivalent");
    said.lines().filter(kept).map(str::to_owned).collect()
}

/// Leave these marks in these regions, as far as they lie in them and behind `from`.
fn leave(disk: &Path, marks: &[Mark], regions: &[Region], from: u64) {
    for (_, offset, len) in regions {
        let all = marks.iter().flat_map(|(_, place)| place(*len));
        for (at, bytes) in all.filter(|(at, bytes)| offset + at >= from && at + bytes.len() as u64 <= *len) {
            write_at(disk, offset + at, &bytes);
        }
    }
}

/// Marks that can lie side by side.
fn groups(marks: impl IntoIterator<Item = Mark>) -> Vec<Vec<Mark>> {
    let extents = |(_, place): &Mark| place(64 * MIB).into_iter().map(|(at, bytes)| (at, at + bytes.len() as u64));
    let apart = |one: &Mark, other: &Mark| {
        extents(one).all(|(begin, end)| extents(other).all(|(from, to)| end <= from || to <= begin))
    };
    let mut groups: Vec<Vec<Mark>> = vec![];
    for mark in marks {
        match groups.iter_mut().find(|group| group.iter().all(|other| apart(&mark, other))) {
            Some(group) => group.push(mark),
            None => groups.push(vec![mark]),
        }
    }
    groups
}

/// Of those that begin at the same byte, one.
fn places() -> Vec<Mark> {
    let begin = |(_, place): &Mark| place(64 * MIB)[0].0;
    let is_first = |(n, mark): &(usize, &Mark)| MARKS[..*n].iter().all(|other| begin(other) != begin(mark));
    MARKS.iter().enumerate().filter(is_first).map(|(_, mark)| *mark).collect()
}

fn names(marks: &[Mark]) -> String {
    marks.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The control: each is one, and no kind is left out that blkid knows.
#[test]
fn every_mark_is_one() {
    let world = World::new();
    for (n, (name, place)) in MARKS.iter().enumerate() {
        let alone = world.sparse("alone.img", 64 * MIB);
        leave(&alone, &[(*name, *place)], &[("disk", 0, 64 * MIB)], 0);
        assert_eq!(seen(&alone, ("disk", 0, 64 * MIB)), [format!("TYPE={name}")], "{n}: {:x?}", place(64 * MIB)[0].0);
    }
    let known = finished(program("blkid").arg("-k"));
    let left_out: Vec<_> = known.split_whitespace().filter(|kind| MARKS.iter().all(|(name, _)| name != kind)).collect();
    assert!(known.lines().count() > 50 && left_out.is_empty(), "{left_out:?}");
}

#[track_caller]
fn only_ours(disk: &Path, when: &str, data: &str) {
    for region in regions(disk) {
        let expected = match region.0 {
            "EFI" | "BOOT-A" => "TYPE=vfat",
            "STATE" | "EPHEMERAL" => data,
            "disk" => "PTTYPE=gpt",
            _ => "",
        };
        assert_eq!(seen(disk, region).join(" "), expected, "{when}: {}", region.0);
    }
    let table = program("wipefs").args(["--noheadings", "--output", "TYPE"]).arg(disk).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    let types: Vec<_> = table.split_whitespace().collect();
    // Both copies of the GPT, and the protective MBR.
    assert_eq!(types, ["gpt", "gpt", "PMBR"], "{when}: what wipefs sees");
}

fn install_over(marks: &[Mark], data: &str, expected: &str) {
    let world = World::new();
    let disk = world.installed(&[data]);
    for region in &regions(&disk) {
        leave(&disk, marks, &[*region], 0);
    }
    world.install(&disk, &["--force", data]).succeeds();
    only_ours(&disk, &format!("install {data} over {}", names(marks)), expected);
}

#[test]
fn nothing_old_shines_through() {
    for marks in groups(MARKS.iter().copied()) {
        install_over(&marks, "--format-data=true", "TYPE=xfs");
    }
}

#[test]
fn nothing_old_shines_through_without_file_systems() {
    for marks in groups(places()) {
        install_over(&marks, "--format-data=false", "");
    }
}

#[test]
fn nothing_old_shines_through_where_a_disk_grows() {
    // By little, the new end lies partly in front of the old backup of the table.
    for (marks, more) in groups(places()).into_iter().flat_map(|marks| [GIB, MIB].map(|more| (marks.clone(), more))) {
        let world = World::new();
        let disk = world.installed(&["--format-data=true"]);
        let before = fs::metadata(&disk).unwrap().len();
        let (larger, table) = (before + more, before - 33 * 512);
        let backup = read_at(&disk, table, 33 * 512);
        OpenOptions::new().write(true).open(&disk).unwrap().set_len(larger).unwrap();
        let old = partition(&disk, "EPHEMERAL");
        let (start, end) = (old.offset, old.offset + old.len);
        leave(&disk, &marks, &[("EPHEMERAL", start, larger - MIB - start), ("disk", 0, larger)], end);
        write_at(&disk, table, &backup);
        on_disk(&disk, &["grow", "--progress=none"]).succeeds();
        let grown = partition(&disk, "EPHEMERAL");
        assert_eq!(grown.offset + grown.len, larger - MIB);
        only_ours(&disk, &format!("grow over {}", names(&marks)), "TYPE=xfs");
        on_disk(&disk, &["verify", "--progress=none"]).succeeds();
    }
}

/// Whatever has used the volumes: `wipe` makes them anew, and the rest of the disk stays as it is.
#[test]
fn nothing_old_shines_through_where_volumes_are_wiped() {
    for marks in groups(places()) {
        let world = World::new();
        for (data, expected) in [("--format-data=true", "TYPE=xfs"), ("--format-data=false", "")] {
            let disk = world.installed(&["--format-data=true"]);
            let volumes: Vec<_> =
                regions(&disk).into_iter().filter(|(name, ..)| ["STATE", "EPHEMERAL"].contains(name)).collect();
            leave(&disk, &marks, &volumes, 0);
            on_disk(&disk, &["wipe", "STATE", "EPHEMERAL", data, "--progress=none"]).succeeds();
            only_ours(&disk, &format!("wipe {data} of {}", names(&marks)), expected);
        }
    }
}

/// An image that was written without its zeros, as bmaptool does it, leaves an older life in a slot. The first MiB goes, and
/// the end; files lie between.
#[test]
fn nothing_old_shines_through_a_slot_that_is_written() {
    let between = |(_, place): &Mark| (MIB..16 * MIB).contains(&place(64 * MIB)[0].0);
    for marks in groups(places().into_iter().filter(|mark| !between(mark))) {
        let world = World::new();
        let node = Node::installed(&world);
        let slot = partition(&node.disk, "BOOT-B");
        let region = ("BOOT-B", slot.offset, slot.len);
        leave(&node.disk, &marks, &[region], 0);
        node.upgrade().succeeds();
        assert_eq!(seen(&node.disk, region), ["TYPE=vfat"], "upgrade over {}", names(&marks));
    }
}

/// As `dd` writes an image onto a larger disk that had an older life: what it leaves behind its own end goes when the disk grows.
#[test]
fn nothing_old_shines_through_an_image_on_a_larger_disk() {
    const LARGER: u64 = 2 * GIB;
    let world = World::new();
    let image = world.path("image.raw");
    let args = ["image", "--progress=none", "--kind=raw", "--disk-size=600MiB", SLOT, "--format-data=true", "--source"];
    Outcome::of(installer(args).arg(world.payload.source()).arg("--out").arg(&image)).succeeds();
    let bytes = fs::read(&image).unwrap();
    let start = partition(&image, "EPHEMERAL").offset;
    for marks in groups(places()) {
        let disk = world.sparse("larger.img", LARGER);
        leave(&disk, &marks, &[("disk", 0, LARGER), ("EPHEMERAL", start, LARGER - MIB - start)], 0);
        write_at(&disk, 0, &bytes);
        on_disk(&disk, &["grow", "--progress=none"]).succeeds();
        only_ours(&disk, &format!("image over {}", names(&marks)), "TYPE=xfs");
    }
}

/// Something else had the ESP. What it left would count beside the one that is made again.
#[test]
fn nothing_old_shines_through_an_esp_that_is_made_again() {
    for marks in groups(places()) {
        let world = World::new();
        let disk = world.installed(&["--format-data=true"]);
        let esp = partition(&disk, "EFI");
        write_at(&disk, esp.offset, &[0; MIB as usize]);
        leave(&disk, &marks, &[("EFI", esp.offset, esp.len)], 0);
        on_disk(&disk, &["repair", "--progress=none"]).succeeds();
        only_ours(&disk, &format!("repair over {}", names(&marks)), "TYPE=xfs");
    }
}
