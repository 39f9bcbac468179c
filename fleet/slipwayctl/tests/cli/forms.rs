//! The forms of answers: the same data as JSON and as YAML, names, and more columns; and the program as a plugin of kubectl.

use std::{os::unix::fs::symlink, process::Command};

use serde_json::{Value, json};

use crate::site::{Ended, Site, lines, run_in};

/// The one document that is printed.
fn yaml(ended: Ended) -> Value {
    serde_saphyr::from_str(&ended.ok()).unwrap()
}

#[test]
fn json_and_yaml_have_the_same_data_and_say_their_kind() {
    let site = Site::new();
    for words in [&["status"][..], &["config", "list"], &["version"], &["plan", "reboot"], &["health"]] {
        let run = |form| site.run(&[words, &["-o", form]].concat());
        let documents = lines(&run("json").stdout);
        // The second one is the failure.
        let is_failure = [&["health"][..], &["plan", "reboot"]].contains(&words);
        assert_eq!(documents.len(), if is_failure { 2 } else { 1 }, "{words:?}");
        if !is_failure {
            assert_eq!(yaml(run("yaml")), documents[0], "{words:?}");
        }
    }
    let kind = |words: &[&str]| lines(&site.run(&[words, &["-o", "json"]].concat()).ok()).remove(0)["kind"].clone();
    assert_eq!([kind(&["status"]), kind(&["config", "list"])], [json!("NodeStatus"), json!("ContextList")]);
    // A failure is data, too: the second document.
    let ended = site.run(&["health", "-o", "yaml"]);
    let (answer, failure) = ended.stdout.split_once("---\n").unwrap();
    let [answer, failure] = [answer, failure].map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    assert!(answer["state"].is_string() || answer["state"].is_null(), "{answer}");
    assert_eq!((failure["failure"]["kind"].clone(), ended.code), (json!("failed"), 1));
}

#[test]
fn several_nodes_are_one_document_also_where_one_fails() {
    let site = Site::new();
    site.run(&["config", "add", "gone", "--at-socket", "/nowhere/node.sock"]).ok();
    let ended = site.run(&["--context", "here,gone,admin", "status", "-o", "json"]);
    let [list] = &lines(&ended.stdout)[..] else { panic!("{ended:?}") };
    assert_eq!(list["kind"], "List");
    let items = list["items"].as_array().unwrap();
    let asked: Vec<_> = items.iter().map(|item| item["context"].as_str().unwrap()).collect();
    assert_eq!(asked, ["here", "gone", "admin"]);
    assert_eq!(items[1]["failure"]["kind"], "unreachable");
    assert_eq!(
        (items[0]["answer"].clone(), items[0]["answer"]["kind"].clone()),
        (items[2]["answer"].clone(), json!("NodeStatus"))
    );
    assert!(ended.fails(4).starts_with("slipwayctl: unreachable: gone: "));
    let names = site.run(&["--context", "here,admin", "status", "-o", "name"]).ok();
    assert_eq!(names, "node/node-1\nnode/node-1\n");
}

#[test]
fn names_are_a_kind_and_a_name_a_line_and_wide_has_more() {
    let site = Site::new();
    let name = |words: &[&str]| site.run(&[words, &["-o", "name"]].concat()).ok();
    assert_eq!(name(&["status"]), "node/node-1\n");
    let contexts = name(&["config", "list"]);
    assert!(
        contexts.lines().all(|line| line.starts_with("context/")) && contexts.contains("context/here\n"),
        "{contexts}"
    );
    let [text, wide] = ["text", "wide"].map(|form| site.run(&["config", "list", "-o", form]).ok());
    assert_eq!(text.lines().count(), wide.lines().count());
    assert!(wide.contains("admin.key") && !text.contains("admin.key"), "{wide}");
    assert!(site.run(&["status", "-o", "wide"]).ok().starts_with("node      node-1, OS "));
}

/// Before anything is asked or done.
#[test]
fn names_and_columns_of_what_shows_no_objects_are_refused() {
    let site = Site::new();
    for words in [
        &["confirm"][..],
        &["upgrade", "docker://registry.example/os:2"],
        &["gen", "ca"],
        &["fleet", "init", "--image", "i"],
    ] {
        for form in ["name", "wide"] {
            let refused = site.run(&[words, &["-o", form]].concat()).fails(2);
            assert!(refused.contains("this command shows no objects"), "{refused}");
        }
    }
    assert_eq!(site.node().calls(), [""; 0]);
}

/// No namespace chooses anything: who names one is told so, and no API server is asked.
#[test]
fn a_namespace_is_refused_in_words() {
    let home = tempfile::tempdir().unwrap();
    for words in [
        &["fleet", "status", "-n", "kube-system"][..],
        &["fleet", "--namespace", "kube-system", "pause", "p", "--reason", "a slip"],
        &["fleet", "init", "--image", "registry.example/fleet:1", "-n", "kube-system"],
        &["kubernetes", "status", "-n", "kube-system"],
    ] {
        let refused = run_in(home.path(), words).fails(2);
        assert!(
            refused.contains("--namespace kube-system: ") && refused.contains("belong to the whole cluster"),
            "{refused}"
        );
    }
    assert!(!home.path().join("slipway").exists());
    let both = run_in(home.path(), &["fleet", "status", "p", "-l", "team=web"]);
    assert!(both.stderr.contains("cannot be used with"), "{both:?}");
}

#[test]
fn each_group_of_commands_says_what_its_exit_codes_mean() {
    let home = tempfile::tempdir().unwrap();
    for words in [&["--help"][..], &["fleet", "--help"], &["kubernetes", "--help"]] {
        let help = run_in(home.path(), words).ok();
        assert!(
            help.contains("Exit status:\n  0  done\n") && help.contains("\n  5  --timeout or --patience is over"),
            "{help}"
        );
        assert!(help.contains("\n  3  refused, or blocked now, also in a plan or a dry run;"), "{help}");
    }
}

/// As kubectl runs it: by a file of this name, with the words after `kubectl slipway`.
#[test]
fn as_a_plugin_its_usage_lines_are_kubectls() {
    let home = tempfile::tempdir().unwrap();
    let plugin = home.path().join("kubectl-slipway");
    symlink(env!("CARGO_BIN_EXE_slipwayctl"), &plugin).unwrap();
    let said = |words: &[&str]| {
        let said = Command::new(&plugin).args(words).env_clear().env("HOME", home.path()).output().unwrap();
        String::from_utf8([said.stdout, said.stderr].concat()).unwrap()
    };
    for (words, usage) in [
        (&["--help"][..], "Usage: kubectl slipway "),
        (&["fleet", "status", "--help"], "Usage: kubectl slipway fleet status "),
        (&["fleet", "pause", "p"], "Usage: kubectl slipway fleet pause "),
        (&["frobnicate"], "Usage: kubectl slipway "),
    ] {
        let said = said(words);
        assert!(said.contains(usage) && !said.contains("Usage: slipwayctl"), "{words:?}: {said}");
    }
    assert!(run_in(home.path(), &["fleet", "status", "--help"]).ok().contains("Usage: slipwayctl fleet status "));
}
