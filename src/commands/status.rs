//! `installer status`.

use crate::{
    cli::DiskArgs,
    device::{Access, BlockIo as _},
    error::{Failure, Kind, OrFail as _},
    model::{bootenv::PATHS, layout::Part, slot::PerSlot},
    probe::{self, SystemFacts},
    report::{MetaTag, Report, SlotStatus, StatusReport},
};

pub fn run(args: &DiskArgs) -> Result<Report, Failure> {
    let disk = super::open(args, Access::Read)?;
    let facts = probe::system(&disk)
        .map_err(|e| anyhow::Error::new(e).context(args.disk.display().to_string()))
        .or_fail(Kind::Install)?;
    Ok(Report::Status(Box::new(StatusReport {
        disk: disk.identity().clone(),
        bytes: disk.size(),
        sector_bytes: disk.sector_size().bytes(),
        disk_guid: facts.label.disk_guid,
        partitions: Part::ALL.map(|p| (p, facts.label.part(p))).into(),
        problems: problems(&facts, disk.size(), disk.sector_size().bytes()),
        slots: PerSlot::new(|s| {
            let slot = &facts.slots[s];
            SlotStatus {
                state: facts.env.as_ref().map(|env| env.states[s]),
                version: slot.manifest.as_ref().and_then(|m| m.version.clone()),
                payload: slot.manifest.as_ref().map(|m| m.payload_digest()),
                marker: slot.marker.clone(),
                verifies: slot.verifies,
                problem: slot.boots.clone(),
            }
        }),
        meta: MetaTag::all(&facts.meta).into_iter().map(|t| (t.key, t.value)).collect(),
        next_boot: facts.next,
        boot_env: facts.env,
    })))
}

fn problems(facts: &SystemFacts, bytes: u64, sector: u64) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(e) = &facts.label.primary {
        problems.push(format!("the primary GPT is damaged ({e}); the backup is in use"));
    }
    match (&facts.label.backup, facts.label.backup_offset) {
        (Err(e), _) => problems.push(format!("the backup GPT is damaged: {e}")),
        (Ok(()), Some(at)) if at + sector < bytes => problems.push(format!(
            "the backup GPT is not at the end of the disk but at byte {at}: the disk is larger than the image that \
             was written to it; the system boots, and the OS moves it when it grows EPHEMERAL"
        )),
        _ => {}
    }
    if facts.label.foreign_backup {
        problems.push(
            "the end of the disk holds the backup GPT of another partition table: partitioning tools may offer it"
                .to_owned(),
        );
    }
    for (path, copy) in PATHS.iter().zip(&facts.env_copies) {
        match copy {
            None => problems.push(format!("{path} on the ESP is lost or damaged")),
            Some(copy) if facts.env.as_ref() != Some(copy) => {
                problems.push(format!("{path} on the ESP differs from the copy that counts"))
            }
            Some(_) => {}
        }
    }
    for (n, valid) in (1..).zip(facts.meta.valid) {
        if !valid {
            problems.push(format!("META: ADV copy {n} is not valid"));
        }
    }
    if facts.meta.valid == [true, true] && !facts.meta.copies_equal {
        problems.push("META: the two copies differ; the first counts".to_owned());
    }
    problems
}
