//! `installer install`, and what `image` shares with it: all but what the disk is.

use std::path::Path;

use uuid::Uuid;

use super::{
    input,
    payload::{self, Payload},
    said::Said,
};
use crate::{
    bootloader::Assets,
    cli::{InstallArgs, Progress, SystemArgs},
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    execute::{self, Observer as _, Sources},
    payload::{Sums, image::Inspection},
    probe,
    tools::Tool,
};
use slipway_core::{
    digest::Sha256,
    disk::layout::{DEFAULT_SLOT_BYTES, Part},
    kernel::platform::Platform,
    media::medium_id::MediumId,
    payload::manifest::KernelArgs,
    plan::{self, Found, Ids, InstallRequest},
    report::{FailureKind, InstallReport, Report},
};

pub fn run(args: &InstallArgs, path: &Path, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    let report = onto(args, path, None, said, progress)?;
    Ok(Report::Install(Box::new(report)))
}

/// Install onto a disk; `medium` is what installs unattended.
pub fn onto(
    args: &InstallArgs,
    path: &Path,
    medium: Option<MediumId>,
    said: &Said,
    progress: &mut Progress,
) -> Result<InstallReport, Failure> {
    let mut request = settle(&args.system, said)?;
    request.force = args.force;
    request.zero = args.zero.unwrap_or_else(|| said.wipe());
    request.medium = medium;
    request.args.firmware = Said::firmware(request.args.payload_only);
    let install = Install::new(&args.system, request)?;
    let disk =
        Disk::open(path, Access::Whole, args.system.sector_size, args.lock_timeout).or_fail(FailureKind::Install)?;
    install.onto(&disk, disk.path(), Identities::Fresh, progress)
}

/// Where GUIDs and times come from.
pub enum Identities {
    /// Chance, and the clock.
    Fresh,
    /// The same every time.
    Seeded {
        /// What the GUIDs are made from; none: the plan without them, which is everything that goes onto the disk.
        seed: Option<Sha256>,
        /// Seconds since 1970 UTC.
        time: u64,
    },
}

/// A request, and what it takes beside a disk and a payload.
pub struct Install<'a> {
    args: &'a SystemArgs,
    request: InstallRequest,
    assets: Assets,
}

impl<'a> Install<'a> {
    pub fn new(args: &'a SystemArgs, request: InstallRequest) -> Result<Self, Failure> {
        let assets = Assets::load(request.arch).or_fail(FailureKind::Environment)?;
        if [Part::State, Part::Ephemeral].iter().any(|part| request.formats(*part)) {
            Tool::MkfsXfs.find().or_fail(FailureKind::Dependency)?;
        }
        Ok(Install { args, request, assets })
    }

    /// Look, decide, do. `name` is what people call the disk.
    pub fn onto(
        mut self,
        disk: &Disk,
        name: &Path,
        identities: Identities,
        progress: &mut Progress,
    ) -> Result<InstallReport, Failure> {
        let SystemArgs { source, dry_run, .. } = self.args;
        let opened = payload::open(source, self.request.arch)?;
        let mut facts = probe::disk_facts(disk).or_fail(FailureKind::Install)?;
        // A system that is going to be overwritten is not given up for a payload nobody has read to its end.
        let look = if facts.found == Found::Nothing { Inspection::Declared } else { Inspection::Everything };
        let Payload { source, facts: payload } = opened.look(Sums::wanted(source.strict), look, progress)?;
        let assets_facts = probe::asset_facts(&self.assets, self.request.arch);
        let mut decide = |ids, path: &Path| {
            self.request.ids = ids;
            facts.identity.path = path.display().to_string();
            plan::install(&self.request, &facts, &payload, &assets_facts).map_err(|refusals| {
                let kind = refusals.kind();
                Failure { kind, error: anyhow::Error::new(refusals).context(name.display().to_string()) }
            })
        };
        let ids = match identities {
            Identities::Fresh => {
                Ids { disk: Uuid::new_v4(), parts: std::array::from_fn(|_| Uuid::new_v4()), time: super::now() }
            }
            Identities::Seeded { seed: Some(seed), time } => Ids::seeded(seed, time),
            // Where the file lies is nothing that goes into it.
            Identities::Seeded { seed: None, time } => {
                Ids::seeded(decide(Ids::none(time), Path::new(""))?.hash(), time)
            }
        };
        let plan = decide(ids, name)?;
        for warning in &plan.warnings {
            progress.note(warning);
        }
        if !dry_run {
            let sources = Sources { payload: Some(&source), assets: Some(&self.assets) };
            execute::run(&plan, disk, sources, progress).map_err(|e| Failure { kind: e.kind, error: e.into() })?;
        }
        Ok(InstallReport {
            changed: !dry_run,
            disk: facts.identity,
            payload: payload.manifest().payload_digest(),
            plan,
        })
    }
}

/// What was asked for, onto a disk that is empty; without GUIDs and time, and nothing of this machine's firmware.
pub fn settle(args: &SystemArgs, said: &Said) -> Result<InstallRequest, Failure> {
    input(Platform::settled(&args.platform).map_err(|e| e.to_string()))?;
    Ok(InstallRequest {
        force: false,
        zero: false,
        format_data: args.format_data.unwrap_or(true),
        encrypted: if args.format_data.is_none() { said.encrypted() } else { vec![] },
        bootable_mbr: said.legacy_bios_support(),
        slot_bytes: args.slot_size.map_or(DEFAULT_SLOT_BYTES, |size| size.0),
        ids: Ids::none(0),
        args: kernel_args(args, said),
        meta: said.meta(&args.meta)?,
        arch: args.arch,
        medium: None,
    })
}

/// What was said of the kernel command line; nothing of this machine's firmware.
pub fn kernel_args(args: &SystemArgs, said: &Said) -> KernelArgs {
    KernelArgs {
        platform: args.platform.clone(),
        config: args.config.clone(),
        extra: args.extra_kernel_arg.clone(),
        payload_only: said.payload_only().unwrap_or(false),
        firmware: vec![],
    }
}
