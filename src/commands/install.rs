//! `installer install` and `installer unattended`, and the upgrade that machined starts with `install --upgrade=true`.

use slipway_core::{
    boot::EfiLoader,
    disk::own::NoDisk,
    plan::{Exceptions, RunsFrom},
    report::{FailureKind, Observer, Report},
};

use super::{asked, defaults::Defaults, input, upgrade::activated};
use crate::{
    cli::{InstallArgs, UnattendedArgs},
    error::{Failure, OrFail as _},
    ops::{
        self, ChangeOptions, DiskRequest, SystemRequest, add_extra_kernel_args,
        bootloader::Renewal,
        install::{self, Identifiers},
        unattended, upgrade,
    },
};

pub fn run(args: InstallArgs, defaults: Defaults, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let mut system = args.system.signed_request(&args.secure_boot, &defaults)?;
    if args.upgrade && system.source.trust.allow_unsigned {
        let why = "--allow-unsigned is not for --upgrade, which a program starts: `installer upgrade --allow-unsigned` takes what \
                   is not signed";
        return input(Err(why.to_owned()));
    }
    if args.upgrade && system.secure_boot.is_some() {
        let why = "--certificate has no effect with --upgrade: an upgrade takes the uki.efi of its payload, and the loader stays";
        return input(Err(why.to_owned()));
    }
    if let Some(config) = defaults.config() {
        system.kernel_args.extra = add_extra_kernel_args(config, system.kernel_args.extra, observer);
    }
    let named = defaults.disk(args.disk.as_deref(), observer)?;
    if named.is_none() && !args.upgrade {
        return Err(NoDisk::Install).or_fail(FailureKind::Input);
    }
    let disk = DiskRequest::for_disk(named, args.lock_timeout, observer)?;
    if args.upgrade {
        if args.zero == Some(true) {
            observer.note("--zero has no effect with --upgrade");
        }
        return upgrade(&disk, system, !args.force, args.system.efi_loader, &defaults, observer);
    }
    let request = install::Request {
        kernel_args: system.kernel_args.fresh_here(),
        force: args.force,
        zero: args.zero.unwrap_or_else(|| defaults.wipe()),
        medium: None,
        identifiers: Identifiers::Fresh,
        by: asked::by(),
        system,
    };
    let report = ops::install::run(&disk, &request, observer)?;
    Ok(Report::Install(Box::new(report)))
}

/// machined passes all kernel arguments, so none are taken from the running slot.
fn upgrade(
    disk: &DiskRequest,
    system: SystemRequest,
    preserve: bool,
    efi_loader: Option<EfiLoader>,
    defaults: &Defaults,
    observer: &mut dyn Observer,
) -> Result<Report, Failure> {
    let options = ChangeOptions { dry_run: system.dry_run, by: Some(asked::by()), ..ChangeOptions::default() };
    let request = upgrade::Request {
        runs_from: RunsFrom::Inside,
        source: system.source,
        afterwards: activated(preserve, defaults),
        kernel_args: upgrade::KernelArgsChoice::Given(system.kernel_args.fresh()),
        meta: system.meta,
        exceptions: Exceptions::default(),
        arch: system.arch,
        limit_rate: None,
        renewal: Renewal::Renew(efi_loader),
        snapshot: true,
    };
    ops::upgrade::run(disk, &request, options, observer).map(Report::Change)
}

pub fn unattended(args: &UnattendedArgs, defaults: Defaults, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let request = unattended::UnattendedRequest {
        lock_timeout: args.lock_timeout,
        exceptions: args.exceptions.exceptions(),
        by: asked::by(),
        system: args.system.request(&defaults)?,
        config: defaults.into_config(),
    };
    unattended::run(request, observer).map(|report| Report::Unattended(Box::new(report)))
}
