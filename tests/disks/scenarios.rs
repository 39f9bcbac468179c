//! Disks with everything that this version writes on one, made by itself. What only a boot loader or a person writes is put
//! there as they write it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use slipway_core::{
    boot::{
        env::{BootEnv, BootFailure, Fault, OPENING},
        env_block::EnvBlock,
        slot::Slot,
    },
    disk::{
        drive_record::{DRIVE, DriveRecord},
        identity::{DiskIdentity, DiskKind},
    },
};
use slipway_test_support::{
    files,
    images::{Layout, Pack, built},
    signing::{Kind, Signer},
    world::{
        IMAGE_BYTES, IMAGE_BYTES_4096, Node, Outcome, Payload, SLOT_4096, World, noise, on_disk, partition, read_at,
        tool, write_at,
    },
};

use super::{
    bootloader::{assets_with, with_assets},
    released::is_tried,
    unattended::{Live, MEDIUM},
};

/// One more version of a payload.
fn payload(world: &World, version: &str) -> Payload {
    let payload = Payload::new(&world.path(&format!("payload-{version}")));
    for name in Payload::FILES {
        let mut bytes = payload.read(name);
        let last = bytes.len() - 1;
        bytes[last] ^= version.bytes().fold(0, |sum, byte| sum ^ byte);
        payload.write(name, bytes);
    }
    payload.write("os-release", format!("ID=test\nVERSION_ID={version}\n"));
    payload
}

/// Both copies of boot.env, changed.
fn change(node: &Node, change: impl Fn(BootEnv) -> BootEnv) {
    for at in node.boot_envs() {
        let env = BootEnv::parse(&read_at(&node.disk, at, 512)).unwrap();
        write_at(&node.disk, at, change(env).render().as_bytes());
    }
}

/// A machine whose system declares what belongs to it.
struct Machine<'w> {
    world: &'w World,
    node: Node<'w>,
    etc: PathBuf,
}

impl Machine<'_> {
    fn run(&self, slot: char, trial: bool, args: &[&str]) -> Outcome {
        let raw = self.world.path("smbios");
        fs::write(&raw, b"\x0b\x05\x01\x00\x01io.systemd.stub.kernel-cmdline-extra=a=1\0\0").unwrap();
        let entry = "/sys/firmware/dmi/entries/11-0";
        let (etc, raw) = (self.etc.display(), raw.display());
        let before = format!(
            "&& mount --bind {etc} /etc && mount -t tmpfs none /sys/firmware && mkdir -p {entry} && cp {raw} {entry}/raw \
             && mount -t tmpfs none /sys/fs && mkdir /sys/fs/pstore \
             && echo 'Kernel panic - not syncing: it was a trial' >/sys/fs/pstore/dmesg-1"
        );
        let mut command = self.world.command_under(self.node.cmdline(slot, trial), &before, args);
        command.env("INSTALLER_GRUB_USE_UKI_CMDLINE", "true").arg("--disk").arg(&self.node.disk);
        Outcome::of(&mut command)
    }

    fn upgrades_to(&self, slot: char, source: &str, extra: &[&str]) {
        let source = format!("--source={source}");
        let args = ["upgrade", "--progress=none", "--allow-any-version", "--allow-unsigned", &source];
        self.run(slot, false, &[&args[..], extra].concat()).succeeds();
    }
}

/// A payload in a signed container image.
fn signed(world: &World) -> (String, String) {
    let signed = payload(world, "1.1.0");
    signed.write("cmdline", "own=1\n");
    signed.checksum().succeeds();
    let (layout, signer) = (Layout::new(&world.path("layout")), Signer::new(&world.path(""), "key", Kind::P256));
    let image = built(signed.dir(), Pack::Gzip).write(&layout, "1");
    signer.sign_image(&layout, image["digest"].as_str().unwrap());
    (layout.source(), signer.trusted())
}

/// A payload that is a unified kernel image.
fn unified(world: &World) -> Payload {
    let unified = payload(world, "1.2.0");
    let uki = files::unified(&unified.read(Payload::KERNEL), &unified.read(Payload::INITRAMFS), "console=ttyS0");
    [Payload::KERNEL, Payload::INITRAMFS].into_iter().for_each(|name| unified.remove(name));
    unified.write("uki.efi", uki);
    unified.checksum().succeeds();
    unified
}

/// Installed unattended; a signed image in slot B, which is the default; a unified kernel image in slot A, whose trial was not
/// well and was given up; snapshots of both systems; every verb that leaves an entry; what boot loaders note.
pub fn settings(world: &World) -> PathBuf {
    let disk = world.image();
    let first = payload(world, "1.0.0");
    Live::with(world, &first).onto(&disk, MEDIUM).succeeds();
    let etc = world.path("etc of the settings");
    fs::create_dir_all(etc.join("slipway")).unwrap();
    fs::write(etc.join("slipway/state.toml"), "paths = [\"/etc/app.conf\"]\nmeta = [\"0x0b\"]\n").unwrap();
    fs::write(etc.join("app.conf"), "first\n").unwrap();
    let machine = Machine { world, node: Node::of(world, disk), etc };
    let (node, disk) = (&machine.node, &machine.node.disk);
    let (image, trusted) = signed(world);
    machine.upgrades_to('A', &image, &[&trusted]);
    is_tried(node, 'B');
    machine.run('B', true, &["confirm"]).succeeds();
    machine.run('B', false, &["bootloader", "menu", "off"]).succeeds();
    let uki = format!("--source={}", unified(world).source());
    let stage = ["stage", "--progress=none", "--allow-unsigned", "--allow-any-version", &uki];
    machine.run('B', false, &stage).succeeds();
    machine.run('B', false, &["activate", "--progress=none"]).succeeds();
    is_tried(node, 'A');
    ill(world, &machine);
    // Its kernel panics, and the next trial of it is given up.
    machine.run('B', false, &[&stage[..], &["--retry-bad"]].concat()).succeeds();
    machine.run('B', false, &["activate", "--progress=none"]).succeeds();
    is_tried(node, 'A');
    machine.run('A', true, &["rollback", "--reason=it is not well"]).succeeds();
    fs::write(machine.etc.join("app.conf"), "second\n").unwrap();
    machine.run('B', false, &["snapshot", "restore", "--boot"]).succeeds();
    machine.run('B', false, &["wipe", "STATE"]).succeeds();
    write_at(disk, node.boot_envs()[1], &[0; 512]);
    machine.run('B', false, &["repair"]).succeeds();
    let other = assets_with(world, "other loaders", |name, mut bytes| {
        // A word of the message that a DOS would print.
        bytes[0x50] ^= u8::from(name.ends_with(".EFI") || name.ends_with(".efi"));
        bytes
    });
    with_assets(disk, &other, &["update", "--offline"]).succeeds();
    note(world, node);
    machine.node.disk.clone()
}

/// A check of the system on trial fails.
fn ill(world: &World, machine: &Machine<'_>) {
    let checks = world.path("health.d");
    fs::create_dir(&checks).unwrap();
    let check = checks.join("serves");
    fs::write(&check, "#!/bin/sh\necho it does not serve\nexit 1\n").unwrap();
    fs::set_permissions(&check, fs::Permissions::from_mode(0o755)).unwrap();
    let checks = format!("--checks={}", checks.display());
    assert!(!machine.run('A', true, &["confirm", "--progress=none", &checks]).stderr.is_empty());
}

/// What a boot loader and a person write, and the drive of a real disk.
fn note(world: &World, node: &Node) {
    let refused = Some(BootFailure { slot: Slot::A, fault: Fault::Digest });
    change(node, |env| BootEnv { check: false, refused, format_ephemeral: true, ..env });
    let at = node.boot_envs()[1];
    let mut block = EnvBlock::parse(&read_at(&node.disk, at, 512)).unwrap();
    block.set(OPENING, "A");
    write_at(&node.disk, at, block.render_sector().unwrap().as_bytes());
    let some = |text: &str| Some(text.to_owned());
    let identity = DiskIdentity {
        path: "/dev/sda".to_owned(),
        kind: DiskKind::Disk,
        model: None,
        serial: some("SERIAL"),
        wwid: some("naa.5000000000000001"),
    };
    let drive = world.path("drive.env");
    fs::write(&drive, DriveRecord::for_disk(&identity).unwrap().render()).unwrap();
    let esp = format!("{}@@{}", node.disk.display(), partition(&node.disk, "EFI").offset);
    tool!("mcopy", "-i", &esp, &drive, format!("::/{DRIVE}"));
}

/// Sectors of 4096 bytes; a kernel that only GRUB starts, and one that the loader starts; both copies of the boot state were lost, and made anew from the markers.
pub fn sectors_of_4096(world: &World) -> PathBuf {
    let disk = world.sparse("4096.img", IMAGE_BYTES_4096);
    world.payload.write(Payload::KERNEL, files::kernel_without_stub(noise(1, 40_000)));
    world.install(&disk, &[SLOT_4096, "--sector-size=4096"]).succeeds();
    let node = Node::of(world, disk);
    node.upgrade().succeeds();
    is_tried(&node, 'B');
    node.run('B', true, &["confirm"]).succeeds();
    node.boot_envs().into_iter().for_each(|at| write_at(&node.disk, at, &[0; 512]));
    node.run('B', false, &["repair"]).succeeds();
    node.disk
}

/// For arm64, with a staged payload.
pub fn arm64(world: &World) -> PathBuf {
    let arm = |version: &str| {
        let payload = payload(world, version);
        let mut kernel = payload.read(Payload::KERNEL);
        kernel[56..60].copy_from_slice(b"ARM\x64");
        kernel[0x44..0x46].copy_from_slice(&[0x64, 0xaa]);
        kernel[0x1fe] = 0;
        payload.write(Payload::KERNEL, kernel);
        payload
    };
    let disk = world.sparse("arm64.img", IMAGE_BYTES);
    let source = format!("--source={}", arm("1.0.1").source());
    world.install(&disk, &["--arch=arm64", &source]).succeeds();
    let next = format!("--source={}", arm("1.0.2").source());
    on_disk(&disk, &["stage", "--offline", "--arch=arm64", "--progress=none", &next]).succeeds();
    disk
}
