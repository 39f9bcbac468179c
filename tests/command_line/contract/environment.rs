//! 3: environment variables.

use std::io::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::INPUT,
    world::{Outcome, World, installer, json_of},
};

use super::{CONFIG, install, planned_cmdline};

const META: &str = "INSTALLER_META_BASE64";
const UKI: &str = "INSTALLER_GRUB_USE_UKI_CMDLINE";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// META after an install with these values in the environment.
#[track_caller]
fn meta_after(world: &World, value: &str, extra: &[&str]) -> Value {
    let image = world.image();
    let args = [&["--format-data=false", "--force"], extra].concat();
    Outcome::of(install(world, &image, &args).env(META, value)).succeeds();
    json_of(&image, &["status"])["meta"].clone()
}

/// 3.1
#[test]
fn meta_values_plain_and_gzipped() {
    let world = World::new();
    let text = b"0xa=network: {};0x0c=a=b";
    let expected = json!({ "0x0a": "network: {}", "0x0c": "a=b" });
    assert_eq!(meta_after(&world, &BASE64_STANDARD.encode(text), &[]), expected);
    assert_eq!(meta_after(&world, &BASE64_STANDARD.encode(gzip(text)), &[]), expected);
    assert_eq!(meta_after(&world, "", &[]), json!({}));
}

/// 3.2
#[test]
fn the_first_meta_argument_replaces_those_of_the_environment() {
    let world = World::new();
    let value = BASE64_STANDARD.encode("0xa=env;0xb=env");
    assert_eq!(
        meta_after(&world, &value, &["--meta", "0xb=cli", "--meta=12=cli"]),
        json!({ "0x0b": "cli", "0x0c": "cli" })
    );
}

/// 3.3
#[test]
fn bad_data_exits_2_even_for_help() {
    let bomb = BASE64_STANDARD.encode(gzip(&vec![b'a'; 64 << 20]));
    for (name, value, text) in [
        (META, "%", "not base64"),
        (META, &BASE64_STANDARD.encode("10"), "write KEY=VALUE"),
        (META, &BASE64_STANDARD.encode("0x1ff=a"), "META key"),
        (META, &BASE64_STANDARD.encode(&gzip(b"0xa=b")[..14]), "not gzip data"),
        (META, &bomb, "more than 1048576 bytes when unpacked"),
        (UKI, "maybe", "neither true nor false"),
        (UKI, "", "neither true nor false"),
    ] {
        for args in [&["--help"][..], &["install", "--help"], &["status", "--disk=/nosuch"]] {
            Outcome::of(installer(args).env(name, value)).exits(INPUT).says(&[name, text]);
        }
    }
}

/// 3.4
#[test]
fn the_payloads_cmdline_stands_alone_when_the_environment_says_so() {
    let world = World::new();
    let image = world.image();
    let args = ["--dry-run", "--output=json", "--platform=aws", "--config=none", "--extra-kernel-arg=extra=1"];
    let cmdline =
        |value: &str| planned_cmdline(Outcome::of(install(&world, &image, &args).env(UKI, value).write_stdin(CONFIG)));
    world.payload.write("cmdline", "talos.platform=metal own=1\n");
    for yes in ["1", "t", "T", "true", "TRUE", "True"] {
        assert_eq!(cmdline(yes), "talos.platform=metal own=1", "{yes}");
    }
    for no in ["0", "f", "F", "false", "FALSE", "False"] {
        let cmdline = cmdline(no);
        assert!(cmdline.ends_with("own=1 extra=1") && cmdline.contains("talos.config=none"), "{no}: {cmdline}");
    }
    // What has no effect then is said, and what is missing too.
    let noted = Outcome::of(install(&world, &image, &args).env(UKI, "true")).succeeds();
    assert!(noted.stderr.contains("so these have no effect: --platform=aws extra=1"), "{}", noted.stderr);
    world.payload.remove("cmdline");
    let fallen_back = Outcome::of(install(&world, &image, &args).env(UKI, "true")).succeeds();
    assert!(fallen_back.stderr.contains("no cmdline file to use alone"), "{}", fallen_back.stderr);
    assert!(planned_cmdline(fallen_back).ends_with(" extra=1"));
}
