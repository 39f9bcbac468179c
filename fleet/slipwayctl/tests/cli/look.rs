//! `health`, `version`, `logs`, `dmesg`; and refusals before a node is asked.

use serde_json::json;

use crate::site::{Site, lines};

#[test]
fn logs_come_line_by_line() {
    let site = Site::new();
    assert_eq!(site.run(&["logs", "kubelet", "--lines", "5"]).ok(), "one\ntwo\n");
    assert_eq!(site.run(&["dmesg"]).ok(), "one\ntwo\n");
    assert_eq!(lines(&site.run(&["-o", "json", "dmesg"]).ok()), [json!({ "line": "one" }), json!({ "line": "two" })]);
    assert!(site.run(&["logs", "broken"]).fails(1).contains("the disk is full"));
    let calls = site.service.as_ref().unwrap().node.calls();
    let kubelet = r#"Service { name: "kubelet", follow: false, lines: Some(5) }"#;
    assert_eq!(calls[..2], [kubelet, "Kernel { follow: false, only_new: false }"]);
}

#[test]
fn a_node_that_does_not_say_how_it_is_is_not_well() {
    let site = Site::new();
    let ended = site.run(&["health"]);
    assert!(ended.fails(1).contains("not known to be well"));
}

#[test]
fn versions_are_of_program_service_and_os() {
    let site = Site::new();
    let own = env!("CARGO_PKG_VERSION");
    let text = site.run(&["version"]).ok();
    assert_eq!(text, format!("slipwayctl {own}\nslipwayd   0.1.0\nOS         1.4.0\n"));
    let json = lines(&site.run(&["version", "-o", "json"]).ok()).remove(0);
    assert_eq!(json, json!({ "slipwayctl": own, "slipwayd": "0.1.0", "os": "1.4.0" }));
    assert!(site.run(&["status"]).ok().starts_with("node      node-1, OS 1.4.0, service 0.1.0"));
}

#[test]
fn a_source_without_a_form_is_refused_before_anything_begins() {
    let site = Site::new();
    for source in ["payload.tar", "registry.example/os:2", "docker://"] {
        assert!(site.run(&["upgrade", source]).fails(2).contains("docker://HOST/REPOSITORY"), "{source}");
    }
    assert_eq!(site.service.as_ref().unwrap().node.calls(), [""; 0]);
}
