//! Messages that a document quotes in the first column of its tables exist in the source.

use slipway_test_support::read_all;

use super::{links, top};

/// Where messages come from.
const SOURCES: [&str; 6] =
    ["src", "payload/src", "core/src", "assets/grub", "hack/reference-os", "fleet/slipwayctl/src"];

/// Quoted messages of which a piece (between two `…`) is in no source.
pub fn wrong(text: &str) -> Vec<String> {
    let mut sources = String::new();
    for dir in SOURCES {
        read_all(&top().join(dir), &mut sources);
    }
    let sources = joined(&sources);
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let quoted: Vec<&str> = rows.flat_map(links::spans).collect();
    assert!(quoted.len() > 30, "only {} messages were found", quoted.len());
    let missing = |message: &&str| message.split('…').any(|piece| !sources.contains(piece));
    quoted.into_iter().filter(missing).map(str::to_owned).collect()
}

/// Strings of Rust that go on in the next line, in one.
fn joined(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}
