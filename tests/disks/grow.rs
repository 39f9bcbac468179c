//! `grow` on real devices: partitions that the kernel knows, and XFS that is mounted.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};
use slipway_core::units::{GIB, MIB};
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, IMAGE_BYTES, IMAGE_BYTES_4096, Loop, Mount, Outcome, Partition, Running, SLOT_4096, World, flip,
        installer, json_of, noise, on_disk, partition, read_at, refused, refused_on, tool, write_at,
    },
};

fn lengthen(file: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(file).unwrap().set_len(bytes).unwrap();
}

/// An image that was written to a disk of this size.
fn on_a_larger_disk(world: &World, extra: &[&str], bytes: u64) -> Loop {
    let image = world.installed(&[&["--format-data=true"], extra].concat());
    lengthen(&image, bytes);
    Loop::attach(&image, &[])
}

fn ephemeral(disk: &Loop) -> Partition<'_> {
    disk.partition(7, partition(&disk.node, "EPHEMERAL"))
}

fn grow(disk: &Path) -> Outcome {
    on_disk(disk, &["grow", "--progress=none"])
}

/// Its report holds each of these texts.
#[track_caller]
fn shows(outcome: &Outcome, texts: &[&str]) {
    texts.iter().for_each(|text| assert!(outcome.stdout.contains(text), "{text:?} is not in:\n{}", outcome.stdout));
}

fn verified(disk: &Path) {
    let verdict = tool!("sgdisk", "-v", disk);
    assert!(verdict.contains("No problems found.") && !verdict.contains("Warning"), "{verdict}");
}

fn bytes_of(mount: &Mount) -> u64 {
    let stat = statvfs(&mount.point).unwrap();
    stat.blocks() * stat.fragment_size()
}

#[test]
fn a_mounted_file_system_grows_and_keeps_its_files() {
    let world = World::new();
    let disk = on_a_larger_disk(&world, &[], 12 * GIB);
    // What another table has left at the end of the disk.
    write_at(&disk.node, 12 * GIB - MIB, &noise(3, MIB as usize));
    let (state, part) = (disk.partition(6, partition(&disk.node, "STATE")), ephemeral(&disk));
    let (state, mount) =
        (Mount::new(&state.node, world.path("state")), Mount::new(&part.node, world.path("mounted here")));
    let file = mount.point.join("file");
    fs::write(&file, noise(1, 5 << 20)).unwrap();
    let before = bytes_of(&mount);

    let dry = json_of(&disk.node, &["grow", "--dry-run"]);
    assert_eq!((dry["changed"].clone(), bytes_of(&mount)), (json!(false), before));
    let report = json_of(&disk.node, &["grow"]);
    let growth = &report["plan"]["growth"];
    assert_eq!((&report["changed"], &growth["file_system"]), (&json!(true), &json!("grows")));
    let after = partition(&disk.node, "EPHEMERAL").len;
    assert_eq!(growth["after"], after);
    assert!(after > 11 * GIB && bytes_of(&mount) > after - after / 20, "{before} became {}", bytes_of(&mount));
    assert_eq!(tool!("blockdev", "--getsize64", &part.node).trim(), after.to_string());
    assert!(fs::read(&file).unwrap() == noise(1, 5 << 20));

    verified(&disk.node);
    assert_eq!(json_of(&disk.node, &["status"])["notes"], json!([]));
    // XFS itself writes now and then while it is mounted.
    let volumes = ["STATE", "EPHEMERAL"].map(|name| partition(&disk.node, name));
    let content = || volumes.into_iter().fold(disk.content(), Content::without);
    let before = content();
    let idle = grow(&disk.node).succeeds();
    assert!(idle.stdout.starts_with("nothing to do: EPHEMERAL has "), "{}", idle.stdout);
    assert!(content() == before, "something was written");
    drop((state, mount));
    tool!("xfs_repair", "-n", &part.node);
    on_disk(&disk.node, &["verify", "--progress=none"]).succeeds();
}

/// The partition first, and the file system once it is mounted.
#[test]
fn what_is_not_mounted_grows_later() {
    let world = World::new();
    let disk = on_a_larger_disk(&world, &[], 2 * GIB);
    let part = ephemeral(&disk);
    shows(&grow(&disk.node).succeeds(), &["XFS grows only while it is mounted"]);
    shows(&grow(&disk.node).succeeds(), &["nothing to do: EPHEMERAL has ", "run the same command again then"]);
    let mount = Mount::new(&part.node, world.path("mount"));
    let before = bytes_of(&mount);
    let again = json_of(&disk.node, &["grow"]);
    assert_eq!(again["plan"]["steps"].as_array().unwrap().len(), 1, "{again}");
    assert!(bytes_of(&mount) > before + GIB);
    drop(mount);
    tool!("xfs_repair", "-n", &part.node);
}

/// Another mount namespace has it, or it is mounted for reading only.
#[test]
fn a_mount_that_is_out_of_reach_is_named() {
    let world = World::new();
    let disk = on_a_larger_disk(&world, &[], 2 * GIB);
    let (part, point) = (ephemeral(&disk), world.path("elsewhere"));
    let other = Running::mount(&part.node, &point);
    let helps = format!("`nsenter --target {} --mount`", other.pid());
    for _ in ["the partition grows", "nothing to do"] {
        let texts = ["XFS grows only while it is mounted: it is mounted on ", "in the mount namespace of ", &helps];
        shows(&grow(&disk.node).succeeds(), &texts);
    }
    drop(other);
    tool!("mount", "-o", "ro", &part.node, &point);
    let told = grow(&disk.node);
    tool!("umount", &point);
    shows(&told.succeeds(), &["for reading only", "`mount -o remount,rw`"]);
}

#[test]
fn sectors_of_4096_bytes() {
    let world = World::new();
    let image = world.sparse("4096.img", IMAGE_BYTES_4096);
    world.install(&image, &[SLOT_4096, "--sector-size=4096", "--format-data=true"]).succeeds();
    lengthen(&image, 2 * GIB);
    let disk = Loop::attach(&image, &["--sector-size", "4096"]);
    let part = ephemeral(&disk);
    let mount = Mount::new(&part.node, world.path("mount"));
    grow(&disk.node).succeeds();
    assert!(bytes_of(&mount) > GIB);
    verified(&disk.node);
    shows(&grow(&disk.node).succeeds(), &["nothing to do"]);
}

/// Blank volumes, and disks of which the kernel knows no partitions.
#[test]
fn an_image_file() {
    let world = World::new();
    let image = world.installed(&[]);
    shows(&grow(&image).succeeds(), &["nothing to do: EPHEMERAL has ", "it is blank"]);
    lengthen(&image, IMAGE_BYTES + 100 * MIB);
    let report = json_of(&image, &["grow"]);
    assert_eq!(report["plan"]["growth"]["file_system"], "none");
    verified(&image);
    // A file that is the disk of another loop device is left alone.
    lengthen(&image, IMAGE_BYTES + 200 * MIB);
    let other = Loop::attach(&image, &[]);
    refused(&image, INSTALL, &["in use", other.node.to_str().unwrap()], || grow(&image));
}

#[test]
fn what_is_refused() {
    let world = World::new();
    let disk = on_a_larger_disk(&world, &[], IMAGE_BYTES + 100 * MIB);
    let at = partition(&disk.node, "EPHEMERAL");
    // Members with their description at the end: md, version 1.0; DRBD with internal metadata.
    for (from_end, magic, what) in [
        (8192, 0xa92b_4efc_u32.to_le_bytes(), "an md RAID member"),
        (4096 - 60, 0x8374_026b_u32.to_be_bytes(), "a DRBD device"),
    ] {
        let place = at.offset + at.len / 4096 * 4096 - from_end;
        write_at(&disk.node, place, &magic);
        refused_on(&disk, INSTALL, &[&format!("EPHEMERAL holds {what}"), "left as it is"], || grow(&disk.node));
        write_at(&disk.node, place, &[0; 4]);
    }
    let head = read_at(&disk.node, at.offset, 4096);
    write_at(&disk.node, at.offset, &noise(5, 4096));
    refused_on(&disk, INSTALL, &["something that is not known"], || grow(&disk.node));
    // A program uses the free space.
    write_at(&disk.node, at.offset, &head);
    tool!("blockdev", "--flushbufs", &disk.node);
    let offset = (IMAGE_BYTES + MIB).to_string();
    let user = Loop::attach(&disk.node, &["--offset", &offset]);
    refused_on(&disk, INSTALL, &["in use", user.node.to_str().unwrap()], || grow(&disk.node));
    drop(user);
    // It became smaller.
    let image = world.path("disk.img");
    drop(disk);
    lengthen(&image, at.offset + at.len + 8192);
    refused(&image, INSTALL, &["smaller than its partition table says"], || grow(&image));
    lengthen(&image, at.offset + at.len - MIB);
    refused(&image, INSTALL, &["EPHEMERAL ends beyond the end of the disk"], || grow(&image));
    let foreign = world.sparse("foreign.img", IMAGE_BYTES);
    tool!("sgdisk", "--new=1:2048:+100M", &foreign);
    refused(&foreign, INSTALL, &["no Slipway system is found on it"], || grow(&foreign));
}

/// Nothing is promised of a file system whose superblock is wrong. The partition may grow.
#[test]
fn a_damaged_superblock_is_told() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    lengthen(&image, IMAGE_BYTES + 100 * MIB);
    let (at, end) = (partition(&image, "EPHEMERAL"), IMAGE_BYTES + 98 * MIB);
    write_at(&image, end, &noise(3, 4096));
    // The number of blocks, twice, and a field that says nothing of its size.
    for place in [13, 15, 120] {
        flip(&image, at.offset + place);
        let told = grow(&image).succeeds();
        shows(&told, &["and the superblock of its file system is damaged: `installer status` says what helps"]);
        told.says(&["the superblock of its file system is damaged"]);
        assert!(partition(&image, "EPHEMERAL").len > at.len);
        assert!(read_at(&image, end, 4096) == noise(3, 4096), "the new end was cleared");
        flip(&image, at.offset + place);
    }
    shows(&grow(&image).succeeds(), &["nothing to do", "XFS grows only while it is mounted"]);
}

/// Its entry is lost: it ends where its description says, and not where the disk does.
#[test]
fn what_ends_with_its_description_keeps_its_end() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    lengthen(&image, IMAGE_BYTES + 100 * MIB);
    let (at, older) = (partition(&image, "EPHEMERAL"), read_at(&image, 512, 33 * 512));
    let file_system = read_at(&image, at.offset, 4096);
    let mended = |what: &str| {
        on_disk(&image, &["repair"]).succeeds();
        assert_eq!(partition(&image, "EPHEMERAL"), at, "{what}");
        verified(&image);
    };
    let md = 0xa92b_4efc_u32;
    // A disk image in it has a description of its own.
    write_at(&image, at.offset + 32 * MIB - 8192, &md.to_le_bytes());
    for (head, from_end, magic) in [
        (noise(5, 4096), 8192, md.to_le_bytes()),
        (noise(5, 4096), 64 << 10, md.to_be_bytes()),
        (file_system, 4096 - 60, 0x8374_026b_u32.to_be_bytes()),
    ] {
        write_at(&image, at.offset, &head);
        let place = at.offset + at.len - from_end;
        write_at(&image, place, &magic);
        // As before the disk became larger.
        write_at(&image, 512, &older);
        tool!("sgdisk", "--delete=7", &image);
        mended("deleted");
        tool!("sgdisk", "--delete=7", &image);
        mended("deleted again");
        let last = IMAGE_BYTES + 100 * MIB - 512;
        [512, last].into_iter().for_each(|header| write_at(&image, header, &[0; 512]));
        mended("both copies lost");
        write_at(&image, place, &[0; 4]);
    }
}

/// `status` and `inspect` name `grow` only where it is not refused, and promise no more than it does.
#[test]
fn it_is_offered_where_it_is_taken() {
    let world = World::new();
    let image = world.installed(&[]);
    lengthen(&image, 3 * GIB);
    let told = || {
        let inspected = Outcome::of(installer(["inspect", "--output=json"]).arg(&image));
        let said = [on_disk(&image, &["status", "--output=json"]).json(), inspected.json()];
        let lines = said.map(|report| [&report["problems"], &report["notes"]].map(Value::to_string).concat());
        assert!(lines.iter().all(|text| text.contains("the backup GPT is not at the end of the disk")), "{lines:?}");
        // As it is, the command would be for the disk of the machine.
        assert!(lines.iter().all(|text| !text.contains("`installer grow`")), "{lines:?}");
        let grow = format!("`installer grow --disk {}`", image.display());
        lines.map(|text| (text.contains(&grow), text.contains("makes EPHEMERAL larger")))
    };
    assert_eq!(told(), [(true, true); 2]);
    let at = partition(&image, "EPHEMERAL");
    let head = read_at(&image, at.offset, 4096);
    write_at(&image, at.offset, &noise(5, 4096));
    assert_eq!(told(), [(false, false); 2], "something that is not known is left as it is");
    write_at(&image, at.offset, &head);
    let first = (at.offset + at.len) / 512;
    tool!("sgdisk", "-e", &format!("--new=8:{first}:0"), &image);
    lengthen(&image, 4 * GIB);
    assert_eq!(told(), [(true, false); 2], "another partition lies behind it");
}

/// EPHEMERAL ends where another partition begins, and the table of another tool is taken as it is.
#[test]
fn a_partition_behind_ephemeral_stays() {
    let world = World::new();
    let disk = on_a_larger_disk(&world, &[], 3 * GIB);
    tool!("sgdisk", "-e", "--new=8:2G:0", "--change-name=8:data", "--typecode=8:8200", &disk.node);
    tool!("blockdev", "--flushbufs", &disk.node);
    let eighth = tool!("sgdisk", "-i", "8", &disk.node);
    grow(&disk.node).succeeds();
    let at = partition(&disk.node, "EPHEMERAL");
    assert_eq!(at.offset + at.len, 2 * GIB);
    assert_eq!(tool!("sgdisk", "-i", "8", &disk.node), eighth);
    verified(&disk.node);
    shows(&grow(&disk.node).succeeds(), &["nothing to do"]);
}

/// The beginning of the disk is from before the growth: a lost write, or an old backup of the table that somebody put back. What
/// the file system says counts.
#[test]
fn a_first_copy_from_before_the_growth_is_written_anew() {
    let world = World::new();
    let disk = on_a_larger_disk(&world, &[], 2 * GIB);
    let image = world.path("disk.img");
    let (older, old_backup) = (read_at(&disk.node, 512, 33 * 512), IMAGE_BYTES - 33 * 512);
    let part = ephemeral(&disk);
    let mount = Mount::new(&part.node, world.path("mount"));
    grow(&disk.node).succeeds();
    drop(mount);
    drop(part);
    drop(disk);
    let (grown, newer) = (partition(&image, "EPHEMERAL"), read_at(&image, 512, 33 * 512));
    let told = || json_of(&image, &["status"])["next_step"].clone();
    let before = Content::of(&image);
    for mend in ["repair", "grow"] {
        // By now files have the place of the old second copy.
        write_at(&image, old_backup, &noise(9, 33 * 512));
        let whole = Content::of(&image);
        assert!(whole != before);
        write_at(&image, 512, &older);
        let next = told();
        assert_eq!(next["command"], format!("installer repair --disk {}", image.display()), "{next}");
        on_disk(&image, &[mend]).succeeds();
        assert_eq!((read_at(&image, 512, 33 * 512) == newer, told()["command"].clone()), (true, Value::Null), "{mend}");
        assert!(
            partition(&image, "EPHEMERAL") == grown && Content::of(&image) == whole,
            "{mend}: data was written over"
        );
    }
}

/// The disk was smaller for a time: EPHEMERAL lost its end, and the backup GPT with it. A new backup takes the only sign away.
#[test]
fn an_end_that_is_lost_is_told_before_a_new_backup_hides_it() {
    let world = World::new();
    let whole = world.installed(&["--format-data=true"]);
    let again = |verb: &str, bytes: u64, spoil: &dyn Fn(&Path)| {
        let image = world.path("again.img");
        tool!("cp", "--sparse=always", &whole, &image);
        spoil(&image);
        lengthen(&image, bytes);
        on_disk(&image, &[verb, "--progress=none"]).succeeds()
    };
    let note = "as where the disk was smaller for a time";
    let shorten = |image: &Path| lengthen(image, IMAGE_BYTES - 10 * MIB);
    again("grow", IMAGE_BYTES, &shorten).says(&[note]);
    again("grow", IMAGE_BYTES + GIB, &shorten).says(&[note]);
    again("repair", IMAGE_BYTES, &shorten).says(&[note]);
    // The end of a larger disk is blank, and nothing was there.
    let repaired = again("repair", IMAGE_BYTES + GIB, &|image| flip(image, IMAGE_BYTES - 512 + 60));
    assert!(!repaired.stderr.contains(note), "{}", repaired.stderr);
}

/// The backup GPT of before a growth lies in the last block again. It counts only if the file system did not grow.
#[test]
fn a_disk_is_cut_back_to_its_former_size() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    let again = |is_mounted: bool| {
        lengthen(&image, IMAGE_BYTES + GIB);
        {
            let disk = Loop::attach(&image, &[]);
            let part = ephemeral(&disk);
            let _mount = is_mounted.then(|| Mount::new(&part.node, world.path("mounted")));
            grow(&disk.node).succeeds();
        }
        lengthen(&image, IMAGE_BYTES);
    };
    again(false);
    on_disk(&image, &["repair"]).succeeds();
    on_disk(&image, &["status"]).succeeds();
    again(true);
    let seen = Content::of(&image);
    for verb in ["status", "repair"] {
        on_disk(&image, &[verb]).exits(INSTALL).says(&["make it as large as it was"]);
    }
    assert!(seen == Content::of(&image));
}
