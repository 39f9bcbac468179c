//! Write a payload into the slot that is not kept, and have the next boot try it once; or only stage it.

use slipway_core::{
    digest::Sha256,
    payload::{
        facts::PayloadFacts,
        manifest::{Arch, KernelArgs},
    },
    plan::{self, Plan, Refusals, RequestBase, RunsFrom, SystemFacts, UpgradeRequest},
    rate::ByteRate,
    report::{ChangeReport, FailureKind, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest, InstalledDisk, KernelArgsRequest, SourceRequest, installed_disk, payload,
};
use crate::{
    device::Access,
    error::{Failure, OrFail as _},
    execute::Sources,
    payload::{ChecksumPolicy, image::Inspection},
    transfer::PayloadFiles,
};

/// What becomes of the slot once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// Nothing boots it yet.
    Staged,
    /// The next boot tries it once.
    Activated {
        /// Keep EPHEMERAL.
        preserve: bool,
        /// An EPHEMERAL that is not kept is left blank: the OS encrypts it.
        blank_ephemeral: bool,
    },
}

/// Which kernel arguments the slot gets.
#[derive(Clone, Debug)]
pub enum UpgradeArgs {
    /// What nobody said is taken over from the slot that is kept.
    Kept(KernelArgsRequest),
    /// Exactly these. machined says everything.
    Given(KernelArgs),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where the system runs that asks for it.
    pub runs_from: RunsFrom,
    /// The payload.
    pub source: SourceRequest,
    /// What becomes of the slot once it is written.
    pub afterwards: Afterwards,
    /// For the kernel command line.
    pub kernel_args: UpgradeArgs,
    /// META tags, in order.
    pub meta: Vec<(u8, Vec<u8>)>,
    /// Write a payload again that was tried and came back.
    pub retry_bad: bool,
    /// Let any version follow any other.
    pub allow_any_version: bool,
    /// Architecture of the machine.
    pub arch: Arch,
    /// Use the disk no faster than this.
    pub limit_rate: Option<ByteRate>,
}

/// A payload that is to be written to the disk.
pub struct Upgrade<'a> {
    request: &'a Request,
    facts: PayloadFacts,
    files: &'a dyn PayloadFiles,
    digest: Sha256,
    dry_run: bool,
    /// Settled once the disk was looked at.
    kernel_args: KernelArgs,
}

impl<'a> Upgrade<'a> {
    /// From a payload that was looked at.
    pub fn new(request: &'a Request, facts: PayloadFacts, files: &'a dyn PayloadFiles, dry_run: bool) -> Self {
        let digest = facts.manifest().payload_digest();
        Upgrade { request, facts, files, digest, dry_run, kernel_args: KernelArgs::default() }
    }

    /// The slot that is kept is the way back. It is read in full, but for a dry run, which reads only what GRUB loads of it
    /// unless it may be what is asked for. The other slot is read where it may be kept as it is, or may be the only one that
    /// boots.
    fn verify_slots(&self, disk: &mut InstalledDisk, observer: &mut dyn Observer) {
        let Some(kept) = self.request.runs_from.kept(&disk.system) else { return };
        if !self.dry_run || disk.system.slots[kept].payload() == Some(self.digest) {
            disk.verify_slot(kept, observer);
        } else {
            observer.note(&format!("a dry run does not read all of slot {kept}, which is kept"));
        }
        let same = disk.system.slots[!kept].payload() == Some(self.digest);
        let default = disk.system.env.as_ref().is_some_and(|env| env.default == !kept);
        if same || default || disk.system.slots[kept].damage().is_some() {
            disk.verify_slot(!kept, observer);
        }
    }
}

impl Change for Upgrade<'_> {
    fn prepare(&mut self, disk: &mut InstalledDisk, observer: &mut dyn Observer) -> Result<(), Failure> {
        self.verify_slots(disk, observer);
        self.kernel_args = match &self.request.kernel_args {
            UpgradeArgs::Given(args) => args.clone(),
            UpgradeArgs::Kept(said) => {
                said.kept_from(self.request.runs_from, &disk.system).or_fail(FailureKind::Install)?
            }
        };
        Ok(())
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        let request = self.request;
        let (activate, preserve, blank_ephemeral) = match request.afterwards {
            Afterwards::Staged => (false, true, false),
            Afterwards::Activated { preserve, blank_ephemeral } => (true, preserve, blank_ephemeral),
        };
        let request = UpgradeRequest {
            base: base.clone(),
            origin: request.runs_from,
            activate,
            preserve,
            blank_ephemeral,
            retry_bad: request.retry_bad,
            allow_any_version: request.allow_any_version,
            args: self.kernel_args.clone(),
            meta: request.meta.clone(),
            arch: request.arch,
        };
        plan::upgrade(&request, system, &self.facts)
    }

    fn payload(&self, _: &SystemFacts) -> Option<Sha256> {
        Some(self.digest)
    }

    fn sources(&self) -> Sources<'_> {
        Sources { payload: Some(self.files), assets: None }
    }
}

/// Upgrade or stage.
pub fn run(
    disk: &DiskRequest,
    request: &Request,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    // Nothing runs from a disk that is upgraded from a live medium, so nothing of it may be in use.
    let wipes = matches!(request.afterwards, Afterwards::Activated { preserve: false, .. });
    let access = if wipes || request.runs_from != RunsFrom::Inside { Access::Whole } else { Access::Write };
    let opened = disk.open(access)?;
    let mut installed = installed_disk::look(disk, &opened)?;
    installed.limit(request.limit_rate);
    let source = payload::open(&request.source, request.arch)?;
    // The slot that is kept stays as it is whatever comes of this one: the files are compared while they are written.
    let policy = ChecksumPolicy::of(request.source.strict);
    let payload = source.look(policy, Inspection::Declared, installed.limiter(), observer)?;
    let mut upgrade = Upgrade::new(request, payload.facts, &payload.source, options.dry_run);
    installed.change(&mut upgrade, options, observer)
}
