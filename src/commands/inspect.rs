//! `installer inspect [DISK]` and `installer inspect SOURCE`.

use std::{path::PathBuf, time::Duration};

use slipway_core::{
    disk::own::NoDisk,
    report::{Observer, Report},
};

use super::{input, terminal::style};
use crate::{
    cli::{InspectArgs, InspectTarget},
    error::Failure,
    ops::{DiskRequest, inspect_disk, inspect_payload},
};

pub fn run(args: InspectArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let registry = args.registry.options();
    match args.target {
        None | Some(InspectTarget::Disk(_)) if args.strict => {
            input(Err("--strict is for a source, not for a disk".to_owned()))
        }
        None | Some(InspectTarget::Disk(_)) if !args.trust.keys.trust_key.is_empty() => {
            input(Err("--trust-key is for a source, not for a disk".to_owned()))
        }
        None => layout(None, args.lock_timeout, observer),
        Some(InspectTarget::Disk(path)) => layout(Some(path), args.lock_timeout, observer),
        Some(InspectTarget::Source(source)) => {
            let request = inspect_payload::Request {
                source,
                strict: args.strict,
                registry,
                trust: args.trust.request(),
                arch: args.arch,
            };
            inspect_payload::run(&request, observer).map(Report::Inspect)
        }
    }
}

fn layout(named: Option<PathBuf>, lock_timeout: Duration, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let request = DiskRequest::of(named, lock_timeout, observer);
    if request.as_ref().is_err_and(|failure| failure.error.is::<NoDisk>()) {
        observer.note("`inspect` takes the disk without --disk: `installer inspect PATH`");
    }
    let request = request?;
    inspect_disk::run(&request, style()).map(|report| Report::Layout(Box::new(report)))
}
