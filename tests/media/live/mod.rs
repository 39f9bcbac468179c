//! `installer image --kind iso|pxe`: live media, judged by the tools of their formats, the same bytes from the same
//! inputs, and everything that must be refused. That they start machines: `vm-tests/live.rs`.

mod made;
mod refused;
mod same_bytes;
mod signed;

use std::{
    fs,
    path::{Path, PathBuf},
};

use assert_cmd::Command;
use slipway_test_support::{
    images::{self},
    world::{Nobody, Outcome, Payload, Range, World, installer, tool},
};

const KINDS: [&str; 2] = ["iso", "pxe"];

fn command(world: &World, kind: &str, out: &Path, extra: &[&str]) -> Command {
    let mut command = installer(["image", "--progress=none", "--output=json", "--kind", kind, "--out"]);
    command.arg(out).args(extra).env_remove("SOURCE_DATE_EPOCH");
    if !extra.iter().any(|arg| arg.starts_with("--source")) {
        command.arg(format!("--source={}", world.payload.source()));
    }
    command
}

fn live(world: &World, kind: &str, out: &Path, extra: &[&str]) -> Outcome {
    Outcome::of(&mut command(world, kind, out, extra))
}

/// A medium and what the program says of it.
#[track_caller]
fn made(world: &World, kind: &str, name: &str, extra: &[&str]) -> (PathBuf, serde_json::Value) {
    let out = world.path(name);
    let report = live(world, kind, &out, extra).succeeds().json();
    (out, report)
}

fn checksum(world: &World) {
    world.payload.checksum().succeeds();
}

/// The second partition of a disk, by sgdisk.
fn second_partition(disk: &Path) -> Range {
    let told = tool!("sgdisk", "--info=2", disk);
    assert!(told.contains("(EFI system partition)"), "{told}");
    let number = |key: &str| -> u64 {
        let line = told.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    Range { offset: number("First sector: ") * 512, len: number("Partition size: ") * 512 }
}

/// The files of an ISO, by xorriso.
fn unpacked_iso(world: &World, iso: &Path) -> PathBuf {
    let dir = world.path("unpacked-iso");
    tool!("xorriso", "-no_rc", "-osirrox", "on", "-indev", iso, "-extract", "/boot", &dir);
    dir
}

/// The files of the archive behind the payload's own initramfs, by cpio.
fn unpacked_initramfs(world: &World, initramfs: &Path) -> PathBuf {
    let own = world.payload.read(Payload::INITRAMFS);
    let bytes = fs::read(initramfs).unwrap();
    assert!(bytes.starts_with(&own), "the payload's initramfs is not the first");
    let (zeros, behind) = bytes[own.len()..].split_at((own.len() + 4).next_multiple_of(4) - own.len());
    assert!(zeros.iter().all(|byte| *byte == 0) && behind.starts_with(b"070701"));
    let (archive, dir) = (world.path("cpio"), world.path("unpacked-cpio"));
    fs::write(&archive, behind).unwrap();
    fs::create_dir(&dir).unwrap();
    tool!("sh", "-c", r#"cd "$1" && cpio --quiet --extract --make-directories <"$0""#, &archive, &dir);
    dir
}

/// Everything of the payload is in this directory, listed, and nothing else.
fn assert_listed_payload(world: &World, dir: &Path, cmdline: bool) {
    let mut expected = vec!["SHA256SUMS", "initramfs.xz", "manifest.json", "os-release", "rootfs.squashfs", "vmlinuz"];
    if cmdline {
        expected.insert(1, "cmdline");
    }
    assert_eq!(tool!("ls", "-A", dir), expected.join("\n") + "\n");
    tool!("sh", "-c", r#"cd "$0" && sha256sum --check --strict --quiet SHA256SUMS"#, dir);
    for name in expected.iter().filter(|name| world.payload.path(name).exists()) {
        if !images::CHECKSUM_FILES.contains(name) {
            assert!(fs::read(dir.join(name)).unwrap() == world.payload.read(name), "{name}");
        }
    }
    let source = format!("dir:{}", dir.display());
    let report = Outcome::of(&mut installer(["inspect", "--output=json", "--strict", &source])).succeeds().json();
    assert_eq!((report["checksums"].as_bool(), report["version"].as_str()), (Some(true), Some("1.2.3")), "{report}");
}

fn as_nobody(nobody: &Nobody, payload: &Path, kind: &str, out: &Path) -> Command {
    let mut command = nobody.installer();
    command.args(["image", "--progress=none", "--kind", kind, "--out"]).arg(out);
    command.arg(format!("--source=dir:{}", payload.display()));
    command
}
