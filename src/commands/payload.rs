//! `installer pull`, `push`, `chunk`, `checksum`, `sign` and `attest`.

use std::path::PathBuf;

use slipway_core::{
    kernel::arch::Arch,
    report::{Observer, Report},
};

use crate::{
    cli::{AttestArgs, ChecksumArgs, ChunkArgs, PullArgs, PushArgs, SignArgs},
    error::Failure,
    ops::{self, attest, chunk, pull, push, sign},
};

pub fn pull(args: PullArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let (registry, trust) = (args.registry.options(), args.trust.request());
    let PullArgs { source, to, arch, reuse, .. } = args;
    pull::run(&pull::PullRequest { source, to, arch, reuse, registry, trust }, observer).map(Report::Pull)
}

pub fn push(args: PushArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let PushArgs { source, to, registry } = args;
    push::run(&push::PushRequest { source, to: to.0, registry: registry.options() }, observer).map(Report::Push)
}

pub fn chunk(args: &ChunkArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    chunk::run(&args.source, observer).map(Report::Chunk)
}

pub fn checksum(args: ChecksumArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    // As other verbs take a payload, too.
    let named =
        |dir: PathBuf| dir.to_str().and_then(|text| text.strip_prefix("dir:")).map_or(dir.clone(), PathBuf::from);
    let dir = args.dir.map_or_else(|| PathBuf::from(format!("/usr/install/{}", Arch::NATIVE)), named);
    ops::checksum::run(&dir, args.epoch, args.components, observer).map(Report::Checksum)
}

pub fn sign(args: SignArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let SignArgs { target, signing, identity, registry } = args;
    let (signing, registry) = (signing.request(), registry.options());
    sign::run(&sign::SignRequest { target, signing, registry, identity }, observer).map(Report::Sign)
}

pub fn attest(args: AttestArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let AttestArgs { target, predicate, kind, signing, registry } = args;
    let (signing, registry) = (signing.request(), registry.options());
    let request = attest::AttestRequest { target, predicate, predicate_type: kind, signing, registry };
    attest::run(&request, observer).map(Report::Sign)
}
