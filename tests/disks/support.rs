//! `support`: what is in the archive, that no secret is, and that nothing is asked for in vain.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::Value;
use slipway_test_support::{
    support_archive::{missing, of_file},
    world::{Content, Node, World, on_disk},
};

/// A word that stands for every secret.
const SECRET: &str = "HUSH";

#[test]
fn it_has_what_the_disk_says_and_no_secret() {
    let world = World::new();
    let node = Node::installed(&world);
    on_disk(&node.disk, &["meta", "set", &format!("0x0a={SECRET}")]).succeeds();
    let why = format!("--reason=https://user:{SECRET}@registry.example answers 401, token={SECRET}");
    node.upgrade().succeeds();
    node.run('A', false, &["rollback", &why]).succeeds();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tar.gz");
    let before = Content::of(&node.disk);
    let told = on_disk(&node.disk, &["support", path.to_str().unwrap(), "--output=json"]).succeeds().json();
    assert!(Content::of(&node.disk) == before, "it writes nothing to the disk");
    let files = of_file(&path);
    assert_eq!(told["files"], files.len() - 1, "{told}");
    for verb in ["status", "history", "inspect", "verify"] {
        for form in ["txt", "json"] {
            assert!(files.contains_key(&format!("disk/{verb}.{form}")), "{:?}", files.keys());
        }
    }
    let history: Value = serde_json::from_str(&files["disk/history.json"]).unwrap();
    let reason = "https://[removed]@registry.example answers 401, token=[removed]";
    assert_eq!((&history["report"], &history["entries"][0]["reason"]), (&"history".into(), &reason.into()));
    assert!(files["disk/meta.txt"].contains("0x0a: 4 bytes\n"), "{}", files["disk/meta.txt"]);
    assert!(files["machine/cmdline.txt"].len() > 1 && files["machine/kernel.txt"].starts_with("Linux version "));
    for (name, text) in &files {
        assert!(!text.contains(SECRET), "{name}: {text}");
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    on_disk(&node.disk, &["support", path.to_str().unwrap()]).exits(2).says(&["is not overwritten"]);
}

#[test]
fn what_cannot_be_collected_is_named_and_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("blank.raw");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let path = dir.path().join("a.tar.gz");
    on_disk(&disk, &["support", path.to_str().unwrap()]).succeeds();
    let blank = of_file(&path);
    for part in ["disk/status", "disk/history", "disk/verify"] {
        assert!(missing(&blank).keys().any(|what| what == part), "{:?}", missing(&blank));
    }
    assert!(blank.contains_key("machine/cmdline.txt"));
    // No disk at all.
    let path = dir.path().join("b.tar.gz");
    on_disk(&dir.path().join("none"), &["support", path.to_str().unwrap()]).succeeds();
    let none = of_file(&path);
    assert!(missing(&none).keys().any(|what| what.starts_with("disk")), "{:?}", missing(&none));
}
