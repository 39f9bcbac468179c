//! Opening a source and looking at its payload, with progress and the right exit code.

use crate::{
    cli::{RegistryArgs, SourceArgs},
    error::{Failure, Kind},
    execute::Observer as _,
    model::manifest::Arch,
    payload::{
        Facts, Source, SourceRef, Sums,
        image::{ImageError, Look},
        registry::{Options, Patience},
    },
    report::Progress,
};

/// A payload, opened and looked at.
pub struct Payload {
    pub source: Source,
    pub facts: Facts,
}

/// Open the source that was asked for, else the one a container image carries. A reference that leads nowhere fails here.
pub fn open(args: &SourceArgs, arch: Arch) -> Result<Source, Failure> {
    open_ref(&args.source.clone().unwrap_or_else(|| SourceRef::default_of(arch)), arch, &options(&args.registry))
}

/// Open this source.
pub fn open_ref(source: &SourceRef, arch: Arch, options: &Options) -> Result<Source, Failure> {
    Source::open(source, arch, options).map_err(|e| failure(e.into()))
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

/// Look at the payload of an opened source.
pub fn look(
    mut source: Source,
    name: &str,
    sums: Sums,
    look: Look,
    progress: &mut Progress,
) -> Result<Payload, Failure> {
    progress.phase(&format!("check      payload {name}"), source.bytes());
    let facts = source.facts(sums, look, &mut |n| progress.advance(n)).map_err(failure)?;
    Ok(Payload { source, facts })
}

/// What could not be fetched is a dependency, a medium that cannot be read or written the environment, what is wrong with
/// the image wrong input.
pub fn failure(error: anyhow::Error) -> Failure {
    let kind = match error.downcast_ref::<ImageError>() {
        Some(ImageError::Fetch { .. }) => Kind::Dependency,
        Some(ImageError::Io { .. }) => Kind::Environment,
        _ => Kind::Input,
    };
    Failure { kind, error }
}
