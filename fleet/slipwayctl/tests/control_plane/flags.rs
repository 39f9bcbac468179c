//! The gate of flags, with a real API server that runs with them.

use std::{fs, process::Command};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use slipway_kubernetes::{component::Component, removals::BUILT_IN};
use slipway_test_cluster as server;

use crate::{
    gates::{preview, refuses, until},
    site::Site,
};

const OPEN: &str = "gate flags: open\n";
const CLOSED: &str = "gate flags: closed: ";
const TABLE: &str = "slipway-kubernetes-removals";

pub fn check(site: &Site) {
    the_table_is_true_of_the_real_server();
    // The API server of this version runs with it, and the next one would not.
    let path = site.manifest("n1", Component::ApiServer);
    let before = fs::read_to_string(&path).unwrap();
    let gates = "--feature-gates=APIPriorityAndFairness=false";
    fs::write(&path, before.replace(gates, &format!("{gates},CSIMigrationAWSComplete=false"))).unwrap();
    until(site, CLOSED);
    let text = refuses(site, "flags");
    let why = "n1: kube-apiserver: CSIMigrationAWSComplete in --feature-gates (removed in 1.21: https://github.com/";
    assert!(text.contains(why) && text.matches("removed in").count() == 1, "{text}");
    people_replace_the_table(site);
    fs::write(&path, &before).unwrap();
    until(site, OPEN);
    // In its arguments, as two words.
    let path = site.manifest("n1", Component::Scheduler);
    let before = fs::read_to_string(&path).unwrap();
    let words = "    args:\n    - --feature-gates\n    - CSIMigrationGCEComplete=true\n";
    fs::write(&path, before.replace("    args:\n", words)).unwrap();
    until(site, CLOSED);
    assert!(refuses(site, "flags").contains("n1: kube-scheduler: CSIMigrationGCEComplete in --feature-gates"));
    fs::write(&path, &before).unwrap();
    until(site, OPEN);
}

fn people_replace_the_table(site: &Site) {
    let api: Api<ConfigMap> = Api::namespaced(site.client(), "kube-system");
    let replace = |table: &str| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": TABLE }, "data": { "removals.tsv": table },
        });
        let (params, patch) = (PatchParams::apply("test"), Patch::Apply(map));
        site.runtime.block_on(api.patch(TABLE, &params, &patch)).unwrap();
    };
    replace("# Our build has all of them.\n");
    assert!(preview(site).contains(OPEN));
    replace("1.21 flag");
    let text = refuses(site, "flags");
    assert!(text.contains("removals.tsv in the ConfigMap kube-system/slipway-kubernetes-removals: line 1: "), "{text}");
    site.runtime.block_on(api.delete(TABLE, &DeleteParams::default())).unwrap();
}

/// What 1.21 removed, 1.20 has.
fn the_table_is_true_of_the_real_server() {
    let help = Command::new(server::program()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let removed = BUILT_IN.lines().filter_map(|line| line.strip_prefix("1.21\tfeature-gate\t-\t"));
    let gates: Vec<&str> = removed.map(|rest| rest.split('\t').next().unwrap()).collect();
    assert!(gates.len() > 1, "{gates:?}");
    for gate in gates {
        assert!(help.contains(&format!(" {gate}=true|false")), "{gate}");
    }
}
