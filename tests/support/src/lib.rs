//! The parts that the test programs share. Its functions panic, as tests do, when what they need is missing.
#![allow(clippy::disallowed_methods, reason = "the rule about who starts programs is the installer's")]
#![allow(clippy::new_without_default, reason = "nothing here has a use for Default")]

pub mod container_image;
pub mod exit_code;
pub mod files;
pub mod fixtures;
pub mod grub_emu;
pub mod images;
pub mod port;
pub mod registry;
pub mod signing;
pub mod support_archive;
pub mod system;
pub mod world;

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;
use slipway::cli::Cli;

/// The root of the project.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Say what a test leaves out, and why. Not by a macro: what a test prints that passes is not shown.
pub fn not_run(what: &str) {
    io::stderr().write_all(format!("NOT RUN: {what}\n").as_bytes()).unwrap();
}

/// The text equals that of a golden file, named from the root of the project. `SLIPWAY_UPDATE_GOLDEN=1` rewrites the file.
#[track_caller]
pub fn assert_golden(file: &str, text: &str) {
    let path = project().join(file);
    if env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).expect("golden file: SLIPWAY_UPDATE_GOLDEN=1 writes it");
    assert_eq!(text, expected, "{}", path.display());
}

/// The texts of all files below a directory, one behind the other.
pub fn read_all(dir: &Path, out: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, out);
        } else {
            out.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
        }
    }
}

/// Every verb and verb of a verb, as the words that lead to it; the first is the program alone.
pub fn verbs() -> Vec<Vec<String>> {
    fn below(command: &clap::Command, words: &[String], found: &mut Vec<Vec<String>>) {
        found.push(words.to_vec());
        for verb in command.get_subcommands() {
            below(verb, &[words, &[verb.get_name().to_owned()]].concat(), found);
        }
    }
    let mut found = Vec::new();
    below(&Cli::command(), &[], &mut found);
    found
}
