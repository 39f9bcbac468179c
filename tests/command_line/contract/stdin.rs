//! 2: the machine config on stdin.

use std::{
    fs::File,
    io,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
};

use slipway_test_support::{
    exit_code::INPUT,
    world::{Content, Outcome, World, assets, installer_in},
};

use super::{CONFIG, install, install_with};

/// 2.1
#[test]
fn no_config_is_no_error() {
    let world = World::new();
    let image = world.image();
    for nothing in ["", "\n", "# nothing\n", "---\n"] {
        install_with(&world, &image, &["--dry-run"], nothing).succeeds();
    }
    for redirection in ["</dev/null", "<&-", "0>/dev/null"] {
        let args = world.install_args(&image, &["--dry-run"]);
        Outcome::of(&mut installer_in(&format!("exec \"$@\" {redirection}"), args)).succeeds();
    }
}

/// 2.2
#[test]
fn a_config_of_many_documents_is_read() {
    let world = World::new();
    let image = world.image();
    let documents = [
        CONFIG,
        "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: x\nurl: tcp://[::1]:1/\n",
        "apiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\nencryption: {provider: luks2}\n",
        "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: system_disk}}\n",
    ];
    let outcome = install_with(&world, &image, &["--dry-run"], &documents.join("---\n")).succeeds();
    assert!(outcome.stdout.contains("note: STATE is left blank"), "{}", outcome.stdout);
    // What does not concern an installation is no noise.
    assert!(!outcome.stderr.contains("line "), "{}", outcome.stderr);
}

/// 2.3
#[test]
fn an_invalid_config_exits_2_with_line_and_column() {
    let world = World::new();
    let image = world.image();
    let large = "#".repeat((4 << 20) + 1);
    for (config, texts) in [
        ("machine: [", ["machine config on stdin", "line "]),
        ("version: v1alpha1\nmachine:\n  install: {wipe: perhaps}\n", ["line 3, column 19", "machine.install.wipe"]),
        ("machine:\n  install:\n    dsik: /dev/sda\n", ["line 3, column 5", "\"dsik\" is not a known key"]),
        ("a: &a [*a]\n", ["line 1, column 8", "alias"]),
        (&large, ["more than 4194304 bytes", "stdin"]),
    ] {
        let before = Content::of(&image);
        for verb in [&[][..], &["--upgrade=true"]] {
            install_with(&world, &image, verb, config).exits(INPUT).says(&texts);
        }
        assert!(Content::of(&image) == before, "written");
    }
    let not_utf8 = Outcome::of(install(&world, &image, &[]).write_stdin(&b"a: 1\n\xff\n"[..]));
    not_utf8.exits(INPUT).says(&["line 2, column 1", "UTF-8"]);
}

/// 2.4
#[test]
fn a_stdin_without_end_is_not_waited_for() {
    let world = World::new();
    let image = world.image();
    let start = |stdin: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_installer"));
        command.args(world.install_args(&image, &[])).env("SLIPWAY_ASSETS", assets());
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // Silent, but open: the other ends are never closed.
    let (pipe, _writer) = io::pipe().unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let silent = [start(pipe.into()), start(Stdio::from(std::os::fd::OwnedFd::from(socket)))];
    // Endless.
    let endless = start(File::open("/dev/zero").unwrap().into());
    for (child, text) in silent
        .map(|child| (child, "redirect stdin from /dev/null"))
        .into_iter()
        .chain([(endless, "more than 4194304 bytes")])
    {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(INPUT), "{stderr}");
        assert!(stderr.contains(text), "{stderr}");
    }
}
