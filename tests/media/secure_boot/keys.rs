//! `installer keys`.

use std::{fs, os::unix::fs::PermissionsExt as _};

use slipway_core::digest::Sha256;
use slipway_test_support::{
    exit_code::{DEPENDENCY, INPUT},
    world::{finished_bytes, tool},
};

use super::{super::refused, *};

/// 2026-01-01 00:00:00 UTC.
const TIME: &str = "1767225600";

fn keys(dir: &Path, args: &[&str]) -> Outcome {
    let mut command = installer(["keys", "--progress=none", "--output=json"]);
    Outcome::of(command.arg(dir).args(args).env("SOURCE_DATE_EPOCH", TIME).env("TZ", "UTC"))
}

/// The signed variable that efitools make of these lists.
fn signed_by_efitools(world: &World, key: &Key, name: &str, list: &Path, append: bool) -> Vec<u8> {
    let out = world.path("efitools.auth");
    let mut command = program("sign-efi-sig-list");
    command.env("TZ", "UTC").args(append.then_some("-a")).args(["-t", "2026-01-01 00:00:00", "-k"]).arg(&key.key);
    finished(command.arg("-c").arg(&key.certificate).arg(name).arg(list).arg(&out));
    fs::read(out).unwrap()
}

#[test]
fn a_set_is_made_and_never_replaced() {
    let world = world();
    let dir = world.path("keys");
    let report = keys(&dir, &["--common-name=Example 1.0"]).succeeds().json();
    let files = [
        "uki-signing-cert.pem",
        "uki-signing-cert.der",
        "uki-signing-key.pem",
        "pcr-signing-key.pem",
        "PK.auth",
        "KEK.auth",
        "db.auth",
    ];
    assert_eq!(report["written"], serde_json::json!(files));
    let mut there: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    there.sort();
    let mut expected = files.to_vec();
    expected.sort_unstable();
    assert_eq!(there, expected);
    for name in files {
        assert_eq!(fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let path = |name: &str| dir.join(name).display().to_string();
    let shown = tool!("openssl", "x509", "-noout", "-text", "-in", path(files[0]));
    assert!(shown.contains("Subject: CN = Example 1.0") && shown.contains("Public-Key: (4096 bit)"), "{shown}");
    let shown = tool!("openssl", "pkey", "-noout", "-text", "-in", path(files[3]));
    assert!(shown.contains("(2048 bit"), "{shown}");
    let der = finished_bytes(program("openssl").args(["x509", "-outform", "DER", "-in", &path(files[0])]));
    assert!(fs::read(dir.join(files[1])).unwrap() == der);
    assert_eq!(report["certificate"], Sha256::of(&der).to_string());

    // What was made signs.
    let key = Key { key: dir.join(files[2]), certificate: dir.join(files[1]) };
    uki(&world, &world.path("uki.efi"), &key, &[&format!("--pcr-key={}", path(files[3]))]);

    for name in files {
        let elsewhere = world.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join(name), "mine").unwrap();
        refused(&world, INPUT, &[name, "exists: nothing was written"], || keys(&elsewhere, &[]));
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
        fs::remove_dir_all(elsewhere).unwrap();
    }
    refused(&world, INPUT, &["\"a/CN=b\": a name has"], || keys(&world.path("new"), &["--common-name=a/CN=b"]));
}

#[test]
fn variables_are_what_efitools_make_to_the_last_byte() {
    let world = world();
    let (key, other) = (Key::rsa(&world, "ours"), Key::rsa(&world, "other"));
    let [by, certificate] = key.args();
    let dir = world.path("auth");
    let also = |flag: &str| format!("--{flag}-certificate={}", other.certificate.display());
    let report = keys(&dir, &[&by, &certificate, &also("db")]).succeeds().json();
    assert_eq!(report["written"], serde_json::json!(["PK.auth", "KEK.auth", "db.auth"]));
    let owner = report["owner"].as_str().unwrap();
    // Made of the certificate's file in the way of Go's uuid.NewHash, namespace X500.
    let of = |file: &Path| slipway_core::efi::variable::owner_of(&fs::read(file).unwrap()).to_string();
    assert_eq!(owner, of(&key.certificate));
    assert_eq!(&owner[14..15], "4");
    let list = |key: &Key, to: &str| {
        let out = world.path(to);
        finished(program("cert-to-efi-sig-list").args(["-g", &of(&key.certificate)]).arg(&key.certificate).arg(&out));
        out
    };
    let own = list(&key, "own.esl");
    let both = world.path("both.esl");
    fs::write(&both, [fs::read(&own).unwrap(), fs::read(list(&other, "other.esl")).unwrap()].concat()).unwrap();
    for (name, list) in [("PK", &own), ("KEK", &own), ("db", &both)] {
        let made = fs::read(dir.join(format!("{name}.auth"))).unwrap();
        assert!(made == signed_by_efitools(&world, &key, name, list, false), "{name}.auth");
    }

    let programs = ["first.efi", "second.efi"].map(|name| world.path(name));
    uki(&world, &programs[0], &key, &[]);
    uki(&world, &programs[1], &key, &["--extra-kernel-arg=x"]);
    let revoke = programs.each_ref().map(|path| format!("--revoke={}", path.display()));
    let report = keys(&dir, &[&by, &certificate, &revoke[0], &revoke[1]]).succeeds().json();
    assert_eq!(report["written"], serde_json::json!(["dbx.auth"]));
    let hashes = world.path("dbx.esl");
    finished(program("hash-to-efi-sig-list").args(&programs).arg(&hashes));
    // It has no option for the owner, and puts zeros in.
    let mut hashes_of = fs::read(&hashes).unwrap();
    let guid = uuid::Uuid::parse_str(owner).unwrap().to_bytes_le();
    for at in [28, 28 + 48] {
        hashes_of[at..at + 16].copy_from_slice(&guid);
    }
    fs::write(&hashes, hashes_of).unwrap();
    let made = fs::read(dir.join("dbx.auth")).unwrap();
    assert!(made == signed_by_efitools(&world, &key, "dbx", &hashes, true), "dbx.auth");
    let junk = format!("--revoke={}", key.key.display());
    let elsewhere = world.path("junk");
    fs::create_dir(&elsewhere).unwrap();
    refused(&world, INPUT, &["not an EFI program"], || keys(&elsewhere, &[&by, &certificate, &junk]));
}

#[test]
fn without_openssl_it_says_what_is_missing() {
    let world = world();
    let dir = world.path("keys");
    fs::create_dir(&dir).unwrap();
    refused(&world, DEPENDENCY, &["openssl is not installed: install the Debian package openssl"], || {
        let mut command = installer(["keys", "--progress=none"]);
        Outcome::of(command.arg(&dir).env("PATH", "/nosuch"))
    });
}
