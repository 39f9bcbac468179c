//! Live media that start with Secure Boot.

use std::{fs, path::Path};

use slipway_test_support::{
    exit_code::INPUT,
    tool,
    world::{Outcome, installer},
};

use super::*;

/// `installer image` of the payload as a live medium, and its report.
fn medium(world: &World, kind: &str, name: &str, key: &Key, extra: &[&str]) -> (PathBuf, Value) {
    let out = world.path(name);
    let mut command = installer(["image", "--progress=none", "--output=json", "--kind", kind, "--out"]);
    command.arg(&out).arg(format!("--source={}", world.payload.source())).args(key.args()).args(extra);
    (out, Outcome::of(command.env_remove("INSTALLER_GRUB_USE_UKI_CMDLINE")).succeeds().json())
}

/// The content of an initramfs behind the payload's own, by cpio.
fn carried(world: &World, initramfs: &[u8]) -> PathBuf {
    let own = world.payload.read(Payload::INITRAMFS);
    let (archive, dir) = (world.path("cpio"), world.path("carried"));
    fs::write(&archive, &initramfs[(own.len() + 4).next_multiple_of(4)..]).unwrap();
    fs::create_dir(&dir).unwrap();
    tool!("sh", "-c", r#"cd "$1" && cpio --quiet --extract --make-directories <"$0""#, &archive, &dir);
    dir.join("slipway")
}

#[test]
fn all_that_firmware_starts_of_an_iso_is_signed() {
    let world = world();
    let (ours, other) = (Key::rsa(&world, "ours"), Key::rsa(&world, "other"));
    let (iso, report) = medium(&world, "iso", "first.iso", &ours, &["--extra-kernel-arg=x=1"]);
    let (second, _) = medium(&world, "iso", "second.iso", &ours, &["--extra-kernel-arg=x=1"]);
    assert!(fs::read(&iso).unwrap() == fs::read(second).unwrap(), "the same inputs give the same bytes");
    let der = world.path("ours.der");
    finished(program("openssl").args(["x509", "-outform=DER", "-in"]).arg(&ours.certificate).arg("-out").arg(&der));
    let listed = tool!("sha256sum", &der);
    assert_eq!(report["signed_by"].as_str(), listed.split(' ').next());

    let boot = world.path("boot");
    tool!("xorriso", "-no_rc", "-osirrox", "on", "-indev", &iso, "-extract", "/boot", &boot);
    let esp = boot.join("efi.img");
    tool!("fsck.vfat", "-n", &esp);
    let take = |name: &str| {
        let to = world.path(&name.replace('/', "-"));
        finished(program("mcopy").arg("-i").arg(&esp).arg(format!("::{name}")).arg(&to));
        to
    };
    let (loader, system) = (take("EFI/BOOT/BOOTX64.EFI"), take("EFI/Linux/slipway.efi"));
    for file in [&loader, &system] {
        assert!(sbverify(&ours, file) && !sbverify(&other, file), "{}", file.display());
    }
    assert!(fs::read(take("EFI/keys/uki-signing-cert.der")).unwrap() == fs::read(der).unwrap());
    let id = report["medium"].as_str().unwrap();
    assert_eq!(
        fs::read_to_string(take("slipway/medium.env")).unwrap(),
        format!("# GRUB Environment Block\nmedium={id}\n")
    );
    // The arguments are in what is signed, and one changed byte of them is no signature.
    let cmdline = text(section(&world, &system, ".cmdline"));
    assert_eq!(cmdline, report["cmdline"].as_str().unwrap());
    assert!(cmdline.contains(" x=1 ") && cmdline.ends_with(&format!("slipway.medium={id}")), "{cmdline}");
    let mut changed = fs::read(&system).unwrap();
    let at = changed.windows(15).position(|bytes| bytes == b"slipway.medium=").unwrap();
    changed[at] = b'S';
    fs::write(world.path("changed"), changed).unwrap();
    assert!(!sbverify(&ours, &world.path("changed")));

    // Under BIOS the same starts, by GRUB. It holds the system for disks, and what boots them.
    let initramfs = fs::read(boot.join("initramfs")).unwrap();
    let unified = section(&world, &system, ".initrd");
    assert!(unified.starts_with(&initramfs) && unified[initramfs.len()..].iter().all(|byte| *byte == 0));
    let carried = carried(&world, &initramfs);
    tool!("sh", "-c", r#"cd "$0"/payload && sha256sum --check --strict --quiet SHA256SUMS"#, &carried);
    tool!("sh", "-c", r#"cd "$0"/assets/amd64 && sha256sum --check --strict --quiet SHA256SUMS"#, &carried);
    assert!(fs::read(carried.join("assets/amd64/loader.efi")).unwrap() == fs::read(&loader).unwrap());
    let uki = carried.join("payload/uki.efi");
    assert!(sbverify(&ours, &uki));
    assert!(!text(section(&world, &uki, ".cmdline")).contains("slipway.medium="));
}

#[test]
fn a_medium_for_the_network_has_its_system_as_one_signed_file() {
    let world = world();
    let ours = Key::rsa(&world, "ours");
    let (tar, report) = medium(&world, "pxe", "first.tar", &ours, &[]);
    let dir = world.path("unpacked");
    fs::create_dir(&dir).unwrap();
    tool!("tar", "-C", &dir, "-xf", &tar);
    tool!(
        "sh",
        "-c",
        r#"cd "$0" && sha256sum --check --strict --quiet SHA256SUMS && grep -q slipway.efi SHA256SUMS"#,
        &dir
    );
    assert!(sbverify(&ours, &dir.join("slipway.efi")));
    let cmdline = text(section(&world, &dir.join("slipway.efi"), ".cmdline"));
    assert_eq!(cmdline, report["cmdline"].as_str().unwrap());
}

/// An unsigned medium differs from a signed one, and has none of this.
#[test]
fn who_signs_is_part_of_what_a_medium_is() {
    let world = world();
    let keys = ["one", "two"].map(|name| Key::rsa(&world, name));
    let ids = keys.map(|key| medium(&world, "pxe", "medium.tar", &key, &["--force", "--dry-run"]).1["medium"].clone());
    assert_ne!(ids[0], ids[1]);
}

/// The files of an enrolment are on the medium as they are, with their digest: firmware in setup mode takes a damaged db.
#[test]
fn a_medium_brings_keys_with_which_it_starts() {
    let world = world();
    let (ours, other) = (Key::rsa(&world, "ours"), Key::rsa(&world, "other"));
    for (key, name) in [(&ours, "keys"), (&other, "others")] {
        let mut command = installer(["keys", "--progress=none"]);
        Outcome::of(command.arg(world.path(name)).args(key.args())).succeeds();
    }
    let (keys, others) = (world.path("keys"), world.path("others"));
    let from = |dir: &Path| format!("--enroll-from={}", dir.display());
    let (iso, report) = medium(&world, "iso", "keys.iso", &ours, &[&from(&keys), "--enroll-keys=force"]);
    let (boot, taken) = (world.path("boot"), world.path("taken"));
    tool!("xorriso", "-no_rc", "-osirrox", "on", "-indev", &iso, "-extract", "/boot", &boot);
    tool!("mcopy", "-i", boot.join("efi.img"), "-s", "::loader/keys/auto", &taken);
    let mut all = Vec::new();
    for name in ["db", "KEK", "PK"] {
        let file = fs::read(taken.join(format!("{name}.auth"))).unwrap();
        assert!(file == fs::read(keys.join(format!("{name}.auth"))).unwrap(), "{name}");
        all.extend(file);
    }
    fs::write(world.path("all"), all).unwrap();
    let digest = tool!("sha256sum", world.path("all"));
    let about = world.path("medium.env");
    tool!("mcopy", "-i", boot.join("efi.img"), "::slipway/medium.env", &about);
    let (id, digest) = (report["medium"].as_str().unwrap(), digest.split(' ').next().unwrap());
    let lines = format!("# GRUB Environment Block\nmedium={id}\nenroll=force\nkeys={digest}\n");
    assert_eq!(fs::read_to_string(about).unwrap(), lines);

    // With others it would lock itself out.
    let refuses = |kind: &str, dir: &Path, says: &str| {
        super::super::refused(&world, INPUT, &[says], || {
            let out = world.path(&format!("refused.{kind}"));
            let mut command = installer(["image", "--progress=none", "--kind", kind, "--out"]);
            let source = format!("--source={}", world.payload.source());
            Outcome::of(command.arg(out).args([source, from(dir)]).args(ours.args()))
        });
    };
    refuses("iso", &others, "the medium would not start with these keys: no certificate in db is behind its signature");
    refuses("pxe", &keys, "--enroll-from: only an ISO enrols keys");
    refuses("raw", &keys, "--enroll-from: only an ISO enrols keys");
}
