//! Power cuts and I/O errors during `grow`, of a disk with a system: whatever happens, GRUB finds what it found before.

use slipway::{error::Failure, ops::grow::Growing};
use slipway_core::{
    plan::{Plan, Step},
    units::{Extent, MIB, SectorSize},
};
use slipway_test_support::fixtures::{DISK_BYTES, Silent};

use super::{
    disk::{Call, EIO, ENOSPC, Fault, Lasting, Op, RecordingDisk},
    grub::{Machine, Outcome, Saves},
    pages::{GARBAGE, Pages, PagesFile, SECTOR},
    read::{self, Table},
    states,
    sweep::sweep,
    world::World,
};
use crate::grow::{Parts, copies};

/// Of all states.
pub const SHARE: usize = 6;
/// The disk that the image of [`DISK_BYTES`] was written to.
const LARGER: u64 = DISK_BYTES + 200 * MIB;

fn grow(disk: &RecordingDisk, edit: &dyn Fn(&mut Plan)) -> Result<Plan, Failure> {
    let mut growing = Growing::look(disk, "disk")?;
    edit(&mut growing.plan);
    growing.carry_out(&mut Silent).map(|()| growing.plan)
}

/// States in which a mutant must show: few of each epoch first.
const STATES: [usize; 3] = [20, 200, 2000];

/// A disk before, the log of its growth, and the disk afterwards.
struct Grown {
    before: Pages,
    log: Vec<Op>,
    old: Parts,
    new: Parts,
}

impl Grown {
    fn new() -> Self {
        Self::edited(&|_| ())
    }

    fn edited(edit: &dyn Fn(&mut Plan)) -> Self {
        let before = World::get().installed(0);
        let honest = RecordingDisk::new(LARGER, before.clone());
        grow(&honest, &|_| ()).unwrap();
        let disk = RecordingDisk::new(LARGER, before.clone());
        let _ = grow(&disk, edit);
        let primary = |pages: &Pages| both(pages)[0].clone().unwrap();
        Grown { old: primary(&before), new: primary(&honest.pages()), log: disk.log(), before }
    }

    /// The fault of a state.
    fn judge(&self, pages: &Pages) -> Result<(), String> {
        let [primary, last] = both(pages);
        let mut lba1 = [0; SECTOR];
        pages.read(SECTOR as u64, &mut lba1);
        // GRUB has no other table. Where the drive spoils the sector that it writes when the power goes, UEFI restores
        // it from the last block, and so does gdisk.
        let spoiled = lba1 == [GARBAGE; SECTOR];
        let in_use = if spoiled { last.clone() } else { primary };
        let parts = in_use.ok_or("there is no valid table where readers look")?;
        if ![&self.old, &self.new].contains(&&parts) {
            return Err(format!("a table that is neither: {parts:?}"));
        }
        if parts == self.new && last.as_ref() != Some(&self.new) {
            return Err("the new table has no backup at the end".to_owned());
        }
        boots(pages, &parts)?;
        let again = RecordingDisk::new(LARGER, pages.clone());
        match grow(&again, &|_| ()) {
            Err(failure) if spoiled && again.log().is_empty() => {
                let says = failure.to_string().contains("primary GPT is damaged");
                if says { Ok(()) } else { Err(failure.to_string()) }
            }
            Err(failure) => Err(format!("run again: {failure}")),
            Ok(_) => self.is_done(&again.pages()),
        }
    }

    fn is_done(&self, pages: &Pages) -> Result<(), String> {
        let table = read::table(pages, LARGER)?;
        let number = |extent: Extent| (extent.offset / SECTOR as u64, (extent.end()) / SECTOR as u64 - 1);
        let same = table.parts.iter().all(|(n, extent)| number(*extent) == (self.new[n].0, self.new[n].1));
        if same && table.parts.len() == 7 { Ok(()) } else { Err(format!("not done: {table:?}")) }
    }

    fn sweep(&self, name: &str, log: &[Op], states: usize) -> (usize, Option<String>) {
        let mut broken = None;
        let visited = sweep(&self.before, log, states, &[], &mut |pages, what| {
            broken = self.judge(pages).err().map(|why| format!("{what}: {why}"));
            broken.is_none()
        });
        eprintln!("{name}: {visited} states: {}", broken.as_deref().unwrap_or("all boot"));
        (visited, broken)
    }

    fn is_caught(&self, name: &str, log: &[Op]) -> bool {
        STATES.iter().any(|states| self.sweep(name, log, *states).1.is_some())
    }
}

fn both(pages: &Pages) -> [Option<Parts>; 2] {
    copies(PagesFile::new(pages, Extent { offset: 0, len: LARGER }), SectorSize::S512)
}

/// Where the machine comes to.
pub fn power_on(pages: &Pages, parts: &Parts) -> Outcome {
    let extent = |(first, last, _): &(u64, u64, _)| Extent {
        offset: first * SECTOR as u64,
        len: (last + 1 - first) * SECTOR as u64,
    };
    let parts = parts.iter().map(|(number, part)| (*number, extent(part))).collect();
    Machine::new(&Table { guid: String::new(), parts }).power_on(&mut pages.clone(), Saves::Both)
}

/// The system that was installed comes up.
pub fn boots(pages: &Pages, parts: &Parts) -> Result<(), String> {
    match power_on(pages, parts) {
        Outcome::Boots { slot: 'A', trial: false } => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_cut_leaves_the_old_table_or_the_new_one() {
    let grown = Grown::new();
    let (visited, broken) = grown.sweep("grow", &grown.log, states(SHARE));
    assert_eq!(broken, None);
    assert!(visited >= states(SHARE));
    // Nothing but the tables is written, and the last 2 MiB that EPHEMERAL gets: from LBA 1 to the first partition, and from there
    // to the end of the disk.
    let new_end = (grown.new[&7].1 + 1) * SECTOR as u64 - 2 * MIB;
    let is_free = |extent: Extent| {
        (extent.offset >= SECTOR as u64 && extent.end() <= MIB)
            || (extent.offset >= new_end && extent.offset > grown.old[&7].1 * SECTOR as u64)
    };
    let writes = grown.log.iter().filter(|op| !matches!(op, Op::Sync));
    assert!(writes.map(Op::extent).all(is_free));
    assert!(matches!(grown.log.last(), Some(Op::Sync)));
}

#[test]
fn mutants_are_caught() {
    let caught = |name: &str, mutant: &dyn Fn(&mut Plan)| {
        let grown = Grown::edited(mutant);
        assert!(grown.is_caught(name, &grown.log), "mutant survived: {name}");
    };
    let is_header = |step: &Step| matches!(step, Step::WritePrimaryHeader { .. });
    // The labels at the new end are cleared before: the table is what follows.
    let first = |plan: &Plan| plan.steps.iter().position(|step| matches!(step, Step::WriteBackupGpt { .. })).unwrap();
    caught("the backup after the commit", &|plan| {
        let first = first(plan);
        plan.steps[first..].rotate_left(1);
    });
    caught("no backup", &|plan| drop(plan.steps.remove(first(plan))));
    caught("the entries in their place at once", &|plan| {
        let first = first(plan);
        plan.steps.drain(first + 1..first + 3);
    });
    caught("the header before the entries", &|plan| {
        let first = first(plan);
        plan.steps.swap(first + 1, first + 2);
    });
    caught("the header goes home before the entries", &|plan| {
        let first = first(plan);
        plan.steps.swap(first + 3, first + 4);
    });
    let grown = Grown::new();
    let header = |op: &Op| op.extent() == Extent { offset: SECTOR as u64, len: SECTOR as u64 };
    assert_eq!(grown.log.iter().filter(|op| header(op)).count(), 2);
    for (n, at) in (0..grown.log.len()).filter(|at| header(&grown.log[*at])).enumerate() {
        let mut log = grown.log.clone();
        let flush = log[..at].iter().rposition(|op| matches!(op, Op::Sync)).unwrap();
        log.remove(flush);
        assert!(grown.is_caught("no flush", &log), "mutant survived: no flush before header {n}");
    }
    let plan = grow(&RecordingDisk::new(LARGER, grown.before.clone()), &|_| ()).unwrap();
    assert_eq!(plan.steps.iter().filter(|step| is_header(step)).count(), 2);
}

/// Every call of the device fails once: an error, or all is done; and the system boots.
#[test]
fn every_failing_call_is_an_error_and_breaks_nothing() {
    let grown = Grown::new();
    let calls = {
        let disk = RecordingDisk::new(LARGER, grown.before.clone());
        grow(&disk, &|_| ()).unwrap();
        disk.calls()
    };
    for (n, (call, _)) in calls.iter().enumerate() {
        let faults: &[Fault] = match call {
            Call::Write => &[EIO, ENOSPC, Fault::Short],
            Call::Read => &[EIO, Fault::Flip { byte: 7, bit: 1 }],
            _ => &[EIO],
        };
        for fault in faults {
            let disk = RecordingDisk::failing(LARGER, grown.before.clone(), n, *fault);
            let result = grow(&disk, &|_| ());
            for pages in [disk.pages(), disk.durable()] {
                let judged = grown.judge(&pages);
                assert_eq!(judged, Ok(()), "call {n}, {call:?}, {fault:?}");
            }
            match result {
                Err(failure) => assert_eq!(failure.kind.exit_code(), 7, "call {n}: {failure}"),
                Ok(_) => assert_eq!(grown.is_done(&disk.durable()), Ok(()), "call {n}, {call:?}, {fault:?}"),
            }
        }
    }
    eprintln!("grow: {} calls", calls.len());
}

/// Any sector that is written is bad, for good: an error, or all is done; and the table that is in force is whole.
#[test]
fn bad_sectors_are_an_error_and_break_nothing() {
    let grown = Grown::new();
    let mut sectors: Vec<u64> = Vec::new();
    for extent in grown.log.iter().filter(|op| !matches!(op, Op::Sync)).map(Op::extent) {
        let all = (extent.offset..extent.end()).step_by(SECTOR);
        sectors.extend(all.clone().take(3).chain(all.last()));
    }
    sectors.sort_unstable();
    sectors.dedup();
    let mut done = 0;
    for at in &sectors {
        for how in Lasting::ALL {
            let disk = RecordingDisk::damaged(LARGER, grown.before.clone(), (*at, how));
            let result = grow(&disk, &|_| ());
            assert_eq!(grown.judge(&disk.pages()), Ok(()), "{how:?} at {at}");
            match result {
                Err(failure) => assert_eq!(failure.kind.exit_code(), 7, "{how:?} at {at}: {failure}"),
                Ok(_) => {
                    done += 1;
                    assert_eq!(grown.is_done(&disk.pages()), Ok(()), "{how:?} at {at}");
                }
            }
        }
    }
    eprintln!("grow: {} bad sectors in five ways, done {done} times", sectors.len());
}

/// Another program has written the table since it was looked at.
#[test]
fn a_table_that_changed_meanwhile_is_left_alone() {
    let before = World::get().installed(0);
    let disk = RecordingDisk::new(LARGER, before.clone());
    disk.meddle_before_claim(|pages| pages.write(SECTOR as u64, &[7; SECTOR]));
    let failure = grow(&disk, &|_| ()).unwrap_err().to_string();
    assert!(failure.contains("another program has written to the disk"), "{failure}");
    let mut lba1 = [0; SECTOR];
    disk.pages().read(SECTOR as u64, &mut lba1);
    assert_eq!(lba1, [7; SECTOR]);
}
