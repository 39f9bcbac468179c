//! `installer inspect SOURCE`.

use std::{fs, path::Path};

use crate::{
    cli::InspectArgs,
    error::{Failure, Kind, OrFail as _},
    execute::Observer as _,
    model::units::{MIB, round_up},
    payload::{DirSource, Facts, SourceRef, Sums},
    report::{InspectReport, Progress, Report},
};

pub fn run(args: &InspectArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let SourceRef::Dir(dir) = &args.source;
    let facts = facts(dir, Sums::wanted(args.strict), progress)?;
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

/// Look at a payload, with progress.
pub fn facts(dir: &Path, sums: Sums, progress: &mut Progress) -> Result<Facts, Failure> {
    let sizes = fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|e| e.metadata().ok());
    let total = sizes.filter(fs::Metadata::is_file).map(|m| m.len()).sum();
    progress.phase(&format!("check      payload {}", dir.display()), total);
    DirSource::new(dir).facts(sums, |n| progress.advance(n)).or_fail(Kind::Input)
}

/// Files, FAT tables and metadata files, in whole MiB.
fn min_slot(bytes: u64) -> u64 {
    round_up(bytes + bytes / 64 + 2 * MIB, MIB).unwrap_or(bytes).max(36 * MIB)
}
