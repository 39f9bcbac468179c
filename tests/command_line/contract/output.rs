//! 6: what it says, and to whom.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use slipway::cli::output;
use slipway_test_support::{
    exit_code::{INSTALL, OTHER},
    world::{self, World, assets, on_disk},
};

use super::{CONFIG, install_with};

/// 6.1
#[test]
fn stdout_carries_nothing_but_the_report() {
    let world = World::new();
    let image = world.image();
    let config = "machine: {install: {extensions: [x], extraKernelArgs: [a]}}\n";
    let human = install_with(&world, &image, &["--format-data=false"], config).succeeds();
    assert_eq!(human.stdout.lines().count(), 1, "{}", human.stdout);
    assert!(human.stderr.contains("note: line 1, "), "{}", human.stderr);
    let json = install_with(&world, &image, &["--format-data=false", "--force", "--output=json"], config).succeeds();
    assert_eq!(json.json()["report"], "install");
    let refused = install_with(&world, &image, &["--format-data=false"], config).exits(INSTALL);
    assert_eq!(refused.stdout, "");
    assert_eq!(refused.stderr.matches("error: ").count(), 1, "told once: {}", refused.stderr);
}

/// 6.2
#[test]
fn output_is_made_of_whole_lines() {
    let world = World::new();
    let image = world.image();
    for mode in ["auto", "plain", "json", "bars"] {
        let progress = format!("--progress={mode}");
        let mut command = world::installer(world.install_args(&image, &["--force", &progress]));
        let output = command.write_stdin(CONFIG).output().unwrap();
        for text in [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()) {
            assert!(text.is_empty() || text.ends_with('\n'), "{mode}: {text:?}");
            assert!(!text.contains(['\r', '\x1b', '\x08']), "{mode}: {text:?}");
            assert!(text.lines().all(|line| line.len() < 1 << 20), "{mode}");
        }
    }
}

/// A pipe without any room, and its other end.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    while output::write(&writer, b".\n", Duration::ZERO).is_ok() {}
    (reader, writer)
}

/// 6.3
#[test]
fn a_pipe_that_nobody_reads_stops_nothing() {
    let world = World::new();
    let image = world.image();
    let start = |extra: &[&str], stdout: Stdio, stderr: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_installer"));
        command.args(world.install_args(&image, extra)).env("SLIPWAY_ASSETS", assets());
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().unwrap()
    };
    for mode in ["plain", "json", "bars"] {
        let (mut reader, writer) = full_pipe();
        let child = start(&["--force", &format!("--progress={mode}")], Stdio::piped(), writer.into());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{mode}");
        assert!(output.stdout.starts_with(b"installed: "), "{mode}");
        let mut left = String::new();
        reader.read_to_string(&mut left).unwrap();
        assert!(left.lines().all(|line| line == "."), "no room, and yet: {left:?}");
    }
    // Both in one pipe, as the lifecycle service has it: the work is done, and the exit code says that no reader was told.
    let (_reader, writer) = full_pipe();
    let mut child = start(&["--force", "--progress=plain"], writer.try_clone().unwrap().into(), writer.into());
    assert_eq!(child.wait().unwrap().code(), Some(OTHER));
    on_disk(&image, &["verify"]).succeeds();
    // A failure that no reader sees still has its exit code.
    let (_reader, writer) = full_pipe();
    let mut child = start(&["--progress=plain"], Stdio::null(), writer.into());
    assert_eq!(child.wait().unwrap().code(), Some(INSTALL));
}

/// 6.4
#[test]
fn whoever_reads_again_is_told_what_was_dropped() {
    let world = World::new();
    let image = world.image();
    let (mut reader, writer) = full_pipe();
    // It says its notes, and then it waits for the disk.
    let lock = Flock::lock(File::open(&image).unwrap(), FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_installer"))
        .args(world.install_args(&image, &["--progress=plain", "--lock-timeout=60"]))
        .env("SLIPWAY_ASSETS", assets())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(writer)
        .spawn()
        .unwrap();
    let config = "machine: {install: {extensions: [x], extraKernelArgs: [a]}}\n";
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    let open_files = format!("/proc/{}/fd", child.id());
    let has_the_disk = || {
        let links = fs::read_dir(&open_files).unwrap().flatten().map(|entry| fs::read_link(entry.path()));
        links.flatten().any(|link| link == image)
    };
    while !has_the_disk() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it had the disk");
        thread::sleep(Duration::from_millis(20));
    }
    // All that fills the pipe, and no more: nothing else is said before the lock is free.
    let mut bytes = vec![0; 1 << 20];
    let full = reader.read(&mut bytes).unwrap();
    assert!(bytes[..full].chunks(2).all(|line| line == b".\n"), "something was said");
    drop(lock);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    // A third one says what it waits for, if that takes a while.
    let told = ["2", "3"].map(|n| format!("note: {n} lines were dropped, because they were not read\n"));
    assert!(told.iter().any(|told| said.starts_with(told)), "{said}");
}
