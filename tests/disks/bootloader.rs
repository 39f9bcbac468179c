//! The boot loaders are renewed: a disk that an earlier version made moves to the loader of today, and keeps all it has.

use std::{
    fs,
    path::{Path, PathBuf},
};

use slipway_core::digest::Sha256;
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INPUT, INSTALL},
    world::{
        Content, Node, Outcome, World, assert_clean_fat, asset, assets, extract, flip, installer, json_of, on_disk,
        partition, program, read_at, refused, tool, write_at,
    },
};

use super::earlier::{with_a_signed_loader, with_stubs};

pub const EFI: &str = "::/EFI/BOOT/BOOTX64.EFI";

/// A change of an image file.
type Spoil<'s> = &'s dyn Fn(&Path);

pub fn bootloader(disk: &Path, args: &[&str]) -> Outcome {
    with_assets(disk, &assets(), args)
}

pub fn with_assets(disk: &Path, assets: &Path, args: &[&str]) -> Outcome {
    let mut command = installer(["bootloader"]);
    Outcome::of(command.args(args).arg("--disk").arg(disk).arg("--progress=none").env("SLIPWAY_ASSETS", assets))
}

fn update(disk: &Path) -> Outcome {
    bootloader(disk, &["update", "--offline"])
}

/// The report of the change has these texts.
#[track_caller]
pub fn tells(outcome: Outcome, texts: &[&str]) {
    let said = outcome.succeeds().stdout;
    assert!(texts.iter().all(|text| said.contains(text)), "{texts:?} are not all in:\n{said}");
}

/// Boot assets of which some are others.
pub fn assets_with(world: &World, name: &str, change: impl Fn(&str, Vec<u8>) -> Vec<u8>) -> PathBuf {
    let dir = world.path(name);
    fs::create_dir_all(dir.join("amd64")).unwrap();
    let mut sums = String::new();
    for name in ["BOOTX64.EFI", "loader.efi", "boot.img", "core.img"] {
        let bytes = change(name, asset(name));
        sums += &format!("{}  {name}\n", Sha256::of(&bytes));
        fs::write(dir.join("amd64").join(name), bytes).unwrap();
    }
    fs::write(dir.join("amd64/SHA256SUMS"), sums).unwrap();
    dir
}

/// The same with another epoch.
fn of_epoch(world: &World, epoch: char) -> PathBuf {
    assets_with(world, &format!("epoch-{epoch}"), |_, mut bytes| {
        let row = b"slipway,1,Slipway,";
        if let Some(at) = bytes.windows(row.len()).position(|window| window == row) {
            bytes[at + 8] = epoch as u8;
        }
        bytes
    })
}

/// The ESP as a file of its own.
pub fn esp(world: &World, disk: &Path) -> PathBuf {
    let esp = world.path("esp.img");
    extract(disk, partition(disk, "EFI"), &esp);
    esp
}

/// A file of the ESP, as mtools reads it.
pub fn file(esp: &Path, name: &str) -> Vec<u8> {
    let to = esp.with_extension("file");
    tool!("mcopy", "-n", "-o", "-i", esp, name, &to);
    fs::read(to).unwrap()
}

/// Everything that a renewal has nothing to do with.
fn kept(disk: &Path) -> Vec<(String, Vec<u8>)> {
    let rest = ["BOOT-A", "BOOT-B", "META", "STATE", "EPHEMERAL"].map(|name| {
        let part = partition(disk, name);
        (name.to_owned(), Sha256::of(&read_at(disk, part.offset, part.len as usize)).0.to_vec())
    });
    // Partition table, but for the boot code.
    let table = ("table".to_owned(), read_at(disk, 440, (1 << 20) - 440));
    let env = json_of(disk, &["status"])["boot_env"].to_string().into_bytes();
    rest.into_iter().chain([table, ("boot.env".to_owned(), env)]).collect()
}

#[track_caller]
pub fn is_sound(world: &World, disk: &Path) {
    let esp = esp(world, disk);
    assert_clean_fat(&esp);
    assert!(tool!("sgdisk", "-v", disk).contains("No problems found"));
    let report = json_of(disk, &["verify"]);
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["boot_chain"]["links"].as_array().unwrap().len(), 3);
    assert_eq!(json_of(disk, &["status"])["problems"], serde_json::json!([]));
}

#[test]
fn a_disk_of_an_earlier_version_moves_to_the_loader_and_keeps_the_rest() {
    let world = World::new();
    let disk = with_stubs(&world);
    let before = kept(&disk);
    let said = bootloader(&disk, &["status"]).succeeds().stdout;
    for text in ["UEFI       GRUB, without an epoch", "BIOS       GRUB, without an epoch (half 1 of BIOS)", "epoch 1"] {
        assert!(said.contains(text), "{text:?} in {said}");
    }
    let command = format!("`installer bootloader update --disk {} --offline`", disk.display());
    let advised = format!("update     {command}: UEFI starts Slipway's loader");
    assert!(said.contains(&advised) && said.contains("loader 0.1.0, epoch 1"), "{said}");
    let untouched = Content::of(&disk);
    tells(
        bootloader(&disk, &["update", "--offline", "--dry-run"]),
        &["write      LBA 0: BIOS starts the new core image"],
    );
    assert!(Content::of(&disk) == untouched, "a dry run writes");

    tells(update(&disk), &["bootloader: UEFI starts Slipway's loader", "GRUB for BIOS is renewed"]);
    is_sound(&world, &disk);
    let esp = esp(&world, &disk);
    assert!(file(&esp, EFI) == asset("loader.efi"), "the UEFI image is another");
    // What BIOS starts lies in the other half.
    let second = partition(&disk, "BIOS").offset + (512 << 10);
    assert_eq!(u64::from_le_bytes(read_at(&disk, 0x5c, 8).try_into().unwrap()) * 512, second);
    assert_eq!(read_at(&disk, second + 512, 180_000), asset("core.img")[512..][..180_000]);
    assert_eq!(kept(&disk), before);
    let history = json_of(&disk, &["history"]);
    let verbs: Vec<_> = history["entries"].as_array().unwrap().iter().map(|e| e["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs, ["bootloader", "stage", "install"]);
    let said = bootloader(&disk, &["status"]).succeeds().stdout;
    assert!(said.contains("update     none: the boot loaders are those of this installer"), "{said}");

    let done = Content::of(&disk);
    tells(update(&disk), &["nothing to do: the boot loaders are those of this installer"]);
    assert!(Content::of(&disk) == done, "it is done, and written to again");
    // What was staged can be tried.
    Outcome::of(installer(["activate", "--offline", "--progress=none", "--disk"]).arg(&disk)).succeeds();
    assert_eq!(json_of(&disk, &["status"])["next_boot"]["slot"], "B");
}

/// Which loader starts a disk is told without any that is shipped, and of a disk for another architecture.
#[test]
fn status_and_inspect_name_the_boot_loaders_of_a_disk() {
    let world = World::new();
    let disk = with_stubs(&world);
    let both = |what: &str| {
        let status = json_of(&disk, &["status"])["bootloaders"].clone();
        let inspect = Outcome::of(installer(["inspect", "--output=json"]).arg(&disk)).stdout;
        let inspect: serde_json::Value = serde_json::from_str(&inspect).unwrap();
        assert_eq!(status, inspect["system"]["bootloaders"], "{what}");
        status
    };
    let image = |loader: &str, version: serde_json::Value, epoch: u32| serde_json::json!({ "loader": loader, "version": version, "epoch": epoch, "signed": false });
    let found = both("of an earlier version");
    assert_eq!(found["uefi"], image("grub", serde_json::Value::Null, 0));
    assert_eq!(found["bios"], serde_json::json!({ "epoch": 0, "half": 1 }));
    update(&disk).succeeds();
    let found = both("renewed");
    assert_eq!(found["uefi"], image("slipway", env!("CARGO_PKG_VERSION").into(), 1));
    assert_eq!(found["bios"], serde_json::json!({ "epoch": 1, "half": 2 }));
    for verb in [&["status", "--verbose", "--disk"][..], &["inspect"]] {
        let said = Outcome::of(installer(verb).arg(&disk)).succeeds().stdout;
        let rows = ["UEFI", "BIOS"].map(|name| said.lines().find(|line| line.starts_with(name)).unwrap_or_default());
        assert!(rows[0].ends_with("Slipway's loader 0.1.0, epoch 1"), "{said}");
        assert!(rows[1].ends_with("GRUB, epoch 1 (half 2 of BIOS)"), "{said}");
    }
    let at = format!("{}@@{}", disk.display(), partition(&disk, "EFI").offset);
    tool!("mren", "-i", &at, EFI, "::/EFI/BOOT/BOOTAA64.EFI");
    assert_eq!(both("of another architecture")["uefi"]["loader"], "slipway");
    tool!("mdel", "-i", &at, "::/EFI/BOOT/BOOTAA64.EFI");
    assert_eq!(both("without one")["uefi"], serde_json::Value::Null);
}

#[test]
fn an_upgrade_renews_them_unless_it_is_told_not_to() {
    let world = World::new();
    let upgrade = |disk: &Path, more: &[&str]| {
        let source = format!("--source={}", world.payload.source());
        let args = ["upgrade", "--offline", "--allow-any-version", "--progress=none", &source];
        Outcome::of(installer(args).args(more).arg("--disk").arg(disk))
    };
    let disk = with_stubs(&world);
    upgrade(&disk, &["--keep-bootloader"]).succeeds();
    let grub = file(&esp(&world, &disk), EFI);
    let told = json_of(&disk, &["bootloader", "status"]);
    assert_eq!(told["uefi"]["epoch"], 0);
    assert!(told["left"].as_str().unwrap().starts_with("slot B is to be tried at the next boot"), "{told}");

    let disk = with_stubs(&world);
    upgrade(&disk, &[]).succeeds();
    is_sound(&world, &disk);
    let esp = esp(&world, &disk);
    assert!(file(&esp, EFI) == asset("loader.efi") && file(&esp, EFI) != grub);
    let next = &json_of(&disk, &["status"])["next_boot"];
    assert_eq!((&next["slot"], &next["trial"]), (&"B".into(), &true.into()), "the trial is armed");
    refused(&disk, INSTALL, &["slot B is to be tried at the next boot"], || {
        with_assets(&disk, &of_epoch(&world, '2'), &["update", "--offline"])
    });
}

/// `stage` changes nothing of how the machine boots. slipwayd stages, and activates when it is its turn.
#[test]
fn what_was_staged_is_activated_with_the_boot_loaders_of_the_installer() {
    let world = World::new();
    let activate = |disk: &Path, more: &[&str]| {
        Outcome::of(installer(["activate", "--offline", "--progress=plain"]).args(more).arg("--disk").arg(disk))
    };
    let disk = with_stubs(&world);
    let grub = file(&esp(&world, &disk), EFI);
    activate(&disk, &["--keep-bootloader"]).succeeds();
    assert!(file(&esp(&world, &disk), EFI) == grub);
    is_sound(&world, &disk);

    let disk = with_stubs(&world);
    let before = kept(&disk);
    activate(&disk, &[]).succeeds().says(&["UEFI starts the new EFI/BOOT/BOOTX64.EFI"]);
    is_sound(&world, &disk);
    assert!(file(&esp(&world, &disk), EFI) == asset("loader.efi"));
    assert_eq!(json_of(&disk, &["bootloader", "status"])["bios"], serde_json::json!({ "epoch": 1, "half": 2 }));
    let status = json_of(&disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["next_boot"]["trial"]), (&"B".into(), &true.into()));
    for (was, is) in before.iter().zip(kept(&disk)).filter(|(was, _)| !["META", "boot.env"].contains(&&*was.0)) {
        assert!(*was == is, "{} has changed", is.0);
    }
    // The trial that is pending is the new loader's first.
    let other = of_epoch(&world, '2');
    for more in [&["--preserve=false"][..], &[]] {
        let mut again = installer(["activate", "--offline", "--progress=none", "--disk"]);
        Outcome::of(again.arg(&disk).args(more).env("SLIPWAY_ASSETS", &other)).succeeds();
        assert_eq!(json_of(&disk, &["bootloader", "status"])["uefi"]["epoch"], 1);
    }
}

/// A system that ships no boot assets is activated all the same, and so is one on a disk whose loaders must stay.
#[test]
fn what_keeps_the_boot_loaders_does_not_keep_a_staged_system_from_its_trial() {
    let world = World::new();
    let activate = |disk: &Path, assets: &Path| {
        let mut command = installer(["activate", "--offline", "--progress=plain", "--disk"]);
        let outcome = Outcome::of(command.arg(disk).env("SLIPWAY_ASSETS", assets)).succeeds();
        assert_eq!(json_of(disk, &["status"])["next_boot"]["slot"], "B");
        outcome
    };
    let disk = with_stubs(&world);
    let grub = file(&esp(&world, &disk), EFI);
    activate(&disk, &world.path("no-assets"));
    assert!(file(&esp(&world, &disk), EFI) == grub);

    let disk = with_stubs(&world);
    with_assets(&disk, &of_epoch(&world, '3'), &["update", "--offline"]).succeeds();
    activate(&disk, &assets()).says(&["the boot loader stays as it is", "epoch 3"]);
    assert_eq!(json_of(&disk, &["bootloader", "status"])["uefi"]["epoch"], 3);
}

#[test]
fn grub_stays_where_it_was_chosen() {
    let world = World::new();
    let disk = with_stubs(&world);
    tells(bootloader(&disk, &["update", "--offline", "--efi-loader=grub"]), &["UEFI starts GRUB 2.06"]);
    assert!(file(&esp(&world, &disk), EFI) == asset("BOOTX64.EFI"));
    tells(update(&disk), &["nothing to do"]);
    bootloader(&disk, &["update", "--offline", "--efi-loader=slipway"]).succeeds();
    assert!(file(&esp(&world, &disk), EFI) == asset("loader.efi"));
    is_sound(&world, &disk);
}

#[test]
fn many_renewals_leave_no_cluster_behind() {
    let world = World::new();
    let disk = with_stubs(&world);
    for epoch in ['1', '2', '3', '4', '5'] {
        with_assets(&disk, &of_epoch(&world, epoch), &["update", "--offline"]).succeeds();
        is_sound(&world, &disk);
    }
    assert_eq!(json_of(&disk, &["bootloader", "status"])["bios"], serde_json::json!({ "epoch": 5, "half": 2 }));
}

#[test]
fn no_loader_follows_one_with_a_higher_epoch() {
    let world = World::new();
    let disk = with_stubs(&world);
    with_assets(&disk, &of_epoch(&world, '3'), &["update", "--offline"]).succeeds();
    let text = "the boot loader on the disk has the epoch 3, and the one of this installer 1";
    refused(&disk, INPUT, &[text, "take a newer installer"], || update(&disk));
    refused(&disk, INPUT, &[text], || bootloader(&disk, &["update", "--offline", "--efi-loader=grub"]));
    assert!(bootloader(&disk, &["status"]).succeeds().stdout.contains(text));
    // The system is upgraded all the same.
    let source = format!("--source={}", world.payload.source());
    let args = ["upgrade", "--offline", "--allow-any-version", "--progress=plain", &source, "--disk"];
    Outcome::of(installer(args).arg(&disk)).succeeds().says(&["the boot loader stays as it is", "epoch 3"]);
    assert_eq!(json_of(&disk, &["bootloader", "status"])["uefi"]["epoch"], 3);
}

#[test]
fn a_damaged_chain_is_mended_by_the_verb_and_left_by_an_upgrade() {
    let world = World::new();
    let disk = with_stubs(&world);
    let chain = json_of(&disk, &["status"])["boot_chain"]["links"].clone();
    for link in chain.as_array().unwrap() {
        flip(&disk, link["offset"].as_u64().unwrap() + 300);
    }
    let said = bootloader(&disk, &["status"]).exits(INSTALL).stdout;
    assert!(said.contains("damaged    EFI/BOOT/BOOTX64.EFI") && said.contains("damaged    boot code"), "{said}");
    let source = format!("--source={}", world.payload.source());
    let args = ["upgrade", "--offline", "--allow-any-version", "--progress=plain", &source, "--disk"];
    let note = "the boot loader stays as it is: the boot chain is damaged";
    Outcome::of(installer(args).arg(&disk)).succeeds().says(&[note, "`installer bootloader update --disk "]);
    tells(update(&disk), &["mended: EFI/BOOT/BOOTX64.EFI: damaged"]);
    is_sound(&world, &disk);
    assert_eq!(json_of(&disk, &["status"])["next_boot"]["slot"], "B", "the trial waits");
}

/// Whatever is not certain about an ESP keeps every byte of it as it is.
#[test]
fn an_esp_that_is_not_as_it_should_be_is_left_alone() {
    let world = World::new();
    let start = with_stubs(&world);
    let at = partition(&start, "EFI").offset;
    let fat = at + u64::from(u16::from_le_bytes(read_at(&start, at + 14, 2).try_into().unwrap())) * 512;
    let second = fat + u64::from(u32::from_le_bytes(read_at(&start, at + 36, 4).try_into().unwrap())) * 512;
    let cases: [(&str, Spoil); 5] = [
        ("copies of the FAT differ", &|disk| flip(disk, second + 4 * 10)),
        ("two files share a cluster, or the clusters of one are a loop", &|disk| {
            [fat, second].iter().for_each(|fat| write_at(disk, fat + 4 * 10, &2_u32.to_le_bytes()));
        }),
        ("the clusters of a file lead out of the volume", &|disk| {
            [fat, second].iter().for_each(|fat| write_at(disk, fat + 4 * 10, &0_u32.to_le_bytes()));
        }),
        ("one of its FATs alone is in force", &|disk| write_at(disk, at + 40, &[0x80])),
        ("no room for another boot loader in one piece", &|disk| {
            let big = world.path("big");
            fs::File::create(&big).unwrap().set_len(298 << 20).unwrap();
            tool!("mcopy", "-i", format!("{}@@{at}", disk.display()), &big, "::/BIG");
        }),
    ];
    for (why, spoil) in cases {
        let disk = world.path("spoilt.img");
        tool!("cp", "--sparse=always", &start, &disk);
        spoil(&disk);
        let before = read_at(&disk, 0, 512);
        refused(&disk, INSTALL, &["no file on the ESP can be replaced", why], || update(&disk));
        assert_eq!(read_at(&disk, 0, 512), before);
        let verified = Outcome::of(installer(["verify", "--disk"]).arg(&disk));
        let is_told = verified.code == INSTALL && verified.stdout.contains(why);
        assert!(is_told || !why.contains("the clusters of"), "{}", verified.stdout);
    }
}

/// The installer of another machine.
#[test]
fn the_loaders_of_another_architecture_are_refused() {
    let world = World::new();
    let disk = with_stubs(&world);
    let why = "the boot loaders that are offered are for arm64, and the disk starts on amd64; `installer bootloader update \
               --arch amd64";
    refused(&disk, INPUT, &[why], || bootloader(&disk, &["update", "--offline", "--arch=arm64"]));
    let status = bootloader(&disk, &["status", "--arch=arm64", "--output=json"]).json();
    assert!(status.to_string().contains(why), "{status}");
}

/// A renewal makes no entries of directories. A repair puts the loader back, and all else on the ESP stays.
#[test]
fn a_loader_that_is_missing_is_replaced_once_there_is_a_file() {
    let world = World::new();
    let disk = with_stubs(&world);
    let at = format!("{}@@{}", disk.display(), partition(&disk, "EFI").offset);
    tool!("mdel", "-i", &at, EFI);
    let is_missing = "EFI/BOOT/BOOTX64.EFI is missing from the ESP; `installer repair";
    let texts = [&format!("{is_missing} --disk {}` makes the ESP again", disk.display())];
    refused(&disk, INSTALL, &texts.map(String::as_str), || update(&disk));
    let failure = bootloader(&disk, &["update", "--offline", "--output=json"]).exits(INSTALL).json();
    assert_eq!(failure["id"], "esp-unfit", "{failure}");
    assert!(bootloader(&disk, &["status"]).exits(INSTALL).stdout.contains(is_missing));
    let before = json_of(&disk, &["status"])["boot_env"].clone();
    let report = on_disk(&disk, &["repair", "--output=json"]).succeeds().json();
    assert!(report["plan"]["result"].as_str().unwrap().contains("the boot state is what it was"), "{report}");
    assert_eq!(json_of(&disk, &["status"])["boot_env"]["states"], before["states"]);
    is_sound(&world, &disk);
    assert!(file(&esp(&world, &disk), EFI) == asset("loader.efi"));
    tool!("mdel", "-i", &at, EFI);
    for bytes in ["", "any"] {
        let any = world.path("any");
        fs::write(&any, bytes).unwrap();
        tool!("mcopy", "-o", "-i", &at, &any, EFI);
        tells(update(&disk), &["mended: EFI/BOOT/BOOTX64.EFI: damaged"]);
        is_sound(&world, &disk);
        assert!(file(&esp(&world, &disk), EFI) == asset("loader.efi"));
    }
}

/// Other drivers leave files in pieces, more entries, and a wrong count of free clusters.
#[test]
fn an_esp_that_others_have_written_to_is_renewed() {
    let world = World::new();
    let disk = with_stubs(&world);
    let at = format!("{}@@{}", disk.display(), partition(&disk, "EFI").offset);
    let (small, large) = (world.path("small"), world.path("large"));
    fs::write(&small, [1; 5000]).unwrap();
    fs::write(&large, vec![2; 900_000]).unwrap();
    for n in 0..200 {
        tool!("mcopy", "-i", &at, &small, format!("::/EFI/BOOT/some file with a long name {n}"));
    }
    for n in (0..200).step_by(2) {
        tool!("mdel", "-i", &at, format!("::/EFI/BOOT/some file with a long name {n}"));
    }
    tool!("mcopy", "-i", &at, &large, "::/in pieces");
    // The UEFI image itself as another driver writes it.
    let image = file(&esp(&world, &disk), EFI);
    fs::write(&large, &image).unwrap();
    tool!("mdel", "-i", &at, EFI);
    tool!("mcopy", "-i", &at, &large, EFI);
    update(&disk).succeeds();
    is_sound(&world, &disk);
    let esp = esp(&world, &disk);
    assert!(file(&esp, EFI) == asset("loader.efi"));
    assert_eq!(file(&esp, "::/EFI/BOOT/some file with a long name 199"), [1; 5000]);
    assert_eq!(file(&esp, "::/in pieces"), vec![2; 900_000]);
}

/// A signed loader gives way to no other one, unless the user says so.
#[test]
fn an_unsigned_loader_never_follows_a_signed_one() {
    let world = World::new();
    let disk = with_a_signed_loader(&world);
    let why = "the loader on the disk is signed, and this one is not";
    refused(&disk, INPUT, &[why, "--ignore-secure-boot"], || update(&disk));
    bootloader(&disk, &["update", "--offline", "--ignore-secure-boot"]).succeeds();
    let newest = &json_of(&disk, &["history"])["entries"][0];
    assert!(newest["reason"].as_str().unwrap().starts_with("--ignore-secure-boot: "), "{newest}");
    is_sound(&world, &disk);
}

#[test]
fn inside_the_system_a_trial_comes_first() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    let other = of_epoch(&world, '2');
    let update = |slot, trial: bool| {
        let cmdline = node.cmdline(slot, trial);
        Outcome::of(
            node.command_under(&cmdline, &["bootloader", "update", "--progress=none"]).env("SLIPWAY_ASSETS", &other),
        )
    };
    refused(&node.disk, INSTALL, &["slot B is to be tried at the next boot"], || update('A', false));
    node.grub_tries();
    refused(&node.disk, INSTALL, &["unconfirmed trial"], || update('B', true));
    node.run('B', true, &["confirm"]).succeeds();
    tells(update('B', true), &["epoch 2"]);
    tells(update('B', false), &["nothing to do"]);
    is_sound(&world, &node.disk);
    let nothing = world.path("no-assets");
    let looked = format!("no boot assets for amd64: looked in {}/amd64;", nothing.display());
    refused(&node.disk, ENVIRONMENT, &[&looked], || with_assets(&node.disk, &nothing, &["update", "--offline"]));
}

/// A link is compared with its digest, and says what it is: for both it is read once.
#[test]
fn a_look_reads_each_boot_loader_once() {
    let world = World::new();
    let disk = world.installed(&[]);
    let links = json_of(&disk, &["status"])["boot_chain"]["links"].clone();
    let trace = world.path("trace");
    for verb in [&["status"][..], &["verify"], &["bootloader", "status"]] {
        let look = installer(verb);
        let mut command = program("strace");
        command.args(["-f", "-s", "0", "-e", "trace=pread64", "-o"]).arg(&trace);
        command.arg(look.get_program()).args(look.get_args()).arg("--disk").arg(&disk);
        Outcome::of(command.env("SLIPWAY_ASSETS", assets())).succeeds();
        let trace = fs::read_to_string(&trace).unwrap();
        for link in [&links[0], &links[2]] {
            let middle = link["offset"].as_u64().unwrap() + link["size"].as_u64().unwrap() / 2;
            let reads = trace.lines().filter_map(|line| {
                let (call, _) = line.rsplit_once(") = ")?;
                let mut last = call.rsplitn(3, ", ").map(|number| number.parse::<u64>().ok());
                let (offset, len) = (last.next()??, last.next()??);
                Some(offset <= middle && middle < offset + len)
            });
            assert_eq!(reads.filter(|here| *here).count(), 1, "{verb:?}: {link}");
        }
    }
}
