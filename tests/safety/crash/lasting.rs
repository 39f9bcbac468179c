//! Faults that stay: any sector that a verb touches is unreadable, unwritable or silently wrong for good. Whatever the
//! verb makes of it, the ways back work as long as there is a system to go back to.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use slipway_core::{plan::Plan, units::Extent};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{BadSector, Call, Lasting, RecordingDisk, wrong_bit},
    grub::{Outcome, Saves},
    pages::{GARBAGE, Pages, SECTOR},
    scenario::{Scenario, ends},
    thorough,
    world::{Failed, Verb, World},
};

const STEP: u64 = SECTOR as u64;
/// The tables before the first partition, and the largest sector number of the backup GPT from the end.
const TABLE_SECTORS: u64 = 34;

/// A disk with a fault, as its boot loader sees it.
pub struct Seen {
    pages: Pages,
    saves: Saves,
}

/// The outcome of a sweep.
#[derive(Default)]
struct Summary {
    runs: usize,
    done: usize,
    refused: usize,
    failed: usize,
    wrong: Vec<String>,
    /// Which region's loss has which consequence.
    regions: BTreeMap<(String, Lasting), BTreeSet<&'static str>>,
}

impl Scenario {
    /// Sectors that an undisturbed run reads or writes, and what is wrong with them: of every region the ends, and samples
    /// from between, in every way. In the gate a region is bad in each way once, each time in another sector, and one in
    /// three times `one_in` of these cases is tried: a run takes longer than one of a single fault.
    fn bad_sectors(&self, one_in: usize) -> Vec<BadSector> {
        let disk = RecordingDisk::new(DISK_BYTES, self.story.pages.clone());
        self.again(&disk).unwrap();
        let mut regions: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        let extents =
            disk.calls().into_iter().filter(|(call, _)| matches!(call, Call::Read | Call::Write | Call::Zero));
        for (_, extent) in extents.filter(|(_, extent)| extent.len > 0) {
            let (first, last) = (extent.offset / STEP, (extent.end() - 1) / STEP);
            let between = (first..last).step_by(((last - first) / 16 + 1) as usize);
            // Firmware and GRUB do not read how many clusters of the ESP are free. The `fatfs` crate takes no volume without.
            let fs_info = self.judge.table.parts[&1].offset + STEP;
            for at in between.chain([first, last]).map(|sector| sector * STEP).filter(|at| *at != fs_info) {
                regions.entry(self.region(at)).or_default().insert(at);
            }
        }
        if thorough() {
            let sectors = regions.into_values().flatten();
            return sectors.flat_map(|at| Lasting::ALL.map(|how| (at, how))).collect();
        }
        let turn = self.turn();
        let each = regions.into_values().enumerate().flat_map(|(region, sectors)| {
            let between = sectors.iter().step_by(sectors.len().div_ceil(3));
            let sectors = BTreeSet::from_iter(between.chain(sectors.first()).chain(sectors.last()).copied());
            let sectors = Vec::from_iter(sectors);
            let sector = move |n: usize| sectors[(n + region + turn) % sectors.len()];
            Lasting::ALL.into_iter().enumerate().map(move |(n, how)| (sector(n), how))
        });
        let one_in = 3 * one_in;
        each.skip(turn % one_in).step_by(one_in).collect()
    }

    /// Where a sector lies, for people.
    fn region(&self, at: u64) -> String {
        let sector = Extent { offset: at, len: STEP };
        let part = self.judge.table.parts.iter().find(|(_, part)| part.contains(sector));
        match part {
            Some((1, _)) if self.env_copy(at).is_some() => "a copy of boot.env".to_owned(),
            Some((number, part)) => {
                let names = ["", "EFI", "BIOS", "BOOT-A", "BOOT-B", "META", "STATE", "EPHEMERAL"];
                let first = if at == part.offset { ", first sector" } else { "" };
                format!("{}{first}", names[*number as usize])
            }
            None if at == 0 => "LBA 0".to_owned(),
            None if at < TABLE_SECTORS * STEP => "primary GPT".to_owned(),
            None => "backup GPT".to_owned(),
        }
    }

    /// Which copy of boot.env a sector holds.
    fn env_copy(&self, at: u64) -> Option<usize> {
        self.judge
            .machine
            .copies(&self.story.pages)
            .iter()
            .position(|copy| copy.as_ref().is_some_and(|(_, a)| *a == at))
    }

    pub fn seen(&self, disk: &RecordingDisk) -> Seen {
        let mut pages = disk.pages();
        let mut saves = Saves::Both;
        if let Some((at, how)) = disk.bad() {
            let mut sector = [0; SECTOR];
            pages.read(at, &mut sector);
            match how {
                Lasting::Unreadable | Lasting::Dead => sector = [GARBAGE; SECTOR],
                Lasting::ReadsWrong => wrong_bit(&mut sector, at, at),
                Lasting::Unwritable | Lasting::LosesWrites => {}
            }
            pages.write(at, &sector);
            // A sector that reads wrong can be written, and reads wrong again.
            if let Some(copy) = self.env_copy(at).filter(|_| how != Lasting::ReadsWrong && how != Lasting::Unreadable) {
                saves = Saves::Refused(copy);
            }
        }
        Seen { pages, saves }
    }

    /// The boots that follow without a confirmation: the first, and where it ends.
    fn boots(&self, seen: &Seen) -> (Outcome, Outcome) {
        let mut disk = seen.pages.clone();
        let boots: Vec<_> = (0..4).map(|_| self.judge.machine.power_on(&mut disk, seen.saves)).collect();
        (boots[0], boots[3])
    }

    /// The system that a life ends in, if it is whole.
    fn comes_to_rest(&self, seen: &Seen) -> Result<(char, usize), String> {
        match self.boots(seen) {
            (_, Outcome::Boots { slot, trial: false }) => {
                let payload = self.judge.whole(&seen.pages, slot);
                payload.map(|payload| (slot, payload)).ok_or_else(|| format!("slot {slot} boots and is not whole"))
            }
            other => Err(format!("no system comes up: {other:?}")),
        }
    }

    /// Run the verb with a bad sector; which kind of end it came to, or what is wrong.
    fn judge_lasting(&self, bad: BadSector) -> Result<&'static str, String> {
        let disk = RecordingDisk::damaged(DISK_BYTES, self.story.pages.clone(), bad);
        let before = self.seen(&disk);
        // Without a table there is nothing to boot, and GRUB reads the primary only.
        let table = matches!(self.region(bad.0).as_str(), "LBA 0" | "primary GPT");
        let result = self.again(&disk);
        self.judge_end(&disk, &self.story.pages, &before, &result, !table)
    }

    /// Which kind of end a verb came to on a disk with something wrong, or what is wrong with it. `base`: what was on the disk.
    /// `may_boot`: what counts is what boots, if anything did before.
    pub fn judge_end(
        &self,
        disk: &RecordingDisk,
        base: &Pages,
        before: &Seen,
        result: &Result<Plan, Failed>,
        may_boot: bool,
    ) -> Result<&'static str, String> {
        let alive = may_boot && self.comes_to_rest(before).is_ok();
        let after = self.seen(disk);
        let expect = &self.judge.expect;
        if alive {
            let system = self.comes_to_rest(&after)?;
            let mut may = expect.plain.iter().chain(&expect.marked);
            if !may.any(|s| *s == system) && self.comes_to_rest(before) != Ok(system) {
                return Err(format!("payload {} in slot {} comes up", system.1, system.0));
            }
            if let (Outcome::Boots { slot, trial: true }, _) = self.boots(&after) {
                let payload = self.judge.whole(&after.pages, slot);
                // One that was armed and bad before is not the verb's doing, if it left it alone.
                let left_alone = payload.is_none() && self.boots(before).0 == (Outcome::Boots { slot, trial: true });
                let left_alone = left_alone && self.judge.whole(&before.pages, slot).is_none();
                if !left_alone && !payload.is_some_and(|payload| expect.trial.contains(&(slot, payload))) {
                    return Err(format!("slot {slot} is tried, with payload {payload:?}"));
                }
            }
        }
        if alive && matches!(self.verb, Verb::Menu { .. }) {
            return self.judge_menu(result, before, &after);
        }
        let end = self.judge_result(result, &after, alive, disk, base)?;
        // A lost ESP that is not made again takes no change of the boot state, as before.
        if alive && (end == "done" || !expect.makes_esp) {
            self.judge_way_back(disk).map_err(|why| format!("{end}, then {why}"))?;
        }
        Ok(end)
    }

    fn judge_result(
        &self,
        result: &Result<Plan, Failed>,
        after: &Seen,
        alive: bool,
        disk: &RecordingDisk,
        base: &Pages,
    ) -> Result<&'static str, String> {
        let failed = match result {
            Ok(plan) => {
                let (slot, payload, trial) = ends(&self.verb, &self.judge.expect);
                let boots = self.boots(after).0;
                if self.verb == Verb::Repair {
                    let copies = self.judge.machine.copies(&after.pages);
                    let env = self.judge.machine.env(&after.pages);
                    let lost = |copy: &Option<(Vec<u8>, u64)>| {
                        let vars = copy.as_ref().and_then(|(bytes, _)| super::read::env_block(bytes));
                        vars.is_none_or(|vars| env.as_ref().is_none_or(|env| vars.get("seq") != env.get("seq")))
                    };
                    // What has no place of its own is told, and `repair` fails for it.
                    if alive && plan.left.is_empty() && copies.iter().any(lost) {
                        return Err(format!("success ({}), and a copy of boot.env is lost", plan.result));
                    }
                    return Ok("done");
                }
                if alive && boots != (Outcome::Boots { slot, trial }) {
                    return Err(format!("success ({}), and {boots:?}", plan.result));
                }
                if alive && self.judge.whole(&after.pages, slot) != Some(payload) {
                    return Err(format!("success, and slot {slot} is not whole"));
                }
                let spared = plan.warnings.iter().any(|warning| warning.starts_with("failed: "));
                if self.judge.meta(&after.pages) != self.judge.meta(&self.done) && !(spared && self.is_way_back()) {
                    return Err("success, and META has other tags".to_owned());
                }
                return Ok("done");
            }
            Err(failed) => failed,
        };
        if failed.kind.exit_code() != 7 {
            return Err(format!("exit code {:?}: {}", failed.kind, failed.text));
        }
        let all = Extent { offset: 0, len: DISK_BYTES };
        let untouched = disk.pages().same(base, all);
        if failed.text.contains("nothing was written") && !untouched {
            return Err(format!("nothing written is not true: {}", failed.text));
        }
        // A part that is only looked at must not block the way back.
        // A repair may fail: what it could not write is what it is for.
        if self.is_way_back() && self.verb != Verb::Repair && alive && self.must_work(disk) {
            return Err(format!("refused: {}", failed.text));
        }
        Ok(if untouched { "refused" } else { "failed" })
    }

    /// A bad sector does not keep the user from turning the menu on or off, as long as one copy of boot.env is left. What
    /// boots is what booted, whole or not; or the trial that pends, if the copy that counted is one that a boot loader
    /// cannot write, and the other one counts now.
    fn judge_menu(&self, result: &Result<Plan, Failed>, before: &Seen, after: &Seen) -> Result<&'static str, String> {
        let boots = [before, after].map(|seen| self.boots(seen));
        let (slot, _, trial) = ends(&self.verb, &self.judge.expect);
        if boots[0] != boots[1] && (boots[1].0 != Outcome::Boots { slot, trial } || boots[0].1 != boots[1].1) {
            return Err(format!("{boots:?}"));
        }
        let menu = |pages| self.judge.machine.whole_env(pages).and_then(|env| env.get("menu").cloned());
        match result {
            Ok(_) if menu(&after.pages) == menu(&self.done) => Ok("done"),
            Ok(plan) => Err(format!("success ({}), and the menu is {:?}", plan.result, menu(&after.pages))),
            Err(_) if self.judge.machine.env(&before.pages).is_none() => Ok("refused"),
            Err(failed) => Err(format!("refused: {}", failed.text)),
        }
    }

    /// Whether it goes on without META, where that only loses a label.
    pub const fn is_way_back(&self) -> bool {
        matches!(self.verb, Verb::Rollback | Verb::RollbackOffline | Verb::Confirm | Verb::Repair)
    }

    /// Whether the verb's own slot is whole, and the boot state is where it can be found.
    fn must_work(&self, disk: &RecordingDisk) -> bool {
        let seen = self.seen(disk);
        let (slot, payload, _) = ends(&self.verb, &self.judge.expect);
        let place = self.judge.machine.copies(&seen.pages).iter().any(Option::is_some);
        // Where nothing of a copy is whole, its place has to be proven. Wrong structures, and those that cannot be read, prove nothing.
        let on_esp = disk.bad().is_some_and(|(at, _)| self.region(at).starts_with("EFI"));
        let proven = !self.judge.expect.env_lost || !(self.judge.machine.wrong_structures || on_esp);
        place && proven && self.judge.whole(&seen.pages, slot) == Some(payload)
    }

    /// From the system that boots: a trial can be confirmed, and there is a way to the other system, if that is whole
    /// and good.
    fn judge_way_back(&self, disk: &RecordingDisk) -> Result<(), String> {
        let mut seen = self.seen(disk);
        let Outcome::Boots { slot, trial } = self.judge.machine.power_on(&mut seen.pages, seen.saves) else {
            return Ok(());
        };
        let other = if slot == 'A' { 'B' } else { 'A' };
        let copies = self.judge.machine.copies(&seen.pages);
        let Some(env) = self.judge.machine.env(&seen.pages) else { return Ok(()) };
        let good = |slot: char| env.get(if slot == 'A' { "a" } else { "b" }).is_some_and(|state| state == "good");
        let whole = |slot| self.judge.whole(&seen.pages, slot).is_some();
        let run = |verb: &Verb| {
            // What GRUB saved is on the disk, too.
            let mut pages = disk.pages();
            for (_, at) in copies.iter().flatten().filter(|(_, at)| disk.bad().is_none_or(|(bad, _)| bad != *at)) {
                let mut sector = [0; SECTOR];
                seen.pages.read(*at, &mut sector);
                pages.write(*at, &sector);
            }
            let disk = match disk.bad() {
                Some(bad) => RecordingDisk::damaged(DISK_BYTES, pages, bad),
                None => RecordingDisk::new(DISK_BYTES, pages),
            };
            let world = World::get();
            let done = world.run(verb, &disk, &world.cmdline(slot, trial), &|_| ());
            (done.map(|plan| plan.result), self.boots(&self.seen(&disk)).0)
        };
        let comes_back = |to: char, verb: &Verb| match run(verb) {
            (Ok(_), Outcome::Boots { slot, trial: false }) if slot == to => Ok(()),
            (result, boots) => Err(format!("{verb:?} in slot {slot}: {boots:?}, {result:?}")),
        };
        if trial && whole(slot) {
            comes_back(slot, &Verb::Confirm)?;
        }
        if trial && whole(other) || !trial && env["default"] == slot.to_string() && good(other) && whole(other) {
            comes_back(other, &Verb::Rollback)?;
        }
        Ok(())
    }

    pub fn survives_lasting_faults(&self, one_in: usize) {
        let start = Instant::now();
        let mut summary = Summary::default();
        for (at, how) in self.bad_sectors(one_in) {
            summary.runs += 1;
            match self.judge_lasting((at, how)) {
                Ok(end) => {
                    match end {
                        "done" => summary.done += 1,
                        "refused" => summary.refused += 1,
                        _ => summary.failed += 1,
                    }
                    summary.regions.entry((self.region(at), how)).or_default().insert(end);
                }
                Err(why) => summary.wrong.push(format!("{how:?} at {at}, {}: {why}", self.region(at))),
            }
        }
        let disk = RecordingDisk::never_flushed(DISK_BYTES, self.story.pages.clone());
        if self.again(&disk).is_ok() {
            summary.wrong.push("success, though no flush succeeded".to_owned());
        }
        let Summary { runs, done, refused, failed, wrong, regions } = summary;
        eprintln!(
            "{}: {runs} bad sectors, {:.1} s: {done} done, {refused} refused, {failed} failed, {} wrong",
            self.name,
            start.elapsed().as_secs_f32(),
            wrong.len()
        );
        if std::env::var_os("SLIPWAY_CRASH_VERBOSE").is_some() {
            for ((region, how), ends) in regions {
                eprintln!("    {region}, {how:?}: {}", ends.into_iter().collect::<Vec<_>>().join(", "));
            }
        }
        assert!(runs > 0, "{}: no sector was bad", self.name);
        assert_eq!(wrong, [""; 0], "{}", self.name);
    }
}
