//! Container images made to do harm, and damaged ones: each is refused, with the exit code and the words of its row, the
//! running slot boots next, the other is empty, and META is as it was.

mod archives;
mod checksums;
mod documents;
mod layers;

use std::{fs, io::Write as _, os::unix::fs::symlink, path::Path};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use slipway_core::{digest::Sha256, units::MIB};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    images::{CHECKSUM_FILES, DIR, Image, Layer, Layout, Pack, Tar, descriptor, dirs, files, layer},
    world::{Content, Node, Outcome, World, installer, json_of, on_disk},
};
use tar::EntryType;

/// The start of a case.
struct Case<'w> {
    files: &'w [(String, Vec<u8>)],
    layout: Layout,
}

impl Case<'_> {
    /// All files of the payload and its checksums.
    fn tar(&self) -> Tar {
        self.tar_without("")
    }

    fn tar_without(&self, name: &str) -> Tar {
        let rest = self.files.iter().filter(|(n, _)| n != name);
        rest.fold(dirs(), |tar, (name, bytes)| tar.file(&format!("{DIR}/{name}"), bytes))
    }

    /// One layer.
    fn image(&self, tar: Tar) {
        self.layers(vec![Layer::new(tar.end(), Pack::Gzip)]);
    }

    fn layers(&self, layers: Vec<Layer>) {
        Image::new(layers).write(&self.layout, "1");
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.files.iter().find(|(n, _)| n == name).unwrap().1
    }

    /// One layer, plain, with its blob or descriptor spoiled afterwards.
    fn spoiled(&self, pack: Pack, spoil: impl FnOnce(&mut Layer)) {
        let mut layer = Layer::new(self.tar().end(), pack);
        spoil(&mut layer);
        self.layers(vec![layer]);
    }

    /// The checksums in a layer of its own, on one of the payload.
    fn listed_apart(&self, edit: impl Fn(&str, &[u8]) -> Vec<u8>) {
        let edited: Vec<_> = self.files.iter().map(|(n, bytes)| (n.clone(), edit(n, bytes))).collect();
        let copied: Vec<_> = edited.iter().map(|(n, _)| n.as_str()).filter(|n| !CHECKSUM_FILES.contains(n)).collect();
        self.layers(vec![layer(&edited, &copied, Pack::Gzip), layer(&edited, &CHECKSUM_FILES, Pack::Gzip)]);
    }
}

type Make = fn(&Case);

/// Name, exit code, words of the refusal, how the image is made.
type Row = (&'static str, i32, &'static [&'static str], Make);

const KERNEL: &str = "usr/install/amd64/vmlinuz";

/// Run an upgrade from every image of a table.
#[track_caller]
fn all_refused(table: &[Row]) {
    let world = World::new();
    let node = Node::installed(&world);
    Outcome::of(&mut installer(["checksum", node.next.dir().to_str().unwrap(), "--progress=none"])).succeeds();
    let files = files(node.next.dir());
    let mut wrong = Vec::new();
    for (n, (name, code, words, make)) in table.iter().enumerate() {
        let case = Case { files: &files, layout: Layout::new(&world.path(&format!("layout-{n}"))) };
        make(&case);
        let before = Content::of(&node.disk);
        let outcome = node.run('A', false, &["upgrade", "--progress=none", "--source", &case.layout.source()]);
        let missing: Vec<_> = words.iter().filter(|w| !outcome.stderr.contains(**w)).collect();
        if outcome.code != *code || !missing.is_empty() {
            wrong.push(format!(
                "{name}: exit code {} (not {code}), without {missing:?}: {}",
                outcome.code, outcome.stderr
            ));
        }
        if outcome.code == INPUT && Content::of(&node.disk) != before {
            wrong.push(format!("{name}: written to"));
        }
        wrong.extend(harm(&node.disk).map(|harm| format!("{name}: {harm}")));
        fs::remove_dir_all(&case.layout.0).unwrap();
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

/// The law that is broken; nothing if none is, whatever the image was.
fn harm(disk: &Path) -> Option<String> {
    let status = json_of(disk, &["status"]);
    let next = &status["next_boot"];
    if (&next["slot"], &next["trial"]) != (&json!("A"), &json!(false)) {
        return Some(format!("the next boot is {next}"));
    }
    if status["slots"]["B"]["state"] != "empty" || status["meta"] != json!({}) {
        return Some(format!("slot B or META: {status}"));
    }
    let verify = on_disk(disk, &["verify", "--progress=none"]);
    (!verify.stdout.contains("slot A")).then(|| format!("verify says {}", verify.stdout))
}

#[test]
fn hostile_archives() {
    all_refused(archives::ROWS);
}

#[test]
fn hostile_layers() {
    all_refused(layers::ROWS);
}

#[test]
fn hostile_documents() {
    all_refused(documents::ROWS);
}

#[test]
fn hostile_checksums() {
    all_refused(checksums::ROWS);
}
