//! The configuration, and what needs no node.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use crate::site::{Site, lines, program, run_in};

#[test]
fn contexts_are_added_listed_and_used() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(home.path(), args);
    run(&["config", "add", "a", "--at-socket", "/run/a.sock"]).ok();
    let tls = ["--ca", "ca.crt", "--certificate", "b.crt", "--key", "b.key"];
    run(&[["config", "add", "b", "--address", "10.0.0.1"].as_slice(), &tls].concat()).ok();
    assert_eq!(run(&["config", "list"]).ok(), "* a  /run/a.sock\n  b  10.0.0.1\n");
    run(&["config", "use", "b"]).ok();
    let list = lines(&run(&["config", "list", "--output", "json"]).ok()).remove(0);
    assert_eq!((&list["context"], &list["contexts"]["b"]["endpoint"]), (&json!("b"), &json!("10.0.0.1")));
    assert_eq!(list["contexts"]["b"]["key"], json!(home.path().join("b.key")));
    run(&["config", "use", "c"]).fails(2);
    run(&["config", "add", "c", "--address", "10.0.0.1"]).fails(2);
    run(&["config", "add", "c"]).fails(2);
    // What could not be used: no node is reached so, and --context takes this name for two.
    for (name, address) in [("c", "fd00::1"), ("c", "10.0.0.1:99999"), ("c,d", "10.0.0.1"), ("", "10.0.0.1")] {
        run(&[["config", "add", name, "--address", address].as_slice(), &tls].concat()).fails(2);
    }
    let file = home.path().join(".config/slipway/config.toml");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn where_a_call_goes() {
    let site = Site::new();
    let file = site.path("elsewhere.toml");
    fs::rename(site.path(".config/slipway/config.toml"), &file).unwrap();
    let by_variable = program(site.home.path(), &["status"]).env("SLIPWAYCONFIG", &file).output().unwrap();
    assert_eq!(by_variable.status.code(), Some(0));
    site.run(&["status", "--config", "elsewhere.toml"]).ok();
    // Files of a context are beside the configuration.
    fs::write(site.path("beside.toml"), "context = \"x\"\n[contexts.x]\nsocket = \"node.sock\"\n").unwrap();
    let mut elsewhere = program(site.home.path(), &["status", "--config"]);
    let elsewhere = elsewhere.arg(site.path("beside.toml")).current_dir("/").output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(0), "{elsewhere:?}");
    // Another address with the certificates of a context.
    let text = fs::read_to_string(&file).unwrap();
    let address = text.lines().find_map(|line| line.strip_prefix("endpoint = ")).unwrap().trim_matches('"');
    fs::write(&file, text.replace(address, "127.0.0.1:1")).unwrap();
    site.run(&["--config", "elsewhere.toml", "status"]).fails(4);
    site.run(&["--config", "elsewhere.toml", "--endpoint", address, "status"]).ok();
    let socket = site.run(&["--config", "elsewhere.toml", "--context", "here", "--endpoint", address, "status"]);
    assert!(socket.fails(2).contains("the context here is a socket"));
    // Without a configuration it is the socket of this machine, where no service listens.
    let none = site.run(&["status"]).fails(4);
    assert!(none.contains("/run/slipway/node.sock"), "{none}");
}

/// Several nodes may be asked at once without a change; one that fails does not keep the others from answering.
#[test]
fn several_nodes_are_asked_at_once() {
    let site = Site::new();
    let both = site.run(&["--context", "admin,here", "version"]).ok();
    let heads: Vec<&str> = both.lines().filter(|line| line.starts_with("== ")).collect();
    assert_eq!(heads, ["== admin", "== here"], "{both}");
    // What goes on is a document for each line, which says whose it is.
    let documents = lines(&site.run(&["--context", "here,admin", "dmesg", "-o", "json"]).ok());
    let asked: Vec<_> = documents.iter().map(|document| document["context"].as_str().unwrap()).collect();
    assert_eq!(asked, ["here", "here", "admin", "admin"]);
    assert_eq!(documents[0]["answer"], json!({ "line": "one" }));
    site.run(&["config", "add", "gone", "--at-socket", "/nowhere/node.sock"]).ok();
    let one = site.run(&["--context", "gone,here", "version"]);
    assert!(one.stdout.contains("== here\n") && one.stdout.lines().count() > 3, "{one:?}");
    assert!(one.fails(4).contains("gone: "));
    // Nobody is asked: that is no success.
    for none in [",", " , "] {
        assert!(site.run(&["--context", none, "status"]).fails(2).contains("--context names no context"));
    }
    for change in [&["confirm"][..], &["upgrade", "docker://registry.example/os:v2"], &["watch"]] {
        let refused = site.run(&[&["--context", "admin,here"], change].concat()).fails(2);
        assert!(refused.contains("A NodePool upgrades several"), "{refused}");
    }
}

/// As the installer's.
#[test]
fn exit_codes_of_the_command_line() {
    let home = tempfile::tempdir().unwrap();
    for (args, code) in [
        (&["--no-such-flag"][..], 1),
        (&["frobnicate"], 1),
        (&["status", "-o", "xml"], 2),
        (&["gen", "server"], 2),
        // Longer than any clock goes.
        (&["kubernetes", "upgrade", "--to", "1.31.2", "--soak", "18446744073709551615"], 2),
        (&["kubernetes", "rollback", "--patience", "18446744073709551615"], 2),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        assert_eq!(run_in(home.path(), args).code, code, "{args:?}");
    }
}

#[test]
fn a_configuration_that_is_wrong_says_where() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        ("contxt = \"a\"\n", "contxt"),
        ("[contexts.a]\nsocket = \"/s\"\nkye = \"k\"\n", "a context has either `socket`, or"),
        ("", "it names no context"),
        ("context = \"a\"\n", "it has no context \"a\""),
        (
            "context = \"a\"\n[contexts.a]\nendpoint = \"h\"\nca = \"no.crt\"\ncertificate = \"c\"\nkey = \"k\"\n",
            "no.crt: ",
        ),
    ];
    for (text, says) in cases {
        fs::write(home.path().join("config.toml"), text).unwrap();
        let failed = run_in(home.path(), &["--config", "config.toml", "status"]).fails(2);
        assert!(failed.contains(says), "{says:?} is not in {failed}");
    }
    run_in(home.path(), &["--config", "none.toml", "status"]).fails(2);
    run_in(home.path(), &["--context", "a", "status"]).fails(2);
    run_in(home.path(), &["stage", "x", "--payload", "abc"]).fails(2);
}

/// It fits on a screen; `--help` has the rest.
#[test]
fn the_short_help_is_short() {
    let home = tempfile::tempdir().unwrap();
    for args in [&["-h"][..], &["fleet", "-h"], &["upgrade", "-h"], &["kubernetes", "-h"], &["gen", "-h"]] {
        let help = run_in(home.path(), args).ok();
        assert!(help.lines().count() <= 40, "{args:?}: {} lines: {help}", help.lines().count());
    }
    for args in [&["-h"][..], &["fleet", "-h"]] {
        assert!(run_in(home.path(), args).ok().contains("more with '--help'"), "{args:?}");
    }
}

#[test]
fn completions_and_manual_pages() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        assert!(run_in(home.path(), &["completions", shell]).ok().contains("rollback"), "{shell}");
    }
    run_in(home.path(), &["man", "pages"]).ok();
    for page in ["slipwayctl.1", "slipwayctl-upgrade.1", "slipwayctl-gen-client.1"] {
        let text = fs::read_to_string(home.path().join("pages").join(page)).unwrap();
        assert!(text.contains(".TH "), "{page}");
    }
    let upgrade = fs::read_to_string(home.path().join("pages/slipwayctl-upgrade.1")).unwrap();
    assert!(upgrade.contains("Examples:"));
    let help = run_in(home.path(), &["--help"]).ok();
    assert!(help.contains("Exit status:") && help.contains("/run/slipway/node.sock"), "{help}");
}
