//! Verifies the staged slot again, renews the boot loaders, and has the next boot try that slot once.

use std::path::Path;

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    kernel::arch::Arch,
    plan::{
        self, ActivateRequest, Plan, Refusals, RequestBase, RunsFrom, SnapshotRequest, SystemFacts,
        bootloader::RenewalRequest,
    },
    report::{ChangeReport, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest,
    bootloader::{self, Renewal},
    clones::Clones,
    installed_disk::{self, first_unverified},
    snapshot,
};
use crate::{
    device::Access,
    error::Failure,
    execute::{Sources, TakesSnapshot},
};

#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Place that the installer runs from.
    pub runs_from: RunsFrom,
    /// Keep EPHEMERAL. Otherwise it is erased, so nothing may use it.
    pub preserve: bool,
    pub renewal: Renewal,
    /// Architecture of the boot loaders.
    pub arch: Arch,
    /// Keep what the running system declares, so that it goes back with it.
    pub snapshot: bool,
}

pub struct Activate {
    pub runs_from: RunsFrom,
    pub preserve: bool,
    /// Slipway's loader starts nothing but unified kernel images from the disk.
    pub only_ukis_start: bool,
    /// The renewal of the boot loaders.
    pub renewal: Option<RenewalRequest>,
    /// The snapshot of the running system.
    pub snapshot: Option<SnapshotRequest>,
}

impl Change for Activate {
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let kept = self.runs_from.kept(system)?;
        first_unverified([!kept, kept], system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        let (base, bootloader, snapshot) = (base.clone(), self.renewal.clone(), self.snapshot.clone());
        let Activate { runs_from, preserve, only_ukis_start, .. } = *self;
        plan::activate(&ActivateRequest { base, runs_from, preserve, only_ukis_start, bootloader, snapshot }, system)
    }

    fn renewal(&self) -> Option<&RenewalRequest> {
        self.renewal.as_ref()
    }

    fn payload(&self, system: &SystemFacts) -> Option<Sha256> {
        self.runs_from.kept(system).and_then(|kept| system.slots[!kept].payload())
    }
}

pub fn run(
    disk: &DiskRequest,
    request: Request,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let Request { runs_from, preserve, renewal, arch, snapshot } = request;
    let inside = runs_from == RunsFrom::Inside;
    let access = if inside { Access::Write } else { Access::Whole };
    let opened = disk.open(access, observer)?;
    let installed = installed_disk::look(disk, &opened)?;
    if inside {
        Clones::look(&opened, &installed.system.gpt).check(observer)?;
    }
    let (loaders, renewal) = bootloader::on_the_way(renewal, arch, opened.identity(), observer).unzip();
    let root = Path::new("/");
    let kept = snapshot.then(|| snapshot::prepare(&opened, &installed.system, runs_from, root)).transpose()?.flatten();
    let (taker, snapshot) = kept.map(|kept| (kept.taker, kept.request)).unzip();
    let taker = taker.as_ref().map(|taker| taker as &dyn TakesSnapshot);
    let sources = Sources { loaders: loaders.as_ref(), snapshot: taker, ..Sources::default() };
    let only_ukis_start = super::only_ukis_start(runs_from);
    let activate = Activate { runs_from, preserve, only_ukis_start, renewal, snapshot };
    installed.change(&activate, sources, options, observer)
}
