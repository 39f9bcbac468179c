//! `installer install`.

use std::path::Path;

use uuid::Uuid;

use super::{
    input,
    payload::{self, Payload},
    said::Said,
};
use crate::{
    bootloader::Assets,
    cli::InstallArgs,
    device::{Access, Disk},
    error::{Failure, Kind, OrFail as _},
    execute::{self, Observer as _, Sources},
    model::{cmdline::Platform, layout::Part, manifest::KernelArgs},
    payload::{Sums, image::Look},
    plan::{self, Found, Ids, InstallRequest},
    probe,
    report::{InstallReport, Progress, Report},
    tools::Tool,
};

pub fn run(args: InstallArgs, path: &Path, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    let request = settle(&args, said)?;
    let assets = Assets::load(request.arch).or_fail(Kind::Environment)?;
    if [Part::State, Part::Ephemeral].iter().any(|part| request.formats(*part)) {
        Tool::MkfsXfs.find().or_fail(Kind::Dependency)?;
    }
    let disk = Disk::open(path, Access::Whole, args.sector_size, args.lock_timeout).or_fail(Kind::Install)?;
    let opened = payload::open(&args.source, request.arch)?;
    let facts = probe::disk_facts(&disk).or_fail(Kind::Install)?;
    // A system that is going to be overwritten is not given up for a payload nobody has read to its end.
    let look = if facts.found == Found::Nothing { Look::Declared } else { Look::Everything };
    let Payload { source, facts: payload } = opened.look(Sums::wanted(args.source.strict), look, progress)?;
    let assets_facts = probe::asset_facts(&assets, request.arch);
    let plan = plan::install(&request, &facts, &payload, &assets_facts).map_err(|refusals| {
        let kind = refusals.kind();
        Failure { kind, error: anyhow::Error::new(refusals).context(path.display().to_string()) }
    })?;
    for warning in &plan.warnings {
        progress.note(warning);
    }
    if !args.dry_run {
        let sources = Sources { payload: Some(&source), assets: Some(&assets) };
        execute::run(&plan, &disk, sources, progress).map_err(|e| Failure { kind: e.kind, error: e.into() })?;
    }
    Ok(Report::Install(Box::new(InstallReport {
        changed: !args.dry_run,
        disk: facts.identity,
        payload: payload.manifest().payload_digest(),
        plan,
    })))
}

fn settle(args: &InstallArgs, said: &Said) -> Result<InstallRequest, Failure> {
    input(Platform::settled(&args.platform).map_err(|e| e.to_string()))?;
    let payload_only = said.payload_only().unwrap_or(false);
    Ok(InstallRequest {
        force: args.force,
        zero: args.zero.unwrap_or_else(|| said.wipe()),
        format_data: args.format_data.unwrap_or(true),
        encrypted: if args.format_data.is_none() { said.encrypted() } else { vec![] },
        bootable_mbr: said.legacy_bios_support(),
        slot_bytes: args.slot_size.0,
        ids: Ids { disk: Uuid::new_v4(), parts: std::array::from_fn(|_| Uuid::new_v4()), time: super::now() },
        args: KernelArgs {
            platform: args.platform.clone(),
            config: args.config.clone(),
            extra: args.extra_kernel_arg.clone(),
            payload_only,
            firmware: Said::firmware(payload_only),
        },
        meta: said.meta(&args.meta)?,
        arch: args.arch,
    })
}
