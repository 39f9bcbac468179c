//! Looks up on the disk how a failure left it: a failed write may be there, and another program may have been at work.

use std::{error::Error, io};

use nix::libc;
use slipway_core::{
    boot::env::BootEnv,
    disk::{gpt::with_status_byte, layout::Part},
    plan::{self, Plan},
    report::Left,
};

use crate::{
    device::BlockIo,
    error::causes,
    execute::ExecuteError,
    payload::image::{ImageError, is_of_content},
    probe,
};

/// After a change of an installed disk. `before` is the boot state that its plan was made for.
pub fn of_system(
    error: ExecuteError,
    plan: &Plan,
    disk: &dyn BlockIo,
    cmdline: &str,
    before: Option<&BootEnv>,
) -> ExecuteError {
    looked_up(error, disk, |disk| {
        let found = probe::system(disk, cmdline).map_err(|e| e.to_string())?;
        Ok(plan::state_after_failure(plan, before, &found))
    })
}

/// After an install.
pub fn of_install(error: ExecuteError, plan: &Plan, disk: &dyn BlockIo) -> ExecuteError {
    let ours = plan.disk_guid;
    looked_up(error, disk, |disk| {
        Ok(match probe::partitions(disk) {
            Err(probe::ProbeError::NoTable(_) | probe::ProbeError::Unproven { .. }) => {
                Left::new("the disk has no partition table", Left::AGAIN)
            }
            Err(probe::ProbeError::Lba0Lost | probe::ProbeError::TableLost(_)) => {
                Left::new("the disk has no partition table", Left::AGAIN_BY_FORCE)
            }
            Err(e) => return Err(e.to_string()),
            Ok(table) if table.disk_guid == Some(ours) => {
                Left::new("the disk has the new partition table", "run `installer verify`")
            }
            Ok(_) => Left::new("the disk has the partition table that it had before", Left::AGAIN),
        })
    })
}

/// After a growth; `bytes` is the size of EPHEMERAL before.
pub fn of_grow(error: ExecuteError, plan: &Plan, disk: &dyn BlockIo) -> ExecuteError {
    looked_up(error, disk, |disk| {
        let (found, growth) = (probe::gpt(disk).map_err(|e| e.to_string())?, plan.growth);
        let bytes = found.part(Part::Ephemeral).len;
        Ok(match growth {
            Some(growth) if bytes == growth.after && growth.after != growth.before => {
                Left::new("the new partition table is in force", "run the same command again for the steps after it")
            }
            Some(growth) if bytes == growth.before => {
                Left::new("the partition table is the one that was there before", Left::AGAIN)
            }
            _ => Left::new("another program has changed the partition table", Left::STATUS),
        })
    })
}

/// After a change of META.
pub fn of_meta(error: ExecuteError, plan: &Plan, disk: &dyn BlockIo) -> ExecuteError {
    looked_up(error, disk, |disk| {
        let extent = probe::gpt(disk).map_err(|e| e.to_string())?.part(Part::Meta);
        let (meta, unreadable) = probe::meta_of(disk, extent);
        let unreadable = Vec::from_iter(unreadable.into_iter().flatten());
        let is_set = plan.meta.iter().all(|(tag, value)| meta.get(*tag) == Some(value));
        let is_removed = plan.meta_removed.iter().all(|tag| meta.get(*tag).is_none());
        Ok(match (meta.valid, is_set && is_removed) {
            ([false, false], _) if meta.blank => Left::new("META is blank", Left::AGAIN),
            ([false, false], _) if unreadable.is_empty() => Left::new("neither copy of META is valid", Left::AGAIN),
            ([false, false], _) => return Err(unreadable.join("; ")),
            (_, true) => Left::new("META has the new tags", "run the same command again for the other copy"),
            (_, false) => Left::new("META has the old tags", Left::AGAIN),
        })
    })
}

/// After a mend of LBA 0.
pub fn of_lba0(error: ExecuteError, disk: &dyn BlockIo) -> ExecuteError {
    looked_up(error, disk, |disk| match probe::gpt(disk) {
        Ok(_) if with_status_byte(&probe::read_lba0(disk).0).is_some() => {
            Ok(Left::new("LBA 0 is as before", Left::AGAIN))
        }
        Ok(_) => Ok(Left::new("LBA 0 says again that the disk has a GPT", Left::STATUS)),
        Err(probe::ProbeError::Lba0Lost) => Ok(Left::new("LBA 0 is lost, as before", Left::AGAIN)),
        Err(e) => Err(e.to_string()),
    })
}

/// After a mend of the partition table.
pub fn of_table(error: ExecuteError, disk: &dyn BlockIo) -> ExecuteError {
    looked_up(error, disk, |disk| match probe::mended_table(disk) {
        Ok(None) => Ok(Left::new("the partition table is whole", Left::STATUS)),
        Ok(Some(_)) => Ok(Left::new("the partition table is not whole, and can be repaired", Left::AGAIN)),
        Err(e) => Err(e.to_string()),
    })
}

// Bytes that are not flushed are lost with the power, and reading them back proves nothing then.
fn looked_up(
    error: ExecuteError,
    disk: &dyn BlockIo,
    look: impl FnOnce(&dyn BlockIo) -> Result<Left, String>,
) -> ExecuteError {
    if !error.wrote {
        return error;
    }
    let causes = || causes(&*error.source);
    let refused = causes().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.raw_os_error() == Some(libc::EIO));
    // What has a remedy of its own is a mirror's fault.
    let has_remedy = |e: &(dyn Error + 'static)| e.downcast_ref().and_then(ImageError::remedy).is_some();
    let damaged = causes().any(|e| is_of_content(e) && !has_remedy(e));
    let state = match disk.sync() {
        Err(e) => Err(format!("the disk does not say that it keeps what was written ({e})")),
        Ok(()) => look(disk),
    };
    let left = state.unwrap_or_else(|why| Left::new(format!("the state of the disk is unknown: {why}"), Left::STATUS));
    let left = if refused {
        left.of_refused_write()
    } else if damaged {
        left.of_damaged_payload()
    } else {
        left
    };
    ExecuteError { left, ..error }
}
