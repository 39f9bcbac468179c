//! As kubectl's users expect it: forms, labels, `--watch`; and as a plugin of the real kubectl.

use std::{
    env,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use slipway_test_support::not_run;
use tempfile::tempdir;

use crate::{
    program::{Ended, fleet},
    site::Site,
};

const POOL: &str = "nodepool.fleet.slipway.dev/p\n";

fn label(site: &Site, team: &str) {
    let pools = site.api_of("fleet.slipway.dev/v1alpha1", "NodePool", None);
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "team": team } } }));
    site.runtime.block_on(pools.patch("p", &PatchParams::default(), &patch)).unwrap();
}

#[test]
fn pools_are_chosen_by_labels_and_shown_in_every_form() {
    let Some(site) = Site::new(0) else { return };
    site.pool("new", json!({}));
    label(&site, "web");
    let names = |words: &[&str]| site.fleet(&[&["status", "-o", "name"], words].concat()).ok();
    assert_eq!([names(&[]), names(&["p"]), names(&["-l", "team=web"]), names(&[POOL.trim()])], [POOL; 4]);
    for wrong in ["a b", "", "rollout/p", "nodepool/", "../p"] {
        let told = site.fleet(&["pause", wrong, "--reason", "a slip"]).fails(2);
        assert!(told.contains("no object can have this name"), "{wrong}: {told}");
    }
    assert_eq!(names(&["--selector", "team!=web"]), "");
    let wrong = site.fleet(&["status", "-l", "team web"]).fails(3);
    assert!(wrong.contains("refused (invalid)"), "{wrong}");
    let data = site.json(&["status"]);
    assert_eq!((data["kind"].clone(), data["schema"].clone()), (json!("FleetStatus"), json!(1)));
    let yaml: Value = serde_saphyr::from_str(&site.fleet(&["status", "-o", "yaml"]).ok()).unwrap();
    assert_eq!(yaml, data);
    let wide = site.fleet(&["status", "-o", "wide"]).ok();
    assert!(wide.starts_with("p  Unknown  0 of 0 done: "), "{wide}");
    // A change names its object, too.
    assert_eq!(site.fleet(&["pause", "p", "--reason", "the fair", "-o", "name"]).ok(), POOL);
    let yaml: Value = serde_saphyr::from_str(&site.fleet(&["resume", "p", "-o", "yaml"]).ok()).unwrap();
    assert_eq!((yaml["object"].clone(), yaml["changed"].clone()), (json!("nodepool/p"), json!(true)));
}

#[test]
fn a_watch_prints_a_document_whenever_something_changes() {
    let Some(site) = Site::new(0) else { return };
    site.pool("new", json!({}));
    label(&site, "web");
    let words = ["status", "-l", "team=web", "-w", "-o", "json"];
    let mut program = fleet(&site.server.kubeconfig("admin"), &words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["pools"][0]["paused"], Value::Null);
    site.fleet(&["pause", "p", "--reason", "the fair"]).ok();
    assert_eq!(next()["pools"][0]["paused"]["why"], "the fair");
    label(&site, "db");
    assert_eq!(next()["pools"], json!([]));
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn kubectl_runs_it_as_a_plugin_and_takes_the_names_that_it_prints() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        return not_run("no kubectl; Debian's package kubernetes-client has it");
    }
    let Some(site) = Site::new(0) else { return };
    site.pool("new", json!({}));
    let dir = tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_slipwayctl"), dir.path().join("kubectl-slipway")).unwrap();
    let path = format!("{}:{}", dir.path().display(), env::var("PATH").unwrap());
    let kubectl = |words: &[&str]| -> Ended {
        let mut command = Command::new("kubectl");
        command.args(words).env_clear().env("PATH", &path).env("HOME", dir.path()).env("USER", "alice");
        command.env("KUBECONFIG", site.server.kubeconfig("admin")).output().unwrap().into()
    };
    assert!(kubectl(&["slipway", "--help"]).ok().contains("Usage: kubectl slipway "));
    assert!(kubectl(&["slipway", "fleet", "--help"]).ok().contains("Usage: kubectl slipway fleet "));
    assert!(kubectl(&["plugin", "list"]).ok().contains("kubectl-slipway"));
    assert_eq!(kubectl(&["slipway", "fleet", "status", "-o", "name"]).ok(), POOL);
    // What is below a field is explained, too. The server takes a moment until it has that.
    let explain = |field: &str| loop {
        let said = kubectl(&["explain", field]);
        if said.code == 0 {
            break said.stdout;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    for (field, wanted) in [
        ("upgradepolicy.spec.rate", "count"),
        ("upgradepolicy.spec.topology", "maxDomains"),
        ("upgradepolicy.spec.failureBudget", "five attempts up"),
        ("channel.spec.promoteFrom", "after"),
        ("nodepool.spec.runNow", "soakOfWave"),
        ("nodepool.status", "observedAt"),
        ("kubernetesupgrade.status.run", "left"),
    ] {
        let said = explain(field);
        assert!(said.contains(wanted), "{field}: {said}");
    }
    assert_eq!(kubectl(&["get", POOL.trim(), "-o", "name"]).ok(), POOL);
    let missing = kubectl(&["slipway", "fleet", "status", "missing"]);
    assert!(missing.fails(3).contains("refused (not-found)"));
    let wrong = kubectl(&["slipway", "fleet", "status", "--context", "none"]).fails(2);
    assert!(wrong.contains("no way to the API server"), "{wrong}");
    kubectl(&["slipway", "fleet", "pause", "p", "--reason", "the fair"]).ok();
    let paused = kubectl(&["get", "npool", "p", "-o", "jsonpath={.spec.paused.who}"]).ok();
    assert_eq!(paused, "alice");
}

/// The controllers see it so, too.
#[test]
fn a_node_that_two_pools_name_is_left_out_of_the_older_one() {
    let Some(site) = Site::new(1) else { return };
    site.pool("new", json!({}));
    let pools = site.api_of("fleet.slipway.dev/v1alpha1", "NodePool", None);
    let mut other = site.runtime.block_on(pools.get("p")).unwrap();
    (other.metadata.resource_version, other.metadata.uid) = (None, None);
    other.metadata.name = Some("z".to_owned());
    site.runtime.block_on(pools.create(&PostParams::default(), &other)).unwrap();
    // It keeps its nodes also while nobody understands it.
    let runs_now = |of: Value| {
        let patch = Patch::Merge(json!({ "spec": { "runNow": of } }));
        site.runtime.block_on(pools.patch("p", &PatchParams::default(), &patch)).unwrap();
    };
    runs_now(json!({ "rolloutUID": "u", "until": "2026-01-01T00:00:00+99:99", "who": "a", "why": "b" }));
    let skip = ["skip", "n1", "--reason", "on loan", "-o", "name"];
    for words in [&skip[..], &["unskip", "n1", "-o", "name"], &skip] {
        assert_eq!(site.fleet(words).ok(), POOL, "{words:?}");
    }
    runs_now(Value::Null);
    let _controller = site.controller();
    site.until("the younger one says whose it is", |site| {
        site.status_of("z").message.contains("n1 stays in the pool p: an older pool keeps a node")
    });
    let status = site.status_of("z");
    assert_eq!((status.state.as_str(), status.nodes), ("Waiting", 0));
    site.until_it_says("n1", "Skipped");
}
