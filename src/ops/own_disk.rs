//! Finds the disk that the system was booted from, for verbs to which no disk was named.

use std::{path::PathBuf, time::Duration};

use slipway_core::{
    boot::running::booted_disk,
    disk::{
        drive_record::DriveRecord,
        identity::DiskIdentity,
        own::{Candidate, Candidates, NoDisk, own_disk},
    },
    report::{FailureKind, Observer},
};

use super::DiskRequest;
use crate::{
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    probe,
};

impl DiskRequest {
    /// For the disk that was named, or else for the one that the system was booted from.
    pub fn for_disk(
        named: Option<PathBuf>,
        lock_timeout: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Self, Failure> {
        let Some(path) = named else { return Self::own(lock_timeout, observer) };
        Ok(DiskRequest { path, lock_timeout, found: None })
    }

    fn own(lock_timeout: Duration, observer: &mut dyn Observer) -> Result<Self, Failure> {
        let words = super::boot_words()?;
        let Some(guid) = booted_disk(&words.line) else {
            if let Some(doubt) = words.not_believed {
                observer.note(&doubt.to_string());
            }
            let is_live = words.line.split_ascii_whitespace().any(|word| word.starts_with("slipway.medium="));
            return Err(if is_live { NoDisk::Live } else { NoDisk::NotBooted }).or_fail(FailureKind::Input);
        };
        let found = probe::disks_with(guid).map_err(|e| NoDisk::NoList(format!("/sys/block: {e}")));
        let probe::DisksWith { disks, are_hardware, unknown } = found.or_fail(FailureKind::Input)?;
        let disks = disks.into_iter().map(|disk| Candidate { record: record(&disk), disk }).collect();
        let candidates = Candidates { disks, are_hardware, unknown };
        let own = own_disk(guid, candidates).or_fail(FailureKind::Input)?;
        own.note().iter().for_each(|note| observer.note(note));
        Ok(DiskRequest { path: own.disk.path.clone().into(), lock_timeout, found: Some(own.disk) })
    }
}

// Only an install writes it, and gives the disk another GUID. So it waits for no lock.
fn record(disk: &DiskIdentity) -> Option<DriveRecord> {
    let disk = Disk::open(disk.path.as_ref(), Access::Look, None, Duration::ZERO).ok()?;
    let gpt = probe::gpt(&disk).ok()?;
    probe::drive_record(&disk, &gpt)
}
