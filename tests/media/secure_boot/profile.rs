//! `imager` with `secureboot: true`: what a profile makes is what `installer image` makes, and `sbverify` takes it.

use std::{fs, path::Path};

use slipway_test_support::{
    exit_code::DEPENDENCY,
    tool,
    world::{Outcome, installer},
};

use super::*;
use crate::imager::imager;

/// The time of images for which no other is given.
const TIME: &str = "1767225600";

/// `input` for the payload of this world, signed by `key`, and the rest of `input.secureboot`.
fn input(world: &World, key: &Key, more: &str) -> String {
    let path = |name| world.payload.path(name).display().to_string();
    let (kernel, initramfs) = (path(Payload::KERNEL), path(Payload::INITRAMFS));
    let (key, certificate) = (key.key.display(), key.certificate.display());
    format!(
        "input:\n  kernel: {{path: {kernel}}}\n  initramfs: {{path: {initramfs}}}\n  secureboot:\n    secureBootSigner: \
         {{keyPath: {key}, certPath: {certificate}}}\n    pcrSigner: {{keyPath: {key}}}\n    {more}\n"
    )
}

/// `installer keys` of this key, at the time of images, in a directory.
fn keys(world: &World, name: &str, key: &Key, extra: &[&str]) -> PathBuf {
    let dir = world.path(name);
    let mut command = installer(["keys", "--progress=none"]);
    command.arg(&dir).args(key.args()).args(extra).env("SOURCE_DATE_EPOCH", TIME);
    Outcome::of(&mut command).succeeds();
    dir
}

/// The image that `installer image` makes of the payload with these keys.
fn expected(world: &World, key: &Key, keys: &Path, mode: &str) -> PathBuf {
    let out = world.path("expected.iso");
    let mut command = installer(["image", "--progress=none", "--kind=iso", "--platform=metal", "--force", "--out"]);
    command.arg(&out).arg(format!("--source={}", world.payload.source())).args(key.args());
    command.arg(format!("--pcr-key={}", key.key.display())).arg(format!("--enroll-from={}", keys.display()));
    command.arg(format!("--enroll-keys={mode}"));
    Outcome::of(command.env_remove("SOURCE_DATE_EPOCH").env_remove("INSTALLER_GRUB_USE_UKI_CMDLINE")).succeeds();
    out
}

#[test]
fn a_profile_makes_a_signed_iso_that_brings_its_keys() {
    let world = world();
    let ours = Key::rsa(&world, "ours");
    let (plain, known) =
        (keys(&world, "plain", &ours, &[]), keys(&world, "known", &ours, &["--include-well-known-certs"]));
    let files = |dir: &Path| {
        let path = |name| dir.join(name).display().to_string();
        let (pk, kek, db) = (path("PK.auth"), path("KEK.auth"), path("db.auth"));
        format!("platformKeyPath: {pk}\n    keyExchangeKeyPath: {kek}\n    signatureKeyPath: {db}")
    };
    let iso = world.path("out/metal-amd64-secureboot.iso");
    // No step makes files for the last two: the imager makes the same of the certificate.
    for (more, mode, dir) in [
        (files(&known), "force", &known),
        (String::new(), "if-safe", &plain),
        ("includeWellKnownCerts: true".to_owned(), "manual", &known),
    ] {
        let options = format!("output: {{isoOptions: {{sdBootEnrollKeys: '{mode}'}}}}\n");
        let profile = format!("baseProfileName: secureboot-iso\narch: amd64\n{}{options}", input(&world, &ours, &more));
        Outcome::of(&mut imager(&world, &["-", "--force"], &profile))
            .succeeds()
            .says(&["\n    bootloader: dual-boot\n"]);
        tool!("cmp", expected(&world, &ours, dir, mode), &iso);
    }
    // And that is a medium that firmware starts.
    let boot = world.path("boot");
    tool!("xorriso", "-no_rc", "-osirrox", "on", "-indev", &iso, "-extract", "/boot", &boot);
    for name in ["EFI/BOOT/BOOTX64.EFI", "EFI/Linux/slipway.efi"] {
        let to = world.path("program.efi");
        tool!("mcopy", "-o", "-i", boot.join("efi.img"), format!("::{name}"), &to);
        tool!("sbverify", "--cert", &ours.certificate, &to);
    }
    let taken = world.path("taken");
    tool!("mcopy", "-i", boot.join("efi.img"), "-s", "::loader/keys/auto", &taken);
    for name in ["db.auth", "KEK.auth", "PK.auth"] {
        assert!(fs::read(taken.join(name)).unwrap() == fs::read(known.join(name)).unwrap(), "{name}");
    }
}

/// The image that `installer uki` makes of the payload, signed or not.
#[test]
fn a_profile_makes_a_unified_kernel_image() {
    let world = world();
    let (ours, other) = (Key::rsa(&world, "ours"), Key::rsa(&world, "other"));
    let pcr = format!("--pcr-key={}", ours.key.display());
    let signed = [&ours.args()[..], &[pcr]].concat();
    let plain = input(&world, &ours, "").split("  secureboot:").next().unwrap().to_owned();
    for (base, name, input, extra) in [
        ("secureboot-metal-uki", "metal-amd64-secureboot-uki.efi", input(&world, &ours, ""), signed),
        ("metal-uki", "metal-amd64-uki.efi", plain, vec![]),
    ] {
        let keys = "customization: {extraKernelArgs: [x=1]}";
        let profile = format!("baseProfileName: {base}\narch: amd64\n{keys}\n{input}");
        Outcome::of(&mut imager(&world, &["-"], &profile)).succeeds().says(&["\n  kind: uki\n"]);
        let (made, expected) = (world.path(&format!("out/{name}")), world.path("expected.efi"));
        let arguments = ["--platform=metal", "--extra-kernel-arg=x=1", "--force"];
        Outcome::of(uki_command(&world, &expected, &arguments).args(&extra)).succeeds();
        tool!("cmp", &expected, &made);
        assert!(text(section(&world, &made, ".cmdline")).ends_with(" x=1"));
        for (key, good) in [(&ours, !extra.is_empty()), (&other, false)] {
            let judged = program("sbverify").arg("--cert").arg(&key.certificate).arg(&made).output().unwrap();
            assert_eq!(judged.status.success(), good, "{name}");
        }
        let stub = format!("{profile}  sdStub: {{path: /nosuch}}\n");
        let lacks = Outcome::of(&mut imager(&world, &["-", "--force"], &stub)).exits(DEPENDENCY);
        lacks.says(&["/nosuch: systemd's stub is not there", "input.sdStub.path"]);
    }
}
