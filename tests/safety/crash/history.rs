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

impl Judge {
    /// The entries that the disk claims for true, by their numbers. None where it keeps no history.
    pub fn history(&self, pages: &Pages) -> Option<Vec<Value>> {
        let esp = self.table.parts[&1];
        let env = self.machine.whole_env(pages).unwrap_or_default();
        let named = env.get("history").and_then(|n| n.parse::<u64>().ok());
        let mut all = self.histories.get(pages, esp, || {
            let (bytes, _) = history(pages, esp)?;
            Some(bytes.chunks(RECORD).filter_map(record).collect::<Vec<Value>>())
        })?;
        let number = |entry: &Value| entry["n"].as_u64().unwrap();
        all.sort_by_key(number);
        let newest = all.last().map_or(0, number);
        let mut last = named.unwrap_or(newest);
        while let Some(entry) = all.iter().find(|entry| number(entry) == last + 1 && entry["done"] == true) {
            last = number(entry);
        }
        // Without boot.env's word the newest may be one that was interrupted.
        let doubtful =
            |entry: &Value| named.is_none() && number(entry) == newest && newest > 1 && entry["done"] != true;
        all.retain(|entry| number(entry) <= last && !doubtful(entry));
        Some(all)
    }
}

impl Judge {
    /// Where the entry goes that comes after those that are in force.
    pub fn history_record(&self, pages: &Pages) -> Option<Extent> {
        let esp = self.table.parts[&1];
        let (bytes, first) = history(pages, esp)?;
        // The first one behind those that count, even if boot.env names none.
        let env = self.machine.whole_env(pages).unwrap_or_default();
        let named = env.get("history").and_then(|n| n.parse::<usize>().ok());
        let all = bytes.chunks(RECORD).filter_map(record).count();
        let known = named.unwrap_or(all);
        Some(Extent { offset: first + (known * RECORD) as u64, len: RECORD as u64 })
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
        let now = claims(pages).ok_or("the history is lost")?;
        if let Some(lost) = before.iter().find(|entry| !now.contains(entry)) {
            return Err(format!("the history has lost {lost}"));
        }
        if let Some(false_one) = now.iter().find(|entry| !done.contains(entry)) {
            return Err(format!("the history claims {false_one}"));
        }
        let claimed = now.len() == done.len();
        let in_force = match self.verb {
            Verb::MetaSet(..) | Verb::MetaDelete(_) => return Ok(()),
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

    /// After an error, or a success that did without something: nothing is claimed that is not in force.
    pub fn history_claims_nothing_false(&self, pages: &Pages) -> Result<(), String> {
        let claims = |pages| self.judge.history(pages).unwrap_or_default();
        let more = claims(pages).len() > claims(&self.story.pages).len();
        if more && !self.is_in_force(pages) && !matches!(self.verb, Verb::Wipe(_)) {
            return Err(format!("the history claims what is not in force: {:?}", claims(pages).last()));
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
