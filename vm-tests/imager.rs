//! What `imager` makes of Talos' profiles starts: a medium, a disk and a program with Secure Boot, and a plain disk
//! under BIOS. `imager` is the installer under another name.
//!
//! Subject: core/src/media/profile src/commands/imager.rs
//! Needs: root boot-assets payloads qemu

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use crate::{
    qemu::{Drive, Firmware, Machine},
    secure_boot::Bench,
    world::{VERSION, World, run},
};

/// The file that the installer makes under its other name, in the directory `out`, of this profile.
fn imager(bench: &Bench, profile: &str, name: &str) -> PathBuf {
    let link = bench.path("imager");
    if !link.is_symlink() {
        symlink(&World::get().installer, &link).expect("a link can be made");
    }
    let (link, out) = (link.display().to_string(), bench.path("out"));
    let script = r#"printf %s "$1" | "$0" - --output "$2""#;
    run("sh", ["-c", script, &link, profile, &out.display().to_string()]);
    out.join(name)
}

/// A profile of this payload. `more` stands below `input`.
fn profile(bench: &Bench, base: &str, payload: &str, words: &str, more: &str) -> String {
    let path = |name: &str| bench.path(payload).join(name).display().to_string();
    let (kernel, initramfs) = (path("vmlinuz"), path("initramfs.xz"));
    format!(
        "baseProfileName: {base}\narch: amd64\ncustomization: {{extraKernelArgs: [{words}]}}\n\
         input:\n  kernel: {{path: {kernel}}}\n  initramfs: {{path: {initramfs}}}\n{more}"
    )
}

/// The signer. The profile does not say which keys a medium enrols: they are those of the signer.
fn signer(bench: &Bench) -> String {
    let path = |name: &str| bench.path("keys").join(name).display().to_string();
    let [key, certificate, pcr] = ["uki-signing-key.pem", "uki-signing-cert.pem", "pcr-signing-key.pem"].map(path);
    format!(
        "  secureboot:\n    secureBootSigner: {{keyPath: {key}, certPath: {certificate}}}\n    pcrSigner: {{keyPath: {pcr}}}\n"
    )
}

/// The disk in an image that the base profiles compress.
fn unpacked(bench: &Bench, packed: &Path) -> PathBuf {
    let disk = bench.path("disk.raw");
    run(
        "zstd",
        ["-q".as_ref(), "-d".as_ref(), "--sparse".as_ref(), packed.as_os_str(), "-o".as_ref(), disk.as_os_str()],
    );
    disk
}

/// First start: `metal-amd64-secureboot.iso` enrols the keys that `imager` has made of the signer's certificate, and
/// its live system starts after the reset. Second: the disk in `metal-amd64-secureboot.raw.zst` boots on that firmware.
/// Third: so does `metal-amd64-secureboot-uki.efi`, from the firmware itself; the system in it says that Secure Boot is
/// on, and has the words of the profile. Fourth: `metal-amd64-uki.efi`, which is not signed, is refused.
#[test]
#[ignore = "campaign"]
fn what_imager_makes_starts_with_secure_boot() {
    // Without keys: the medium brings them.
    let bench = Bench::new(Firmware::Uefi);
    let payload = World::get().payload(VERSION).display().to_string();
    let words = "'slipway.rootfs=@squashfs-sha256@', panic=-1";
    let machine = || Machine::with_secure_boot(Firmware::Uefi, &bench.path("variables")).memory(1536);

    let of_ours = profile(&bench, "secureboot-iso", &payload, words, &signer(&bench));
    let iso = imager(&bench, &of_ours, "metal-amd64-secureboot.iso");
    let mut console = machine().cd(&iso).may_reset().start();
    console.wait_for("slipway: the keys are enrolled, and read back; starting anew with Secure Boot");
    let line = console.wait_for(": booting");
    let medium = line.split_whitespace().nth(2).map(|id| id.trim_end_matches(':').to_owned());
    console.expect_live(VERSION, &medium.expect("the loader names the medium"));
    drop(console);

    let of_ours = profile(&bench, "secureboot-metal", &payload, words, &signer(&bench));
    let disk = unpacked(&bench, &imager(&bench, &of_ours, "metal-amd64-secureboot.raw.zst"));
    let mut console = machine().drive(&Drive::new(&disk).boot_index(1)).start();
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    drop(console);

    // A program for firmware that is told of it: the first asks only the firmware which keys are in force.
    bench.enrolling("telling");
    let of_ours = profile(&bench, "secureboot-metal-uki", "telling", "panic=-1, told=once", &signer(&bench));
    imager(&bench, &of_ours, "metal-amd64-secureboot-uki.efi");
    let mut console = bench.machine("out/metal-amd64-secureboot-uki.efi").start();
    console.wait_for("SLIPWAY-FIRMWARE setup=00 secure=01");
    let cmdline = console.wait_for("SLIPWAY-CMDLINE");
    assert!(cmdline.ends_with("panic=-1 told=once"), "{cmdline}");
    console.expect_power_off();

    imager(&bench, &profile(&bench, "metal-uki", "telling", "panic=-1", ""), "metal-amd64-uki.efi");
    bench.refuses("out/metal-amd64-uki.efi");
}

/// The disk in `metal-amd64.raw.zst`, which `imager` has made of a profile without Secure Boot, boots under BIOS.
#[test]
#[ignore = "campaign"]
fn what_imager_makes_starts_under_bios() {
    let bench = Bench::new(Firmware::Uefi);
    let payload = World::get().payload(VERSION).display().to_string();
    let plain = profile(&bench, "metal", &payload, "panic=-1", "");
    let disk = unpacked(&bench, &imager(&bench, &plain, "metal-amd64.raw.zst"));
    Machine::new(Firmware::Bios).drive(&Drive::new(&disk).boot_index(1)).start().expect_os(VERSION, 'A', 0);
}
