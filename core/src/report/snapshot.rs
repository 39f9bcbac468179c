//! The answers of `snapshot`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    boot::slot::Slot,
    digest::Sha256,
    snapshot::content::{Change, Content, NodeKind},
    text::printable,
    units::approx,
};

/// The snapshots of a disk, what is in one, or what was put back.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SnapshotReport {
    /// Path of the disk, for people.
    pub disk: String,
    /// Whether anything was written.
    pub changed: bool,
    /// The snapshots, at most one in each slot.
    pub snapshots: Vec<SnapshotStatus>,
    /// The contents of the snapshot (`show`), or the changes (`restore`).
    pub entries: Vec<SnapshotEntry>,
    /// The state now, as a sentence.
    pub result: Option<String>,
}

/// The snapshot in a slot.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SnapshotStatus {
    /// The slot that it lies in, whose system it belongs to.
    pub slot: Slot,
    /// Version of that system.
    pub version: Option<String>,
    /// When it was taken, UTC.
    pub taken: Option<String>,
    /// Number of files and links in it.
    pub files: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Digest of its content.
    pub sha256: Option<Sha256>,
    /// When it is put back, or why not.
    pub put_back: String,
    /// Its fault.
    pub problem: Option<String>,
}

impl SnapshotStatus {
    /// Of a slot, with nothing else known.
    pub const fn new(slot: Slot) -> Self {
        SnapshotStatus {
            slot,
            version: None,
            taken: None,
            files: 0,
            bytes: 0,
            sha256: None,
            put_back: String::new(),
            problem: None,
        }
    }

    /// Without the name of the slot.
    pub fn text(&self) -> String {
        match (&self.taken, &self.problem) {
            (None, Some(problem)) => return format!("DAMAGED: {problem}"),
            (None, None) => return self.put_back.clone(),
            _ => {}
        }
        let version = self.version.as_deref().unwrap_or("(no version)");
        let taken = self.taken.as_deref().unwrap_or("?");
        let files = if self.files == 1 { "file" } else { "files" };
        let what = format!("{} {files}, {}, of {version}, taken {taken}", self.files, approx(self.bytes));
        match &self.problem {
            Some(problem) => format!("{what}; DAMAGED: {problem}"),
            None => format!("{what}; put back: {}", self.put_back),
        }
    }
}

/// A file, directory, link or tag.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SnapshotEntry {
    /// Its kind: `file`, `directory`, `link`, `tag`, `missing` (it was declared and not there); in a restore `put` or
    /// `removed`.
    pub what: String,
    /// Absolute path, or the key of a META tag.
    pub path: String,
    /// Bytes of a file, a link or a tag.
    pub bytes: u64,
}

impl SnapshotEntry {
    fn new(what: &str, path: String, bytes: usize) -> Self {
        SnapshotEntry { what: what.to_owned(), path, bytes: bytes as u64 }
    }

    /// All that is in a snapshot.
    pub fn all(content: &Content) -> Vec<SnapshotEntry> {
        let nodes = content.nodes.iter().map(|(path, node)| match &node.kind {
            NodeKind::File(bytes) => SnapshotEntry::new("file", shown(path), bytes.len()),
            NodeKind::Directory => SnapshotEntry::new("directory", shown(path), 0),
            NodeKind::Link(target) => SnapshotEntry::new("link", shown(path), target.len()),
        });
        let missing = content.paths.iter().filter(|path| !content.nodes.contains_key(path.as_bytes()));
        let missing = missing.map(|path| SnapshotEntry::new("missing", printable(path), 0));
        let tags = content.meta.iter().map(|(key, value)| match value {
            Some(value) => SnapshotEntry::new("tag", format!("{key:#04x}"), value.len()),
            None => SnapshotEntry::new("missing", format!("{key:#04x}"), 0),
        });
        nodes.chain(missing).chain(tags).collect()
    }

    /// The changes that turn `there` into `wanted`.
    pub fn changes(wanted: &Content, there: &Content) -> Vec<SnapshotEntry> {
        let of = |change: &Change| {
            let what = if matches!(change, Change::Put(_)) { "put" } else { "removed" };
            SnapshotEntry::new(what, Self::path(change), 0)
        };
        let tags = wanted.tags_of(there).into_iter().map(|(key, value)| {
            let (what, bytes) = value.map_or(("removed", 0), |value| ("put", value.len()));
            SnapshotEntry::new(what, format!("{key:#04x}"), bytes)
        });
        wanted.changes_of(there).iter().map(of).chain(tags).collect()
    }

    /// The path of a change, for people.
    pub fn path(change: &Change) -> String {
        let (Change::Put(path) | Change::Remove(path)) = change;
        shown(path)
    }
}

fn shown(path: &[u8]) -> String {
    printable(&String::from_utf8_lossy(path))
}

impl SnapshotReport {
    /// Of a disk, with nothing in it.
    pub fn empty(disk: &str) -> Self {
        SnapshotReport { disk: disk.to_owned(), changed: false, snapshots: vec![], entries: vec![], result: None }
    }

    /// Whether a snapshot is damaged.
    pub fn is_bad(&self) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.problem.is_some())
    }
}

impl fmt::Display for SnapshotReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshots = self.snapshots.iter().map(|found| format!("slot {}: {}", found.slot, found.text()));
        let entries = self.entries.iter().map(|entry| format!("  {:<9} {}", entry.what, entry.path));
        let result = self.result.iter().map(|result| match self.changed {
            true => format!("restore: {result}"),
            false => format!("nothing to do: {result}"),
        });
        // Once it is put back, what was changed says more than the state of the snapshots.
        let mut lines: Vec<String> = if self.changed { vec![] } else { snapshots.collect() };
        lines.extend(entries);
        lines.extend(result);
        if lines.is_empty() {
            lines.push("no slot has a snapshot".to_owned());
        }
        f.write_str(&lines.join("\n"))
    }
}
