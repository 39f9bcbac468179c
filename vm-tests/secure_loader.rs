//! Under Secure Boot, Slipway's signed loader starts signed systems and nothing else. The slots hold signed unified
//! kernel images. Keys, programs and disk are made by the installer alone.
//!
//! Subject: loader/src core/boot/src
//! Needs: root boot-assets payloads qemu

use std::{ffi::OsStr, fs, path::Path};

use crate::{
    boot_rule::assert_try_is_spent,
    console::Console,
    image::{BOOT_ENVS, GIB, Image},
    qemu::{Drive, Firmware, Machine},
    secure_boot::Bench,
    world::{VERSION, VERSION_2, World, run},
};

/// The start of the tests: a machine that has our keys, and a disk with a signed loader and one signed system.
pub struct Node {
    pub bench: Bench,
    pub image: Image,
}

impl Node {
    pub fn new(firmware: Firmware) -> Self {
        let node = Node { bench: Bench::enrolled(firmware), image: Image::blank(4 * GIB) };
        node.payload("first", node.bench.plain_payload(), "keys");
        let assets = node.bench.signed_loader();
        let (disk, source) = (node.image.path().display().to_string(), node.source("first"));
        let installer = World::get().installer.as_os_str();
        let args = ["install", "--arch", firmware.arch(), "--disk", &disk, &source].map(OsStr::new);
        run("env", [OsStr::new(&format!("SLIPWAY_ASSETS={assets}")), installer].into_iter().chain(args));
        node
    }

    pub fn source(&self, name: &str) -> String {
        format!("--source=dir:{}", self.bench.path(name).display())
    }

    /// A payload with a unified kernel image that these keys have signed. The booted system is not confirmed.
    pub fn payload(&self, name: &str, plain: &Path, keys: &str) {
        let payload = self.bench.path(name);
        run("cp", [OsStr::new("-r"), plain.as_os_str(), payload.as_os_str()]);
        for list in ["SHA256SUMS", "manifest.json"] {
            fs::remove_file(payload.join(list)).expect("the payload has checksums");
        }
        let signer = self.bench.signer(keys);
        let signer = signer.each_ref().map(String::as_str);
        // Two of the same version are not the same system, and have digests of their own.
        let told = format!("slipway.name={name}");
        let words = ["slipway.scenario=unconfirmed", "slipway.rootfs=@squashfs-sha256@", &told];
        let words = words.map(|word| format!("--extra-kernel-arg={word}"));
        let words = words.each_ref().map(String::as_str);
        self.bench.uki(name, &format!("{name}/uki.efi"), &[&signer[..], &words].concat());
        self.bench.installer(&["checksum", &payload.display().to_string()]);
    }

    /// A system for the trial, without a unified kernel image, and its version. For arm64 there is one version.
    pub fn next(&self) -> (&'static Path, &'static str) {
        match self.bench.firmware {
            Firmware::UefiArm64 => (self.bench.plain_payload(), VERSION),
            Firmware::Uefi | Firmware::Bios => (World::get().payload(VERSION_2), VERSION_2),
        }
    }

    /// Writes a payload into slot B, for a trial.
    pub fn upgrade(&self, source: &str, args: &[&str]) {
        let arch = self.bench.firmware.arch();
        self.image.installer_from('A', 0, "upgrade", &[&["--arch", arch, source], args].concat());
    }

    pub fn start(&self) -> Console {
        self.start_from(self.image.path())
    }

    pub fn start_from(&self, disk: &Path) -> Console {
        let drive = Drive::new(disk).boot_index(1).kept();
        Machine::with_secure_boot(self.bench.firmware, &self.bench.path("variables")).memory(1024).drive(&drive).start()
    }
}

stories! {
    /// First start: the firmware takes the keys. Second: a disk with a signed loader and a signed UKI boots. Third: so
    /// does its upgrade, as a trial, which is spent. Fourth: the firmware refuses a trial that other keys have signed;
    /// the default boots in the same run, and the trial is spent. Fifth: the loader refuses a slot without a UKI, and
    /// the default boots in the same run.
    the_loader_starts_signed_systems_and_no_others: campaign Uefi, campaign UefiArm64 => starts_signed_systems;
}

fn starts_signed_systems(firmware: Firmware) {
    let node = Node::new(firmware);
    let (next, next_version) = node.next();
    let mut console = node.start();
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    drop(console);

    node.payload("second", next, "keys");
    node.upgrade(&node.source("second"), &[]);
    let armed = node.image.boot_env_lines(BOOT_ENVS[0]);
    let mut console = node.start();
    console.expect_os(next_version, 'B', 1);
    assert_try_is_spent(&node.image, &armed, &console.switch_off());

    // The firmware refuses the trial. The default comes in the same run.
    node.bench.keys("other", &[]);
    node.payload("third", next, "other");
    node.upgrade(&node.source("third"), &["--retry-bad"]);
    let armed = node.image.boot_env_lines(BOOT_ENVS[0]);
    let mut console = node.start();
    console.wait_for("slipway: slot B does not start: the firmware refuses uki.efi");
    console.wait_for("slipway: trial of slot B failed, booting the default");
    console.expect_os(VERSION, 'A', 0);
    let armed = [&armed[..], &["refused=B:load".to_owned()]].concat();
    assert_try_is_spent(&node.image, &armed, &console.switch_off());

    // A slot without a unified kernel image: nothing of it is verified, so it does not start.
    let plain = format!("--source=dir:{}", next.display());
    node.upgrade(&plain, &["--retry-bad"]);
    let mut console = node.start();
    console.wait_for("slipway: slot B does not start: Secure Boot is on, and the slot has no unified kernel image");
    console.expect_os(VERSION, 'A', 0);
}

stories! {
    /// First start: the firmware takes the keys. Second: one bit of the UKI is flipped, with `check=off`: the firmware
    /// refuses it, and no slot can be booted. Third: `slot.cfg` with the words beside the UKI is changed, with
    /// `check=off`: that counts for nothing, and slot A boots. Fourth: one bit of the loader is flipped: the firmware
    /// refuses it and goes on, and the loader says nothing.
    the_loader_starts_nothing_that_was_changed: gate Uefi, campaign UefiArm64 => starts_nothing_changed;
}

fn starts_nothing_changed(firmware: Firmware) {
    let node = Node::new(firmware);
    let uki = node.image.copy();
    uki.flip_bit_of('A', "uki.efi");
    // A change of the file changes its digest, too: then the firmware decides.
    uki.set_boot_env(&["check=off"]);
    let mut console = node.start_from(uki.path());
    console.wait_for("slipway: slot A does not start: the firmware refuses uki.efi");
    console.wait_for("slipway: no slot can be booted");
    drop(console);

    // The words for the kernel that lie beside it count for nothing, and nor does what the boot state says of checks.
    let words = node.image.copy();
    let (offset, _) = words.file_of_slot('A', "slot.cfg");
    words.flip_bit(offset + 40);
    words.set_boot_env(&["check=off"]);
    let mut console = node.start_from(words.path());
    console.expect_os(VERSION, 'A', 0);
    drop(console);

    let loader = node.image.copy();
    loader.flip_bit_of_esp(&firmware.removable());
    node.start_from(loader.path()).expect_refusal("a changed loader", &["slipway: "]);
}
