//! Arrows only point downward: no module names one of a layer above its own.

use std::{fs, path::Path};

/// Layer of every module of the installer. Below all of them is `slipway_core`, which the compiler keeps pure.
const LAYERS: [(&str, u8); 21] = [
    ("error", 1),
    ("cleanup", 1),
    ("lookup", 1),
    ("device", 2),
    ("transfer", 2),
    ("trust", 2),
    ("payload", 2),
    ("fat", 2),
    ("mkfs", 2),
    ("bootloader", 2),
    ("media", 2),
    ("tools", 2),
    ("machine", 2),
    ("snapshot", 2),
    ("probe", 3),
    ("execute", 3),
    ("ops", 4),
    ("cli", 5),
    ("commands", 5),
    ("report_failure", 5),
    ("main", 5),
];

fn layer(module: &str) -> u8 {
    let found = LAYERS.iter().find(|(name, _)| *name == module);
    found.unwrap_or_else(|| panic!("module {module} has no layer: add it to tests/library/layers.rs")).1
}

/// Modules a source text names after `crate::`, also in a list in braces.
fn named(text: &str) -> Vec<String> {
    let word = |s: &str| s.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut modules = Vec::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => modules.extend(items(list).into_iter().map(word)),
            None => modules.push(word(rest)),
        }
    }
    modules.retain(|m| !m.is_empty());
    modules
}

/// Items of a list up to the brace that closes it; lists inside are part of their item.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match (c, depth) {
            ('{', _) => depth += 1,
            (',', 0) => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            ('}', 0) => {
                items.push(&list[start..at]);
                break;
            }
            ('}', _) => depth -= 1,
            _ => {}
        }
    }
    items
}

fn upward(module: &str, text: &str) -> Vec<String> {
    let own = layer(module);
    named(text).into_iter().filter(|m| layer(m) > own).collect()
}

#[test]
fn arrows_only_point_downward() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![src.clone()];
    let mut seen = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let inner = path.strip_prefix(&src).unwrap();
        let module = inner.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if matches!(module, "main" | "lib") {
            continue;
        }
        seen += 1;
        let up = upward(module, &fs::read_to_string(&path).unwrap());
        assert!(up.is_empty(), "{} uses a layer above: {up:?}", inner.display());
    }
    assert!(seen > 20, "only {seen} files looked at");
}

#[test]
fn a_planted_upward_use_is_caught() {
    assert_eq!(upward("error", "use crate::device::Disk;"), ["device"]);
    assert_eq!(upward("fat", "use crate::{device::BlockIo, transfer::{FileReader, sha256}, ops::Change};"), ["ops"]);
    assert!(upward("commands", "use crate::{ops, device::Disk};").is_empty());
}
