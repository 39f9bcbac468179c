//! `meta`: tags set, read and deleted.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use serde_json::{Value, json};
use slipway_core::units::MIB;
use slipway_test_support::world::{Content, Loop, World, flip, json_of, on_disk, partition, tool, write_at};

#[test]
fn meta_set_and_delete_keep_other_tags() {
    let world = World::new();
    let image = world.installed(&["--meta=6=A", "--meta=0x0a=version: 1"]);
    let tags = || {
        let report = json_of(&image, &["meta", "list"]);
        assert_eq!((&report["changed"], &report["copies_valid"]), (&json!(false), &json!([true, true])));
        let tag = |tag: &Value| (tag["key"].as_str().unwrap().to_owned(), tag["value"].as_str().unwrap().to_owned());
        report["tags"].as_array().unwrap().iter().map(tag).collect::<Vec<_>>()
    };
    let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Vec<_>>();
    let changed = |args: &[&str]| json_of(&image, args)["changed"].as_bool().unwrap();
    let outside = || Content::of(&without_meta(&world, &image));
    let before = outside();

    assert_eq!(tags(), pairs(&[("0x06", "A"), ("0x0a", "version: 1")]));
    assert!(changed(&["meta", "set", "0x0b=https://x/?a=b"]));
    assert_eq!(tags(), pairs(&[("0x06", "A"), ("0x0a", "version: 1"), ("0x0b", "https://x/?a=b")]));
    assert!(changed(&["meta", "set", "10=2"]));
    assert_eq!(tags(), pairs(&[("0x06", "A"), ("0x0a", "2"), ("0x0b", "https://x/?a=b")]));
    assert!(changed(&["meta", "delete", "6"]));
    assert_eq!(tags(), pairs(&[("0x0a", "2"), ("0x0b", "https://x/?a=b")]));

    let said = |args: &[&str]| on_disk(&image, args).succeeds().stdout;
    assert!(changed(&["meta", "set", "0x0c=x"]));
    assert_eq!(said(&["meta", "delete", "0x0c"]), "0x0c is deleted\n");
    assert_eq!(said(&["meta", "delete", "0x0c"]), "there is no tag 0x0c\n");

    // Nothing to do is done without a write.
    let quiet = Content::of(&image);
    assert!(!changed(&["meta", "set", "0x0a=2"]));
    assert!(!changed(&["meta", "delete", "6"]));
    assert!(Content::of(&image) == quiet);

    assert!(outside() == before, "something outside of META changed");
    on_disk(&image, &["verify"]).succeeds();
}

/// A copy of the disk with META cut out.
fn without_meta(world: &World, image: &Path) -> std::path::PathBuf {
    let copy = world.path("copy.img");
    tool!("cp", "--sparse=always", image, &copy);
    write_at(&copy, partition(&copy, "META").offset, &vec![0; MIB as usize]);
    copy
}

#[test]
fn meta_get_prints_the_bare_value() {
    let world = World::new();
    let image = world.installed(&["--meta=10=a=b c", "--meta=11="]);
    for key in ["10", "0x0a", "0xA", "012", "0b1010"] {
        assert_eq!(on_disk(&image, &["meta", "get", key]).succeeds().stdout, "a=b c\n", "{key}");
    }
    assert_eq!(on_disk(&image, &["meta", "get", "11"]).succeeds().stdout, "\n");
    let tag = &json_of(&image, &["meta", "get", "10"])["tags"][0];
    assert_eq!(tag, &json!({"key": "0x0a", "value": "a=b c", "hex": "613d622063", "legacy": false}));
    on_disk(&image, &["meta", "get", "12"]).exits(2).says(&["META has no tag 0x0c"]);
    for key in ["0", "256", "x"] {
        for verb in ["get", "delete"] {
            on_disk(&image, &["meta", verb, key]).exits(2).says(&[&format!("META key {key:?}"), "1 to 255"]);
        }
    }
    let list = on_disk(&image, &["meta", "list"]).succeeds().stdout;
    assert_eq!(list, "0x0a=a=b c\n0x0b=\n");
    assert_eq!(on_disk(&world.installed(&[]), &["meta", "list"]).succeeds().stdout, "no tags\n");
}

/// One good copy is enough to read, and the next change makes two of it.
#[test]
fn meta_heals_a_damaged_copy() {
    let world = World::new();
    let image = world.installed(&["--meta=10=x"]);
    let meta = partition(&image, "META").offset;
    for (copy, valid) in [(0, [false, true]), (262_144, [true, false])] {
        flip(&image, meta + copy + 100);
        let report = json_of(&image, &["meta", "get", "10"]);
        assert_eq!((&report["copies_valid"], &report["tags"][0]["value"]), (&json!(valid), &json!("x")));
        // Even to set what is there already is a change then.
        let report = json_of(&image, &["meta", "set", "10=x"]);
        assert_eq!((&report["changed"], &report["copies_valid"]), (&json!(true), &json!([true, true])));
    }
}

/// Who reads META does so through the partition's node, which has a page cache of its own.
#[test]
fn meta_set_is_seen_through_the_partitions_node() {
    let world = World::new();
    let image = world.installed(&["--meta=10=old"]);
    let meta = partition(&image, "META");
    let disk = Loop::attach(&image, &[]);
    let node = disk.partition(5, meta);
    // Open all the time, as by a process that watches it: a cache goes when the last one closes.
    let reader = fs::File::open(&node.node).unwrap();
    let value = || {
        let mut value = [0; 3];
        reader.read_exact_at(&mut value, 12).unwrap();
        value
    };
    assert_eq!(value(), *b"old");
    on_disk(&disk.node, &["meta", "set", "10=new"]).succeeds();
    assert_eq!(value(), *b"new");
}
