//! Payload directories that must be refused: with the exit code of the public table, with a text that names what is
//! wrong, and without a byte written.

use std::{fs, io::Write as _, path::Path, time::Duration};

use flate2::{Compression, write::GzEncoder};
use slipway::{
    bootloader::Assets,
    device::{Access, Disk},
    payload::{ChecksumPolicy, DirSource, image::Inspection},
    probe,
};
use slipway_core::{
    boot::EfiLoader,
    kernel::arch::Arch,
    payload::manifest::KernelArgs,
    plan::{self, Ids, InstallRequest},
    report::FailureKind,
    units::MIB,
};
use slipway_test_support::{
    exit_code::INPUT,
    images::{self, DIR, Image, Layer, Layout, Pack, built, dirs},
    world::{
        Outcome, Payload, World, assert_clean_fat, assets, extract, flip, installer, json_of, noise, on_disk,
        partition, real_kernel, refused, tool,
    },
};
use uuid::Uuid;

use super::from_registry::registry_with;

/// Install a payload that was spoilt: wrong input, whatever the disk.
#[track_caller]
fn bad_payload(flags: &[&str], texts: &[&str], spoil: impl FnOnce(&Payload)) {
    let world = World::new();
    let image = world.image();
    spoil(&world.payload);
    refused(&image, INPUT, texts, || world.install(&image, flags));
    if flags.iter().all(|flag| *flag == "--strict") {
        let inspect = ["inspect", &world.payload.source()].map(str::to_owned);
        Outcome::of(installer(inspect).args(flags)).exits(INPUT).says(texts);
    }
}

#[test]
fn no_payload_directory() {
    let world = World::new();
    let image = world.image();
    let nosuch = world.path("nosuch");
    let source = format!("--source=dir:{}", nosuch.display());
    refused(&image, INPUT, &[nosuch.to_str().unwrap(), "there is no such directory"], || {
        world.install(&image, &[&source])
    });
}

#[test]
fn a_missing_file() {
    for name in [Payload::KERNEL, Payload::INITRAMFS] {
        bad_payload(&[], &[&format!("payload/{name}: missing"), "a payload has vmlinuz"], |p| p.remove(name));
    }
}

/// Some systems carry their root file system in the initramfs.
#[test]
fn a_payload_needs_no_rootfs() {
    let world = World::new();
    world.payload.remove(Payload::ROOTFS);
    let image = world.installed(&[]);
    on_disk(&image, &["verify"]).succeeds();
}

#[test]
fn an_empty_payload_file() {
    for (name, text) in [
        // Of these two, that they are not what their names say is found first, and as good.
        (Payload::KERNEL, "vmlinuz: "),
        (Payload::ROOTFS, "rootfs.squashfs: "),
        (Payload::INITRAMFS, "initramfs.xz: empty (0 bytes)"),
    ] {
        bad_payload(&[], &[text], |p| p.resize(name, 0));
    }
}

#[test]
fn a_kernel_that_is_none() {
    let with = |at: usize, magic: &[u8]| {
        let mut file = noise(9, 40_000);
        file[at..at + magic.len()].copy_from_slice(magic);
        file
    };
    // A boot sector; half of the header; a file that ends before it.
    let (boot_sector, half) = (with(0x1fe, &[0x55, 0xaa]), with(0x202, b"HdrS"));
    for kernel in [noise(9, 40_000), boot_sector, half, b"HdrS".to_vec(), vec![0; 0x202]] {
        bad_payload(&[], &["vmlinuz", "not a Linux kernel", "`HdrS` at byte 514"], |p| {
            p.write(Payload::KERNEL, kernel)
        });
    }
}

/// GRUB starts arm64's `Image` only.
#[test]
fn a_kernel_that_is_compressed_as_a_whole() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&real_kernel("payload-arm64")).unwrap();
    let packed = packed.finish().unwrap();
    // CONFIG_EFI_ZBOOT: a program for UEFI that unpacks (drivers/firmware/efi/libstub/zboot-header.S).
    let zboot = [b"MZ\0\0zimg".as_slice(), &noise(9, 40_000)].concat();
    for kernel in [packed, zboot] {
        bad_payload(&["--arch=arm64"], &["vmlinuz", "not a Linux kernel", "has to be unpacked"], |p| {
            p.write(Payload::KERNEL, kernel);
        });
    }
}

#[test]
fn a_rootfs_that_is_none() {
    let texts = ["rootfs.squashfs", "not a squashfs", "`hsqs` at byte 0"];
    bad_payload(&[], &texts, |p| p.write(Payload::ROOTFS, noise(9, 1000)));
}

#[test]
fn a_kernel_for_arm64_on_amd64() {
    let texts = ["kernel is for arm64, not for amd64", "--arch arm64"];
    bad_payload(&["--arch=amd64"], &texts, |p| p.write(Payload::KERNEL, real_kernel("payload-arm64")));
}

#[test]
fn a_kernel_for_amd64_on_arm64() {
    let texts = ["kernel is for amd64, not for arm64", "--arch amd64"];
    bad_payload(&["--arch=arm64"], &texts, |p| p.write(Payload::KERNEL, real_kernel("payload")));
}

/// Its header is that of a kernel for amd64, but for one bit. No firmware of amd64 starts it, nor does it start programs of 64 bits.
#[test]
fn a_kernel_of_32_bits() {
    let mut kernel = real_kernel("payload");
    kernel[0x236] &= !1;
    bad_payload(&[], &["vmlinuz: a kernel for x86 of 32 bits (i386)"], |p| p.write(Payload::KERNEL, kernel));
}

#[test]
fn a_digest_that_differs() {
    for name in Payload::FILES {
        bad_payload(&[], &[name, "SHA-256 is ", "SHA256SUMS says "], |p| {
            p.write_sums(&Payload::LISTED);
            flip(&p.path(name), 5000);
        });
    }
}

/// Files that are not installed are still what the list says, or the payload is not the one that was listed.
#[test]
fn a_digest_of_another_file_that_differs() {
    bad_payload(&[], &["os-release", "SHA256SUMS says "], |p| {
        p.write_sums(&Payload::LISTED);
        p.write("os-release", "VERSION_ID=9\n");
    });
}

/// In images whose layers are read to their end before the write, and in larger ones, wherever os-release is.
fn images_of(world: &World, name: &str) -> Vec<Layout> {
    let written = |name: String, image: Image| {
        let layout = Layout::new(&world.path(&name));
        image.write(&layout, "1");
        layout
    };
    let mut layouts = vec![written(format!("{name}-built"), built(world.payload.dir(), Pack::Gzip))];
    for more in [0, 17 * MIB] {
        for is_first in [false, true] {
            let mut files = images::files(world.payload.dir());
            files.sort_by_key(|(name, _)| (name == "os-release") != is_first);
            let tar = files.iter().fold(dirs(), |tar, (name, bytes)| tar.file(&format!("{DIR}/{name}"), bytes));
            let tar = tar.file("usr/more", &vec![0; more as usize]).end();
            layouts.push(written(format!("{name}-{more}-{is_first}"), Image::new(vec![Layer::new(tar, Pack::Plain)])));
        }
    }
    layouts
}

/// os-release was changed, and the list made anew by another program: manifest.json says what was. Nobody can tell which one is
/// right, so neither is installed, however it comes.
#[test]
fn a_version_that_manifest_json_does_not_say() {
    let world = World::new();
    let payload = &world.payload;
    let checksum = || payload.checksum().succeeds();
    checksum();
    payload.write("os-release", "VERSION_ID=2.0.0\n");
    payload.write_sums(&[&Payload::LISTED[..], &["manifest.json"]].concat());
    for is_right in [false, true] {
        if is_right {
            checksum();
        }
        let layouts = images_of(&world, &is_right.to_string());
        let debian = registry_with(&world.path(&format!("registry-{is_right}")), &layouts[3], "", "", &[]);
        let archive = world.path("archive.tar");
        tool!("tar", "-C", &layouts[0].0, "-cf", &archive, ".");
        let mut sources: Vec<_> = layouts.iter().map(Layout::source).collect();
        sources.extend([payload.source(), format!("oci-archive:{}", archive.display())]);
        sources.push(format!("docker://127.0.0.1:{}/os:1", debian.port));
        for source in &sources {
            let inspect = ["inspect", "--output=json", "--plain-http", "--progress=none", source];
            let inspect = Outcome::of(&mut installer(inspect));
            let disk = world.image();
            let install = world.install(&disk, &["--plain-http", &format!("--source={source}")]);
            if is_right {
                assert_eq!(inspect.succeeds().json()["version"], "2.0.0", "{source}");
                install.succeeds();
                assert_eq!(json_of(&disk, &["status"])["slots"]["A"]["version"], "2.0.0", "{source}");
            } else {
                inspect.exits(INPUT).says(&["its version is not that of os-release", "installer checksum"]);
                assert!(install.code != 0 && install.stderr.contains("manifest.json"), "{source}: {}", install.stderr);
                let is_whole = on_disk(&disk, &["verify", "--progress=none"]).code == 0;
                assert!(!is_whole, "{source}");
            }
        }
    }
}

#[test]
fn digests_that_are_malformed() {
    let digest = "0".repeat(64);
    for (line, text) in [
        ("hello".to_owned(), "line 1: not of the form"),
        (format!("{digest} vmlinuz"), "line 1: not of the form"),
        (format!("{}  vmlinuz", &digest[1..]), "line 1: not of the form"),
        (format!("{digest}  ../x"), "line 1: \"../x\" is not a plain file name"),
        (format!("{digest}  /etc/passwd"), "line 1: \"/etc/passwd\" is not a plain file name"),
        (format!("{digest}  sub/x"), "line 1: \"sub/x\" is not a plain file name"),
        (format!("{digest}  vmlinuz\n{digest}  vmlinuz"), "line 2: \"vmlinuz\" is listed twice"),
    ] {
        bad_payload(&[], &["SHA256SUMS", text], |p| p.write("SHA256SUMS", line + "\n"));
    }
    bad_payload(&[], &["SHA256SUMS", "not UTF-8"], |p| p.write("SHA256SUMS", [0xff, 0xfe]));
    bad_payload(&[], &["SHA256SUMS", "larger than 64 KiB"], |p| p.write("SHA256SUMS", vec![b'0'; (64 << 10) + 1]));
}

#[test]
fn digests_of_a_file_that_is_not_there() {
    bad_payload(&[], &["SHA256SUMS", "lists a file that is not there: ghost", "installer checksum"], |p| {
        p.write("ghost", "boo");
        p.write_sums(&[&Payload::LISTED[..], &["ghost"]].concat());
        p.remove("ghost");
    });
}

#[test]
fn digests_that_leave_a_file_out() {
    for name in Payload::LISTED {
        bad_payload(&[], &["SHA256SUMS", &format!("does not list {name}"), "installer checksum"], |p| {
            let others: Vec<&str> = Payload::LISTED.into_iter().filter(|other| *other != name).collect();
            p.write_sums(&others);
        });
    }
}

#[test]
fn strict_without_digests() {
    bad_payload(&["--strict"], &["SHA256SUMS: missing", "--strict requires it", "installer checksum"], |_| ());
    let world = World::new();
    world.payload.write_sums(&Payload::LISTED);
    world.installed(&["--strict"]);
}

/// Reading one would wait for ever for a writer.
#[test]
fn a_fifo_instead_of_a_file() {
    for name in [Payload::KERNEL, Payload::INITRAMFS, Payload::ROOTFS, "SHA256SUMS", "cmdline", "os-release"] {
        let world = World::new();
        let image = world.image();
        let path = world.payload.path(name);
        if path.exists() {
            world.payload.remove(name);
        }
        tool!("mkfifo", &path);
        refused(&image, INPUT, &[name, "not a regular file"], || {
            Outcome::of(world.install_command(&image, &[]).timeout(Duration::from_secs(5)))
        });
    }
}

#[test]
fn a_directory_or_a_device_instead_of_a_file() {
    bad_payload(&[], &["initramfs.xz", "not a regular file"], |p| {
        p.remove(Payload::INITRAMFS);
        fs::create_dir(p.path(Payload::INITRAMFS)).unwrap();
    });
    bad_payload(&[], &["rootfs.squashfs", "not a regular file"], |p| {
        p.remove(Payload::ROOTFS);
        // Without end, were it read.
        tool!("mknod", p.path(Payload::ROOTFS), "c", "1", "5");
    });
}

#[test]
fn a_cmdline_that_is_no_text() {
    bad_payload(&[], &["cmdline", "not UTF-8 text"], |p| p.write("cmdline", [b'a', 0xff]));
}

/// Some editors begin a file so. The first argument would not be what it looks like.
#[test]
fn a_cmdline_with_a_byte_order_mark() {
    let world = World::new();
    world.payload.write("cmdline", "\u{feff}one=1 two=2\r\n");
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    for source in [world.payload.source(), layout.source()] {
        let disk = world.image();
        world.install(&disk, &[&format!("--source={source}")]).succeeds();
        let slot = json_of(&disk, &["status"])["slots"]["A"].take();
        let cmdline = slot["cmdline"].as_str().unwrap();
        assert!(cmdline.split(' ').any(|word| word == "one=1") && cmdline.is_ascii(), "{source}: {cmdline}");
    }
}

/// FAT's limit of a file. A larger slot is no remedy, so it is none to advise. (Planned only: 4 GiB take a while to
/// hash.)
#[test]
fn a_file_too_large_for_fat() {
    let world = World::new();
    let mut payload = DirSource::new(world.payload.dir())
        .facts(ChecksumPolicy::from_strict(false), Inspection::Everything, |_| ())
        .unwrap();
    payload.files[2].size = 1 << 32;
    let disk = world.sparse("disk.img", 20 << 30);
    let disk = Disk::open(&disk, Access::Whole, None, Duration::ZERO).unwrap();
    let request = InstallRequest {
        force: false,
        zero: false,
        format_data: false,
        encrypted: vec![],
        bootable_mbr: false,
        no_menu: false,
        slot_bytes: 8 << 30,
        ids: Ids { disk: Uuid::nil(), parts: [Uuid::nil(); 7], time: 0 },
        args: KernelArgs::default(),
        meta: vec![],
        arch: Arch::Amd64,
        medium: None,
        allow_unsigned: false,
        by: String::new(),
    };
    let boot = Assets::load_from(&assets().join("amd64"), Arch::Amd64, EfiLoader::Grub).unwrap();
    let facts = probe::disk_facts(&disk).unwrap();
    let refusals = plan::install(&request, &facts, &payload, &probe::asset_facts(&boot, Arch::Amd64)).unwrap_err();
    let text = refusals.to_string();
    assert!(text.contains("rootfs.squashfs has 4 GiB"), "{text}");
    assert!(!text.contains("--slot-size"), "{text}");
    assert_eq!(refusals.kind(), FailureKind::Input);
}

/// By the numbers of the refusal: with as many bytes less it fits, and fills the slot to its last cluster.
#[test]
fn one_byte_too_large_for_a_slot() {
    const CLUSTER: u64 = 512;
    const ROOTFS: &str = Payload::ROOTFS;
    let flags = ["--slot-size=36MiB", "--force"];
    let world = World::new();
    let image = world.image();

    let much = 40 * MIB;
    world.payload.resize(ROOTFS, much);
    let [need, have, short] = refused_with_numbers(&world, &image, &flags);
    assert_eq!(need - have, short, "they are the numbers that are shown");
    let fits = |clusters: u64| {
        world.payload.resize(ROOTFS, clusters * CLUSTER);
        world.install(&image, &[&flags[..], &["--dry-run"]].concat()).code == 0
    };
    // Tenths of a MiB are rounded, so that less by so much is enough, and less by two tenths fewer is not.
    let clusters = |tenths: u64| (tenths * MIB / 10).div_ceil(CLUSTER);
    let (mut enough, mut too_many) = (much / CLUSTER - clusters(short), much / CLUSTER - clusters(short - 2));
    assert!(fits(enough) && !fits(too_many), "{need} {have} {short}");
    while too_many - enough > 1 {
        let middle = enough.midpoint(too_many);
        if fits(middle) {
            enough = middle;
        } else {
            too_many = middle;
        }
    }
    let most = enough * CLUSTER;

    world.payload.resize(ROOTFS, most + 1);
    let [need, still, short] = refused_with_numbers(&world, &image, &flags);
    assert_eq!((need - still, still, short), (1, have, 1));

    world.payload.resize(ROOTFS, most);
    world.install(&image, &flags).succeeds();
    on_disk(&image, &["verify"]).succeeds();
    let volume = world.path("volume");
    extract(&image, partition(&image, "BOOT-A"), &volume);
    assert_clean_fat(&volume);
    let counts = tool!("fsck.vfat", "-n", &volume);
    let [used, all] = counts
        .rsplit_once(' ')
        .and_then(|(before, _)| {
            let (used, all) = before.rsplit_once(' ')?.1.split_once('/')?;
            Some([used.to_owned(), all.to_owned()])
        })
        .unwrap();
    assert_eq!(used, all, "not full: {counts}");
}

/// Refuse a payload that is too large; what is needed, there, and short, in tenths of a MiB.
#[track_caller]
fn refused_with_numbers(world: &World, image: &Path, flags: &[&str]) -> [u64; 3] {
    let mut text = String::new();
    let texts = ["does not fit into a slot of 36 MiB", "use a larger --slot-size"];
    refused(image, INPUT, &texts, || {
        let outcome = world.install(image, flags);
        text.clone_from(&outcome.stderr);
        outcome
    });
    ["the files need ", "has room for ", " MiB ("].map(|before| {
        let (_, after) = text.split_once(before).unwrap_or_else(|| panic!("{before:?} is not in {text}"));
        let (number, _) = after.split_once(" MiB").unwrap();
        let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
        whole.parse::<u64>().unwrap() * 10 + tenths.parse::<u64>().unwrap()
    })
}
