//! Run the controller's page, in its order: each command of `sh` blocks, each object of `yaml` blocks.

use std::{fs, path::Path, process::Command};

use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::Value;

use crate::{
    program::Ended,
    site::{Site, fleet},
};

const PAGE: &str = include_str!("../../../controller/README.md");
/// The address of the first node on the page, and the one that a node has here.
const ADDRESS: (&str, &str) = ("10.0.0.11", "127.0.1.1");
/// Commands that are not run here, why, and what runs them.
const NOT_RUN: [(&str, &str); 4] = [
    ("helm install ", "it takes an API server since 1.21: tests/fleet/chart.rs has the chart"),
    ("skopeo copy oci:out/fleet/image ", "there is no registry: fleet/hack/image makes the image and runs it"),
    (
        "kubectl -n slipway-fleet create secret docker-registry ",
        "it is kubectl's own: tests/fleet/channels.rs has credentials",
    ),
    ("kubectl apply --validate=false -f slipway/slipway-fleet.yaml", "no kubectl validates here"),
];

/// A step of a page.
pub enum Step {
    Command(String),
    /// The objects of a `yaml` block.
    Objects(String),
}

/// The steps of a page, in its order, but for the commands in `not_run`, each of which must be on the page. The `toml` block
/// becomes `nodes.toml` in `home`.
pub fn steps(page: &str, not_run: &[(&str, &str)], home: &Path) -> Vec<Step> {
    let (mut steps, mut left_out) = (Vec::new(), Vec::new());
    for (language, block) in blocks(page) {
        match language {
            "sh" => {
                for command in commands(&block) {
                    match not_run.iter().find(|(known, _)| command.starts_with(known)) {
                        Some((known, _)) => left_out.push(*known),
                        None => steps.push(Step::Command(command)),
                    }
                }
            }
            "toml" => fs::write(home.join("nodes.toml"), block).unwrap(),
            "yaml" => steps.push(Step::Objects(block)),
            other => panic!("a block of {other:?}"),
        }
    }
    left_out.sort_unstable();
    let mut known: Vec<&str> = not_run.iter().map(|(known, _)| *known).collect();
    known.sort_unstable();
    assert_eq!(left_out, known, "each of them is on the page");
    steps
}

/// The next test finds the server as it was.
pub fn forget_the_fleets_keys(site: &Site) {
    let secrets = site.api_of("v1", "Secret", Some("slipway-fleet"));
    site.runtime.block_on(secrets.delete("slipway-fleet-pki", &DeleteParams::default())).unwrap();
}

/// Fenced blocks of the page, with their languages.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut all: Vec<(&str, String)> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(language) if !is_open => {
                all.push((language, String::new()));
                is_open = true;
            }
            Some(_) => is_open = false,
            None if is_open => all.last_mut().unwrap().1 += &format!("{line}\n"),
            None => {}
        }
    }
    all
}

fn commands(block: &str) -> Vec<String> {
    block.replace("\\\n", " ").lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// An object of the page. One without a name is what the first pool, `workers`, has in place of some fields.
fn whole(site: &Site, object: Value) -> Value {
    if object["metadata"]["name"].is_string() {
        return object;
    }
    let kind = object["kind"].as_str().unwrap();
    let api = site.api_of("fleet.slipway.dev/v1alpha1", kind, None);
    let there = site.runtime.block_on(api.get("workers")).unwrap();
    let mut spec = there.data["spec"].clone();
    spec.as_object_mut().unwrap().extend(object["spec"].as_object().unwrap().clone());
    fleet(kind, "workers", spec)
}

/// `kubectl apply`: an object is made, or is what it says. What the API server had already is the manifests'.
pub fn apply(site: &Site, object: &Value) {
    let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let types = new.types.clone().unwrap();
    // The API server is older than this version of the group, and has its beta, which says the same.
    let version = if types.api_version == "policy/v1" { "policy/v1beta1" } else { &types.api_version };
    let mut new = new;
    new.types.as_mut().unwrap().api_version = version.to_owned();
    let name = new.metadata.name.clone().unwrap();
    let api = site.api_of(version, &types.kind, new.metadata.namespace.as_deref());
    site.runtime.block_on(async {
        match api.create(&PostParams::default(), &new).await {
            Err(kube::Error::Api(status)) if status.code == 409 && version.starts_with("fleet.slipway.dev/") => {
                new.metadata.resource_version = api.get(&name).await.unwrap().metadata.resource_version;
                api.replace(&name, &PostParams::default(), &new).await.unwrap();
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => _ = made.unwrap_or_else(|e| panic!("{object}: {e}")),
        }
    });
}

pub fn parse(yaml: &str) -> Vec<Value> {
    yaml.split("---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

pub fn run(site: &Site, home: &Path, command: &str) {
    let words: Vec<&str> =
        command.split_whitespace().map(|word| if word == ADDRESS.0 { ADDRESS.1 } else { word }).collect();
    match &words[..] {
        ["slipwayctl", args @ ..] => {
            let mut program = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
            program.args(args).env_clear().current_dir(home);
            if args.last() == Some(&"status") {
                // Other services have the usual port of this machine.
                program.args(["--endpoint", &format!("{}:{}", ADDRESS.1, site.port)]);
            }
            let ended: Ended = program.output().unwrap().into();
            eprintln!("{command}\n{}", ended.ok());
        }
        ["kubectl", "apply", "-f", file] => {
            parse(&fs::read_to_string(home.join(file)).unwrap()).iter().for_each(|object| apply(site, object));
        }
        _ => panic!("what is to be done with {command}?"),
    }
}

/// The node and the controller take the files that the commands made: those of the Secret, and those of the node.
pub fn bring_files(site: &Site, home: &Path) {
    let secrets = site.api_of("v1", "Secret", Some("slipway-fleet"));
    let objects = parse(&fs::read_to_string(home.join("slipway/slipway-fleet.yaml")).unwrap());
    let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    let there = site.runtime.block_on(secrets.get("slipway-fleet-pki")).unwrap();
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        assert!(there.data["data"][name].is_string(), "{name}");
        fs::write(site.pki().join(name), secret["stringData"][name].as_str().unwrap()).unwrap();
    }
    for (made, own) in [("server.crt", "n1.crt"), ("server.key", "n1.key")] {
        fs::copy(home.join("slipway/nodes/node-1").join(made), site.pki().join(own)).unwrap();
    }
}

#[test]
fn the_page_of_the_controller_works_as_it_says() {
    let Some(mut site) = Site::with_room(0, 1) else { return };
    let home = tempfile::tempdir().unwrap();
    let mut is_up = false;
    let mut applied = 0;
    for step in steps(PAGE, &NOT_RUN, home.path()) {
        match step {
            Step::Command(command) => {
                if command.contains(" status") && !is_up {
                    bring_files(&site, home.path());
                    site.add_node(1, "old");
                    site.label("n1", "node-restriction.kubernetes.io/pool", "workers");
                    is_up = true;
                }
                run(&site, home.path(), &command);
            }
            // A patch of kustomize is no object.
            Step::Objects(block) if block.contains("\npatches:\n") => {}
            Step::Objects(block) => {
                let objects = parse(&block);
                applied += objects.len();
                objects.into_iter().for_each(|object| apply(&site, &whole(&site, object)));
                // The first pool: the controller reaches the node with the new certificates, and reports its state.
                if applied == 2 {
                    let controller = site.controller();
                    let reason = |site: &Site| site.node_status("n1").reason;
                    site.until("the node is asked", |site| !reason(site).is_empty());
                    assert!(!["Silent", "Unwritten"].contains(&reason(&site).as_str()), "{:?}", site.node_status("n1"));
                    drop(controller);
                }
            }
        }
    }
    assert!(is_up && applied == 5, "{applied} objects");
    forget_the_fleets_keys(&site);
}
