//! `installer image --kind iso|pxe`: live media, judged by the tools of their formats, the same bytes from the same
//! inputs, and everything that must be refused. That they start machines: `vm-tests/live.rs`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, missing_docs, reason = "tests")]

mod images;
mod world;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use assert_cmd::Command;
use images::{Layout, Pack, built};
use slipway_core::{digest::Sha256, media::live::MAX_INITRAMFS_BYTES, units::MIB};
use world::{
    Outcome, Payload, Range, SmallFs, World, assert_clean_fat, asset, assets, extract, installer,
    nobody::{NOBODY, Nobody},
    noise, program, real_kernel, tool,
};

/// Exit codes of the public table.
const INPUT: i32 = 2;
const DEPENDENCY: i32 = 5;
const INSTALL: i32 = 7;

const KINDS: [&str; 2] = ["iso", "pxe"];

fn command(world: &World, kind: &str, out: &Path, extra: &[&str]) -> Command {
    let mut command = installer(["image", "--progress=none", "--output=json", "--kind", kind, "--out"]);
    command.arg(out).args(extra).env_remove("SOURCE_DATE_EPOCH");
    if !extra.iter().any(|arg| arg.starts_with("--source")) {
        command.arg(format!("--source={}", world.payload.source()));
    }
    command
}

fn live(world: &World, kind: &str, out: &Path, extra: &[&str]) -> Outcome {
    Outcome::of(&mut command(world, kind, out, extra))
}

/// A medium and what the program says of it.
#[track_caller]
fn made(world: &World, kind: &str, name: &str, extra: &[&str]) -> (PathBuf, serde_json::Value) {
    let out = world.path(name);
    let report = live(world, kind, &out, extra).succeeds().json();
    (out, report)
}

/// Refused with this exit code and these words; nothing new lies in the directory.
#[track_caller]
fn refused(world: &World, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let list = || tool!("ls", "-lA", "--time-style=full-iso", world.path(""));
    let before = list();
    attempt().exits(code).says(texts);
    assert_eq!(list(), before);
}

fn seal(world: &World) {
    Outcome::of(&mut installer(["seal", "--progress=none", world.payload.dir().to_str().unwrap()])).succeeds();
}

/// The second partition of a disk, by sgdisk.
fn second_partition(disk: &Path) -> Range {
    let told = tool!("sgdisk", "--info=2", disk);
    assert!(told.contains("(EFI system partition)"), "{told}");
    let number = |key: &str| -> u64 {
        let line = told.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    Range { offset: number("First sector: ") * 512, len: number("Partition size: ") * 512 }
}

/// The files of an ISO, by xorriso.
fn unpacked_iso(world: &World, iso: &Path) -> PathBuf {
    let dir = world.path("unpacked-iso");
    tool!("xorriso", "-no_rc", "-osirrox", "on", "-indev", iso, "-extract", "/boot", &dir);
    dir
}

/// The files of the archive behind the payload's own initramfs, by cpio.
fn unpacked_initramfs(world: &World, initramfs: &Path) -> PathBuf {
    let own = world.payload.read(Payload::INITRAMFS);
    let bytes = fs::read(initramfs).unwrap();
    assert!(bytes.starts_with(&own), "the payload's initramfs is not the first");
    let behind = &bytes[own.len().next_multiple_of(4)..];
    assert!(behind.starts_with(b"070701"));
    let (archive, dir) = (world.path("cpio"), world.path("unpacked-cpio"));
    fs::write(&archive, behind).unwrap();
    fs::create_dir(&dir).unwrap();
    tool!("sh", "-c", r#"cd "$1" && cpio --quiet --extract --make-directories <"$0""#, &archive, &dir);
    dir
}

/// Everything of the payload is in this directory, sealed, and nothing else.
fn assert_sealed_payload(world: &World, dir: &Path, cmdline: bool) {
    let mut expected = vec!["SHA256SUMS", "initramfs.xz", "manifest.json", "os-release", "rootfs.squashfs", "vmlinuz"];
    if cmdline {
        expected.insert(1, "cmdline");
    }
    assert_eq!(tool!("ls", "-A", dir), expected.join("\n") + "\n");
    tool!("sh", "-c", r#"cd "$0" && sha256sum --check --strict --quiet SHA256SUMS"#, dir);
    for name in expected.iter().filter(|name| world.payload.path(name).exists()) {
        if !images::SEALS.contains(name) {
            assert!(fs::read(dir.join(name)).unwrap() == world.payload.read(name), "{name}");
        }
    }
    let source = format!("dir:{}", dir.display());
    let report = Outcome::of(&mut installer(["inspect", "--output=json", "--strict", &source])).succeeds().json();
    assert_eq!((report["sealed"].as_bool(), report["version"].as_str()), (Some(true), Some("1.2.3")), "{report}");
}

// ---------------------------------------------------------------------------------------------------
// What is made.

#[test]
fn an_iso_starts_as_cd_and_as_disk() {
    let world = World::new();
    let (iso, report) = made(&world, "iso", "live.iso", &[]);
    let medium = report["medium"].as_str().unwrap();
    let listed = tool!("xorriso", "-no_rc", "-indev", &iso, "-report_el_torito", "plain");
    for line in ["/boot/bios.img", "boot-info-table grub2-boot-info", "/boot/efi.img"] {
        assert!(listed.contains(line), "{listed}");
    }
    let images: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("El Torito boot img :")).collect();
    assert!(
        images.len() == 2 && images[0].contains("BIOS  y   none") && images[1].contains("UEFI  y   none"),
        "{listed}"
    );
    let volume = tool!("xorriso", "-no_rc", "-indev", &iso, "-pvd_info");
    assert!(volume.contains("Volume Id    : SLIPWAY_1_2_3"), "{volume}");
    // As a disk: a sound GPT, whose ESP has UEFI's boot image; GRUB's boot code for BIOS, and an active entry.
    let sgdisk = tool!("sgdisk", "-v", &iso);
    assert!(sgdisk.contains("No problems found"), "{sgdisk}");
    let esp = world.path("esp");
    extract(&iso, second_partition(&iso), &esp);
    assert_clean_fat(&esp);
    let efi = world::finished_bytes(program("mtype").arg("-i").arg(&esp).arg("::EFI/BOOT/BOOTX64.EFI"));
    assert!(efi == asset("iso.efi"), "not the UEFI boot image");
    assert_eq!(world::read_at(&iso, 0, 0x5a), asset("boot_hybrid.img")[..0x5a]);
    let table = world::read_at(&iso, 446, 66);
    assert!(table.chunks(16).any(|entry| entry[0] == 0x80), "no active entry");
    // Our own picture of it.
    let picture = Outcome::of(&mut installer(["inspect", iso.to_str().unwrap()])).succeeds();
    assert!(picture.stdout.contains("EFI boot partition"), "{}", picture.stdout);
    // What is on it.
    let boot = unpacked_iso(&world, &iso);
    tool!("sh", "-c", r#"cd "$0" && sha256sum --check --strict --quiet SHA256SUMS"#, &boot);
    assert!(fs::read(boot.join("vmlinuz")).unwrap() == world.payload.read(Payload::KERNEL));
    assert_sealed_payload(&world, &unpacked_initramfs(&world, &boot.join("initramfs")).join("slipway/payload"), false);
    let env = tool!("grub-editenv", boot.join("medium.env"), "list");
    for line in [format!("medium={medium}"), "title=Slipway 1.2.3".into(), "efi=BOOTX64.EFI".into()] {
        assert!(env.lines().any(|l| l == line), "{line}: {env}");
    }
    let args = env.lines().find_map(|line| line.strip_prefix("args=")).unwrap();
    assert_eq!(args.replace('\'', ""), report["cmdline"].as_str().unwrap());
    for word in ["console=ttyS0,115200 console=tty0", "talos.halt_if_installed=1", &format!("slipway.medium={medium}")]
    {
        assert!(report["cmdline"].as_str().unwrap().contains(word), "{report}");
    }
    // What is left of temporary files: nothing.
    let left: Vec<_> = fs::read_dir(world.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with(".slipway")), "{left:?}");
}

/// Nothing on it is for a BIOS.
#[test]
fn an_iso_for_arm64_made_elsewhere() {
    let world = World::new();
    world.payload.write(Payload::KERNEL, real_kernel("payload-arm64"));
    let (iso, report) = made(&world, "iso", "live.iso", &["--arch=arm64"]);
    let listed = tool!("xorriso", "-no_rc", "-indev", &iso, "-report_el_torito", "plain");
    let images: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("El Torito boot img :")).collect();
    assert!(images.len() == 1 && images[0].contains("UEFI  y   none"), "{listed}");
    assert!(world::read_at(&iso, 0, 440).iter().all(|byte| *byte == 0), "boot code in the first sector");
    let sgdisk = tool!("sgdisk", "-v", &iso);
    assert!(sgdisk.contains("No problems found"), "{sgdisk}");
    let esp = world.path("esp");
    extract(&iso, second_partition(&iso), &esp);
    assert_clean_fat(&esp);
    let efi = world::finished_bytes(program("mtype").arg("-i").arg(&esp).arg("::EFI/BOOT/BOOTAA64.EFI"));
    assert!(efi == fs::read(assets().join("arm64/iso.efi")).unwrap(), "not the UEFI boot image");
    let env = tool!("grub-editenv", unpacked_iso(&world, &iso).join("medium.env"), "list");
    assert!(env.lines().any(|line| line == "efi=BOOTAA64.EFI"), "{env}");
    let cmdline = report["cmdline"].as_str().unwrap();
    assert!(cmdline.contains("console=ttyAMA0 console=tty0"), "{report}");
    assert!(!cmdline.contains("ttyS"), "a port that arm64 has not: {report}");
    // For the other machine it is refused, and the same inputs make the same bytes.
    refused(&world, INPUT, &["the payload's kernel is for arm64, not for amd64"], || {
        live(&world, "iso", &world.path("other"), &["--arch=amd64"])
    });
    let (again, _) = made(&world, "iso", "again.iso", &["--arch=arm64"]);
    tool!("cmp", &iso, &again);
}

#[test]
fn a_pxe_archive_is_what_a_server_serves() {
    let world = World::new();
    world.payload.write("cmdline", "quiet\n");
    seal(&world);
    let (tar, report) = made(&world, "pxe", "live.tar", &["--extra-kernel-arg=dyndbg=\"file x +p\"", "--platform=aws"]);
    let dir = world.path("tftp");
    fs::create_dir(&dir).unwrap();
    tool!("tar", "--extract", "--file", &tar, "--directory", &dir);
    assert_eq!(tool!("tar", "--list", "--file", &tar), "vmlinuz\ninitramfs\ncmdline\nboot.ipxe\nSHA256SUMS\n");
    tool!("sh", "-c", r#"cd "$0" && sha256sum --check --strict --quiet SHA256SUMS"#, &dir);
    assert!(fs::read(dir.join("vmlinuz")).unwrap() == world.payload.read(Payload::KERNEL));
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let cmdline = read("cmdline");
    assert_eq!(cmdline.trim(), report["cmdline"].as_str().unwrap());
    let medium = report["medium"].as_str().unwrap();
    assert_eq!(
        cmdline.trim(),
        format!(
            "talos.platform=aws console=tty0 console=tty1 console=ttyS0 net.ifnames=0 \
             nvme_core.io_timeout=4294967295 quiet dyndbg=\"file x +p\" slipway.medium={medium}"
        )
    );
    let script = read("boot.ipxe");
    assert!(script.starts_with("#!ipxe\n"), "{script}");
    assert!(
        script.contains(&format!("kernel vmlinuz initrd=initramfs {} || goto failed\n", cmdline.trim())),
        "{script}"
    );
    assert_sealed_payload(&world, &unpacked_initramfs(&world, &dir.join("initramfs")).join("slipway/payload"), true);
    // Everything is root's, and has the one time.
    let listed = tool!("cpio", "--quiet", "--list", "--verbose", "--numeric-uid-gid", "--file", world.path("cpio"));
    let count = |text: &str| listed.matches(text).count();
    assert_eq!((listed.lines().count(), count(" 0        0 ")), (9, 9), "{listed}");
}

#[test]
fn the_payloads_cmdline_can_stand_alone() {
    let world = World::new();
    world.payload.write("cmdline", "quiet\n");
    let out = world.path("live.iso");
    let mut command = installer(["image", "--progress=plain", "--output=json", "--platform=aws", "--kind=iso"]);
    command.arg(format!("--source={}", world.payload.source())).arg("--out").arg(&out);
    let outcome = Outcome::of(command.env("INSTALLER_GRUB_USE_UKI_CMDLINE", "true")).succeeds();
    let outcome = outcome.says(&["the payload's cmdline stands alone", "--platform=aws"]);
    let report = outcome.json();
    assert_eq!(report["cmdline"], format!("quiet slipway.medium={}", report["medium"].as_str().unwrap()));
}

/// Streamed from layers, in the order in which these have the files.
#[test]
fn a_sealed_image_makes_the_same_medium_as_its_directory() {
    let world = World::new();
    world.payload.write("cmdline", "quiet\n");
    seal(&world);
    let layout = Layout::new(&world.path("layout"));
    for pack in Pack::ALL {
        built(world.payload.dir(), pack).write(&layout, &format!("{pack:?}"));
    }
    for kind in KINDS {
        let (first, _) = made(&world, kind, &format!("1.{kind}"), &[]);
        for pack in Pack::ALL {
            let source = format!("--source={}:{pack:?}", layout.source());
            let (second, _) = made(&world, kind, &format!("{pack:?}.{kind}"), &[&source]);
            tool!("cmp", &first, &second);
        }
    }
}

#[test]
fn a_container_image_is_carried_whole() {
    let world = World::new();
    seal(&world);
    let layout = Layout::new(&world.path("layout"));
    let image = built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    // Another one, which is not asked for.
    world.payload.write("more", "x");
    built(world.payload.dir(), Pack::Gzip).write(&layout, "2");
    let archive = world.path("image.tar");
    let to = format!("oci-archive:{}:1", archive.display());
    tool!("skopeo", "copy", "--quiet", format!("{}:1", layout.source()), &to);
    let container = format!("--container={}:1", layout.source());
    let (first, report) = made(&world, "pxe", "1.tar", &[&container]);
    assert_eq!(format!("sha256:{}", report["container"].as_str().unwrap()), image["digest"].as_str().unwrap());
    let (second, _) = made(&world, "pxe", "2.tar", &[&format!("--container={to}")]);
    tool!("cmp", &first, &second);
    let (without, other) = made(&world, "pxe", "3.tar", &[]);
    assert_ne!((report["medium"].as_str(), &other["container"]), (other["medium"].as_str(), &report["container"]));
    assert!(fs::metadata(&without).unwrap().len() < fs::metadata(&first).unwrap().len());
    tool!("tar", "--extract", "--file", &first, "--directory", world.path(""), "initramfs");
    let carried = unpacked_initramfs(&world, &world.path("initramfs")).join("slipway/image.tar");
    let source = format!("oci-archive:{}", carried.display());
    let digest = tool!("skopeo", "inspect", "--format={{.Digest}}", &source);
    assert_eq!(digest.trim(), image["digest"].as_str().unwrap());
    tool!("skopeo", "copy", "--quiet", &source, format!("dir:{}", world.path("copied").display()));
    Outcome::of(&mut installer(["inspect", "--strict", &source])).succeeds();
}

#[test]
fn a_payload_without_a_squashfs_or_a_seal() {
    let world = World::new();
    world.payload.remove(Payload::ROOTFS);
    for kind in KINDS {
        let (out, report) = made(&world, kind, kind, &[]);
        assert_eq!(report["version"], "1.2.3");
        assert!(fs::metadata(out).unwrap().len() > 40_000);
    }
    let attempt = || live(&world, "iso", &world.path("strict.iso"), &["--strict"]);
    refused(&world, INPUT, &["SHA256SUMS", "--strict requires it"], attempt);
}

#[test]
fn the_suffix_compresses() {
    let world = World::new();
    for kind in KINDS {
        let (plain, _) = made(&world, kind, &format!("live.{kind}"), &[]);
        for (tool, suffix) in [("xz", "xz"), ("zstd", "zst"), ("gzip", "gz")] {
            let (out, _) = made(&world, kind, &format!("live.{kind}.{suffix}"), &[]);
            tool!("sh", "-c", r#""$0" --decompress --stdout "$1" | cmp - "$2""#, tool, &out, &plain);
        }
    }
}

// ---------------------------------------------------------------------------------------------------
// The same inputs, the same bytes.

fn as_nobody(nobody: &Nobody, payload: &Path, kind: &str, out: &Path) -> Command {
    let mut command = nobody.installer();
    command.args(["image", "--progress=none", "--kind", kind, "--out"]).arg(out);
    command.arg(format!("--source=dir:{}", payload.display()));
    command
}

/// In another directory, at another time, as another user, who has no rights but a configuration of his own, in another
/// time zone; the payload lies somewhere else.
#[test]
fn the_same_inputs_make_the_same_bytes() {
    let world = World::new();
    let nobody = Nobody::new(&world);
    let home = &nobody.home;
    // Written in another order: other inode numbers.
    fs::create_dir(home.join("payload")).unwrap();
    for name in ["vmlinuz", "rootfs.squashfs", "os-release", "initramfs.xz"] {
        fs::copy(world.payload.path(name), home.join("payload").join(name)).unwrap();
    }
    tool!("chown", "-R", "65534:65534", home.join("payload"));
    fs::write(home.join(".xorrisorc"), "-volid OTHER\n-no_such_command\n").unwrap();
    for kind in KINDS {
        let (first, _) = made(&world, kind, &format!("live.{kind}"), &[]);
        thread::sleep(Duration::from_millis(2100));
        let second = home.join(format!("other.{kind}"));
        Outcome::of(&mut as_nobody(&nobody, &home.join("payload"), kind, &second)).succeeds();
        assert_eq!(fs::metadata(&second).unwrap().uid(), NOBODY);
        tool!("cmp", &first, &second);
    }
}

#[test]
fn other_inputs_make_another_medium() {
    let world = World::new();
    let id = |kind: &str, name: &str, extra: &[&str]| {
        let (_, report) = made(&world, kind, name, extra);
        let id = report["medium"].as_str().unwrap().to_owned();
        assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{id}");
        id
    };
    let mut all = vec![
        id("iso", "1", &[]),
        id("pxe", "2", &[]),
        id("iso", "3", &["--extra-kernel-arg=quiet"]),
        id("iso", "4", &["--seed=one"]),
        id("iso", "5", &["--seed=two"]),
    ];
    world.payload.write(Payload::ROOTFS, [b"hsqs".to_vec(), noise(9, 70_000)].concat());
    all.push(id("iso", "6", &[]));
    assert_eq!(id("iso", "7", &[]), all[5]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "{all:?}");
}

#[test]
fn source_date_epoch_is_the_time() {
    let world = World::new();
    let out = world.path("live.iso");
    Outcome::of(command(&world, "iso", &out, &[]).env("SOURCE_DATE_EPOCH", "1600000000")).succeeds();
    let listed = tool!("xorriso", "-no_rc", "-indev", &out, "-find", "/boot", "-exec", "lsdl", "--");
    assert_eq!(listed.matches("Sep 13  2020").count(), listed.lines().count(), "{listed}");
    let volume = tool!("xorriso", "-no_rc", "-indev", &out, "-pvd_info");
    assert!(volume.contains("Creation Time: 2020091312264000"), "{volume}");
}

// ---------------------------------------------------------------------------------------------------
// What is refused.

#[test]
fn options_that_mean_a_disk() {
    let world = World::new();
    let out = world.path("live");
    for kind in KINDS {
        for option in ["--disk-size=4GiB", "--sector-size=512", "--slot-size=64MiB", "--format-data=false"] {
            let texts = [option.split('=').next().unwrap(), "a live medium has no disk"];
            refused(&world, INPUT, &texts, || live(&world, kind, &out, &[option]));
        }
        refused(&world, INPUT, &["META", "a live medium has no disk"], || live(&world, kind, &out, &["--meta=0x0a=x"]));
        let attempt = || Outcome::of(command(&world, kind, &out, &[]).env("INSTALLER_META_BASE64", "MHgwYT14"));
        refused(&world, INPUT, &["META"], attempt);
    }
    let texts = ["--container", "only a live medium"];
    refused(&world, INPUT, &texts, || live(&world, "raw", &out, &["--container=oci:somewhere"]));
}

#[test]
fn kernel_arguments_that_would_not_arrive() {
    let world = World::new();
    let out = world.path("live");
    for (kind, arg) in [("iso", "a=b\"c\""), ("pxe", "a=b\"c\""), ("pxe", "a=${b}"), ("pxe", "&&")] {
        let extra = format!("--extra-kernel-arg={arg}");
        refused(&world, INPUT, &["kernel command line"], || live(&world, kind, &out, &[&extra]));
    }
    // Nobody would be there to read about it.
    for arg in ["slipway.install=foo", "slipway.install.preserve=yes", "slipway.installs=/dev/sda"] {
        let extra = format!("--extra-kernel-arg={arg}");
        refused(&world, INPUT, &["kernel command line: slipway.install"], || live(&world, "iso", &out, &[&extra]));
    }
    refused(&world, INPUT, &["platform", "not known"], || live(&world, "iso", &out, &["--platform=moon"]));
}

#[test]
fn a_file_that_is_there() {
    let world = World::new();
    for kind in KINDS {
        let out = world.path(kind);
        fs::write(&out, "precious").unwrap();
        let texts = [out.to_str().unwrap(), "exists; --force replaces it"];
        refused(&world, INSTALL, &texts, || live(&world, kind, &out, &[]));
        assert_eq!(fs::read(&out).unwrap(), b"precious");
        live(&world, kind, &out, &["--force"]).succeeds();
        assert!(fs::metadata(&out).unwrap().len() > 100_000);
    }
}

#[test]
fn a_broken_payload() {
    let world = World::new();
    seal(&world);
    let layout = Layout::new(&world.path("layout"));
    let mut files = images::files(world.payload.dir());
    // What the seal says is not what the layer has: found out while the medium is written.
    for (name, bytes) in &mut files {
        if name == Payload::ROOTFS {
            bytes[60_000] ^= 1;
        }
    }
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    images::Image::new(vec![images::layer(&files, &names, Pack::Gzip)]).write(&layout, "1");
    let source = format!("--source={}", layout.source());
    world.payload.write(Payload::ROOTFS, [b"hsqs".to_vec(), noise(9, 70_000)].concat());
    for kind in KINDS {
        let out = world.path("live");
        refused(&world, INPUT, &["rootfs.squashfs", "SHA-256"], || live(&world, kind, &out, &[]));
        refused(&world, INPUT, &["rootfs.squashfs", "SHA-256"], || live(&world, kind, &out, &[&source]));
    }
}

#[test]
fn a_payload_for_another_machine() {
    let world = World::new();
    let mut kernel = noise(7, 40_000);
    kernel[56..60].copy_from_slice(b"ARM\x64");
    world.payload.write(Payload::KERNEL, kernel);
    let out = world.path("live");
    for kind in KINDS {
        let texts = ["the payload's kernel is for arm64, not for amd64"];
        refused(&world, INPUT, &texts, || live(&world, kind, &out, &["--arch=amd64"]));
    }
}

/// Found out by sizes alone: nothing is read or written.
#[test]
fn a_payload_that_no_kernel_could_be_given() {
    let world = World::new();
    let squashfs = world.payload.path(Payload::ROOTFS);
    fs::File::options().write(true).open(squashfs).unwrap().set_len(MAX_INITRAMFS_BYTES).unwrap();
    let attempt = || Outcome::of(command(&world, "pxe", &world.path("live"), &[]).timeout(Duration::from_secs(600)));
    refused(&world, INPUT, &["the initramfs would have"], attempt);
}

#[test]
fn a_container_image_that_is_none() {
    let world = World::new();
    let out = world.path("live");
    let dir = format!("--container={}", world.payload.source());
    refused(&world, INPUT, &["--container", "no container image"], || live(&world, "iso", &out, &[&dir]));
    let missing = format!("--container=oci:{}", world.path("missing").display());
    refused(&world, INPUT, &["missing"], || live(&world, "pxe", &out, &[&missing]));
    // A layer that is not what the manifest says.
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let blobs = fs::read_dir(world.path("layout/blobs/sha256")).unwrap().map(|e| e.unwrap().path());
    let layer = blobs.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    world::flip(&layer, 1000);
    let damaged = format!("--container={}", layout.source());
    for kind in KINDS {
        let texts = ["blobs/sha256/", "SHA-256"];
        refused(&world, INPUT, &texts, || live(&world, kind, &out, &[&damaged]));
    }
}

#[test]
fn a_path_that_cannot_be_written() {
    let world = World::new();
    let nobody = Nobody::new(&world);
    for kind in KINDS {
        let missing = world.path("missing/live");
        refused(&world, INSTALL, &["missing", "No such file"], || live(&world, kind, &missing, &[]));
        let mut attempt = as_nobody(&nobody, world.payload.dir(), kind, &world.path("live"));
        refused(&world, INSTALL, &["Permission denied"], || Outcome::of(&mut attempt));
    }
}

/// Beside the target, and while xorriso writes. Nothing is left either way.
#[test]
fn a_full_disk() {
    let world = World::new();
    let small = SmallFs::new(&world);
    for (kind, free) in [("pxe", MIB / 8), ("iso", MIB / 8), ("iso", 2 * MIB)] {
        small.leave_free(free);
        live(&world, kind, &small.path("live"), &[]).exits(INSTALL).says(&["live", "No space left on device"]);
        assert_eq!(tool!("ls", "-A", small.path("")), "filler\nlost+found\n");
        fs::remove_file(small.path("filler")).unwrap();
    }
}

/// A directory in which `xorrisofs` is a script; the PATH with it first.
fn with_xorrisofs(world: &World, script: &str) -> String {
    let bin = world.path("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("xorrisofs"), script).unwrap();
    fs::set_permissions(bin.join("xorrisofs"), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// The real xorriso, and then one byte of what it made is another: in the kernel, in the payload, in what starts it.
#[test]
fn an_iso_that_is_not_what_it_should_be() {
    let world = World::new();
    let (iso, _) = made(&world, "iso", "good.iso", &[]);
    let listed = tool!("xorriso", "-no_rc", "-indev", &iso, "-find", "/", "-type", "f", "-exec", "report_lba", "--");
    for name in ["vmlinuz", "initramfs", "efi.img", "bios.img", "medium.env", "SHA256SUMS"] {
        let line = listed.lines().find(|line| line.ends_with(&format!("'/boot/{name}'"))).unwrap();
        let block: u64 = line.split(',').nth(1).unwrap().trim().parse().unwrap();
        let at = block * 2048 + 70;
        let script = format!(
            "#!/bin/sh\n/usr/bin/xorrisofs \"$@\" >made.iso || exit\nhead -c {at} made.iso\n\
             printf '\\377'\ntail -c +{} made.iso\n",
            at + 2
        );
        let path = with_xorrisofs(&world, &script);
        let attempt = || Outcome::of(command(&world, "iso", &world.path("live.iso"), &[]).env("PATH", &path));
        refused(&world, INSTALL, &["live.iso", &format!("/boot/{name}"), "is not what was written"], attempt);
    }
}

#[test]
fn xorriso_that_fails_or_is_not_there() {
    let world = World::new();
    let script = "#!/bin/sh\necho 'xorriso 1.5.4 : RockRidge filesystem manipulator' >&2\n\
                  echo 'xorriso : FAILURE : the moon is full' >&2\nexit 32\n";
    let path = with_xorrisofs(&world, script);
    let attempt = || Outcome::of(command(&world, "iso", &world.path("live.iso"), &[]).env("PATH", &path));
    refused(&world, DEPENDENCY, &["xorrisofs failed", "FAILURE : the moon is full"], attempt);
    let without = |kind: &str| Outcome::of(command(&world, kind, &world.path("live"), &[]).env("PATH", ""));
    refused(&world, DEPENDENCY, &["xorrisofs is not installed", "package xorriso"], || without("iso"));
    // A network boot needs none.
    without("pxe").succeeds();
}

#[test]
fn boot_assets_for_live_media_are_checked() {
    let world = World::new();
    tool!("cp", "-r", assets(), world.path("assets"));
    let attempt = || {
        let mut command = command(&world, "iso", &world.path("live.iso"), &[]);
        Outcome::of(command.env("SLIPWAY_ASSETS", world.path("assets")))
    };
    for name in ["iso.efi", "iso.img", "boot_hybrid.img"] {
        let path = world.path("assets/amd64").join(name);
        let good = fs::read(&path).unwrap();
        world::flip(&path, 100);
        refused(&world, 4, &[name, "SHA-256"], attempt);
        fs::write(&path, good).unwrap();
    }
    attempt().succeeds();
}

#[test]
fn a_dry_run_makes_nothing() {
    let world = World::new();
    let list = || tool!("ls", "-A", world.path(""));
    let before = list();
    for kind in KINDS {
        let dry = live(&world, kind, &world.path("live"), &["--dry-run"]).succeeds().json();
        assert_eq!((dry["changed"].as_bool(), &dry["file_bytes"]), (Some(false), &serde_json::Value::Null));
        assert_eq!(list(), before);
        let (out, wet) = made(&world, kind, "live", &[]);
        assert_eq!(dry["medium"], wet["medium"]);
        assert_eq!(wet["file_bytes"].as_u64(), Some(fs::metadata(&out).unwrap().len()));
        fs::remove_file(out).unwrap();
    }
    // The name is a digest; the digest names the payload as everywhere.
    let listed = Payload::FILES.map(|name| format!("{}  {name}\n", Sha256::of(&world.payload.read(name))));
    let (_, report) = made(&world, "pxe", "live", &[]);
    let mut sorted = listed.to_vec();
    sorted.sort_by(|a, b| a[66..].cmp(&b[66..]));
    assert_eq!(report["payload"].as_str().unwrap(), Sha256::of(sorted.concat().as_bytes()).to_string());
}
