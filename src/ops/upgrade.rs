//! Write a payload into the slot that is not kept, and have the next boot try it once; or only stage it.

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    kernel::arch::Arch,
    payload::{facts::PayloadFacts, manifest::KernelArgs},
    plan::{self, Plan, Refusals, RequestBase, RunsFrom, SystemFacts, UpgradeRequest},
    rate::ByteRate,
    report::{ChangeReport, Observer},
};

use super::{Change, ChangeOptions, DiskRequest, KernelArgsRequest, SourceRequest, installed_disk, payload};
use crate::{
    device::{self, Access},
    error::Failure,
    execute::Sources,
    payload::{ChecksumPolicy, image::Inspection},
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
    /// What is asked for.
    pub request: &'a Request,
    /// The payload that was looked at.
    pub payload: &'a PayloadFacts,
    /// What the firmware adds to a payload's own kernel arguments.
    pub firmware: &'a [String],
    /// Only the plan is asked for.
    pub dry_run: bool,
}

impl Upgrade<'_> {
    fn digest(&self) -> Sha256 {
        self.payload.manifest().payload_digest()
    }

    /// The slot that is kept, where a dry run does not read all of it: it may not be what is asked for.
    fn unread(&self, system: &SystemFacts) -> Option<Slot> {
        let kept = self.request.runs_from.kept(system).filter(|_| self.dry_run)?;
        (system.slots[kept].payload() != Some(self.digest())).then_some(kept)
    }
}

impl Change for Upgrade<'_> {
    /// The slot that is kept is the way back: all of it is read, but for a dry run, which reads what GRUB loads. The other
    /// slot is read where it may be kept as it is, or may be the only one that boots.
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let kept = self.request.runs_from.kept(system)?;
        let unverified = |slot: Slot| system.slots[slot].whole.is_none();
        if unverified(kept) && self.unread(system).is_none() {
            return Some(kept);
        }
        let same = system.slots[!kept].payload() == Some(self.digest());
        let default = system.env.as_ref().is_some_and(|env| env.default == !kept);
        let only = system.slots[kept].damage().is_some();
        (unverified(!kept) && (same || default || only)).then_some(!kept)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        let request = self.request;
        let (activate, preserve, blank_ephemeral) = match request.afterwards {
            Afterwards::Staged => (false, true, false),
            Afterwards::Activated { preserve, blank_ephemeral } => (true, preserve, blank_ephemeral),
        };
        let args = match &request.kernel_args {
            UpgradeArgs::Given(args) => args.clone(),
            UpgradeArgs::Kept(said) => said.kept_from(request.runs_from, system)?,
        };
        let firmware = if args.payload_only { self.firmware.to_vec() } else { vec![] };
        let request = UpgradeRequest {
            base: base.clone(),
            runs_from: request.runs_from,
            activate,
            preserve,
            blank_ephemeral,
            retry_bad: request.retry_bad,
            allow_any_version: request.allow_any_version,
            args: KernelArgs { firmware, ..args },
            meta: request.meta.clone(),
            arch: request.arch,
        };
        plan::upgrade(&request, system, self.payload)
    }

    fn payload(&self, _: &SystemFacts) -> Option<Sha256> {
        Some(self.digest())
    }

    fn remark(&self, system: &SystemFacts) -> Option<String> {
        let kept = self.unread(system)?;
        Some(format!("a dry run does not read all of slot {kept}, which is kept"))
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
    let firmware = device::firmware_kernel_args();
    let upgrade = Upgrade { request, payload: &payload.facts, firmware: &firmware, dry_run: options.dry_run };
    let sources = Sources { payload: Some(&payload.source), assets: None };
    installed.change(&upgrade, sources, options, observer)
}
