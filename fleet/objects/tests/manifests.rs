//! Needs: nothing
//!
//! The definitions in `fleet/manifests` are those of the types. `SLIPWAY_UPDATE_GOLDEN=1` writes them anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{env, fs, path::Path};

use serde_json::Value;
use slipway_fleet_objects::crd;

#[test]
fn the_definitions_are_those_of_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
    let update = env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some();
    for (name, definition) in crd::all() {
        let path = dir.join(format!("{name}.yaml"));
        // As JSON first: its keys are in an order of their own.
        let value = serde_json::to_value(&definition).unwrap();
        let text = format!("# Made from the types in fleet/objects.\n{}", serde_saphyr::to_string(&value).unwrap());
        if update {
            fs::write(&path, &text).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(there, text, "{}: SLIPWAY_UPDATE_GOLDEN=1 writes it anew", path.display());
        assert_eq!(serde_saphyr::from_str::<Value>(&there).unwrap(), value, "{name}: the YAML says what is meant");
    }
}

/// What `kubectl explain` shows is never empty.
#[test]
fn every_field_is_explained() {
    for (name, definition) in crd::all() {
        let value = serde_json::to_value(&definition).unwrap();
        let schema = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut bare = Vec::new();
        for part in ["spec", "status"] {
            explained(&format!("{name}.{part}"), &schema["properties"][part], &mut bare);
        }
        assert!(schema["description"].as_str().is_some_and(|text| text.len() > 40), "{name}");
        assert_eq!(bare, Vec::<String>::new());
    }
}

fn explained(at: &str, schema: &Value, bare: &mut Vec<String>) {
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{field}");
        if of["description"].as_str().unwrap_or_default().is_empty() {
            bare.push(at.clone());
        }
        explained(&at, of, bare);
        explained(&at, &of["items"], bare);
    }
}
