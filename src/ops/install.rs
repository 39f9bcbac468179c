//! Lays out a disk or an image file, and installs a payload into slot A.

use std::path::Path;

use anyhow::anyhow;
use slipway_core::{
    boot::EfiLoader,
    digest::Sha256,
    disk::{
        identity::DiskKind,
        layout::{DEFAULT_SLOT_BYTES, Part},
    },
    kernel::arch::Arch,
    media::medium_id::MediumId,
    payload::{
        facts::PayloadFacts,
        manifest::{KernelArgs, UKI},
    },
    plan::{self, AssetFacts, DiskFacts, Found, Ids, InstallRequest, Plan},
    report::{FailureKind, InstallReport, Observer},
};
use uuid::Uuid;

use super::{
    DiskRequest, SystemRequest, after_failure,
    efi_signer::EfiSigner,
    payload,
    secure_boot_check::SecureBoot,
    secure_boot_uki::{self, WithUki},
    source_failure,
};
use crate::{
    bootloader::Assets,
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    execute::{self, Sources},
    payload::{ChecksumPolicy, image::Inspection},
    probe,
    tools::Tool,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub system: SystemRequest,
    /// Replaces `system.kernel_args`, with all defaults filled in.
    pub kernel_args: KernelArgs,
    /// Overwrite a disk that is not empty.
    pub force: bool,
    /// Erase the whole disk as well.
    pub zero: bool,
    /// The live medium that installs unattended, so that it recognizes this disk later.
    pub medium: Option<MediumId>,
    pub identifiers: Identifiers,
    /// The requester, for the history of the disk.
    pub by: String,
    /// No person is there, and this machine starts the disk next.
    pub unattended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identifiers {
    /// Random GUIDs, and the time of day.
    Fresh,
    /// Identifiers that are the same every time, for reproducible images.
    Seeded {
        /// The GUIDs are made from this. None: from the plan without GUIDs, which describes all that goes onto the
        /// disk.
        seed: Option<Sha256>,
        /// Seconds since 1970 UTC.
        time: u64,
    },
}

impl Request {
    fn with(&self, ids: Ids) -> InstallRequest {
        let system = &self.system;
        InstallRequest {
            force: self.force,
            zero: self.zero,
            format_data: system.format_data.unwrap_or(true),
            // An explicit --format-data overrides the config's encryption.
            encrypted: if system.format_data.is_none() { system.encrypted.clone() } else { vec![] },
            bootable_mbr: system.bootable_mbr,
            no_menu: system.boot_menu == Some(false),
            slot_bytes: system.slot_bytes.unwrap_or(DEFAULT_SLOT_BYTES),
            ids,
            args: self.kernel_args.clone(),
            meta: system.meta.clone(),
            arch: system.arch,
            medium: self.medium,
            allow_unsigned: system.source.trust.allow_unsigned,
            by: self.by.clone(),
        }
    }
}

pub fn run(disk: &DiskRequest, request: &Request, observer: &mut dyn Observer) -> Result<InstallReport, Failure> {
    let tools = Toolbox::open(request, observer)?;
    let opened = disk.open_with(Access::Whole, request.system.sector, observer)?;
    onto(&opened, opened.path(), request, &tools, observer)
}

/// Parts of this machine that an install needs, besides a disk and a payload.
pub struct Toolbox {
    assets: Assets,
    /// For Secure Boot.
    signer: Option<EfiSigner>,
}

impl Toolbox {
    /// Called before the disk is opened, so that a missing tool leaves it untouched.
    pub fn open(request: &Request, observer: &mut dyn Observer) -> Result<Self, Failure> {
        let SystemRequest { arch, efi_loader, secure_boot, .. } = &request.system;
        let mut assets = Assets::load(*arch, efi_loader.unwrap_or_default()).or_fail(FailureKind::Environment)?;
        let signer = secure_boot.as_ref().map(|signed| EfiSigner::open(&signed.signer, observer)).transpose()?;
        if let Some(signer) = &signer {
            assets.efi = secure_boot_uki::signed(&assets.efi, arch.efi_image(), signer)?;
        }
        let settled = request.with(Ids::none(0));
        if [Part::State, Part::Ephemeral].iter().any(|part| settled.formats(*part)) {
            Tool::MkfsXfs.find().or_fail(FailureKind::Dependency)?;
        }
        Ok(Toolbox { assets, signer })
    }
}

/// `name` is the user's name for the disk: for an image, not the temporary file.
pub fn onto(
    disk: &Disk,
    name: &Path,
    request: &Request,
    tools: &Toolbox,
    observer: &mut dyn Observer,
) -> Result<InstallReport, Failure> {
    let source = payload::open(&request.system.source, request.system.arch)?;
    let facts = probe::disk_facts(disk).or_fail(FailureKind::Install)?;
    // Do not overwrite an existing system for a payload that may turn out bad: read all of it first. On an empty disk
    // nothing is lost, and checking while writing is faster. What is refused anyway need not be read for that.
    let is_declared =
        facts.found == Found::Nothing || plan::is_refused_by_the_disk(&request.with(Ids::none(0)), &facts);
    let inspection = if is_declared { Inspection::Declared } else { Inspection::Everything };
    let policy = ChecksumPolicy::from_strict(request.system.source.strict);
    let named = source.named().clone();
    let payload = source.look(policy, inspection, None, observer)?;
    // A unified kernel image that is made here has these arguments.
    let loader = request.system.efi_loader.unwrap_or_default();
    let note = plan::uki_note(&request.kernel_args, &payload.facts, Some(loader));
    note.iter().for_each(|note| observer.note(note));
    let (source, payload) = match (&request.system.secure_boot, &tools.signer) {
        (Some(secure_boot), Some(signer)) => {
            let platform = request.system.kernel_args.platform;
            let recipe = secure_boot_uki::recipe(secure_boot, platform, &request.kernel_args, request.system.arch);
            WithUki::made(payload, &named, &recipe, signer, observer)?
        }
        _ => (WithUki::none(payload.source), payload.facts),
    };
    let decision = Decision {
        request,
        disk: facts,
        payload: &payload,
        assets: probe::asset_facts(&tools.assets, request.system.arch),
        name: name.display().to_string(),
    };
    let plan = decision.plan()?;
    plan.warnings.iter().for_each(|warning| observer.note(warning));
    if let Some(why) = not_started(disk, request, tools, &source, &payload).map_err(|e| source_failure(&named, e))? {
        if request.unattended {
            return Err(anyhow!("nothing was written: {why}").context(name.display().to_string()))
                .or_fail(FailureKind::Environment);
        }
        observer.note(&why);
    }
    let dry_run = request.system.dry_run;
    if !dry_run {
        let sources = Sources { payload: Some(&source), assets: Some(&tools.assets), ..Sources::default() };
        execute::run(&plan, disk, sources, observer)
            .map_err(|failed| after_failure::of_install(failed, &plan, disk))?;
    }
    let digest = payload.manifest().payload_digest();
    Ok(InstallReport { changed: !dry_run, disk: decision.named(&decision.name).identity, payload: digest, plan })
}

/// Why this machine would not start from the disk. None also for a disk or an image of another machine.
fn not_started(
    disk: &Disk,
    request: &Request,
    tools: &Toolbox,
    source: &WithUki,
    payload: &PayloadFacts,
) -> anyhow::Result<Option<String>> {
    let is_started_here = disk.identity().kind == DiskKind::Disk && request.system.arch == Arch::NATIVE;
    if !is_started_here || !super::secure_boot_is_on() {
        return Ok(None);
    }
    let firmware = SecureBoot::of_this_machine();
    let why = match firmware.against("the boot loader", &tools.assets.efi) {
        Some(why) => Some(why),
        // It starts kernels, too.
        None if request.system.efi_loader == Some(EfiLoader::Grub) => None,
        // Reading it may be a download. One reason is enough.
        None => match source.uki(payload)? {
            Some(uki) => firmware.against(UKI, &uki),
            None => Some(format!("the payload: it has no {UKI}")),
        },
    };
    let sign = match request.unattended {
        true => "make the live medium with `installer image --kind iso --key FILE --certificate FILE`",
        false => "install with --key and --certificate",
    };
    Ok(why.map(|why| {
        format!(
            "Secure Boot is on in this machine, which would not start from this disk ({why}): {sign}, or take signed boot \
             assets and a signed {UKI} in the payload"
        )
    }))
}

/// All inputs of a plan, except the GUIDs.
struct Decision<'a> {
    request: &'a Request,
    disk: DiskFacts,
    payload: &'a PayloadFacts,
    assets: AssetFacts,
    name: String,
}

impl Decision<'_> {
    fn plan(&self) -> Result<Plan, Failure> {
        let ids = match self.request.identifiers {
            Identifiers::Fresh => {
                Ids { disk: Uuid::new_v4(), parts: std::array::from_fn(|_| Uuid::new_v4()), time: super::now() }
            }
            Identifiers::Seeded { seed: Some(seed), time } => Ids::seeded(seed, time),
            // Without the path: the same image must come out wherever the file lies.
            Identifiers::Seeded { seed: None, time } => Ids::seeded(self.plan_with(Ids::none(time), "")?.hash(), time),
        };
        self.plan_with(ids, &self.name)
    }

    fn plan_with(&self, ids: Ids, path: &str) -> Result<Plan, Failure> {
        let plan = plan::install(&self.request.with(ids), &self.named(path), self.payload, &self.assets);
        plan.map_err(|refusals| super::refused(refusals, &self.name))
    }

    fn named(&self, path: &str) -> DiskFacts {
        let mut disk = self.disk.clone();
        path.clone_into(&mut disk.identity.path);
        disk
    }
}
