//! Payloads that are a unified kernel image and a squashfs: from a directory, from container images, and from a registry.

use std::{fs, path::Path};

use serde_json::Value;
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    files,
    images::{self, Image, Layout, Pack},
    world::{Node, Outcome, Payload, World, extract, installer, json_of, on_disk, partition, refused, tool},
};

use super::from_registry::registry_with;

const CMDLINE: &str = "console=ttyS0 quiet";

/// Kernel and initramfs of the payload are in its unified kernel image alone, and it has checksums.
fn world() -> World {
    let world = World::new();
    let payload = &world.payload;
    let uki = files::unified(&payload.read(Payload::KERNEL), &payload.read(Payload::INITRAMFS), CMDLINE);
    payload.remove(Payload::KERNEL);
    payload.remove(Payload::INITRAMFS);
    payload.write("uki.efi", uki);
    payload.checksum().succeeds();
    world
}

fn manifest(payload: &Payload) -> Value {
    serde_json::from_slice(&payload.read("manifest.json")).unwrap()
}

/// Replaces manifest.json, and lists it.
fn write_manifest(payload: &Payload, manifest: &Value) {
    payload.write("manifest.json", manifest.to_string());
    payload.write_sums(&["uki.efi", Payload::ROOTFS, "os-release", "manifest.json"]);
}

/// In layers of every kind, and as an archive.
fn sources(world: &World) -> Vec<String> {
    let mut sources = vec![world.payload.source()];
    for pack in Pack::ALL {
        let layout = Layout::new(&world.path(&format!("{pack:?}")));
        images::built(world.payload.dir(), pack).write(&layout, "1");
        sources.push(layout.source());
    }
    let archive = world.path("archive.tar");
    let from = world.path("Gzip");
    tool!("tar", "-C", &from, "-cf", &archive, ".");
    sources.push(format!("oci-archive:{}", archive.display()));
    sources
}

/// A file of slot A.
fn slot_file(world: &World, disk: &Path, name: &str) -> Vec<u8> {
    let (slot, to) = (world.path("slot.img"), world.path("slot file"));
    extract(disk, partition(disk, "BOOT-A"), &slot);
    tool!("mcopy", "-n", "-o", "-i", &slot, format!("::/{name}"), &to);
    fs::read(to).unwrap()
}

/// However it comes, the slot has the same in it, and where GRUB finds kernel and initramfs in the unified kernel image.
#[test]
fn every_source_gives_the_same_slot() {
    let world = world();
    let said = manifest(&world.payload)["unified"].clone();
    assert_eq!(said["cmdline"], CMDLINE);
    let mut sources = sources(&world);
    let layout = Layout(world.path("Gzip"));
    let debian = registry_with(&world.path("registry"), &layout, "", "", &[]);
    sources.push(format!("docker://127.0.0.1:{}/os:1", debian.port));
    let mut digests = Vec::new();
    for source in &sources {
        let inspect = ["inspect", "--output=json", "--progress=none", "--plain-http", source];
        let inspect = Outcome::of(&mut installer(inspect)).succeeds().json();
        let names: Vec<_> = inspect["files"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
        assert_eq!(names, [Payload::ROOTFS, "uki.efi"], "{source}");
        // Onto an empty disk it is compared while it is written, and before that onto one that is not empty.
        let disk = world.image();
        for force in [false, true] {
            let args = ["--plain-http".to_owned(), format!("--source={source}"), format!("--force={force}")];
            world.install(&disk, &args.each_ref().map(String::as_str)).succeeds();
            on_disk(&disk, &["verify", "--progress=none"]).succeeds();
            assert_eq!(json_of(&disk, &["status"])["slots"]["A"]["payload"], inspect["payload"], "{source}");
            assert!(slot_file(&world, &disk, "uki.efi") == world.payload.read("uki.efi"), "{source}");
            let manifest: Value = serde_json::from_slice(&slot_file(&world, &disk, "manifest.json")).unwrap();
            assert_eq!((&manifest["unified"], &manifest["cmdline"]), (&said, &CMDLINE.into()), "{source}");
            let cfg = String::from_utf8(slot_file(&world, &disk, "slot.cfg")).unwrap();
            let kernel = format!("uki_kernel={}+{}", said["kernel"]["first"], said["kernel"]["count"]);
            assert!(cfg.contains(&kernel), "{kernel} is not in {cfg}");
        }
        digests.push(inspect["payload"].clone());
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// Slipway's loader starts it, and GRUB the kernel beside it.
#[test]
fn arguments_that_have_no_effect_under_uefi_are_told_of() {
    const NOTE: &str = "so under UEFI these have no effect: console=ttyS1";
    let world = World::new();
    let payload = &world.payload;
    let extra = "--extra-kernel-arg=console=ttyS1";
    let install = |flags: &[&str]| world.install(&world.image(), flags).succeeds().stderr;
    assert!(!install(&[extra]).contains("no effect"));
    let uki = files::unified(&payload.read(Payload::KERNEL), &payload.read(Payload::INITRAMFS), CMDLINE);
    payload.write("uki.efi", uki);
    assert!(install(&[extra]).contains(NOTE));
    assert!(!install(&[]).contains("no effect"));
    assert!(!install(&[extra, "--efi-loader=grub"]).contains("no effect"));
    let node = Node::installed(&world);
    payload.write("os-release", "VERSION_ID=1.2.4\n");
    payload.write("cmdline", "quiet other");
    let source = payload.source();
    let told = node.run('A', false, &["upgrade", "--dry-run", "--source", &source, extra]).succeeds();
    assert!(told.stderr.contains(NOTE), "{}", told.stderr);
}

/// systemd 257 puts profiles into it, each with sections of its own.
#[test]
fn one_with_many_sections() {
    let world = World::new();
    let payload = &world.payload;
    let (kernel, initramfs) = (payload.read(Payload::KERNEL), payload.read(Payload::INITRAMFS));
    let others = [(".profile", &b"ID=other\n"[..]), (".cmdline", &b"quiet other"[..])].repeat(20);
    let main = [(".profile", &b"ID=main\n"[..])];
    let unified = |profiles: &[_]| files::unified_with(&kernel, &initramfs, CMDLINE, profiles);
    payload.write("uki.efi", unified(&others));
    world.installed(&[]);
    payload.remove(Payload::KERNEL);
    payload.remove(Payload::INITRAMFS);
    // The stub starts the first one.
    for (profiles, cmdline) in [(&others, "quiet other"), (&[&main[..], &others].concat(), CMDLINE)] {
        payload.write("uki.efi", unified(profiles));
        payload.checksum().succeeds();
        for source in sources(&world) {
            let disk = world.image();
            world.install(&disk, &[&format!("--source={source}")]).succeeds();
            on_disk(&disk, &["verify", "--progress=none"]).succeeds();
            let manifest: Value = serde_json::from_slice(&slot_file(&world, &disk, "manifest.json")).unwrap();
            assert_eq!(manifest["cmdline"], cmdline, "{source}");
        }
    }
}

/// What is wrong in a manifest.json that SHA256SUMS lists, so that no digest tells.
fn wrong_manifests(payload: &Payload) -> Vec<(&'static str, Value)> {
    let right = manifest(payload);
    let wrong = |key: &'static str, value: Value| {
        let mut manifest = right.clone();
        *manifest.pointer_mut(key).unwrap() = value;
        (key, manifest)
    };
    let kernel = right["unified"]["kernel"]["first"].as_u64().unwrap();
    vec![
        wrong("/unified/kernel/first", (kernel + 1).into()),
        wrong("/unified/initramfs/count", 1.into()),
        wrong("/unified/cmdline", "console=ttyS0 quiet init=/bin/sh".into()),
    ]
}

const WHY: &str = "than manifest.json says";

/// A slot made from it would not boot under BIOS, or boot another command line there. So it is refused: the disk is not
/// written to where all of the payload is read first, and else no slot of it boots.
#[test]
fn a_manifest_that_says_otherwise_is_refused() {
    let world = world();
    for (key, manifest) in wrong_manifests(&world.payload) {
        write_manifest(&world.payload, &manifest);
        let source = world.payload.source();
        let layout = Layout::new(&world.path(&format!("wrong {}", key.replace('/', " "))));
        images::built(world.payload.dir(), Pack::Zstd).write(&layout, "1");
        for source in [&source, &layout.source()] {
            Outcome::of(&mut installer(["inspect", "--progress=none", source])).exits(INPUT).says(&["uki.efi", WHY]);
        }
        let disk = world.image();
        refused(&disk, INPUT, &["uki.efi", WHY], || world.install(&disk, &[]));
        // Where the UKI comes first, as an upper layer does, it is known before the first write.
        let early = Layout::new(&world.path(&format!("early {}", key.replace('/', " "))));
        let all = images::files(world.payload.dir());
        let rest = [Payload::ROOTFS, "os-release", "uki.efi"];
        let layers = [&images::CHECKSUM_FILES[..], &rest].map(|names| images::layer(&all, names, Pack::Gzip));
        Image::new(layers.into()).write(&early, "1");
        refused(&disk, INPUT, &["uki.efi", WHY], || world.install(&disk, &[&format!("--source={}", early.source())]));
        let from_image = format!("--source={}", layout.source());
        world.install(&disk, &[&from_image]).exits(INSTALL).says(&["uki.efi", WHY]);
        on_disk(&disk, &["status"]).exits(INSTALL).says(&["an installation on it has not ended"]);
    }
    // A new run of `installer checksum` makes a right one.
    world.payload.checksum().succeeds();
    world.install(&world.image(), &[]).succeeds();
}

#[test]
fn an_upgrade_to_one_leaves_the_running_slot_the_default() {
    let world = world();
    let node = Node::installed(&world);
    let (_, manifest) = wrong_manifests(&world.payload).swap_remove(0);
    let upgrade = |source: &str| node.run('A', false, &["upgrade", "--allow-any-version", "--source", source]);
    // What runs has these very files: they are asked for with other bytes.
    let mut rootfs = world.payload.read(Payload::ROOTFS);
    let last = rootfs.len() - 1;
    rootfs[last] ^= 1;
    world.payload.write(Payload::ROOTFS, rootfs);
    world.payload.checksum().succeeds();
    let mut other = self::manifest(&world.payload);
    other["unified"] = manifest["unified"].clone();
    write_manifest(&world.payload, &other);
    let layout = Layout::new(&world.path("wrong and new"));
    images::built(world.payload.dir(), Pack::Gzip).write(&layout, "1");

    refused(&node.disk, INPUT, &["uki.efi", WHY], || upgrade(&world.payload.source()));
    upgrade(&layout.source()).exits(INSTALL).says(&["uki.efi", WHY]);
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["slots"]["B"]["state"]), (&"A".into(), &"empty".into()));
}
