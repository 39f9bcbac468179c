//! The schemas of `--output json` and `--progress json` in assets/ are those the types have.
//! `SLIPWAY_UPDATE_GOLDEN=1` rewrites them.

use std::{fs, path::Path};

use schemars::Schema;
use slipway_core::report::{Document, EventLine};

#[track_caller]
fn is_current(name: &str, schema: &Schema) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name);
    let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let documented = fs::read_to_string(&path).expect("SLIPWAY_UPDATE_GOLDEN=1 writes it");
    // Not assert_eq: it would print both, thousands of lines.
    assert!(documented == text, "{name} is not: run SLIPWAY_UPDATE_GOLDEN=1 cargo test --test library report_schema");
}

#[test]
fn the_documented_schema_is_current() {
    is_current("report.schema.json", &schemars::schema_for!(Document));
}

#[test]
fn the_documented_schema_of_events_is_current() {
    is_current("event.schema.json", &schemars::schema_for!(EventLine));
}
