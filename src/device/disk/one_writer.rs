//! One writer for one device. A `flock` is on a node, and a device can have many nodes: a container has its own, and a loop
//! device may lie on another device. The kernel's exclusive claim (`O_EXCL`) is on the device itself.
//!
//! The device as a whole cannot be claimed while a partition of it is mounted. So a writer claims the BIOS partition,
//! which no program mounts and no other claims; and the whole device where the kernel reads no partitions of it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use nix::{fcntl::Flock, libc};
use slipway_core::{
    disk::{
        identity::{DiskKind, DiskUse},
        layout::{BIOS_BYTES, BIOS_OFFSET},
    },
    units::Extent,
};

use super::{
    Access, OpenError, claim,
    lock::{Wait, in_words, lock},
};
use crate::device::{
    busy::{ALL, Devices, Store, processes},
    identity::DiskNode,
};

const BIOS: Extent = Extent { offset: BIOS_OFFSET, len: BIOS_BYTES };
/// A reader claims a device for an instant, see [`holder`].
const INSTANTS: u32 = 5;
const INSTANT: Duration = Duration::from_millis(5);

/// Claims that a writer holds until it is dropped.
#[derive(Default)]
pub struct Claims {
    /// The BIOS partition.
    pub part: Option<File>,
    /// The device as a whole.
    pub whole: Option<File>,
    /// Claims of the devices that it lies on.
    pub below: Vec<File>,
    /// Lock of the file that it lies on.
    pub file: Option<Flock<File>>,
}

/// File that stands for a device.
struct Token {
    path: PathBuf,
    rdev: u64,
    is_whole: bool,
}

/// Claims the device for a writer. Waits for up to `patience` while another writer has it.
pub fn claim(
    node: &DiskNode,
    access: Access,
    patience: Duration,
    says: &mut dyn FnMut(&str),
) -> Result<Claims, OpenError> {
    let mut claims = Claims::default();
    // An image file has one inode, and `flock` is on that. A new file has no other user yet.
    if node.disk.kind == DiskKind::Image || !access.writes() || access == Access::New {
        return Ok(claims);
    }
    let Ok(devices) = Devices::of_this_machine() else {
        // The ways back work without sysfs. Others are refused for the lack of it later.
        return Ok(claims);
    };
    let Some(mut store) = store_of(&node.path) else { return Ok(claims) };
    if let Some(token) = token(&devices, store, Some(&node.path)) {
        if access == Access::Whole {
            wait_for(&token, node, patience, says)?;
        } else {
            let file = hold(&token, node, access, patience, says)?;
            (claims.part, claims.whole) = if token.is_whole { (None, file) } else { (file, None) };
        }
    }
    while let Some(below) = devices.loop_on(store) {
        store = below;
        if let Some(token) = token(&devices, store, None) {
            claims.below.extend(hold(&token, node, access, patience, says)?);
        } else {
            claims.file = backing_file(&devices, store, patience, says)?;
        }
    }
    Ok(claims)
}

/// The process that has the device claimed for writing: `None` if none has, `Some(None)` if it cannot be seen.
pub fn holder(node: &DiskNode) -> Option<Option<u32>> {
    let devices = Devices::of_this_machine().ok().filter(|_| node.disk.kind == DiskKind::Disk)?;
    let token = token(&devices, store_of(&node.path)?, Some(&node.path))?;
    // Another program's check may hold it for an instant.
    for _ in 0..INSTANTS {
        match claimed(&token, false) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => thread::sleep(INSTANT),
            _ => return None,
        }
    }
    let pid = opener(&token);
    // The whole of it may be claimed by a mount or a mapping.
    (!token.is_whole || pid.is_some()).then_some(pid)
}

fn store_of(path: &Path) -> Option<Store> {
    Store::of_metadata(&fs::metadata(path).ok()?)
}

fn token(devices: &Devices, store: Store, node: Option<&Path>) -> Option<Token> {
    let Store::Device(rdev) = store else { return None };
    if let Some(part) = devices.partitions(store, &[BIOS]).next() {
        return Some(Token { path: part.node.clone(), rdev: part.rdev, is_whole: false });
    }
    // A claim on the whole would keep us from claiming its partitions, too. No kernel shows some of ours without the others.
    if devices.partitions(store, &[ALL]).next().is_some() {
        return None;
    }
    let path = node.map(Path::to_owned).or_else(|| devices.node(rdev))?;
    Some(Token { path, rdev, is_whole: true })
}

// A claim counts in any open mode, and udev looks anew at a device that was open for writing.
fn claimed(token: &Token, write: bool) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(write).custom_flags(libc::O_EXCL).open(&token.path)?;
    // The nodes of a container may be out of date.
    if file.metadata()?.rdev() != token.rdev {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it is the node of another device"));
    }
    Ok(file)
}

fn opener(token: &Token) -> Option<u32> {
    Some(processes::with_open(&[Store::Device(token.rdev)], |info| !token.is_whole || processes::writes(info))?.0)
}

fn hold(
    token: &Token,
    node: &DiskNode,
    access: Access,
    patience: Duration,
    says: &mut dyn FnMut(&str),
) -> Result<Option<File>, OpenError> {
    let name = node.path.display().to_string();
    let mut wait = Wait::new(&name, patience, says);
    let is_way_back = access == Access::BootState;
    let mut tries = 0;
    loop {
        // Only the descriptor that claims a whole device can zero it.
        match claimed(token, token.is_whole) {
            Ok(file) => return Ok(Some(file)),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            // Neither writes nor mounts go through it.
            Err(_) if is_way_back => return Ok(None),
            Err(source) => return Err(OpenError::Io { path: token.path.display().to_string(), source }),
        }
        // A mount or a mapping may have the whole, of which the kernel shows no partition to claim instead. Users of
        // the written ranges are found later.
        let is_used = || claim::uses_of(node, &[ALL]).is_ok_and(|users| !users.is_empty());
        // Looked up once: it reads all of /proc, and this is asked again while another writer is waited for.
        let is_open = opener(token).is_some();
        if token.is_whole && !is_open && (is_way_back || is_used()) {
            return Ok(None);
        }
        // A mapping of the whole keeps all programs from its partitions, too, and stays longer than a verb waits. No
        // writer of ours can have come before it.
        if !token.is_whole && !is_open {
            let users = users_of_whole(node);
            if !users.is_empty() {
                return if is_way_back { Ok(None) } else { Err(OpenError::Claimed { path: name, users }) };
            }
        }
        tries += 1;
        if !wait.goes_on(&|| in_words(opener(token))) {
            if tries >= INSTANTS {
                return Err(wait.given_up(in_words(opener(token))));
            }
            thread::sleep(INSTANT);
        }
    }
}

fn users_of_whole(node: &DiskNode) -> Vec<DiskUse> {
    let whole = node.path.display().to_string();
    let mut users = claim::uses_of(node, &[ALL]).unwrap_or_default();
    users.retain(|user| user.device == whole);
    users
}

/// Waits until no other writer has the device. The whole device is claimed next, and a claim on its partition would be in the way
/// of that. Users that the kernel names have a disk for longer than a verb runs: the claim on the whole refuses those at once.
fn wait_for(token: &Token, node: &DiskNode, patience: Duration, says: &mut dyn FnMut(&str)) -> Result<(), OpenError> {
    if claim::uses_of(node, &[ALL]).is_ok_and(|users| !users.is_empty()) {
        return Ok(());
    }
    match hold(token, node, Access::Whole, patience, says) {
        Err(locked @ OpenError::Locked { .. }) => Err(locked),
        // The claim on the whole reports other faults.
        _ => Ok(()),
    }
}

// The file may be out of sight, in another mount namespace.
fn backing_file(
    devices: &Devices,
    store: Store,
    patience: Duration,
    says: &mut dyn FnMut(&str),
) -> Result<Option<Flock<File>>, OpenError> {
    let Some(path) = devices.backing_path(store).filter(|path| Store::at(path) == Some(store)) else { return Ok(None) };
    let Ok(file) = File::open(&path) else { return Ok(None) };
    lock(file, &path.display().to_string(), true, patience, says).map(Some)
}
