//! What `status` shows to people, at 80 and at 40 columns (golden files; `SLIPWAY_UPDATE_GOLDEN=1` rewrites them).

use std::time::Duration;

use slipway::ops::status::{self, Seen};
use slipway_core::{
    boot::{
        EfiLoader,
        env::{BootEnv, Fault},
        history::{Ending, Entry, TrialEnd, Verb},
        running::Running,
        slot::Slot,
        trial::Failed,
    },
    digest::Sha256,
    disk::identity::{DiskIdentity, DiskKind},
    efi::boot_image::BootImage,
    plan::SystemFacts,
    report::{BiosImage, Bootloaders, ChainCheck, FileCheck, FileState, StatusReport, Writer, WriterProgress},
    units::GIB,
};
use slipway_test_support::{
    assert_golden,
    system::states::{
        cancelled, confirmed, damaged, from_outside, healthy, interrupted, on_trial, pending, refused, staged, tried,
        with_env, without_boot_state,
    },
};

use crate::history::ring;

/// Lines of a terminal.
const SCREEN: usize = 24;

fn seen() -> Seen {
    let link = |name: &str| FileCheck {
        name: name.to_owned(),
        state: FileState::Good,
        size: Some(1),
        expected: Some(Sha256([7; 32])),
        actual: Some(Sha256([7; 32])),
        offset: Some(0),
    };
    let links = ["EFI/BOOT/BOOTX64.EFI", "boot code", "core image"].map(link).to_vec();
    Seen {
        disk: DiskIdentity { path: "/dev/sda".to_owned(), kind: DiskKind::Disk, model: None, serial: None, wwid: None },
        bytes: 4 * GIB,
        boot_chain: ChainCheck { recorded: true, links, ..ChainCheck::default() },
        bootloaders: Bootloaders {
            uefi: Some(BootImage {
                loader: Some(EfiLoader::Slipway),
                version: Some("0.1.0".to_owned()),
                epoch: 1,
                signed: false,
            }),
            bios: Some(BiosImage { epoch: 1, half: Some(1) }),
        },
        problems: vec![],
        notes: vec![],
        detach: None,
        unlisted: None,
        not_started: None,
        esp_contradicts: false,
        clone_problems: vec![],
        clone_note: None,
        shrunk: None,
        writer: None,
        not_believed: None,
    }
}

fn writer() -> Writer {
    let progress = WriterProgress {
        pid: 4711,
        verb: "upgrade".into(),
        disk: "/dev/sda".into(),
        started: "2026-01-31T12:00:00Z".into(),
        step: Some(4),
        of: Some(12),
        text: "verify     BOOT-B".into(),
        done_bytes: 65,
        total_bytes: 100,
        percent: Some(65),
        left: "nothing was written".into(),
    };
    Writer { pid: Some(4711), name: Some("installer".into()), progress: Some(progress) }
}

fn text(report: StatusReport, columns: u16) -> String {
    StatusReport { columns: Some(columns), ..report }.to_string()
}

/// A trial whose health check failed, seen from the old system and from itself; and one that was not confirmed in time.
fn not_well() -> Vec<(&'static str, Seen, SystemFacts)> {
    let facts = |facts, failed| {
        let upgrade =
            Entry { slot: Some(Slot::B), version: Some("1.1.0".into()), ..Entry::new(1, 1_769_860_000, Verb::Upgrade) };
        let trial = Entry {
            after: Some(1),
            done: true,
            failed: Some(Box::new(failed)),
            ..Entry { n: 2, time: 1_769_860_600, verb: Verb::Trial, ..upgrade.clone() }
        };
        let history = Some(ring(&[upgrade, trial]));
        SystemFacts { history, ..with_env(facts, |env| BootEnv { history: Some(1), ..env }) }
    };
    let network = Failed { times: 3, ..Failed::check("20-network", "ping: 10.0.2.9 unreachable") };
    let late = Failed::late(Duration::from_secs(600), "systemd waits for db.service; failed: nginx.service");
    vec![
        ("trial-not-well", seen(), facts(tried(), network.clone())),
        ("trial-is-not-well", seen(), facts(on_trial(), network)),
        ("trial-too-late", seen(), facts(tried(), late)),
    ]
}

#[test]
fn a_damaged_trial_is_not_announced() {
    let said = |facts| status::report(seen(), facts).last_trial.unwrap();
    assert_eq!(said(pending()), "slot B, 1.1.0, is to be tried at the next boot");
    assert_eq!(said(damaged(pending(), Slot::B)), "slot B, 1.1.0, is damaged, so the next boot does not try it");
    // By the copy of the boot state that the boot loader takes nothing is to be tried.
    let passed_over = SystemFacts { next: healthy().next, ..pending() };
    assert_eq!(said(passed_over), "slot B, 1.1.0, waits for its trial, but the next boot does not try it");
}

/// The states that people meet, each with what is seen beside the facts.
fn states() -> Vec<(&'static str, Seen, SystemFacts)> {
    let lost = ["boot.env", "boot2.env"]
        .map(|name| format!("slipway/{name} on the ESP is lost or damaged (byte 1 of the disk)"));
    let clone = Seen {
        problems: vec!["/dev/sdb has the same disk GUID: one is a copy of the other, and the GUID does not tell which of them was booted; detach one".to_owned()],
        detach: Some("detach /dev/sdb, the copy: both have the same disk GUID, and it is not certain which one the machine starts".to_owned()),
        ..seen()
    };
    let fallback = SystemFacts {
        running: Running::This { slot: Slot::A, trial: false },
        ..refused(confirmed(), Slot::B, Fault::Load)
    };
    let named = |env| BootEnv { history: Some(2), ..env };
    let end = TrialEnd { slot: Slot::B, version: None, how: Ending::GivenUp, panic: None };
    let history = ring(&[
        Entry { slot: Some(Slot::B), version: Some("1.1.0".into()), ..Entry::new(1, 1_769_860_000, Verb::Upgrade) },
        Entry {
            slot: Some(Slot::A),
            version: Some("1.0.0".into()),
            reason: Some("health check failed: the API server does not answer since 10 minutes".into()),
            ended: Some(end),
            after: Some(1),
            ..Entry::new(2, 1_769_860_800, Verb::Rollback)
        },
    ]);
    let mut unread_damage = from_outside(healthy());
    unread_damage.slots.a.whole = Some(Err("rootfs.squashfs: damaged".to_owned()));
    vec![
        ("unread-damage", seen(), unread_damage),
        ("history", seen(), SystemFacts { history: Some(history), ..with_env(healthy(), named) }),
        ("healthy", seen(), healthy()),
        ("two-versions", seen(), confirmed()),
        ("trial-pending", seen(), pending()),
        ("trial-running", seen(), on_trial()),
        ("trial-failed", seen(), tried()),
        ("staged", seen(), staged()),
        ("trial-cancelled", seen(), from_outside(cancelled())),
        ("trial-refused", seen(), refused(tried(), Slot::B, Fault::Digest)),
        ("interrupted", seen(), interrupted()),
        ("fallback", seen(), fallback),
        ("upgrade-runs", Seen { writer: Some(writer()), ..seen() }, interrupted()),
        ("damaged-slot", seen(), damaged(confirmed(), Slot::B)),
        ("boot-state-lost", Seen { problems: lost.to_vec(), ..seen() }, without_boot_state(from_outside(confirmed()))),
        ("clone", clone, healthy()),
        ("no-boot-chain-recorded", Seen { boot_chain: ChainCheck::default(), ..seen() }, healthy()),
    ]
}

#[test]
fn one_screen_at_80_columns_and_readable_at_40() {
    for (name, seen, facts) in states().into_iter().chain(not_well()) {
        let report = || status::report(seen.clone(), facts.clone());
        let (wide, narrow) = (text(report(), 80), text(report(), 40));
        assert_golden(&format!("tests/golden/status-{name}.txt"), &format!("{wide}\n\n{narrow}\n"));
        for (text, columns) in [(&wide, 80), (&narrow, 40)] {
            // Forty columns are those of a phone, which scrolls.
            let most = if columns == 80 { SCREEN } else { SCREEN + 6 };
            assert!(text.lines().count() < most, "{name} at {columns}:\n{text}");
            // A command is copied, and stays whole.
            let command = report().next_step.command;
            let is_command = |line: &str| {
                let quoted = line.trim_start().starts_with('`') && line.trim_end_matches(':').ends_with('`');
                quoted || command.as_ref().is_some_and(|command| line.contains(command.as_str()))
            };
            let long = text.lines().filter(|line| line.chars().count() > columns && !is_command(line));
            assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new(), "{name} at {columns}");
        }
        // Where there is no width, each fact is one line.
        let unwrapped = report().to_string();
        assert!(unwrapped.lines().count() <= wide.lines().count());
    }
}

/// What boot.env says of the past, in words.
#[test]
fn what_became_of_a_slot() {
    let says = |facts, expected: &[&str]| {
        let text = status::report(seen(), facts).to_string();
        for line in expected {
            assert!(text.contains(line), "{line:?} is not in:\n{text}");
        }
        text
    };
    let text = says(interrupted(), &["slot B     incomplete: an upgrade was interrupted", "last trial none"]);
    assert!(!text.contains("was tried"), "{text}");
    says(from_outside(cancelled()), &["cancelled before it ran: `installer activate --disk /dev/sda --offline`"]);
    says(cancelled(), &["cancelled before it ran: `installer activate --disk /dev/sda`"]);
    says(on_trial(), &["without `installer confirm --disk /dev/sda` the next boot"]);
    let upgrade = Seen { writer: Some(writer()), ..seen() };
    let text = status::report(upgrade, interrupted()).to_string();
    assert!(text.contains("slot B     is being replaced\nlast trial none"), "{text}");
    assert!(text.ends_with("next step: wait: process 4711 (installer) is upgrading"), "{text}");
    let mark = |fault, why: &str| {
        let facts = refused(from_outside(healthy()), Slot::A, fault);
        assert_eq!(status::report(seen(), facts.clone()).problems.len(), 1);
        says(facts, &[&format!("problem    the boot loader could not start slot A, the default: {why}")]);
    };
    mark(Fault::Load, "its kernel or initramfs did not load");
    mark(Fault::Digest, "a file of it did not match its digest");
    // It runs: whatever that was, it is over.
    let text = says(
        refused(healthy(), Slot::A, Fault::Load),
        &["note       at an earlier boot the boot loader could not start slot A, the default: its kernel"],
    );
    assert!(!text.contains("problem"), "{text}");
}

/// Words that only those who know the formats understand.
#[test]
fn no_internal_words() {
    for (name, seen, facts) in states().into_iter().chain(not_well()) {
        let text = text(status::report(seen, facts), 80).replace('\n', " ");
        for word in [", tried", "marker", "META", "seq ", "ADV", "disk GUID ", "once=", "0x", "payload "] {
            assert!(!text.contains(word), "{name}: {word:?} in {text}");
        }
    }
}

/// What left the screen is there with `--verbose`, and in JSON under the same keys as before.
#[test]
fn nothing_is_lost() {
    let report = status::report(seen(), confirmed());
    let all = format!("{report:#}");
    for part in [
        "4294967296 bytes in sectors of 512",
        "00000000-0000-0000-0000-000000000001",
        "at byte 1048576",
        "EFI/BOOT/BOOTX64.EFI, boot code, core image",
        "rollback   slot A, 1.0.0, is the default and boots next",
        &format!("payload {}", report.slots.a.payload.unwrap()),
    ] {
        assert!(all.contains(part), "{part:?} is not in:\n{all}");
    }
    assert!(!report.to_string().contains("at byte"));
}
