//! A failure as a document.
//!
//! An error of a new kind gets a line in `core/src/report/failure_id.rs` and one in `known.rs`: which identifier an error has is
//! decided there, and nowhere else.

mod known;

use std::{borrow::Cow, collections::BTreeSet, error::Error};

use slipway_core::{
    plan::{Refusal, Refusals},
    report::{FailedStep, FailureId as Id, FailureKind, FailureReport, NOTHING_WRITTEN, RefusalReport},
};

use crate::{
    error::{Failure, causes},
    execute::ExecuteError,
    ops::{WayBack, WrittenOver, health::NotWell, repair::NotRepaired},
};

use known::{RIGHT_DISK, known};

/// The document of a failure. `verb` is the one on the command line.
pub fn report(failure: &Failure, verb: Option<&str>) -> FailureReport {
    let causes: Vec<_> = causes(failure.error.as_ref()).collect();
    let step = causes.iter().find_map(|cause| cause.downcast_ref::<ExecuteError>());
    let refusals = causes.iter().find_map(|cause| refusals(*cause, verb)).unwrap_or_default();
    // The innermost one says most.
    let known = causes.iter().rev().find_map(|cause| known(*cause));
    let by_type = known.as_ref().and_then(|known| known.remedy.clone());
    let mut by_refusals = refusals.iter().filter_map(|refusal| refusal.remedy.as_deref()).collect::<Vec<_>>();
    // One command may be the remedy of two.
    by_refusals.dedup();
    let by_refusals = by_refusals.join("; ");
    let left = step.map(|step| &step.left);
    // A check that failed is in the history.
    let carried_out =
        causes.iter().any(|cause| cause.is::<WrittenOver>() || cause.is::<NotWell>() || cause.is::<NotRepaired>());
    FailureReport {
        verb: verb.map(str::to_owned),
        exit_code: failure.kind.exit_code(),
        kind: failure.kind,
        id: known.as_ref().map_or(failure.kind.other(), |known| known.id).name().to_owned(),
        message: message(failure, &causes, verb),
        step: step.map(|step| FailedStep { number: step.number, of: step.of, text: one_line(&step.sentence) }),
        disk_state: match left {
            Some(left) => Some(left.state.clone()),
            None if carried_out => None,
            None => untouched(failure.kind, verb, known.as_ref().is_some_and(|known| known.untouched))
                .then(|| NOTHING_WRITTEN.to_owned()),
        },
        remedy: failure
            .error
            .downcast_ref::<WayBack>()
            .map(|way| way.remedy.clone())
            .or(by_type)
            .or_else(|| left.and_then(|left| left.remedy.as_deref()).map(str::to_owned))
            .or_else(|| (!by_refusals.is_empty()).then_some(by_refusals))
            .or_else(|| known.and_then(|known| remedy(known.id, verb)).map(str::to_owned)),
        refusals,
    }
}

/// The document of a command line that cannot be parsed, for the reason in `text`.
pub fn usage(text: &str, kind: FailureKind, verb: Option<&str>) -> FailureReport {
    FailureReport {
        verb: verb.map(str::to_owned),
        exit_code: kind.exit_code(),
        kind,
        id: Id::Usage.name().to_owned(),
        message: text.strip_prefix("error: ").unwrap_or(text).trim_end().to_owned(),
        refusals: vec![],
        step: None,
        disk_state: Some(NOTHING_WRITTEN.to_owned()),
        remedy: Some(match verb {
            Some(verb) => format!("`installer {verb} --help` tells what it takes"),
            None => "`installer --help` lists the verbs".to_owned(),
        }),
    }
}

/// Remedies for messages without one: those of `docs/troubleshooting.md` that are always right. A verb does not advise itself.
fn remedy(id: Id, verb: Option<&str>) -> Option<&'static str> {
    Some(match id {
        Id::NotASlipwayDisk if verb == Some("inspect") => RIGHT_DISK,
        Id::DiskDamaged if verb == Some("verify") => return None,
        Id::NoSuchDisk => "check the name; `lsblk -o PATH,SIZE,MODEL,SERIAL` lists the disks",
        Id::NotASlipwayDisk => "check that this is the right disk; `installer inspect` draws what is on it",
        Id::DiskLocked => {
            "wait for that program, or give a longer --lock-timeout; `installer status` says what it does"
        }
        Id::DiskReadOnly => "make it writable, or name another disk",
        Id::DiskDamaged => "`installer verify` lists all damage",
        Id::PayloadMissing => "check the path: it has to be a payload",
        Id::PayloadDamaged => "copy or make the payload again; after a change of it, run `installer checksum` again",
        Id::PayloadChecksums => "run `installer checksum` on the payload again",
        Id::ImageNotFound => "check the name and the tag of the image",
        Id::WrongArchitecture => "name a payload for the architecture that was asked for",
        Id::ImageInvalid => "copy or pull the image again; if that is refused, too, build the image anew",
        Id::RegistrySettings => "mend that file or variable, then run the same command again",
        Id::RegistryDenied if matches!(verb, Some("push" | "sign" | "attest")) => {
            "give credentials that may write to the repository, with --authfile"
        }
        Id::RegistryDenied => "give credentials that may read the image, with --authfile",
        Id::RegistryUnreachable => {
            "do as the message says, or check the host's name, the network and the registry; then run the same command \
             again"
        }
        Id::CheckFailed => {
            "mend what the check complains about, and confirm again; a reboot goes back to the old system"
        }
        Id::ChangedMeanwhile => "find out which program writes to the disk, then run the same command again",
        _ => return None,
    })
}

fn refusals(cause: &(dyn Error + 'static), verb: Option<&str>) -> Option<Vec<RefusalReport>> {
    let report = |refusal| {
        let report = RefusalReport::from(refusal);
        RefusalReport { remedy: report.remedy.map(|remedy| for_verb(&remedy, verb)), ..report }
    };
    cause.downcast_ref::<Refusals>().map(|Refusals(all)| all.iter().map(report).collect())
}

/// The verbs that take `--offline`.
const OFFLINE: [&str; 5] = ["upgrade", "stage", "activate", "rollback", "bootloader"];

/// The one exception that `auto-upgrade` can be told to make.
const OF_UPDATE_TOML: &str = "`allow_any_version = true` in its update.toml allows it always, `installer upgrade \
                              --allow-any-version --source SOURCE` once";

/// Flags of `installer upgrade` that `install --upgrade` does not take: machined gives the flags of that.
const OF_UPGRADE: [&str; 5] =
    ["--allow-any-version", "--allow-older", "--allow-unsigned", "--no-snapshot", "--retry-bad"];

/// A remedy that names no flag as if the verb took it.
fn for_verb(remedy: &str, verb: Option<&str>) -> String {
    if verb == Some("auto-upgrade") && remedy.starts_with("--allow-any-version ") {
        return OF_UPDATE_TOML.to_owned();
    }
    if verb == Some("imager") && remedy.contains("--slot-size") {
        // A larger disk has no larger slots.
        let or_disk = if remedy.starts_with("a smaller") { ", and `diskSize` in a profile a larger disk" } else { "" };
        return format!("`installer image --slot-size` makes other slots{or_disk}");
    }
    let remedy = match remedy.split_once(", or give --offline") {
        Some((rest, _)) if verb.is_some_and(|verb| !OFFLINE.contains(&verb)) => rest,
        _ => remedy,
    };
    // Commands stand between backticks.
    let names_flags = remedy.split('`').step_by(2).any(|text| text.contains("--"));
    // A timer runs it, by what a file says: exceptions are for a person.
    let is_of_another = match verb {
        Some("auto-upgrade") => names_flags,
        Some("install") => OF_UPGRADE.iter().any(|flag| remedy.contains(flag)),
        _ => false,
    };
    let by = if is_of_another { " (flags of `installer upgrade`)" } else { "" };
    format!("{remedy}{by}")
}

/// The text of a failure, with the remedies of this verb.
fn message(failure: &Failure, causes: &[&(dyn Error + 'static)], verb: Option<&str>) -> String {
    let refusals = causes.iter().find_map(|cause| cause.downcast_ref::<Refusals>());
    let remedies: BTreeSet<_> = refusals.iter().flat_map(|all| &all.0).filter_map(Refusal::remedy).collect();
    let of_verb = |text: String, remedy: &Cow<str>| text.replace(&**remedy, &for_verb(remedy, verb));
    remedies.iter().fold(failure.to_string(), of_verb)
}

/// Steps are printed in columns.
fn one_line(sentence: &str) -> String {
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether it is certain that nothing was written, by the verb and by the promise of the exit codes. (Verbs that are
/// not about a disk may have written files.)
fn untouched(kind: FailureKind, verb: Option<&str>, by_type: bool) -> bool {
    match verb {
        Some("pull" | "push" | "checksum" | "sign" | "attest" | "uki" | "keys" | "man" | "completions") => false,
        Some("status" | "history" | "verify" | "inspect") => true,
        _ => by_type || !matches!(kind, FailureKind::Other | FailureKind::Install),
    }
}
