//! An API server that is newer than that of most tests, beside an etcd that it likes.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{Server, certificates, guard, part, url};

/// The etcd.
pub fn program() -> PathBuf {
    part("SLIPWAY_ETCD_NEWER", "etcd-newer")
}

/// Flags that name these files, and those of the server's certificate.
pub fn files(dir: &Path, more: impl IntoIterator<Item = (&'static str, &'static str)>) -> impl Iterator<Item = String> {
    let own = [("tls-cert-file", "server.crt"), ("tls-private-key-file", "server.key"), ("client-ca-file", "ca.crt")];
    own.into_iter().chain(more).map(move |(flag, name)| format!("--{flag}={}", dir.join(name).display()))
}

/// This program, with flags for the certificates that are in the directory.
pub fn start(api: &Path, flags: impl FnOnce(&Path) -> Vec<String>) -> Server {
    let dir = TempDir::new().unwrap();
    let ca = certificates(dir.path());
    let ((_, client), (_, peer), (port, _)) = (url(), url(), url());
    let log = |name: &str| File::create(dir.path().join(name)).unwrap();
    let etcd = Command::new(program())
        .arg("--data-dir")
        .arg(dir.path().join("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(log("etcd.out"))
        .stderr(log("etcd.log"))
        .spawn()
        .unwrap();
    let api = Command::new(api)
        .args(["--etcd-servers", &client, "--bind-address", "127.0.0.1", "--secure-port", &port.to_string()])
        .args(flags(dir.path()))
        .stdout(log("api.out"))
        .stderr(log("api.log"))
        .spawn()
        .unwrap();
    let running = vec![etcd, api];
    let guard = guard(dir.path(), &running);
    let url = format!("https://127.0.0.1:{port}");
    let server = Server { dir, running, guard, url, etcd: client, ca, pristine: None };
    server.write_kubeconfig("admin");
    server
}
