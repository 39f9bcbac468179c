//! Describes the layout of a disk or an image file. Slipway need not have made it.

use anyhow::Context as _;

use super::{
    DiskRequest, copies,
    reading::{self, Reader},
    status,
};
use crate::{
    device::{BlockIo as _, Disk},
    error::{Failure, OrFail as _},
    probe::{self, ProbeError},
};
use slipway_core::{
    disk::region::misplaced,
    report::{FailureKind, InstalledSystem, LayoutReport, StatusReport, Style, Writer},
    text::quoted,
};

const MEDIUM: &str = "it begins with an ISO 9660 image: a live medium or another CD";

/// `style` says how wide the picture is, and in which characters.
pub fn run(request: &DiskRequest, style: Style) -> Result<LayoutReport, Failure> {
    let disk = request.look()?;
    let mut reader = Reader::new(&disk)?;
    let name = request.path.display().to_string();
    let look = |writer: Option<&Writer>| layout(&disk, &name, &mut reader, style, writer);
    let (report, writer) = reading::settled(&disk, look, |report| report.problems.is_empty())?;
    Ok(LayoutReport { writer, ..report })
}

fn layout(
    disk: &Disk,
    name: &str,
    reader: &mut Reader,
    style: Style,
    writer: Option<&Writer>,
) -> Result<LayoutReport, Failure> {
    let context = || name.to_owned();
    let table = match probe::partitions(disk) {
        // Nothing is left to be drawn.
        lost @ Err(ProbeError::Lba0Lost | ProbeError::TableLost(_) | ProbeError::Unproven { .. }) => {
            super::ours(lost, name)?
        }
        other => other.with_context(context).or_fail(FailureKind::Install)?,
    };
    let (bytes, sector_bytes) = (disk.size(), disk.sector_size().bytes());
    let end = probe::table_bytes(disk);
    let (system, not_ours, mut problems) = match reader.look() {
        Ok(facts) => {
            let StatusReport { next_boot, running, slots, bootloaders, problems, notes, .. } =
                status::status(disk, facts, writer);
            (Some(InstalledSystem { next_boot, running, slots, bootloaders }), None, [problems, notes].concat())
        }
        Err(ProbeError::NoTable(why) | ProbeError::Foreign(why)) => {
            let copies = table.copies.as_ref();
            let why = if probe::is_medium(disk).is_ok_and(|is| is) { MEDIUM.to_owned() } else { why };
            let (problems, notes) =
                copies.map(|c| copies::of_the_table(c, end, sector_bytes, || "")).unwrap_or_default();
            (None, Some(why), [problems, notes].concat())
        }
        Err(e) => match e.way_back(&quoted(name)) {
            Some(way) => {
                let copies = table.copies.as_ref().map(|c| copies::of_the_table(c, end, sector_bytes, || "").0);
                let problems = copies.into_iter().flatten().chain([way]).collect();
                (None, Some(e.to_string()), problems)
            }
            None => return Err(e).with_context(context).or_fail(FailureKind::Install),
        },
    };
    problems.extend(misplaced(bytes, &table.regions));
    problems.extend(
        table.extended.iter().map(|n| format!("partition {n} is extended: the partitions inside it are not drawn")),
    );
    Ok(LayoutReport {
        disk: disk.identity().clone(),
        bytes,
        sector_bytes,
        table: table.kind,
        disk_guid: table.disk_guid,
        regions: table.regions,
        system,
        not_ours,
        problems,
        writer: writer.cloned(),
        style,
    })
}
