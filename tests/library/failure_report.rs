//! Which identifier an error has, and what else its document says: for errors that no test can cause at will.

use std::{collections::BTreeSet, fs, io};

use anyhow::anyhow;
use slipway::{
    error::Failure,
    execute::{ExecuteError, PayloadChanged},
    media::ImageError as MediaError,
    mkfs::MkfsError,
    ops::WrittenOver,
    payload::image::ImageError,
    probe::ProbeError,
    report_failure::report,
    tools::ToolError,
};
use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    disk::fat::FatError,
    plan::{Refusal, Refusals},
    report::{FailureId, FailureKind, FailureReport, Left},
};
use slipway_test_support::{project, read_all};

fn report_of(kind: FailureKind, error: impl Into<anyhow::Error>, verb: &str) -> FailureReport {
    report(&Failure { kind, error: error.into() }, Some(verb))
}

fn step(source: anyhow::Error, left: Left) -> ExecuteError {
    let source = source.reallocate_into_boxed_dyn_error_without_backtrace();
    let sentence = "write      BOOT-B".to_owned();
    ExecuteError { number: 4, of: 9, sentence, wrote: true, left, kind: FailureKind::Install, source }
}

fn missing() -> ToolError {
    ToolError::Missing("mkfs.xfs", "xfsprogs")
}

#[test]
fn a_step_that_failed_says_what_is_on_the_disk() {
    let error = step(
        anyhow!(io::Error::other("bad sector")).context("flushing the disk"),
        Left::new("slot A still boots", "run the same command again"),
    );
    let report = report_of(FailureKind::Install, error, "upgrade");
    assert_eq!((report.id.as_str(), report.exit_code), ("step-failed", 7));
    let step_of = report.step.unwrap();
    assert_eq!((step_of.number, step_of.of, step_of.text.as_str()), (4, 9, "write BOOT-B"));
    assert_eq!(report.disk_state.as_deref(), Some("slot A still boots"));
    assert_eq!(report.remedy.as_deref(), Some("run the same command again"));
    assert!(report.message.ends_with(": flushing the disk: bad sector"), "{}", report.message);
    assert!(report.message.contains("; slot A still boots; run the same command again: "), "{}", report.message);
    let report = report_of(FailureKind::Install, step(anyhow!("x"), Left::nothing_written()), "install");
    assert_eq!(report.disk_state.as_deref(), Some("nothing was written"));
    assert_eq!(report.remedy, None);
}

/// The cause is what a program decides by, also where it came through a reader or stands in another error.
#[test]
fn the_innermost_cause_has_the_identifier() {
    let fetch = ImageError::Fetch { what: "layer".to_owned(), why: "cut".to_owned() };
    let through_a_reader = anyhow!(fetch.into_io()).context("reading");
    let left = Left::new("slot A still boots", "run the same command again");
    let report = report_of(FailureKind::Install, step(through_a_reader, left), "upgrade");
    assert_eq!(report.id, "registry-unreachable");
    assert_eq!((report.disk_state.as_deref(), report.step.unwrap().number), (Some("slot A still boots"), 4));
    // What is to be done about it depends on what it left.
    let (expected, actual) = (Sha256::of(b"a"), Sha256::of(b"b"));
    let left = Left::new("slot A still boots", "copy it again");
    let report = report_of(FailureKind::Install, step(PayloadChanged { expected, actual }.into(), left), "upgrade");
    assert_eq!((report.id.as_str(), report.remedy.as_deref()), ("payload-damaged", Some("copy it again")));
    let error = step(MkfsError::Tool(missing()).into(), Left::nothing_written());
    let report = report_of(FailureKind::Dependency, error, "install");
    assert_eq!(
        (report.id.as_str(), report.remedy.as_deref()),
        ("tool-missing", Some("install the Debian package xfsprogs"))
    );
    let report = report_of(FailureKind::Dependency, MediaError::Tool(missing()), "image");
    assert_eq!(report.id, "tool-missing");
    let denied = ImageError::Denied { what: "manifest".to_owned(), why: "401".to_owned() };
    assert_eq!(report_of(FailureKind::Dependency, denied, "pull").id, "registry-denied");
    // An image that a mirror has damaged is not to be built anew.
    let wrong = |what: &str| report_of(FailureKind::Input, ImageError::invalid(what, "SHA-256 is wrong"), "install");
    let report = wrong("layer sha256:12, as the mirror https://m.example sends it");
    let remedy = report.remedy.unwrap();
    assert!(report.id == "image-invalid" && remedy.contains("leave out the mirror https://m.example ("), "{remedy}");
    assert!(wrong("layer sha256:12").remedy.unwrap().contains("build the image anew"));
}

/// "Nothing was written" is a promise: it is made only where it is certain.
#[test]
fn what_is_not_known_is_not_said() {
    let other = || anyhow!("something");
    let unseen = || ProbeError::NoTable("zeros".to_owned());
    let report = report_of(FailureKind::Install, unseen(), "upgrade");
    assert_eq!((report.id.as_str(), report.disk_state.as_deref()), ("not-a-slipway-disk", Some("nothing was written")));
    let report = report_of(
        FailureKind::Install,
        anyhow::Error::new(WrittenOver::NotSeen(unseen())).context("/dev/x"),
        "upgrade",
    );
    assert_eq!((report.id.as_str(), report.disk_state), ("not-a-slipway-disk", None));
    for (kind, verb, state) in [
        (FailureKind::Install, "upgrade", None),
        (FailureKind::Install, "status", Some("nothing was written")),
        (FailureKind::Dependency, "upgrade", Some("nothing was written")),
        (FailureKind::Dependency, "pull", None),
        (FailureKind::Other, "upgrade", None),
    ] {
        let report = report_of(kind, other(), verb);
        assert_eq!(report.disk_state.as_deref(), state, "{kind:?} {verb}");
        assert_eq!(report.id, kind.other().name());
    }
}

#[test]
fn the_refusal_with_the_lowest_exit_code_has_the_identifier() {
    let version = Refusal::Version { from: "1".to_owned(), to: "9".to_owned(), why: "too far" };
    let refusals = Refusals(vec![Refusal::Unconfirmed(Slot::A), version]);
    let kind = refusals.kind();
    let report = report_of(kind, anyhow::Error::new(refusals).context("/dev/x"), "upgrade");
    assert_eq!((report.id.as_str(), report.exit_code), ("version-policy", 4));
    let ids: Vec<_> = report.refusals.iter().map(|refusal| refusal.id.as_str()).collect();
    assert_eq!(ids, ["trial-unconfirmed", "version-policy"]);
}

/// `install --upgrade`, as machined calls it, has not the flags of `upgrade`, and `imager` not those of `image`.
#[test]
fn flags_of_another_verb_are_said_to_be() {
    let said = |refusal: Refusal, verb: &str| {
        let refusals = Refusals(vec![refusal]);
        report_of(refusals.kind(), refusals, verb).message
    };
    let version = || Refusal::Version { from: "1".to_owned(), to: "9".to_owned(), why: "too far" };
    assert!(said(version(), "install").ends_with("--allow-any-version allows it (flags of `installer upgrade`)"));
    assert!(said(version(), "upgrade").ends_with("--allow-any-version allows it"));
    let full = || Refusal::SlotFull {
        slot: 1 << 20,
        source: FatError::Full { need: 2, have: 1 },
        remedy: "use a larger --slot-size",
    };
    assert!(said(full(), "imager").ends_with("; `installer image --slot-size` makes other slots"));
    assert!(said(full(), "image").ends_with("; use a larger --slot-size"));
}

/// Of a match: patterns and values, from the source.
fn arms(source: &str, function: &str) -> Vec<(String, String)> {
    let (_, body) = source.split_once(function).unwrap();
    let (body, _) = body.split_once("\n    }\n").unwrap();
    let arms = body.lines().filter_map(|line| line.trim().trim_end_matches(',').split_once(" => "));
    arms.map(|(pattern, value)| (pattern.to_owned(), value.to_owned())).collect()
}

#[test]
fn no_two_refusals_share_an_identifier() {
    let read = |file: &str| fs::read_to_string(project().join(file)).unwrap();
    for (file, least) in
        [("core/src/plan/refusal.rs", 28), ("core/src/plan/bootloader.rs", 10), ("core/src/plan/unattended.rs", 10)]
    {
        let arms = arms(&read(file), "pub const fn id(&self) -> FailureId {");
        assert!(arms.len() >= least, "{file}: only {arms:?}");
        let ids: BTreeSet<_> = arms.iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), arms.len(), "{file}: {arms:?}");
    }
}

/// An identifier that no failure has would be a promise that is not kept.
#[test]
fn every_identifier_is_used() {
    let mut code = String::new();
    read_all(&project().join("src"), &mut code);
    read_all(&project().join("payload/src"), &mut code);
    read_all(&project().join("core/src"), &mut code);
    for id in FailureId::ALL {
        let name = format!("Id::{id:?}");
        let used = code.match_indices(&name).any(|(at, _)| !code[at + name.len()..].starts_with(char::is_alphanumeric));
        assert!(used, "{name} is used nowhere");
    }
}
