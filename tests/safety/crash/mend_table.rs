//! Power cuts, I/O errors and other programs during the repair of a partition table: what started before starts meanwhile, no
//! byte outside the table is written, and another repair ends with the table that the install wrote.

use std::collections::BTreeMap;

use slipway::{error::Failure, ops::mend::look_at_table};
use slipway_core::{
    plan::{Plan, Step},
    units::{Extent, SectorSize},
};
use slipway_test_support::fixtures::DISK_BYTES;
use uuid::Uuid;

use super::{
    disk::{Call, EIO, ENOSPC, Fault, Lasting, Op, RecordingDisk},
    grow::boots,
    pages::{GARBAGE, Pages, PagesFile, SECTOR},
    read, some, states,
    sweep::sweep,
    table_damage::{
        ALL, BACKUP, BESIDE, Damage,
        Damage::{
            AllLong, BackupLost, BothLost, EachLacksOne, EntryDeleted, EspMovedEntryDeleted, Overlap, PrimaryLost,
            WrongType,
        },
        LBA, PRIMARY, damaged, theirs,
    },
    thorough,
    world::{Told, World},
};

use crate::grow::{Parts, copies};

/// Of all states, for all damages together.
pub const SHARE: usize = 8;
/// States in which a mutant must show: few of each epoch first.
const STATES: [usize; 3] = [20, 200, 2000];

/// None if there was nothing to do.
fn mend(disk: &RecordingDisk, edit: &dyn Fn(&mut Plan)) -> Result<Option<Plan>, Failure> {
    mend_with(disk, edit, &|_| ())
}

/// The same; `before_step` is called before each step, with its number from 1.
fn mend_with(
    disk: &RecordingDisk,
    edit: &dyn Fn(&mut Plan),
    before_step: &dyn Fn(usize),
) -> Result<Option<Plan>, Failure> {
    let Some(mut mend) = look_at_table(disk, "disk")? else { return Ok(None) };
    edit(&mut mend.plan);
    mend.carry_out(disk, &mut Told(vec![], before_step)).map(|()| Some(mend.plan))
}

fn both(pages: &Pages) -> [Option<Parts>; 2] {
    copies(PagesFile::new(pages, Extent { offset: 0, len: DISK_BYTES }), SectorSize::S512)
}

const ALL_PARTS: &[u32] = &[1, 2, 3, 4, 5, 6, 7];

const fn new_guids(damage: Damage) -> &'static [u32] {
    match damage {
        BothLost => ALL_PARTS,
        EntryDeleted | EspMovedEntryDeleted => &[5],
        // Where the drive spoils one of them, only the other one is left.
        EachLacksOne => &[2, 5],
        _ => &[],
    }
}

/// A disk with a damaged table, the log of its repair, and the disk that an honest repair leaves.
struct Mended {
    before: Pages,
    log: Vec<Op>,
    done: Pages,
    /// What readers of the primary found before, and whether the system came up.
    old: Option<Parts>,
    /// What readers of the backup found before.
    old_backup: Option<Parts>,
    /// Partitions whose PARTUUIDs nothing says any more. The new ones come from what lies on the disk, as far as it can be read.
    new_guids: &'static [u32],
    booted: bool,
}

impl Mended {
    fn new(damage: Damage) -> Self {
        Self::edited(damage, &|_| ())
    }

    fn edited(damage: Damage, edit: &dyn Fn(&mut Plan)) -> Self {
        let before = damaged(damage);
        let honest = RecordingDisk::new(DISK_BYTES, before.clone());
        mend(&honest, &|_| ()).unwrap().expect("something to mend");
        let disk = RecordingDisk::new(DISK_BYTES, before.clone());
        let _ = mend(&disk, edit);
        let [old, old_backup] = both(&before);
        let booted = old.as_ref().is_some_and(|parts| boots(&before, parts).is_ok());
        Mended { new_guids: new_guids(damage), before, log: disk.log(), done: honest.pages(), old, old_backup, booted }
    }

    /// The fault of a state.
    fn judge(&self, pages: &Pages) -> Result<(), String> {
        self.all_else_is_there(pages)?;
        self.still_boots(pages)?;
        self.can_be_repeated(pages)
    }

    fn can_be_repeated(&self, pages: &Pages) -> Result<(), String> {
        let again = RecordingDisk::new(DISK_BYTES, pages.clone());
        match mend(&again, &|_| ()) {
            Err(failure) => Err(format!("run again: {failure}")),
            Ok(_) => self.is_done(&again.pages()),
        }
    }

    /// Without the GUIDs that are not known.
    fn known(&self, mut parts: Parts) -> Parts {
        parts
            .iter_mut()
            .filter(|(number, _)| self.new_guids.contains(number))
            .for_each(|(_, part)| part.2 = Uuid::nil());
        parts
    }

    fn all_else_is_there(&self, pages: &Pages) -> Result<(), String> {
        let between = BESIDE.end()..BACKUP.offset;
        let lba0 = Extent { offset: 0, len: LBA };
        let data = Extent { offset: between.start, len: between.end - between.start };
        let same = [lba0, data].into_iter().all(|extent| pages.same(&self.before, extent));
        if same { Ok(()) } else { Err("what is no table was written over".to_owned()) }
    }

    /// GRUB and Linux read the primary. Where the drive spoils LBA 1 when the power goes, UEFI reads the backup, and so does
    /// the repair.
    fn still_boots(&self, pages: &Pages) -> Result<(), String> {
        let Some(old) = &self.old else { return Ok(()) };
        let [primary, last] = both(pages);
        let mut lba1 = [0; SECTOR];
        pages.read(LBA, &mut lba1);
        let in_use = if lba1 == [GARBAGE; SECTOR] { last } else { primary };
        let parts = in_use.ok_or("there is no valid table where readers look")?;
        let new = both(&self.done)[0].clone().map(|parts| self.known(parts));
        let is_old = parts == *old || Some(&parts) == self.old_backup.as_ref();
        if !is_old && Some(self.known(parts.clone())) != new {
            return Err(format!("a table that is neither: {parts:?}"));
        }
        if self.booted { boots(pages, &parts) } else { Ok(()) }
    }

    fn is_done(&self, pages: &Pages) -> Result<(), String> {
        let table = read::table(pages, DISK_BYTES)?;
        let wanted = read::table(&self.done, DISK_BYTES)?;
        let parts = both(pages)[0].clone().ok_or("no primary")?;
        let copies = both(pages).map(|copy| copy.map(|parts| self.known(parts)));
        let is_table = copies == both(&self.done).map(|copy| copy.map(|parts| self.known(parts)));
        if !is_table || table.guid != wanted.guid {
            return Err(format!("not done: {table:?}"));
        }
        boots(pages, &parts)?;
        match look_at_table(&RecordingDisk::new(DISK_BYTES, pages.clone()), "disk") {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("the next repair would write again".to_owned()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    fn sweep(&self, log: &[Op], states: usize) -> (usize, Option<String>) {
        let mut broken = None;
        let visited = sweep(&self.before, log, states, &[], &mut |pages, what| {
            broken = self.judge(pages).err().map(|why| format!("{what}: {why}"));
            broken.is_none()
        });
        (visited, broken)
    }

    fn is_caught(&self, log: &[Op]) -> bool {
        STATES.iter().any(|states| self.sweep(log, *states).1.is_some())
    }
}

#[test]
fn a_cut_takes_nothing_away() {
    for damage in ALL.iter().copied() {
        let mended = Mended::new(damage);
        assert_eq!(mended.judge(&mended.done), Ok(()), "{damage:?}: once it is done");
        let share = states(SHARE).div_ceil(ALL.len());
        let (visited, broken) = mended.sweep(&mended.log, share);
        eprintln!("{damage:?}: {visited} states, {}", if mended.booted { "all boot" } else { "none booted before" });
        assert_eq!(broken, None, "{damage:?}");
        assert!(visited >= share);
        assert!(matches!(mended.log.last(), Some(Op::Sync)), "{damage:?}: success before the last flush");
    }
}

/// What an install wrote comes back, GUIDs included, but for those of partitions that nothing says any more.
#[test]
fn the_table_is_what_the_install_wrote() {
    let installed = World::get().installed(0);
    for damage in ALL.iter().copied() {
        let mended = Mended::new(damage);
        let (is, was) = (read::table(&mended.done, DISK_BYTES).unwrap(), read::table(&installed, DISK_BYTES).unwrap());
        assert_eq!(is.parts, was.parts, "{damage:?}");
        assert_eq!(is.guid, was.guid, "{damage:?}");
        let has_guids = both(&mended.done) == both(&installed);
        assert_eq!(has_guids, !matches!(damage, BothLost | EntryDeleted | EspMovedEntryDeleted), "{damage:?}");
    }
}

#[test]
fn mutants_are_caught() {
    let caught = |damage: Damage, what: &str, mutant: &dyn Fn(&mut Plan)| {
        let mended = Mended::edited(damage, mutant);
        assert!(mended.is_caught(&mended.log), "mutant survived: {damage:?}, {what}");
    };
    let home = |plan: &mut Plan| {
        // Entries and header of the place beside the table are left out.
        let first = plan.steps.iter().position(|step| matches!(step, Step::WriteEntries { .. })).unwrap();
        plan.steps.drain(first..first + 2);
    };
    caught(WrongType, "the entries in their place at once", &home);
    caught(Overlap, "the entries in their place at once", &home);
    caught(WrongType, "the header before the entries", &|plan| {
        let first = plan.steps.iter().position(|step| matches!(step, Step::WriteEntries { .. })).unwrap();
        plan.steps.swap(first, first + 1);
    });
    let mended = Mended::new(WrongType);
    let is_header = |op: &Op| op.extent() == Extent { offset: LBA, len: LBA };
    let headers: Vec<usize> = (0..mended.log.len()).filter(|at| is_header(&mended.log[*at])).collect();
    assert_eq!(headers.len(), 2);
    for at in headers {
        let mut log = mended.log.clone();
        let flush = log[..at].iter().rposition(|op| matches!(op, Op::Sync)).unwrap();
        log.remove(flush);
        assert!(mended.is_caught(&log), "mutant survived: no flush before a header");
    }
}

/// Every call of the device fails once: an error, or all is done; and what booted boots.
#[test]
fn a_failing_call_is_an_error_and_breaks_nothing() {
    for damage in ALL.iter().copied() {
        let mended = Mended::new(damage);
        let calls = {
            let disk = RecordingDisk::new(DISK_BYTES, mended.before.clone());
            mend(&disk, &|_| ()).unwrap();
            disk.calls()
        };
        let numbers: Vec<usize> = (0..calls.len()).collect();
        let (reads, others): (Vec<usize>, Vec<usize>) = numbers.iter().partition(|n| calls[**n].0 == Call::Read);
        for n in [some(&reads, 12), others].concat() {
            let faults: &[Fault] = match calls[n].0 {
                Call::Write => &[EIO, ENOSPC, Fault::Short],
                _ => &[EIO],
            };
            // In the gate, one way a call, by turns.
            let faults = if thorough() { faults } else { &faults[n % faults.len()..][..1] };
            for fault in faults {
                let disk = RecordingDisk::failing(DISK_BYTES, mended.before.clone(), n, *fault);
                let result = mend(&disk, &|_| ());
                for pages in [disk.pages(), disk.durable()] {
                    let judged = mended.judge(&pages);
                    assert_eq!(judged, Ok(()), "{damage:?}: call {n}, {:?}, {fault:?}", calls[n]);
                }
                match result {
                    Err(failure) => assert_eq!(failure.kind.exit_code(), 7, "{damage:?}: call {n}: {failure}"),
                    // What cannot be read is not called whole, nor is it guessed at: nothing is written then.
                    Ok(None) => assert!(disk.log().is_empty(), "{damage:?}: call {n}"),
                    Ok(Some(_)) => {
                        let done = mended.is_done(&disk.durable());
                        assert_eq!(done, Ok(()), "{damage:?}: call {n}, {:?}, {fault:?}", calls[n]);
                    }
                }
            }
        }
        eprintln!("{damage:?}: {} calls", calls.len());
    }
}

/// A sector of the table is bad, for good: an error, or all is done; and what booted boots.
#[test]
fn bad_sectors_are_an_error_and_break_nothing() {
    for damage in ALL.iter().copied() {
        let mut mended = Mended::new(damage);
        let mut sectors: Vec<u64> = Vec::new();
        for extent in mended.log.iter().filter(|op| !matches!(op, Op::Sync)).map(Op::extent) {
            let all = (extent.offset..extent.end()).step_by(SECTOR);
            sectors.extend(all.clone().take(2).chain(all.last()));
        }
        sectors.sort_unstable();
        sectors.dedup();
        let mut done = 0;
        for at in &sectors {
            for how in Lasting::ALL {
                let disk = RecordingDisk::damaged(DISK_BYTES, mended.before.clone(), (*at, how));
                let result = mend(&disk, &|_| ());
                let pages = disk.pages();
                let reads_wrong = !matches!(how, Lasting::Unwritable | Lasting::LosesWrites);
                // A primary that reads wrong started nothing before.
                let is_seen = !reads_wrong || !(PRIMARY.offset..PRIMARY.end()).contains(at);
                let is_last_copy = mended.old.is_none() && reads_wrong && *at >= BACKUP.offset;
                mended.new_guids = if is_last_copy { ALL_PARTS } else { new_guids(damage) };
                let judged = mended
                    .all_else_is_there(&pages)
                    .and_then(|()| if is_seen { mended.still_boots(&pages) } else { Ok(()) });
                assert_eq!(judged.and_then(|()| mended.can_be_repeated(&pages)), Ok(()), "{damage:?}: {how:?} at {at}");
                match result {
                    Err(failure) => assert_eq!(failure.kind.exit_code(), 7, "{damage:?}: {how:?} at {at}: {failure}"),
                    Ok(None) => assert!(disk.log().is_empty(), "{damage:?}: {how:?} at {at}"),
                    Ok(Some(_)) => {
                        done += 1;
                        assert_eq!(mended.is_done(&pages), Ok(()), "{damage:?}: {how:?} at {at}");
                    }
                }
            }
        }
        eprintln!("{damage:?}: {} bad sectors in five ways, done {done} times", sectors.len());
    }
}

/// A dead sector takes seconds to a minute, each time that it is read. Thousands of answers are weighed.
#[test]
fn no_place_is_read_again_and_again() {
    let ephemeral = read::table(&World::get().installed(0), DISK_BYTES).unwrap().parts[&7].offset;
    for damage in ALL.iter().copied().chain([AllLong]) {
        let before = damaged(damage);
        for disk in [
            RecordingDisk::new(DISK_BYTES, before.clone()),
            RecordingDisk::damaged(DISK_BYTES, before.clone(), (ephemeral, Lasting::Unreadable)),
        ] {
            let _ = look_at_table(&disk, "disk");
            let mut reads = BTreeMap::new();
            for (_, extent) in disk.calls() {
                *reads.entry((extent.offset, extent.len)).or_insert(0) += 1;
            }
            let most = reads.into_iter().max_by_key(|(_, times)| *times);
            assert!(most.is_some_and(|(_, times)| times < 100), "{damage:?}: {most:?}");
        }
    }
}

/// A plan that does not do all that it promises is no success.
#[test]
fn a_step_left_out_is_an_error() {
    for (damage, left_out) in [(PrimaryLost, 0), (BackupLost, 0), (BothLost, 0), (BothLost, 1), (WrongType, 0)] {
        let disk = RecordingDisk::new(DISK_BYTES, damaged(damage));
        let result = mend(&disk, &|plan| drop(plan.steps.remove(left_out)));
        assert!(result.is_err(), "{damage:?} without step {left_out}");
    }
}

/// A pending sector is replaced by the drive when it is written: a repair must write it.
#[test]
fn a_table_that_cannot_be_read_is_written_again() {
    for at in [PRIMARY.offset, PRIMARY.offset + LBA, BACKUP.offset, DISK_BYTES - LBA] {
        let installed = World::get().installed(0);
        let disk = RecordingDisk::damaged(DISK_BYTES, installed.clone(), (at, Lasting::Unreadable));
        mend(&disk, &|_| ()).unwrap().expect("something to mend");
        assert_eq!(disk.bad(), None, "sector at {at}: it was written");
        assert!(disk.pages().same(&installed, PRIMARY) && disk.pages().same(&installed, BACKUP), "sector at {at}");
    }
}

/// Another program writes its table after the disk was looked at: before the claim, and before each step. It stays.
#[test]
fn a_table_that_changed_meanwhile_is_left_alone() {
    let theirs = theirs();
    let bytes = [PRIMARY, BACKUP].map(|extent| {
        let mut bytes = vec![0; extent.len as usize];
        theirs.read(extent.offset, &mut bytes);
        (extent.offset, bytes)
    });
    let put = move |pages: &mut Pages| bytes.iter().for_each(|(offset, bytes)| pages.write(*offset, bytes));
    for damage in ALL.iter().copied() {
        let steps = mend(&RecordingDisk::new(DISK_BYTES, damaged(damage)), &|_| ()).unwrap().unwrap().steps.len();
        for step in 0..=steps {
            let disk = RecordingDisk::new(DISK_BYTES, damaged(damage));
            if step == 0 {
                disk.meddle_before_claim(put.clone());
            }
            let before_step = |n: usize| {
                if n == step {
                    disk.meddle(&put);
                }
            };
            let failure = mend_with(&disk, &|_| (), &before_step).map(|_| "success").unwrap_err().to_string();
            assert!(failure.contains("another program"), "{damage:?}, step {step}: {failure}");
            assert_eq!(both(&disk.pages()), both(&theirs), "{damage:?}, step {step}: their table is gone");
        }
    }
}
