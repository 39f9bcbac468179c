//! Writes a payload into the target slot. Then the next boot tries it once, or it stays staged.

use std::path::Path;

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    kernel::arch::Arch,
    payload::{facts::PayloadFacts, manifest::KernelArgs},
    plan::{
        self, Asked, Exceptions, Plan, Refusals, RequestBase, RunsFrom, SnapshotRequest, Step, SystemFacts,
        UpgradeRequest, bootloader::RenewalRequest,
    },
    rate_limit::ByteRate,
    report::{ChangeReport, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest, InstalledDisk, KernelArgsRequest, SourceRequest,
    bootloader::{self, Renewal},
    clones::Clones,
    payload, snapshot,
};
use crate::{
    device::{self, Access, Disk},
    error::Failure,
    execute::{Slots, Sources, TakesSnapshot, old_of},
    payload::{ChecksumPolicy, image::Inspection},
    probe,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// `activate` does the rest later.
    Staged,
    /// The next boot tries it once.
    Activated {
        preserve: bool,
        /// Leave an EPHEMERAL that is not kept blank, because the OS encrypts it.
        blank_ephemeral: bool,
    },
}

#[derive(Clone, Debug)]
pub enum KernelArgsChoice {
    /// Values that were not requested come from the kept slot.
    Kept(KernelArgsRequest),
    /// Exactly these: machined passes all of them.
    Given(KernelArgs),
}

#[derive(Clone, Debug)]
pub struct Request {
    /// Place that the installer runs from.
    pub runs_from: RunsFrom,
    pub source: SourceRequest,
    pub afterwards: Afterwards,
    pub kernel_args: KernelArgsChoice,
    pub meta: Vec<(u8, Vec<u8>)>,
    pub exceptions: Exceptions,
    pub arch: Arch,
    pub limit_rate: Option<ByteRate>,
    pub renewal: Renewal,
    /// Keep what the running system declares, so that it goes back with it.
    pub snapshot: bool,
}

pub struct Upgrade<'a> {
    pub request: &'a Request,
    pub payload: &'a PayloadFacts,
    /// Arguments that the firmware adds to a payload's own.
    pub firmware: &'a [String],
    /// Slipway's loader starts nothing but unified kernel images from the disk.
    pub only_ukis_start: bool,
    /// The renewal of the boot loaders.
    pub renewal: Option<RenewalRequest>,
    /// The snapshot of the running system.
    pub snapshot: Option<SnapshotRequest>,
    pub dry_run: bool,
}

impl Upgrade<'_> {
    fn digest(&self) -> Sha256 {
        self.payload.manifest().payload_digest()
    }

    /// The kept slot, if a dry run does not read all of it. It does if that slot may hold the requested payload
    /// already.
    fn unread(&self, system: &SystemFacts) -> Option<Slot> {
        let kept = self.request.runs_from.kept(system).filter(|_| self.dry_run)?;
        (system.slots[kept].payload() != Some(self.digest())).then_some(kept)
    }
}

impl Change for Upgrade<'_> {
    /// The kept slot is the way back, so all of it is verified; a dry run only reads the files that GRUB loads. The
    /// target slot is verified if it may hold the payload already, may be the only slot that boots, or waits for its
    /// trial.
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let kept = self.request.runs_from.kept(system)?;
        let unverified = |slot: Slot| system.slots[slot].whole.is_none();
        if unverified(kept) && self.unread(system).is_none() {
            return Some(kept);
        }
        let same = system.slots[!kept].payload() == Some(self.digest());
        let default = system.env.as_ref().is_some_and(|env| env.default == !kept);
        let only = system.slots[kept].damage().is_some();
        // A damaged slot is no pending trial.
        let pending = system.env.as_ref().is_some_and(|env| env.once == Some(!kept));
        (unverified(!kept) && (same || default || only || pending)).then_some(!kept)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        let request = self.request;
        let (activate, preserve, blank_ephemeral) = match request.afterwards {
            Afterwards::Staged => (false, true, false),
            Afterwards::Activated { preserve, blank_ephemeral } => (true, preserve, blank_ephemeral),
        };
        let args = match &request.kernel_args {
            KernelArgsChoice::Given(args) => Ok(args.clone()),
            KernelArgsChoice::Kept(said) => said.kept_from(request.runs_from, system),
        };
        let (args, lost) = args.map_or_else(|lost| (KernelArgs::default(), Some(lost)), |args| (args, None));
        let firmware = if args.payload_only { self.firmware.to_vec() } else { vec![] };
        let request = UpgradeRequest {
            base: base.clone(),
            runs_from: request.runs_from,
            activate,
            preserve,
            blank_ephemeral,
            exceptions: request.exceptions,
            allow_unsigned: request.source.trust.allow_unsigned,
            args: KernelArgs { firmware, ..args },
            meta: request.meta.clone(),
            arch: request.arch,
            only_ukis_start: self.only_ukis_start,
            bootloader: self.renewal.clone(),
            snapshot: self.snapshot.clone(),
        };
        let plan = plan::upgrade(&request, system, self.payload);
        // No arguments mend what else is refused.
        match lost {
            Some(lost) => Err(plan.err().unwrap_or_else(|| lost.into())),
            None => plan,
        }
    }

    fn renewal(&self) -> Option<&RenewalRequest> {
        self.renewal.as_ref()
    }

    fn payload(&self, _: &SystemFacts) -> Option<Sha256> {
        Some(self.digest())
    }

    fn remark(&self, system: &SystemFacts) -> Option<String> {
        let kept = self.unread(system)?;
        Some(format!("a dry run does not verify all of slot {kept}, which is kept"))
    }
}

/// The plan of an upgrade that finds both slots undamaged, without reading all of them.
pub fn if_undamaged(
    request: &Request,
    payload: &PayloadFacts,
    firmware: &[String],
    system: &SystemFacts,
) -> Result<Plan, Refusals> {
    let mut system = system.clone();
    for slot in Slot::BOTH {
        system.slots[slot].whole.get_or_insert(Ok(()));
    }
    let base = RequestBase { disk: String::new(), now: 0, asked: Asked::default() };
    let only_ukis_start = super::only_ukis_start(request.runs_from);
    let (renewal, snapshot, dry_run) = (None, None, true);
    Upgrade { request, payload, firmware, only_ukis_start, renewal, snapshot, dry_run }.decide(&base, &system)
}

/// Whether the payload is written, and so compared on its way, for any later finding in the slots: damage only adds
/// writes to a plan. A refused plan may differ later.
fn is_written(request: &Request, payload: &PayloadFacts, firmware: &[String], system: &SystemFacts) -> bool {
    let writes = |plan: Plan| plan.steps.iter().any(|step| matches!(step, Step::WriteVolume { .. }));
    let digest = payload.manifest().payload_digest();
    let is_claimed = || Slot::BOTH.into_iter().any(|slot| system.slots[slot].payload() == Some(digest));
    if_undamaged(request, payload, firmware, system).map_or_else(|_| !is_claimed(), writes)
}

pub fn run(
    disk: &DiskRequest,
    request: &Request,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    // From outside nothing of the disk may be in use.
    let access = if request.runs_from == RunsFrom::Inside { Access::Write } else { Access::Whole };
    let opened = disk.open(access, observer)?;
    onto(&opened, &disk.path, request, options, observer)
}

/// `name` is the user's name for the disk.
pub fn onto(
    disk: &Disk,
    name: &Path,
    request: &Request,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let (identity, name) = (disk.identity().clone(), name.display().to_string());
    let mut installed = InstalledDisk::look(disk, identity, &name, &super::kernel_cmdline()?)?;
    if request.runs_from == RunsFrom::Inside {
        Clones::look(disk, &installed.system.gpt).check(observer)?;
    }
    installed.limit(request.limit_rate);
    let source = payload::open(&request.source, request.arch)?;
    // A bad payload cannot harm the kept slot, so its files are compared while they are written, not read twice.
    let policy = ChecksumPolicy::from_strict(request.source.strict);
    let firmware = device::firmware_kernel_args();
    let is_written = |payload: &PayloadFacts| is_written(request, payload, &firmware, &installed.system);
    let (old, slots) = (probe::slot_files(disk, &installed.system.gpt), Slots(disk));
    let from_disk = old_of(&old, &slots);
    let payload =
        source.look_until(policy, Inspection::Declared, is_written, Some(&from_disk), installed.limiter(), observer)?;
    let arms = request.afterwards != Afterwards::Staged;
    let renewal = if arms { request.renewal } else { Renewal::Keep };
    let (loaders, renewal) = bootloader::on_the_way(renewal, request.arch, disk.identity(), observer).unzip();
    let takes = request.snapshot && arms;
    let kept = takes.then(|| snapshot::prepare(disk, &installed.system, request.runs_from, Path::new("/")));
    let (taker, snapshot) = kept.transpose()?.flatten().map(|kept| (kept.taker, kept.request)).unzip();
    let (facts, dry_run) = (&payload.facts, options.dry_run);
    let only_ukis_start = super::only_ukis_start(request.runs_from);
    let upgrade = Upgrade { request, payload: facts, firmware: &firmware, only_ukis_start, renewal, snapshot, dry_run };
    let sources = Sources {
        payload: Some(&payload.source),
        loaders: loaders.as_ref(),
        snapshot: taker.as_ref().map(|taker| taker as &dyn TakesSnapshot),
        old: &old,
        ..Sources::default()
    };
    installed.change(&upgrade, sources, options, observer)
}
