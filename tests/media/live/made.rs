//! What is made.

use std::fs;

use slipway_test_support::{
    exit_code::INPUT,
    files,
    images::{Layout, Pack, built},
    world::{
        self, Outcome, Payload, World, assert_clean_fat, asset, assets, extract, installer, noise, program,
        real_kernel, tool,
    },
};

use super::{KINDS, assert_listed_payload, checksum, live, made, second_partition, unpacked_initramfs, unpacked_iso};
use crate::refused;

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
    assert_listed_payload(&world, &unpacked_initramfs(&world, &boot.join("initramfs")).join("slipway/payload"), false);
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
    assert!(cmdline.contains("console=ttyAMA0,115200 console=tty0"), "{report}");
    assert!(!cmdline.contains("ttyS"), "a port that arm64 has not: {report}");
    // For the other machine it is refused, and the same inputs make the same bytes.
    refused(&world, INPUT, &["the payload's kernel is for arm64, not for amd64"], || {
        live(&world, "iso", &world.path("other"), &["--arch=amd64"])
    });
    let (again, _) = made(&world, "iso", "again.iso", &["--arch=arm64"]);
    tool!("cmp", &iso, &again);
}

#[test]
fn kernel_arguments_that_name_a_slot_are_left_out() {
    let world = World::new();
    world.payload.write("cmdline", "boot=live live-media=@slot-partuuid@ v=@version@ quiet");
    checksum(&world);
    let extra =
        ["--extra-kernel-arg=x=@disk-guid@", "--extra-kernel-arg=y=@@", "--extra-kernel-arg=live-media=/dev/sr0"];
    let (_, report) = made(&world, "pxe", "live.tar", &extra);
    let cmdline = report["cmdline"].as_str().unwrap();
    assert!(cmdline.starts_with("boot=live v=1.2.3 quiet "), "{cmdline}");
    assert!(cmdline.contains(" y=@ live-media=/dev/sr0 slipway.medium="), "{cmdline}");
    let source = format!("--source={}", world.payload.source());
    let mut told = installer(["image", "--progress=plain", "--kind=pxe", "--dry-run", &source, "--out"]);
    Outcome::of(told.arg(world.path("told.tar")).args(extra))
        .succeeds()
        .says(&["so these kernel arguments are left out: live-media=@slot-partuuid@ x=@disk-guid@"]);
}

#[test]
fn a_pxe_archive_is_what_a_server_serves() {
    let world = World::new();
    world.payload.write("cmdline", "quiet\n");
    checksum(&world);
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
    assert_listed_payload(&world, &unpacked_initramfs(&world, &dir.join("initramfs")).join("slipway/payload"), true);
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
    let outcome = outcome.says(&["the payload's own cmdline is used alone", "--platform=aws"]);
    let report = outcome.json();
    assert_eq!(report["cmdline"], format!("quiet slipway.medium={}", report["medium"].as_str().unwrap()));
}

/// Streamed from layers, in the order in which these have the files.
#[test]
fn an_image_with_checksums_makes_the_same_medium_as_its_directory() {
    let world = World::new();
    world.payload.write("cmdline", "quiet\n");
    checksum(&world);
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
    checksum(&world);
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
    // Its system may find no installer to call.
    let note = "the medium carries no container image of the installer";
    for word in ["slipway.install=/dev/sda", "slipway.install=config"] {
        let extra = format!("--extra-kernel-arg={word}");
        live(&world, "pxe", &world.path("4.tar"), &[&extra, "--force"]).succeeds().says(&[note]);
        let carries = live(&world, "pxe", &world.path("4.tar"), &[&extra, "--force", &container]).succeeds();
        assert!(!carries.stderr.contains(note), "{}", carries.stderr);
    }
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

/// Its blocks have no end mark but zeros: Linux would take an archive at once behind them for one more.
#[test]
fn an_initramfs_of_lz4_has_its_end() {
    let world = World::new();
    for bytes in (2000..2020).step_by(5) {
        let archive = files::cpio(&noise(1, bytes));
        let packed = world::finished_bytes(program("lz4").args(["-l", "-c"]).write_stdin(archive));
        world.payload.write(Payload::INITRAMFS, packed);
        let (tar, _) = made(&world, "pxe", "live.tar", &["--force"]);
        tool!("tar", "--extract", "--file", &tar, "--directory", world.path(""), "initramfs");
        // What the same program says of it as the initramfs of a payload.
        let own = world.payload.read(Payload::INITRAMFS);
        world.payload.write(Payload::INITRAMFS, fs::read(world.path("initramfs")).unwrap());
        checksum(&world);
        world.payload.write(Payload::INITRAMFS, own);
        for name in ["SHA256SUMS", "manifest.json"] {
            world.payload.remove(name);
        }
    }
}

/// Neither changes a command line, and a disk takes both.
#[test]
fn a_cmdline_with_a_mark_and_with_other_white_space() {
    for cmdline in ["\u{feff}one=1\r\n", "one=1\u{3000}\n"] {
        let world = World::new();
        world.payload.write("cmdline", cmdline);
        for kind in KINDS {
            let (_, report) = made(&world, kind, kind, &[]);
            assert!(report["cmdline"].as_str().unwrap().contains("one=1"), "{report}");
        }
    }
}

/// As for a disk.
#[test]
fn a_kernel_that_nothing_starts_is_told_of() {
    let world = World::new();
    let mut kernel = real_kernel("payload-arm64");
    kernel[..2].fill(0);
    world.payload.write(Payload::KERNEL, kernel);
    let source = format!("--source={}", world.payload.source());
    for kind in KINDS {
        let mut command =
            installer(["image", "--progress=plain", "--arch=arm64", "--dry-run", &source, "--kind", kind]);
        Outcome::of(command.arg("--out").arg(world.path(kind)))
            .succeeds()
            .says(&["it has no EFI stub", "nothing starts it"]);
    }
}

#[test]
fn a_payload_without_a_squashfs_or_checksums() {
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
