//! `installer inspect [DISK]`, `installer inspect SOURCE` and `installer support`.

use std::{
    convert::identity,
    path::{Path, PathBuf},
    time::Duration,
};

use slipway_core::{
    disk::own::{NoDisk, NoDiskBy},
    report::{Observer, Report},
    text::quoted,
};

use super::input;
use crate::{
    cli::{InspectArgs, InspectTarget, SupportArgs, terminal::style},
    error::Failure,
    ops::{self, DiskRequest, inspect_disk, inspect_payload},
};

pub fn run(args: InspectArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let registry = args.registry.options();
    let keys = &args.trust.keys;
    let of_source = [
        (args.strict, "--strict"),
        (!keys.trust_key.is_empty(), "--trust-key"),
        (keys.trust_policy.is_some(), "--trust-policy"),
    ];
    let given = of_source.into_iter().find_map(|(given, flag)| given.then_some(flag));
    match (args.target, given) {
        (None | Some(InspectTarget::Disk(_)), Some(flag)) => {
            input(Err(format!("{flag} is for a source, not for a disk")))
        }
        (None, None) => layout(None, observer),
        (Some(InspectTarget::Disk(path)), None) => layout(Some(path), observer),
        (Some(InspectTarget::Source(source)), _) => {
            let request = inspect_payload::InspectRequest {
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

fn layout(named: Option<PathBuf>, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let source = named.as_deref().filter(|path| path.is_dir()).map(as_source);
    let request = DiskRequest::for_disk(named, Duration::ZERO, observer);
    if let Some(name) = source {
        observer.note(&format!("a directory is no disk: as a source, name it {name}"));
    }
    let request = request.map_err(|Failure { kind, error }| {
        let flag = "the disk, as in `installer inspect PATH`";
        let error = error.downcast::<NoDisk>().map_or_else(identity, |none| NoDiskBy { none, flag }.into());
        Failure { kind, error }
    })?;
    inspect_disk::run(&request, style()).map(|report| Report::Layout(Box::new(report)))
}

/// The name of a directory as a source, for a shell.
fn as_source(dir: &Path) -> String {
    let scheme = if dir.join("oci-layout").exists() { "oci" } else { "dir" };
    quoted(&format!("{scheme}:{}", dir.display()))
}

pub fn support(args: &SupportArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let disk = args.target.request(observer);
    let report = ops::support::run(&args.archive, disk, observer)?;
    if args.archive != Path::new("-") {
        return Ok(Report::Support(report));
    }
    // Standard output has the archive, and nothing else.
    report.to_string().lines().for_each(|line| observer.note(line));
    Ok(Report::Text(String::new()))
}
