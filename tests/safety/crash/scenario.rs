//! Every verb on every kind of disk it meets: what was before, what is done, and what may boot afterwards.

use slipway_core::{
    disk::layout::Part,
    plan::{Plan, Step},
    units::Extent,
};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Op, RecordingDisk},
    grub::{Machine, Outcome, Saves},
    loader,
    pages::{Pages, SECTOR},
    read,
    system::{Expect, Judge, System},
    world::{Failed, Verb, World},
};

pub use super::{delta::*, esp::*, renewal::*, upgrades::*};

/// A disk with a past, and the system that runs from it.
pub struct Story {
    pub pages: Pages,
    pub cmdline: String,
}

impl Story {
    /// Payload 0 in slot A, which runs.
    pub fn installed() -> Self {
        let world = World::get();
        Story { pages: world.installed(0), cmdline: world.cmdline('A', false) }
    }

    /// The same by an earlier version, which knew no history.
    pub fn installed_earlier() -> Self {
        Story { pages: World::get().installed_earlier(0), ..Self::installed() }
    }

    pub fn run(self, verb: &Verb) -> Self {
        self.edited(verb, &|_| ())
    }

    pub fn edited(self, verb: &Verb, edit: &dyn Fn(&mut Plan)) -> Self {
        let disk = RecordingDisk::new(DISK_BYTES, self.pages);
        World::get().run(verb, &disk, &self.cmdline, edit).unwrap();
        Story { pages: disk.pages(), ..self }
    }

    /// The same with a plan that stops early, which no look at the disk afterwards would let pass.
    pub fn edited_and_cut(self, verb: &Verb, edit: &dyn Fn(&mut Plan)) -> Self {
        let disk = RecordingDisk::new(DISK_BYTES, self.pages);
        let _ = World::get().run(verb, &disk, &self.cmdline, edit);
        Story { pages: disk.pages(), ..self }
    }

    /// Power on again; this is what comes up.
    pub fn boot(mut self, slot: char, trial: bool) -> Self {
        let machine = Machine::new(&read::table(&self.pages, DISK_BYTES).unwrap());
        assert_eq!(machine.power_on(&mut self.pages, Saves::Both), Outcome::Boots { slot, trial });
        Story { cmdline: World::get().cmdline(slot, trial), ..self }
    }

    /// Change both copies of boot.env behind everybody's back.
    pub fn with_env(mut self, change: impl Fn(usize, &[u8]) -> Vec<u8>) -> Self {
        let machine = Machine::new(&read::table(&self.pages, DISK_BYTES).unwrap());
        for (n, copy) in machine.copies(&self.pages).into_iter().enumerate() {
            let (bytes, at) = copy.unwrap();
            self.pages.write(at, &change(n, &bytes));
        }
        self
    }
}

/// A scenario before it is run.
pub struct Setup {
    pub story: Story,
    pub verb: Verb,
    pub expect: Expect,
    /// The volume of the OS that is made anew.
    pub wiped: Option<u32>,
    /// What is replaced on the ESP shares sectors of the FAT with other files.
    pub shared_fat: bool,
}

/// One that was run without interruption.
pub struct Scenario {
    pub name: &'static str,
    pub story: Story,
    pub verb: Verb,
    pub wiped: Option<u32>,
    pub shared_fat: bool,
    /// Sectors of which there is one, so that a disk must write them whole or not at all.
    pub atomic: Vec<Extent>,
    pub judge: Judge,
    pub log: Vec<Op>,
    pub done: Pages,
}

impl Setup {
    pub fn run(self, name: &'static str) -> Scenario {
        let Setup { story, verb, expect, wiped, shared_fat } = self;
        let disk = RecordingDisk::new(DISK_BYTES, story.pages.clone());
        let plan = World::get().run(&verb, &disk, &story.cmdline, &|_| ()).unwrap();
        let atomic = atomic(&plan, shared_fat);
        let done = disk.pages();
        let (slot, payload, trial) = ends(&verb, &expect);
        let judge = Judge::new(DISK_BYTES, expect, &World::get().payloads, &[&story.pages, &done]);
        assert_eq!(judge.state(&done, true), Ok(Outcome::Boots { slot, trial }), "{name}: once it is done");
        assert_eq!(judge.whole(&done, slot), Some(payload), "{name}: once it is done");
        Scenario { name, story, verb, wiped, shared_fat, atomic, judge, log: disk.log(), done }
    }
}

/// The sectors that bring a new boot loader into force, and those of the FAT that are freed beside other files' entries.
pub fn atomic(plan: &Plan, shared_fat: bool) -> Vec<Extent> {
    let is_one = |step: &&Step| match step {
        Step::WriteEntry { .. } | Step::AddEntry { .. } | Step::WriteBootCode { .. } => true,
        // Firmware and GRUB do not look at it, and the `fatfs` crate takes no volume without it.
        Step::CountFree { .. } => true,
        Step::FreeClusters { .. } => shared_fat,
        _ => false,
    };
    plan.steps.iter().filter(is_one).flat_map(Step::writes).collect()
}

/// What boots next once a verb is done, and whether as a trial: of what may boot, the last.
pub fn ends(verb: &Verb, expect: &Expect) -> (char, usize, bool) {
    let tries = matches!(
        verb,
        Verb::Upgrade { activate: true, .. }
            | Verb::Activate { .. }
            | Verb::ActivateAndRenew
            | Verb::FromMedium { .. }
            | Verb::UpgradeOffline { .. }
            | Verb::UpgradeAndRenew { .. }
            | Verb::UpgradeByDelta { .. }
            | Verb::ActivateOffline
            | Verb::Menu { .. }
    );
    let trial = tries && !expect.trial.is_empty();
    let last = if trial { expect.trial.last() } else { expect.plain.last() };
    last.map(|(slot, payload)| (*slot, *payload, trial)).unwrap()
}

/// The content of a volume of the OS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volume {
    /// Its content before.
    Old,
    /// Its intended content.
    New,
    /// Nothing that is recognised.
    Blank,
    /// A file system that is neither.
    Half,
}

impl Scenario {
    /// Where samples are taken by turns, this one's: it always takes the same, and others take others.
    pub fn turn(&self) -> usize {
        self.name.bytes().map(usize::from).sum()
    }

    /// Run the verb on another disk.
    pub fn again(&self, disk: &RecordingDisk) -> Result<Plan, Failed> {
        self.edited(disk, &|_| ())
    }

    pub fn edited(&self, disk: &RecordingDisk, edit: &dyn Fn(&mut Plan)) -> Result<Plan, Failed> {
        World::get().run(&self.verb, disk, &self.story.cmdline, edit)
    }

    /// The volume that is made anew, in a state.
    pub fn volume(&self, pages: &Pages) -> Option<Volume> {
        let part = self.judge.table.parts[&self.wiped?];
        let inside = |op: &&Op| part.contains(op.extent());
        // What a device makes of a discard is its own affair.
        let mut anew = self.log.iter().filter(|op| !matches!(op, Op::Sync | Op::Discard(_))).filter(inside);
        let mut magic = [0; 4];
        pages.read(part.offset, &mut magic);
        Some(if pages.same(&self.story.pages, part) {
            Volume::Old
        } else if anew.all(|op| pages.same(&self.done, op.extent())) {
            Volume::New
        } else if &magic == b"XFSB" {
            Volume::Half
        } else {
            Volume::Blank
        })
    }

    /// What the verb may write to: everything else on the disk is none of its business.
    pub fn may_write(&self) -> Vec<Extent> {
        let part = |number| self.judge.table.parts[&number];
        let slot = |slot: char| if slot == 'A' { part(3) } else { part(4) };
        let sector = |at| Extent { offset: at, len: SECTOR as u64 };
        let copies: Vec<Extent> =
            self.judge.machine.copies(&self.story.pages).into_iter().flatten().map(|copy| sector(copy.1)).collect();
        let marker = |slot_| sector(read::file(&self.story.pages, slot(slot_), "slot.env").unwrap().1);
        let adv = Extent { offset: part(5).offset, len: 512 << 10 };
        let default = self.judge.machine.env(&self.story.pages).is_some_and(|env| env["default"] == "A");
        let nothing_runs = !self.story.cmdline.contains("slipway.slot=");
        let a = if nothing_runs { default } else { self.story.cmdline.contains("slot=A") };
        let (runs, other) = if a { ('A', 'B') } else { ('B', 'A') };
        let mut may: Vec<Extent> = match self.verb {
            // The marker of the slot that is kept only if a cut has left it out.
            Verb::Upgrade { .. }
            | Verb::FromMedium { .. }
            | Verb::UpgradeOffline { .. }
            | Verb::UpgradeAndRenew { .. }
            | Verb::UpgradeByDelta { .. } => {
                let missing = self.judge.machine.slot(&self.story.pages, runs).marker.0 != "good";
                copies.into_iter().chain([adv, slot(other)]).chain(missing.then(|| marker(runs))).collect()
            }
            Verb::Menu { .. } => copies,
            Verb::Activate { .. } | Verb::ActivateAndRenew | Verb::ActivateOffline | Verb::Repair => {
                copies.into_iter().chain([adv]).collect()
            }
            Verb::Confirm => copies.into_iter().chain([adv, marker(runs)]).collect(),
            // The marker of the slot that becomes the default.
            Verb::Rollback | Verb::RollbackOffline => {
                let there = self.judge.machine.slot(&self.story.pages, other).marker.0 == "good";
                copies.into_iter().chain([adv]).chain(there.then(|| marker(other))).collect()
            }
            Verb::MetaSet(..) | Verb::MetaDelete(_) => vec![adv],
            Verb::Wipe(_) | Verb::UpdateBootloader { .. } => vec![],
            Verb::Record => return self.judge.trial_record(&self.story.pages).into_iter().collect(),
        };
        may.extend(self.wiped.map(part));
        may.extend((self.judge.expect.makes_esp || self.judge.expect.mends_esp).then(|| part(1)));
        if self.judge.expect.renews {
            may.extend(loader::places(&self.story.pages, &self.judge.table));
        }
        if !matches!(self.verb, Verb::MetaSet(..) | Verb::MetaDelete(_)) {
            may.extend(self.judge.history_record(&self.story.pages));
        }
        may
    }
}

pub const A0: System = ('A', 0);
pub const B1: System = ('B', 1);
pub const UPGRADE: Verb = Verb::Upgrade { payload: 1, activate: true, preserve: true, retry_bad: false, blank: false };
pub const STAGE: Verb = Verb::Upgrade { payload: 1, activate: false, preserve: true, retry_bad: false, blank: false };
pub const NEXT: Verb = Verb::Upgrade { payload: 2, activate: true, preserve: true, retry_bad: false, blank: false };

/// Payload 1 in slot B is tried and runs.
pub fn tried() -> Story {
    Story::installed().run(&UPGRADE).boot('B', true)
}

/// It was confirmed and is the default.
pub fn confirmed() -> Story {
    tried().run(&Verb::Confirm).boot('B', false)
}

pub fn setup(story: Story, verb: Verb, plain: &[System], trial: &[System]) -> Setup {
    let (plain, trial, marked) = (plain.to_vec(), trial.to_vec(), plain.to_vec());
    let expect = Expect { plain, trial, marked, ..Expect::default() };
    Setup { story, verb, expect, wiped: None, shared_fat: false }
}

pub fn marked(mut setup: Setup, also: System) -> Setup {
    setup.expect.marked.push(also);
    setup
}

pub fn no_marker(plan: &mut Plan) {
    plan.steps.retain(|step| !matches!(step, Step::WriteMarker { .. }));
}

/// One copy of boot.env is lost.
pub fn half_lost(story: Story) -> Story {
    story.with_env(|n, old| if n == 0 { vec![0; old.len()] } else { old.to_vec() })
}

/// `verb` in a rescue system.
pub fn offline(story: Story, verb: Verb, plain: &[System], trial: &[System]) -> Setup {
    setup(Story { cmdline: "quiet".to_owned(), ..story }, verb, plain, trial)
}

pub fn activate_offline() -> Setup {
    offline(Story::installed().run(&STAGE), Verb::ActivateOffline, &[A0], &[B1])
}

pub fn rollback_offline() -> Setup {
    offline(confirmed(), Verb::RollbackOffline, &[B1, A0], &[])
}

pub fn rollback_offline_pending_trial() -> Setup {
    offline(Story::installed().run(&UPGRADE), Verb::RollbackOffline, &[A0], &[B1])
}

pub fn stage() -> Setup {
    setup(Story::installed(), STAGE, &[A0], &[])
}

pub fn stage_repeated() -> Setup {
    let verb = Verb::Upgrade { payload: 2, activate: false, preserve: true, retry_bad: false, blank: false };
    marked(setup(confirmed(), verb, &[B1], &[]), A0)
}

pub fn activate() -> Setup {
    setup(Story::installed().run(&STAGE), Verb::Activate { preserve: true }, &[A0], &[B1])
}

pub fn activate_wipe() -> Setup {
    let setup = setup(Story::installed().run(&STAGE), Verb::Activate { preserve: false }, &[A0], &[B1]);
    Setup { wiped: Some(7), ..setup }
}

/// It is armed already, and disarmed while EPHEMERAL is wiped.
pub fn activate_again_wipe() -> Setup {
    let setup = setup(Story::installed().run(&UPGRADE), Verb::Activate { preserve: false }, &[A0], &[B1]);
    Setup { wiped: Some(7), ..setup }
}

pub fn confirm() -> Setup {
    setup(tried(), Verb::Confirm, &[A0, B1], &[])
}

pub fn rollback() -> Setup {
    setup(confirmed(), Verb::Rollback, &[B1, A0], &[])
}

pub fn rollback_running_trial() -> Setup {
    setup(tried(), Verb::Rollback, &[A0], &[])
}

pub fn rollback_pending_trial() -> Setup {
    setup(Story::installed().run(&UPGRADE), Verb::Rollback, &[A0], &[B1])
}

/// Both copies of boot.env are lost: GRUB goes by the markers, and so does the system that runs.
pub fn lost(story: Story) -> Story {
    story.with_env(|_, old| vec![0; old.len()])
}

pub fn with_env_lost(mut setup: Setup) -> Setup {
    setup.expect.env_lost = true;
    setup
}

pub fn rollback_with_both_copies_lost() -> Setup {
    with_env_lost(setup(lost(confirmed()), Verb::Rollback, &[B1, A0], &[]))
}

pub fn confirm_with_both_copies_lost() -> Setup {
    with_env_lost(setup(lost(tried()), Verb::Confirm, &[A0, B1], &[]))
}

/// From a rescue system.
pub fn repair() -> Setup {
    let story = Story { cmdline: "quiet".to_owned(), ..lost(Story::installed()) };
    with_env_lost(setup(story, Verb::Repair, &[A0], &[]))
}

/// Both slots are good; the one that was confirmed last boots.
pub fn repair_two_systems() -> Setup {
    let story = Story { cmdline: "quiet".to_owned(), ..lost(confirmed()) };
    with_env_lost(setup(story, Verb::Repair, &[A0, B1], &[]))
}

/// Inside a trial: it can be confirmed afterwards.
pub fn repair_in_a_trial() -> Setup {
    with_env_lost(setup(lost(tried()), Verb::Repair, &[A0], &[]))
}

pub fn repair_with_a_copy_lost() -> Setup {
    setup(Story { cmdline: "quiet".to_owned(), ..half_lost(Story::installed()) }, Verb::Repair, &[A0], &[])
}

pub fn meta_set() -> Setup {
    setup(Story::installed(), Verb::MetaSet(0x0c, "set"), &[A0], &[])
}

pub fn meta_delete() -> Setup {
    setup(Story::installed(), Verb::MetaDelete(0x0a), &[A0], &[])
}

/// A health check fails during a trial.
pub fn record_a_failed_check() -> Setup {
    setup(tried(), Verb::Record, &[A0], &[])
}

/// It fails once more: the same record is written anew.
pub fn record_it_again() -> Setup {
    setup(tried().run(&Verb::Record), Verb::Record, &[A0], &[])
}

pub fn wipe_state() -> Setup {
    Setup { wiped: Some(6), ..setup(Story::installed(), Verb::Wipe(Part::State), &[A0], &[]) }
}

pub fn wipe_ephemeral() -> Setup {
    Setup { wiped: Some(7), ..setup(Story::installed(), Verb::Wipe(Part::Ephemeral), &[A0], &[]) }
}
