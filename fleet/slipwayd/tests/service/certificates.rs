//! Which certificate of a component expires first.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use slipway_kubernetes::component::Component::ApiServer;
use slipwayd::machine::certificates::expires_first;
use tempfile::TempDir;

/// One that expires at the first day of this year.
fn certificate(year: i32, is_ca: bool) -> String {
    let mut params = CertificateParams::default();
    params.not_after = date_time_ymd(year, 1, 1);
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// An API server with these flags; the container has the host's directory `pki` elsewhere.
fn pod(dir: &Path, flags: &[&str]) -> Value {
    let (pki, command) = (dir.join("pki"), [&["kube-apiserver"][..], flags].concat());
    json!({ "spec": {
        "containers": [{
            "name": "kube-apiserver", "command": command,
            "volumeMounts": [{ "name": "all", "mountPath": "/inside" }, { "name": "pki", "mountPath": "/inside/pki" }],
        }],
        "volumes": [{ "name": "all", "hostPath": { "path": "/nowhere" } }, { "name": "pki", "hostPath": { "path": pki } }],
    }})
}

/// Its file's name, and the year.
fn first(pod: &Value) -> Result<Option<(String, i64)>, String> {
    let year = |expires: i64| 1970 + expires / 31_556_952;
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    // The first moment of a year may count as the last of the one before.
    Ok(expires_first(pod, ApiServer)?.map(|(path, expires)| (name(&path), year(expires + 86_400))))
}

#[test]
fn the_first_to_expire_of_all_that_flags_name() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: String| {
        fs::create_dir_all(dir.path().join("pki")).unwrap();
        fs::write(dir.path().join("pki").join(name), text).unwrap();
    };
    let has = |flags: &[&str]| first(&pod(dir.path(), flags));
    let is = |name: &str, year| Ok(Some((name.to_owned(), year)));
    assert_eq!(has(&["--secure-port=6443"]), Ok(None));
    // The holder's own counts, before those of who has signed it.
    write("chain.crt", certificate(2031, false) + &certificate(2029, true));
    assert_eq!(has(&["--tls-cert-file=/inside/pki/chain.crt"]), is("chain.crt", 2031));
    assert_eq!(has(&["--tls-cert-file", "/inside/pki/chain.crt"]), is("chain.crt", 2031));
    // Authorities that are being changed: the old one is there until all have the new one.
    write("ca.crt", certificate(2021, true) + &certificate(2035, true));
    let both = ["--tls-cert-file=/inside/pki/chain.crt", "--client-ca-file=/inside/pki/ca.crt"];
    assert_eq!(has(&both), is("chain.crt", 2031));
    write("client.crt", certificate(2030, false));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{ "name": "here", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": { "client-certificate": "/inside/pki/client.crt" } }],
    });
    write("front.conf", config.to_string());
    let with_config = [both[0], both[1], "--kubeconfig=/inside/pki/front.conf"];
    assert_eq!(has(&with_config), is("client.crt", 2030));
    // What cannot be read is not taken for valid.
    for (name, text) in [("front.conf", "users: 3".to_owned()), ("chain.crt", "no certificate".to_owned())] {
        write(name, text);
        assert!(has(&with_config).unwrap_err().contains(name), "{name}");
    }
    assert!(has(&["--etcd-certfile=/inside/other.crt"]).unwrap_err().starts_with("/nowhere/other.crt: "));
}
