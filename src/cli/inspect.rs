//! The arguments of `inspect`.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Args,
    builder::{OsStringValueParser, TypedValueParser as _},
};

use super::{RegistryArgs, TrustArgs, values};
use crate::payload::SourceRef;
use slipway_core::{kernel::arch::Arch, redact::redact_value};

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Path of a disk or an image file; or a source: dir:PATH, oci:DIR[:TAG], oci-archive:FILE[:TAG] or
    /// docker://HOST/REPOSITORY[:TAG][@DIGEST] [default: the disk that this system booted from].
    #[arg(value_name = "DISK|SOURCE", value_parser = OsStringValueParser::new().try_map(inspect_target))]
    pub target: Option<InspectTarget>,
    /// For a source: the architecture to choose if the image has several.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    /// For a source: refuse a payload without SHA256SUMS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub strict: bool,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub registry: RegistryArgs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InspectTarget {
    Disk(PathBuf),
    Source(SourceRef),
}

/// A colon with no slash before it ends a scheme, and a scheme makes it a source. `./NAME` is always a file.
fn inspect_target(target: OsString) -> Result<InspectTarget, String> {
    let text = target.to_string_lossy();
    match text.split_once(':') {
        Some((scheme, _)) if !scheme.contains('/') => {
            let hint = |e| format!("{e}; a disk or an image file of this name is ./{}", redact_value(&text));
            text.parse().map(InspectTarget::Source).map_err(hint)
        }
        _ => Ok(InspectTarget::Disk(target.into())),
    }
}
