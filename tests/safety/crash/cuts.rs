//! Power cuts during the verbs that change an installed disk.

use std::{collections::BTreeMap, fmt::Display, time::Instant};

use slipway::probe;
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Op, RecordingDisk},
    grub::{Outcome, Saves},
    pages::Pages,
    scenario::{
        Scenario,
        Volume::{Half, New, Old},
        atomic,
    },
    sweep::sweep,
    system::NO_MARKER_KNOWS,
    world::{Verb, World},
};

/// Of so many states one is given to the verb again, to confirm, and to the probe.
const RERUN: usize = 31;
/// Of so many of these the verb is cut again, to about so many states.
const CUT_AGAIN: usize = 7;
const STATES_AGAIN: usize = 60;

/// The findings of a sweep.
#[derive(Default)]
pub struct Seen {
    pub states: usize,
    pub reruns: usize,
    /// States that cuts of those left.
    pub again: usize,
    outcomes: BTreeMap<String, usize>,
    pub broken: Option<String>,
}

impl Scenario {
    /// Every disk that a cut during `log` may leave: what is wrong first, if anything. One in `rerun` (0: none) is
    /// given to the verb again.
    pub fn cuts(&self, log: &[Op], states: usize, rerun: usize) -> Seen {
        let mut seen = Seen::default();
        let mut broken = None;
        let visited = sweep(&self.story.pages, log, states, &self.atomic, &mut |pages, what| {
            seen.states += 1;
            let judged = self.judge.state(pages, true);
            let judged = judged.and_then(|outcome| {
                // A new system finds EPHEMERAL as it was, or as it was to be.
                let volume = self.volume(pages);
                if matches!(outcome, Outcome::Boots { trial: true, .. }) && !matches!(volume, None | Some(Old | New)) {
                    return Err(format!("a trial is armed, and the volume is {volume:?}"));
                }
                if volume == Some(Half) {
                    return Err("the volume has half a file system".to_owned());
                }
                self.history_is_true(pages)?;
                if rerun > 0 && seen.states % rerun == 0 {
                    seen.reruns += 1;
                    self.is_foreseen(pages, outcome)?;
                    self.history_is_shown(pages)?;
                    self.can_be_confirmed(pages).map_err(|why| format!("the trial confirmed: {why}"))?;
                    let cut_again = if seen.reruns.is_multiple_of(CUT_AGAIN) { STATES_AGAIN } else { 0 };
                    seen.again += self.converges(pages, cut_again).map_err(|why| format!("the verb again: {why}"))?;
                }
                Ok((outcome, volume))
            });
            match judged {
                Ok((outcome, volume)) => {
                    let volume = volume.map(|v| format!(" {v:?}")).unwrap_or_default();
                    *seen.outcomes.entry(format!("{outcome:?}{volume}")).or_default() += 1;
                }
                Err(why) => broken = Some(format!("{what}: {why}")),
            }
            broken.is_none()
        });
        assert_eq!(visited, seen.states);
        seen.broken = broken;
        seen
    }

    /// What `status` says boots next is what boots next.
    fn is_foreseen(&self, pages: &Pages, outcome: Outcome) -> Result<(), String> {
        let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
        let next = probe::system(&disk, &self.story.cmdline).map_err(|e| e.to_string())?.next;
        let said = next.slot.map(|slot| (slot.to_string(), next.trial));
        match outcome {
            Outcome::Boots { slot, trial } if said == Some((slot.to_string(), trial)) => Ok(()),
            _ => Err(format!("{outcome:?}, and status says {next:?}")),
        }
    }

    /// Where the next boot is a trial, confirm from inside it makes that slot the default.
    fn can_be_confirmed(&self, pages: &Pages) -> Result<(), String> {
        let (mut booted, machine) = (pages.clone(), &self.judge.machine);
        let Outcome::Boots { slot, trial: true } = machine.power_on(&mut booted, Saves::Both) else { return Ok(()) };
        let (disk, world) = (RecordingDisk::new(DISK_BYTES, booted), World::get());
        let confirmed = world.run(&Verb::Confirm, &disk, &world.cmdline(slot, true), &|_| ());
        confirmed.map_err(|failed| failed.text)?;
        let mut disk = disk.pages();
        let next = machine.power_on(&mut disk, Saves::Both);
        let marked = &machine.slot(&disk, slot).marker.0;
        if next == (Outcome::Boots { slot, trial: false })
            && self.judge.whole(&disk, slot).is_some()
            && marked == "good"
        {
            return Ok(());
        }
        Err(format!("{next:?}, marked {marked:?}"))
    }

    /// The same verb once more leaves what it would have left at once. A cut of that is as safe as the first, in about
    /// as many states as asked for; returns in how many.
    fn converges(&self, pages: &Pages, states: usize) -> Result<usize, String> {
        let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
        let plan = self.again(&disk).map_err(|failed| failed.text)?;
        self.is_done(&disk.pages())?;
        self.judge.state(&disk.pages(), true)?;
        let (mut broken, true_once) = (Ok(()), self.true_once(pages));
        let visit = &mut |pages: &Pages, what: &dyn Display| {
            let judged = self.judge.state(pages, true);
            let judged = judged.and_then(|_| self.history_claims_nothing_false(pages, &true_once));
            broken = judged.map_err(|why| format!("cut again, {what}: {why}"));
            broken.is_ok()
        };
        let visited =
            if states > 0 { sweep(pages, &disk.log(), states, &atomic(&plan, self.shared_fat), visit) } else { 0 };
        broken.map(|()| visited)
    }

    /// Whether the boot state is that of an uninterrupted run.
    pub fn is_in_force(&self, pages: &Pages) -> bool {
        let env = |pages| {
            let mut env = self.judge.machine.whole_env(pages).unwrap_or_default();
            env.retain(|name, _| name != "seq" && name != "history");
            if self.judge.expect.makes_esp {
                env.retain(|name, _| !NO_MARKER_KNOWS.contains(&name.as_str()));
            }
            env
        };
        env(pages) == env(&self.done)
    }

    /// Whether a disk is as good as that of an uninterrupted run.
    pub fn is_done(&self, pages: &Pages) -> Result<(), String> {
        let (is, should) = (self.judge.summary(pages), self.judge.summary(&self.done));
        if is != should {
            let differs = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| -> Vec<_> {
                a.iter().filter(|(key, value)| b.get(*key) != Some(value)).map(|(k, v)| format!("{k}={v}")).collect()
            };
            return Err(format!("{:?} expected, found {:?}", differs(&should, &is), differs(&is, &should)));
        }
        let Some(part) = self.wiped else { return Ok(()) };
        let mut magic = [0; 4];
        pages.read(self.judge.table.parts[&part].offset, &mut magic);
        let should = if matches!(self.verb, Verb::Upgrade { blank: true, .. }) { b"\0\0\0\0" } else { b"XFSB" };
        if &magic == should { Ok(()) } else { Err(format!("partition {part} begins with {magic:?}")) }
    }

    /// Writes to nothing but what it is about, and nothing is left unflushed.
    fn keeps_to_itself(&self) {
        let may = self.may_write();
        for op in self.log.iter().filter(|op| !matches!(op, Op::Sync)) {
            let extent = op.extent();
            assert!(may.iter().any(|e| e.contains(extent)), "{}: writes {extent:?}", self.name);
        }
        assert!(matches!(self.log.last(), Some(Op::Sync)), "{}: success before the last flush", self.name);
    }

    pub fn survives_cuts(&self, states: usize) {
        self.keeps_to_itself();
        let start = Instant::now();
        let seen = self.cuts(&self.log, states, RERUN);
        let seconds = start.elapsed().as_secs_f32();
        let outcomes: Vec<String> = seen.outcomes.iter().map(|(what, n)| format!("{n} {what}")).collect();
        eprintln!(
            "{}: {} states, {} of them run again, which was cut again to {} states, {seconds:.1} s: {}",
            self.name,
            seen.states,
            seen.reruns,
            seen.again,
            outcomes.join(", ")
        );
        assert_eq!(seen.broken, None, "{}", self.name);
        assert!(seen.states >= states, "{}", self.name);
    }
}
