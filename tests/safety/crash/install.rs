//! Power cuts and I/O errors during `install`.

use slipway::{
    ops::mend::{look_at_lba0, look_at_table},
    probe::{self, ProbeError, holding},
};
use slipway_core::{
    disk::layout::{BIOS_BYTES, BIOS_OFFSET, Part},
    plan::DiskHolds,
    units::{Extent, MIB, SectorSize},
};
use slipway_test_support::fixtures::{DISK_BYTES, Silent};

use super::{
    disk::{Call, EIO, ENOSPC, Fault, Lasting, Op, RecordingDisk},
    faults::sampled,
    grow::power_on,
    grub::Outcome,
    judge::{Verdict, judge, judged},
    pages::{GARBAGE, Pages, PagesFile, SECTOR},
    read,
    scenario::UPGRADE,
    states,
    sweep::sweep,
    world::World,
};
use crate::grow::copies;

/// Of all states, for each of the sweeps here.
pub const SHARE: usize = 8;

/// States in which a mutant must show: few of each epoch first.
const STATES: [usize; 4] = [20, 200, 2000, 10_000];

/// Sweep a log and return what was found wrong first.
fn first_broken(name: &str, base: &Pages, log: &[Op], states: usize, may_be_old: bool) -> (usize, Option<String>) {
    let mut broken = None;
    let (mut none, mut old, mut new) = (0, 0, 0);
    let visited = sweep(base, log, states, &[], &mut |pages, what| {
        match judge(pages, DISK_BYTES, &World::get().expected) {
            Verdict::NoTable => none += 1,
            Verdict::Complete(0) if may_be_old => old += 1,
            Verdict::Complete(1) => new += 1,
            other => broken = Some(format!("{what}: {other:?}")),
        }
        broken.is_none()
    });
    eprintln!("{name}: {visited} states: {none} without a table, {old} old system, {new} new system");
    (visited, broken)
}

#[test]
fn a_cut_on_a_blank_disk_leaves_no_table_or_the_whole_system() {
    let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
    World::get().install(1, &disk).unwrap();
    let name = "install on a blank disk";
    let (visited, broken) = first_broken(name, &Pages::default(), &disk.log(), states(SHARE), false);
    assert_eq!(broken, None);
    assert!(visited >= states(SHARE));
}

#[test]
fn a_cut_over_an_old_system_leaves_the_old_one_no_table_or_the_new_one() {
    let old = World::get().installed(0);
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    World::get().install(1, &disk).unwrap();
    let (visited, broken) = first_broken("install over a system", &old, &disk.log(), states(SHARE), true);
    assert_eq!(broken, None);
    assert!(visited >= states(SHARE));
}

#[test]
fn installing_again_after_any_cut_converges() {
    let world = World::get();
    let old = world.installed(0);
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    world.install(1, &disk).unwrap();
    let mut n = 0;
    sweep(&old, &disk.log(), 100, &[], &mut |pages, what| {
        n += 1;
        if n % 20 == 0 {
            let again = RecordingDisk::new(DISK_BYTES, pages.clone());
            world.install(1, &again).unwrap();
            assert_eq!(judge(&again.pages(), DISK_BYTES, &world.expected), Verdict::Complete(1), "after {what}");
        }
        true
    });
}

/// What became of a disk without a table when `repair` had mended its LBA 0; None if it found nothing to mend.
fn with_lba0(pages: &Pages) -> Option<Result<(), String>> {
    let world = World::get();
    let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
    let repair = look_at_lba0(&disk, "the disk", &|| Some(world.loaders(0))).unwrap()?;
    repair.carry_out(&disk, &mut Silent).unwrap();
    // One sector, which arrives whole or not at all.
    assert_eq!(disk.log().iter().filter(|op| !matches!(op, Op::Sync)).count(), 1);
    let verdict = judged(&disk.pages(), DISK_BYTES, &world.expected, true);
    Some(if matches!(verdict, Verdict::Complete(_)) { Ok(()) } else { Err(format!("{verdict:?}")) })
}

/// The same where both copies of the table are lost, too.
fn with_table(pages: &Pages) -> Option<Result<(), String>> {
    let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
    if look_at_lba0(&disk, "the disk", &|| None).unwrap().is_some() {
        return None;
    }
    look_at_table(&disk, "the disk").unwrap()?.carry_out(&disk, &mut Silent).unwrap();
    let pages = disk.pages();
    let [primary, _] = copies(PagesFile::new(&pages, Extent { offset: 0, len: DISK_BYTES }), SectorSize::S512);
    match power_on(&pages, &primary.unwrap()) {
        Outcome::Boots { .. } => Some(Ok(())),
        other => Some(Err(format!("{other:?}"))),
    }
}

/// Sweep a log, and mend each state without a table. What was found wrong first, and how many were mended.
fn first_mended_wrong(
    old: &Pages,
    log: &[Op],
    states: usize,
    mended: fn(&Pages) -> Option<Result<(), String>>,
) -> (usize, Option<String>) {
    let (mut times, mut broken) = (0, None);
    sweep(old, log, states, &[], &mut |pages, what| {
        if judge(pages, DISK_BYTES, &World::get().expected) == Verdict::NoTable
            && let Some(verdict) = mended(pages)
        {
            times += 1;
            broken = verdict.err().map(|why| format!("{what}: {why}"));
        }
        broken.is_none()
    });
    (times, broken)
}

/// `repair` takes a lost LBA 0 for that, and not for an install that has not ended: it brings back the old system while none of
/// it is overwritten, the new one once all of it is there, and nothing in between.
#[test]
fn lba_0_written_again_after_any_cut_brings_back_a_whole_system() {
    let old = World::get().installed(0);
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    World::get().install(1, &disk).unwrap();
    let log = disk.log();
    let (times, broken) = first_mended_wrong(&old, &log, states(SHARE), with_lba0);
    eprintln!("LBA 0 was mended {times} times");
    assert_eq!(broken, None);
    assert!(times > 1, "the sweep meets what is to be mended");

    // Mutants: the tables of the old system stay until the new ones are written, and the new ones come before the content.
    let is_table = |op: &Op| matches!(op, Op::Write { offset, .. } if (*offset > 0 && *offset < MIB) || *offset >= DISK_BYTES - MIB);
    let cleared = |op: &Op| matches!(op, Op::Write { bytes, .. } if bytes.iter().all(|byte| *byte == 0));
    let uncleared: Vec<Op> = log.iter().filter(|op| !(is_table(op) && cleared(op))).cloned().collect();
    let (mut early, late): (Vec<Op>, Vec<Op>) = log.iter().cloned().partition(|op| is_table(op) && !cleared(op));
    let clear = late.iter().position(is_table).unwrap();
    let at = clear + late[clear..].iter().position(|op| matches!(op, Op::Sync)).unwrap() + 1;
    early.push(Op::Sync);
    let early = [&late[..at], &early, &late[at..]].concat();
    for (name, mutant) in [("the old tables are not cleared", uncleared), ("the new tables come first", early)] {
        let is_caught = STATES.iter().any(|states| first_mended_wrong(&old, &mutant, *states, with_lba0).1.is_some());
        assert!(is_caught, "mutant survived: {name}");
    }
}

/// Nor does it take both copies of the table for lost before what boots is verified. Both slots are in use here: the second one
/// tells the size of the first while that is written.
#[test]
fn a_table_written_again_after_any_cut_has_a_system_that_boots() {
    let world = World::get();
    let upgraded = RecordingDisk::new(DISK_BYTES, world.installed(0));
    world.run(&UPGRADE, &upgraded, &world.cmdline('A', false), &|_| ()).unwrap();
    let old = upgraded.pages();
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    world.install(1, &disk).unwrap();
    let log = disk.log();
    let (times, broken) = first_mended_wrong(&old, &log, states(SHARE), with_table);
    eprintln!("the table was mended {times} times");
    assert_eq!(broken, None);
    assert!(times > 1, "the sweep meets what is to be mended");

    let meta = read::table(&old, DISK_BYTES).unwrap().parts[&Part::Meta.number()];
    let clears_meta = |op: &&Op| matches!(op, Op::Write { offset, bytes } if *offset == meta.offset && bytes.iter().all(|byte| *byte == 0));
    let mutant: Vec<Op> = log.iter().filter(|op| !clears_meta(op)).cloned().collect();
    assert_eq!(mutant.len() + 1, log.len());
    let is_caught = STATES.iter().any(|states| first_mended_wrong(&old, &mutant, *states, with_table).1.is_some());
    assert!(is_caught, "mutant survived: META is not cleared");
}

/// On a machine that nobody sits at, an install that was cut begins again: nobody is there to type `repair`.
#[test]
fn an_unattended_install_begins_again_after_any_cut() {
    let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
    World::get().install(1, &disk).unwrap();
    let mut broken = None;
    let (mut nothing, mut unfinished) = (0, 0);
    sweep(&Pages::default(), &disk.log(), states(SHARE), &[], &mut |pages, what| {
        // A sector that the drive spoiled may be anything: in the tables, or at the beginning of slot A, which says where data lies.
        let spoiled = [0, BIOS_OFFSET + BIOS_BYTES, DISK_BYTES - MIB].into_iter().any(|at| {
            let mut bytes = vec![0; MIB as usize];
            pages.read(at, &mut bytes);
            bytes.chunks(SECTOR).any(|sector| sector == [GARBAGE; SECTOR])
        });
        if !spoiled && judge(pages, DISK_BYTES, &World::get().expected) == Verdict::NoTable {
            match holding(&RecordingDisk::new(DISK_BYTES, pages.clone()), "") {
                DiskHolds::Nothing => nothing += 1,
                DiskHolds::Unfinished => unfinished += 1,
                other => broken = Some(format!("{what}: {other:?}")),
            }
        }
        broken.is_none()
    });
    eprintln!("{nothing} times nothing, {unfinished} times an install that was cut");
    assert_eq!(broken, None);
    assert!(nothing > 0 && unfinished > 0, "the sweep meets both");
}

/// The sweep must see what it is there to see: without a barrier, or with LBA 0 out of its place, it finds
/// broken disks.
#[test]
fn mutants_are_caught() {
    let old = World::get().installed(0);
    let disk = RecordingDisk::new(DISK_BYTES, old.clone());
    World::get().install(1, &disk).unwrap();
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
        let is_caught = STATES.iter().any(|states| first_broken(name, &old, &mutant, *states, true).1.is_some());
        assert!(is_caught, "mutant survived: {name}");
    }
}

/// Every call of the device fails once: an error, and a disk that is still none, old or whole.
#[test]
fn every_failing_call_is_an_error_and_breaks_nothing() {
    let world = World::get();
    let old = world.installed(0);
    let calls = {
        let disk = RecordingDisk::new(DISK_BYTES, old.clone());
        world.install(1, &disk).unwrap();
        disk.calls()
    };
    let ways = |_, call, _| match call {
        Call::Write | Call::Zero => vec![EIO, ENOSPC, Fault::Short],
        Call::Reserve => vec![EIO, ENOSPC],
        // Changed bytes of what was just written are bytes that are not what was written.
        Call::Read => vec![EIO, Fault::Flip { byte: 7, bit: 1 }],
        _ => vec![EIO],
    };
    let failing = sampled(&calls, 0, ways);
    assert!(!failing.is_empty());
    for (n, fault) in &failing {
        let (call, _) = calls[*n];
        let disk = RecordingDisk::failing(DISK_BYTES, old.clone(), *n, *fault);
        match world.install(1, &disk) {
            Err(error) => assert_eq!(error.kind.exit_code(), 7, "call {n}: {error}"),
            Ok(()) => assert!(disk.replaced(*n), "call {n}, {call:?}, {fault:?}: success reported"),
        }
        for disk in [disk.pages(), disk.durable()] {
            match judge(&disk, DISK_BYTES, &world.expected) {
                Verdict::NoTable | Verdict::Complete(_) => {}
                broken => panic!("call {n}, {call:?}, {fault:?}: {broken:?}"),
            }
        }
    }
    eprintln!("install: {} calls, {} times one of them failed", calls.len(), failing.len());
}

/// Every call of a mend of LBA 0 fails once: what the error says of the disk is so.
#[test]
fn a_mend_of_lba_0_that_fails_says_what_is_on_the_disk() {
    let world = World::get();
    let mut lost = world.installed(0);
    lost.write(0, &[0; 512]);
    let mend = |disk: &RecordingDisk| match look_at_lba0(disk, "the disk", &|| Some(world.loaders(0)))? {
        Some(repair) => repair.carry_out(disk, &mut Silent),
        // What it needs cannot be read.
        None => Ok(()),
    };
    let disk = RecordingDisk::new(DISK_BYTES, lost.clone());
    mend(&disk).unwrap();
    assert_ne!(judge(&disk.durable(), DISK_BYTES, &world.expected), Verdict::NoTable, "it is mended");
    let mut said = (0, 0);
    for (n, (call, _)) in disk.calls().into_iter().enumerate() {
        for fault in [EIO, Fault::Short, Fault::Flip { byte: 7, bit: 1 }] {
            let fits = match fault {
                Fault::Short => matches!(call, Call::Write),
                Fault::Flip { .. } => matches!(call, Call::Read),
                _ => true,
            };
            let disk = RecordingDisk::failing(DISK_BYTES, lost.clone(), n, fault);
            let Some(failed) = mend(&disk).err().filter(|_| fits) else { continue };
            let is_lost = judge(&disk.durable(), DISK_BYTES, &world.expected) == Verdict::NoTable;
            let text = failed.to_string();
            if text.contains("LBA 0 is lost, as before") {
                assert!(is_lost, "call {n}, {call:?}, {fault:?}: {text}");
                said.0 += 1;
            } else if text.contains("says again that the disk has a GPT") {
                assert!(!is_lost, "call {n}, {call:?}, {fault:?}: {text}");
                said.1 += 1;
            }
        }
    }
    assert!(said.0 > 0 && said.1 > 0, "{said:?}");
}

/// A drive takes another sector for an LBA 0 that it cannot read, once that is written. Nothing is written to a disk that is not
/// known to be ours.
#[test]
fn an_lba_0_that_cannot_be_read_is_written_again() {
    let world = World::get();
    let installed = world.installed(0);
    let look = |disk: &RecordingDisk| look_at_lba0(disk, "the disk", &|| Some(world.loaders(0)));
    for how in [Lasting::Unreadable, Lasting::Dead] {
        let disk = RecordingDisk::damaged(DISK_BYTES, installed.clone(), (0, how));
        assert!(matches!(probe::gpt(&disk), Err(ProbeError::Lba0Lost)));
        assert!(look_at_table(&disk, "the disk").unwrap().is_none(), "the table is whole");
        let mended = look(&disk).unwrap().unwrap().carry_out(&disk, &mut Silent);
        match how {
            Lasting::Unreadable => mended.unwrap(),
            _ => {
                let said =
                    "LBA 0 is lost, as before; run the same command again; if that fails at the same place, the disk";
                assert!(mended.unwrap_err().to_string().contains(said));
            }
        }
        assert_eq!(probe::gpt(&disk).is_ok(), how == Lasting::Unreadable);
        assert!(disk.pages().same(&installed, Extent { offset: 0, len: DISK_BYTES }), "something else was written");
        let blank = RecordingDisk::damaged(DISK_BYTES, Pages::default(), (0, how));
        assert!(matches!(probe::gpt(&blank), Err(ProbeError::Io { offset: 0, .. })));
        assert!(look_at_table(&blank, "the disk").unwrap().is_none() && look(&blank).is_err());
    }
}

/// A sector of a drive may hold eight of the disk's: what cannot be read of the table beside LBA 0 is no reason to give up.
#[test]
fn an_lba_0_with_a_table_that_cannot_be_read_is_written_again() {
    let world = World::get();
    let installed = world.installed(0);
    let all = Extent { offset: 0, len: DISK_BYTES };
    for (zeroed, unreadable) in [(0, 1), (0, 2), (1, 0), (2, 0)].map(|(a, b)| (a * SECTOR as u64, b * SECTOR as u64)) {
        let mut lost = installed.clone();
        lost.zero(Extent { offset: zeroed, len: SECTOR as u64 });
        let disk = RecordingDisk::damaged(DISK_BYTES, lost, (unreadable, Lasting::Unreadable));
        assert!(matches!(probe::gpt(&disk), Err(ProbeError::Lba0Lost)));
        let table = look_at_table(&disk, "the disk").unwrap().unwrap();
        table.carry_out(&disk, &mut Silent).unwrap();
        assert_eq!(disk.bad(), None, "it was written");
        let lba0 = look_at_lba0(&disk, "the disk", &|| Some(world.loaders(0))).unwrap().unwrap();
        lba0.carry_out(&disk, &mut Silent).unwrap();
        assert!(disk.durable().same(&installed, all), "sector {zeroed} lost, {unreadable} not read");
    }
}

/// What is reported done is on the medium.
#[test]
fn a_disk_that_loses_lba_0_is_an_error() {
    let world = World::get();
    let mut lost = world.installed(0);
    lost.zero(Extent { offset: 0, len: SECTOR as u64 });
    let mend = |disk: &RecordingDisk| {
        let lba0 = look_at_lba0(disk, "the disk", &|| Some(world.loaders(0))).unwrap().unwrap();
        lba0.carry_out(disk, &mut Silent)
    };
    let disk = RecordingDisk::new(DISK_BYTES, lost.clone());
    mend(&disk).unwrap();
    assert!(disk.durable().same(&disk.pages(), Extent { offset: 0, len: DISK_BYTES }), "success before the last flush");
    let lying = mend(&RecordingDisk::lying(DISK_BYTES, lost, 0)).unwrap_err();
    assert!(lying.to_string().contains("step 1 of 2"), "{lying}");
}
