//! Arguments.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use serde_json::json;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::{INPUT, OTHER},
    world::{IMAGE_BYTES, Outcome, Payload, World, installer, on_disk, refused, write_at},
};

/// Install with a wrong argument onto an empty image.
#[track_caller]
fn bad_argument(code: i32, flags: &[&str], texts: &[&str]) {
    let world = World::new();
    let image = world.image();
    refused(&image, code, texts, || world.install(&image, flags));
}

#[test]
fn unknown_flags_and_verbs() {
    bad_argument(OTHER, &["--nosuch"], &["--nosuch"]);
    bad_argument(OTHER, &["extra"], &["extra"]);
    Outcome::of(&mut installer(["nosuch"])).exits(OTHER).says(&["nosuch"]);
    Outcome::of(&mut installer(["meta", "nosuch"])).exits(OTHER).says(&["nosuch"]);
    Outcome::of(&mut installer::<&str>([])).exits(OTHER).says(&["Usage: installer"]);
}

/// clap has an error of no other kind for it, and does not say which argument it is.
#[test]
fn a_value_that_is_no_text_is_named() {
    let bad = |args: &[&[u8]]| {
        let args = args.iter().map(|arg| OsStr::from_bytes(arg));
        Outcome::of(installer(args).args(["--output=json"])).exits(INPUT)
    };
    for verb in [&b"install"[..], b"upgrade"] {
        bad(&[verb, b"--disk", b"/nosuch\xff", b"--meta", b"0x0a=\xff"])
            .says(&["error: --meta: the value is not UTF-8"]);
    }
    let document = bad(&[b"rollback", b"--reason=\xff"]).json();
    assert_eq!((&document["id"], &document["exit_code"]), (&json!("usage"), &json!(INPUT)));
    bad(&[b"meta", b"set", b"0x0a=\xff"]).says(&["error: \"0x0a=\u{fffd}\": the value is not UTF-8"]);
}

#[test]
fn a_disk_is_required() {
    // A machine config could name that of an install.
    Outcome::of(&mut installer(["install"])).exits(INPUT).says(&["no disk", "--disk", "machine config"]);
    // This machine was not booted by the boot rule.
    for verb in [
        "upgrade",
        "stage",
        "activate",
        "confirm",
        "rollback",
        "repair",
        "grow",
        "wipe STATE",
        "status",
        "verify",
        "inspect",
        "meta list",
        "meta get 10",
        "meta set 10=x",
        "meta delete 10",
        "install --upgrade",
    ] {
        let outcome = Outcome::of(&mut installer(verb.split(' '))).exits(INPUT);
        let way = if verb == "inspect" { "the disk, as in `installer inspect PATH`" } else { "--disk PATH" };
        let remedy = format!("give {way}; `lsblk");
        outcome.says(&["slipway.disk= is not on the kernel command line", &remedy]);
        let report = Outcome::of(installer(verb.split(' ')).arg("--output=json")).exits(INPUT).json();
        assert_eq!(report["id"], "no-disk-given", "{verb}");
        assert!(report["remedy"].as_str().unwrap().starts_with(&remedy), "{verb}: {report}");
    }
    // clap would say how to name a file `--disk`.
    let outcome = Outcome::of(&mut installer(["inspect", "--disk", "disk.raw"])).exits(1);
    let outcome = outcome.says(&["hint: `installer inspect DISK` takes it without --disk"]);
    assert!(!outcome.stderr.contains("as a value, use"), "{}", outcome.stderr);
    Outcome::of(&mut installer(["wipe"])).exits(INPUT).says(&["required", "<VOLUMES>"]);
    Outcome::of(&mut installer(["image"])).exits(INPUT).says(&["required", "--out <FILE>"]);
}

#[test]
fn values_that_are_none() {
    bad_argument(INPUT, &["--platform=nosuch"], &["platform \"nosuch\" is not known", "metal", "aws"]);
    bad_argument(INPUT, &["--arch=vax"], &["vax", "amd64", "arm64"]);
    bad_argument(INPUT, &["--force=perhaps"], &["perhaps", "--force"]);
    bad_argument(INPUT, &["--sector-size=1024"], &["1024", "512 or 4096"]);
    bad_argument(INPUT, &["--sector-size=x"], &["--sector-size"]);
    bad_argument(INPUT, &["--lock-timeout=soon"], &["\"soon\" is not a number of seconds"]);
    bad_argument(INPUT, &["--lock-timeout=-1"], &["--lock-timeout"]);
    bad_argument(INPUT, &["--output=xml"], &["xml", "json"]);
    for source in ["tar:x", "nosuch", "dir:"] {
        bad_argument(
            INPUT,
            &[&format!("--source={source}")],
            &[&format!("{source:?} is not a source: write dir:PATH")],
        );
    }
}

/// Units log to the journal, and reports are sent to others.
#[test]
fn passwords_of_urls_are_not_shown() {
    for (args, says) in [
        (["inspect", "docker://me:secret@r.example/os:1"], "a user and a password are no part of it"),
        (["inspect", "https://me:secret@r.example/os:1"], "is not a source"),
        (["upgrade", "--source=docker://me:se/cret@r.example/os:1"], "--source"),
        (["pull", "docker://me:secret@r.example/os:1"], "[removed]@r.example"),
        (["inspect", "--mirror=r.example=https://me:secret@m.example"], "[removed]@m.example"),
        (["inspect", "--mirror=https://me:secret@m.example"], "is not a mirror"),
        // Without a scheme, with one that is wrong, and with what looks like a port.
        (["inspect", "--mirror=r.example=me:secret@m.example"], "[removed]@m.example"),
        (["inspect", "me:secret@r.example/os:1"], "is not a source"),
        (["inspect", "docker:me:secret@r.example/os:1"], "two slashes"),
        (["inspect", "oci://me:!secret@r.example/os"], "is not a tag or a name"),
        (["inspect", "docker://me:12/secret@r.example/os:1"], "[removed]@r.example"),
        (["upgrade", "--source=https://12/secret@r.example/os:1"], "is not a source"),
    ] {
        let outcome = Outcome::of(installer(args).args(["--output", "json"])).exits(INPUT).says(&[says]);
        for text in [&outcome.stdout, &outcome.stderr] {
            assert!(!text.contains("secret") && !text.contains("cret@"), "{args:?}: {text}");
        }
    }
}

#[test]
fn slot_sizes() {
    for size in ["x", "1.5GiB", "-1", "", "99999999TiB"] {
        bad_argument(INPUT, &[&format!("--slot-size={size}")], &["--slot-size"]);
    }
    for (size, text) in [("35MiB", "35 MiB"), ("67108865", "67108865 bytes"), ("33GiB", "33 GiB"), ("0", "0 bytes")] {
        let text = &format!("a slot of {text}");
        bad_argument(
            INPUT,
            &[&format!("--slot-size={size}")],
            &[text, "it has at least 36 MiB (FAT32 needs 65525 clusters)"],
        );
    }
    let texts = ["a slot of 259 MiB", "on a disk with 4096-byte sectors it has at least 260 MiB"];
    bad_argument(INPUT, &["--sector-size=4096", "--slot-size=259MiB"], &texts);
}

#[test]
fn meta_tags() {
    for key in ["0", "256", "x", "-1", "0x100", ""] {
        let texts = [&format!("META key {key:?}"), "from 1 to 255"];
        bad_argument(INPUT, &[&format!("--meta={key}=value")], &texts);
    }
    bad_argument(INPUT, &["--meta=10"], &["META tag \"10\"", "write KEY=VALUE"]);
}

/// A single argument is at most 128 KiB, so it takes a few to fill META.
#[test]
fn meta_values_that_do_not_fit() {
    let tags: Vec<String> = (1..=3).map(|key| format!("--meta={key}={}", "v".repeat(100_000))).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let need = 3 * (8 + 100_000);
    bad_argument(INPUT, &tags, &["META is full", &need.to_string(), "262104 fit"]);

    let world = World::new();
    let image = world.installed(&tags[..2]);
    let value = &tags[2]["--meta=".len()..];
    refused(&image, INPUT, &["META is full", &need.to_string()], || on_disk(&image, &["meta", "set", value]));
}

#[test]
fn kernel_arguments_grub_cannot_pass_on() {
    for arg in ["a=b'c", "a=b\\c", "a=b\"c\"d", "a=b\x07"] {
        let texts = ["kernel command line", &format!("{arg:?}"), "do not reach the kernel through GRUB"];
        bad_argument(INPUT, &["--extra-kernel-arg", arg], &texts);
    }
}

/// One byte more than the kernel takes is refused; exactly as many are not.
#[test]
fn kernel_arguments_that_are_too_long() {
    const MOST: usize = 1920;
    let world = World::new();
    let image = world.image();
    let cmdline = |flags: &[&str]| {
        let flags = [&["--dry-run", "--output=json", "--platform=metal"][..], flags].concat();
        let report = world.install(&image, &flags).succeeds().json();
        report["plan"]["system"]["cmdline"].as_str().unwrap().len()
    };
    let word = |len: usize| format!("x={}", "y".repeat(len - 2));
    let room = MOST - cmdline(&[]) - " ".len();
    assert_eq!(cmdline(&["--extra-kernel-arg", &word(room)]), MOST);
    let texts = ["kernel command line", &format!("{} bytes, at most {MOST}", MOST + 1)];
    let args = ["--platform=metal", "--extra-kernel-arg", &word(room + 1)];
    refused(&image, INPUT, &texts, || world.install(&image, &args));
}

/// All that is wrong is told at once, and what can be put right on the command line decides the exit code.
#[test]
fn several_reasons_at_once() {
    let world = World::new();
    let image = world.image();
    write_at(&image, IMAGE_BYTES - 1, &[1]);
    world.payload.resize(Payload::ROOTFS, 70 * MIB);
    let texts = ["nothing was written", "not empty", "does not fit into a slot", "META is full"];
    let tags: Vec<String> = (1..=3).map(|key| format!("--meta={key}={}", "v".repeat(100_000))).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    refused(&image, INPUT, &texts, || world.install(&image, &tags));
}

#[test]
fn one_of_two_ways_to_say_whom_to_trust() {
    let args = ["inspect", "dir:x", "--trust-key=k", "--trust-policy=p"];
    Outcome::of(&mut installer(args)).exits(1).says(&["cannot be used with"]);
}
