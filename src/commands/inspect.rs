//! `installer inspect DISK` and `installer inspect SOURCE`.

use super::{
    layout,
    payload::{self, Payload},
};
use crate::{
    cli::{InspectArgs, InspectTarget, Progress},
    error::Failure,
    payload::{SourceRef, Sums, image::Inspection},
};
use slipway_core::{
    report::{InspectReport, Report},
    units::{MIB, round_up},
};

pub fn run(args: &InspectArgs, progress: &mut Progress) -> Result<Report, Failure> {
    match &args.target {
        InspectTarget::Disk(_) if args.strict => {
            super::input(Err("--strict is for a source, not for a disk".to_owned()))
        }
        InspectTarget::Disk(path) => layout::run(path, args.lock_timeout),
        InspectTarget::Source(source) => of_source(source, args, progress),
    }
}

fn of_source(source: &SourceRef, args: &InspectArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let opened = payload::open_ref(source.clone(), args.arch, &payload::options(&args.registry))?;
    let sums = Sums::wanted(args.strict);
    let Payload { facts, .. } = opened.look(sums, Inspection::Everything, progress)?;
    let bytes: u64 = facts.files.iter().map(|f| f.size).sum();
    Ok(Report::Inspect(InspectReport {
        source: source.to_string(),
        payload: facts.manifest().payload_digest(),
        min_slot_bytes: min_slot(bytes),
        version: facts.version,
        arch: facts.arch,
        files: facts.files,
        cmdline: facts.cmdline,
        checksums: facts.checksums,
    }))
}

/// Files, FAT tables and metadata files, in whole MiB.
fn min_slot(bytes: u64) -> u64 {
    round_up(bytes + bytes / 64 + 2 * MIB, MIB).unwrap_or(bytes).max(36 * MIB)
}
