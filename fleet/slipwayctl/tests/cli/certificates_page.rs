//! Follow the page about certificates that nobody makes by hand. The cluster's signer and cert-manager are not here: certificates
//! with the names that they give stand for theirs.

use std::{fs, path::Path};

use serde_json::{Value, json};
use slipway_node_server::role::Role;

use crate::site::{Site, run_in};

const PAGE: &str = include_str!("../../../docs/certificates.md");
const DEPLOYMENT: &str = include_str!("../../../manifests/deployment.yaml");

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn parse(yaml: &str) -> Vec<Value> {
    yaml.split("---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

/// A command as a person would run it. What kubectl is asked for is here already.
fn follow(home: &Path, command: &str) {
    let words: Vec<&str> =
        command.split_whitespace().map(|word| if word == "10.0.0.11" { "127.0.0.1" } else { word }).collect();
    match &words[..] {
        ["kubectl", "get", "configmap", "kube-root-ca.crt", .., ">", file] => {
            assert!(command.contains(r"jsonpath='{.data.ca\.crt}'"), "{command}");
            fs::copy(home.join("cluster/ca.crt"), home.join(file)).unwrap();
        }
        ["kubectl", "apply", "-f", file] => assert!(home.join(file).exists(), "{command}"),
        ["kubectl", "-n", "slipway-fleet", "create", "secret", "tls", "slipway-ca", files @ ..] => {
            for file in files {
                assert!(home.join(file.split_once('=').unwrap().1).exists(), "{command}");
            }
        }
        ["slipwayctl", args @ ..] => _ = run_in(home, args).ok(),
        _ => panic!("what is to be done with {command}?"),
    }
}

#[test]
fn nodes_with_certificates_of_the_cluster_are_reached_and_only_the_fleet_lets_clients_in() {
    let mut site = Site::new();
    site.stop();
    // What the cluster has: a CA, and what it signed for a kubelet, which keeps both parts in one file.
    site.run(&["gen", "ca", "--dir", "cluster"]).ok();
    site.run(&["gen", "server", "kubelet", "--host", "127.0.0.1", "--dir", "cluster"]).ok();
    site.run(&["gen", "client", "stranger", "--role", "admin", "--dir", "cluster"]).ok();
    fs::write(site.path("nodes.toml"), "").unwrap();
    let home = site.home.path().to_owned();
    blocks("sh").iter().flat_map(|block| block.lines()).for_each(|command| follow(&home, command));
    let read = |name: &str| fs::read_to_string(home.join(name)).unwrap();
    let current = read("cluster/kubelet.crt") + &read("cluster/kubelet.key");
    for name in ["server.crt", "server.key"] {
        fs::write(site.path(&format!("slipway/nodes/node-1/{name}")), &current).unwrap();
    }
    let address = site.start_with("slipway/nodes/node-1", "server");
    let at = |context: &str| {
        site.run(&["--config", "slipway/config.toml", "--context", context, "--endpoint", &address, "status"])
    };
    assert!(at("node-1").ok().contains("node-1"));
    // The controller has the same CAs, from its Secret.
    let objects = read("slipway/slipway-fleet.yaml");
    let secret = objects.split("---\n").find(|object| object.contains("\"Secret\"")).unwrap();
    let secret: Value = serde_json::from_str(secret).unwrap();
    assert_eq!(secret["stringData"]["ca.crt"], read("slipway/nodes-ca.crt"));
    // An admin whom the cluster signed is none here.
    let add = ["config", "add", "stranger", "--address", &address, "--ca", "cluster/ca.crt"];
    let files = ["--certificate", "cluster/stranger.crt", "--key", "cluster/stranger.key"];
    site.run(&[&add[..], &files].concat()).ok();
    let refused = site.run(&["--context", "stranger", "status"]);
    assert_eq!(refused.code, 4, "{refused:?}");
}

#[test]
fn what_cert_manager_is_asked_for_is_what_the_controller_needs() {
    let [asked, patch] = blocks("yaml")[..] else { panic!("two blocks of YAML") };
    let [issuer, certificate] = &parse(asked)[..] else { panic!("an Issuer and a Certificate") };
    let (spec, deployment) = (&certificate["spec"], &parse(DEPLOYMENT)[0]);
    assert_eq!(spec["issuerRef"]["name"], issuer["metadata"]["name"]);
    assert_eq!(Role::named(spec["subject"]["organizations"][0].as_str().unwrap()), Some(Role::Controller));
    assert_eq!(spec["usages"], json!(["digital signature", "client auth"]));
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!((&volume["name"], &volume["secret"]["secretName"]), (&json!("pki"), &spec["secretName"]));
    assert_eq!(certificate["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    // The patch puts the same three files at the same place.
    let patches = parse(patch).remove(0);
    let operations = parse(patches["patches"][0]["patch"].as_str().unwrap()).remove(0);
    let [operation] = &operations.as_array().unwrap()[..] else { panic!("{operations}") };
    assert_eq!((&operation["op"], &operation["path"]), (&json!("replace"), &json!("/spec/template/spec/volumes/0")));
    assert_eq!(operation["value"]["name"], volume["name"]);
    let sources = operation["value"]["projected"]["sources"].as_array().unwrap();
    let items = sources.iter().flat_map(|source| source.as_object().unwrap().values());
    let files = items.flat_map(|of| of["items"].as_array().unwrap()).map(|item| item["path"].as_str().unwrap());
    let mut files: Vec<&str> = files.collect();
    files.sort_unstable();
    assert_eq!(files, ["ca.crt", "tls.crt", "tls.key"]);
}
