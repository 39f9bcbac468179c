//! `completions` and `man`.

use std::{fs, io, path::Path};

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use crate::{cli::Cli, failure::Failure, show::Output};

/// Completions, on standard output.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "slipwayctl", &mut text);
    io::Write::write_all(&mut io::stdout(), &text).map_err(|e| Failure::Failed(format!("standard output: {e}")))
}

/// One page for each command.
pub fn man(dir: &Path, output: &Output) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|e| Failure::file(dir, e))?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(|e| Failure::file(dir, e))?;
    output.answer(&json!({ "pages": dir }), &format!("manual pages are in {}", dir.display()))
}
