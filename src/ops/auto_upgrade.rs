//! A machine that follows a tag of a registry: resolves the tag, upgrades if it names another system than the running
//! one, and reboots when it may.

use std::{thread, time::Duration};

use anyhow::Context as _;
use slipway_core::{
    boot::slot::Slot,
    config::update::{Inhibitors, RebootPolicy, Users, WindowLength},
    digest::Sha256,
    disk::identity::DiskIdentity,
    payload::{facts::PayloadFacts, image_ref::ImageRef},
    plan::{
        SystemFacts,
        auto_upgrade::{Advance, Reboot, advance, advance_with, pending, reboot},
    },
    report::{AutoUpgradeReport, FailureKind, Observer, RebootReport},
};

use super::{ChangeOptions, DiskRequest, installed_disk, payload, refused, source_failure, upgrade};
use crate::{
    device::{self, RateLimiter},
    error::{Failure, OrFail as _},
    execute::{Slots, old_of},
    payload::{ChecksumPolicy, SourceRef, image::Inspection, registry::Registry},
    probe,
    tools::{ToolError, systemd},
};

/// Interval between attempts of a reboot that is held back while a window is open.
const AGAIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct AutoUpgradeRequest {
    pub disk: DiskRequest,
    /// The image to follow.
    pub image: ImageRef,
    /// The upgrade to do. Its source is the image, by tag.
    pub upgrade: upgrade::Request,
    pub reboot: RebootRequest,
    /// Leave the registry alone, and reboot into the slot that waits for it.
    pub reboot_only: bool,
    pub dry_run: bool,
    /// The requester, for the history of the disk.
    pub by: String,
}

#[derive(Clone, Debug)]
pub struct RebootRequest {
    pub policy: RebootPolicy,
    /// As systemd's OnCalendar has them.
    pub windows: Vec<String>,
    pub length: WindowLength,
    pub inhibitors: Inhibitors,
    pub users: Users,
    /// Command that systemd runs when a window opens.
    pub command: Vec<String>,
}

pub fn run(request: &AutoUpgradeRequest, observer: &mut dyn Observer) -> Result<AutoUpgradeReport, Failure> {
    if request.reboot.policy != RebootPolicy::Never {
        // An upgrade whose reboot cannot be asked for would wait for ever.
        systemd::is_there(request.reboot.policy == RebootPolicy::Window).or_fail(FailureKind::Dependency)?;
    }
    let found = look(request)?;
    let mut report = if request.reboot_only { waiting(request, &found) } else { upgraded(request, &found, observer)? };
    let slot = match report.decision {
        Advance::Upgrade if request.dry_run => found.1.running.slot().map(|slot| !slot),
        Advance::Upgrade => pending(&look(request)?.1),
        Advance::Reboot { slot } => Some(slot),
        _ => None,
    };
    if let Some(slot) = slot {
        report.reboot = rebooted(request, slot, observer).map_err(|failure| failed(slot, failure))?;
        if report.reboot.is_none() {
            report.decision = Advance::NothingWaits;
        }
    }
    Ok(report)
}

/// The upgrade's writes stay, so no exit code that promises an untouched disk is right.
fn failed(slot: Slot, Failure { error, .. }: Failure) -> Failure {
    let what = format!("the upgrade is done, and the next boot tries slot {slot}; only the reboot was not asked for");
    Failure { kind: FailureKind::Install, error: error.context(what) }
}

type Found = (DiskIdentity, SystemFacts);

fn look(request: &AutoUpgradeRequest) -> Result<Found, Failure> {
    let disk = request.disk.look()?;
    Ok((disk.identity().clone(), installed_disk::look(&request.disk, &disk)?.system))
}

/// Reports an upgrade that waits for its reboot, without asking the registry.
fn waiting(request: &AutoUpgradeRequest, found: &Found) -> AutoUpgradeReport {
    let decision = pending(&found.1).map_or(Advance::NothingWaits, |slot| Advance::Reboot { slot });
    report(request, found, None, decision)
}

fn report(
    request: &AutoUpgradeRequest,
    (disk, system): &Found,
    image: Option<Sha256>,
    decision: Advance,
) -> AutoUpgradeReport {
    let slot = match decision {
        Advance::Unconfirmed { slot } | Advance::UpToDate { slot } | Advance::Reboot { slot } => Some(slot),
        Advance::KnownBad => system.running.slot().map(|slot| !slot),
        Advance::Ask | Advance::NothingWaits | Advance::Upgrade => None,
    };
    AutoUpgradeReport {
        dry_run: request.dry_run,
        disk: disk.clone(),
        source: format!("docker://{}", request.image),
        image,
        decision,
        version: slot.and_then(|slot| system.slots[slot].manifest.as_ref()?.version.clone()),
        change: None,
        reboot: None,
    }
}

fn upgraded(
    request: &AutoUpgradeRequest,
    found: &Found,
    observer: &mut dyn Observer,
) -> Result<AutoUpgradeReport, Failure> {
    let system = &found.1;
    let mut decision = advance(system, None);
    if decision != Advance::Ask {
        return Ok(report(request, found, None, decision));
    }
    let image = asked(request, observer)?;
    decision = advance(system, Some(image));
    if decision != Advance::Upgrade {
        return Ok(report(request, found, Some(image), decision));
    }
    let pinned = ImageRef { digest: Some(image), ..request.image.clone() };
    let mut upgrade = request.upgrade.clone();
    upgrade.source.source = Some(SourceRef::Docker(pinned));
    let facts = payload::open(&upgrade.source, upgrade.arch)?;
    let policy = ChecksumPolicy::from_strict(upgrade.source.strict);
    // A layer is compared while it is written. Nothing is written into a slot that waits already, so the machine starts
    // it only after all of the image was read. A registry that answers "nothing to do" could as well name an old image,
    // so that costs no download. Damage is seen when the upgrade is carried out, which reads all of the slots: too much
    // for a question that comes every hour.
    let firmware = device::firmware_kernel_args();
    let planned =
        |payload: &PayloadFacts| advance_with(system, upgrade::if_undamaged(&upgrade, payload, &firmware, system));
    let starts_nothing = |payload: &PayloadFacts| !matches!(planned(payload), Ok(Advance::Reboot { .. }));
    let facts = {
        // As an upgrade reads it: what the slots hold is not fetched, and the rest no faster than it may be.
        let disk = request.disk.look()?;
        let (files, slots) = (probe::slot_files(&disk, &system.gpt), Slots(&disk));
        let (old, limiter) = (old_of(&files, &slots), upgrade.limit_rate.map(RateLimiter::new));
        let limiter = limiter.as_ref();
        facts.look_until(policy, Inspection::Declared, starts_nothing, Some(&old), limiter, observer)?.facts
    };
    let planned = planned(&facts);
    decision = planned.map_err(|refusals| refused(refusals, &request.disk.path.display().to_string()))?;
    let mut report = report(request, found, Some(image), decision);
    report.version = facts.version;
    if decision == Advance::Upgrade && !request.dry_run {
        let options = ChangeOptions { by: Some(request.by.clone()), ..ChangeOptions::default() };
        report.change = Some(upgrade::run(&request.disk, &upgrade, options, observer)?);
    }
    Ok(report)
}

/// The digest that the tag has in the registry.
fn asked(request: &AutoUpgradeRequest, observer: &mut dyn Observer) -> Result<Sha256, Failure> {
    let source = SourceRef::Docker(request.image.clone());
    observer.phase(&format!("ask        {source}"), 0);
    let registry = Registry::new(&request.image, &request.upgrade.source.registry);
    registry.and_then(|registry| registry.digest()).map_err(|e| source_failure(&source, e.into()))
}

/// Decide about the reboot, and act on it. None if the slot no longer waits for it.
fn rebooted(
    request: &AutoUpgradeRequest,
    slot: Slot,
    observer: &mut dyn Observer,
) -> Result<Option<RebootReport>, Failure> {
    let mut report = decided(&request.reboot, slot)?;
    // From a window's own service: until the window closes.
    while request.reboot_only && report.decision == Reboot::HeldBack && report.policy == RebootPolicy::Window {
        observer.waits(&format!("reboot waits: {}", report.held_back_by.join(", ")));
        thread::sleep(AGAIN);
        // A person may have rolled back.
        if pending(&look(request)?.1) != Some(slot) {
            return Ok(None);
        }
        report = decided(&request.reboot, slot)?;
    }
    if request.dry_run {
        return Ok(Some(report));
    }
    let RebootRequest { policy, windows, inhibitors, command, .. } = &request.reboot;
    match report.decision {
        Reboot::Now => systemd::reboot(inhibitors),
        Reboot::WaitsForWindow | Reboot::HeldBack if *policy == RebootPolicy::Window && !request.reboot_only => {
            // A window that is open closes before the next one opens.
            let again = (report.decision == Reboot::HeldBack).then_some(AGAIN);
            systemd::run_in_windows(windows, again, command)
        }
        _ => Ok(()),
    }
    .or_fail(FailureKind::Dependency)?;
    Ok(Some(report))
}

fn decided(request: &RebootRequest, slot: Slot) -> Result<RebootReport, Failure> {
    let by_window = request.policy == RebootPolicy::Window;
    let (open, opens) = if by_window { windows(request)? } else { (true, None) };
    let asks = request.policy != RebootPolicy::Never && open;
    let held_back_by = if asks { systemd::held_back(&request.inhibitors, request.users) } else { Ok(vec![]) };
    let held_back_by = held_back_by.context("who holds a reboot back").or_fail(FailureKind::Dependency)?;
    Ok(RebootReport {
        slot,
        policy: request.policy,
        decision: reboot(request.policy, open, !held_back_by.is_empty()),
        windows: if by_window { request.windows.clone() } else { vec![] },
        opens: opens.map(super::utc),
        held_back_by,
    })
}

/// Whether a window is open, and when the next one opens. One is open if it opened no longer ago than it lasts.
fn windows(request: &RebootRequest) -> Result<(bool, Option<u64>), Failure> {
    let now = super::now();
    let earliest = |after: u64| -> Result<Option<u64>, ToolError> {
        let mut all = vec![];
        for window in &request.windows {
            all.extend(systemd::next(window, after)?);
        }
        Ok(all.into_iter().min())
    };
    let last = earliest(now.saturating_sub(request.length.seconds())).or_fail(FailureKind::Dependency)?;
    let next = earliest(now).or_fail(FailureKind::Dependency)?;
    Ok((last.is_some_and(|opened| opened <= now), next))
}
