//! `installer activate`, `confirm`, `guard`, `rollback`, `repair`, `grow`, `wipe`, `meta` and `snapshot`.

use slipway_core::{
    disk::{
        layout::Part,
        meta::{parse_key, parse_tag},
    },
    report::{Observer, Report, SnapshotReport},
};

use super::input;
use crate::{
    cli::{
        ActivateArgs, ChangeArgs, ConfirmArgs, DataVolume, GuardArgs, MetaVerb, RenewalArgs, RepairArgs, RollbackArgs,
        SnapshotVerb, WipeArgs,
    },
    error::Failure,
    ops::{
        self, ChangeOptions,
        bootloader::Renewal,
        guard,
        health::Checks,
        meta::{self, Change},
        snapshot::{self, Restore},
    },
};

pub const fn renewal(args: &RenewalArgs) -> Renewal {
    if args.keep_bootloader { Renewal::Keep } else { Renewal::Renew(args.efi_loader) }
}

pub fn activate(args: &ActivateArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let request = ops::activate::Request {
        runs_from: args.offline.runs_from(),
        preserve: args.preserve,
        renewal: renewal(&args.renewal),
        arch: args.arch,
        snapshot: !args.keep.no_snapshot,
    };
    ops::activate::run(&args.change.target.request(observer)?, request, args.change.options(), observer)
        .map(Report::Change)
}

pub fn confirm(args: &ConfirmArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let ConfirmArgs { change, checks, check_timeout } = args;
    let checks = checks.clone().map(|dir| Checks { dir, limit: *check_timeout });
    ops::confirm::run(&change.target.request(observer)?, checks.as_ref(), change.options(), observer)
        .map(Report::Change)
}

pub fn guard(args: GuardArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let GuardArgs { disk, deadline, watchdog } = args;
    guard::run(&guard::GuardRequest { disk, deadline, watchdog }, observer).map(Report::Guard)
}

pub fn rollback(args: &RollbackArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let options = ChangeOptions { reason: args.reason.clone(), ..args.change.options() };
    let request = ops::rollback::Rollback { offline: args.offline.offline };
    ops::rollback::run(&args.change.target.request(observer)?, request, options, observer).map(Report::Change)
}

pub fn repair(args: &RepairArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let RepairArgs { change, efi_loader, force } = args;
    let request = ops::repair::RepairRequest { efi_loader: *efi_loader, force: *force };
    ops::repair::run(&change.target.request(observer)?, request, change.options(), observer).map(Report::Change)
}

pub fn grow(args: &ChangeArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    ops::grow::run(&args.target.request(observer)?, &args.options(), observer).map(Report::Change)
}

pub fn wipe(args: &WipeArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let mut volumes = args.volumes.clone();
    volumes.sort();
    volumes.dedup();
    let part = |volume: &DataVolume| match volume {
        DataVolume::State => Part::State,
        DataVolume::Ephemeral => Part::Ephemeral,
    };
    let request = ops::wipe::Wipe { parts: volumes.iter().map(part).collect(), format: args.format_data };
    ops::wipe::run(&args.change.target.request(observer)?, request, args.change.options(), observer).map(Report::Change)
}

pub fn meta(verb: MetaVerb, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let report = match verb {
        MetaVerb::List(target) => meta::list(&target.request(observer)?),
        MetaVerb::Get { key, target } => meta::get(&target.request(observer)?, input(parse_key(&key))?),
        MetaVerb::Set { tag, target } => {
            let (key, value) = input(parse_tag(&tag))?;
            meta::change(&target.request(observer)?, &Change::Set(key, value), observer)
        }
        MetaVerb::Delete { key, target } => {
            meta::change(&target.request(observer)?, &Change::Delete(input(parse_key(&key))?), observer)
        }
    };
    report.map(Report::Meta)
}

pub fn snapshot(verb: SnapshotVerb, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let report = match verb {
        SnapshotVerb::List(target) => snapshot::list(&target.request(observer)?),
        SnapshotVerb::Show { slot, target } => snapshot::show(&target.request(observer)?, slot.slot()),
        SnapshotVerb::Restore { boot: true, ref target, .. }
            if target.disk.is_none() && !snapshot::is_booted_from_ours()? =>
        {
            let why = "nothing says that this system was started from a disk of Slipway".to_owned();
            Ok(SnapshotReport { result: Some(why), ..SnapshotReport::empty("none") })
        }
        SnapshotVerb::Restore { slot, boot, root, to, target } => {
            let request = Restore { slot: slot.slot(), root, boot, to };
            snapshot::restore(&target.request(observer)?, &request, observer)
        }
    };
    report.map(Report::Snapshot)
}
