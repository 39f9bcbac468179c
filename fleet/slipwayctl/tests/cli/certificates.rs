//! `gen`: files and their contents. That they work is in the other tests, which use them.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde_json::json;
use x509_parser::{
    pem::parse_x509_pem,
    prelude::{CertificateRevocationList, FromDer as _, X509Certificate},
};

use crate::site::{Ended, lines, run_in};

fn with_ca() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    run_in(home.path(), &["gen", "ca"]).ok();
    home
}

/// Look at a certificate.
fn look<T>(path: &Path, at: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let (_, pem) = parse_x509_pem(&fs::read(path).unwrap()).unwrap();
    at(&pem.parse_x509().unwrap())
}

/// The serial numbers that are revoked.
fn revoked(home: &Path) -> Vec<Vec<u8>> {
    let (_, pem) = parse_x509_pem(&fs::read(home.join("revoked.pem")).unwrap()).unwrap();
    let (_, list) = CertificateRevocationList::from_der(&pem.contents).unwrap();
    list.iter_revoked_certificates().map(|of| of.raw_serial().to_vec()).collect()
}

#[test]
fn a_certificate_has_name_role_and_days() {
    let home = with_ca();
    run_in(home.path(), &["gen", "client", "alice", "--role", "operator", "--days", "90"]).ok();
    look(&home.path().join("alice.crt"), |of| {
        assert_eq!(of.subject().to_string(), "CN=alice, O=slipway:operator");
        let validity = of.validity();
        assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), 90 * 86400 + 3600);
        assert!(of.extended_key_usage().unwrap().unwrap().value.client_auth && !of.is_ca());
    });
    run_in(home.path(), &["gen", "server", "node-1", "--host", "10.0.0.1", "--host", "node-1.example"]).ok();
    look(&home.path().join("node-1.crt"), |of| {
        assert_eq!(of.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 2);
        assert!(of.extended_key_usage().unwrap().unwrap().value.server_auth);
    });
    // Without a word about it: ten years for a CA, and one for all others.
    run_in(home.path(), &["gen", "client", "bob", "--role", "reader"]).ok();
    for (name, days) in [("ca", 3650), ("node-1", 365), ("bob", 365)] {
        look(&home.path().join(format!("{name}.crt")), |of| {
            let validity = of.validity();
            assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), days * 86400 + 3600, "{name}");
        });
    }
    let names = ["ca", "alice", "node-1"].map(|name| [format!("{name}.crt"), format!("{name}.key")]);
    for name in names.as_flattened() {
        let mode = fs::metadata(home.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn no_two_cas_have_one_name() {
    let [one, other] =
        [with_ca(), with_ca()].map(|home| look(&home.path().join("ca.crt"), |of| of.subject().to_string()));
    assert!(one.starts_with("CN=slipway CA ") && one != other);
}

#[test]
fn nothing_is_overwritten() {
    let home = with_ca();
    let run = |args: &[&str]| -> Ended { run_in(home.path(), args) };
    let before = fs::read(home.path().join("ca.key")).unwrap();
    assert!(run(&["gen", "ca"]).fails(2).contains("it is there already, and is not overwritten"));
    assert_eq!(fs::read(home.path().join("ca.key")).unwrap(), before);
    // Half of it is there: nothing comes beside it.
    fs::write(home.path().join("bob.crt"), "mine").unwrap();
    run(&["gen", "client", "bob", "--role", "reader"]).fails(2);
    assert!(!home.path().join("bob.key").exists());
    for name in ["../bob", "", ".bob"] {
        run(&["gen", "client", name, "--role", "reader"]).fails(2);
    }
    run(&["gen", "client", "eve", "--role", "root"]).fails(2);
    run(&["gen", "client", "eve", "--role", "admin", "--days", "0"]).fails(2);
    run(&["gen", "server", "node", "--host", "a b"]).fails(2);
    let no_ca = run(&["gen", "server", "node", "--host", "node", "--dir", "empty"]).fails(2);
    assert!(no_ca.contains("empty: there is no CA here") && no_ca.contains("`slipwayctl gen ca`"), "{no_ca}");
}

/// The same certificate as one of version 1, which has no extensions: `openssl x509 -req` makes such ones.
fn version_1(home: &Path, name: &str) -> String {
    let (_, pem) = parse_x509_pem(&fs::read(home.join(name)).unwrap()).unwrap();
    let mut der = pem.contents;
    let version = [0xa0, 3, 2, 1, 2];
    let at = der.windows(5).position(|bytes| bytes == version).unwrap();
    der.drain(at..at + 5);
    // Both sequences around it have a length of two bytes.
    for head in [0, 4] {
        assert_eq!(der[head..head + 2], [0x30, 0x82]);
        let length = u16::from_be_bytes([der[head + 2], der[head + 3]]) - 5;
        der[head + 2..head + 4].copy_from_slice(&length.to_be_bytes());
    }
    fs::write(home.join("v1.der"), der).unwrap();
    let base64 = Command::new("base64").arg(home.join("v1.der")).output().unwrap();
    let base64 = String::from_utf8(base64.stdout).unwrap();
    format!("-----BEGIN CERTIFICATE-----\n{base64}-----END CERTIFICATE-----\n")
}

#[test]
fn what_tls_takes_no_certificate_for_is_said_with_the_file_and_the_remedy() {
    let home = with_ca();
    let run = |args: &[&str]| run_in(home.path(), args);
    for name in ["alice", "bob"] {
        run(&["gen", "client", name, "--role", "reader"]).ok();
    }
    let context = ["config", "add", "node", "--address", "127.0.0.1:1", "--ca", "ca.crt", "--certificate", "alice.crt"];
    run(&[&context[..], &["--key", "alice.key"]].concat()).ok();
    assert!(run(&["status"]).fails(4).contains("unreachable"));
    let file = home.path().join("alice.crt");
    fs::copy(home.path().join("bob.crt"), &file).unwrap();
    let other = run(&["status"]).fails(2);
    assert!(other.contains("alice.crt: it is the certificate of another key: bring the two files"), "{other}");
    fs::write(&file, version_1(home.path(), "alice.crt")).unwrap();
    let old = run(&["status"]).fails(2);
    assert!(
        old.contains("alice.crt: it is an X.509 certificate of version 1") && old.contains("make it anew"),
        "{old}"
    );
    // A CA of a cluster, too.
    fs::write(home.path().join("old-ca.crt"), version_1(home.path(), "ca.crt")).unwrap();
    let old = run(&["fleet", "init", "--image", "registry.example/fleet:1", "--node-ca", "old-ca.crt"]).fails(2);
    assert!(old.contains("old-ca.crt: ") && old.contains("version 1, which cannot say that it is a CA"), "{old}");
}

#[test]
fn what_is_revoked_stays_revoked() {
    let home = with_ca();
    let run = |args: &[&str]| run_in(home.path(), args);
    for name in ["alice", "bob"] {
        run(&["gen", "client", name, "--role", "reader"]).ok();
    }
    let serial = |name: &str| look(&home.path().join(name), |of| of.raw_serial().to_vec());
    let json = run(&["gen", "revoke", "alice.crt", "--output", "json"]).ok();
    assert_eq!(lines(&json), [json!({ "list": "./revoked.pem", "revoked": 1 })]);
    run(&["gen", "revoke", "bob.crt", "alice.crt"]).ok();
    assert_eq!(revoked(home.path()), [serial("alice.crt"), serial("bob.crt")]);
    // As editors leave it.
    let list = fs::read_to_string(home.path().join("revoked.pem")).unwrap();
    for text in [format!("\u{feff}{list}"), list.replace('\n', "\n  ").replace("-----BEGIN", " -----BEGIN")] {
        fs::write(home.path().join("revoked.pem"), text).unwrap();
        run(&["gen", "revoke", "bob.crt"]).ok();
        assert_eq!(revoked(home.path()), [serial("alice.crt"), serial("bob.crt")]);
    }

    run(&["gen", "ca", "--dir", "other"]).ok();
    run(&["gen", "client", "carol", "--role", "reader", "--dir", "other"]).ok();
    assert!(run(&["gen", "revoke", "other/carol.crt"]).fails(2).contains("another CA has signed it"));
    fs::copy(home.path().join("revoked.pem"), home.path().join("other/revoked.pem")).unwrap();
    let mixed = run(&["gen", "revoke", "other/carol.crt", "--dir", "other"]).fails(2);
    assert!(mixed.contains("it has the list of another CA"), "{mixed}");
    fs::write(home.path().join("revoked.pem"), "what is this").unwrap();
    run(&["gen", "revoke", "alice.crt"]).fails(2);
    assert_eq!(fs::read(home.path().join("revoked.pem")).unwrap(), b"what is this");
}
