//! The same inputs, the same bytes.

use std::{fs, os::unix::fs::MetadataExt as _, thread, time::Duration};

use slipway_test_support::{
    files,
    world::{NOBODY, Nobody, Outcome, Payload, World, noise, tool},
};

use super::{KINDS, as_nobody, command, made};

/// In another directory, at another time, as another user, who has no rights but a configuration of his own, in another
/// time zone; the payload lies somewhere else.
#[test]
fn the_same_inputs_make_the_same_bytes() {
    let world = World::new();
    let nobody = Nobody::new(&world);
    let home = &nobody.home;
    // Written in another order: other inode numbers.
    fs::create_dir(home.join("payload")).unwrap();
    for name in ["vmlinuz", "rootfs.squashfs", "os-release", "initramfs.xz"] {
        fs::copy(world.payload.path(name), home.join("payload").join(name)).unwrap();
    }
    tool!("chown", "-R", "65534:65534", home.join("payload"));
    fs::write(home.join(".xorrisorc"), "-volid OTHER\n-no_such_command\n").unwrap();
    for kind in KINDS {
        let (first, _) = made(&world, kind, &format!("live.{kind}"), &[]);
        thread::sleep(Duration::from_millis(2100));
        let second = home.join(format!("other.{kind}"));
        Outcome::of(&mut as_nobody(&nobody, &home.join("payload"), kind, &second)).succeeds();
        assert_eq!(fs::metadata(&second).unwrap().uid(), NOBODY);
        tool!("cmp", &first, &second);
    }
}

#[test]
fn other_inputs_make_another_medium() {
    let world = World::new();
    let id = |kind: &str, name: &str, extra: &[&str]| {
        let (_, report) = made(&world, kind, name, extra);
        let id = report["medium"].as_str().unwrap().to_owned();
        assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{id}");
        id
    };
    let mut all = vec![
        id("iso", "1", &[]),
        id("pxe", "2", &[]),
        id("iso", "3", &["--extra-kernel-arg=quiet"]),
        id("iso", "4", &["--seed=one"]),
        id("iso", "5", &["--seed=two"]),
    ];
    world.payload.write(Payload::ROOTFS, files::squashfs(noise(9, 70_004)));
    all.push(id("iso", "6", &[]));
    assert_eq!(id("iso", "7", &[]), all[5]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "{all:?}");
}

#[test]
fn source_date_epoch_is_the_time() {
    let world = World::new();
    let out = world.path("live.iso");
    Outcome::of(command(&world, "iso", &out, &[]).env("SOURCE_DATE_EPOCH", "1600000000")).succeeds();
    let listed = tool!("xorriso", "-no_rc", "-indev", &out, "-find", "/boot", "-exec", "lsdl", "--");
    assert_eq!(listed.matches("Sep 13  2020").count(), listed.lines().count(), "{listed}");
    let volume = tool!("xorriso", "-no_rc", "-indev", &out, "-pvd_info");
    assert!(volume.contains("Creation Time: 2020091312264000"), "{volume}");
    // xorriso itself takes 0 for the time of day.
    Outcome::of(command(&world, "iso", &out, &["--force"]).env("SOURCE_DATE_EPOCH", "0")).succeeds();
    let listed = tool!("xorriso", "-no_rc", "-indev", &out, "-find", "/boot", "-exec", "lsdl", "--");
    let then = [" 1969 ", " 1970 "].map(|year| listed.matches(year).count());
    assert_eq!(then.iter().sum::<usize>(), listed.lines().count(), "{listed}");
}
