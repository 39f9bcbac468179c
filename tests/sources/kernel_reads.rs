//! The tables in `kernel_reads.md`: each row is run, and `installer checksum` says what the row says.

use std::{fs, path::Path};

use slipway_test_support::{
    exit_code::INPUT,
    files::{READS_ALL, configure, kernel},
    project,
    world::{Payload, World, finished_bytes, noise, program},
};

/// The rows of the table with this heading: a command, and what becomes of what it makes.
fn rows(heading: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(project().join("tests/sources/kernel_reads.md")).unwrap();
    let table = text.split_once(&format!("| {heading} | |\n|---|---|\n")).expect("the table is there").1;
    let lines = table.lines().take_while(|line| line.starts_with("| "));
    let row = |line: &str| {
        let line = line.replace("\\|", "\u{1}");
        let [command, verdict] = line.trim_matches('|').split('|').collect::<Vec<_>>().try_into().expect(&line);
        (command.trim().trim_matches('`').replace('\u{1}', "|"), verdict.trim().to_owned())
    };
    lines.map(row).collect()
}

/// Says of the file what its row says.
fn as_said(payload: &Payload, command: &str, verdict: &str) {
    let outcome = payload.checksum();
    match verdict.split_once('`').map(|(_, rest)| rest.split_once('`').unwrap().0) {
        Some(text) if verdict.starts_with("refused: ") => {
            assert_eq!(outcome.code, INPUT, "{command}: {}", outcome.stderr);
            outcome.says(&[text]);
        }
        option => {
            assert!(verdict.starts_with("taken"), "{command}: {verdict}");
            assert_eq!((outcome.code, outcome.stderr.contains("note:")), (0, false), "{command}: {}", outcome.stderr);
            if let Some(option) = option {
                let mut plain = kernel(noise(8, 40_000));
                configure(&mut plain, READS_ALL);
                let full = payload.read(Payload::KERNEL);
                payload.write(Payload::KERNEL, plain);
                payload.checksum().exits(INPUT).says(&[option]);
                payload.write(Payload::KERNEL, full);
            }
        }
    }
}

/// A payload whose kernel reads everything, in a directory of its own for the commands.
fn world() -> (World, std::path::PathBuf) {
    let world = World::new();
    let mut full = kernel(noise(8, 40_000));
    configure(&mut full, &format!("{READS_ALL}CONFIG_XZ_DEC_X86=y\n"));
    world.payload.write(Payload::KERNEL, full);
    let dir = world.path("made");
    fs::create_dir_all(dir.join("d/early")).unwrap();
    fs::write(dir.join("d/init"), "#!/bin/sh\n").unwrap();
    fs::write(dir.join("d/early/microcode"), noise(1, 30_001)).unwrap();
    fs::write(dir.join("d/noise"), noise(2, 300_001)).unwrap();
    fs::File::create(dir.join("zeros")).unwrap().set_len(300_000_000).unwrap();
    fs::copy(dir.join("d/init"), dir.join("init")).unwrap();
    fs::write(dir.join("names"), "init\nd/noise\n").unwrap();
    run(&dir, "cpio -o -H newc < names > i.cpio; echo d/early/microcode | cpio -o -H newc > early.cpio");
    (world, dir)
}

fn run(dir: &Path, command: &str) -> Vec<u8> {
    finished_bytes(program("bash").current_dir(dir).args(["-c", &format!("set -eo pipefail; {command}")]))
}

/// Runs each row of a table; `make` says which file of the payload its command makes, and makes it.
fn every_row(heading: &str, least: usize, make: impl Fn(&Path, &str) -> (&'static str, Vec<u8>)) {
    let (world, dir) = world();
    let rows = rows(heading);
    assert!(rows.len() >= least);
    for (command, verdict) in rows {
        let (file, bytes) = make(&dir, &command);
        world.payload.write(file, bytes);
        as_said(&world.payload, &command, &verdict);
    }
}

#[test]
fn initramfs() {
    every_row("initramfs", 40, |dir, command| (Payload::INITRAMFS, run(dir, command)));
}

#[test]
fn squashfs() {
    every_row("squashfs of a directory `d`", 12, |dir, command| {
        let _ = fs::remove_file(dir.join("s"));
        run(dir, &command.replace("mksquashfs d s", "mksquashfs d s -quiet -no-progress"));
        (Payload::ROOTFS, fs::read(dir.join("s")).unwrap())
    });
}
