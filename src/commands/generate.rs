//! `installer completions SHELL` and `installer man DIR`.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::{
    cli::{Cli, Imager},
    error::{Failure, OrFail as _},
};
use slipway_core::report::{FailureKind, Report};

pub fn completions(shell: clap_complete::Shell) -> Report {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "installer", &mut script);
    Report::Text(String::from_utf8_lossy(&script).into_owned())
}

pub fn man(dir: &Path) -> Result<Report, Failure> {
    let write = || {
        std::fs::create_dir_all(dir)?;
        clap_mangen::generate_to(Cli::command(), dir)?;
        clap_mangen::generate_to(Imager::command(), dir)
    };
    write().with_context(|| format!("writing manual pages to {}", dir.display())).or_fail(FailureKind::Input)?;
    Ok(Report::Text(format!("manual pages are in {}", dir.display())))
}
