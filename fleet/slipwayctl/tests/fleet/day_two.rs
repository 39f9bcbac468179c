//! Follow the page about what comes after the first day, with the real kubectl: an update, the end of other tools, and the end of
//! this one. Stand-ins have the names of what the others run.

use std::{env, fs, os::unix::fs::symlink, path::Path, process::Command};

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use slipway_test_support::not_run;

use crate::{
    first_hour::{Step, steps},
    node::payload,
    program::Ended,
    site::{Site, fleet},
};

const PAGE: &str = include_str!("../../../docs/day-two.md");
const FILE: &str = "slipway/slipway-fleet.yaml";
const FLEET: &str = "fleet.slipway.dev/v1alpha1";

/// What other tools run, as far as the page stops it.
fn other_tools() -> Vec<Value> {
    let labels = json!({ "app": "a" });
    let workload = |kind: &str, namespace: &str, name: &str| {
        let pod =
            json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "a", "image": "a" }] } });
        let spec = json!({ "selector": { "matchLabels": labels }, "template": pod });
        json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": namespace }, "spec": spec })
    };
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "system-upgrade" } }),
        workload("DaemonSet", "kube-system", "kured"),
        workload("Deployment", "system-upgrade", "system-upgrade-controller"),
        workload("Deployment", "system-upgrade", "tuppr"),
    ]
}

/// As a person would run it. This API server is older than policy/v1 and rules in schemas, and no controller ends a namespace
/// or starts pods here.
fn run(site: &Site, home: &Path, command: &str) -> String {
    if let Ok(text) = fs::read_to_string(home.join(FILE)) {
        fs::write(home.join(FILE), text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")).unwrap();
    }
    if command.contains(" rollout status ") {
        starts(site);
    }
    let command = command.replace("kubectl apply -f", "kubectl apply --validate=false -f");
    let command = command.replace("kubectl delete --ignore", "kubectl delete --wait=false --ignore");
    let path = format!("{}:{}", home.display(), env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).env_clear().env("PATH", path).env("HOME", home).env("USER", "alice").current_dir(home);
    let ended: Ended = shell.env("KUBECONFIG", site.server.kubeconfig("admin")).output().unwrap().into();
    // kubectl warns of objects that it did not make itself.
    assert_eq!(ended.code, 0, "{command}: {ended:?}");
    eprintln!("{command}\n{}", ended.stdout);
    ended.stdout
}

/// Its pods run the new image.
fn starts(site: &Site) {
    let deployments = site.api_of("apps/v1", "Deployment", Some("slipway-fleet"));
    site.runtime.block_on(async {
        let there = deployments.get("slipway-fleet").await.unwrap();
        let image = &there.data["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, json!("registry.example/slipway-fleet:0.2.0"));
        let replicas = &there.data["spec"]["replicas"];
        let status = json!({ "observedGeneration": there.metadata.generation, "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas });
        let patch = Patch::Merge(json!({ "status": status }));
        deployments.patch_status("slipway-fleet", &PatchParams::default(), &patch).await.unwrap();
    });
}

fn pool(site: &Site) {
    let target = json!({ "image": "docker://registry.example/os:2", "payload": payload("2") });
    let spec = json!({ "nodeSelector": { "pool": "workers" }, "target": target });
    site.make(fleet("NodePool", "workers", spec)).unwrap();
    site.make(fleet("KubernetesUpgrade", "cluster", json!({ "version": "1.31.2" }))).unwrap();
}

#[test]
fn an_update_the_end_of_other_tools_and_the_end_of_this_one_are_as_the_page_says() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        return not_run("no kubectl; Debian's package kubernetes-client has it");
    }
    let Some(mut site) = Site::with_room(0, 0) else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    symlink(env!("CARGO_BIN_EXE_slipwayctl"), home.join("slipwayctl")).unwrap();
    site.apply(other_tools());
    site.add_object(1);
    let nodes = site.api_of("v1", "Node", None);
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    site.runtime.block_on(nodes.patch("n1", &PatchParams::default(), &cordon)).unwrap();
    pool(&site);
    let count = |site: &Site, api: &str, kind: &str, namespace: Option<&str>| {
        let list = site.runtime.block_on(site.api_of(api, kind, namespace).list(&ListParams::default()));
        list.map(|list| list.items.len())
    };
    let mut followed = 0;
    for step in steps(PAGE, &[], home) {
        let Step::Command(command) = step else { panic!("only commands") };
        let said = run(&site, home, &command);
        followed += 1;
        match command.split_once(' ').unwrap().1 {
            "get nodes --field-selector spec.unschedulable=true" => {
                assert!(said.contains("n1 "), "{said}");
                assert_eq!(count(&site, "apps/v1", "DaemonSet", Some("kube-system")).unwrap(), 0);
                let deployments = site.api_of("apps/v1", "Deployment", Some("system-upgrade"));
                let left = site.runtime.block_on(deployments.list(&ListParams::default())).unwrap().items;
                assert!(left.len() == 2 && left.iter().all(|of| of.data["spec"]["replicas"] == 0), "{left:?}");
            }
            "fleet status" => assert!(said.contains("workers  ") && !said.contains("\nheld"), "{said}"),
            "delete nodepools.fleet.slipway.dev,kubernetesupgrades.fleet.slipway.dev --all" => {
                for kind in ["NodePool", "KubernetesUpgrade"] {
                    assert_eq!(count(&site, FLEET, kind, None).unwrap(), 0, "{kind}");
                }
            }
            _ => {}
        }
    }
    assert!(followed > 10, "{followed}");
    // No object holds its kind up.
    site.until("the kinds are gone", |site| count(site, FLEET, "DisruptionLedger", None).is_err());
    let refused = site.fleet(&["status"]).fails(3);
    let remedy = ".fleet.slipway.dev: apply slipway/slipway-fleet.yaml";
    let missing = |kind: &str| format!("refused (not-installed): the API server does not have the kind {kind}");
    assert!(refused.contains(&missing("")) && refused.contains(remedy), "{refused}");
    let refused = site.fleet(&["unblock", "n1", "--reason", "it is gone"]).fails(3);
    assert!(refused.contains(&(missing("disruptionledgers") + remedy)), "{refused}");
}
