//! `support --fleet`: the objects, without secrets.

use std::{fs, io::Read as _, process::Command};

use flate2::read::GzDecoder;
use serde_json::json;

use crate::{node::payload, site::Site};

/// A word that stands for every secret.
const SECRET: &str = "HUSH";

#[test]
fn the_objects_of_the_fleet_are_in_it_without_secrets() {
    let Some(site) = Site::new(0) else { return };
    let dir = tempfile::tempdir().unwrap();
    let image = format!("docker://user:{SECRET}@registry.example/os:2");
    let pool = json!({
        "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": "NodePool",
        "metadata": { "name": "p", "annotations": { "a/password": SECRET, "a/note": format!("the proxy is https://u:{SECRET}@proxy") } },
        "spec": { "nodeSelector": { "pool": "p" }, "target": { "image": image, "payload": payload("new") },
            "paused": { "who": "alice", "why": format!("token={SECRET}") } },
    });
    site.make(pool).unwrap();
    site.add_object(1);
    let path = dir.path().join("a.tar.gz");
    let mut program = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
    program.args(["support", "--no-nodes"]).arg(&path).env("KUBECONFIG", site.server.kubeconfig("admin"));
    assert!(program.output().unwrap().status.success());
    let mut all = String::new();
    GzDecoder::new(&fs::read(&path).unwrap()[..]).read_to_string(&mut all).unwrap();
    assert!(!all.contains(SECRET), "{all}");
    for there in
        ["fleet/nodepools.json", "fleet/nodes.json", "fleet/events.json", "docker://[removed]@registry.example/os:2"]
    {
        assert!(all.contains(there), "{there}: {all}");
    }
    assert!(all.contains("\"missing\": []") && !all.contains("managedFields"), "{all}");
}
