//! Content of a disk, for `installer unattended` on a live system.

use super::{ProbeError, lba0::is_unfinished, partitions::partitions, system::system, target_disk::found};
use crate::device::BlockIo;
use slipway_core::{
    disk::{
        layout::{META_BYTES, Part},
        magic::{HEAD_BYTES, is_iso9660},
    },
    plan::{DiskHolds, Found},
};

/// `cmdline` is the command line of the running kernel.
pub fn holding(disk: &dyn BlockIo, cmdline: &str) -> DiskHolds {
    look(disk, cmdline).unwrap_or_else(|e| DiskHolds::Unknown(e.to_string()))
}

fn look(disk: &dyn BlockIo, cmdline: &str) -> Result<DiskHolds, ProbeError> {
    if is_medium(disk)? {
        return Ok(DiskHolds::Medium);
    }
    match system(disk, cmdline) {
        Ok(system) => return Ok(DiskHolds::System(Box::new(system))),
        Err(ProbeError::NoTable(_) | ProbeError::Unproven { .. } | ProbeError::Foreign(_)) => {}
        Err(ProbeError::Lba0Lost | ProbeError::TableLost(_)) if is_unfinished(disk)? => {
            return Ok(DiskHolds::Unfinished);
        }
        Err(e @ (ProbeError::Lba0Lost | ProbeError::TableLost(_) | ProbeError::Shrunk { .. })) => {
            return Ok(DiskHolds::Something(e.to_string()));
        }
        Err(e) => return Err(e),
    }
    let meta = match partitions(disk) {
        Ok(table) => {
            let mut parts = table.regions.iter().filter_map(|region| region.partition());
            parts.any(|part| part.name == Part::Meta.name() && part.extent.len == META_BYTES)
        }
        Err(ProbeError::NoTable(_) | ProbeError::Unproven { .. }) => false,
        Err(e) => return Err(e),
    };
    if meta {
        return Ok(DiskHolds::Talos);
    }
    match found(disk).map_err(|source| ProbeError::Io { offset: 0, source })? {
        Found::Nothing => Ok(DiskHolds::Nothing),
        Found::Something(what) => Ok(DiskHolds::Something(what)),
        Found::OtherFormat(format) => Ok(DiskHolds::Something(format.name.to_owned())),
    }
}

/// Whether it is a live medium, or any other ISO 9660 image.
pub fn is_medium(disk: &dyn BlockIo) -> Result<bool, ProbeError> {
    let len = usize::try_from(disk.size()).unwrap_or(HEAD_BYTES).min(HEAD_BYTES);
    let mut head = vec![0; len];
    super::read(disk, 0, &mut head)?;
    Ok(is_iso9660(&head))
}
