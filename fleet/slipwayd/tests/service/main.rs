//! Needs: nothing
//!
//! The journal on a disk, the executor's loop, the configuration. The world here is a stand-in of a few lines: it says
//! what a machine would say. The real one is tested where it runs: against etcd, an API server, and in QEMU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod api;
mod executor;
mod store;
mod table;
mod world;

use std::{fs, path::Path};

use slipwayd::config::Config;

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
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.toml");
    fs::write(&whole, keys).unwrap();
    let config = Config::read(&whole).unwrap();
    assert!(config.kubernetes.is_some() && config.etcd.is_some() && config.api.tls.is_some());
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
        "[",
    ] {
        fs::write(&path, text).unwrap();
        let error = format!("{:#}", Config::read(&path).unwrap_err());
        assert!(error.contains("slipwayd.toml"), "{error}");
    }
}
