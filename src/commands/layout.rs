//! What `installer inspect DISK` draws.

use std::{env, path::Path, time::Duration};

use anyhow::Context as _;
use console::Term;

use super::status;
use crate::{
    device::{Access, BlockIo as _, Disk},
    error::{Failure, OrFail as _},
    probe::{self, ProbeError},
};
use slipway_core::{
    disk::region::misplaced,
    report::{FailureKind, InstalledSystem, LayoutReport, Report, StatusReport, Style},
};

/// What a live medium is, ours among them.
const MEDIUM: &str = "it begins with an ISO 9660 image: a live medium, or another CD";

pub fn run(path: &Path, lock_timeout: Duration) -> Result<Report, Failure> {
    let disk = Disk::open(path, Access::Read, None, lock_timeout).or_fail(FailureKind::Install)?;
    let context = || path.display().to_string();
    let table = probe::partitions(&disk).with_context(context).or_fail(FailureKind::Install)?;
    let (bytes, sector_bytes) = (disk.size(), disk.sector_size().bytes());
    let (system, not_ours, mut problems) = match probe::system(&disk, &super::kernel_cmdline()?) {
        Ok(facts) => {
            let StatusReport { next_boot, running, slots, problems, .. } = status::status(&disk, facts);
            (Some(InstalledSystem { next_boot, running, slots }), None, problems)
        }
        Err(ProbeError::NoTable(why) | ProbeError::Foreign(why)) => {
            let copies = table.copies.as_ref();
            let why = if probe::is_medium(&disk).is_ok_and(|is| is) { MEDIUM.to_owned() } else { why };
            (None, Some(why), copies.map(|c| status::gpt_problems(c, bytes, sector_bytes)).unwrap_or_default())
        }
        Err(e) => return Err(e).with_context(context).or_fail(FailureKind::Install),
    };
    problems.extend(misplaced(bytes, &table.regions));
    problems.extend(table.extended.iter().map(|n| format!("partition {n} is extended: what is inside is not drawn")));
    Ok(Report::Layout(Box::new(LayoutReport {
        disk: disk.identity().clone(),
        bytes,
        sector_bytes,
        table: table.kind,
        disk_guid: table.disk_guid,
        regions: table.regions,
        system,
        not_ours,
        problems,
        style: style(),
    })))
}

/// As wide as the terminal, in the characters of the locale.
fn style() -> Style {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    Style::of(Term::stdout().size_checked().map(|(_, columns)| columns), locale.as_deref())
}
