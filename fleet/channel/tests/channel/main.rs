//! Size: gate
//! Needs: programs
//!
//! Channels: which image is chosen, and why no other one; laws of the choice; and a real registry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod choose;
mod holding_proxy;
mod laws;
mod pattern;
mod registry;

use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_channel::{
    candidate::{Candidate, ImageLabels, version},
    signature_demand::Signatures,
    spec::{Select, Spec},
};
use slipway_core::{digest::Sha256, kernel::arch::Arch};

fn digest(name: &str) -> Sha256 {
    Sha256::of(name.as_bytes())
}

/// So many hours after the beginning.
fn hour(hours: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + hours * 3600).unwrap()
}

/// Two public keys, as openssl writes them.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
    -----END PUBLIC KEY-----\n";
const OTHER_KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n\
    -----END PUBLIC KEY-----\n";

/// By so many of these keys.
fn signatures(keys: &[&str], threshold: usize) -> serde_json::Result<Signatures> {
    serde_json::from_value(serde_json::json!({ "keys": keys, "threshold": threshold }))
}

/// An image of this version in `stable`, seen at the beginning; its digest is that of the version.
fn image(text: &str) -> Candidate {
    let labels = ImageLabels {
        version: version(text),
        channels: BTreeSet::from(["stable".to_owned()]),
        ..ImageLabels::default()
    };
    Candidate {
        digest: digest(text),
        tags: BTreeSet::from([text.replace('+', "_")]),
        first_seen: hour(0),
        labels: Ok(labels),
        payload: None,
        signed: None,
        taken: None,
    }
}

/// The channel `stable`, which wants nothing more.
fn stable() -> Spec {
    Spec {
        repository: "registry.example/os".to_owned(),
        select: Select::Label("stable".to_owned()),
        arch: Arch::Amd64,
        interval: None,
        range: None,
        min_age: None,
        floors: vec![],
        deny: vec![],
        promote_from: None,
        signatures: None,
    }
}
