//! The schemas of the JSON output are kept beside the program: `slipwayctl/schema`.

use std::{env, fs, path::Path};

use schemars::schema_for;

use super::{forecast::Forecast, status_report::Report};

/// `SLIPWAY_UPDATE_GOLDEN=1` writes them anew.
#[test]
fn the_schemas_are_those_of_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    for (name, schema) in [("fleet-status", schema_for!(Report)), ("fleet-plan", schema_for!(Forecast))] {
        let path = dir.join(format!("{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&dir).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(there, text, "{}: SLIPWAY_UPDATE_GOLDEN=1 writes it anew", path.display());
    }
}
