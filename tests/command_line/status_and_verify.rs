//! `status` and `verify` of installed disks, whole and damaged.

use std::{fs, path::Path};

use serde_json::{Value, json};
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, IMAGE_BYTES, Node, Range, World, assert_clean_fat, extract, finished, flip, json_of, on_disk,
        partition, program, read_at, write_at,
    },
};

use super::damage::{installed, is_mended};

#[test]
fn status_of_an_installed_disk() {
    let world = World::new();
    let image = world.image();
    let report = world.install(&image, &["--meta=0x0a=hello", "--output=json"]).succeeds().json();
    let before = Content::of(&image);
    let status = json_of(&image, &["status"]);
    assert!(Content::of(&image) == before);
    assert_eq!(status["disk"], report["disk"]);
    assert_eq!(status["disk_guid"], report["plan"]["table"]["ids"]["disk"]);
    assert_eq!((&status["bytes"], &status["sector_bytes"]), (&json!(IMAGE_BYTES), &json!(512)));
    assert_eq!(status["next_boot"], json!({"slot": "A", "trial": false, "why": "slot A is the default"}));
    assert_eq!(status["boot_env"]["states"], json!({"A": "good", "B": "empty"}));
    let slot = &status["slots"]["A"];
    assert_eq!((&slot["version"], &slot["verifies"]), (&json!("1.2.3"), &json!(true)));
    // Nothing runs from this disk, so nothing else vouches for the root file systems.
    assert_eq!(
        (&slot["whole"], &json_of(&image, &["status", "--full=false"])["slots"]["A"]["whole"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!((&slot["payload"], &slot["marker"]), (&report["payload"], &json!({"state": "good", "seq": 1})));
    assert_eq!(status["slots"]["B"]["verifies"], false);
    assert_eq!(status["meta"], json!({"0x0a": "hello"}));
    assert_eq!(status["problems"], json!([]));

    let since = status["slots"]["A"]["since"].as_str().unwrap();
    assert!(humantime::parse_rfc3339(since).unwrap() <= std::time::SystemTime::now(), "{since}");
    assert_eq!(status["next_step"], json!({"command": null, "why": "nothing to do"}));

    let short = on_disk(&image, &["status"]).succeeds().stdout;
    // No system runs from this disk.
    let rollback = "rollback   would be refused: the running system is not a system that Slipway's boot rule started";
    let payload = format!("           payload {}", report["payload"].as_str().unwrap());
    for verbose in ["-v", "--verbose", "--verbose=true"] {
        let human = on_disk(&image, &["status", verbose]).succeeds().stdout;
        for line in [rollback, &payload, "META       0x0a hello", "partition  1 EFI          300 MiB at byte 1048576"] {
            assert!(human.lines().any(|l| l.starts_with(line)), "{line:?} is not in {human}");
            assert!(!short.contains(line), "{line:?} is a detail: {short}");
        }
    }
    for line in [
        "running    nothing of this disk",
        "next boot  slot A: slot A is the default",
        &format!("slot A     1.2.3, good since {since}, every file checked"),
        "slot B     empty",
        "next step: nothing to do",
    ] {
        assert!(short.lines().any(|l| l == line), "{line:?} is not in {short}");
    }
    assert!(short.lines().count() <= 9, "{short}");
}

/// What does not keep the system from booting is told all the same.
#[test]
fn status_tells_what_is_not_as_it_should_be() {
    let world = World::new();
    let image = world.installed(&[]);
    let problems = || json_of(&image, &["status"])["problems"].to_string();

    let meta = partition(&image, "META").offset;
    flip(&image, meta);
    assert!(problems().contains("the first copy of META is not valid"), "{}", problems());
    flip(&image, meta);

    for (n, path) in ["slipway/boot.env", "slipway/boot2.env"].into_iter().enumerate() {
        let copy = find(&image, partition(&image, "EFI"), b"# GRUB Environment Block\nseq=", n);
        flip(&image, copy);
        let which = ["first", "second"][n];
        let says = format!(
            "the {which} copy of the boot state is lost or damaged ({path} on the ESP, byte {copy} of the disk)"
        );
        assert!(problems().contains(&says), "{says}: {}", problems());
        assert_eq!(
            json_of(&image, &["status"])["next_step"]["command"],
            format!("installer repair --disk {}", image.display())
        );
        assert_eq!(json_of(&image, &["status"])["next_boot"]["slot"], "A");
        flip(&image, copy);
    }

    // A larger disk is no problem.
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(IMAGE_BYTES + 64 * MIB).unwrap();
    assert_eq!(problems(), "[]");
    let human = on_disk(&image, &["status"]).succeeds().stdout;
    assert!(human.contains("\nnote       the backup GPT is not at the end of the disk"), "{human}");
    let notes = json_of(&image, &["verify"])["notes"].to_string();
    assert!(notes.contains("the backup GPT is not at the end of the disk"), "{notes}");
    on_disk(&image, &["verify"]).succeeds();
    on_disk(&image, &["meta", "set", "10=x"]).succeeds();
}

/// Where the `nth` place (from 0) is that holds these bytes.
fn find(image: &Path, range: Range, bytes: &[u8], nth: usize) -> u64 {
    let head = read_at(image, range.offset, range.len.min(8 * MIB) as usize);
    let mut places = head.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    range.offset + places.nth(nth).unwrap().0 as u64
}

/// Any byte of any file in the list, and the disk's offset of the file that has it.
#[test]
fn verify_finds_a_flipped_byte_in_every_file() {
    let world = World::new();
    let image = world.installed(&[]);
    let good = json_of(&image, &["verify"]);
    assert_eq!(good["ok"], true);
    let files = good["slots"]["A"]["files"].as_array().unwrap();
    let names: Vec<&str> = files.iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["boot.sha256", "initramfs.xz", "manifest.json", "rootfs.squashfs", "slot.cfg", "vmlinuz"]);
    for (file, name) in files.iter().zip(&names) {
        let number = |key: &str| file[key].as_u64().unwrap();
        let (offset, size) = (number("offset"), number("size"));
        for at in [0, size / 2, size - 1] {
            flip(&image, offset + at);
            let human = on_disk(&image, &["verify"]).exits(7).stdout;
            let line = human.lines().find(|line| line.contains("damaged")).unwrap_or_else(|| panic!("{name}: {human}"));
            assert!(line.contains(name) && line.contains(&format!("(byte {offset} of the disk;")), "{line}");
            assert!(human.contains(": DAMAGED\nnext step: installer "), "{human}");
            let report = on_disk(&image, &["verify", "--output=json"]).exits(7).json();
            let states = report["slots"]["A"]["files"].as_array().unwrap();
            let damaged: Vec<&Value> = states.iter().filter(|f| f["state"] == "damaged").map(|f| &f["name"]).collect();
            assert_eq!((damaged, &report["ok"]), (vec![&json!(name)], &json!(false)));
            flip(&image, offset + at);
        }
    }
    on_disk(&image, &["verify"]).succeeds();
}

/// The list is checked by what it lists.
#[test]
fn verify_finds_a_damaged_list() {
    let world = World::new();
    let image = world.installed(&[]);
    let slot = partition(&image, "BOOT-A");
    let list = String::from_utf8(
        finished(program("mcopy").args([
            "-n",
            "-i",
            &format!("{}@@{}", image.display(), slot.offset),
            "::/SHA256SUMS",
            "-",
        ]))
        .into_bytes(),
    )
    .unwrap();
    let at = find(&image, slot, list.as_bytes(), 0);

    // Another digit, and no digit.
    let digit = read_at(&image, at, 1)[0];
    write_at(&image, at, if digit == b'0' { b"1" } else { b"0" });
    let human = on_disk(&image, &["verify"]).exits(7).stdout;
    assert!(human.contains("boot.sha256      damaged"), "{human}");
    write_at(&image, at, b"x");
    let human = on_disk(&image, &["verify"]).exits(7).stdout;
    assert!(human.contains("BOOT-A: SHA256SUMS: line 1: not of the form"), "{human}");
    write_at(&image, at, &[digit]);
    on_disk(&image, &["verify"]).succeeds();
}

/// GRUB would not start it either, and `status` foresees that.
#[test]
fn status_foresees_that_a_damaged_kernel_does_not_boot() {
    let world = World::new();
    let image = world.installed(&[]);
    let files = json_of(&image, &["verify"])["slots"]["A"]["files"].clone();
    let kernel = files.as_array().unwrap().iter().find(|file| file["name"] == "vmlinuz").unwrap();
    flip(&image, kernel["offset"].as_u64().unwrap() + 20_000);
    let status = json_of(&image, &["status"]);
    assert_eq!((&status["slots"]["A"]["verifies"], &status["next_boot"]["slot"]), (&json!(false), &Value::Null));
    assert!(status["slots"]["A"]["problem"].as_str().unwrap().starts_with("vmlinuz: damaged"), "{status}");
    on_disk(&image, &["status"]).exits(7);
}

/// The finding: `status` said "nothing to do" of a disk whose root file system was damaged, before and after it had panicked.
/// From a rescue system it reads what `verify` reads, and says the same of it. Where it does not, it says so.
#[test]
fn status_says_what_it_has_read() {
    let world = World::new();
    let image = world.installed(&[]);
    let line = |args: &[&str], code, begins: &str| {
        let human = on_disk(&image, args).exits(code).stdout;
        human.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {human}")).to_owned()
    };
    let slot_line = |args: &[&str], code| line(args, code, "slot A ");
    let whole = |args: &[&str]| json_of(&image, args)["slots"]["A"]["whole"].clone();
    for args in [&["status"][..], &["status", "--full"]] {
        assert!(slot_line(args, 0).ends_with(", every file checked"));
    }
    let quick = ["status", "--full=false"];
    let verify = format!("`installer verify --disk {}` reads the root file systems, too", image.display());
    assert_eq!(line(&quick, 0, "next step"), format!("next step: none: what was read is well. {verify}"));

    let files = json_of(&image, &["verify"])["slots"]["A"]["files"].clone();
    let squashfs = files.as_array().unwrap().iter().find(|file| file["name"] == "rootfs.squashfs").unwrap();
    flip(&image, squashfs["offset"].as_u64().unwrap() + 20_000);
    assert!(slot_line(&quick, 0).ends_with(", kernel and initramfs checked"));
    assert_eq!((whole(&quick), whole(&["status"])), (Value::Null, json!(false)));
    assert!(!on_disk(&image, &quick).succeeds().stdout.contains("nothing to do"));
    assert!(slot_line(&["status"], 7).ends_with(", files DAMAGED"));
    let problem = line(&["status"], 7, "problem ");
    assert!(
        problem.contains("slot A: rootfs.squashfs: damaged: its SHA-256 is not the one listed (byte "),
        "{problem}"
    );
    // Both read the same, say the same of it, and name the same next step.
    let verify = on_disk(&image, &["verify"]).exits(7).stdout;
    let found = |text: &str| text[text.find("(byte ").unwrap()..].split(')').next().unwrap().to_owned();
    assert_eq!(found(&problem), found(&verify));
    let next = |text: &str| text[text.find("\nnext step: installer ").unwrap()..].to_owned();
    assert_eq!(next(&on_disk(&image, &["status"]).exits(7).stdout), next(&verify));
}

/// GRUB boots a slot with a file too many, so that is no damage; but its purpose is unknown.
#[test]
fn a_file_that_nobody_lists_is_told_and_is_no_damage() {
    let world = World::new();
    let image = world.installed(&[]);
    let slot = partition(&image, "BOOT-A");
    let stray = world.path("FSCK0000.REC");
    fs::write(&stray, "stray").unwrap();
    finished(program("mcopy").args(["-i", &format!("{}@@{}", image.display(), slot.offset)]).arg(&stray).arg("::/"));
    let human = on_disk(&image, &["verify"]).succeeds().stdout;
    assert!(human.contains("slot A  FSCK0000.REC     not listed: it has no checksum to compare with\n"), "{human}");
    on_disk(&image, &["status", "--full"]).succeeds();
}

/// The boot loader needs neither, so it would start the slot; the initramfs and the next upgrade do need them.
#[test]
fn status_of_a_running_system_tells_of_lists_that_are_lost() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    for (name, slot) in [("SHA256SUMS", "B"), ("manifest.json", "B"), ("SHA256SUMS", "A"), ("manifest.json", "A")] {
        let range = partition(&node.disk, &format!("BOOT-{slot}"));
        let at = match name {
            "SHA256SUMS" => find(&node.disk, range, format!("{}  boot.sha256", sum_of(&node, slot)).as_bytes(), 0),
            _ => node.file(slot, name),
        };
        let before = read_at(&node.disk, at, 2);
        // Neither a digit nor UTF-8.
        write_at(&node.disk, at, &[0x80, 0xff]);
        let outcome = node.run('A', false, &["status"]).exits(INSTALL);
        assert!(outcome.stdout.contains(&format!("problem    slot {slot}: {name}: ")), "{}", outcome.stdout);
        // The running system is reason enough to start the other one.
        assert_eq!(outcome.stdout.contains("next step: reboot"), slot == "A", "{}", outcome.stdout);
        write_at(&node.disk, at, &before);
        node.run('A', false, &["status"]).succeeds();
    }
}

/// The digest of boot.sha256, with which the list of a slot begins.
fn sum_of(node: &Node, slot: &str) -> String {
    let report = on_disk(&node.disk, &["verify", "--output=json"]).json();
    let files = report["slots"][slot]["files"].as_array().unwrap();
    files.iter().find(|file| file["name"] == "boot.sha256").unwrap()["expected"].as_str().unwrap().to_owned()
}

#[test]
fn a_file_without_a_sector_is_no_disk() {
    let world = World::new();
    for bytes in [0, 511] {
        let image = world.sparse("small", bytes);
        for verb in ["status", "verify", "repair", "grow"] {
            on_disk(&image, &[verb])
                .exits(INSTALL)
                .says(&["no Slipway system is found on it", "smaller than one sector"]);
        }
    }
}

/// One block of a disk may hold both sectors with the number of free clusters. The FAT says what they say.
#[test]
fn the_number_of_free_clusters_is_lost_twice() {
    let world = World::new();
    let image = installed(&world);
    let (esp, volume) = (partition(&image, "EFI"), world.path("esp"));
    let counts = || [1, 7].map(|number| read_at(&image, esp.offset + number * 512 + 488, 4));
    let before = counts();
    for lost in [[0; 512], [0xa7; 512]] {
        [1, 7].iter().for_each(|number| write_at(&image, esp.offset + number * 512, &lost));
        let at = esp.offset + 512;
        is_mended(
            &image,
            &format!(
                "the sector with the number of free clusters of the ESP is damaged (byte {at} of the disk), and the other one is \
                 damaged, too"
            ),
        );
        assert_eq!(counts(), before);
        extract(&image, esp, &volume);
        assert_clean_fat(&volume);
    }
}
