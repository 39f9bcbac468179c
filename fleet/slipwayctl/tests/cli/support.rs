//! `support`: the archive has its parts, and no secret.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::Value;
use slipway_node::{
    request::{Goal, Request},
    sequence::Outcome,
};
use slipway_node_api::v1::event::What;
use slipway_test_support::support_archive::{self, missing, of_file};

use crate::site::{ID, Site, program};

/// A word that stands for every secret.
const SECRET: &str = "HUSH";

#[test]
fn it_has_what_the_node_says_and_no_secret() {
    let site = Site::new();
    let source = format!("docker://user:{SECRET}@registry.example/os:2");
    let request = Request { source, ..Request::new(ID.parse().unwrap(), Goal::Upgrade, "alice") };
    let why = format!("https://registry.example/v2/?token={SECRET} answers 401, Authorization: Bearer {SECRET}");
    site.node().remember(request, Some(Outcome::CameBack(why.clone())));
    site.service.as_ref().unwrap().log.push(What::notice(&why));
    let lines = [
        format!("password={SECRET}\n-----BEGIN PRIVATE KEY-----\n{SECRET}\n"),
        format!("{SECRET}\n-----END PRIVATE KEY-----\n\"registry_token\": \"{SECRET}\"\nand quiet\n"),
    ];
    *site.node().lines.lock().unwrap() = lines.to_vec();

    let told = site.run(&["support", "a.tar.gz"]).ok();
    assert!(told.starts_with("a.tar.gz: 8 files\n"), "{told}");
    let files = of_file(&site.path("a.tar.gz"));
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let logs = ["containerd", "etcd", "kubelet", "slipwayd"].map(|of| format!("nodes/node/logs/{of}.log"));
    let logs = logs.iter().map(String::as_str);
    let wanted = ["manifest.json", "nodes/node/dmesg.log", "nodes/node/events.jsonl"].into_iter().chain(logs);
    assert_eq!(names, wanted.chain(["nodes/node/status.json", "nodes/node/status.txt"]).collect::<Vec<_>>());
    for (name, text) in &files {
        assert!(!text.contains(SECRET), "{name}: {text}");
    }
    // Text that is no secret stays.
    assert!(files["nodes/node/logs/kubelet.log"].ends_with("and quiet\n"));
    assert!(files["nodes/node/status.json"].contains("docker://[removed]@registry.example/os:2"));
    assert!(files["nodes/node/events.jsonl"].contains("answers 401"), "{}", files["nodes/node/events.jsonl"]);
    assert!(files["nodes/node/status.txt"].contains("node-1, OS 1.4.0"));
    assert!(missing(&files).is_empty());
    let mode = fs::metadata(site.path("a.tar.gz")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // It is not written over, and nothing is asked then.
    let calls = site.node().calls().len();
    assert!(site.run(&["support", "a.tar.gz"]).fails(2).contains("is not overwritten"));
    assert_eq!(site.node().calls().len(), calls);
    // For a pipe: the archive alone.
    let piped = program(site.home.path(), &["support", "-"]).output().unwrap();
    assert!(piped.status.success());
    assert_eq!(support_archive::files(&piped.stdout).len(), files.len());
    assert!(String::from_utf8(piped.stderr).unwrap().starts_with("slipwayctl: -: 8 files\n"));
}

#[test]
fn what_cannot_be_collected_is_named_and_keeps_nothing_else_out() {
    let mut site = Site::new();
    site.run(&["config", "add", "gone", "--at-socket", "gone.sock"]).ok();
    site.run(&["--context", "here,gone", "support", "a.tar.gz", "--kubeconfig", "none"]).ok();
    let files = of_file(&site.path("a.tar.gz"));
    let missing = missing(&files);
    assert_eq!(missing.keys().collect::<Vec<_>>(), ["fleet", "nodes/gone"]);
    assert!(files.contains_key("nodes/here/status.json") && missing["fleet"].contains("none"), "{missing:?}");
    // No node at all.
    site.stop();
    let json = site.run(&["-o", "json", "support", "b.tar.gz"]).ok();
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&told["files"], told["missing"].as_array().unwrap().len()), (&0.into(), 1));
    assert_eq!(of_file(&site.path("b.tar.gz")).keys().collect::<Vec<_>>(), ["manifest.json"]);
    assert!(site.run(&["support", "no/such/dir.tar.gz"]).fails(1).contains("no/such/dir.tar.gz"));
}
