//! Text from outside with what a terminal would obey: escape sequences, and line breaks that begin a line like one of
//! ours. People see escapes, JSON has its own, and a disk with such text on it stays usable.

use std::fs;

use serde_json::json;
use slipway_core::digest::Sha256;
use slipway_test_support::{
    exit_code::INPUT,
    images::{Layout, Pack, built},
    world::{
        Node, Outcome, Payload, World, installer, installer_path, json_of, on_disk, partition, program, read_at,
        write_at,
    },
};

const HOSTILE: &str = "1\u{1b}[31m\nerror: fake\u{9b}2J";
const SHOWN: &str = "1\\x1b[31m\\nerror: fake\\u{9b}2J";

/// Neither stream has anything that a terminal obeys, and no line begins as one of ours would.
#[track_caller]
fn harmless(outcome: &Outcome) {
    for text in [&outcome.stdout, &outcome.stderr] {
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error: fake")), "{text}");
    }
}

#[test]
fn a_version_is_refused() {
    for os_release in ["VERSION_ID=\"1\x1b[31m\"\n", "VERSION_ID=\"1\rx\"\n", "VERSION_ID=1\u{9b}2J\n"] {
        let world = World::new();
        world.payload.write("os-release", os_release);
        let image = world.image();
        let dir = world.payload.dir().to_str().unwrap();
        for outcome in [
            world.install(&image, &[]),
            Outcome::of(&mut installer(["inspect", &world.payload.source()])),
            Outcome::of(&mut installer(["checksum", dir])),
        ] {
            let outcome = outcome.exits(INPUT).says(&["os-release: its VERSION_ID has control characters in it"]);
            harmless(&outcome);
        }
    }
    // An editor's line ends are none of it.
    let world = World::new();
    world.payload.write("os-release", "ID=x\r\nVERSION_ID=1.2\r\n");
    Outcome::of(&mut installer(["inspect", &world.payload.source()])).succeeds();
}

/// A manifest as JSON can have any text in it.
#[test]
fn a_manifest_in_an_image_is_refused() {
    let world = World::new();
    world.payload.checksum().succeeds();
    type Edit = fn(&mut serde_json::Value);
    let edits: [(Edit, &str); 2] = [
        (|m| m["version"] = json!(HOSTILE), "manifest.json: its version has control characters in it"),
        (|m| m[HOSTILE] = json!(1), "manifest.json: unknown field `1\\x1b[31m\\nerror: fake"),
    ];
    for (n, (edit, text)) in edits.into_iter().enumerate() {
        let mut manifest = serde_json::from_slice(&world.payload.read("manifest.json")).unwrap();
        edit(&mut manifest);
        world.payload.write("manifest.json", manifest.to_string());
        world.payload.write_sums(&[&Payload::LISTED[..], &["manifest.json"]].concat());
        let layout = Layout::new(&world.path(&format!("image-{n}")));
        built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
        let image = world.image();
        let source = format!("--source={}", layout.source());
        let outcome = world.install(&image, &[&source]).exits(INPUT).says(&[text]);
        harmless(&outcome);
    }
}

#[test]
fn the_documents_of_an_image() {
    let world = World::new();
    let layout = Layout::new(&world.path("image"));
    let mut image = built(world.payload.dir(), Pack::Gzip);
    image.edit_config = |config| config["architecture"] = json!(HOSTILE);
    image.write(&layout, HOSTILE);
    for source in [layout.source(), format!("{}:2", layout.source())] {
        let outcome = Outcome::of(&mut installer(["inspect", &source]));
        assert_ne!(outcome.code, 0);
        assert!(outcome.stderr.contains("error: fake"), "the text is not shown at all: {}", outcome.stderr);
        harmless(&outcome);
    }
}

/// A slot may hold such a version: earlier installers took it. It is the way back.
#[test]
fn a_version_on_the_disk_is_shown_with_escapes() {
    let world = World::new();
    world.payload.write("os-release", "VERSION_ID=1.2.3-0123456789abcdefghij\n");
    let node = Node::installed(&world);
    let at = node.file("A", "manifest.json");
    let manifest = String::from_utf8(read_at(&node.disk, at, 2000)).unwrap();
    let manifest = &manifest[..manifest.find("\n}\n").unwrap() + 3];
    // As many bytes as before.
    let hostile = manifest.replace("1.2.3-0123456789abcdefghij", "1.2.3\\u001b[31m\\n e: fake!");
    assert_eq!(hostile.len(), manifest.len());
    write_at(&node.disk, at, hostile.as_bytes());
    // The list of checksums says so, too, as if it had been installed.
    let (old, new) = (Sha256::of(manifest.as_bytes()), Sha256::of(hostile.as_bytes()));
    let slot = partition(&node.disk, "BOOT-A").offset;
    let head = read_at(&node.disk, slot, 8 << 20);
    let line = format!("{old}  manifest.json");
    let sums = head.windows(line.len()).position(|bytes| bytes == line.as_bytes()).unwrap();
    write_at(&node.disk, slot + sums as u64, new.to_string().as_bytes());

    let outcome = on_disk(&node.disk, &["status"]).succeeds();
    assert!(outcome.stdout.contains("slot A     1.2.3\\x1b[31m\\n e: fake!, good"), "{}", outcome.stdout);
    harmless(&outcome);
    assert_eq!(json_of(&node.disk, &["status"])["slots"]["A"]["version"], "1.2.3\\x1b[31m\\n e: fake!");
    on_disk(&node.disk, &["verify"]).succeeds();
    harmless(&Outcome::of(installer(["inspect"]).arg(&node.disk)).succeeds());
    // On to another version, and back to this one.
    let outcome = node.upgrade_with(&["--allow-any-version"]).succeeds();
    harmless(&outcome);
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    let outcome = node.run('B', false, &["rollback"]).succeeds();
    assert!(outcome.stdout.contains("slot A, 1.2.3\\x1b[31m\\n e: fake!, is the default"), "{}", outcome.stdout);
    harmless(&outcome);
}

#[test]
fn values_of_meta() {
    let world = World::new();
    let image = world.installed(&[]);
    on_disk(&image, &["meta", "set", &format!("0x0a={HOSTILE}")]).succeeds();
    for verb in [&["meta", "list"][..], &["status", "--verbose"]] {
        let outcome = on_disk(&image, verb).succeeds();
        assert!(outcome.stdout.contains(SHOWN), "{}", outcome.stdout);
        harmless(&outcome);
    }
    // A script gets the value; a terminal does not obey it, and shows its lines.
    let outcome = on_disk(&image, &["meta", "get", "0x0a"]).succeeds();
    assert_eq!(outcome.stdout, format!("{HOSTILE}\n"));
    let command = format!("{} meta get 0x0a --disk {}", installer_path().display(), image.display());
    let terminal =
        program("script").args(["--quiet", "--return", "--command", &command, "/dev/null"]).output().unwrap();
    let text = String::from_utf8(terminal.stdout).unwrap();
    assert_eq!(text.replace("\r\n", "\n"), "1\\x1b[31m\nerror: fake\\u{9b}2J\n");
    // JSON: nothing but text that every terminal shows.
    let outcome = on_disk(&image, &["meta", "get", "0x0a", "--output=json"]).succeeds();
    assert_eq!(outcome.json()["tags"][0]["value"], HOSTILE);
    harmless(&outcome);
}

/// What is in a message, in a note and in a progress line.
#[test]
fn names_of_files() {
    let world = World::new();
    let hostile = world.path("a\x1b[2J\u{9b}b");
    fs::rename(world.payload.dir(), &hostile).unwrap();
    let source = format!("--source=dir:{}", hostile.display());
    let image = world.image();
    for progress in ["plain", "bars", "json"] {
        let progress = format!("--progress={progress}");
        let outcome = world.install(&image, &["--force", &source, &progress]).succeeds();
        // Bars move the cursor themselves.
        if progress != "--progress=bars" {
            harmless(&outcome);
        }
        assert!(!outcome.stderr.contains("\x1b[2J"), "{}", outcome.stderr);
    }
    fs::remove_file(hostile.join(Payload::KERNEL)).unwrap();
    let outcome = world.install(&image, &["--force", &source]).exits(INPUT).says(&["a\\x1b[2J\\u{9b}b/vmlinuz"]);
    harmless(&outcome);
}
