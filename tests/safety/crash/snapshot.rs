//! Snapshots, cut and failing at every write: `activate` with one, the restore of a trial that came back, `rollback`, and a
//! second one. The files of the system are real ones. Laws:
//!
//! - the old system never goes on with the new system's configuration once a restore has succeeded;
//! - what the new system wrote is never lost: it is in its slot, or in place;
//! - a second way back brings what the second had;
//! - a trial that never ran puts nothing back, and what was put back once is not put back again.

use std::{
    cell::Cell,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use slipway::{
    device::BlockIo,
    error::Failure,
    execute::Sources,
    ops::{
        InstalledDisk,
        activate::Activate,
        rollback::Rollback,
        snapshot::{self, Restore},
    },
};
use slipway_core::{
    boot::slot::Slot,
    plan::{Plan, RunsFrom, Step},
    report::Observer,
};
use slipway_test_support::fixtures::{DISK_BYTES, Silent};
use tempfile::TempDir;

use super::{
    disk::{Fault, Lasting, Op, RecordingDisk},
    grub::{Machine, Outcome, Saves},
    half_dead::offset,
    pages::Pages,
    read,
    scenario::{STAGE, Story},
    states,
    sweep::sweep,
    world::{Verb, World, identity},
};

/// The files of a system.
struct Files(TempDir);

impl Files {
    fn new(text: &str) -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("etc/slipway")).unwrap();
        fs::write(dir.path().join("etc/slipway/state.toml"), "paths = [\"/app\"]\nmeta = [\"0x0b\"]\n").unwrap();
        let files = Files(dir);
        files.become_(text);
        files
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// Several files, so that a restore can be cut between them. Each system has one that no other has.
    fn become_(&self, text: &str) {
        let app = self.root().join("app");
        let _ = fs::remove_dir_all(&app);
        fs::create_dir(&app).unwrap();
        for name in ["a", "b", text] {
            fs::write(app.join(name), text).unwrap();
        }
    }

    /// All that is there, as one word if it is all of one system.
    fn are(&self) -> String {
        let entries = fs::read_dir(self.root().join("app")).unwrap();
        let mut all: Vec<(String, String)> = entries
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
            .collect();
        all.sort();
        let text = all[0].1.clone();
        let is_whole = all.len() == 3 && all.iter().all(|(_, found)| *found == text) && all[2].0 == text;
        if is_whole { text } else { format!("{all:?}") }
    }
}

fn cmdline(slot: char, trial: bool) -> String {
    World::get().cmdline(slot, trial)
}

/// `activate` in slot A, with a plan that may be edited.
fn activate(disk: &dyn BlockIo, files: &Files, edit: &dyn Fn(&mut Plan)) -> Result<(), Failure> {
    let mut installed = InstalledDisk::look(disk, identity(), "disk", &cmdline('A', false))?;
    let kept = snapshot::prepare(disk, &installed.system, RunsFrom::Inside, files.root())?.unwrap();
    let change = Activate {
        runs_from: RunsFrom::Inside,
        preserve: true,
        only_ukis_start: false,
        renewal: None,
        snapshot: Some(kept.request),
    };
    let planned = installed.plan(&change, || 1_800_000_100, &mut Silent)?;
    let mut plan = installed.hold(&change, &planned)?;
    edit(&mut plan);
    let sources = Sources { snapshot: Some(&kept.taker), ..Sources::default() };
    installed.carry_out(&plan, sources, &mut Silent)
}

/// The action of the hook of a slot's system at its start.
fn starts(disk: &dyn BlockIo, slot: char, files: &Files, observer: &mut dyn Observer) -> Result<bool, Failure> {
    let request = Restore { slot: None, root: files.root().to_owned(), boot: true, to: None };
    let report = snapshot::onto(disk, identity(), "disk", &cmdline(slot, false), &request, observer)?;
    Ok(report.changed)
}

/// The same on pages.
fn started(pages: &Pages, slot: char, files: &Files) -> (Pages, bool) {
    let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
    let changed = starts(&disk, slot, files, &mut Silent).unwrap();
    (disk.pages(), changed)
}

fn rolled_back(pages: &Pages, from: char) -> Pages {
    let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
    let mut installed = InstalledDisk::look(&disk, identity(), "disk", &cmdline(from, false)).unwrap();
    let change = Rollback { offline: false };
    let planned = installed.plan(&change, || 1_800_000_200, &mut Silent).unwrap();
    let plan = installed.hold(&change, &planned).unwrap();
    installed.carry_out(&plan, Sources::default(), &mut Silent).unwrap();
    disk.pages()
}

fn power_on(pages: &mut Pages) -> Outcome {
    Machine::new(&read::table(pages, DISK_BYTES).unwrap()).power_on(pages, Saves::Both)
}

/// After a cut or a failure of `activate`: whatever boots, the old system finds its own.
fn judge_activation(mut pages: Pages) -> Result<(), String> {
    let files = Files::new("old");
    let trial = match power_on(&mut pages) {
        Outcome::Boots { slot: 'A', .. } => false,
        Outcome::Boots { slot: 'B', trial: true } => true,
        other => return Err(format!("{other:?}")),
    };
    // The trial migrates and panics; or the old system goes on, and changes its own.
    files.become_(if trial { "new" } else { "later" });
    if trial && power_on(&mut pages) != (Outcome::Boots { slot: 'A', trial: false }) {
        return Err("the trial does not come back".to_owned());
    }
    let disk = RecordingDisk::new(DISK_BYTES, pages);
    starts(&disk, 'A', &files, &mut Silent).map_err(|e| e.to_string())?;
    let wanted = if trial { "old" } else { "later" };
    if files.are() == wanted { Ok(()) } else { Err(format!("trial {trial}: it finds {}", files.are())) }
}

fn staged() -> Pages {
    Story::installed().run(&STAGE).pages
}

/// The first violation that a cut of this `activate` leads to.
fn cut_activation(edit: &dyn Fn(&mut Plan), most: usize) -> (usize, Option<String>) {
    let disk = RecordingDisk::new(DISK_BYTES, staged());
    activate(&disk, &Files::new("old"), edit).unwrap();
    let mut wrong = None;
    let visited = sweep(&staged(), &disk.log(), most, &[], &mut |pages, what| {
        wrong = judge_activation(pages.clone()).err().map(|why| format!("{what}: {why}"));
        wrong.is_none()
    });
    (visited, wrong)
}

#[test]
fn activate_survives_cuts() {
    let (visited, wrong) = cut_activation(&|_| (), states(2).max(40));
    assert_eq!(wrong, None);
    assert!(visited > 30, "{visited}");
}

/// A commit before the snapshot arms a trial from which the old system comes back without its own.
#[test]
fn a_snapshot_behind_the_commit_is_caught() {
    let late = |plan: &mut Plan| {
        let is = |step: &Step| matches!(step, Step::WriteSnapshot { .. } | Step::WriteSnapshotHead { .. });
        let taken: Vec<Step> = plan.steps.iter().filter(|step| is(step)).cloned().collect();
        assert_eq!(taken.len(), 2);
        plan.steps.retain(|step| !is(step));
        plan.steps.extend(taken);
    };
    assert!(cut_activation(&late, 200).1.is_some());
}

#[test]
fn activate_survives_faults() {
    let files = Files::new("old");
    let disk = RecordingDisk::new(DISK_BYTES, staged());
    activate(&disk, &files, &|_| ()).unwrap();
    let calls = disk.calls().len();
    for call in super::some(&(0..calls).collect::<Vec<_>>(), 16) {
        let disk = RecordingDisk::failing(DISK_BYTES, staged(), call, Fault::Errno(5));
        let _ = activate(&disk, &files, &|_| ());
        assert_eq!(judge_activation(disk.pages()), Ok(()), "call {call}");
    }
}

/// Its digest names the system to which the files belong.
#[test]
fn without_the_manifest_of_the_running_slot_no_trial_is_armed() {
    let manifest = (offset(&staged(), 3, "manifest.json"), Lasting::Unreadable);
    let disk = RecordingDisk::damaged(DISK_BYTES, staged(), manifest);
    let said = format!("{:#}", activate(&disk, &Files::new("old"), &|_| ()).unwrap_err().error);
    assert!(said.contains("slot A is damaged") && said.contains("manifest.json"), "{said}");
    assert!(said.contains("--no-snapshot"), "{said}");
    assert_eq!(power_on(&mut disk.pages()), Outcome::Boots { slot: 'A', trial: false });
}

/// Slot A runs again after a trial that has migrated.
fn came_back() -> Pages {
    let disk = RecordingDisk::new(DISK_BYTES, staged());
    activate(&disk, &Files::new("old"), &|_| ()).unwrap();
    let mut pages = disk.pages();
    assert_eq!(power_on(&mut pages), Outcome::Boots { slot: 'B', trial: true });
    assert_eq!(power_on(&mut pages), Outcome::Boots { slot: 'A', trial: false });
    pages
}

/// The power goes before change number `at` of the files.
struct Cut {
    at: usize,
    seen: Cell<usize>,
}

impl Observer for Cut {
    fn phase(&mut self, _: &str, _: u64) {}
    fn step(&mut self, _: usize, _: usize, _: &str, _: u64) {}
    fn note(&mut self, _: &str) {}
    fn advance(&mut self, _: u64) {
        self.seen.set(self.seen.get() + 1);
        assert!(self.seen.get() <= self.at, "cut");
    }
}

/// Starts slot A over what a cut left, and checks the laws of a restore.
fn judge_restore(pages: &Pages, files: &Files) -> Result<(), String> {
    let (pages, _) = started(pages, 'A', files);
    let is = |wanted: &str, what: &str| match files.are() == wanted {
        true => Ok(()),
        false => Err(format!("{what}: it finds {}", files.are())),
    };
    is("old", "the old system")?;
    files.become_("later");
    let (pages, changed) = started(&pages, 'A', files);
    if changed {
        return Err("it is put back twice".to_owned());
    }
    is("later", "the old system, later")?;
    // By the boot menu or a rollback the other one runs again, and the old one once more.
    let (pages, _) = started(&pages, 'B', files);
    is("new", "the new system")?;
    started(&pages, 'A', files);
    is("later", "the old system once more")
}

/// A restore that is cut between changes of files, and what `meddle` makes of the disk then.
fn cut_between_files(meddle: &dyn Fn(&mut Pages)) -> Option<String> {
    for at in 0.. {
        let (disk, files) = (RecordingDisk::new(DISK_BYTES, came_back()), Files::new("new"));
        let mut cut = Cut { at, seen: Cell::new(0) };
        let ended = catch_unwind(AssertUnwindSafe(|| starts(&disk, 'A', &files, &mut cut).unwrap()));
        let mut pages = disk.durable();
        meddle(&mut pages);
        if let Err(why) = judge_restore(&pages, &files) {
            return Some(format!("change {at}: {why}"));
        }
        if ended.is_ok() {
            assert!(at > 3, "{at} changes");
            return None;
        }
    }
    None
}

#[test]
fn a_restore_survives_cuts_between_files() {
    assert_eq!(cut_between_files(&|_| ()), None);
}

/// Bytes of the head in a slot.
fn head(pages: &Pages, slot: Slot) -> slipway_core::units::Extent {
    let part = read::table(pages, DISK_BYTES).unwrap().parts[&(3 + slot as u32)];
    slipway_core::snapshot::head_at(part)
}

/// A restore that takes what is there once more, half of each, loses what the new system wrote.
#[test]
fn what_is_kept_twice_is_caught() {
    let wrong = cut_between_files(&|pages| {
        let head = head(pages, Slot::B);
        pages.zero(head);
    });
    assert!(wrong.as_ref().is_some_and(|wrong| wrong.contains("the new system")), "{wrong:?}");
}

/// Before the first file is touched, and after the last: the files are all of one system then.
#[test]
fn a_restore_survives_cuts_of_the_disk() {
    let (base, files) = (came_back(), Files::new("new"));
    let disk = RecordingDisk::new(DISK_BYTES, base.clone());
    starts(&disk, 'A', &files, &mut Silent).unwrap();
    let log = disk.log();
    let marked = log.iter().rposition(|op| op.extent() == sector(head(&base, Slot::A)) && !matches!(op, Op::Sync));
    let (before, after) = log.split_at(marked.unwrap());
    for (base, log, text) in [(base.clone(), before, "new"), (applied(&base, before), after, "old")] {
        sweep(
            &base,
            log,
            if super::thorough() { 400 } else { 6 },
            &[sector(head(&base, Slot::A))],
            &mut |pages, what| {
                files.become_(text);
                assert_eq!(judge_restore(pages, &files), Ok(()), "{what}, files {text}");
                true
            },
        );
    }
}

fn sector(extent: slipway_core::units::Extent) -> slipway_core::units::Extent {
    slipway_core::units::Extent { len: 512, ..extent }
}

fn applied(base: &Pages, log: &[Op]) -> Pages {
    let mut pages = base.clone();
    log.iter().for_each(|op| op.apply(&mut pages));
    pages
}

/// One that is not marked as put back is put back again, over later changes.
#[test]
fn a_head_that_still_waits_is_caught() {
    let (base, files) = (came_back(), Files::new("new"));
    let (mut pages, _) = started(&base, 'A', &files);
    let mut waits = vec![0; 512];
    base.read(head(&base, Slot::A).offset, &mut waits);
    files.become_("later");
    pages.write(head(&base, Slot::A).offset, &waits);
    started(&pages, 'A', &files);
    assert_eq!(files.are(), "old");
}

#[test]
fn a_restore_survives_faults() {
    let disk = RecordingDisk::new(DISK_BYTES, came_back());
    starts(&disk, 'A', &Files::new("new"), &mut Silent).unwrap();
    let calls = disk.calls().len();
    for call in super::some(&(0..calls).collect::<Vec<_>>(), 16) {
        let (disk, files) = (RecordingDisk::failing(DISK_BYTES, came_back(), call, Fault::Errno(5)), Files::new("new"));
        let _ = starts(&disk, 'A', &files, &mut Silent);
        assert_eq!(judge_restore(&disk.pages(), &files), Ok(()), "call {call}");
    }
}

/// A confirmed system, `rollback`, and a second one: each finds its own.
#[test]
fn a_second_rollback_returns_to_the_seconds() {
    let files = Files::new("old");
    let disk = RecordingDisk::new(DISK_BYTES, staged());
    activate(&disk, &files, &|_| ()).unwrap();
    let mut pages = disk.pages();
    assert_eq!(power_on(&mut pages), Outcome::Boots { slot: 'B', trial: true });
    files.become_("new");
    let story = Story { pages, cmdline: cmdline('B', true) }.run(&Verb::Confirm);
    let mut pages = rolled_back(&story.pages, 'B');
    assert_eq!(power_on(&mut pages), Outcome::Boots { slot: 'A', trial: false });
    let (pages, _) = started(&pages, 'A', &files);
    assert_eq!(files.are(), "old");
    files.become_("third");
    let mut pages = rolled_back(&pages, 'A');
    assert_eq!(power_on(&mut pages), Outcome::Boots { slot: 'B', trial: false });
    let (pages, _) = started(&pages, 'B', &files);
    assert_eq!(files.are(), "new");
    let pages = rolled_back(&pages, 'B');
    started(&pages, 'A', &files);
    assert_eq!(files.are(), "third");
}
