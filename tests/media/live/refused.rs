//! What is refused.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use slipway_core::{digest::Sha256, media::live::MAX_INITRAMFS_BYTES, units::MIB};
use slipway_test_support::{
    exit_code::{DEPENDENCY, INPUT, INSTALL},
    files,
    images::{self, Layout, Pack, built},
    world::{self, Nobody, Outcome, Payload, SmallFs, World, assets, noise, tool},
};

use super::{KINDS, as_nobody, checksum, command, live, made};
use crate::refused;

#[test]
fn options_that_mean_a_disk() {
    let world = World::new();
    let out = world.path("live");
    for kind in KINDS {
        for option in [
            "--disk-size=4GiB",
            "--sector-size=512",
            "--slot-size=64MiB",
            "--format-data=false",
            "--boot-menu=false",
            "--boot-menu",
            "--efi-loader=grub",
            "--efi-loader=slipway",
        ] {
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
    // No user would be there to read about it.
    for arg in ["slipway.install=foo", "slipway.install.preserve=yes", "slipway.installs=/dev/sda"] {
        let extra = format!("--extra-kernel-arg={arg}");
        refused(&world, INPUT, &["kernel command line: slipway.install"], || live(&world, "iso", &out, &[&extra]));
    }
    refused(&world, INPUT, &["platform", "not known"], || live(&world, "iso", &out, &["--platform=moon"]));
}

/// The finding: the ISO of examples/debian was made with a note that no reader saw, and looped at its start.
#[test]
fn a_system_that_finds_its_root_only_in_a_slot() {
    for words in [
        "boot=live live-media=/dev/disk/by-partuuid/@slot-partuuid@ live-media-path=/",
        "root=live:PARTUUID=@slot-partuuid@ rd.live.dir=/",
        "root=UUID=@slot-uuid@",
    ] {
        let world = World::new();
        world.payload.write("cmdline", words);
        checksum(&world);
        let out = world.path("live");
        for kind in KINDS {
            let texts = ["finds its root file system only in a slot", "a live medium has none", "--extra-kernel-arg"];
            refused(&world, INPUT, &texts, || live(&world, kind, &out, &[]));
            let taken_away = ["--extra-kernel-arg=-live-media", "--extra-kernel-arg=-root"];
            let texts = [&texts[..], &["with the same key", "-KEY takes one away and names no other place"]].concat();
            refused(&world, INPUT, &texts, || live(&world, kind, &out, &taken_away));
            live(&world, kind, &out, &["--extra-kernel-arg=root=/dev/sr0 live-media=/dev/sr0", "--dry-run"]).succeeds();
        }
    }
}

/// The words of the examples, and others by which a system looks for its root in a slot or on a disk.
#[test]
fn a_system_that_looks_for_its_root_elsewhere() {
    let world = World::new();
    let out = world.path("live");
    let attempt = |words: &str, args: &[&str]| {
        world.payload.write("cmdline", words);
        live(&world, "iso", &out, &[args, &["--dry-run"]].concat())
    };
    for words in of_the_examples() {
        let is_taken = !words.contains("boot=live") && !words.contains("root=");
        let outcome = attempt(&words, &[]);
        assert_eq!(outcome.code, if is_taken { 0 } else { INPUT }, "{words}: {}", outcome.stderr);
    }
    for words in [
        "boot=live",
        "boot=casper quiet",
        "boot=live live-media=/dev/disk/by-partlabel/BOOT-A",
        "root=live:/dev/sda3",
        "root=LABEL=root",
        "root=PARTUUID=@state-partuuid@",
        "root=/dev/vda2 boot=other",
    ] {
        attempt(words, &[]).exits(INPUT).says(&["a live medium has none", "--extra-kernel-arg", "/slipway/payload"]);
    }
    for words in [
        "quiet",
        "quiet state=@state-partuuid@",
        "quiet -- root=/dev/sda3",
        "root=/dev/nfs nfsroot=server:/os",
        "root=live:https://server/rootfs.squashfs",
        "root=live:/slipway/payload/rootfs.squashfs",
        "boot=live fetch=http://server/rootfs.squashfs",
        "boot=live hook=/slipway/payload",
        "root=dhcp",
        "root=live:tftp://server/rootfs.squashfs",
        "root=virtiofs:os",
    ] {
        attempt(words, &[]).succeeds();
    }
    attempt("boot=live", &["--extra-kernel-arg=live-media=/dev/sr0"]).succeeds();
    attempt("root=/dev/sda3", &["--extra-kernel-arg=root=/dev/sr0"]).succeeds();
    attempt("root=/dev/sda3", &["--extra-kernel-arg=root=PARTUUID=@state-partuuid@"]).exits(INPUT);
}

/// What each example writes into its cmdline.
fn of_the_examples() -> Vec<String> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let builds = fs::read_dir(examples).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path().join("build")));
    let words = builds.filter_map(Result::ok).map(|build| {
        if let Some((_, rest)) = build.split_once("/cmdline\" <<END\n") {
            return rest.split("\nEND").next().unwrap().replace('\n', " ");
        }
        let line = build.lines().find(|line| line.ends_with("/cmdline\"")).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    });
    let words: Vec<String> = words.collect();
    assert_eq!(words.len(), 6, "{words:?}");
    words
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

/// `--force` replaces an older result, and never what the medium is made from.
#[test]
fn a_file_of_its_own_source() {
    let world = World::new();
    checksum(&world);
    world.payload.write("listed", "a file that only the list names");
    let sums = world.payload.read("SHA256SUMS");
    let line = format!("{}  listed\n", Sha256::of(&world.payload.read("listed")));
    world.payload.write("SHA256SUMS", [&sums[..], line.as_bytes()].concat());
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let archive = world.path("os.oci");
    tool!("tar", "-C", world.path("layout"), "-cf", &archive, ".");
    fs::hard_link(world.payload.path(Payload::KERNEL), world.path("linked")).unwrap();
    std::os::unix::fs::symlink(world.payload.dir(), world.path("link")).unwrap();
    let blobs = fs::read_dir(world.path("layout/blobs/sha256")).unwrap().map(|e| e.unwrap().path());
    let (dir, blob) = (world.payload.source(), blobs.max().unwrap());
    let from_archive = format!("oci-archive:{}", archive.display());
    let mut cases = vec![
        ("--source", from_archive.clone(), archive.clone()),
        ("--source", format!("{from_archive}:1"), archive.clone()),
        ("--source", dir.clone(), world.path("linked")),
        ("--source", dir.clone(), world.path("link").join(Payload::ROOTFS)),
        ("--source", layout.source(), world.path("layout/index.json")),
        ("--source", layout.source(), blob),
        ("--container", from_archive, archive),
    ];
    for name in [Payload::KERNEL, Payload::INITRAMFS, Payload::ROOTFS, "SHA256SUMS", "manifest.json", "listed"] {
        cases.push(("--source", dir.clone(), world.payload.path(name)));
    }
    for (flag, source, out) in &cases {
        let content = fs::read(out).unwrap();
        for kind in ["pxe", "raw"] {
            for more in [&[][..], &["--force"], &["--force", "--dry-run"]] {
                let source = format!("{flag}={source}");
                let options = [more, &[source.as_str()]].concat();
                let texts = [format!("is a part of {flag} "), "name another file".to_owned()];
                let attempt = || live(&world, kind, out, &options);
                refused(&world, INPUT, &texts.each_ref().map(String::as_str), attempt);
            }
        }
        assert!(fs::read(out).unwrap() == content, "{}", out.display());
    }
    // A result among them is none of them.
    let beside = world.payload.path("os.tar");
    for force in [&[][..], &["--force"]] {
        live(&world, "pxe", &beside, force).succeeds();
    }
}

#[test]
fn a_broken_payload() {
    let world = World::new();
    checksum(&world);
    let layout = Layout::new(&world.path("layout"));
    let mut files = images::files(world.payload.dir());
    // What the checksums says is not what the layer has: found out while the medium is written.
    for (name, bytes) in &mut files {
        if name == Payload::ROOTFS {
            bytes[60_000] ^= 1;
        }
    }
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    images::Image::new(vec![images::layer(&files, &names, Pack::Gzip)]).write(&layout, "1");
    let source = format!("--source={}", layout.source());
    world.payload.write(Payload::ROOTFS, files::squashfs(noise(9, 70_004)));
    for kind in KINDS {
        let out = world.path("live");
        refused(&world, INPUT, &["rootfs.squashfs", "SHA-256"], || live(&world, kind, &out, &[]));
        refused(&world, INPUT, &["rootfs.squashfs", "SHA-256"], || live(&world, kind, &out, &[&source]));
    }
}

/// Linux stops there, and would not unpack the payload behind it. A disk has nothing behind it.
#[test]
fn an_initramfs_with_bytes_of_no_format_behind_it() {
    let world = World::new();
    let own = world.payload.read(Payload::INITRAMFS);
    let texts = ["initramfs.xz: behind its archives are bytes of no format", "a live medium adds"];
    for behind in [&b"signed by somebody"[..], b"\n", b"\0\0\n"] {
        world.payload.write(Payload::INITRAMFS, [&own[..], behind].concat());
        for kind in KINDS {
            refused(&world, INPUT, &texts, || live(&world, kind, &world.path("live"), &[]));
        }
    }
    checksum(&world);
    refused(&world, INPUT, &texts, || live(&world, "pxe", &world.path("live"), &[]));
    world.installed(&[]);
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
    refused(&world, INPUT, &["--container", "is not a container image"], || live(&world, "iso", &out, &[&dir]));
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
