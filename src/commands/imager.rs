//! `imager`, the other name of the program: a profile becomes the arguments of `installer image`, and these are carried
//! out.

use std::fs;

use anyhow::{Context as _, anyhow};

use super::{image, input, payload, said::Said, stdin};
use crate::{
    cli::{Imager, ImagerOwn, Progress, environment::Environment},
    error::{Failure, OrFail as _},
    execute::Observer as _,
};
use slipway_core::{
    disk::meta::parse_tag,
    kernel::platform::Platform,
    media::profile::{Draft, Fault, OutputKind, PayloadInput, Profile},
    payload::manifest::Arch,
    report::{FailureKind, Report},
};

/// For those who name a file.
const STDIN: &str = "a profile in a file goes to stdin, as in `imager - < FILE`";

pub fn run(args: &Imager) -> Result<Report, Failure> {
    if let Some(flag) = args.unsupported.given() {
        return Err(anyhow!("{flag}: Talos' imager has it, this one does not do it")).or_fail(FailureKind::Unsupported);
    }
    let mut progress = Progress::new(args.progress);
    let profile = match args.profile.as_str() {
        "-" => of_stdin(&args.own, &mut progress)?,
        base => of_base(base, &args.own)?,
    };
    progress.text(&profile.to_string());
    let image_args = args.image_args(&profile);
    if let Some(source) = &image_args.system.source.source {
        payload::is_there(source, profile.arch, "--base-installer-image, or by `input` in a profile on stdin")?;
    }
    let made = fs::create_dir_all(&args.output)
        .with_context(|| format!("--output {}: no such directory, and none can be made", args.output.display()));
    made.or_fail(FailureKind::Install)?;
    image::run(&image_args, &Said::environment(Environment::default()), &mut progress)
}

fn of_stdin(own: &ImagerOwn, progress: &mut Progress) -> Result<Profile, Failure> {
    if let Some(flag) = own.given() {
        return input(Err(format!("{flag} has no effect beside a profile on stdin: say it there")));
    }
    let parsed = Profile::parse(&stdin::profile()?);
    let (profile, ignored) = parsed.map_err(|error| {
        let kind = kind_of(&error.fault);
        Failure { kind, error: anyhow::Error::new(error).context("profile on stdin") }
    })?;
    ignored.iter().for_each(|line| progress.note(line));
    Ok(profile)
}

fn of_base(name: &str, own: &ImagerOwn) -> Result<Profile, Failure> {
    let failed = |what: &str, fault: Fault| Failure { kind: kind_of(&fault), error: anyhow!("{what}: {fault}") };
    let mut draft = Draft::base(name).map_err(|fault| match fault {
        Fault::Wrong(what) => failed("the base profile", Fault::Wrong(format!("{what}; {STDIN}"))),
        fault => failed("the base profile", fault),
    })?;
    draft.arch = Some(own.arch.unwrap_or(Arch::NATIVE));
    if let Some(platform) = &own.platform {
        draft.platform = Some(input(Platform::settled(platform).map_err(|e| e.to_string()))?);
    }
    draft.extra_kernel_args.clone_from(&own.extra_kernel_arg);
    if let Some(kind) = &own.output_kind {
        let made = OutputKind::by_name(kind).and_then(|kind| kind.image_kind(None).map(|_| kind));
        draft.kind = Some(made.map_err(|fault| failed("--output-kind", fault))?);
    }
    let mut tags = Vec::new();
    for tag in &own.meta {
        let (key, value) = input(parse_tag(tag))?;
        tags.push((key, String::from_utf8_lossy(&value).into_owned()));
    }
    draft.set_meta(tags).map_err(|fault| failed("--meta", fault))?;
    if let Some(name) = &own.base_installer_image {
        let image = name.parse().map_err(|e| format!("--base-installer-image {name:?}: {e}"));
        draft.origin = Some(PayloadInput::Registry { image: input(image)?, insecure: own.insecure });
    }
    draft.settle().map_err(|fault| failed(&format!("the base profile {name}"), fault))
}

const fn kind_of(fault: &Fault) -> FailureKind {
    match fault {
        Fault::Wrong(_) => FailureKind::Input,
        Fault::Unsupported(_) => FailureKind::Unsupported,
    }
}
