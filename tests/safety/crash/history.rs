//! The history never claims a change that is not in force, and misses none that is: read with code that is not the
//! installer's, and compared with what the installer says.

use serde_json::Value;
use slipway::probe;
use slipway_core::{
    report::{HistoryEntry, Now},
    units::Extent,
};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::RecordingDisk,
    pages::Pages,
    read::{self, digest},
    scenario::{Scenario, Volume},
    system::Judge,
    world::Verb,
};

pub const FILE: &str = "slipway/history";
const RECORD: usize = 512;

/// The file, which is in one piece, and where on the disk it begins.
pub fn history(pages: &Pages, esp: Extent) -> Option<(Vec<u8>, u64)> {
    let (bytes, last) = read::file(pages, esp, FILE).ok()?;
    // Bytes of a sector, and sectors of a cluster: no more are read at once.
    let mut boot_sector = [0; 14];
    pages.read(esp.offset, &mut boot_sector);
    let sector = usize::from(u16::from_le_bytes([boot_sector[11], boot_sector[12]]));
    let piece = (sector * usize::from(boot_sector[13])).min(4096);
    let first = last + piece as u64 - bytes.len() as u64;
    Some((bytes, first))
}

fn number(entry: &Value) -> u64 {
    entry["n"].as_u64().unwrap()
}

impl Judge {
    /// The number that boot.env names.
    fn named(&self, pages: &Pages) -> Option<u64> {
        self.machine.whole_env(pages).unwrap_or_default().get("history").and_then(|n| n.parse().ok())
    }

    /// All entries, by their numbers. None where the disk keeps no history.
    fn written(&self, pages: &Pages) -> Option<Vec<Value>> {
        let esp = self.table.parts[&1];
        let mut all = self.histories.get(pages, esp, || {
            let (bytes, _) = history(pages, esp)?;
            Some(bytes.chunks(RECORD).filter_map(record).collect::<Vec<Value>>())
        })?;
        all.sort_by_key(number);
        Some(all)
    }

    /// The entries that the disk claims for true: those that boot.env or a later entry names, those that were written
    /// when all was done, and the first one.
    pub fn history(&self, pages: &Pages) -> Option<Vec<Value>> {
        let named = self.named(pages);
        let mut all = self.written(pages)?;
        let names: Vec<u64> = all.iter().filter_map(|entry| entry["after"].as_u64()).chain(named).collect();
        all.retain(|entry| names.contains(&number(entry)) || entry["done"] == true || entry["verb"] == "install");
        Some(all)
    }

    /// Where the entry goes that comes next.
    pub fn history_record(&self, pages: &Pages) -> Option<Extent> {
        let (_, first) = history(pages, self.table.parts[&1])?;
        let newest = self.written(pages)?.last().map_or(0, number).max(self.named(pages).unwrap_or(0));
        Some(Extent { offset: first + newest % 64 * RECORD as u64, len: RECORD as u64 })
    }
}

impl Judge {
    /// Where the record goes of why a trial is not confirmed: where it is already, or to the next place.
    pub fn trial_record(&self, pages: &Pages) -> Option<Extent> {
        let next = self.history_record(pages)?;
        let again = self.written(pages)?.last().is_some_and(|entry| entry["verb"] == "trial");
        Some(if again { Extent { offset: next.offset - RECORD as u64, ..next } } else { next })
    }
}

fn record(bytes: &[u8]) -> Option<Value> {
    let (sum, json) = std::str::from_utf8(bytes).ok()?.trim_end().split_once(' ')?;
    let hex: String = digest(json.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    (hex[..16] == *sum).then(|| serde_json::from_str(json).unwrap())
}

impl Scenario {
    /// Whether a state claims what is so: all that was before, and the verb's own entry exactly if its change is in
    /// force.
    pub fn history_is_true(&self, pages: &Pages) -> Result<(), String> {
        let claims = |pages| self.judge.history(pages);
        let (Some(before), Some(done)) = (claims(&self.story.pages), claims(&self.done)) else { return Ok(()) };
        if self.judge.expect.makes_esp {
            // The plan says that it begins anew.
            let now = claims(pages).unwrap_or_default();
            let is_true = now == before || now == done || now.is_empty();
            return if is_true { Ok(()) } else { Err(format!("the history is now {now:?}")) };
        }
        let now = claims(pages).ok_or("the history is lost")?;
        if self.verb == Verb::Record {
            // Its own record may be lost in a cut while it is written anew, and no other.
            let others =
                |all: &[Value]| all.iter().filter(|entry| entry["verb"] != "trial").cloned().collect::<Vec<_>>();
            let same = others(&now) == others(&before)
                && now.iter().all(|entry| before.contains(entry) || done.contains(entry));
            return if same { Ok(()) } else { Err(format!("the history is now {now:?}")) };
        }
        if let Some(lost) = before.iter().find(|entry| !now.contains(entry)) {
            return Err(format!("the history has lost {lost}"));
        }
        if let Some(false_one) = now.iter().find(|entry| !done.contains(entry)) {
            return Err(format!("the history claims {false_one}"));
        }

        if before == done {
            return Ok(());
        }
        let claimed = now.len() == done.len();
        let in_force = match self.verb {
            Verb::MetaSet(..) | Verb::MetaDelete(_) => return Ok(()),
            // What is asked for was so before: the boot state does not tell whether it was done once more.
            _ if self.is_in_force(&self.story.pages) => return Ok(()),
            Verb::Wipe(_) => self.volume(pages) == Some(Volume::New),
            _ => self.is_in_force(pages),
        };
        // What boot.env does not change is entered once it is done: it may be done and not entered yet.
        let afterwards = matches!(self.verb, Verb::Wipe(_) | Verb::Repair);
        if claimed == in_force || (in_force && afterwards) {
            return Ok(());
        }
        Err(format!("the change is in force: {in_force}, and the history claims it: {claimed}"))
    }

    /// What the history claims of the verb on a disk where it is in force. If it is run once more, it may take that back
    /// for a while, and what was done once stays true.
    pub fn true_once(&self, pages: &Pages) -> Vec<Value> {
        if self.is_in_force(pages) { self.judge.history(pages).unwrap_or_default() } else { vec![] }
    }

    /// After an error, or a success that did without something: nothing is claimed that is not in force, and was not.
    pub fn history_claims_nothing_false(&self, pages: &Pages, true_once: &[Value]) -> Result<(), String> {
        let claims = |pages| self.judge.history(pages).unwrap_or_default();
        let (before, done) = (claims(&self.story.pages), claims(&self.done));
        let is_new = |entry: &&Value| !before.contains(entry) && !true_once.contains(entry);
        for entry in claims(pages).iter().filter(is_new) {
            // Behind a record that could not be read it has another number.
            let same = |own: &&Value| (&own["verb"], &own["slot"]) == (&entry["verb"], &entry["slot"]);
            let is_own = done.iter().filter(|own| !before.contains(own)).any(|own| same(&own));
            if !is_own || !(self.is_in_force(pages) || matches!(self.verb, Verb::Wipe(_))) {
                return Err(format!("the history claims what is not in force: {entry}"));
            }
        }
        Ok(())
    }

    /// What `installer history` shows is what the disk claims.
    pub fn history_is_shown(&self, pages: &Pages) -> Result<(), String> {
        let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
        let facts = probe::system(&disk, &self.story.cmdline).map_err(|e| e.to_string())?;
        let now = Now { env: facts.env.as_ref(), running: facts.running, panic: None, utc: |_| String::new() };
        let shown = facts.history.as_ref().map(|history| HistoryEntry::all(history, now)).unwrap_or_default();
        let shown: Vec<_> = shown.iter().rev().filter(|entry| entry.took_effect == Some(true)).collect();
        let claimed = self.judge.history(pages).unwrap_or_default();
        let numbers: Vec<u64> = claimed.iter().map(|entry| entry["n"].as_u64().unwrap()).collect();
        let shown: Vec<u64> = shown.iter().map(|entry| entry.number.into()).collect();
        if shown == numbers { Ok(()) } else { Err(format!("claimed {numbers:?}, shown {shown:?}")) }
    }
}
