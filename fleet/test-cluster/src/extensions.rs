//! An API server for custom resources alone, as new as Debian's unstable has it: it enforces the rules of definitions that
//! are written in CEL, which the API server of the other tests does not know.

use std::{
    fs::{self, File},
    process::Command,
};

use serde_json::json;
use tempfile::TempDir;

use crate::{Server, certificates, guard, part, url};

/// Plugins that ask the core API.
const ASK_THE_CORE: &str = "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,\
                            ValidatingAdmissionPolicy,MutatingAdmissionPolicy";

/// True if there is one. A test that goes on without one says so.
pub fn is_here() -> bool {
    let here = part("SLIPWAY_KUBE_EXTENSIONS", "kube-extensions").exists()
        && part("SLIPWAY_ETCD_NEWER", "etcd-newer").exists();
    if !here {
        slipway_test_support::not_run("no kube-extensions or no etcd-newer; fleet/hack/parts makes them");
    }
    here
}

/// One that answers. There is no core API beside it, so nothing is asked of that.
pub fn start() -> Server {
    let dir = TempDir::new().unwrap();
    let ca = certificates(dir.path());
    let ((_, client), (_, peer), (port, _), (_, nobody)) = (url(), url(), url(), url());
    let log = |name: &str| File::create(dir.path().join(name)).unwrap();
    let file = |name: &str| dir.path().join(name);
    let etcd = Command::new(part("SLIPWAY_ETCD_NEWER", "etcd-newer"))
        .arg("--data-dir")
        .arg(file("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(log("etcd.out"))
        .stderr(log("etcd.log"))
        .spawn()
        .unwrap();
    // No server answers there.
    let core = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "t", "users": [{ "name": "t", "user": {} }],
        "clusters": [{ "name": "t", "cluster": { "server": nobody } }],
        "contexts": [{ "name": "t", "context": { "cluster": "t", "user": "t" } }],
    });
    fs::write(file("core.kubeconfig"), core.to_string()).unwrap();
    let mut api = Command::new(part("SLIPWAY_KUBE_EXTENSIONS", "kube-extensions"));
    api.args(["--etcd-servers", &client, "--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
    api.args(["--authentication-skip-lookup", "--enable-priority-and-fairness=false"]);
    api.args(["--disable-admission-plugins", ASK_THE_CORE]);
    for (flag, name) in [
        ("--kubeconfig", "core.kubeconfig"),
        ("--authentication-kubeconfig", "core.kubeconfig"),
        ("--authorization-kubeconfig", "core.kubeconfig"),
        ("--tls-cert-file", "server.crt"),
        ("--tls-private-key-file", "server.key"),
        ("--client-ca-file", "ca.crt"),
    ] {
        api.arg(flag).arg(file(name));
    }
    let running = vec![etcd, api.stdout(log("api.out")).stderr(log("api.log")).spawn().unwrap()];
    let guard = guard(dir.path(), &running);
    let url = format!("https://127.0.0.1:{port}");
    let server = Server { dir, running, guard, url, etcd: client, ca, pristine: None };
    server.write_kubeconfig("admin");
    server
}
