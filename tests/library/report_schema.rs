//! The schema of `--output json`, assets/report.schema.json, is the one the types have.
//! `SLIPWAY_UPDATE_GOLDEN=1` rewrites it.

use std::{fs, path::Path};

#[test]
fn the_documented_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/report.schema.json");
    let schema = schemars::schema_for!(slipway_core::report::Report);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let documented = fs::read_to_string(&path).expect("SLIPWAY_UPDATE_GOLDEN=1 writes it");
    // Not assert_eq: it would print both, thousands of lines.
    assert!(documented == text, "it is not: run SLIPWAY_UPDATE_GOLDEN=1 cargo test --test library report_schema");
}
