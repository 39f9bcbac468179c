//! `installer uki`.

use std::{collections::BTreeSet, fs, path::Path};

use slipway_core::efi::pe::Pe;
use slipway_test_support::{
    exit_code::{DEPENDENCY, INPUT, INSTALL, OTHER},
    world::{Outcome, Payload, finished, installer, installer_in, program},
};

use super::{super::refused, *};

/// The answer of osslsigncode about the signature in a program.
fn osslsigncode(key: &Key, file: &Path) -> String {
    let mut command = program("osslsigncode");
    command.arg("verify").arg("-CAfile").arg(&key.certificate).arg("-in").arg(file);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The digest that it has computed itself.
fn computed(said: &str) -> String {
    let line =
        said.lines().find(|line| line.starts_with("Calculated message digest")).unwrap_or_else(|| panic!("{said}"));
    line.split_once(':').unwrap().1.trim().to_lowercase()
}

#[test]
fn others_read_and_verify_it() {
    let world = world();
    let (ours, other) = (Key::rsa(&world, "ours"), Key::rsa(&world, "other"));
    let out = world.path("uki.efi");
    let report = uki(&world, &out, &ours, &["--extra-kernel-arg=x=1", "--uname=6.1.0-test"]);

    assert!(sbverify(&ours, &out) && !sbverify(&other, &out));
    let said = osslsigncode(&ours, &out);
    assert!(said.contains("Signature verification: ok") && !said.contains("Warning"), "{said}");
    assert_eq!(report["authenticode"], computed(&said));
    // One line if they are the same, else two.
    let sums: Vec<_> = said.lines().filter(|line| line.contains("PE checksum")).collect();
    let sums: BTreeSet<_> = sums.iter().map(|line| line.split_once(':').unwrap().1.trim()).collect();
    assert!(sums.len() == 1 && !sums.contains("00000000"), "{said}");

    let rootfs = slipway_core::digest::Sha256::of(&world.payload.read(Payload::ROOTFS));
    let shown = report["system"]["cmdline"].as_str().unwrap();
    assert!(shown.ends_with(&format!("quiet rootsum={rootfs} x=1")), "{shown}");
    assert_eq!(text(section(&world, &out, ".cmdline")), shown);
    assert_eq!(text(section(&world, &out, ".uname")), "6.1.0-test");
    for (name, file) in [(".linux", Payload::KERNEL), (".initrd", Payload::INITRAMFS), (".osrel", "os-release")] {
        let (found, content) = (section(&world, &out, name), world.payload.read(file));
        assert!(found.starts_with(&content) && found[content.len()..].iter().all(|byte| *byte == 0), "{name}");
    }
    // The stub itself starts as before: its sections are where they were.
    let (stub, uki) = (fs::read(STUB).unwrap(), fs::read(&out).unwrap());
    let stub = slipway_core::efi::pe::without_symbols(&stub).unwrap();
    let (stub, uki) = (Pe::parse(&stub).unwrap(), Pe::parse(&uki).unwrap());
    assert_eq!(uki.sections()[..stub.sections().len()], *stub.sections());
    assert!(report["system"]["stub"].as_str().unwrap().starts_with("25"));
}

/// One changed byte makes a program that no firmware verifies.
#[test]
fn a_changed_byte_is_seen_by_all() {
    let world = world();
    let key = Key::rsa(&world, "ours");
    let (out, changed) = (world.path("uki.efi"), world.path("changed.efi"));
    uki(&world, &out, &key, &[]);
    let bytes = fs::read(&out).unwrap();
    let pe = Pe::parse(&bytes).unwrap();
    let begin = |name: &str| pe.sections().iter().find(|section| section.name == name).unwrap().file.start;
    for at in [0x50, begin(".text") + 9, begin(".cmdline") + 1, begin(".initrd") + 5000, begin(".linux") + 39_000] {
        let mut spoiled = bytes.clone();
        spoiled[at] ^= 1;
        fs::write(&changed, spoiled).unwrap();
        assert!(!sbverify(&key, &changed), "byte {at:#x}");
        assert!(!osslsigncode(&key, &changed).contains("Signature verification: ok"), "byte {at:#x}");
    }
}

#[test]
fn the_same_inputs_make_the_same_bytes_however_they_are_signed() {
    let world = world();
    let key = Key::rsa(&world, "ours");
    let [first, second, unsigned, by_sbsign, marked] = ["1", "2", "3", "4", "5"].map(|name| world.path(name));
    let report = uki(&world, &first, &key, &[]);
    let command = format!("--sign-command=openssl dgst -sha256 -sign {}", key.key.display());
    let certificate = format!("--certificate={}", key.certificate.display());
    Outcome::of(&mut uki_command(&world, &second, &[&command, &certificate])).succeeds();
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap());
    // Without a signature it is the same program: others sign it, and a loader is signed in this way.
    let plain = Outcome::of(&mut uki_command(&world, &unsigned, &[])).succeeds().json();
    assert_eq!((&plain["authenticode"], &plain["signed_by"]), (&report["authenticode"], &serde_json::Value::Null));
    let mut sbsign = program("sbsign");
    sbsign.arg("--key").arg(&key.key).arg("--cert").arg(&key.certificate).arg("--output").arg(&by_sbsign);
    finished(sbsign.arg(&unsigned));
    assert_eq!(report["authenticode"], computed(&osslsigncode(&key, &by_sbsign)));
    let mut command = installer(["uki", "--progress=none", "--force", "--out"]);
    command.arg(&second).arg("--program").arg(&unsigned).args(key.args());
    Outcome::of(&mut command).succeeds();
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap());
    // As some editors save key and certificate.
    for file in [&key.key, &key.certificate] {
        fs::write(file, [b"\xef\xbb\xbf".to_vec(), fs::read(file).unwrap()].concat()).unwrap();
    }
    uki(&world, &marked, &key, &[]);
    assert!(fs::read(&first).unwrap() == fs::read(&marked).unwrap());
}

/// The remedy of a stub that is missing is a package, wherever it was looked for.
#[test]
fn a_stub_that_is_missing() {
    let world = world();
    let out = world.path("uki.efi");
    let texts = ["/nosuch: systemd's stub is not there; install systemd-boot-efi", "name another stub (--stub"];
    refused(&world, DEPENDENCY, &texts, || Outcome::of(&mut uki_command(&world, &out, &["--stub=/nosuch"])));
}

/// Another word with the same key helps a live medium, and not here: it is not advised.
#[test]
fn a_system_that_finds_its_root_in_a_slot() {
    let world = world();
    let out = world.path("uki.efi");
    world.payload.write("cmdline", "boot=live live-media=@slot-partuuid@");
    for args in [&[][..], &["--extra-kernel-arg=live-media=/dev/sr0"]] {
        let attempt = || Outcome::of(&mut uki_command(&world, &out, args));
        let texts = ["a unified kernel image, which is the same for both slots, has none", "examples/debian-sealed"];
        refused(&world, INPUT, &texts, attempt);
        assert!(!attempt().stderr.contains("--extra-kernel-arg"), "{}", attempt().stderr);
    }
}

#[test]
fn what_would_not_start_is_refused() {
    let world = world();
    let (key, out) = (Key::rsa(&world, "ours"), world.path("uki.efi"));
    let other = Key::rsa(&world, "other");
    let curve = Key::new(&world, "curve", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let attempt = |args: &[&str]| Outcome::of(&mut uki_command(&world, &out, args));
    let [by, certificate] = key.args();
    let [_, others] = other.args();
    let [_, curved] = curve.args();
    let input = |texts: &[&str], args: &[&str]| refused(&world, INPUT, texts, || attempt(args));

    let without_stubs = "mount -t tmpfs none /usr/lib/systemd/boot/efi && exec \"$@\"";
    let source = format!("--source={}", world.payload.source());
    let texts =
        ["linuxx64.efi.stub: systemd's stub is not there; install systemd-boot-efi", "name another stub (--stub"];
    refused(&world, DEPENDENCY, &texts, || {
        Outcome::of(installer_in(without_stubs, ["uki", source.as_str(), "--out"]).arg(&out))
    });
    let kernel = format!("--stub={}", world.payload.path(Payload::INITRAMFS).display());
    input(&["initramfs.xz: the stub: not an EFI program"], &[&kernel]);
    let amd64 = format!("--stub={STUB}");
    input(&["arm64", "amd64"], &["--arch=arm64", &amd64]);
    input(&["not the certificate of the key in"], &[&by, &others]);
    input(&["its key is not RSA of 2048 to 4096 bits"], &[&by, &curved]);
    input(&["@slot@ has no value"], &["--extra-kernel-arg=root=@slot@"]);
    input(&["certificate"], &[&by]);
    input(&["--key"], &[&certificate]);
    refused(&world, DEPENDENCY, &["the signature that was made does not verify"], || {
        attempt(&["--sign-command=echo QUJD", &certificate])
    });

    let good = fs::read(STUB).unwrap();
    let stub = world.path("stub");
    let with_stub = format!("--stub={}", stub.display());
    fs::write(&stub, [&good[..], b"more"].concat()).unwrap();
    input(&["bytes behind its last section"], &[&with_stub]);
    fs::write(&stub, &good[..good.len() / 2]).unwrap();
    input(&["it ends within section"], &[&with_stub]);

    uki(&world, &out, &key, &[]);
    refused(&world, INSTALL, &["exists; --force replaces it"], || attempt(&[]));
    let again = format!("--program={}", out.display());
    let to = world.path("again.efi");
    let sign = |what: &str| {
        let mut command = installer(["uki", "--progress=none", "--out"]);
        Outcome::of(command.arg(&to).arg(what).args(key.args()))
    };
    refused(&world, INPUT, &["it is signed already"], || sign(&again));
    refused(&world, OTHER, &["cannot be used with"], || {
        Outcome::of(&mut uki_command(&world, &to, &[&again, &by, &certificate]))
    });

    world.payload.write(
        Payload::KERNEL,
        slipway_test_support::files::kernel_without_stub(slipway_test_support::world::noise(1, 40_000)),
    );
    refused(&world, INPUT, &["the kernel has no EFI stub of its own"], || attempt(&["--force"]));
}

/// At a NUL the kernel takes the command line to end: the digest behind it would be lost.
#[test]
fn control_characters_in_a_command_line() {
    let world = world();
    let (key, out) = (Key::rsa(&world, "ours"), world.path("uki.efi"));
    let attempt = |args: &[&str]| Outcome::of(&mut uki_command(&world, &out, args));
    let disk = world.image();
    let place = |text: &str| format!("{}: {text}", world.payload.path("cmdline").display());
    for (text, says) in [
        ("quiet\0 rootsum=@squashfs-sha256@\n", "byte 5 is the control character 0x00"),
        ("quiet rootsum=@squashfs-sha256@\0", "byte 31 is the control character 0x00"),
        ("quiet \u{1b}[2J", "byte 6 is the control character 0x1b"),
        ("x=\"a\nb\"", "byte 4 is the control character 0x0a"),
    ] {
        world.payload.write("cmdline", text);
        let says = place(says);
        refused(&world, INPUT, &[&says], || attempt(&[]));
        refused(&world, INPUT, &[&says], || Outcome::of(&mut world.install_command(&disk, &[])));
        let checksum = || world.payload.checksum();
        refused(&world, INPUT, &[&says], checksum);
    }
    world.payload.write("cmdline", "quiet\r\n\trootsum=@squashfs-sha256@\n");
    refused(&world, INPUT, &["kernel command line: byte", "0x01"], || attempt(&["--extra-kernel-arg=x=\u{1}"]));
    let report = uki(&world, &out, &key, &[]);
    assert!(report["system"]["cmdline"].as_str().unwrap().contains("quiet rootsum="), "{report}");
}

/// Behind a quote that stays open, or beyond what the kernel takes, the digest would be lost.
#[test]
fn words_that_the_kernel_would_not_read() {
    let world = world();
    let attempt = |args: &[&str]| Outcome::of(&mut uki_command(&world, &world.path("uki.efi"), args));
    let long = format!("--extra-kernel-arg=x={}", "1".repeat(3000));
    refused(&world, INPUT, &["kernel command line: 3", "at most 2047 reach the kernel"], || attempt(&[&long]));
    let open = ["--extra-kernel-arg=x=\"1", "--extra-kernel-arg=rootsum=@squashfs-sha256@"];
    refused(&world, INPUT, &["the kernel reads other words than these"], || attempt(&open));
}

/// `--force` replaces an older result, and never a key.
#[test]
fn a_file_that_it_is_made_with() {
    let world = world();
    let (key, pcr) = (Key::rsa(&world, "ours"), Key::rsa(&world, "pcr").key);
    let (stub, linked) = (world.path("stub.efi"), world.path("linked.raw"));
    fs::copy(STUB, &stub).unwrap();
    fs::hard_link(&key.key, &linked).unwrap();
    std::os::unix::fs::symlink(world.path("."), world.path("dir")).unwrap();
    let more = [format!("--pcr-key={}", pcr.display()), format!("--stub={}", stub.display())];
    let args = [&key.args()[..], &more, &["--force".to_owned()]].concat();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    for (flag, out) in [
        ("--key", key.key.clone()),
        ("--key", linked),
        ("--key", world.path("dir").join(key.key.file_name().unwrap())),
        ("--certificate", key.certificate.clone()),
        ("--pcr-key", pcr),
        ("--stub", stub),
    ] {
        let texts = [format!("is the file of {flag}: name another file")];
        let texts = texts.each_ref().map(String::as_str);
        let content = fs::read(&out).unwrap();
        refused(&world, INPUT, &texts, || Outcome::of(&mut uki_command(&world, &out, &args)));
        refused(&world, INPUT, &texts, || super::disk::image(&world, &out, &args));
        assert!(fs::read(&out).unwrap() == content, "{}", out.display());
    }
}
