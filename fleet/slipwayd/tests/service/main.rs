//! Size: gate
//! Needs: root
//!
//! The journal on a disk, the executor's loop, the configuration. The world here is a stand-in of a few lines: it says
//! what a machine would say. The real one is tested where it runs: against etcd, an API server, real mounts, and in QEMU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod api;
mod certificates;
mod executor;
mod health;
mod installer;
mod later;
mod mounts;
mod next_version;
mod release;
mod static_pods;
mod store;
mod table;
mod units;
mod unpack;
mod world;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use slipwayd::{
    config::Config,
    machine::{containerd, oci_runtime},
};

/// A program of a few lines. Another program writes it: what this one has open for writing, a child of another test
/// would have, too, and then it cannot be run.
fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    let write = "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\" && chmod +x \"$2\"";
    let status = Command::new("sh").args(["-c", write, "sh", text]).arg(&path).status().unwrap();
    assert!(status.success());
    path
}

/// As the installer's, slipwayctl's and slipway-fleet's.
#[test]
fn exit_codes_of_the_command_line() {
    for (args, code) in [
        (&["--no-such-flag"][..], 1),
        (&["frobnicate"], 1),
        (&["--config"], 2),
        (&["--log-level", "loud"], 2),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_slipwayd")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    }
}

#[test]
fn the_shipped_configuration_is_read_and_says_what_the_defaults_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("slipwayd.toml");
    assert_eq!(Config::read(&path).unwrap(), Config::default());
    // Every key in it is a comment: without the `#` they are all known.
    let text = fs::read_to_string(&path).unwrap();
    let keys: String = text
        .lines()
        .filter(|line| !line.starts_with("# "))
        .fold(String::new(), |all, line| all + line.strip_prefix('#').unwrap_or(line) + "\n");
    // A node has one of the two.
    let (before, rest) = keys.split_once("[runtime]\n").unwrap();
    let (runtime, after) = rest.split_once("\n[").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.toml");
    let read = |text: &str| {
        fs::write(&whole, text).unwrap();
        Config::read(&whole).unwrap()
    };
    assert_eq!(read(&format!("[runtime]\n{runtime}")).runtime, Some(oci_runtime::Config::default()));
    let config = read(&format!("{before}[{after}"));
    assert!(config.kubernetes.is_some() && config.etcd.is_some() && config.api.tls.is_some());
    let kubelet = Some("kubelet.service".to_owned());
    assert_eq!(config.containerd, Some(containerd::Config { kubelet, ..containerd::Config::default() }));
}

/// The order in which services stop follows from their parts. What would be another one is no configuration; nor is a mirror
/// of no registry.
#[test]
fn what_cannot_be_meant_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slipwayd.toml");
    let kubernetes = "[kubernetes]\nnode = \"a\"\nkubeconfig = \"/k\"\n";
    for (text, why) in [
        (
            "[services]\nstop = [\"containerd.service\"]\n[containerd]".to_owned(),
            "services.stop has containerd.service",
        ),
        ("[services]\nstop = [\"kubelet\"]\n[containerd]\nkubelet = \"kubelet.service\"".to_owned(), "services.stop"),
        (format!("{kubernetes}[containerd]"), "containerd.kubelet is missing"),
        ("[containerd]\ngrace = \"5m\"".to_owned(), "limits.stop"),
        ("[containerd]\n[runtime]".to_owned(), "which is to run installers?"),
        ("[registry]\nmirrors = [\"mirror.example\"]".to_owned(), "HOST=URL"),
        // etcd would be asked without the certificate.
        ("[etcd]\nname = \"a\"\nendpoints = []\nca = \"/ca\"\ncert = \"/c\"".to_owned(), "etcd.key"),
        ("[etcd]\nname = \"a\"\nendpoints = []\ncert = \"/c\"\nkey = \"/k\"".to_owned(), "etcd.ca"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = format!("{:#}", Config::read(&path).unwrap_err());
        assert!(error.contains("slipwayd.toml") && error.contains(why), "{text}: {error}");
    }
    for text in ["[containerd]".to_owned(), format!("{kubernetes}[containerd]\nkubelet = \"kubelet.service\"")] {
        fs::write(&path, &text).unwrap();
        Config::read(&path).unwrap();
    }
}

fn commands(stop: &str, reboot: &str) -> String {
    format!("[services.init.commands]\nstop = {stop}\nis-active = [\"sv\", \"check\", \"@unit@\"]\nreboot = {reboot}\n")
}

#[test]
fn a_key_that_nobody_knows_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slipwayd.toml");
    assert_eq!(Config::read(&path).unwrap(), Config::default(), "no file");
    for text in [
        "disc = \"/dev/sda\"",
        "[services]\nstopp = []",
        "[limits]\nstage = \"an hour\"",
        "[services]\nsoak = \"8m\"",
        "[services]\ninit = \"openrc\"",
        "[services]\ninit = \"commands\"",
        "[services.init.commands]\nstop = [\"sv\", \"stop\", \"@unit@\"]",
        &*commands("[\"sv\", \"stop\"]", "[\"reboot\"]"),
        &*commands("[\"@unit@\"]", "[\"reboot\"]"),
        &*commands("[\"\", \"@unit@\"]", "[\"reboot\"]"),
        &*commands("\"sv stop @unit@\"", "[\"reboot\"]"),
        &*commands("[\"sv\", \"stop\", \"@unit@\"]", "[]"),
        &*commands("[\"sv\", \"stop\", \"@unit@\"]", "[\"\"]"),
        &*commands("[\"sv\", \"stop\", \"@unit@\"]", "[\"reboot\", \"@unit@\"]"),
        &*(commands("[\"sv\", \"stop\", \"@unit@\"]", "[\"reboot\"]") + "start = [\"sv\"]\n"),
        "[",
    ] {
        fs::write(&path, text).unwrap();
        let error = format!("{:#}", Config::read(&path).unwrap_err());
        assert!(error.contains("slipwayd.toml"), "{error}");
    }
}
