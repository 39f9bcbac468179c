//! A member that talks TLS only, and only with those whose certificate its CA has signed.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use slipway_test_support::port::free_port;
use slipwayd::machine::etcd::{Config, Etcd};
use tempfile::TempDir;

use crate::cluster;

/// The member; it ends with this.
struct Member {
    dir: TempDir,
    url: String,
    child: Child,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A CA and two certificates that it signed: `NAME-ca.crt`, `NAME.crt`, `NAME.key`.
fn certificates(dir: &TempDir, name: &str) {
    let write = |file: String, text: String| fs::write(dir.path().join(file), text).unwrap();
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.distinguished_name.push(DnType::CommonName, format!("{name}'s CA"));
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    write(format!("{name}-ca.crt"), ca.pem());
    write(format!("{name}.crt"), params.signed_by(&key, &ca).unwrap().pem());
    write(format!("{name}.key"), key.serialize_pem());
}

impl Member {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        certificates(&dir, "ours");
        certificates(&dir, "theirs");
        let [url, peer] = [free_port(), free_port()].map(|port| format!("https://127.0.0.1:{port}"));
        let file = |name: &str| dir.path().join(name);
        let mut command = Command::new(cluster::program());
        command.args(["--name", "m0", "--initial-cluster", &format!("m0={peer}"), "--data-dir"]).arg(file("data"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        for (option, name) in [("trusted-ca-file", "ours-ca.crt"), ("cert-file", "ours.crt"), ("key-file", "ours.key")]
        {
            command.arg(format!("--{option}")).arg(file(name)).arg(format!("--peer-{option}")).arg(file(name));
        }
        let log = File::create(file("log")).unwrap();
        command.arg("--client-cert-auth").stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        Self { dir, url, child }
    }

    fn node(&self, ca: Option<&str>, pair: Option<&str>) -> Etcd {
        let file = |name: String| -> PathBuf { self.dir.path().join(name) };
        let config = Config {
            name: "m0".to_owned(),
            endpoints: vec![self.url.clone()],
            peer_urls: vec![],
            join: None,
            ca: ca.map(|name| file(format!("{name}-ca.crt"))),
            cert: pair.map(|name| file(format!("{name}.crt"))),
            key: pair.map(|name| file(format!("{name}.key"))),
            quota_bytes: None,
            snapshot: None,
            in_payload: true,
        };
        Etcd::new(config).unwrap()
    }
}

#[test]
fn nothing_is_said_to_strangers_nor_believed_from_them() {
    if !cluster::is_here() {
        return;
    }
    let mut member = Member::start();
    let node = member.node(Some("ours"), Some("ours"));
    while node.is_well(false).is_err() {
        assert_eq!(member.child.try_wait().unwrap(), None, "it has ended");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(member.node(Some("theirs"), Some("ours")).is_well(false).is_err(), "its CA is not ours");
    assert!(member.node(Some("ours"), Some("theirs")).is_well(false).is_err(), "our CA is not its");
    assert!(member.node(Some("ours"), None).is_well(false).is_err(), "without a certificate");
    assert!(member.node(None, None).is_well(false).is_err(), "without TLS");
    // One that has expired is named: the member only ends the connection.
    let mut params = CertificateParams::new(vec![]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let key = KeyPair::generate().unwrap();
    fs::write(member.dir.path().join("old.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(member.dir.path().join("old.key"), key.serialize_pem()).unwrap();
    let why = member.node(Some("ours"), Some("old")).is_well(false).unwrap_err();
    let names_both =
        why.starts_with(&format!("{}: etcd", member.url)) && why.ends_with("old.crt, has expired: renew it");
    assert!(names_both, "{why}");
    // A certificate that is renewed while the service runs is taken at the next look.
    fs::copy(member.dir.path().join("theirs.crt"), member.dir.path().join("ours.crt")).unwrap();
    assert!(node.is_well(false).is_err(), "certificate and key do not fit");
}
