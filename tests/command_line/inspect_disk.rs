//! `installer inspect DISK`: disks of ours and of others, as the program draws them and as data, and what it refuses.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use assert_cmd::Command;
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use slipway_core::units::{MIB, approx};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{
        self, Content, DISK_BYTES, IMAGE_BYTES, IMAGE_BYTES_4096, Loop, Node, Outcome, SLOT_4096, World, extract, flip,
        installer, json_of, partition, program, tool, write_at,
    },
};

fn inspect(disk: &Path) -> Command {
    let mut command = installer([OsStr::new("inspect"), disk.as_os_str()]);
    command.env("LC_ALL", "C.UTF-8");
    command
}

/// The picture, of a disk that is not changed by looking at it.
#[track_caller]
fn picture(disk: &Path) -> String {
    let before = Content::of(disk);
    let text = Outcome::of(&mut inspect(disk)).succeeds().stdout;
    assert!(Content::of(disk) == before, "{} was written to", disk.display());
    text
}

#[track_caller]
fn data(disk: &Path) -> Value {
    let report = Outcome::of(inspect(disk).arg("--output=json")).succeeds().json();
    assert_eq!(report["report"], "layout");
    covers(&report);
    report
}

/// The regions follow each other without a gap, from the first byte to the last.
#[track_caller]
fn covers(report: &Value) {
    let mut at = 0;
    for region in report["regions"].as_array().unwrap() {
        assert_eq!(region["extent"]["offset"], json!(at), "{report:#}");
        at += region["extent"]["len"].as_u64().unwrap();
    }
    assert_eq!(report["bytes"], json!(at));
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

fn partitions(report: &Value) -> Vec<Value> {
    report["regions"].as_array().unwrap().iter().filter(|r| r["kind"] == "partition").cloned().collect()
}

// ---------------------------------------------------------------------------------------------------
// Disks of ours.

#[test]
fn it_has_the_facts_of_status() {
    let world = World::new();
    let image = world.installed(&["--format-data=true"]);
    let (report, status) = (data(&image), json_of(&image, &["status", "--full=false"]));
    for key in ["disk", "disk_guid", "bytes", "sector_bytes", "problems"] {
        assert_eq!(report[key], status[key], "{key}");
    }
    for key in ["next_boot", "running", "slots"] {
        assert_eq!(report["system"][key], status[key], "{key}");
    }
    assert_eq!((&report["table"], &report["not_ours"]), (&json!("gpt"), &Value::Null));
    let parts = partitions(&report);
    assert_eq!(parts.len(), 7);
    for part in &parts {
        assert_eq!(part["extent"], status["partitions"][part["name"].as_str().unwrap()]);
    }
    let holds: Vec<&Value> = parts.iter().map(|p| &p["holds"]).collect();
    let expected = json!(["FAT32", null, "FAT32", "blank", "Talos ADV", "XFS", "XFS"]);
    assert_eq!(json!(holds), expected);

    // Others say the same of what it holds.
    for (part, kind) in parts.iter().zip(["vfat", "", "vfat", "", "", "xfs", "xfs"]) {
        let volume = world.path("volume");
        extract(&image, partition(&image, part["name"].as_str().unwrap()), &volume);
        let mut blkid = program("blkid");
        let output = blkid.args(["-p", "-o", "value", "-s", "TYPE"]).arg(&volume).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), kind, "{}", part["name"]);
    }

    let text = picture(&image);
    has(
        &text,
        &[
            "next boot  slot A: slot A is the default",
            "│▒│ 1 EFI",
            "good ►",
            "slot A: good, 1.2.3, boots next",
            "slot B: empty",
            "\n►  3  BOOT-A",
            "Not to scale",
        ],
    );
    assert!(!text.contains("problem"), "{text}");
}

/// Whoever names one means a source.
#[test]
fn a_directory_is_no_disk() {
    let world = World::new();
    let layout = world.path("a layout");
    fs::create_dir(&layout).unwrap();
    fs::write(layout.join("oci-layout"), "{}").unwrap();
    for (dir, name) in [
        (world.payload.dir(), format!("name it dir:{}", world.payload.dir().display())),
        (&layout, format!("name it 'oci:{}'", layout.display())),
    ] {
        Outcome::of(&mut inspect(dir)).exits(INSTALL).says(&["it is a directory", &name]);
    }
}

#[test]
fn a_trial_and_a_damaged_slot() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    has(&picture(&node.disk), &["slot B, one time", "untried ►", ", boots next, once", "slot A: good, 1.2.3\n"]);
    let verify = json_of(&node.disk, &["verify"]);
    let files = verify["slots"]["B"]["files"].as_array().unwrap();
    let kernel = files.iter().find(|file| file["name"] == "vmlinuz").unwrap();
    flip(&node.disk, kernel["offset"].as_u64().unwrap());
    has(&picture(&node.disk), &["slot B: untried, 1.3.0, files DAMAGED", "slot A: good, 1.2.3, boots next"]);
}

/// Behind a path under /dev/, with sectors of its own size.
#[test]
fn a_block_device_with_sectors_of_4096_bytes() {
    let world = World::new();
    let file = world.sparse("4096.img", DISK_BYTES);
    let disk = Loop::attach(&file, &["--sector-size", "4096"]);
    world.install(&disk.node, &[SLOT_4096]).succeeds();
    let report = data(&disk.node);
    assert_eq!((&report["sector_bytes"], &report["disk"]["kind"]), (&json!(4096), &json!("disk")));
    has(&Outcome::of(&mut inspect(&disk.node)).succeeds().stdout, &["4096-byte sectors", "BOOT-A"]);
}

#[test]
fn an_image_with_sectors_of_4096_bytes() {
    let world = World::new();
    let image = world.sparse("4096.img", IMAGE_BYTES_4096);
    world.install(&image, &[SLOT_4096, "--sector-size=4096"]).succeeds();
    assert_eq!(data(&image)["sector_bytes"], 4096);
}

#[test]
fn an_image_on_a_larger_disk() {
    let world = World::new();
    let image = world.installed(&[]);
    OpenOptions::new().write(true).open(&image).unwrap().set_len(IMAGE_BYTES + 200 * MIB).unwrap();
    let report = data(&image);
    let regions = report["regions"].as_array().unwrap();
    let (backup, free) = (&regions[regions.len() - 2], &regions[regions.len() - 1]);
    assert_eq!((&backup["kind"], &backup["name"]), (&json!("table"), &json!("backup GPT")));
    assert_eq!(backup["extent"]["offset"], IMAGE_BYTES - 33 * 512);
    assert_eq!(free["extent"], json!({"offset": IMAGE_BYTES, "len": 200 * MIB}));
    has(&picture(&image), &["░ free", "backup GPT", "the backup GPT is not at the end of the disk"]);
}

#[test]
fn a_damaged_copy_of_the_table() {
    for (at, text) in [(512, "the primary GPT is damaged"), (IMAGE_BYTES - 512, "the backup GPT is damaged")] {
        let world = World::new();
        let image = world.installed(&[]);
        flip(&image, at + 20);
        assert_eq!(partitions(&data(&image)).len(), 7);
        has(&picture(&image), &[text, "BOOT-B"]);
    }
}

/// `status` refuses it; the picture shows what is missing.
#[test]
fn an_image_that_was_cut_off() {
    let world = World::new();
    let image = world.installed(&[]);
    let ephemeral = partition(&image, "EPHEMERAL");
    OpenOptions::new().write(true).open(&image).unwrap().set_len(ephemeral.offset + MIB).unwrap();
    let text = picture(&image);
    let beyond = format!("partition 7 lies beyond the end of the disk, by {}", approx(ephemeral.len - MIB));
    has(&text, &["not ours", "EPHEMERAL", "the backup GPT is damaged"]);
    has(&text.replace("\n           ", " "), &[&beyond]);
}

// ---------------------------------------------------------------------------------------------------
// Disks of others.

/// Types are called what sgdisk calls them, or nearly; what is in them is what mkfs put there.
#[test]
fn somebodys_gpt() {
    let world = World::new();
    let image = world.image();
    let types = [
        ("ef00", "EFI system"),
        ("ef02", "BIOS boot"),
        ("ea00", "extended boot loader"),
        ("8300", "Linux"),
        ("8304", "Linux root, x86-64"),
        ("8305", "Linux root, arm64"),
        ("8302", "Linux home"),
        ("8310", "Linux /var"),
        ("8200", "Linux swap"),
        ("8e00", "Linux LVM"),
        ("fd00", "Linux RAID"),
        ("8309", "LUKS"),
        ("0700", "Microsoft basic data"),
        ("0c01", "Microsoft reserved"),
        ("2700", "Windows recovery"),
        ("af0a", "Apple APFS"),
        ("af00", "Apple HFS+"),
    ];
    for (n, (code, _)) in (1..).zip(types) {
        let (new, kind) = (format!("--new={n}:0:+16M"), format!("--typecode={n}:{code}"));
        tool!("sgdisk", new, kind, format!("--change-name={n}:part {n}"), &image);
    }
    let report = data(&image);
    let parts = partitions(&report);
    let names: Vec<&str> = parts.iter().map(|p| p["type_name"].as_str().unwrap()).collect();
    assert_eq!(names, types.map(|(_, name)| name));
    for (n, part) in (1..).zip(&parts) {
        let info = tool!("sgdisk", format!("--info={n}"), &image);
        let id = part["type"].as_str().unwrap().to_uppercase();
        has(&info, &[&id, &part["guid"].as_str().unwrap().to_uppercase(), &format!("'part {n}'")]);
        let first = part["extent"]["offset"].as_u64().unwrap() / 512;
        has(&info, &[&format!("First sector: {first} ")]);
    }
    assert_eq!((&report["system"], &report["table"]), (&Value::Null, &json!("gpt")));
    has(&picture(&image), &["not ours", "part 17", "Apple HFS+"]);
}

/// Such a table is longer than usual; no disk of ours has one.
#[test]
fn a_hybrid_iso() {
    let world = World::new();
    let iso = world.path("hybrid.iso");
    tool!("grub-mkrescue", "-o", &iso, world.payload.dir());
    let report = data(&iso);
    let parts = partitions(&report);
    let theirs = tool!("sgdisk", "--print", &iso);
    let listed = theirs.lines().skip_while(|line| !line.starts_with("Number")).skip(1).count();
    assert_eq!(parts.len(), listed, "{theirs}");
    assert!(listed > 1 && parts.iter().any(|p| p["type_name"] == "EFI system"), "{theirs}");
    let verbs = [&["status"][..], &["verify"]];
    for verb in verbs {
        world::on_disk(&iso, verb).exits(INSTALL).says(&["not a Slipway disk", "entries, not 128"]);
    }
    has(&picture(&iso), &["not ours", "EFI system"]);
}

#[test]
fn a_gpt_without_partitions() {
    let world = World::new();
    let image = world.image();
    tool!("sgdisk", "--clear", &image);
    let report = data(&image);
    assert!(partitions(&report).is_empty());
    has(&picture(&image), &["░ free", "free"]);
}

/// Any program can choose these names: they must not move the cursor.
#[test]
fn a_hostile_name() {
    let world = World::new();
    let image = world.image();
    tool!("sgdisk", "--new=1:0:+16M", "--change-name=1:a\u{1b}[2Jb", &image);
    let text = picture(&image);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    has(&text, &["a?[2Jb"]);
    // As data it is what it is.
    assert_eq!(partitions(&data(&image))[0]["name"], "a\u{1b}[2Jb");
}

#[test]
fn an_mbr() {
    let world = World::new();
    let image = world.image();
    let script = "label: dos\nsize=100MiB, type=c, bootable\nsize=200MiB, type=83\ntype=5\n";
    world::finished(program("sfdisk").arg("--quiet").arg(&image).write_stdin(script));
    let volume = world.sparse("fat", 100 * MIB);
    tool!("mkfs.fat", "-F", "32", &volume);
    write_at(&image, MIB, &world::read_at(&volume, 0, 1 << 20));
    let report = data(&image);
    assert_eq!((&report["table"], &report["disk_guid"]), (&json!("mbr"), &Value::Null));
    let parts = partitions(&report);
    let json: Value = serde_json::from_str(&tool!("sfdisk", "--json", &image)).unwrap();
    let theirs = json["partitiontable"]["partitions"].as_array().unwrap();
    for (part, theirs) in parts.iter().zip(theirs) {
        let blocks = |key: &str| theirs[key].as_u64().unwrap() * 512;
        assert_eq!(part["extent"], json!({"offset": blocks("start"), "len": blocks("size")}));
    }
    assert_eq!((&parts[0]["type"], &parts[0]["holds"]), (&json!("0x0c"), &json!("FAT32")));
    assert_eq!((&parts[1]["type"], &parts[1]["type_name"]), (&json!("0x83"), &json!("Linux")));
    has(
        &picture(&image),
        &["MBR", "FAT32", "Linux", "partition 3 is extended: the partitions inside it are not drawn"],
    );
}

/// Both are drawn, and it is told.
#[test]
fn partitions_that_overlap() {
    let world = World::new();
    let image = world.image();
    let script = "label: dos\nstart=2048, size=204800, type=83\nstart=400000, size=204800, type=83\n";
    world::finished(program("sfdisk").arg("--quiet").arg(&image).write_stdin(script));
    // The second one now begins inside the first.
    write_at(&image, 446 + 16 + 8, &4096u32.to_le_bytes());
    let text = picture(&image);
    has(&text, &["partitions 1 and 2 overlap"]);
}

// ---------------------------------------------------------------------------------------------------
// Refusals.

#[track_caller]
fn refused(path: &Path, texts: &[&str]) {
    let outcome = Outcome::of(&mut inspect(path)).exits(INSTALL).says(texts);
    assert!(!outcome.stderr.contains("installer inspect"), "it was just asked: {}", outcome.stderr);
}

#[test]
fn what_has_no_partition_table() {
    let world = World::new();
    refused(&world.image(), &["no partition table", "no protective MBR", "begins with 69632 zeros"]);
    refused(&world.sparse("empty", 0), &["no partition table", "smaller than one sector"]);
    refused(&world.sparse("short", 511), &["no partition table", "smaller than one sector"]);
    refused(&world.sparse("sector", 512), &["no partition table", "512 zeros"]);
    let ext4 = world.sparse("ext4", 16 * MIB);
    tool!("mkfs.ext4", "-q", "-F", &ext4);
    refused(&ext4, &["no partition table", "an ext2/3/4 file system"]);
    // A boot sector ends as an MBR does.
    let fat = world.sparse("fat", 64 * MIB);
    tool!("mkfs.fat", "-F", "32", &fat);
    refused(&fat, &["no partition table", "a FAT file system"]);
    let text = world.path("text");
    fs::write(&text, "x".repeat(100_000)).unwrap();
    refused(&text, &["no partition table"]);
}

#[test]
fn images_in_other_forms() {
    let world = World::new();
    let image = world.installed(&[]);
    for format in ["qcow2", "vmdk", "vpc"] {
        let other = world.path(format);
        tool!("qemu-img", "convert", "-O", format, &image, &other);
        refused(&other, &["no partition table", "qemu-img convert -O raw"]);
    }
    for packer in ["xz", "zstd", "gzip"] {
        let small = world.path("small.raw");
        fs::write(&small, world::noise(7, 100_000)).unwrap();
        let packed = world.path(packer);
        world::finished(
            program("sh").args(["-c", &format!("{packer} < \"$1\" > \"$2\""), "sh"]).arg(&small).arg(&packed),
        );
        refused(&packed, &["no partition table", &format!("compressed with {packer}"), "unpack it"]);
    }
}

#[test]
fn both_copies_damaged() {
    let world = World::new();
    let image = world.installed(&[]);
    flip(&image, 512 + 20);
    flip(&image, IMAGE_BYTES - 512 + 20);
    refused(&image, &["no partition table", "primary: GPT header CRC", "backup: GPT header CRC"]);
}

#[test]
fn what_is_no_disk() {
    let world = World::new();
    let nosuch = world.path("nosuch");
    refused(&nosuch, &[nosuch.to_str().unwrap(), "no such file or device"]);
    refused(world.payload.dir(), &["it is a directory"]);
    refused(Path::new("/dev/null"), &["neither a block device nor a regular file"]);
    let image = world.installed(&[]);
    let state = partition(&image, "STATE");
    let disk = Loop::attach(&image, &[]);
    let node = disk.partition(6, state);
    refused(&node.node, &["it is partition 6 of", "name the whole disk"]);
}

#[test]
fn a_lock_is_not_waited_for() {
    let world = World::new();
    let image = world.installed(&[]);
    let lock = Flock::lock(File::open(&image).unwrap(), FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).unwrap();
    let locked = Outcome::of(&mut inspect(&image)).succeeds().stdout;
    assert!(locked.contains("\nwriter     process "), "{locked}");
    drop(lock);
    let free = Outcome::of(&mut inspect(&image)).succeeds().stdout;
    assert!(!free.contains("\nwriter "), "{free}");
}

#[test]
fn arguments_that_do_not_fit() {
    let world = World::new();
    let image = world.installed(&[]);
    Outcome::of(inspect(&image).arg("--strict")).exits(INPUT).says(&["--strict is for a source"]);
    Outcome::of(installer(["inspect"]).arg("--strict")).exits(INPUT).says(&["--strict is for a source"]);
    for scheme in ["docker:x", "oci:", "http://x/y", "disk:raw", ":"] {
        Outcome::of(&mut installer(["inspect", scheme])).exits(INPUT).says(&[scheme, &format!("./{scheme}")]);
    }
    Outcome::of(&mut installer([OsStr::new("inspect"), OsStr::from_bytes(b"dir:\xff")])).exits(INPUT);
}

/// A colon behind a slash is part of a path, and so is what is no text.
#[test]
fn names_of_files() {
    let world = World::new();
    let image = world.installed(&[]);
    for name in ["pci-0000:00:1f.2", "dir:x"] {
        let link = world.path(name);
        fs::rename(&image, &link).unwrap();
        Outcome::of(&mut inspect(&link)).succeeds();
        fs::rename(&link, &image).unwrap();
    }
    let odd = world.path("x").with_file_name(OsStr::from_bytes(b"\xff\x1b.raw"));
    fs::rename(&image, &odd).unwrap();
    let text = picture(&odd);
    assert!(!text.contains('\u{1b}') && text.contains("?.raw"), "{text}");
    let mut relative = installer([OsStr::new("inspect"), odd.file_name().unwrap()]);
    Outcome::of(relative.current_dir(odd.parent().unwrap())).succeeds();
}

// ---------------------------------------------------------------------------------------------------
// The terminal.

#[test]
fn as_wide_as_the_terminal() {
    let world = World::new();
    let image = world.installed(&[]);
    for (columns, expected) in [(60, 60), (80, 80), (120, 120), (133, 133), (20, 60)] {
        let call = format!("stty cols {columns} rows 24; \"$INSTALLER\" inspect \"$IMAGE\"");
        let mut script = program("script");
        script.args(["--quiet", "--return", "--command", &call, "/dev/null"]);
        script.env("INSTALLER", env!("CARGO_BIN_EXE_installer")).env("IMAGE", &image).env("LC_ALL", "C.UTF-8");
        let text = world::finished(&mut script);
        let edge = text.lines().find(|line| line.starts_with('┌')).unwrap_or_else(|| panic!("no strip: {text}"));
        assert_eq!(edge.trim_end().chars().count(), expected, "{text}");
    }
    // No terminal: 80.
    let edge = picture(&image).lines().find(|line| line.starts_with('┌')).unwrap().chars().count();
    assert_eq!(edge, 80);
}

#[test]
fn characters_of_the_locale() {
    let world = World::new();
    let image = world.installed(&[]);
    let draw = |set: &[(&str, &str)]| {
        let mut command = installer([OsStr::new("inspect"), image.as_os_str()]);
        for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
            command.env_remove(name);
        }
        Outcome::of(command.envs(set.iter().copied())).succeeds().stdout
    };
    for ascii in [&[][..], &[("LANG", "C")], &[("LC_ALL", "POSIX"), ("LANG", "en_GB.UTF-8")]] {
        let text = draw(ascii);
        assert!(text.is_ascii(), "{ascii:?}: {text}");
        has(&text, &["+-+", "\n>  3  BOOT-A"]);
    }
    for unicode in [&[("LANG", "en_GB.UTF-8")][..], &[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]] {
        has(&draw(unicode), &["┌─┬"]);
    }
}
