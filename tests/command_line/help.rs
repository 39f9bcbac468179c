//! Help.

use std::os::unix::fs::symlink;

use slipway_test_support::{
    verbs,
    world::{Outcome, World, installer, installer_in, installer_path, program},
};

/// Hosts run it without mounts and environment to see whether an image is an installer.
#[test]
fn help_needs_no_environment_and_no_devices() {
    let verbs = verbs();
    assert!(verbs.len() > 12, "{verbs:?}");
    for words in verbs {
        let script = r#"/bin/mount -t tmpfs none /dev && exec "$@""#;
        let help = Outcome::of(installer_in(script, words.iter().map(String::as_str).chain(["--help"])).env_clear());
        let help = help.succeeds();
        let usage =
            format!("Usage: {}", ["installer".to_owned()].iter().chain(&words).cloned().collect::<Vec<_>>().join(" "));
        assert!(help.stdout.contains(&usage), "{words:?}: {}", help.stdout);
        assert_eq!(help.stderr, "", "{words:?}");
    }
    let version = Outcome::of(&mut installer(["--version"])).succeeds().stdout;
    assert_eq!(version, format!("installer {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_tells_the_exit_codes() {
    let help = Outcome::of(&mut installer(["--help"])).succeeds().stdout;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for code in ["0 done", "1 unknown flag", "2 wrong input", "3 not supp", "4 the env", "5 an ext", "7 anything about"]
    {
        assert!(words.contains(code), "{code:?} is not in {help}");
    }
}

/// `-h` is what a person reads first.
#[test]
fn the_short_help_of_every_verb_fits_a_screen() {
    for words in verbs() {
        let mut command = installer(words.iter().map(String::as_str).chain(["-h"]));
        let help = Outcome::of(command.env("COLUMNS", "80")).succeeds().stdout;
        assert!(help.lines().count() <= 40, "{words:?}: {help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{words:?}: {help}");
        assert!(help.contains("see more with '--help'") || !help.contains("--"), "{words:?}: {help}");
    }
}

#[test]
fn verbs_that_only_read_wait_for_no_lock() {
    let text = |words: &[&str]| {
        let help = Outcome::of(&mut installer([words, &["--help"]].concat())).succeeds().stdout;
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for reads in [&["status"][..], &["history"], &["verify"], &["inspect"], &["meta", "list"], &["meta", "get"]] {
        assert!(!text(reads).contains("--lock-timeout"), "{reads:?}: {}", text(reads));
    }
    for writes in [&["confirm"][..], &["wipe"], &["meta", "set"], &["meta", "delete"]] {
        assert!(text(writes).contains("Seconds to wait for another program's lock on the disk ["), "{writes:?}");
    }
}

/// The last line of a failed run is for people in every mode.
#[test]
fn help_tells_which_lines_of_stderr_are_json() {
    let help = Outcome::of(&mut installer(["--help"])).succeeds().stdout;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Lines that do not begin with `{` are for people: the `error: ` of a failed run"),
        "{words}"
    );
}

/// The name by which people call it; machined keeps `installer`.
#[test]
fn as_slipway_it_says_slipway() {
    let world = World::new();
    let link = world.path("slipway");
    symlink(installer_path(), &link).unwrap();
    let slipway = |args: &[&str]| Outcome::of(program(link.to_str().unwrap()).args(args));
    assert_eq!(slipway(&["--version"]).succeeds().stdout, concat!("slipway ", env!("CARGO_PKG_VERSION"), "\n"));
    for (args, usage) in [
        (&["--help"][..], "Usage: slipway [OPTIONS]"),
        (&["upgrade", "--help"], "Usage: slipway upgrade [OPTIONS]"),
        (&["meta", "get", "-h"], "Usage: slipway meta get "),
    ] {
        let help = slipway(args).succeeds().stdout;
        assert!(help.contains(usage) && !help.contains("Usage: installer"), "{args:?}: {help}");
    }
    let refused = slipway(&["nosuch"]).exits(1).says(&["'nosuch'", "Usage: slipway"]);
    assert!(!refused.stderr.contains("installer"), "{}", refused.stderr);
    slipway(&["install", "--lock-timeout=x"]).exits(2).says(&["--lock-timeout", "x"]);
    let disk = world.image();
    slipway(&["status", "--disk", disk.to_str().unwrap()]).exits(7);
    slipway(&["completions", "bash"]).succeeds();
}
