//! Power cuts and I/O errors during `install`, at every instant: the real planner and executor on a
//! recording disk, every disk a cut could leave rebuilt and judged by independent code.
//!
//! `SLIPWAY_CRASH_STATES` sets how many states are visited (default 10,000 each over a blank disk and over
//! an older install); `hack/crash --states N` runs any number.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod disk;
mod judge;
mod world;

use common::DISK_BYTES;
use disk::{Op, Pages, RecordingDisk, sweep};
use judge::{Verdict, judge};
use world::World;

fn states() -> usize {
    let value = std::env::var("SLIPWAY_CRASH_STATES").unwrap_or_else(|_| "10000".to_owned());
    value.parse().expect("SLIPWAY_CRASH_STATES is a number")
}

/// Sweep a log and return what was found wrong first.
fn first_broken(world: &World, base: &Pages, log: &[Op], states: usize, may_be_old: bool) -> (usize, Option<String>) {
    let mut broken = None;
    let (mut none, mut old, mut new) = (0, 0, 0);
    let visited = sweep(base, log, states, &mut |pages, what| {
        match judge(pages, DISK_BYTES, &world.expected) {
            Verdict::NoTable => none += 1,
            Verdict::Complete(0) if may_be_old => old += 1,
            Verdict::Complete(1) => new += 1,
            other => broken = Some(format!("{what}: {other:?}")),
        }
        broken.is_none()
    });
    eprintln!("{visited} states: {none} without a table, {old} old system, {new} new system, first broken: {broken:?}");
    (visited, broken)
}

#[test]
fn a_cut_on_a_blank_disk_leaves_no_table_or_the_whole_system() {
    let world = World::new();
    let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
    world.install(1, &disk).unwrap();
    let (visited, broken) = first_broken(&world, &Pages::default(), &disk.log(), states(), false);
    assert_eq!(broken, None);
    assert!(visited >= states());
}

#[test]
fn a_cut_over_an_old_system_leaves_the_old_one_no_table_or_the_new_one() {
    let world = World::new();
    let old = world.installed(0);
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    world.install(1, &disk).unwrap();
    let (visited, broken) = first_broken(&world, &old, &disk.log(), states(), true);
    assert_eq!(broken, None);
    assert!(visited >= states());
}

#[test]
fn installing_again_after_any_cut_converges() {
    let world = World::new();
    let old = world.installed(0);
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    world.install(1, &disk).unwrap();
    let mut n = 0;
    sweep(&old, &disk.log(), 100, &mut |pages, what| {
        n += 1;
        if n % 20 == 0 {
            let again = RecordingDisk::new(DISK_BYTES, pages.clone());
            world.install(1, &again).unwrap();
            assert_eq!(judge(&again.pages(), DISK_BYTES, &world.expected), Verdict::Complete(1), "after {what}");
        }
        true
    });
}

/// The sweep must see what it is there to see: without a barrier, or with LBA 0 out of its place, it finds
/// broken disks.
#[test]
fn mutants_are_caught() {
    let world = World::new();
    let old = world.installed(0);
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    world.install(1, &disk).unwrap();
    let log = disk.log();
    let is_lba0 = |op: &Op| matches!(op, Op::Write { offset: 0, .. });
    let first = log.iter().position(is_lba0).unwrap();
    let last = log.iter().rposition(is_lba0).unwrap();
    let barriers: Vec<usize> = (0..last).filter(|i| matches!(log[*i], Op::Sync)).collect();

    let mut without_last_barrier = log.clone();
    without_last_barrier.remove(*barriers.last().unwrap());
    let mut without_first_barrier = log.clone();
    without_first_barrier.remove(*barriers.iter().find(|b| **b > first).unwrap());
    let mut without_clearing = log.clone();
    without_clearing.remove(first);
    let mut commit_early = log.clone();
    let commit = commit_early.remove(last);
    commit_early.insert(first + 2, commit);
    let no_barriers: Vec<Op> = log.iter().filter(|op| !matches!(op, Op::Sync)).cloned().collect();

    for (name, mutant) in [
        ("no flush before the commit", without_last_barrier),
        ("no flush after clearing LBA 0", without_first_barrier),
        ("LBA 0 not cleared", without_clearing),
        ("commit before the content", commit_early),
        ("no flush at all", no_barriers),
    ] {
        let (_, broken) = first_broken(&world, &old, &mutant, 10_000, true);
        assert!(broken.is_some(), "mutant survived: {name}");
    }
}

/// Every call of the device fails once: an error, and a disk that is still none, old or whole.
#[test]
fn every_failing_call_is_an_error_and_breaks_nothing() {
    let world = World::new();
    let old = world.installed(0);
    let calls = {
        let disk = RecordingDisk::new(DISK_BYTES, old.clone());
        world.install(1, &disk).unwrap();
        disk.calls()
    };
    for call in 0..calls {
        let disk = RecordingDisk::failing(DISK_BYTES, old.clone(), call);
        let error = world.install(1, &disk).expect_err("a failed call, and success reported");
        assert_eq!(error.kind.exit_code(), 7, "call {call}: {error}");
        match judge(&disk.pages(), DISK_BYTES, &world.expected) {
            Verdict::NoTable | Verdict::Complete(_) => {}
            broken => panic!("call {call} of {calls} failed: {broken:?}"),
        }
    }
    eprintln!("{calls} calls failed once each");
}
