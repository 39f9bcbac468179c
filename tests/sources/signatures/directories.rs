//! `SHA256SUMS.sig` in a payload directory.

use serde_json::json;
use slipway::payload::{ChecksumPolicy, DirSource, image::Inspection};
use slipway_core::digest::Sha256;
use slipway_test_support::{
    files,
    registry::run,
    signing::{Kind, Signer},
    world::{Outcome, World, installer, installer_by, json_of},
};

use super::{failure, inspect, is_refused, list, listed};

#[test]
fn every_kind_of_key_signs() {
    let world = listed();
    let sums = world.payload.read("SHA256SUMS");
    for kind in Kind::ALL {
        let signer = Signer::new(&world.path(""), &format!("{kind:?}"), kind);
        let text = signer.sign_text(&sums);
        let wrapped = text.as_bytes().chunks(64).map(|line| [line, b"\n"].concat()).collect::<Vec<_>>().concat();
        for signature in [signer.sign(&sums), text.clone().into_bytes(), format!("{text}\n").into_bytes(), wrapped] {
            world.payload.write("SHA256SUMS.sig", signature);
            let report = inspect(&world.payload.source(), &[&signer.trusted()]).succeeds().json();
            let over = Sha256::of(&sums).to_string();
            let expected = json!([{"key": signer.id(), "name": signer.public(), "over": over}]);
            assert_eq!(report["signed_by"], expected, "{kind:?}");
        }
        let disk = world.image();
        world.install(&disk, &[&signer.trusted()]).succeeds();
        assert_eq!(json_of(&disk, &["status"])["next_boot"]["slot"], "A");
    }
    // No rule asks for a signature.
    let report = inspect(&world.payload.source(), &[]).succeeds().json();
    assert_eq!(report.get("signed_by"), None);
}

#[test]
fn what_nobody_trusted_has_signed_is_refused() {
    let world = listed();
    let (ours, other) =
        (Signer::new(&world.path(""), "ours", Kind::P256), Signer::new(&world.path(""), "other", Kind::P256));
    let (disk, payload, key) = (world.image(), &world.payload, ours.trusted());
    let refused = |texts: &[&str]| is_refused(&world, &disk, &[&key], texts);

    refused(&["no signature, and --trust-key demands one", "SHA256SUMS.sig"]);
    assert_eq!(failure(inspect(&payload.source(), &[&key])), "signature-missing");

    other.sign_payload(payload);
    refused(&["no valid signature", "SHA256SUMS.sig, signature 1: none of the trusted keys made it"]);
    assert_eq!(failure(inspect(&payload.source(), &[&key])), "signature-invalid");
    // One of several is enough.
    inspect(&payload.source(), &[&key, &other.trusted()]).succeeds();

    for spoiled in [&b""[..], b"\0", b"AAAA", b"not base64!"] {
        payload.write("SHA256SUMS.sig", spoiled);
        refused(&["no valid signature"]);
    }

    // What was signed was another list.
    ours.sign_payload(payload);
    inspect(&payload.source(), &[&key]).succeeds();
    let (sums, kernel) = (payload.read("SHA256SUMS"), payload.read("vmlinuz"));
    payload.write("SHA256SUMS", [&sums[..], b"\n"].concat());
    refused(&["none of the trusted keys made it, or what it signs was changed afterwards"]);
    payload.write("SHA256SUMS", &sums);

    // The list is the signed one, and a file is not what it says.
    let mut changed = kernel.clone();
    changed[30_000] ^= 1;
    payload.write("vmlinuz", &changed);
    is_refused(&world, &disk, &[&key], &["vmlinuz", "SHA256SUMS says"]);
    // With a list that fits, but by another signer.
    list(payload);
    refused(&["no valid signature"]);
    payload.write("vmlinuz", &kernel);
    list(payload);
    assert!(payload.read("SHA256SUMS") == sums);
    world.install(&disk, &[&key]).succeeds();

    // Without a list there is nothing to sign.
    payload.remove("SHA256SUMS");
    assert_eq!(failure(inspect(&payload.source(), &[&key])), "signature-missing");
}

/// Nothing is written onto an empty disk either, where other payloads are compared while they are written.
#[test]
fn a_changed_file_is_found_before_the_first_write() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::Ed25519);
    signer.sign_payload(&world.payload);
    let mut rootfs = world.payload.read("rootfs.squashfs");
    rootfs[60_000] ^= 1;
    world.payload.write("rootfs.squashfs", rootfs);
    let disk = world.image();
    is_refused(&world, &disk, &[&signer.trusted()], &["rootfs.squashfs", "SHA256SUMS says"]);
    assert_ne!(world.install(&disk, &[]).code, 2, "the same without a key is found later");
}

#[test]
fn keys_that_cannot_be_used_are_named() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    signer.sign_payload(&world.payload);
    let source = world.payload.source();
    let short = world.path("short.key").display().to_string();
    let curve = world.path("curve.key").display().to_string();
    run("openssl", &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024", "-out", &short]);
    run("openssl", &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", &curve]);
    for (key, says) in [(short, "no supported kind"), (curve, "no supported kind")] {
        let public = key.replace(".key", ".pem");
        run("openssl", &["pkey", "-in", &key, "-pubout", "-out", &public]);
        inspect(&source, &["--trust-key", &public]).exits(2).says(&[&public, says]);
    }
    inspect(&source, &["--trust-key", &signer.private()]).exits(2).says(&["key.key", "it holds no public key"]);
    let missing = inspect(&source, &["--trust-key=/nosuch.pem"]);
    missing.exits(2).says(&["/nosuch.pem", "No such file"]);
    assert_eq!(failure(inspect(&source, &["--trust-key=/nosuch.pem"])), "trust-key");
    // It is about a source.
    for flag in ["--trust-key", "--trust-policy"] {
        let refused = inspect(world.image().to_str().unwrap(), &[flag, "/nosuch"]).exits(2);
        refused.says(&[flag, "is for a source, not for a disk"]);
        let args = ["uki", "--program=x.efi", "--out=y.efi", "--key=k", "--certificate=c", flag, "/nosuch"];
        Outcome::of(&mut installer(args)).exits(1).says(&[flag, "cannot be used with"]);
    }
}

/// A pipe, as of `<(curl …)`, can be read once.
#[test]
fn a_key_may_come_through_a_pipe() {
    let world = listed();
    let [signer, other] = ["key", "other"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    signer.sign_payload(&world.payload);
    let piped = |key: &Signer| {
        let args = ["inspect", &world.payload.source(), "--trust-key=/dev/stdin", "--output=json"];
        Outcome::of(&mut installer_by(&["/bin/sh", "-c", "cat \"$0\" | \"$@\"", &key.public()], args))
    };
    let report = piped(&signer).succeeds().json();
    assert_eq!(
        (&report["signed_by"][0]["key"], &report["signatures"][0]["made_by"][0]),
        (&signer.id().into(), &signer.id().into())
    );
    piped(&other).exits(2).says(&["none of the trusted keys made it"]);
}

/// Another program can write to the directory between the check and the use.
#[test]
fn what_was_verified_is_what_is_used() {
    let world = listed();
    let payload = &world.payload;
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    signer.sign_payload(payload);
    let mut source = DirSource::new(payload.dir());
    let evidence = source.evidence().unwrap();
    assert_eq!(evidence.signatures[0].signed[..], payload.read("SHA256SUMS")[..]);
    payload.write("initramfs.xz", files::initramfs(b"evil"));
    list(payload);
    for inspection in [Inspection::Declared, Inspection::Everything] {
        let error = source.facts(ChecksumPolicy::Compared, inspection, |_| ()).unwrap_err().to_string();
        assert!(error.contains("SHA256SUMS says"), "{error}");
    }
    // Read anew, the two fit together, and are not signed.
    assert!(DirSource::new(payload.dir()).facts(ChecksumPolicy::Compared, Inspection::Everything, |_| ()).is_ok());
    let world = World::new();
    assert!(DirSource::new(world.payload.dir()).evidence().unwrap().signatures.is_empty());
}
