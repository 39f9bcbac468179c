//! `installer inspect SOURCE`.

use super::payload::{self, Payload};
use crate::{
    cli::InspectArgs,
    error::Failure,
    model::units::{MIB, round_up},
    payload::{Sums, image::Look},
    report::{InspectReport, Progress, Report},
};

pub fn run(args: &InspectArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let opened = payload::open_ref(args.source.clone(), args.arch, &payload::options(&args.registry))?;
    let sums = Sums::wanted(args.strict);
    let Payload { facts, .. } = opened.look(sums, Look::Everything, progress)?;
    let bytes: u64 = facts.files.iter().map(|f| f.size).sum();
    Ok(Report::Inspect(InspectReport {
        source: args.source.to_string(),
        payload: facts.manifest().payload_digest(),
        min_slot_bytes: min_slot(bytes),
        version: facts.version,
        arch: facts.arch,
        files: facts.files,
        cmdline: facts.cmdline,
        sealed: facts.sealed,
    }))
}

/// Files, FAT tables and metadata files, in whole MiB.
fn min_slot(bytes: u64) -> u64 {
    round_up(bytes + bytes / 64 + 2 * MIB, MIB).unwrap_or(bytes).max(36 * MIB)
}
