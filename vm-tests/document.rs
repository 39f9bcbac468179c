//! `docs/testing-boots.md` lists the tests of this program.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
};

use crate::world::run;

const DOCUMENT: &str = include_str!("../docs/testing-boots.md");

/// The tests that start machines, each with the module that it is in.
fn tests() -> Vec<(String, String)> {
    let program = env::current_exe().expect("it is running");
    let list = String::from_utf8(run(program, ["--list"])).expect("names are text");
    let tests = list.lines().filter_map(|line| line.strip_suffix(": test")?.split_once("::"));
    tests
        .filter(|(module, _)| *module != "document")
        .map(|(module, name)| (module.to_owned(), name.to_owned()))
        .collect()
}

/// The word in front of `test)` or `tests)` at the end of a heading, and the modules before it.
fn headings() -> impl Iterator<Item = (usize, Vec<&'static str>)> {
    DOCUMENT.lines().filter_map(|line| {
        let (_, told) = line.strip_prefix("## ")?.split_once(" (")?;
        let (modules, count) = told.strip_suffix(" tests)").or(told.strip_suffix(" test)"))?.rsplit_once(", ")?;
        Some((count.parse().ok()?, modules.split(", ").map(|module| module.trim_matches('`')).collect()))
    })
}

#[test]
fn every_test_is_listed_and_counted() {
    let tests = tests();
    let all = format!("This is the list of all {}, ", tests.len());
    assert!(DOCUMENT.contains(&all), "it does not say: {all}");

    let mut counts = BTreeMap::<&str, usize>::new();
    for (module, _) in &tests {
        *counts.entry(module).or_default() += 1;
    }
    for (count, modules) in headings() {
        let there: usize = modules.iter().map(|module| counts.remove(module).unwrap_or_default()).sum();
        assert_eq!(there, count, "tests of {modules:?}");
    }
    assert!(counts.is_empty(), "no heading names {counts:?}");

    let words: BTreeSet<&str> = DOCUMENT.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).collect();
    let is_listed = |name: &str| {
        let name = name.replace("::", "_");
        let ends = ["", "_under_bios", "_under_uefi", "_on_arm64", "_under_uefi_on_arm64"];
        ends.iter().any(|end| name.strip_suffix(end).is_some_and(|name| words.contains(name)))
    };
    let missing: Vec<_> = tests.iter().filter(|(_, name)| !is_listed(name)).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
}
