//! Every call of the device, those of probing too, fails once, in every way it can. In the gate these are samples, see
//! [`sampled`].

use std::{cell::RefCell, iter, ops::Range, time::Instant};

use slipway_core::{plan::Plan, units::Extent};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Call, EIO, ENOSPC, Fault, RecordingDisk},
    grub::Outcome,
    pages::Pages,
    scenario::Scenario,
    some,
    sweep::Rng,
    system::Judge,
    thorough,
    world::{Failed, World},
};

/// The number of reads that fail in the gate. Most of them are alike: of one file after another.
const READS: usize = 12;

/// The outcome.
#[derive(Default)]
struct Faults {
    calls: usize,
    runs: usize,
    wrong: Vec<String>,
    /// While probing, something could not be read, and the result is whole but not all that was asked for: kernel
    /// arguments that were to be kept, a payload to be remembered as bad, a marker.
    forgotten: Vec<String>,
}

/// The ways in which a call can fail.
fn faults(n: usize, call: Call, extent: Extent) -> Vec<Fault> {
    match call {
        Call::Write | Call::Zero => vec![EIO, ENOSPC, Fault::Short],
        Call::Reserve => vec![EIO, ENOSPC],
        Call::Sync | Call::Discard | Call::Forget => vec![EIO],
        Call::Read => {
            let mut rng = Rng(n as u64);
            let mut flip = |within: u64| Fault::Flip {
                byte: (rng.next() % within.min(extent.len)) as usize,
                bit: (rng.next() % 8) as u8,
            };
            // What is short says much in its first bytes.
            let mut faults = vec![EIO, flip(64)];
            if thorough() {
                faults.extend([flip(128), flip(512), flip(u64::MAX)]);
            }
            faults
        }
    }
}

/// Which calls fail, by their numbers, and how: each in all its ways. In the gate each that is no read in one of them, and
/// some reads; calls of a kind take turns with their ways, from `turn` on.
pub fn sampled(
    calls: &[(Call, Extent)],
    turn: usize,
    ways: impl Fn(usize, Call, Extent) -> Vec<Fault>,
) -> Vec<(usize, Fault)> {
    let ways = |n: usize| ways(n, calls[n].0, calls[n].1);
    if thorough() {
        return (0..calls.len()).flat_map(|n| ways(n).into_iter().map(move |fault| (n, fault))).collect();
    }
    let (reads, others): (Vec<usize>, Vec<usize>) = (0..calls.len()).partition(|n| calls[*n].0 == Call::Read);
    let chosen = [some(&reads, READS), others].concat();
    let by_turns = |(at, n): (usize, &usize)| {
        let before = chosen[..at].iter().filter(|other| calls[**other].0 == calls[*n].0).count();
        let ways = ways(*n);
        (*n, ways[(before + turn) % ways.len()])
    };
    chosen.iter().enumerate().map(by_turns).collect()
}

/// The calls of the look behind a plan, which was made after `planned` calls: from where the half before it was written, up to
/// the plan's first write.
fn look(calls: &[(Call, Extent)], planned: usize) -> Range<usize> {
    let is_write = |(call, _): &(Call, Extent)| matches!(call, Call::Write | Call::Zero);
    let from = calls[..planned].iter().rposition(|(call, _)| *call != Call::Read).map_or(0, |last| last + 1);
    from..calls[planned..].iter().position(is_write).map_or(calls.len(), |write| planned + write)
}

impl Scenario {
    /// Fail each call once, as [`sampled`] has it.
    /// In the gate, one in `one_in` of the calls fails.
    fn faults(&self, one_in: usize) -> Faults {
        // The calls until each plan, and the disk as it was found: a repair in two halves has two.
        let (disk, halves) = (RecordingDisk::new(DISK_BYTES, self.story.pages.clone()), RefCell::new(Vec::new()));
        self.edited(&disk, &|_| halves.borrow_mut().push((disk.calls().len(), disk.pages()))).unwrap();
        let (calls, (planned, before)) =
            (disk.calls(), halves.into_inner().into_iter().unzip::<_, _, Vec<_>, Vec<_>>());
        let looks: Vec<_> = planned.into_iter().map(|planned| look(&calls, planned)).collect();
        let mut seen = Faults { calls: calls.len(), ..Faults::default() };
        let failing = sampled(&calls, self.turn(), faults);
        let one_in = if thorough() { 1 } else { one_in };
        for (n, fault) in failing.into_iter().skip(self.turn() % one_in).step_by(one_in) {
            let (call, extent) = calls[n];
            let probing = call == Call::Read && looks.iter().any(|look| look.contains(&n));
            seen.runs += 1;
            let disk = RecordingDisk::failing(DISK_BYTES, self.story.pages.clone(), n, fault);
            let result = self.again(&disk);
            let (soft, why) = match self.judge_fault((n, call, fault), probing, &disk, &result, &before) {
                Ok(None) => continue,
                Ok(Some(why)) => (true, why),
                Err(why) => (false, why),
            };
            let part = self.judge.table.parts.iter().find(|(_, part)| part.contains(extent));
            let at = part.map_or_else(String::new, |(number, part)| {
                format!(" at {} of partition {number}", extent.offset - part.offset)
            });
            let why = format!("call {n}, {call:?} of {} bytes{at}, {fault:?}: {why}", extent.len);
            let list = if soft { &mut seen.forgotten } else { &mut seen.wrong };
            list.push(why);
        }
        seen
    }

    /// `Ok` with text: the disk is right, but not all that it was to be.
    fn judge_fault(
        &self,
        (n, call, fault): (usize, Call, Fault),
        probing: bool,
        disk: &RecordingDisk,
        result: &Result<Plan, Failed>,
        before: &[Pages],
    ) -> Result<Option<String>, String> {
        let mut forgotten = None;
        // The plan may go on without one copy of two, or a marker; but it tells.
        let spared = result.as_ref().is_ok_and(|plan| plan.warnings.iter().any(|w| w.starts_with("failed: ")));
        // What was not flushed may be lost.
        let (pages, durable) = (disk.pages(), disk.durable());
        let lost = (!durable.same(&pages, Extent { offset: 0, len: DISK_BYTES })).then_some(durable);
        for pages in iter::once(pages).chain(lost) {
            let strict = self.judge.state(&pages, true).and_then(|_| match result {
                Ok(_) if spared && (self.is_in_force(&pages) || self.wiped.is_some()) => Ok(()),
                Ok(_) => self.is_done(&pages).map_err(|why| format!("success, and {why}")),
                Err(failed) => self.is_true(failed, &pages, before),
            });
            match strict {
                // What probing could not read is taken for damaged. A system that was written is to be whole.
                Err(why) if probing && result.is_ok() => {
                    let (base, expect) = (&self.story.pages, self.judge.expect.clone());
                    let judge = Judge::new(DISK_BYTES, expect, &World::get().payloads, &[base, &self.done, &pages]);
                    judge.state(&pages, false)?;
                    forgotten = Some(why);
                }
                other => other?,
            }
            if !probing {
                self.history_claims_nothing_false(&pages, &[])?;
            }
        }
        match result {
            Err(failed) if failed.kind.exit_code() != 7 => Err(format!("exit code {:?}: {}", failed.kind, failed.text)),
            // A device need not be able to discard.
            Ok(_) if probing || call == Call::Discard || matches!(fault, Fault::Flip { .. }) => Ok(forgotten),
            Ok(_) if spared => Ok(forgotten),
            Ok(_) if call == Call::Read && !disk.verifies(n) => Ok(forgotten),
            Ok(_) if !disk.replaced(n) && !disk.read_in_pieces(n) => Err("success, though a call failed".to_owned()),
            _ => Ok(forgotten),
        }
    }

    /// Whether an error says what is so. The second half of a repair tells of itself: the first one was told before.
    fn is_true(&self, failed: &Failed, pages: &Pages, before: &[Pages]) -> Result<(), String> {
        let says = |what: &str| failed.text.contains(what);
        let lies = |so: bool, what: &str| if so { Ok(()) } else { Err(format!("{what} is not true: {}", failed.text)) };
        if failed.promise.as_ref().is_some_and(|promise| says(promise)) {
            return Err(format!("an error that tells of success: {}", failed.text));
        }
        let all = Extent { offset: 0, len: DISK_BYTES };
        let first = self.judge.state(pages, false)?;
        if says("nothing was written") {
            lies(before.iter().any(|before| pages.same(before, all)), "nothing written")?;
        }
        if says("is not tried") || says("still boots") {
            lies(matches!(first, Outcome::Boots { trial: false, .. }), "that it is not tried")?;
        }
        if says("the change is in force") {
            lies(self.is_in_force(pages), "that it is in force")?;
        }
        if says("the boot state is the old one") {
            let env = |pages| self.judge.machine.whole_env(pages);
            lies(env(pages) == env(&self.story.pages), "that it is the old one")?;
        }
        Ok(())
    }

    pub fn survives_faults(&self, one_in: usize) {
        let start = Instant::now();
        let seen = self.faults(one_in);
        eprintln!(
            "{}: {} calls, {} times one of them failed, {:.1} s: {} wrong, {} forgot something",
            self.name,
            seen.calls,
            seen.runs,
            start.elapsed().as_secs_f32(),
            seen.wrong.len(),
            seen.forgotten.len()
        );
        if std::env::var_os("SLIPWAY_CRASH_VERBOSE").is_some() {
            seen.forgotten.iter().for_each(|why| eprintln!("    {why}"));
        }
        assert!(seen.runs > 0, "{}: nothing failed", self.name);
        assert_eq!(seen.wrong, [""; 0], "{}", self.name);
    }
}
