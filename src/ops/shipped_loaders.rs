//! The boot loaders that this installer has for a disk, and what would keep them from it.

use slipway_core::{
    disk::identity::{DiskIdentity, DiskKind},
    kernel::arch::Arch,
    plan::{
        SystemFacts,
        bootloader::{BootloaderFacts, NotRenewed, Offered, RenewalRequest},
    },
    report::FailureKind,
};

use super::secure_boot_check::SecureBoot;
use crate::{
    bootloader::Loaders,
    device::{BlockIo, Disk},
    error::{Failure, OrFail as _},
    probe,
};

pub fn load(arch: Arch) -> Result<Loaders, Failure> {
    Loaders::load(arch).or_fail(FailureKind::Environment)
}

/// The installer's loaders, and the verdicts of the firmware that starts the disk. For an image file these are not known.
pub fn offered(loaders: &Loaders, arch: Arch, disk: &DiskIdentity) -> Offered {
    let firmware = match disk.kind {
        DiskKind::Disk => SecureBoot::of_this_machine(),
        DiskKind::Image => SecureBoot::Unknown("it is an image file, for another machine".to_owned()),
    };
    probe::offered(loaders, arch, &|image| firmware.verdict(image))
}

/// Whether `update` replaces loaders that `repair` does not list, see [`slipway_core::report::StatusFacts::unlisted`].
pub fn unlisted(disk: &Disk, system: &SystemFacts) -> Option<Result<(), String>> {
    system.list_missing.then_some(())?;
    let (request, facts) = mending(disk, disk.identity(), system)?;
    request.unlisted(&facts, &facts.kernels(system.env.as_ref()), system.sector)
}

/// Why `update` replaces damaged loaders only if that is accepted, see [`slipway_core::report::StatusFacts::not_started`].
pub fn not_started(disk: &dyn BlockIo, identity: &DiskIdentity, system: &SystemFacts) -> Option<NotRenewed> {
    let (request, facts) = mending(disk, identity, system)?;
    request.not_started(&facts, &facts.kernels(system.env.as_ref()), system.sector)
}

/// What an `update` without further flags would ask for, and what it would find.
fn mending(
    disk: &dyn BlockIo,
    identity: &DiskIdentity,
    system: &SystemFacts,
) -> Option<(RenewalRequest, BootloaderFacts)> {
    let arch = system.arch();
    let offered = offered(&Loaders::load(arch).ok()?, arch, identity);
    let request = RenewalRequest { offered, loader: None, ignore_secure_boot: false, mend: true };
    let facts = probe::bootloader(disk, &system.gpt, &request);
    Some((request, facts))
}
