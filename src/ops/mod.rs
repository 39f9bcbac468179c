//! The use cases. Each takes a request and returns a report, and knows nothing of clap, argv or the environment. So the
//! crash sweep and the model checker run the same code as the commands.
//!
//! A verb that changes an installed disk implements [`Change`]: which slots must be verified first, and the decision.
//! [`InstalledDisk`] does the rest in the same way for all of them.

pub mod activate;
mod after_failure;
pub mod attest;
pub mod auto_upgrade;
pub mod bootloader;
pub mod checksum;
pub mod chunk;
mod clones;
pub mod confirm;
mod copies;
mod damaged_loaders;
pub mod efi_signer;
pub mod enroll;
pub mod grow;
pub mod guard;
pub mod health;
pub mod history;
pub mod image;
pub mod inspect_disk;
pub mod inspect_payload;
pub mod install;
mod installed_disk;
mod kernel_args;
pub mod keys;
pub mod live_medium;
pub mod mend;
pub mod meta;
mod output;
mod own_disk;
mod own_input;
mod payload;
mod pstore;
pub mod pull;
pub mod push;
mod reading;
pub mod repair;
mod request;
pub mod rollback;
mod secure_boot_check;
pub mod secure_boot_uki;
mod secure_medium;
mod select_disk;
mod shipped_loaders;
pub mod sign;
pub mod signing;
mod slot_checks;
pub mod snapshot;
pub mod status;
pub mod support;
mod trust;
pub mod uki;
pub mod unattended;
pub mod upgrade;
pub mod verify;
mod well_known;
pub mod wipe;

pub use clones::IsACopy;
pub use installed_disk::{Change, InstalledDisk, PlanChanged, PlannedChange, WrittenOver};
pub use kernel_args::{KernelArgsRequest, add_extra_kernel_args};
pub use payload::{Payload, is_there};
pub use reading::{ASK_AGAIN, BeingWritten};
pub use request::{
    ChangeOptions, DiskRequest, EnrollFrom, ImageRequest, KeyFiles, MediumKeys, PcrRequest, SecureBootRequest,
    SourceRequest, SystemRequest,
};
pub use select_disk::{NotTheOne, the_one};
pub use trust::{NoRule, TrustRequest, TrustSetupError};

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use slipway_core::{
    boot::{
        loader_variable::{BootWords, says_where_from},
        running::Running,
    },
    plan::{Refusals, RunsFrom},
    report::FailureKind,
    text::quoted,
};

use crate::{
    device::{self, EfiVariables as _, Efivarfs, SECURE_BOOT},
    error::{Failure, OrFail as _},
    payload::{SourceRef, image::ImageError},
    probe::{self, ProbeError},
};

/// The UEFI loader's record of this boot (`loader/src/variable.rs`).
const BOOT_VARIABLE: &str = "/sys/firmware/efi/efivars/SlipwayBoot-b6ef5d2f-8d3a-4a0c-9c1e-5a1f5d6c0b57";

const NO_CMDLINE: &str = "/proc/cmdline (without /proc: `mount -t proc proc /proc`)";

/// Command line of the running kernel. A unified kernel image brings its own, which is signed. The boot rule's words
/// are in a variable of the firmware then, and stand behind it here.
pub fn kernel_cmdline() -> Result<String, Failure> {
    boot_words().map(|words| words.line)
}

/// The words of this boot, and why an existing variable does not count. That is no failure: a verb that does not know
/// which slot runs may still go back.
pub fn boot_words() -> Result<BootWords, Failure> {
    let line = own_cmdline()?;
    Ok(BootWords::read(&line, || match fs::read(BOOT_VARIABLE) {
        Ok(value) => Ok(Some(value)),
        // GRUB leaves none, and BIOS has none.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }))
}

fn own_cmdline() -> Result<String, Failure> {
    device::kernel_text("/proc/cmdline").context(NO_CMDLINE).or_fail(FailureKind::Environment)
}

/// Whether this machine verifies what it starts. Slipway's loader goes by this alone: it starts no kernel then.
fn secure_boot_is_on() -> bool {
    matches!(Efivarfs::of_this_machine().flag(SECURE_BOOT), Ok(Some(true)))
}

/// Whether Slipway's loader starts nothing but unified kernel images from the disk.
fn only_ukis_start(runs_from: RunsFrom) -> bool {
    match runs_from {
        // GRUB would have told the system its slot on the command line.
        RunsFrom::Inside => secure_boot_is_on() && own_cmdline().is_ok_and(|line| !says_where_from(&line)),
        RunsFrom::Medium(_) => secure_boot_is_on(),
        RunsFrom::Offline => false,
    }
}

/// Whether nothing runs from a disk. One that does not read as ours is no more at rest than in use.
pub fn is_at_rest(path: &Path) -> bool {
    let disk = DiskRequest { path: path.to_owned(), lock_timeout: Duration::ZERO, found: None };
    let guid = disk.look().ok().and_then(|opened| Some(probe::gpt(&opened).ok()?.disk_guid));
    let runs = |guid| kernel_cmdline().is_ok_and(|line| Running::from_cmdline(&line, guid).slot().is_some());
    guid.is_some_and(|guid| !runs(guid))
}

/// Seconds since 1970 UTC.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// `2026-01-31T12:00:00Z`.
fn utc(seconds: u64) -> String {
    // A boot.env that another program wrote may hold a number beyond the year 9999.
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.min(253_402_300_799)));
    humantime::format_rfc3339_seconds(time.unwrap_or(SystemTime::UNIX_EPOCH)).to_string()
}

/// The facts of a disk that should be one of ours. `name` is the user's name for it.
fn ours<T>(found: Result<T, ProbeError>, name: &str) -> Result<T, Failure> {
    let context = match &found {
        // Nothing on it can be drawn.
        Err(ProbeError::NoTable(_)) => format!("{name}: no Slipway system is found on it (`lsblk` lists the disks)"),
        Err(ProbeError::Foreign(_)) => format!(
            "{name}: no Slipway system is found on it (`installer inspect {}` shows what is there, `lsblk` lists the disks)",
            quoted(name)
        ),
        _ => name.to_owned(),
    };
    let remedy = found.as_ref().err().and_then(|e| e.way_back(&quoted(name)));
    let found = match remedy {
        Some(remedy) => found.context(WayBack { disk: name.to_owned(), remedy }),
        None => found.context(context),
    };
    found.or_fail(FailureKind::Install)
}

/// A disk of ours that does not read as one, and what brings it back.
#[derive(Debug, thiserror::Error)]
#[error("{disk}")]
pub struct WayBack {
    disk: String,
    pub remedy: String,
}

/// `name` is the user's name for the disk.
fn refused(refusals: Refusals, name: &str) -> Failure {
    Failure { kind: refusals.kind(), error: anyhow::Error::new(refusals).context(name.to_owned()) }
}

/// A value that cannot be used is wrong input.
fn input<T>(result: Result<T, String>) -> Result<T, Failure> {
    result.map_err(anyhow::Error::msg).or_fail(FailureKind::Input)
}

/// Maps a failure to the public exit codes. A registry that does not deliver is a failed dependency; a local image that
/// cannot be read or written is a problem of the environment; a wrong reference or image is wrong input.
fn source_failure(source: &SourceRef, error: anyhow::Error) -> Failure {
    let kind = match (error.downcast_ref::<ImageError>(), source) {
        (Some(ImageError::Fetch { .. } | ImageError::Unsupported { .. } | ImageError::Denied { .. }), _)
        | (Some(ImageError::NotFound { .. }), SourceRef::Docker(_)) => FailureKind::Dependency,
        (Some(ImageError::Io { .. }), _) => FailureKind::Environment,
        _ => FailureKind::Input,
    };
    Failure { kind, error }
}
