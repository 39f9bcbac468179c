//! Requests made from arguments that several verbs share.

use slipway_core::{disk::meta::parse_tag, plan::RunsFrom, report::Observer};

use super::{asked, defaults::Defaults, input};
use crate::{
    cli::{ChangeArgs, DiskArgs, OfflineArg, ReadArgs, RegistryArgs, SourceArgs, SystemArgs},
    error::Failure,
    ops::{ChangeOptions, DiskRequest, KernelArgsRequest, SourceRequest, SystemRequest},
    payload::registry::{Options, Patience},
};

impl DiskArgs {
    pub fn request(&self, observer: &mut dyn Observer) -> Result<DiskRequest, Failure> {
        DiskRequest::of(self.disk.clone(), self.lock_timeout, observer)
    }
}

impl ReadArgs {
    pub fn request(&self, observer: &mut dyn Observer) -> Result<DiskRequest, Failure> {
        DiskRequest::of(self.disk.clone(), self.lock_timeout, observer)
    }
}

impl ChangeArgs {
    pub fn options(&self) -> ChangeOptions {
        ChangeOptions { dry_run: self.dry_run, plan_hash: self.plan_hash, by: Some(asked::by()), reason: None }
    }
}

impl OfflineArg {
    pub const fn runs_from(&self) -> RunsFrom {
        if self.offline { RunsFrom::Offline } else { RunsFrom::Inside }
    }
}

impl SourceArgs {
    pub fn request(&self) -> SourceRequest {
        SourceRequest { source: self.source.clone(), strict: self.strict, registry: self.registry.options() }
    }
}

impl RegistryArgs {
    pub fn options(&self) -> Options {
        Options {
            plain_http: self.plain_http.unwrap_or(false),
            insecure_tls: self.tls_verify == Some(false),
            ca_files: self.registry_ca.clone(),
            auth_file: self.authfile.clone(),
            mirrors: self.mirror.clone(),
            patience: Patience::default(),
        }
    }
}

impl SystemArgs {
    pub fn request(&self, defaults: &Defaults) -> Result<SystemRequest, Failure> {
        Ok(SystemRequest {
            source: self.source.request(),
            dry_run: self.dry_run,
            slot_bytes: self.slot_size.map(|size| size.0),
            sector: self.sector_size,
            format_data: self.format_data,
            encrypted: defaults.encrypted(),
            bootable_mbr: defaults.legacy_bios_support(),
            kernel_args: KernelArgsRequest {
                platform: self.platform.and_then(|platform| platform.0).map(Some),
                config: Some(self.config.clone()).filter(|config| !config.is_empty()),
                extra: self.extra_kernel_arg.clone(),
                payload_only: defaults.payload_only(),
            },
            meta: meta_tags(&self.meta, defaults)?,
            arch: self.arch,
        })
    }
}

/// Tags given as arguments replace those of the environment; they are not merged.
pub fn meta_tags(args: &[String], defaults: &Defaults) -> Result<Vec<(u8, Vec<u8>)>, Failure> {
    match args {
        [] => Ok(defaults.meta().to_vec()),
        args => input(args.iter().map(|tag| parse_tag(tag)).collect()),
    }
}
