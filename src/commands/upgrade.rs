//! `installer upgrade` and `installer stage`.

use anyhow::bail;

use super::{
    change::Target,
    payload::{self, Payload},
    said::Said,
};
use crate::{
    cli::{Progress, StageArgs, UpgradeArgs},
    error::{Failure, OrFail as _},
    execute::{Observer as _, Sources},
    payload::{Sums, image::Inspection},
};
use slipway_core::{
    disk::layout::Part,
    payload::manifest::KernelArgs,
    plan::{self, RunsFrom, SystemFacts, UpgradeRequest},
    report::{ChangeReport, FailureKind, Report},
};

pub fn run(args: UpgradeArgs, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    from(RunsFrom::Inside, &args, said, progress).map(Report::Change)
}

/// An upgrade, asked for from inside or from a live system.
pub fn from(
    origin: RunsFrom,
    args: &UpgradeArgs,
    said: &Said,
    progress: &mut Progress,
) -> Result<Box<ChangeReport>, Failure> {
    let meta = said.meta(&args.meta)?;
    write(origin, &args.stage, Some(args.preserve), meta, said, progress)
}

pub fn stage(args: StageArgs, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    write(RunsFrom::Inside, &args, None, vec![], said, progress).map(Report::Change)
}

/// `activate`: whether to activate it, too, and then whether to preserve EPHEMERAL.
fn write(
    origin: RunsFrom,
    args: &StageArgs,
    activate: Option<bool>,
    meta: Vec<(u8, Vec<u8>)>,
    said: &Said,
    progress: &mut Progress,
) -> Result<Box<ChangeReport>, Failure> {
    // Nothing of a disk is in use that nothing runs from.
    let whole = activate == Some(false) || origin != RunsFrom::Inside;
    let mut target = Target::open(&args.change.target, whole)?;
    target.limit(args.limit_rate);
    let opened = payload::open(&args.source, args.arch)?;
    // The slot that is kept stays as it is whatever comes of this one: the files are compared while they are written.
    let sums = Sums::wanted(args.source.strict);
    let Payload { source, facts: payload } =
        opened.look_at_pace(sums, Inspection::Declared, target.pace(), progress)?;
    let digest = payload.manifest().payload_digest();
    if let Some(kept) = origin.kept(&target.system) {
        // It is the way back; a dry run reads only what GRUB loads of it, unless it may be what is asked for. The other is
        // read where it may be kept, or may be the only one that boots.
        if !args.change.dry_run || target.system.slots[kept].payload() == Some(digest) {
            target.check(kept, progress);
        } else {
            progress.note(&format!("a dry run does not read all of slot {kept}, which is kept"));
        }
        let other = &target.system.slots[!kept];
        let default = target.system.env.as_ref().is_some_and(|env| env.default == !kept);
        if other.payload() == Some(digest) || default || target.system.slots[kept].damage().is_some() {
            target.check(!kept, progress);
        }
    }
    let kernel_args = kernel_args(origin, args, said, &target.system).or_fail(FailureKind::Install)?;
    let decide = |base: &plan::RequestBase, system: &SystemFacts| {
        let request = UpgradeRequest {
            base: base.clone(),
            origin,
            activate: activate.is_some(),
            preserve: activate.unwrap_or(true),
            blank_ephemeral: said.encrypted().contains(&Part::Ephemeral),
            retry_bad: args.retry_bad,
            allow_any_version: args.allow_any_version,
            args: kernel_args.clone(),
            meta: meta.clone(),
            arch: args.arch,
        };
        plan::upgrade(&request, system, &payload)
    };
    let sources = Sources { payload: Some(&source), assets: None };
    target.change(&args.change, sources, Some(digest), decide, progress)
}

/// What is not said is taken over from the slot that is kept; where that cannot be read, everything must be said.
fn kernel_args(origin: RunsFrom, args: &StageArgs, said: &Said, system: &SystemFacts) -> anyhow::Result<KernelArgs> {
    let extra = &args.extra_kernel_arg;
    let all_said = args.platform.is_some() && args.config.is_some() && !extra.is_empty();
    let none_said = args.platform.is_none() && args.config.is_none() && extra.is_empty();
    let kept = match origin.kept(system).map(|s| (s, &system.slots[s].manifest)) {
        Some((slot, None)) if args.keep_kernel_args && !all_said => bail!(
            "slot {slot}, which is kept, has no manifest.json that can be read: its kernel arguments would be lost; give \
             --platform, --config and --extra-kernel-arg"
        ),
        Some((_, Some(manifest))) => manifest.kernel_args.clone().unwrap_or_default(),
        _ => KernelArgs::default(),
    };
    let payload_only = said.payload_only().unwrap_or(none_said && kept.payload_only);
    Ok(KernelArgs {
        platform: args.platform.clone().unwrap_or(kept.platform),
        config: args.config.clone().unwrap_or(kept.config),
        extra: if extra.is_empty() && args.keep_kernel_args { kept.extra } else { extra.clone() },
        payload_only,
        firmware: Said::firmware(payload_only),
    })
}
