//! `installer upgrade` and `installer stage`.

use anyhow::bail;

use super::{
    change::Target,
    payload::{self, Payload},
    said::Said,
};
use crate::{
    cli::{StageArgs, UpgradeArgs},
    error::{Failure, Kind, OrFail as _},
    execute::Sources,
    model::{layout::Part, manifest::KernelArgs},
    payload::{Sums, image::Look},
    plan::{self, SystemFacts, UpgradeRequest},
    report::{Progress, Report},
};

pub fn run(args: UpgradeArgs, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    let meta = said.meta(&args.meta)?;
    write(&args.stage, Some(args.preserve), meta, said, progress)
}

pub fn stage(args: StageArgs, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    write(&args, None, vec![], said, progress)
}

/// `activate`: whether to activate it, too, and then whether to preserve EPHEMERAL.
fn write(
    args: &StageArgs,
    activate: Option<bool>,
    meta: Vec<(u8, Vec<u8>)>,
    said: &Said,
    progress: &mut Progress,
) -> Result<Report, Failure> {
    let mut target = Target::open(&args.change.target, activate == Some(false))?;
    target.limit(args.limit_rate);
    let opened = payload::open(&args.source, args.arch)?;
    // The running slot stays as it is whatever comes of this one: the files are compared while they are written.
    let sums = Sums::wanted(args.source.strict);
    let Payload { source, facts: payload } = opened.look_at_pace(sums, Look::Declared, target.pace(), progress)?;
    let digest = payload.manifest().payload_digest();
    if let Some(running) = target.system.running.slot() {
        // It is the way back. The other is read where it may be kept, or may be the only one that boots.
        target.check(running, progress);
        let other = &target.system.slots[!running];
        let default = target.system.env.as_ref().is_some_and(|env| env.default == !running);
        if other.payload() == Some(digest) || default || target.system.slots[running].damage().is_some() {
            target.check(!running, progress);
        }
    }
    let kernel_args = kernel_args(args, said, &target.system).or_fail(Kind::Install)?;
    let decide = |ask: &plan::Ask, system: &SystemFacts| {
        let request = UpgradeRequest {
            ask: ask.clone(),
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

/// What is not said is kept from the running slot; where that cannot be read, everything must be said.
fn kernel_args(args: &StageArgs, said: &Said, system: &SystemFacts) -> anyhow::Result<KernelArgs> {
    let extra = &args.extra_kernel_arg;
    let all_said = args.platform.is_some() && args.config.is_some() && !extra.is_empty();
    let none_said = args.platform.is_none() && args.config.is_none() && extra.is_empty();
    let kept = match system.running.slot().map(|s| (s, &system.slots[s].manifest)) {
        Some((slot, None)) if args.keep_kernel_args && !all_said => bail!(
            "slot {slot}, which runs, has no manifest.json that can be read: its kernel arguments would be lost; give \
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
