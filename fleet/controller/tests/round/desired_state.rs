//! `fleet/docs/wishes.md`: each test that it names exists.

use std::{fs, path::Path};

fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Whether a source has a test of this name.
fn has(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with(&format!("fn {name}(")));
    // Attributes and comments stand before it.
    let before =
        at.map(|at| lines[..at].iter().rev().take_while(|line| line.starts_with('#') || line.starts_with("//")));
    before.is_some_and(|mut before| before.any(|line| *line == "#[test]"))
}

/// The words in backquotes that name a test: a path and a name.
fn named(row: &str) -> Vec<(&str, &str)> {
    row.split('`').skip(1).step_by(2).filter_map(|word| word.split_once(".rs::")).collect()
}

#[test]
fn each_wish_that_is_fulfilled_names_tests_that_exist() {
    let text = fs::read_to_string(top().join("fleet/docs/wishes.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")).collect();
    let numbers: Vec<usize> = rows.iter().map(|row| row.split('|').nth(1).unwrap().trim().parse().unwrap()).collect();
    assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
    for row in rows {
        let tests = named(row);
        assert_eq!(tests.is_empty(), row.contains("| **No.**"), "{row}");
        for (path, name) in tests {
            let path = top().join(format!("{path}.rs"));
            let source = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(has(&source, name), "{} has no test {name}", path.display());
        }
    }
}

#[test]
fn a_name_alone_is_no_test() {
    assert!(has("#[test]\nfn a() {", "a") && has("#[test]\n/// So it is.\n#[ignore]\n    fn a(\n", "a"));
    assert!(!has("fn a() {", "a") && !has("#[test]\nfn ab() {", "a") && !has("#[test]\nfn b() {}\nfn a() {", "a"));
}
