//! `installer inspect DISK` and `installer inspect SOURCE`.

use std::env;

use console::Term;
use slipway_core::report::{Observer, Report, Style};

use super::input;
use crate::{
    cli::{InspectArgs, InspectTarget},
    error::Failure,
    ops::{DiskRequest, inspect_disk, inspect_payload},
};

pub fn run(args: InspectArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let registry = args.registry.options();
    match args.target {
        InspectTarget::Disk(_) if args.strict => input(Err("--strict is for a source, not for a disk".to_owned())),
        InspectTarget::Disk(path) => {
            let request = DiskRequest { path, lock_timeout: args.lock_timeout };
            inspect_disk::run(&request, style()).map(|report| Report::Layout(Box::new(report)))
        }
        InspectTarget::Source(source) => {
            let request = inspect_payload::Request { source, strict: args.strict, registry, arch: args.arch };
            inspect_payload::run(&request, observer).map(Report::Inspect)
        }
    }
}

/// Width of the terminal, and whether the locale has box-drawing characters.
fn style() -> Style {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    Style::of(Term::stdout().size_checked().map(|(_, columns)| columns), locale.as_deref())
}
