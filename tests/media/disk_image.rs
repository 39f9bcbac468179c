//! `installer image`: disk images in files, each judged by the tools of its own format, the same bytes from the same
//! inputs, and everything that must be refused.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use assert_cmd::Command;
use serde_json::json;
use slipway_core::{digest::Sha256, units::MIB};
use slipway_test_support::{
    exit_code::{DEPENDENCY, INPUT, INSTALL},
    files,
    world::{
        self, Loop, Mount, NOBODY, Nobody, Outcome, Payload, SLOT, SLOT_4096, SmallFs, World, assets, extract,
        finished, installer, installer_in, json_of, noise, on_disk, partition, program, read_at, real_kernel, tool,
        write_at,
    },
};

use crate::refused;

/// The smallest disk for slots of [`SLOT`]: label, ESP, BIOS, two slots, META, STATE, EPHEMERAL, and the backup label.
const SMALLEST: u64 = (1 + 300 + 1 + 2 * 64 + 1 + 100 + 64) * MIB + 33 * 512;
/// The program's own time, where `SOURCE_DATE_EPOCH` says none.
const TIME: &str = "2026-01-01 00:00:00";

/// `image` with small slots and a small disk, unless `extra` says otherwise.
fn image_command(world: &World, kind: &str, out: &Path, extra: &[&str]) -> Command {
    let mut command = installer(["image", "--progress=none", "--kind", kind, "--out"]);
    command.arg(out).arg(format!("--source={}", world.payload.source()));
    let given = |flag: &str| extra.iter().any(|arg| arg.starts_with(flag));
    if !given("--slot-size") {
        command.arg(SLOT);
    }
    if !given("--disk-size") {
        command.arg("--disk-size=600MiB");
    }
    command.args(extra).env_remove("SOURCE_DATE_EPOCH");
    command
}

fn image(world: &World, kind: &str, out: &Path, extra: &[&str]) -> Outcome {
    Outcome::of(&mut image_command(world, kind, out, extra))
}

fn made(world: &World, kind: &str, name: &str, extra: &[&str]) -> PathBuf {
    let out = world.path(name);
    image(world, kind, &out, extra).succeeds();
    out
}

// ---------------------------------------------------------------------------------------------------
// What is made.

#[test]
fn a_raw_image_is_an_installed_disk_and_sparse() {
    let world = World::new();
    let out = world.path("os.raw");
    let report = image(&world, "raw", &out, &["--output=json"]).succeeds().json();
    assert_eq!(report["report"], "image");
    assert_eq!(report["out"], out.to_str().unwrap());
    let meta = fs::metadata(&out).unwrap();
    assert_eq!((report["disk_bytes"].as_u64(), report["file_bytes"].as_u64()), (Some(meta.len()), Some(600 * MIB)));
    assert!(meta.blocks() * 512 < 16 * MIB, "{} bytes of {} are allocated", meta.blocks() * 512, meta.len());
    let sgdisk = tool!("sgdisk", "-v", &out);
    assert!(sgdisk.contains("No problems found"), "{sgdisk}");
    on_disk(&out, &["verify"]).succeeds();
    let status = json_of(&out, &["status"]);
    assert_eq!(status["next_boot"]["slot"], "A", "{status}");
    assert_eq!(status["problems"].as_array().unwrap().len(), 0, "{status}");
    // What is left of temporary files: nothing.
    let left: Vec<_> = fs::read_dir(world.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn every_format_holds_the_same_disk() {
    let world = World::new();
    let raw = made(&world, "raw", "os.raw", &[]);
    // VHD has no check of its own.
    for (kind, format, checked) in [("qcow2", "qcow2", true), ("vhd", "vpc", false), ("vmdk", "vmdk", true)] {
        let out = made(&world, kind, &format!("os.{kind}"), &[]);
        if checked {
            tool!("qemu-img", "check", "-f", format, &out);
        }
        tool!("qemu-img", "compare", "-f", "raw", "-F", format, &raw, &out);
        let info = tool!("qemu-img", "info", "-f", format, &out);
        assert!(info.contains("(629145600 bytes)"), "{info}");
        assert!(fs::metadata(&out).unwrap().blocks() * 512 < 32 * MIB, "{kind} is not sparse");
    }
    // Fixed VHD, Azure's: the bytes of the disk, then the footer.
    let vhd = fs::metadata(world.path("os.vhd")).unwrap().len();
    assert_eq!(vhd, 600 * MIB + 512);
    assert_eq!(world::read_at(&world.path("os.vhd"), 600 * MIB, 8), b"conectix");
}

/// It looks like a raw image of a disk that is one sector larger, and that sector is what makes it a VHD.
#[test]
fn no_verb_writes_over_the_footer_of_a_vhd() {
    let world = World::new();
    let made = made(&world, "vhd", "os.vhd", &[]);
    let footer = |image: &Path| world::read_at(image, fs::metadata(image).unwrap().len() - 512, 512);
    let whole = footer(&made);
    let image = world.path("copy.vhd");
    let vhd = || tool!("cp", "--sparse=always", &made, &image);
    vhd();
    let status = json_of(&image, &["status"]);
    assert_eq!((&status["problems"], &status["notes"]), (&json!([]), &json!([])), "its table is for a smaller disk");
    assert!(!finished(installer(["inspect"]).arg(&image)).contains("installer grow"));
    on_disk(&image, &["grow"]).succeeds();
    for lost in [&[0][..], &[512], &[600 * MIB - 512], &[512, 600 * MIB - 512]] {
        lost.iter().for_each(|at| write_at(&image, *at, &[0; 512]));
        on_disk(&image, &["repair"]).succeeds();
        assert_eq!(json_of(&image, &["status"])["problems"], json!([]), "{lost:?}");
    }
    assert_eq!(footer(&image), whole);
    // As it is to be done, and what is advised.
    let refusal = ["the file is a VHD image", "qemu-img convert -f vpc -O raw"];
    world::refused(&image, INSTALL, &refusal, || world.install(&image, &["--force"]));
    let raw = world.path("disk.raw");
    tool!("qemu-img", "convert", "-f", "vpc", "-O", "raw", &image, &raw);
    world.install(&raw, &["--force"]).succeeds();
}

#[test]
fn an_ova_holds_descriptor_manifest_and_disk() {
    let world = World::new();
    let raw = made(&world, "raw", "os.raw", &[]);
    let ova = made(&world, "ova", "os & more-1.2.0.ova", &[]);
    let dir = world.path("ova");
    fs::create_dir(&dir).unwrap();
    tool!("tar", "--extract", "--file", &ova, "--directory", &dir);
    let [ovf, mf, vmdk] = [".ovf", ".mf", "-disk1.vmdk"].map(|end| format!("os & more-1.2.0{end}"));
    assert_eq!(tool!("tar", "--list", "--file", &ova), format!("{ovf}\n{mf}\n{vmdk}\n"));
    tool!("qemu-img", "check", "-f", "vmdk", dir.join(&vmdk));
    tool!("qemu-img", "compare", "-f", "raw", "-F", "vmdk", &raw, dir.join(&vmdk));
    let info = tool!("qemu-img", "info", dir.join(&vmdk));
    assert!(info.contains("create type: streamOptimized"), "{info}");
    let descriptor = String::from_utf8_lossy(&read_at(&dir.join(&vmdk), 512, 2048)).into_owned();
    assert!(descriptor.contains("ddb.adapterType = \"lsilogic\""), "the OVF has a controller for SCSI: {descriptor}");
    // The manifest lists both; so says coreutils.
    let listed = fs::read_to_string(dir.join(&mf)).unwrap();
    let of = |name: &str| format!("SHA256({name})= {}\n", Sha256::of(&fs::read(dir.join(name)).unwrap()));
    assert_eq!(listed, of(&ovf) + &of(&vmdk));
    // The descriptor is XML and tells the truth.
    let value = |path: &str, attribute: &str| {
        let local = path.split('/').map(|name| format!("/*[local-name()='{name}']")).collect::<String>();
        let xpath = format!("string({local}/@*[local-name()='{attribute}'])");
        tool!("xmllint", "--nonet", "--xpath", xpath, dir.join(&ovf)).trim().to_owned()
    };
    let file = |attribute| value("Envelope/References/File", attribute);
    let disk = |attribute| value("Envelope/DiskSection/Disk", attribute);
    assert_eq!(file("href"), vmdk);
    assert_eq!(file("size"), fs::metadata(dir.join(&vmdk)).unwrap().len().to_string());
    assert_eq!((disk("capacity"), disk("capacityAllocationUnits")), ("629145600".to_owned(), "byte".to_owned()));
    assert_eq!(disk("fileRef"), file("id"));
    assert_eq!(value("Envelope/VirtualSystem", "id"), "os & more-1.2.0");
    let config = value("Envelope/VirtualSystem/VirtualHardwareSection/Config", "key");
    assert_eq!(config, "", "BIOS starts it as well as UEFI");
}

#[test]
fn the_suffix_compresses() {
    let world = World::new();
    let raw = made(&world, "raw", "os.raw", &[]);
    let qcow2 = made(&world, "qcow2", "os.qcow2", &[]);
    for (tool, suffix) in [("xz", "xz"), ("zstd", "zst"), ("gzip", "gz")] {
        for plain in [&raw, &qcow2] {
            let name = plain.file_name().unwrap().to_str().unwrap();
            let out = made(&world, &name[3..], &format!("{name}.{suffix}"), &[]);
            assert!(fs::metadata(&out).unwrap().len() < 8 * MIB, "{} is large", out.display());
            tool!(tool, "--test", &out);
            tool!("sh", "-c", r#""$0" --decompress --stdout "$1" | cmp - "$2""#, tool, &out, plain);
        }
    }
}

#[test]
fn sectors_of_4096_bytes() {
    let world = World::new();
    let extra = ["--sector-size=4096", SLOT_4096, "--disk-size=1000MiB"];
    let raw = made(&world, "raw", "os.raw", &extra);
    let disk = Loop::attach(&raw, &["--sector-size", "4096"]);
    let sgdisk = tool!("sgdisk", "-v", &disk.node);
    assert!(sgdisk.contains("No problems found"), "{sgdisk}");
    drop(disk);
    let qcow2 = made(&world, "qcow2", "os.qcow2", &extra);
    tool!("qemu-img", "compare", "-f", "raw", "-F", "qcow2", raw, qcow2);
    for kind in ["vhd", "vmdk", "ova"] {
        let attempt = || image(&world, kind, &world.path("other"), &extra);
        refused(&world, INPUT, &["--sector-size 4096", "sectors of 512 bytes"], attempt);
    }
}

#[test]
fn an_image_for_arm64_made_elsewhere() {
    let world = World::new();
    world.payload.write(Payload::KERNEL, real_kernel("payload-arm64"));
    let out = made(&world, "raw", "os.raw", &["--arch=arm64"]);
    let esp = world.path("esp");
    extract(&out, partition(&out, "EFI"), &esp);
    let found = world::finished_bytes(program("mtype").arg("-i").arg(&esp).arg("::EFI/BOOT/BOOTAA64.EFI"));
    assert!(found == fs::read(assets().join("arm64/loader.efi")).unwrap(), "not the UEFI boot image");
    // PE format, 3.3.1: the type of the machine follows the signature, whose offset is at 0x3c; 0xaa64 is arm64.
    let header = u32::from_le_bytes(found[0x3c..0x40].try_into().unwrap()) as usize;
    assert_eq!(found[header..header + 6], *b"PE\0\0\x64\xaa");
    // There is no BIOS that would start anything.
    assert!(read_at(&out, 0, 440).iter().all(|byte| *byte == 0), "boot code in LBA 0");
    let bios = partition(&out, "BIOS");
    assert!(read_at(&out, bios.offset, bios.len as usize).iter().all(|byte| *byte == 0), "a BIOS boot image");
}

/// Both volumes, by xfs_repair and by the kernel.
#[test]
fn the_settled_xfs_is_sound() {
    let world = World::new();
    let raw = made(&world, "raw", "os.raw", &[]);
    for name in ["STATE", "EPHEMERAL"] {
        let volume = world.path(name);
        extract(&raw, partition(&raw, name), &volume);
        tool!("xfs_repair", "-n", &volume);
        let disk = Loop::attach(&volume, &[]);
        let mount = Mount::new(&disk.node, world.path(&format!("{name}.mnt")));
        let times = tool!("env", "TZ=UTC", "stat", "--format=%w|%y", &mount.point);
        assert_eq!(times.matches(TIME).count(), 2, "{times}");
        fs::write(mount.point.join("file"), "content").unwrap();
        drop(mount);
        tool!("xfs_repair", "-n", &disk.node);
    }
}

// ---------------------------------------------------------------------------------------------------
// The same inputs, the same bytes.

/// Without a right of root's.
fn as_nobody(world: &World, nobody: &Nobody, kind: &str, out: &Path) -> Command {
    let mut command = nobody.installer();
    command.args(["image", "--progress=none", "--disk-size=600MiB", SLOT, "--kind", kind, "--out"]).arg(out);
    command.arg(format!("--source={}", world.payload.source()));
    command
}

/// In another directory, at another time, as another user, who has no rights.
#[test]
fn the_same_inputs_make_the_same_bytes() {
    let world = World::new();
    let nobody = Nobody::new(&world);
    for kind in ["raw", "qcow2", "vhd", "vmdk", "ova"] {
        let first = made(&world, kind, &format!("os.{kind}"), &[]);
        // More than what any of the formats counts time in.
        thread::sleep(Duration::from_millis(2100));
        let second = nobody.home.join(format!("os.{kind}"));
        Outcome::of(&mut as_nobody(&world, &nobody, kind, &second)).succeeds();
        assert_eq!(fs::metadata(&second).unwrap().uid(), NOBODY);
        tool!("cmp", &first, &second);
    }
}

#[test]
fn other_inputs_make_other_guids() {
    let world = World::new();
    let guid = |name: &str, extra: &[&str]| {
        let raw = made(&world, "raw", name, extra);
        json_of(&raw, &["status"])["disk_guid"].as_str().unwrap().to_owned()
    };
    let plain = guid("1", &[]);
    // Version 8 (RFC 9562).
    assert_eq!(&plain[14..15], "8", "{plain}");
    let mut all = vec![
        guid("2", &["--disk-size=601MiB"]),
        guid("3", &["--extra-kernel-arg=quiet"]),
        guid("4", &["--meta=0x0a=value"]),
        guid("5", &["--seed=one"]),
        guid("6", &["--seed=two"]),
    ];
    assert_eq!(guid("7", &["--seed=one", "--disk-size=601MiB"]), all[3], "a seed decides alone");
    world.payload.write(Payload::ROOTFS, files::squashfs(noise(9, 70_004)));
    all.extend([plain, guid("8", &[])]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 7, "{all:?}");
}

#[test]
fn source_date_epoch_is_the_time() {
    let world = World::new();
    let out = world.path("os.raw");
    Outcome::of(image_command(&world, "raw", &out, &[]).env("SOURCE_DATE_EPOCH", "1600000000")).succeeds();
    let esp = world.path("esp");
    extract(&out, partition(&out, "EFI"), &esp);
    let listed = tool!("mdir", "-i", &esp, "::EFI/BOOT");
    assert!(listed.contains("2020-09-13"), "{listed}");
    for bad in ["", "-1", "+7", "now", "4294967296"] {
        let attempt = || Outcome::of(image_command(&world, "raw", &world.path("x"), &[]).env("SOURCE_DATE_EPOCH", bad));
        refused(&world, INPUT, &["SOURCE_DATE_EPOCH", "number of seconds"], attempt);
    }
}

// ---------------------------------------------------------------------------------------------------
// What is refused.

#[test]
fn a_file_that_is_there() {
    let world = World::new();
    let out = world.path("os.qcow2");
    fs::write(&out, "precious").unwrap();
    let texts = [out.to_str().unwrap(), "exists; --force replaces it"];
    refused(&world, INSTALL, &texts, || image(&world, "qcow2", &out, &[]));
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    image(&world, "qcow2", &out, &["--force"]).succeeds();
    tool!("qemu-img", "check", "-f", "qcow2", &out);
}

/// A link could lead to a disk.
#[test]
fn what_is_no_regular_file() {
    let world = World::new();
    let (dir, link, node) = (world.path("dir"), world.path("link"), world.path("node"));
    fs::create_dir(&dir).unwrap();
    symlink("nowhere", &link).unwrap();
    tool!("mknod", &node, "c", "1", "3");
    for out in [dir, link, node] {
        let texts = [out.to_str().unwrap(), "is not a regular file"];
        refused(&world, INSTALL, &texts, || image(&world, "raw", &out, &["--force"]));
    }
}

#[test]
fn an_unknown_kind() {
    let world = World::new();
    let texts = ["'floppy'", "raw, qcow2, vhd, vmdk, ova"];
    refused(&world, INPUT, &texts, || image(&world, "floppy", &world.path("os.img"), &[]));
}

/// A file of that name would be what nobody asked for.
#[test]
fn what_is_no_name_of_a_file() {
    let world = World::new();
    for out in ["-", "a/", "sub/a/", "/", ".."] {
        let attempt = || Outcome::of(image_command(&world, "raw", Path::new(out), &[]).current_dir(world.path("")));
        refused(&world, INSTALL, &["is not a file name", "name a file; none is written to standard output"], attempt);
    }
    Outcome::of(image_command(&world, "raw", Path::new("./-"), &[]).current_dir(world.path(""))).succeeds();
}

#[test]
fn a_disk_too_small_by_a_sector() {
    let world = World::new();
    let out = world.path("os.raw");
    let short = format!("--disk-size={}", SMALLEST - 512);
    refused(&world, INSTALL, &["the disk is too small", "(1 MiB short)"], || image(&world, "raw", &out, &[&short]));
    image(&world, "raw", &out, &[&format!("--disk-size={SMALLEST}")]).succeeds();
    let odd = format!("--disk-size={}", SMALLEST + 511);
    let attempt = || image(&world, "raw", &world.path("other"), &[&odd]);
    refused(&world, INPUT, &["--disk-size", "is not a multiple of the sector size"], attempt);
    let sectors = format!("--disk-size={}", SMALLEST + 512);
    let attempt = || image(&world, "vhd", &world.path("other.vhd"), &[&sectors]);
    refused(&world, INPUT, &["--disk-size", "is no whole number of MiB, and Azure takes no other VHD"], attempt);
}

/// A plan that was approved can be carried out.
#[test]
fn a_disk_too_large_for_its_format() {
    let world = World::new();
    let out = world.path("os.vhd");
    for size in ["2041GiB", "3TiB", "64TiB"] {
        for more in [&["--dry-run"][..], &[]] {
            let size = format!("--disk-size={size}");
            let options = [&[&*size], more].concat();
            refused(&world, INPUT, &["--disk-size", "2040 GiB"], || image(&world, "vhd", &out, &options));
        }
    }
    image(&world, "vhd", &out, &["--disk-size=2040GiB", "--dry-run"]).succeeds();
    image(&world, "qcow2", &world.path("os.qcow2"), &["--disk-size=3TiB", "--dry-run"]).succeeds();
}

/// The kernel's header says what it runs on.
#[test]
fn a_payload_for_another_machine() {
    let world = World::new();
    let mut kernel = noise(7, 40_000);
    kernel[56..60].copy_from_slice(b"ARM\x64");
    world.payload.write(Payload::KERNEL, kernel);
    let attempt = || image(&world, "raw", &world.path("os.raw"), &["--arch=amd64"]);
    refused(&world, INPUT, &["the payload's kernel is for arm64, not for amd64"], attempt);
}

#[test]
fn a_path_that_cannot_be_written() {
    let world = World::new();
    let missing = world.path("missing/os.raw");
    let texts = [missing.parent().unwrap().to_str().unwrap(), "No such file", "create that directory"];
    refused(&world, INSTALL, &texts, || image(&world, "raw", &missing, &[]));
    let nobody = Nobody::new(&world);
    let (root, out) = (world.path(""), world.path("os.raw"));
    let texts =
        [root.to_str().unwrap().trim_end_matches('/'), "(Permission denied (os error 13)): choose another directory"];
    refused(&world, INSTALL, &texts, || Outcome::of(&mut as_nobody(&world, &nobody, "raw", &out)));
}

/// The directory is there, and the message is the same each time.
#[test]
fn a_directory_that_is_read_only() {
    let world = World::new();
    let dir = world.path("read-only");
    fs::create_dir(&dir).unwrap();
    for (kind, name) in [("raw", "os.raw"), ("qcow2", "os.qcow2"), ("iso", "os.iso"), ("pxe", "os.tar")] {
        let mut args =
            vec!["image".to_owned(), format!("--kind={kind}"), format!("--source={}", world.payload.source())];
        args.push(format!("--out={}", dir.join(name).display()));
        let script = format!("mount -t tmpfs -o ro tmpfs {} && exec \"$@\"", dir.display());
        let outcome = Outcome::of(&mut installer_in(&script, args)).exits(INSTALL);
        let outcome = outcome.says(&["(Read-only file system (os error 30)): choose another directory"]);
        assert!(!outcome.stderr.contains(".slipway-"), "{}", outcome.stderr);
    }
}

/// Raw finds it out before it writes, a converted image when qemu-img does. Nothing is left either way.
#[test]
fn a_full_disk() {
    let world = World::new();
    let small = SmallFs::new(&world);
    for kind in ["raw", "qcow2", "vhd", "vmdk", "ova"] {
        let (free, text) = match kind {
            "raw" => (2 * MIB, "failed (reserve"),
            // Room for the disk, and not for what is made of it.
            _ => (6400 << 10, "os.img: No space left on device"),
        };
        small.leave_free(free);
        let out = small.path("os.img");
        let outcome = image(&world, kind, &out, &["--format-data=false"]);
        outcome.exits(INSTALL).says(&[text, "No space left on device"]);
        let left = tool!("ls", "-A", small.path(""));
        assert_eq!(left, "filler\nlost+found\n");
        fs::remove_file(small.path("filler")).unwrap();
    }
}

/// The real qemu-img, and then one byte of what it made is another.
#[test]
fn a_conversion_that_goes_wrong() {
    let world = World::new();
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    let script = r#"#!/bin/sh
/usr/bin/qemu-img "$@" || exit
[ "$1" = convert ] || exit 0
for out; do :; done
at=$(($(stat -c %s "$out") / 2))
byte=$(dd if="$out" bs=1 skip=$at count=1 status=none | od -An -tu1)
printf "\\$(printf %o $((byte ^ 1)))" | dd of="$out" bs=1 seek=$at conv=notrunc status=none
"#;
    fs::write(bin.join("qemu-img"), script).unwrap();
    fs::set_permissions(bin.join("qemu-img"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for kind in ["vhd", "ova"] {
        let out = world.path("os.img");
        let attempt = || Outcome::of(image_command(&world, kind, &out, &[]).env("PATH", &path));
        refused(&world, INSTALL, &["os.img", "is not the disk that was converted"], attempt);
    }
}

#[test]
fn no_qemu_img() {
    let world = World::new();
    let without = |kind: &str| {
        Outcome::of(image_command(&world, kind, &world.path("os.img"), &["--format-data=false"]).env("PATH", ""))
    };
    for kind in ["qcow2", "vhd", "vmdk", "ova"] {
        refused(&world, DEPENDENCY, &["qemu-img is not installed", "package qemu-utils"], || without(kind));
    }
    // A raw image needs none.
    without("raw").succeeds();
}

#[test]
fn a_dry_run_makes_nothing() {
    let world = World::new();
    let list = || tool!("ls", "-A", world.path(""));
    let before = list();
    let outcome = image(&world, "qcow2", &world.path("os.qcow2"), &["--dry-run"]).succeeds();
    assert!(outcome.stdout.contains("commit point") && outcome.stdout.contains("dry run"), "{}", outcome.stdout);
    assert_eq!(list(), before);
}
