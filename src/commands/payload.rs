//! Opening a source and looking at its payload, with progress and the right exit code.

use super::input;
use crate::{
    cli::{Progress, RegistryArgs, SourceArgs},
    device::RateLimiter,
    error::Failure,
    execute::Observer as _,
    payload::{
        Source, SourceRef, Sums,
        image::{ImageError, Inspection},
        registry::{Options, Patience},
    },
};
use slipway_core::{
    payload::{facts::PayloadFacts, manifest::Arch},
    report::FailureKind,
};

/// A source that is open.
pub struct Opened {
    named: SourceRef,
    source: Source,
}

/// A payload, opened and looked at.
pub struct Payload {
    pub source: Source,
    pub facts: PayloadFacts,
}

/// Open the source that was asked for, else the one a container image carries. A reference that leads nowhere fails here.
pub fn open(args: &SourceArgs, arch: Arch) -> Result<Opened, Failure> {
    let named = args.source.clone().unwrap_or_else(|| SourceRef::default_of(arch));
    is_there(&named, arch, "--source")?;
    open_ref(named, arch, &options(&args.registry))
}

/// Refuse the payload that a container image carries, outside of such an image; `other` names another.
pub fn is_there(named: &SourceRef, arch: Arch, other: &str) -> Result<(), Failure> {
    match named {
        SourceRef::Dir(dir) if *named == SourceRef::default_of(arch) && !dir.exists() => input(Err(format!(
            "{}: missing; a container image with a payload has it there: name another by {other}",
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// Open this source.
pub fn open_ref(named: SourceRef, arch: Arch, options: &Options) -> Result<Opened, Failure> {
    match Source::open(&named, arch, options) {
        Ok(source) => Ok(Opened { named, source }),
        Err(e) => Err(failure(&named, e.into())),
    }
}

/// How to reach a registry.
pub fn options(args: &RegistryArgs) -> Options {
    Options {
        plain_http: args.plain_http,
        insecure_tls: !args.tls_verify,
        ca_files: args.registry_ca.clone(),
        auth_file: args.authfile.clone(),
        mirrors: args.mirror.clone(),
        patience: Patience::default(),
    }
}

impl Opened {
    /// What it was opened by.
    pub const fn named(&self) -> &SourceRef {
        &self.named
    }

    /// Look at the payload, as fast as it can be read.
    pub fn look(self, sums: Sums, look: Inspection, progress: &mut Progress) -> Result<Payload, Failure> {
        self.look_at_pace(sums, look, None, progress)
    }

    /// Look at the payload, no faster than `pace`: it may lie on the disk that is to be spared.
    pub fn look_at_pace(
        mut self,
        sums: Sums,
        look: Inspection,
        pace: Option<&RateLimiter>,
        progress: &mut Progress,
    ) -> Result<Payload, Failure> {
        progress.phase(&format!("check      payload {}", self.named), self.source.bytes(look));
        let facts = self.source.facts(sums, look, &mut |n| {
            if let Some(pace) = pace {
                pace.wait(n);
            }
            progress.advance(n);
        });
        let facts = facts.map_err(|e| failure(&self.named, e))?;
        Ok(Payload { source: self.source, facts })
    }
}

/// What a registry does not give is a dependency, a medium that cannot be read or written the environment, what is wrong
/// with the reference or the image wrong input.
pub fn failure(source: &SourceRef, error: anyhow::Error) -> Failure {
    let kind = match (error.downcast_ref::<ImageError>(), source) {
        (Some(ImageError::Fetch { .. }), _) | (Some(ImageError::NotFound { .. }), SourceRef::Docker(_)) => {
            FailureKind::Dependency
        }
        (Some(ImageError::Io { .. }), _) => FailureKind::Environment,
        _ => FailureKind::Input,
    };
    Failure { kind, error }
}
