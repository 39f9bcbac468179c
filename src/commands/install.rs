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
        unattended,
        upgrade::{self, Afterwards},
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
    if let Some(menu) = args.system.boot_menu.filter(|_| args.upgrade) {
        let state = if menu { "on" } else { "off" };
        let how = format!("`installer bootloader menu {state}` turns the menu {state}");
        return input(Err(format!("--boot-menu has no effect with --upgrade: {how}")));
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
        without_effect(&args, observer);
        return upgrade(&disk, system, !args.force, args.system.efi_loader, &defaults, observer);
    }
    let request = install::Request {
        kernel_args: system.kernel_args.fresh_here(),
        force: args.force,
        zero: args.zero.unwrap_or_else(|| defaults.wipe()),
        medium: None,
        identifiers: Identifiers::Fresh,
        by: asked::by(),
        unattended: false,
        system,
    };
    let report = ops::install::run(&disk, &request, observer)?;
    Ok(Report::Install(Box::new(report)))
}

/// Tells of flags that an upgrade has no use for.
fn without_effect(args: &InstallArgs, observer: &mut dyn Observer) {
    let system = &args.system;
    let flags = [
        ("--zero", args.zero == Some(true)),
        ("--slot-size", system.slot_size.is_some()),
        ("--sector-size", system.sector_size.is_some()),
    ];
    for (flag, _) in flags.iter().filter(|(_, is_given)| *is_given) {
        observer.note(&format!("{flag} has no effect with --upgrade"));
    }
    if system.format_data.is_some() && !args.force {
        observer.note("--format-data has no effect with --upgrade, which keeps STATE and, without --force, EPHEMERAL");
    }
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
    let mut afterwards = activated(preserve, defaults);
    // An explicit --format-data overrides the config's encryption, as in an install.
    if let (Afterwards::Activated { blank_ephemeral, .. }, Some(makes)) = (&mut afterwards, system.format_data) {
        *blank_ephemeral = !makes;
    }
    let options = ChangeOptions { dry_run: system.dry_run, by: Some(asked::by()), ..ChangeOptions::default() };
    let request = upgrade::Request {
        runs_from: RunsFrom::Inside,
        source: system.source,
        afterwards,
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
