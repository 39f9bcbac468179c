//! The archive of `support`, read by other libraries than those that write it.

use std::{collections::BTreeMap, fs, io::Read as _, path::Path};

use flate2::read::GzDecoder;
use serde_json::Value;

/// Its files, by their names in its directory.
pub fn files(archive: &[u8]) -> BTreeMap<String, String> {
    let mut tar = tar::Archive::new(GzDecoder::new(archive));
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name.strip_prefix("slipway-support/").unwrap().to_owned(), text)
    });
    entries.collect()
}

/// The same of an archive in a file.
pub fn of_file(path: &Path) -> BTreeMap<String, String> {
    files(&fs::read(path).unwrap())
}

/// The missing parts by its manifest, and the reasons.
pub fn missing(files: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let manifest: Value = serde_json::from_str(&files["manifest.json"]).unwrap();
    let text = |of: &Value| of.as_str().unwrap().to_owned();
    manifest["missing"].as_array().unwrap().iter().map(|of| (text(&of["what"]), text(&of["why"]))).collect()
}
