//! An API server for custom resources alone, as new as Debian's unstable has it: it enforces the rules of definitions that
//! are written in CEL, which the API server of the other tests does not know.

use std::{fs, path::Path};

use serde_json::json;

use crate::{Server, files, newer_etcd, part, url};

/// Plugins that ask the core API.
const ASK_THE_CORE: &str = "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,\
                            ValidatingAdmissionPolicy,MutatingAdmissionPolicy";

/// True if there is one. A test that goes on without one says so.
pub fn is_here() -> bool {
    let here = part("SLIPWAY_KUBE_EXTENSIONS", "kube-extensions").exists() && newer_etcd::program().exists();
    if !here {
        slipway_test_support::not_run("no kube-extensions or no etcd-newer; fleet/hack/parts makes them");
    }
    here
}

/// One that answers.
pub fn start() -> Server {
    start_with(&[])
}

/// The same, with these flags besides. There is no core API beside it, so nothing is asked of that.
pub fn start_with(more: &[&str]) -> Server {
    newer_etcd::start(&part("SLIPWAY_KUBE_EXTENSIONS", "kube-extensions"), |dir| flags(dir, more))
}

fn flags(dir: &Path, more: &[&str]) -> Vec<String> {
    // No server answers there.
    let nobody = url();
    let core = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "t", "users": [{ "name": "t", "user": {} }],
        "clusters": [{ "name": "t", "cluster": { "server": nobody } }],
        "contexts": [{ "name": "t", "context": { "cluster": "t", "user": "t" } }],
    });
    fs::write(dir.join("core.kubeconfig"), core.to_string()).unwrap();
    let flags = [
        "--authentication-skip-lookup",
        "--enable-priority-and-fairness=false",
        &format!("--disable-admission-plugins={ASK_THE_CORE}"),
    ];
    let kubeconfigs =
        ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"].map(|flag| (flag, "core.kubeconfig"));
    flags.iter().chain(more).map(ToString::to_string).chain(files(dir, kubeconfigs)).collect()
}
