//! Signatures of payloads. openssl makes the keys and signs; what is put beside an image has the form of cosign's.

mod attached;
mod attestations;
mod bundles;
mod directories;
mod held;
pub mod images;
mod policy;
mod signing;
mod upgrades;
mod validity;

use std::path::Path;

use slipway_test_support::{
    exit_code::INPUT,
    world::{Outcome, Payload, World, installer, refused},
};

/// A world whose payload has checksums.
pub fn listed() -> World {
    let world = World::new();
    list(&world.payload);
    world
}

fn list(payload: &Payload) {
    payload.checksum().succeeds();
}

pub fn inspect(source: &str, extra: &[&str]) -> Outcome {
    Outcome::of(installer(["inspect", source, "--progress=plain", "--output=json"]).args(extra))
}

/// An install of this is refused: exit code 2, with these words, and not a byte of the disk is written.
#[track_caller]
fn is_refused(world: &World, disk: &Path, extra: &[&str], texts: &[&str]) {
    refused(disk, INPUT, texts, || world.install(disk, extra));
}

/// The identifier of the failure.
#[track_caller]
fn failure(outcome: Outcome) -> String {
    outcome.exits(INPUT).json()["id"].as_str().unwrap().to_owned()
}
