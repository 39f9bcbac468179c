//! A kube-apiserver of 1.32 or later. No part makes one: SLIPWAY_KUBE_APISERVER_NEWER names it.

use std::path::{Path, PathBuf};

use crate::{Server, files, newer_etcd};

fn program() -> Option<PathBuf> {
    std::env::var_os("SLIPWAY_KUBE_APISERVER_NEWER").map(PathBuf::from)
}

/// True if there is one. A test that goes on without one says so.
pub fn is_here() -> bool {
    let here = program().is_some() && newer_etcd::program().exists();
    if !here {
        let why = "SLIPWAY_KUBE_APISERVER_NEWER names no kube-apiserver of 1.32 or later, or there is no etcd-newer";
        slipway_test_support::not_run(why);
    }
    here
}

/// One that answers, with these flags besides.
pub fn start_with(more: &[&str]) -> Server {
    newer_etcd::start(&program().unwrap(), |dir| flags(dir, more))
}

fn flags(dir: &Path, more: &[&str]) -> Vec<String> {
    let flags = [
        "--advertise-address=127.0.0.1",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--disable-admission-plugins=ServiceAccount",
    ];
    let keys = [("service-account-key-file", "server.pub"), ("service-account-signing-key-file", "server.key")];
    flags.iter().chain(more).map(ToString::to_string).chain(files(dir, keys)).collect()
}
