//! `imager`: profiles become the arguments of `installer image`, what is not done is refused with its place, and what is
//! made is what `installer image` makes.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use assert_cmd::Command;
use slipway_core::{media::profile::Profile, units::MIB};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL, OTHER, UNSUPPORTED},
    fixtures::FULL_PROFILE,
    images::{Layout, Pack, built},
    world::{self, Outcome, Payload, World, assets, installer, noise, tool},
};

/// The program under its other name, which makes its images in `out`.
pub fn imager(world: &World, args: &[&str], profile: &str) -> Command {
    let link = world.path("imager");
    if !link.is_symlink() {
        symlink(env!("CARGO_BIN_EXE_installer"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.args(args).arg("--output").arg(world.path("out")).env("SLIPWAY_ASSETS", assets());
    command.env_remove("SOURCE_DATE_EPOCH").timeout(world::PATIENCE).write_stdin(profile);
    command
}

/// `input` for the payload of this world.
fn input(world: &World) -> String {
    let path = |name| world.payload.path(name).display().to_string();
    let (kernel, initramfs) = (path(Payload::KERNEL), path(Payload::INITRAMFS));
    format!("input: {{kernel: {{path: {kernel}}}, initramfs: {{path: {initramfs}}}}}\n")
}

/// The image that `installer image` makes of the same.
fn image(world: &World, kind: &str, extra: &[&str]) -> PathBuf {
    let out = world.path(&format!("expected.{kind}"));
    let mut command = installer(["image", "--progress=none", "--kind", kind, "--platform=metal", "--out"]);
    command.arg(&out).arg(format!("--source={}", world.payload.source())).args(extra);
    Outcome::of(command.env_remove("SOURCE_DATE_EPOCH")).succeeds();
    out
}

#[test]
fn a_profile_makes_the_bytes_of_image() {
    let world = World::new();
    let extra = ["--disk-size=2600MiB", "--extra-kernel-arg=quiet", "--meta=0x0a=value"];
    for kind in ["raw", "qcow2"] {
        let expected = image(&world, kind, &extra);
        let profile = format!(
            "baseProfileName: metal\narch: amd64\n{}\
             customization: {{extraKernelArgs: [quiet], metaContents: [{{key: 10, value: value}}]}}\n\
             output: {{imageOptions: {{diskSize: {}, diskFormat: {kind}}}, outFormat: raw}}\n",
            input(&world),
            2600 * MIB
        );
        let outcome = Outcome::of(&mut imager(&world, &["-"], &profile)).succeeds();
        // The finished profile is shown.
        outcome.says(&["\nplatform: metal\n", &format!("diskFormat: {kind}\n"), "diskSectorSize: 512\n"]);
        tool!("cmp", &expected, world.path(&format!("out/metal-amd64.{kind}")));
    }
    let left: Vec<_> = fs::read_dir(world.path("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// Of a directory, of a container image, and for another architecture.
#[test]
fn a_profile_makes_the_iso_of_image() {
    let world = World::new();
    world.payload.checksum().succeeds();
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let oci = format!("input: {{baseInstaller: {{ociPath: {}}}}}\n", world.path("layout").display());
    let mut kernel = noise(7, 40_000);
    kernel[56..60].copy_from_slice(b"ARM\x64");
    for (arch, input) in [("amd64", input(&world)), ("amd64", oci), ("arm64", input(&world))] {
        if arch == "arm64" {
            world.payload.remove("SHA256SUMS");
            world.payload.remove("manifest.json");
            world.payload.write(Payload::KERNEL, &kernel);
        }
        let extra = ["--force", "--extra-kernel-arg=quiet", &format!("--arch={arch}")];
        let expected = image(&world, "iso", &extra);
        let profile =
            format!("baseProfileName: iso\narch: {arch}\ncustomization: {{extraKernelArgs: [quiet]}}\n{input}");
        let outcome = Outcome::of(&mut imager(&world, &["-", "--force"], &profile)).succeeds();
        outcome.says(&["\n  kind: iso\n", "\n  outFormat: raw\n"]);
        tool!("cmp", &expected, world.path(&format!("out/metal-{arch}.iso")));
    }
    // Another kind than that of the base; what is shown there is the profile.
    let profile = format!("baseProfileName: aws\narch: arm64\n{}output: {{kind: iso}}\n", input(&world));
    let shown = Outcome::of(&mut imager(&world, &["-"], &profile)).succeeds().stderr;
    let shown: Vec<_> = shown.lines().skip_while(|line| *line != "arch: arm64").collect();
    let end = shown.iter().position(|line| line.trim_start().starts_with("outFormat:")).unwrap();
    Outcome::of(&mut imager(&world, &["-", "--force"], &shown[..=end].join("\n"))).succeeds();
    let expected = world.path("aws.iso");
    let mut command = installer(["image", "--progress=none", "--kind=iso", "--platform=aws", "--arch=arm64", "--out"]);
    command.arg(&expected).arg(format!("--source={}", world.payload.source())).env_remove("SOURCE_DATE_EPOCH");
    Outcome::of(&mut command).succeeds();
    let made = world.path("out/aws-arm64.iso.zst");
    tool!("sh", "-c", r#"zstd --decompress --stdout "$0" | cmp - "$1""#, &made, &expected);
}

#[test]
fn a_file_that_is_there_is_kept() {
    let world = World::new();
    let profile = format!("baseProfileName: metal\narch: amd64\n{}output: {{outFormat: .zst}}\n", input(&world));
    let out = world.path("out/metal-amd64.raw.zst");
    fs::create_dir(world.path("out")).unwrap();
    fs::write(&out, "precious").unwrap();
    let texts = [out.to_str().unwrap(), "exists; --force replaces it"];
    Outcome::of(&mut imager(&world, &["-"], &profile)).exits(INSTALL).says(&texts);
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    Outcome::of(&mut imager(&world, &["-", "--force"], &profile)).succeeds();
    tool!("zstd", "--test", &out);
}

/// Refused with this exit code and these words, before a directory is made.
#[track_caller]
fn refused(world: &World, args: &[&str], profile: &str, code: i32, texts: &[&str]) {
    Outcome::of(&mut imager(world, args, profile)).exits(code).says(texts);
    assert!(!world.path("out").exists(), "{profile}");
}

/// Profiles that are wrong, behind `baseProfileName: metal` and `arch: amd64`.
const WRONG: [(&str, &str); 40] = [
    ("colour: red", "line 3, column 1: \"colour\" is not a known key: use baseProfileName, "),
    ("arch: x86_64", "line 2, column 7: arch: \"x86_64\" is not a known architecture: amd64, arm64"),
    ("arch: [amd64]", "line 2, column 7: arch: this must be text"),
    ("platform: moon", "line 3, column 11: platform: \"moon\" is not a known platform: metal, "),
    ("secureboot: maybe", "line 3, column 13: secureboot: \"maybe\" is neither true nor false"),
    ("version: [1]", "line 3, column 10: version: this must be text"),
    ("customization: []", "line 3, column 16: customization: this must be a mapping"),
    (
        "customization: {kernelArgs: []}",
        "line 3, column 17: customization: \"kernelArgs\" is not a known key: use extraKernelArgs",
    ),
    (
        "customization: {extraKernelArgs: quiet}",
        "line 3, column 34: customization.extraKernelArgs: this must be a list",
    ),
    ("customization: {metaContents: {}}", "line 3, column 31: customization.metaContents: this must be a list"),
    ("customization: {metaContents: [{value: x}]}", "line 3, column 32: customization.metaContents[0]: key is missing"),
    (
        "customization: {metaContents: [{key: 256, value: x}]}",
        "line 3, column 38: customization.metaContents[0].key: META key \"256\": write a number from 1 to 255",
    ),
    (
        "customization: {metaContents: [{key: 1, name: x}]}",
        "line 3, column 41: customization.metaContents[0]: \"name\"",
    ),
    ("input: {rootfs: {}}", "line 3, column 9: input: \"rootfs\" is not a known key: use kernel, "),
    ("input: {kernel: /vmlinuz}", "line 3, column 17: input.kernel: this must be a mapping"),
    ("input: {kernel: {file: x}}", "line 3, column 18: input.kernel: \"file\" is not a known key: use path"),
    (
        "input: {kernel: {path: /a/vmlinuz}}",
        "line 3, column 24: input.kernel.path: initramfs.path is missing beside it",
    ),
    (
        "input: {initramfs: {path: /a/initramfs.xz}}",
        "line 3, column 27: input.initramfs.path: kernel.path is missing beside it",
    ),
    (
        "input: {kernel: {path: /a/vmlinuz}, initramfs: {path: /a/initramfs.xz}, baseInstaller: {ociPath: /x}}",
        "line 3, column 88: input.baseInstaller: give the payload either here or by kernel and initramfs",
    ),
    (
        "input: {baseInstaller: {imageRef: 'r.example/OS'}}",
        "line 3, column 35: input.baseInstaller.imageRef: \"r.example/OS\": \"OS\" cannot be part of a repository",
    ),
    (
        "input: {baseInstaller: {imageRef: r.example/os, ociPath: /x}}",
        "line 3, column 24: input.baseInstaller: give only one of imageRef, ociPath and tarballPath",
    ),
    (
        "input: {baseInstaller: {image: x}}",
        "line 3, column 25: input.baseInstaller: \"image\" is not a known key: use imageRef",
    ),
    (
        "input: {baseInstaller: {forceInsecure: 1}}",
        "line 3, column 40: input.baseInstaller.forceInsecure: \"1\" is neither",
    ),
    (
        "output: {kind: floppy}",
        "line 3, column 16: output.kind: \"floppy\" is not a known kind of output: iso, image, installer",
    ),
    (
        "output: {outFormat: zip}",
        "line 3, column 21: output.outFormat: \"zip\" is not a known output format: raw, .tar.gz, .xz",
    ),
    ("output: {format: raw}", "line 3, column 10: output: \"format\" is not a known key: use kind, imageOptions"),
    (
        "output: {imageOptions: {diskSize: 4GiB}}",
        "line 3, column 35: output.imageOptions.diskSize: \"4GiB\" is not a number",
    ),
    (
        "output: {imageOptions: {diskSize: +4}}",
        "line 3, column 35: output.imageOptions.diskSize: \"+4\" is not a number",
    ),
    (
        "output: {imageOptions: {diskFormat: vmdk}}",
        "line 3, column 37: output.imageOptions.diskFormat: \"vmdk\" is not a known disk format: raw, qcow2, vhd, ova",
    ),
    (
        "output: {imageOptions: {diskSectorSize: 1024}}",
        "line 3, column 41: output.imageOptions.diskSectorSize: logical sector size of 1024 bytes is not",
    ),
    (
        "output: {imageOptions: {bootloader: lilo}}",
        "line 3, column 37: output.imageOptions.bootloader: \"lilo\" is not a boot",
    ),
    (
        "output: {imageOptions: {size: 1}}",
        "line 3, column 25: output.imageOptions: \"size\" is not a known key: use diskSize",
    ),
    (
        "output: {imageOptions: {diskSize: 4294967296}, kind: iso}",
        "line 3, column 35: output.imageOptions.diskSize: the output is an ISO, which has no disk in it: drop this",
    ),
    (
        "output: {kind: iso, imageOptions: {diskFormat: qcow2}}",
        "line 3, column 48: output.imageOptions.diskFormat: the output is an ISO",
    ),
    (
        "output: {kind: iso, imageOptions: {diskSectorSize: 512}}",
        "line 3, column 52: output.imageOptions.diskSectorSize: the output is an ISO",
    ),
    (
        "output: {kind: iso, imageOptions: {bootloader: grub}}",
        "line 3, column 48: output.imageOptions.bootloader: the output is an ISO",
    ),
    (
        "output: {isoOptions: {bootloader: grub}}",
        "line 3, column 35: output.isoOptions.bootloader: the output is not an ISO: drop this, or write `kind: iso`",
    ),
    (
        "output: {isoOptions: {volume: x}}",
        "line 3, column 23: output.isoOptions: \"volume\" is not a known key: use bootloader",
    ),
    ("---\narch: arm64", "line 4, column 1: a second document: a profile is a single one"),
    ("<<: {arch: arm64}", "line 3, column 1: merge keys (`<<`) are not supported"),
];

/// Profiles that ask for what is not done, behind the same.
const UNDONE: [(&str, &str); 22] = [
    (
        "secureboot: true\ninput: {secureboot: {secureBootSigner: {azureVaultURL: x}}}",
        "line 4, column 56: input.secureboot.secureBootSigner.azureVaultURL: keys in a key service are not supported",
    ),
    (
        "secureboot: true\ninput: {secureboot: {pcrSigner: {signerAddress: x}}}",
        "line 4, column 49: input.secureboot.pcrSigner.signerAddress: keys in a key service are not supported",
    ),
    (
        "secureboot: true\ninput: {secureboot: {platformKeyPath: a, keyExchangeKeyPath: b, signatureKeyPath: c}}",
        "line 4, column 39: input.secureboot.platformKeyPath: only an ISO with `secureboot: true` brings keys for firmware",
    ),
    ("overlay: {name: rpi_generic, image: {imageRef: x}}", "line 3, column 10: overlay: overlays are not supported"),
    (
        "customization: {embeddedMachineConfiguration: 'machine: {}'}",
        "line 3, column 47: customization.embeddedMachineConfiguration: the initramfs is not changed",
    ),
    ("input: {sdBoot: {path: /x}}", "line 3, column 17: input.sdBoot: disks boot with Slipway"),
    ("input: {imageCache: {ociPath: /x}}", "line 3, column 21: input.imageCache: image caches are not supported"),
    (
        "input: {overlayInstaller: {imageRef: x}}",
        "line 3, column 27: input.overlayInstaller: overlays are not supported",
    ),
    (
        "secureboot: true\ninput: {secureboot: {includeWellKnownCerts: true}}",
        "line 4, column 45: input.secureboot.includeWellKnownCerts: only an ISO with `secureboot: true` brings keys",
    ),
    (
        "input: {systemExtensions: [{imageRef: x}]}",
        "line 3, column 27: input.systemExtensions: the initramfs is not changed",
    ),
    (
        "input: {kernel: {path: /a/bzImage}, initramfs: {path: /a/initramfs.xz}}",
        "line 3, column 24: input.kernel.path: a payload is a directory in which this file is called vmlinuz",
    ),
    (
        "input: {kernel: {path: /a/vmlinuz}, initramfs: {path: /a/initramfs.zst}}",
        "line 3, column 55: input.initramfs.path: a payload is a directory in which this file is called initramfs.xz",
    ),
    (
        "input: {kernel: {path: /a/vmlinuz}, initramfs: {path: /b/initramfs.xz}}",
        "line 3, column 55: input.initramfs.path: a payload is one directory",
    ),
    (
        "output: {kind: kernel}",
        "line 3, column 16: output.kind: the parts of a PXE boot are not made one by one: `installer image --kind pxe` makes",
    ),
    ("output: {kind: initramfs}", "line 3, column 16: output.kind: the parts of a PXE boot"),
    ("output: {kind: cmdline}", "line 3, column 16: output.kind: the parts of a PXE boot"),
    ("output: {kind: installer}", "line 3, column 16: output.kind: container images are made by"),
    ("output: {outFormat: .tar.gz}", "line 3, column 21: output.outFormat: .tar.gz is not made"),
    (
        "output: {kind: iso, isoOptions: {sdBootEnrollKeys: force}}",
        "line 3, column 52: output.isoOptions.sdBootEnrollKeys: only an ISO with `secureboot: true` brings keys",
    ),
    (
        "customization: {metaContents: [{key: 10, value: x}]}\noutput: {kind: iso}",
        "line 3, column 31: customization.metaContents: only a disk has META: give it to the installer",
    ),
    (
        "output: {imageOptions: {diskFormat: qcow2, diskFormatOptions: 'compat=1.1,cluster_size=8k'}}",
        "line 3, column 63: output.imageOptions.diskFormatOptions: \"cluster_size=8k\" is not supported",
    ),
    (
        "output: {imageOptions: {sdBootEnrollKeys: force}}",
        "line 3, column 43: output.imageOptions.sdBootEnrollKeys: only an ISO with `secureboot: true` brings keys",
    ),
];

#[test]
fn wrong_profiles() {
    let world = World::new();
    for (keys, expected) in WRONG {
        let arch = if keys.starts_with("arch") { "" } else { "arch: amd64\n" };
        let profile = format!("baseProfileName: metal\n{arch}{keys}\n");
        refused(&world, &["-"], &profile, INPUT, &["error: profile on stdin: ", expected]);
    }
    for (profile, expected) in [
        ("", "line 1, column 1: there is no profile"),
        ("# nothing\n", "line 1, column 1: there is no profile"),
        ("- a\n", "line 1, column 1: this must be a mapping"),
        ("a: b: c\n", "line 1, column 5: not YAML: "),
        ("baseProfileName: metal\n", "line 1, column 1: arch is missing"),
        (
            "arch: amd64\nbaseProfileName: moon\n",
            "line 2, column 18: baseProfileName: \"moon\" is not a base profile; known are metal",
        ),
    ] {
        refused(&world, &["-"], profile, INPUT, &["error: profile on stdin: ", expected]);
    }
    // Without a base profile everything is to be said.
    for (key, line) in [
        ("platform", "platform: azure\n"),
        ("output.kind", "  kind: image\n"),
        ("output.imageOptions.diskSize", "    diskSize: 5368709120\n"),
        ("output.imageOptions.diskFormat", "    diskFormat: vhd\n    diskFormatOptions: subformat=fixed,force_size\n"),
        ("output.outFormat", "  outFormat: .xz\n"),
    ] {
        let expected = format!("line 1, column 1: {key} is missing");
        refused(&world, &["-"], &FULL_PROFILE.replace(line, ""), INPUT, &[&expected]);
    }
}

#[test]
fn profiles_that_ask_for_what_is_not_done() {
    let world = World::new();
    for (keys, expected) in UNDONE {
        let profile = format!("baseProfileName: metal\narch: amd64\n{keys}\n");
        refused(&world, &["-"], &profile, UNSUPPORTED, &["error: profile on stdin: ", expected]);
    }
    for options in ["imageOptions", "isoOptions"] {
        for loader in ["dual-boot", "sd-boot", "none"] {
            // A disk boots with GRUB under BIOS and with another loader under UEFI.
            if (options, loader) == ("imageOptions", "dual-boot") {
                continue;
            }
            let profile = format!("output:\n  {options}:\n    bootloader: {loader}\n");
            let expected = format!("line 3, column 17: output.{options}.bootloader: {loader} is not supported");
            refused(&world, &["-"], &profile, UNSUPPORTED, &[&expected]);
        }
    }
    for (base, expected) in [
        ("gcp", "baseProfileName: .tar.gz is not made"),
        ("installer", "baseProfileName: container images are made by"),
    ] {
        let profile = format!("arch: amd64\nbaseProfileName: {base}\n");
        refused(&world, &["-"], &profile, UNSUPPORTED, &[&format!("line 2, column 18: {expected}")]);
        refused(&world, &[base], "", UNSUPPORTED, &["the base profile"]);
    }
    // What it asks for that is not done can be asked otherwise.
    let gcp = "baseProfileName: gcp\narch: amd64\noutput: {outFormat: .gz}\n";
    assert_eq!(Profile::parse(gcp.as_bytes()).unwrap().0.file_name(), "gcp-amd64.raw.gz");
}

#[test]
fn arguments_that_are_refused() {
    let world = World::new();
    for flag in [
        "--image-cache=x",
        "--system-extension-image=x",
        "--tar-to-stdout",
        "--overlay-name=x",
        "--overlay-image=x",
        "--overlay-option=a=b",
        "--embedded-config-path=x",
        "--secureboot-signer-address=x",
        "--pcr-signer-address=x",
    ] {
        let name = flag.split('=').next().unwrap();
        refused(&world, &["metal", flag], "", UNSUPPORTED, &[&format!("error: {name}: Talos' imager has it")]);
    }
    let profile = "baseProfileName: metal\narch: amd64\n";
    for flag in [
        "--arch=amd64",
        "--platform=metal",
        "--extra-kernel-arg=quiet",
        "--meta=1=x",
        "--output-kind=image",
        "--base-installer-image=r.example/os",
        "--insecure",
        "--secureboot-enroll-keys=force",
        "--secureboot-include-well-known-certs",
    ] {
        let name = flag.split('=').next().unwrap();
        refused(&world, &["-", flag], profile, INPUT, &[&format!("{name} has no effect beside a profile on stdin")]);
    }
    for (args, code, text) in [
        (&["moon"][..], INPUT, "the base profile: \"moon\" is not a base profile; known are metal"),
        (&["iso.yaml"], INPUT, "to use a profile from a file, run `imager - < FILE`"),
        (&["metal", "--arch=riscv64"], INPUT, "'riscv64'"),
        (&["metal", "--platform=moon"], INPUT, "platform \"moon\" is not known: metal"),
        (&["metal", "--meta=x"], INPUT, "META tag \"x\": write KEY=VALUE"),
        (&["metal", "--output-kind=floppy"], INPUT, "--output-kind: \"floppy\" is not a known kind of output"),
        (
            &["metal", "--output-kind=cmdline"],
            UNSUPPORTED,
            "--output-kind: the parts of a PXE boot are not made one by",
        ),
        (&["metal", "--base-installer-image=r.example/OS"], INPUT, "--base-installer-image \"r.example/OS\""),
        (&["metal", "--colour=red"], OTHER, "unexpected argument '--colour'"),
        (&[], INPUT, "<PROFILE|->"),
    ] {
        refused(&world, args, "", code, &[text]);
    }
    // Flags that ask for nothing.
    let nothing = ["--tar-to-stdout=false", "--overlay-name=", "--secureboot-include-well-known-certs=false"];
    let args = [&["metal", "--output-kind=floppy"], &nothing[..]].concat();
    refused(&world, &args, "", INPUT, &["\"floppy\""]);
}

#[test]
fn flags_for_keys_on_what_brings_none() {
    let world = World::new();
    for (args, code, text) in [
        (
            ["secureboot-metal", "--secureboot-enroll-keys=force"],
            UNSUPPORTED,
            "--secureboot-enroll-keys: only an ISO with `secureboot: true` brings keys for firmware",
        ),
        (
            ["iso", "--secureboot-include-well-known-certs"],
            UNSUPPORTED,
            "--secureboot-include-well-known-certs: only an ISO with `secureboot: true` brings keys for firmware",
        ),
        (["secureboot-iso", "--secureboot-enroll-keys=soon"], INPUT, "\"soon\" is no time to enroll: manual, if-safe"),
    ] {
        refused(&world, &args, "", code, &[text]);
    }
    // As with every image: they are not enrolled, or enrolled by hand.
    let manual = ["secureboot-metal", "--secureboot-enroll-keys=manual", "--arch=arm64"];
    refused(&world, &manual, "", INPUT, &["/usr/install/arm64: missing"]);
}

/// Outside of a container image there is no default payload.
#[test]
fn an_iso_by_flags() {
    let world = World::new();
    let missing =
        "/usr/install/arm64: missing; only a container image with a payload has one there: name another by --base-inst";
    for args in [&["iso", "--arch=arm64"][..], &["metal", "--output-kind=iso", "--arch=arm64"]] {
        // What is shown before is the whole profile.
        refused(&world, args, "", INPUT, &["\n  kind: iso\n", missing]);
    }
    refused(&world, &["iso", "--meta=10=x"], "", UNSUPPORTED, &["--meta: only a disk has META"]);
    let expected = "the base profile iso: output.imageOptions.diskFormat is missing: add it, or start from a base";
    refused(&world, &["iso", "--output-kind=image"], "", INPUT, &[expected]);
}

#[test]
fn help_and_manual_page() {
    let world = World::new();
    let help = Outcome::of(&mut imager(&world, &["--help"], "")).succeeds().stdout;
    for text in ["PROFILE|-", "baseProfileName: metal", "metal-amd64.raw.zst", "--base-installer-image", "--plain-http"]
    {
        assert!(help.contains(text), "{text} is not in:\n{help}");
    }
    assert!(!help.contains("--overlay-name"), "{help}");
    Outcome::of(installer(["man"]).arg(world.path("man"))).succeeds();
    let page = fs::read_to_string(world.path("man/imager.8")).unwrap();
    assert!(page.contains("baseProfileName"), "{page}");
}
