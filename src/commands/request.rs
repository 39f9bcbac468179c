//! Requests made from arguments that several verbs share.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use slipway_core::{boot::EfiLoader, config::policy, disk::meta::parse_tag, plan::RunsFrom, report::Observer};

use super::{asked, defaults::Defaults, input};
use crate::{
    cli::{
        ChangeArgs, DiskArgs, KeyArgs, OfflineArg, ReadArgs, SecureBootArgs, SigningArgs, SourceArgs, SystemArgs,
        TrustArgs,
    },
    error::Failure,
    lookup,
    ops::{
        ChangeOptions, DiskRequest, KernelArgsRequest, SourceRequest, SystemRequest, TrustRequest,
        signing::{CommandRequest, SigningRequest},
    },
};

/// Directory in a container image with the keys whose signatures it demands.
const KEYS_DIR: &str = "/usr/share/slipway/keys";
const KEYS_ENV: &str = "SLIPWAY_KEYS";

impl DiskArgs {
    pub fn request(&self, observer: &mut dyn Observer) -> Result<DiskRequest, Failure> {
        DiskRequest::for_disk(self.disk.clone(), self.lock_timeout, observer)
    }
}

impl ReadArgs {
    pub fn request(&self, observer: &mut dyn Observer) -> Result<DiskRequest, Failure> {
        DiskRequest::for_disk(self.disk.clone(), Duration::ZERO, observer)
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
        SourceRequest {
            source: self.source.clone(),
            strict: self.strict,
            registry: self.registry.options(),
            trust: self.trust.request(),
        }
    }
}

impl KeyArgs {
    pub fn request(&self) -> TrustRequest {
        let policy = Path::new(policy::PATH);
        TrustRequest {
            keys: self.trust_key.clone(),
            policy: self.trust_policy.clone().or_else(|| is_there(policy).then(|| policy.to_owned())),
            beside: keys_dir(),
            allow_unsigned: false,
        }
    }
}

/// The directory with keys. One that is named has to be there; the container image's may be missing.
fn keys_dir() -> Option<PathBuf> {
    let named = env::var_os(KEYS_ENV).filter(|named| !named.is_empty()).map(PathBuf::from);
    named.or_else(|| is_there(Path::new(KEYS_DIR)).then(|| KEYS_DIR.into()))
}

/// A path that cannot be looked at, or one behind a dangling link, counts as there: reading it fails, and says why.
fn is_there(path: &Path) -> bool {
    lookup::is_there(path).unwrap_or(true)
}

impl TrustArgs {
    pub fn request(&self) -> TrustRequest {
        TrustRequest { allow_unsigned: self.allow_unsigned, ..self.keys.request() }
    }
}

impl SigningArgs {
    pub fn request(&self) -> SigningRequest {
        let command = self.sign_command.clone().zip(self.public_key.clone());
        let command = command.map(|(command, public_key)| CommandRequest { command, public_key });
        SigningRequest { keys: self.key.clone(), command }
    }
}

impl SystemArgs {
    /// The request for a system that starts with Secure Boot if a key is given.
    pub fn signed_request(&self, signed: &SecureBootArgs, defaults: &Defaults) -> Result<SystemRequest, Failure> {
        let request = self.request(defaults)?;
        let Some(secure_boot) = signed.request(self.arch) else { return Ok(request) };
        if self.efi_loader == Some(EfiLoader::Grub) {
            let why = "--efi-loader=grub: GRUB starts no unified kernel image, and with Secure Boot nothing else starts; \
                       leave it out, or leave out --certificate";
            return input(Err(why.to_owned()));
        }
        Ok(SystemRequest { secure_boot: Some(secure_boot), ..request })
    }

    pub fn request(&self, defaults: &Defaults) -> Result<SystemRequest, Failure> {
        Ok(SystemRequest {
            source: self.source.request(),
            dry_run: self.dry_run,
            slot_bytes: self.slot_size.map(|size| size.0),
            sector: self.sector_size,
            format_data: self.format_data,
            encrypted: defaults.encrypted(),
            bootable_mbr: defaults.legacy_bios_support(),
            boot_menu: self.boot_menu,
            kernel_args: KernelArgsRequest {
                platform: self.platform.map(|platform| platform.0),
                config: Some(self.config.clone()).filter(|config| !config.is_empty()),
                extra: self.extra_kernel_arg.clone(),
                payload_only: defaults.payload_only(),
            },
            meta: meta_tags(&self.meta, defaults)?,
            secure_boot: None,
            efi_loader: self.efi_loader,
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
