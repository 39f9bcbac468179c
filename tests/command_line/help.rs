//! Help, completions and manual pages.

use std::fs;

use slipway_test_support::{
    verbs::verbs,
    world::{Outcome, World, finished, installer, installer_in, program},
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

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Outcome::of(&mut installer(["completions", shell])).succeeds().stdout;
        for word in ["installer", "install", "format-data", "meta"] {
            assert!(script.contains(word), "{shell}: {word:?} is missing");
        }
    }
    let bash = Outcome::of(&mut installer(["completions", "bash"])).succeeds().stdout;
    finished(program("bash").arg("-n").write_stdin(bash));
    Outcome::of(&mut installer(["completions", "nosuch"])).exits(2).says(&["nosuch", "bash"]);
}

#[test]
fn man_pages_for_every_verb() {
    let world = World::new();
    let dir = world.path("new/man");
    Outcome::of(installer(["man"]).arg(&dir)).succeeds();
    for words in verbs() {
        let page =
            dir.join(["installer".to_owned()].iter().chain(&words).cloned().collect::<Vec<_>>().join("-") + ".1");
        let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        assert!(text.contains(".TH installer"), "{}", page.display());
    }
    let file = world.path("file");
    fs::write(&file, "").unwrap();
    Outcome::of(installer(["man"]).arg(&file)).exits(2).says(&[file.to_str().unwrap()]);
}
