//! Disks on which something is lost that a system does not need to boot: the ways back work, and `repair` mends what
//! can be mended.

use std::{fs, path::Path};

use slipway_core::boot::env::PATHS;
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INSTALL},
    world::{
        Content, Loop, Node, Outcome, Payload, SmallFs, World, flip, installer, json_of, on_disk, partition, program,
        read_at, refused, tool, write_at,
    },
};

use super::{bootloader::is_sound, placeholders::partuuid};

/// Put a file into the root directory of a partition, as fsck or a person does.
fn put(disk: &Path, part: &str, name: &str) {
    let file = disk.with_extension("stray");
    fs::write(&file, "lost clusters").unwrap();
    let image = format!("{}@@{}", disk.display(), partition(disk, part).offset);
    let status = program("mcopy").args(["-i", &image]).arg(&file).arg(format!("::{name}")).output().unwrap();
    assert!(status.status.success(), "{status:?}");
}

#[test]
fn a_file_that_fsck_left_does_not_take_the_way_back() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    put(&node.disk, "BOOT-B", "FSCK0000.REC");
    let confirmed = node.run('B', true, &["confirm"]).succeeds();
    assert!(confirmed.stderr.contains("slot B has files that SHA256SUMS does not list"), "{}", confirmed.stderr);
    assert!(confirmed.stderr.contains("FSCK0000.REC"), "{}", confirmed.stderr);
    put(&node.disk, "BOOT-A", "FSCK0000.REC");
    node.run('B', false, &["rollback"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
    let verified = on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
    assert!(verified.stdout.contains("FSCK0000.REC     not listed"), "{}", verified.stdout);
}

/// Nothing of the ESP is left: with every slot, all data and the partition table it comes back, once for the program that would
/// do it and once done, and what boots is what the markers boot.
#[test]
fn a_lost_esp_is_made_again() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let esp = partition(&node.disk, "EFI");
    let kept: Vec<_> = ["BOOT-A", "BOOT-B", "META", "STATE"].map(|part| partition(&node.disk, part)).into();
    let others = |disk: &Path| -> Vec<Vec<u8>> {
        kept.iter().map(|part| read_at(disk, part.offset, part.len.min(64 << 20) as usize)).collect()
    };
    let before = others(&node.disk);
    write_at(&node.disk, esp.offset, &vec![0x5a; 2 << 20]);
    let next = json_of(&node.disk, &["status"])["next_step"].clone();
    assert_eq!(next["command"], format!("installer repair --disk {}", node.disk.display()));
    assert!(next["why"].as_str().unwrap().contains("keeps the slots and all data"), "{next}");
    let broken = Content::of(&node.disk);
    let dry = on_disk(&node.disk, &["repair", "--dry-run"]).succeeds();
    for said in ["write      EFI: FAT32, 5 files", "verify     EFI: read back", "dry run: nothing was written"] {
        assert!(dry.stdout.contains(said), "{said:?} is not in {}", dry.stdout);
    }
    assert!(Content::of(&node.disk) == broken);
    // Without the loaders nothing is begun.
    let nothing = world.path("nothing");
    let outcome = Outcome::of(installer(["repair", "--disk"]).arg(&node.disk).env("SLIPWAY_ASSETS", nothing));
    outcome.exits(ENVIRONMENT).says(&["no boot assets for amd64"]);
    assert!(Content::of(&node.disk) == broken);
    let report = on_disk(&node.disk, &["repair", "--output=json"]).succeeds().json();
    let result = report["plan"]["result"].as_str().unwrap();
    for said in ["the ESP is made again, with Slipway's loader", "from the slots' own markers; slot B"] {
        assert!(result.contains(said), "{said:?} is not in {result}");
    }
    let warnings = report["plan"]["warnings"].to_string();
    assert!(warnings.contains("its history begins anew") && warnings.contains("the boot menu is on"), "{warnings}");
    is_sound(&world, &node.disk);
    assert!(others(&node.disk) == before, "a repair of the ESP has written elsewhere");
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["boot_env"]["default"]), (&"B".into(), &"B".into()));
    let history = json_of(&node.disk, &["history"]);
    assert_eq!(history["entries"][0]["verb"], "repair", "{history}");
    let again = on_disk(&node.disk, &["repair"]).succeeds();
    assert!(again.stdout.contains("nothing to do"), "{}", again.stdout);
}

/// Both copies of boot.env are destroyed, and nothing of the disk runs: what boots is what GRUB boots by the markers.
#[test]
fn a_lost_boot_state_is_made_again_from_a_rescue_system() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let copies = node.boot_envs();
    copies.iter().for_each(|at| write_at(&node.disk, *at, &[0; 512]));
    let before = json_of(&node.disk, &["status"])["next_boot"]["slot"].clone();
    assert_eq!(before, "B", "it was confirmed last");
    refused(&node.disk, INSTALL, &["installer repair"], || node.run_under("quiet", &["rollback"]));
    let repaired = node.run_under("quiet", &["repair"]).succeeds();
    assert!(
        repaired.stdout.contains("the boot state is made again from the slots' own markers"),
        "{}",
        repaired.stdout
    );
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["boot_env"]["default"]), (&before, &before));
    assert_eq!(status["boot_env"]["states"], serde_json::json!({"A": "good", "B": "good"}));
    assert_eq!(node.boot_envs(), copies);
    let content = Content::of(&node.disk);
    node.run_under("quiet", &["repair"]).succeeds();
    assert!(Content::of(&node.disk) == content, "a second repair has written");
    node.run('B', false, &["rollback"]).succeeds();
}

/// Somebody put back a copy of the ESP from before the upgrade: the machine runs the old system again, silently.
#[test]
fn an_esp_of_an_earlier_time_is_told_and_rollback_leads_back() {
    let world = World::new();
    let node = Node::installed(&world);
    let esp = partition(&node.disk, "EFI");
    let earlier = read_at(&node.disk, esp.offset, esp.len as usize);
    node.upgrade().succeeds();
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["notes"], serde_json::json!([]));
    let confirmed = world.path("confirmed.img");
    tool!("cp", "--sparse=always", &node.disk, &confirmed);
    for slot in [None, Some('A')] {
        tool!("cp", "--sparse=always", &confirmed, &node.disk);
        write_at(&node.disk, esp.offset, &earlier);
        let cmdline = slot.map_or_else(|| "quiet".to_owned(), |slot| node.cmdline(slot, false));
        let offline: &[&str] = if slot.is_none() { &["--offline"] } else { &[] };
        let status = || node.run_under(&cmdline, &["status", "--output=json"]).succeeds().json();
        let notes = status()["notes"].to_string();
        let command =
            format!("`{}`", [&["installer rollback --disk", node.disk.to_str().unwrap()], offline].concat().join(" "));
        for said in ["the ESP is one of an earlier time", "slot B, 1.3.0, was the default since", &command] {
            assert!(notes.contains(said), "{said:?} is not in {notes}");
        }
        let rollback = || node.run_under(&cmdline, &[&["rollback"], offline].concat()).succeeds().stdout;
        assert!(rollback().contains("slot B, 1.3.0, is the default and boots next"));
        assert_eq!((&status()["notes"], &status()["boot_env"]["default"]), (&serde_json::json!([]), &"B".into()));
        assert_eq!(status()["boot_env"]["states"], serde_json::json!({"A": "good", "B": "good"}));
        assert!(rollback().contains("boots next already"));
    }
    // A slot that is damaged since is not gone back to.
    let rootfs = node.file("B", Payload::ROOTFS);
    write_at(&node.disk, esp.offset, &earlier);
    flip(&node.disk, rootfs + 30_000);
    refused(&node.disk, INSTALL, &["slot B", "is damaged"], || node.run_under("quiet", &["rollback", "--offline"]));
}

/// Within that slot the verb does nothing, and where a trial of it waits by that state, it would cancel that.
#[test]
fn an_esp_of_an_earlier_time_names_rollback_only_where_it_leads_back() {
    let world = World::new();
    let node = Node::installed(&world);
    let esp = partition(&node.disk, "EFI");
    let now = || read_at(&node.disk, esp.offset, esp.len as usize);
    let installed = now();
    node.upgrade().succeeds();
    let waits = now();
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    let notes = |earlier: &[u8], cmdline: &str| {
        write_at(&node.disk, esp.offset, earlier);
        let notes = node.run_under(cmdline, &["status", "--output=json"]).json()["notes"].to_string();
        assert!(notes.contains("slot B, 1.3.0, was the default since"), "{notes}");
        notes
    };
    let inside = node.cmdline('B', false);
    let told = notes(&installed, &inside);
    assert!(told.contains("; once slot A runs, `installer rollback"), "{told}");
    for cmdline in ["quiet", &inside] {
        let told = notes(&waits, cmdline);
        assert!(!told.contains("rollback"), "{told}");
    }
}

/// A slot that was never confirmed is not made the default.
#[test]
fn a_repair_trusts_what_was_confirmed_only() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    node.boot_envs().iter().for_each(|at| write_at(&node.disk, *at, &[0; 512]));
    flip(&node.disk, node.file("A", Payload::ROOTFS) + 30_000);
    refused(&node.disk, INSTALL, &["no slot that is marked good is whole"], || node.run('B', true, &["repair"]));
    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "B");
}

/// One copy is not in its place: the other does alone.
#[test]
fn one_copy_of_the_boot_state_is_enough() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let esp = format!("{}@@{}", node.disk.display(), partition(&node.disk, "EFI").offset);
    let removed = program("mdel").args(["-i", &esp]).arg(format!("::{}", PATHS[1])).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
    let back = node.run('B', false, &["rollback"]).succeeds();
    assert!(back.stderr.contains("slipway/boot.env alone holds the boot state"), "{}", back.stderr);
    let repaired = node.run('B', false, &["repair"]).succeeds().stdout;
    assert!(repaired.contains("the boot state has two copies"), "{repaired}");
    assert_eq!(json_of(&node.disk, &["status"])["problems"], serde_json::json!([]));
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
}

/// One wrong bit in the first copy, by which the boot loader goes: the second one and the slots' markers agree.
#[test]
fn a_wrong_bit_in_the_first_boot_env_gives_up_no_slot() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let first = node.boot_envs()[0];
    for (word, at) in [("\na=good\n", 3), ("\nb=good\n", 0), ("\nb=good\n", 5)] {
        let sector = String::from_utf8(read_at(&node.disk, first, 512)).unwrap();
        let place = first + (sector.find(word).unwrap() + at) as u64;
        let byte = read_at(&node.disk, place, 1)[0];
        write_at(&node.disk, place, &[byte ^ 0x40]);
        let problems = json_of(&node.disk, &["status"])["problems"].to_string();
        assert!(problems.contains("the first copy of the boot state contradicts the other one"), "{problems}");
        node.run('B', false, &["rollback", "--dry-run"]).succeeds();
        on_disk(&node.disk, &["repair"]).succeeds();
        assert_eq!(read_at(&node.disk, first, 512), sector.as_bytes());
        let status = json_of(&node.disk, &["status"]);
        assert_eq!((&status["problems"], &status["next_boot"]["slot"]), (&serde_json::json!([]), &"B".into()));
    }
}

/// By way of the page cache a write of one sector reads and writes eight. A neighbour that is dead would keep it from being
/// written, and one that is dead itself would be told by the flush, after which no second copy is tried.
#[test]
fn one_sector_of_a_device_is_written_alone() {
    let world = World::new();
    let disk = Loop::attach(&world.installed(&[]), &[]);
    let stat = Path::new("/sys/class/block").join(disk.node.file_name().unwrap()).join("stat");
    let written = || -> u64 { fs::read_to_string(&stat).unwrap().split_whitespace().nth(6).unwrap().parse().unwrap() };
    let before = written();
    on_disk(&disk.node, &["bootloader", "menu", "off"]).succeeds();
    assert_eq!(written() - before, 3, "sectors: a record of the history, and two copies of boot.env");
}

/// Of the first FAT of the ESP the first sector is gone. Every file can be read by the other one.
#[test]
fn by_the_second_fat_of_the_esp_the_ways_back_work() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let (fat, tried) = (first_fat(&node.disk), world.path("tried"));
    let esp = format!("{}@@{}", node.disk.display(), partition(&node.disk, "EFI").offset);
    tool!("cp", "--sparse=always", &node.disk, &tried);
    for (verb, next) in [("confirm", "B"), ("rollback", "A")] {
        tool!("cp", "--sparse=always", &tried, &node.disk);
        write_at(&node.disk, fat, &[0; 512]);
        let said = node.run('B', true, &[verb]).succeeds().stderr;
        assert!(said.contains("the first FAT of the ESP is damaged: `installer repair --disk "), "{verb}: {said}");
        assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], next);
        node.run(next.parse().unwrap(), false, &["repair"]).succeeds();
        is_sound(&world, &node.disk);
    }
    // What else is lost is mended by the same command.
    tool!("mdel", "-i", &esp, format!("::{}", PATHS[0]));
    write_at(&node.disk, fat, &[0; 512]);
    on_disk(&node.disk, &["repair"]).succeeds();
    is_sound(&world, &node.disk);
}

fn first_fat(disk: &Path) -> u64 {
    let esp = partition(disk, "EFI").offset;
    let reserved = read_at(disk, esp + 14, 2);
    esp + u64::from(u16::from_le_bytes([reserved[0], reserved[1]])) * 512
}

/// A verb that works all the same says what may keep the next boot from coming up, and what mends it.
#[test]
fn what_is_lost_is_told_by_each_verb() {
    let world = World::new();
    let node = Node::upgraded(&world);
    let source = format!("--source={}", world.payload.source());
    let upgrade = ["upgrade", "--dry-run", "--allow-any-version", &source];
    let [env, _] = node.boot_envs()[..] else { panic!("two copies") };
    let link = json_of(&node.disk, &["status"])["boot_chain"]["links"][0]["offset"].as_u64().unwrap();
    let end = fs::metadata(&node.disk).unwrap().len();
    let meta = partition(&node.disk, "META").offset;
    let table = |text: &str| format!("{text} copy of the partition table is damaged");
    let mends = ["`installer repair --disk ", "this writes it again", "`installer bootloader update --disk "];
    for (at, what) in [
        (512 + 16, table("the first")),
        (end - 512 + 16, table("the second")),
        (env, "the first copy of the boot state is lost or damaged (slipway/boot.env on the ESP)".to_owned()),
        (meta + 262_144, "the second copy of META is not valid".to_owned()),
        (first_fat(&node.disk) + 8, "the first FAT of the ESP is damaged".to_owned()),
        (link + 100, "boot chain".to_owned()),
    ] {
        flip(&node.disk, at);
        for args in [&["confirm", "--dry-run"][..], &["rollback", "--dry-run"], &upgrade] {
            let said = node.run('B', false, args).succeeds().stderr;
            let note =
                said.lines().find(|line| line.contains(&what)).unwrap_or_else(|| panic!("{what}: {args:?}: {said}"));
            assert!(mends.iter().any(|mends| note.contains(mends)), "{args:?}: {note}");
        }
        flip(&node.disk, at);
    }
    tool!("sgdisk", "--typecode=1:8300", &node.disk);
    for args in [&["confirm", "--dry-run"][..], &["rollback", "--dry-run"], &upgrade] {
        let said = node.run('B', false, args).succeeds().stderr;
        assert!(said.contains("partition 1 (EFI) has the wrong type in the table"), "{args:?}: {said}");
    }
}

/// A slot that boots after the verb may not find what its kernel arguments name. One that is written anew gets the names that
/// there are.
#[test]
fn a_name_that_is_lost_is_told_by_the_verb_after_which_it_is_needed() {
    let world = World::new();
    let node = Node::of(&world, world.installed(&["--extra-kernel-arg=root=PARTUUID=@slot-partuuid@"]));
    node.upgrade().succeeds();
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    let source = format!("--source={}", world.payload.source());
    let upgrade = ["upgrade", "--dry-run", "--allow-any-version", &source];
    for (number, slot, tells) in [("3", 'A', [false, true, false]), ("4", 'B', [true, false, true])] {
        let before = partuuid(&node.disk, number);
        tool!("sgdisk", format!("--partition-guid={number}:R"), &node.disk);
        let what = format!("slot {slot}'s kernel command line names the PARTUUID {before}, and ");
        for (args, tells) in
            [&["confirm", "--dry-run"][..], &["rollback", "--dry-run"], &upgrade].into_iter().zip(tells)
        {
            let said = node.run('B', false, args).succeeds().stderr;
            let note = said.lines().find(|line| line.contains(&what));
            assert_eq!(note.is_some(), tells, "{args:?}: {said}");
            assert!(note.is_none_or(|note| note.ends_with("` names the remedy")), "{args:?}: {said}");
        }
        tool!("sgdisk", format!("--partition-guid={number}:{before}"), &node.disk);
    }
    let rollback = || on_disk(&node.disk, &["rollback", "--offline", "--dry-run"]).succeeds().stderr;
    assert!(!rollback().contains("knows the disk by the GUID"));
    tool!("sgdisk", "--disk-guid=R", &node.disk);
    assert!(rollback().contains("slot A knows the disk by the GUID"), "{}", rollback());
}

/// An image on a file system that is full: a copy of META cannot be written whole, and the other one holds the tags. So do a
/// thin-provisioned disk and its pool.
#[test]
fn where_meta_cannot_be_written_whole_its_tags_stay() {
    let world = World::new();
    let mut node = Node::of(&world, world.installed(&["--meta=0x0a=rack-7"]));
    node.upgrade().succeeds();
    node.grub_tries();
    let small = SmallFs::new(&world);
    let whole = std::mem::replace(&mut node.disk, small.path("disk.img"));
    // Zeros take no room: there is some for the ends of a copy alone.
    tool!("cp", "--sparse=always", &whole, &node.disk);
    small.leave_free(64 << 10);
    let keeps = |tags: &[(&str, &str)]| {
        let report = json_of(&node.disk, &["meta", "list"]);
        let found = report["tags"].as_array().unwrap().iter();
        let found: Vec<_> = found.map(|t| (t["key"].as_str().unwrap(), t["value"].as_str().unwrap())).collect();
        assert_eq!(found, tags);
        report["copies_valid"].clone()
    };
    let all = [("0x06", "A"), ("0x0a", "rack-7")];
    on_disk(&node.disk, &["meta", "set", "0x0b=1"])
        .exits(INSTALL)
        .says(&["META, second copy", "META has the old tags"]);
    keeps(&all);
    let note = "failed: write META, second copy";
    let confirmed = node.run('B', true, &["confirm"]).succeeds().says(&[note]);
    assert!(!confirmed.stderr.contains("META, first copy"), "{}", confirmed.stderr);
    keeps(&all);
    node.run('B', false, &["rollback"]).succeeds().says(&[note]);
    assert_eq!(keeps(&all), serde_json::json!([true, false]));
    // With room again both have them.
    fs::remove_file(small.path("filler")).unwrap();
    on_disk(&node.disk, &["repair"]).succeeds();
    assert_eq!(keeps(&all), serde_json::json!([true, true]));
}
