//! What a real server of Kubernetes makes of the line that a node writes. The API server for custom resources reads its flags
//! and says its version by the same code as a new kube-apiserver, of which no registry has one.
//!
//! Subject: fleet/kubernetes/src/manifest.rs fleet/test-cluster/src
//! Needs: etcd extensions

use k8s_openapi::apimachinery::pkg::version::Info;
use slipway_core::payload::minor_version::MinorVersion;
use slipway_kubernetes::{component::Component, manifest};
use slipway_test_cluster::{Server, extensions, newer};

use crate::Others;

const MANIFEST: &str =
    "spec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n    image: r/a:v1.36.0\n";

/// A server with these flags.
type Start = fn(&[&str]) -> Server;

/// What the server says with these flags.
fn says(start: Start, flags: &[&str]) -> Info {
    let mut server = start(flags);
    let others = Others::new(&server);
    server.until(|| others.runtime.block_on(others.client.apiserver_version()))
}

fn minor(major: &str, minor: &str) -> MinorVersion {
    format!("{major}.{minor}").parse().unwrap()
}

fn emulates_the_version_before(start: Start) {
    let alone = says(start, &[]);
    let own = minor(&alone.major, &alone.minor);
    let emulates = |of: &Info| {
        let (Some(major), Some(of)) = (&of.emulation_major, &of.emulation_minor) else { panic!("{of:?}") };
        minor(major, of)
    };
    assert_eq!(emulates(&alone), own);
    let before = own.before().unwrap();
    let text = manifest::emulating(MANIFEST, Component::ApiServer, before).unwrap();
    let pod = manifest::pod(&text, Component::ApiServer).unwrap();
    let said = says(start, &[pod["spec"]["containers"][0]["command"][1].as_str().unwrap()]);
    assert_eq!(emulates(&said), before);
    // By these a node knows that the new program runs.
    assert_eq!((minor(&said.major, &said.minor), &said.git_version), (own, &alone.git_version));
    println!("{own} emulates {before}");
}

#[test]
#[ignore = "campaign"]
fn a_real_server_emulates_the_version_before_and_says_so() {
    if extensions::is_here() {
        emulates_the_version_before(extensions::start_with);
    }
}

#[test]
#[ignore = "campaign"]
fn a_real_kube_apiserver_emulates_the_version_before_and_says_so() {
    if newer::is_here() {
        emulates_the_version_before(newer::start_with);
    }
}
