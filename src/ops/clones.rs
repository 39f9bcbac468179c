//! Disks with the disk GUID of this one: their lines in `status`, and the limits that they set to an upgrade.

use anyhow::Context as _;
use slipway_core::{
    disk::{
        drive_record::DriveRecord,
        identity::{DiskIdentity, DiskKind},
    },
    plan::GptFacts,
    report::{FailureKind, Observer},
};

use crate::{
    device::Disk,
    error::{Failure, OrFail as _},
    probe,
};

/// An upgrade would go to a disk that the machine does not boot. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[error(
    "it is a copy of {original}, which has the same disk GUID and is the drive that was installed: name that one, or \
     detach it; nothing was written"
)]
pub struct IsACopy {
    original: String,
}

pub struct Clones<'d> {
    own: &'d DiskIdentity,
    record: Option<DriveRecord>,
    /// The other disks with its GUID.
    others: Vec<DiskIdentity>,
}

impl<'d> Clones<'d> {
    /// If the disks of the machine cannot be listed, it has no clones: a refusal here protects no disk.
    pub fn look(disk: &'d Disk, gpt: &GptFacts) -> Self {
        let others = probe::clones(disk, gpt.disk_guid).unwrap_or_default();
        Clones { own: disk.identity(), record: probe::drive_record(disk, gpt), others }
    }

    fn is_original(&self, disk: &DiskIdentity) -> bool {
        self.record.as_ref().is_some_and(|drive| drive.matches(disk))
    }

    pub fn problems(&self) -> Vec<String> {
        let of = |clone: &DiskIdentity| {
            let original = [self.own, clone].into_iter().find(|disk| self.is_original(disk));
            let original =
                original.map_or_else(String::new, |o| format!(" ({} is the one that was installed)", o.path));
            format!(
                "{} has the same disk GUID{original}: one is a copy of the other, and the GUID does not tell which of \
                 them was booted; detach one",
                clone.path
            )
        };
        self.others.iter().map(of).collect()
    }

    /// The disk to detach, and why. None if there is no other one.
    pub fn detach(&self) -> Option<String> {
        let other = self.others.first()?;
        let (own, other_path) = (&self.own.path, &other.path);
        let why = "both have the same disk GUID, and it is not certain which one the machine starts";
        Some(match (self.is_original(self.own), self.is_original(other)) {
            (true, false) => format!("detach {other_path}, the copy: {why}"),
            (false, true) => format!("detach {own}, the copy of {other_path}: {why}"),
            _ => format!("detach {own} or {other_path}: {why}"),
        })
    }

    /// A note about a disk that is a copy, also when it is the only one left: a replaced drive has such a copy.
    pub fn note(&self) -> Option<String> {
        let drive = self.record.as_ref().filter(|drive| self.own.kind == DiskKind::Disk && !drive.matches(self.own))?;
        Some(format!("the system was installed on another drive ({drive}) and copied to this one"))
    }

    /// Before an upgrade: it would go to a disk that the machine does not boot, and be reported as done. The ways back
    /// do not ask.
    pub fn check(&self, observer: &mut dyn Observer) -> Result<(), Failure> {
        let original = self.others.iter().find(|disk| self.is_original(disk));
        if let Some(original) = original.filter(|_| !self.is_original(self.own)) {
            let copy = IsACopy { original: original.path.clone() };
            return Err(copy).context(self.own.path.clone()).or_fail(FailureKind::Install);
        }
        self.problems().iter().for_each(|problem| observer.note(problem));
        Ok(())
    }
}
