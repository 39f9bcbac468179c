//! EPHEMERAL, as the running system has it: its devices, and its release.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::mount::{UnmountFlags, unmount};

use super::{
    holders,
    mounts::{self, Dev, Never, to_unmount},
};

/// A volume that goes, and what stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// EPHEMERAL: its partition, and what lies on that, as an encrypted volume does.
    pub goes: Vec<Dev>,
    /// STATE, in the same way: the journal is on it.
    pub stays: Vec<Dev>,
}

/// The mounts here.
fn mountinfo() -> Result<String, String> {
    let text = fs::read("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo cannot be read: {e}"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The devices of a disk's partition, and of whatever lies on it. `sys` is `/sys/class/block`.
pub fn devices(sys: &Path, disk: &str, number: u32) -> Result<Vec<Dev>, String> {
    let dir = sys.join(disk);
    let unreadable = |e: &io::Error| format!("{} cannot be read: {e}", dir.display());
    for entry in fs::read_dir(&dir).map_err(|e| unreadable(&e))? {
        let path = entry.map_err(|e| unreadable(&e))?.path();
        let of = fs::read_to_string(path.join("partition")).unwrap_or_default();
        if of.trim().parse() == Ok(number) {
            let mut found = Vec::new();
            above(sys, &path, &mut found)?;
            return Ok(found);
        }
    }
    Err(format!("the kernel knows no partition {number} of {disk}"))
}

/// The device in `dir`, and what lies on it.
fn above(sys: &Path, dir: &Path, found: &mut Vec<Dev>) -> Result<(), String> {
    let text = fs::read_to_string(dir.join("dev")).unwrap_or_default();
    let dev = Dev::parse(text.trim()).ok_or_else(|| format!("{} does not say its number", dir.display()))?;
    if found.contains(&dev) {
        return Ok(());
    }
    found.push(dev);
    for holder in fs::read_dir(dir.join("holders")).into_iter().flatten().flatten() {
        above(sys, &sys.join(holder.file_name()), found)?;
    }
    Ok(())
}

impl Volume {
    /// Whether it is mounted here.
    pub fn is_mounted(&self) -> Result<bool, String> {
        let mounts = mounts::parse(&mountinfo()?, &self.goes).map_err(|never| never.to_string())?;
        Ok(!mounts.is_empty())
    }

    /// Whether it could be unmounted without users.
    pub fn may_go(&self) -> Result<(), String> {
        let never = |never: Never| never.to_string();
        to_unmount(&mountinfo()?, &self.goes, &self.stays).map(drop).map_err(never)
    }

    /// Unmount it. It can be done again, and goes on where it ended.
    pub fn release(&self) -> Result<(), String> {
        let left = || to_unmount(&mountinfo()?, &self.goes, &self.stays).map_err(|never| never.to_string());
        let mounts = left()?;
        for mount in &mounts {
            match unmount(&mount.point, UnmountFlags::NOFOLLOW) {
                // It went with another one that was mounted in the same place, or with its unit.
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
                Err(rustix::io::Errno::BUSY) => {
                    let who = holders::describe(&left()?, &self.goes);
                    return Err(format!("{} is in use: {who}", mount.point.display()));
                }
                Err(e) => return Err(format!("{} cannot be unmounted: {e}", mount.point.display())),
            }
        }
        if let Some(mount) = left()?.first() {
            return Err(format!(
                "{} is still mounted: {}",
                mount.point.display(),
                holders::describe(&mounts, &self.goes)
            ));
        }
        let Some(partition) = self.goes.first() else { return Ok(()) };
        let Some(node) = held(*partition)? else { return Ok(()) };
        let here = mounts::mounts(&mountinfo()?).map_err(|never| never.to_string())?;
        let who = holders::elsewhere(&self.goes, &here);
        Err(who.unwrap_or_else(|| format!("the kernel still holds {node}: swap, or device mapper")))
    }
}

/// The device's name, if the kernel holds it exclusively: for a file system that is mounted in any namespace, or was until
/// the last file was closed, for swap, for device mapper. No list of mounts shows all of these.
fn held(dev: Dev) -> Result<Option<String>, String> {
    let about = format!("/sys/dev/block/{}:{}/uevent", dev.major, dev.minor);
    let text = fs::read_to_string(&about).map_err(|e| format!("{about} cannot be read: {e}"))?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let node = format!("/dev/{}", name.ok_or_else(|| format!("{about} has no name"))?);
    match OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&node) {
        Ok(file) if file.metadata().is_ok_and(|of| holders::number(of.rdev()) == dev) => Ok(None),
        Ok(_) => Err(format!("{node} is not the device {}:{}", dev.major, dev.minor)),
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => Ok(Some(node)),
        Err(e) => Err(format!("{node} cannot be opened: {e}")),
    }
}
