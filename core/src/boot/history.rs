//! The history of a disk: each change, its time, its requester, and how each trial ended.
//!
//! A file on the ESP, as large as it ever gets, with room for 64 records. Each fills one sector, so a power cut damages
//! at most the one that is being written. It is written *before* the change, and boot.env, whose write puts the change
//! in force, names its number in the same sector. So a change is never in force without its entry, and no entry counts
//! before its change is in force.
//!
//! Every attempt gets a number of its own, and its record says which one boot.env named before it. So an entry is in force
//! if boot.env names it, or if a later record says that it did. An entry without such a name did not take effect. It stays,
//! because an upgrade that was cut off is worth knowing, too.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{
    env::{BootEnv, Fault},
    running::Running,
    slot::{Slot, SlotState},
    trial::{Failed, MAX_CHECK, MAX_MESSAGE},
};
use crate::{digest::Sha256, disk::layout::Part};

/// The history, as a path on the ESP.
pub const HISTORY: &str = "slipway/history";
/// The number of entries that there is room for.
pub const RECORDS: u32 = 64;
/// Bytes of a record. On a disk with larger sectors spaces follow.
pub const RECORD_BYTES: usize = 512;
/// The longest texts, in bytes. All of them together are cut further if a record has no room.
const MAX_VERSION: usize = 64;
const MAX_BY: usize = 64;
const MAX_TEXT: usize = 200;
// The number in boot.env has as much room as the sequence number.
const MAX_NUMBER: u32 = 999_999_999;
// A record begins with so many hex digits of the SHA-256 of all that follows the space behind them.
const SUM_DIGITS: usize = 16;

/// A verb that leaves an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are the verbs of the command line")]
pub enum Verb {
    Install,
    Upgrade,
    Stage,
    Activate,
    Confirm,
    Rollback,
    Repair,
    Wipe,
    Bootloader,
    /// `bootloader menu`.
    Menu,
    /// `snapshot restore`: what belongs to a system was put back.
    Restore,
    /// No verb of the command line: why the trial that runs is not confirmed.
    Trial,
    /// One that only a later version knows: the key `later` names it.
    Later,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verb::Install => "install",
            Verb::Upgrade => "upgrade",
            Verb::Stage => "stage",
            Verb::Activate => "activate",
            Verb::Confirm => "confirm",
            Verb::Rollback => "rollback",
            Verb::Repair => "repair",
            Verb::Wipe => "wipe",
            Verb::Bootloader => "bootloader",
            Verb::Menu => "menu",
            Verb::Restore => "restore",
            Verb::Trial => "trial",
            Verb::Later => "later",
        })
    }
}

/// The end of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The system ran and was confirmed.
    Confirmed,
    /// The system was started, or was to be, and it was not confirmed.
    NotConfirmed,
    /// Rolled back while it ran.
    GivenUp,
    /// Rolled back, or overwritten, before it was started.
    Cancelled,
    /// The boot loader refused it: a file does not match its digest.
    Refused,
    /// The boot loader could not load its kernel or initramfs.
    NotLoaded,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ending::Confirmed => "ran and was confirmed",
            Ending::NotConfirmed => "was not confirmed",
            Ending::GivenUp => "ran and was given up",
            Ending::Cancelled => "was cancelled before it ran",
            Ending::Refused => "the boot loader refused it: a file does not match its digest",
            Ending::NotLoaded => "the boot loader could not load it",
        })
    }
}

impl Ending {
    /// Whether the trial was over before the change that the entry is about, so that it is true of any entry.
    pub const fn was_before(self) -> bool {
        matches!(self, Ending::NotConfirmed | Ending::Refused | Ending::NotLoaded)
    }
}

/// The end of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TrialEnd {
    /// The slot that was tried.
    pub slot: Slot,
    /// The version of the system in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its end.
    pub how: Ending,
    /// The last words of its kernel, if the firmware kept them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<String>,
}

/// The trial that is over by the boot state, though no verb has said so: the boot loader has spent it, and another system
/// runs. Or its slot was emptied since, by an upgrade that was cut off.
fn trial_over(env: &BootEnv, running: Running) -> Option<(Slot, Ending)> {
    let emptied = env.last_trial.filter(|slot| env.states[*slot] == SlotState::Empty);
    let tried = Slot::BOTH.into_iter().find(|slot| env.states[*slot] == SlotState::Tried);
    let slot = tried.or(emptied).filter(|slot| running.slot() != Some(*slot))?;
    let how = match env.fault(slot) {
        Some(Fault::Digest) => Ending::Refused,
        Some(Fault::Load | Fault::Hung) => Ending::NotLoaded,
        None => Ending::NotConfirmed,
    };
    Some((slot, how))
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Entry {
    /// Entries are numbered from 1.
    pub n: u32,
    /// Seconds since 1970 UTC.
    pub time: u64,
    /// The change.
    pub verb: Verb,
    /// The slot that it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// The version in that slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The volumes that were wiped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Part>,
    /// Whether a person at the keyboard may choose a slot since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub menu: Option<bool>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number that boot.env named when this was written: that entry is in force. `None` if boot.env named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// Written once it was done, so boot.env need not name it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub done: bool,
    /// The trial that this change ended, or that was over before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TrialEnd>,
    /// Why the trial that runs is not confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Box<Failed>>,
    /// The verb, if only a later version knows it or what it says.
    #[serde(skip)]
    pub later: Option<String>,
}

impl Entry {
    /// An entry that says nothing but this.
    pub const fn new(n: u32, time: u64, verb: Verb) -> Self {
        Entry {
            n,
            time,
            verb,
            slot: None,
            version: None,
            volumes: Vec::new(),
            menu: None,
            by: None,
            reason: None,
            after: None,
            done: false,
            ended: None,
            failed: None,
            later: None,
        }
    }

    /// Whether it begins a trial, or may: the outcome of a trial belongs to no entry from before.
    pub const fn arms(&self) -> bool {
        matches!(self.verb, Verb::Upgrade | Verb::Activate | Verb::Later)
    }

    /// The entry with its texts cut to the room of a record. A text that was cut ends in `…`.
    pub fn fitted(mut self) -> Self {
        for (text, max) in self.texts() {
            cut(text, max);
        }
        while self.line().len() >= RECORD_BYTES {
            let texts = self.texts().into_iter().map(|(text, _)| text);
            // Always true: without texts the longest entry is shorter.
            let Some(longest) = texts.max_by_key(|text| text.len()).filter(|text| !text.is_empty()) else { break };
            let max = longest.trim_end_matches('…').len().saturating_sub(1);
            cut(longest, max);
        }
        self
    }

    /// All texts, with the bytes that each may have.
    fn texts(&mut self) -> Vec<(&mut String, usize)> {
        let (ended_version, panic) = match &mut self.ended {
            Some(TrialEnd { version, panic, .. }) => (version.as_mut(), panic.as_mut()),
            None => (None, None),
        };
        let (check, message) = match self.failed.as_deref_mut() {
            Some(Failed { check, message, .. }) => (check.as_mut(), Some(message)),
            None => (None, None),
        };
        let texts = [
            (self.version.as_mut(), MAX_VERSION),
            (ended_version, MAX_VERSION),
            (self.by.as_mut(), MAX_BY),
            (self.reason.as_mut(), MAX_TEXT),
            (panic, MAX_TEXT),
            (check, MAX_CHECK),
            (message, MAX_MESSAGE),
        ];
        texts.into_iter().filter_map(|(text, max)| Some((text?, max))).collect()
    }

    fn line(&self) -> String {
        // Cannot fail: there are only strings and numbers.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{} {json}", sum(&json))
    }

    /// The record: [`RECORD_BYTES`] bytes of text, spaces and a newline at the end.
    pub fn render(&self) -> String {
        let line = self.clone().fitted().line();
        format!("{line:<width$}\n", width = RECORD_BYTES - 1 + line.chars().count() - line.len())
    }

    /// Read a record. `None` if it is blank or damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(bytes.get(..RECORD_BYTES)?).ok()?.trim_end();
        let (found, json) = text.split_once(' ')?;
        if found != sum(json) {
            return None;
        }
        let entry = match serde_json::from_str(json) {
            Ok(entry) => entry,
            Err(_) => Self::of_later(serde_json::from_str(json).ok()?)?,
        };
        (1..=MAX_NUMBER).contains(&entry.n).then_some(entry)
    }

    /// The known part of an entry that only a later version understands. It must have its own number and the one that
    /// it names, because the other entries depend on these.
    fn of_later(mut said: serde_json::Map<String, serde_json::Value>) -> Option<Self> {
        fn taken<T: serde::de::DeserializeOwned>(value: Option<serde_json::Value>) -> Option<T> {
            serde_json::from_value(value?).ok()
        }
        let mut take = |key: &str| said.remove(key);
        let later = take("verb").and_then(|verb| verb.as_str().map(str::to_owned)).unwrap_or_default();
        let after = match take("after") {
            Some(after) => Some(taken(Some(after))?),
            None => None,
        };
        let mut entry = Entry::new(taken(take("n"))?, taken(take("time")).unwrap_or(0), Verb::Later);
        (entry.slot, entry.version) = (taken(take("slot")), taken(take("version")));
        (entry.by, entry.reason) = (taken(take("by")), taken(take("reason")));
        (entry.after, entry.done) = (after, taken(take("done")).unwrap_or(false));
        // The verb may begin a trial, and the entry may tell of the end of one: the boot state decides.
        entry.ended = taken(take("ended"));
        Some(Entry { later: Some(later), ..entry })
    }
}

fn sum(json: &str) -> String {
    let mut digits = Sha256::of(json.as_bytes()).to_string();
    digits.truncate(SUM_DIGITS);
    digits
}

/// Cut a text to so many bytes, between characters. It becomes empty where `…` has no room.
fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        let room = max.saturating_sub('…'.len_utf8());
        let at = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
        if max >= '…'.len_utf8() {
            text.push('…');
        }
    }
}

/// A new history file with its first entry; `sector` is the size of a sector in bytes.
pub fn new_file(first: &Entry, sector: usize) -> String {
    let blank = format!("{:width$}\n", "", width = RECORD_BYTES - 1);
    let rest = " ".repeat(sector - RECORD_BYTES);
    let records = (0..RECORDS).map(|at| if at == place(first.n) { first.render() } else { blank.clone() });
    records.map(|record| record + &rest).collect()
}

const fn place(n: u32) -> u32 {
    n.saturating_sub(1) % RECORDS
}

/// The history as it was found on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Byte offset of the file on the disk.
    at: u64,
    /// Bytes from one record to the next.
    stride: u64,
    /// By number.
    entries: Vec<Entry>,
    /// Whether its sectors may be written.
    is_kept: bool,
}

impl History {
    /// Read the file, which begins at byte `at` of the disk. `None` if a history cannot have its size. Records that are
    /// blank, damaged or in the place of another one are left out.
    pub fn decode(at: u64, bytes: &[u8]) -> Option<Self> {
        let stride = bytes.len() / RECORDS as usize;
        if stride < RECORD_BYTES || bytes.len() != stride * RECORDS as usize {
            return None;
        }
        let records = bytes.chunks_exact(stride).zip(0..);
        let mut entries: Vec<_> =
            records.filter_map(|(record, at)| Entry::parse(record).filter(|entry| place(entry.n) == at)).collect();
        entries.sort_by_key(|entry| entry.n);
        Some(History { at, stride: stride as u64, entries, is_kept: true })
    }

    /// Marks a history whose sectors may belong to another file: no entry is added to it.
    #[must_use]
    pub fn unproven(self) -> Self {
        History { is_kept: false, ..self }
    }

    /// Whether changes are recorded in it.
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// All entries, the oldest first, also those that did not take effect.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn entry(&self, n: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.n == n)
    }

    /// Whether an entry took effect. `None`: not known, because the record that names it is lost.
    pub fn took_effect(&self, entry: &Entry, env: Option<&BootEnv>) -> Option<bool> {
        let named = env.and_then(|env| env.history);
        let is_named = named == Some(entry.n) || self.entries.iter().any(|other| other.after == Some(entry.n));
        // The first one came with the disk.
        if is_named || entry.done || entry.verb == Verb::Install {
            return Some(true);
        }
        // The next entry in force, if there is one, names the one before it.
        let in_force = self.entries.iter().filter_map(|other| other.after).chain(named);
        match in_force.filter(|n| *n > entry.n).min() {
            Some(next) => self.entry(next).and_then(|next| next.after).map(|_| false),
            None => named.map(|_| false),
        }
    }

    /// The highest number that was given to an entry; 0 if none was.
    fn newest(&self, env: Option<&BootEnv>) -> u32 {
        let written = self.entries.last().map_or(0, |entry| entry.n);
        env.and_then(|env| env.history).unwrap_or(0).max(written)
    }

    /// The number of the next entry. `None` after a billion, and where none is added.
    pub fn next(&self, env: Option<&BootEnv>) -> Option<u32> {
        Some(self.newest(env) + 1).filter(|n| *n <= MAX_NUMBER && self.is_kept)
    }

    /// Byte offset on the disk of the record with this number, and its entry there now.
    pub fn place(&self, n: u32) -> (u64, Option<&Entry>) {
        let there = self.entries.iter().find(|entry| place(entry.n) == place(n));
        (self.at + u64::from(place(n)) * self.stride, there)
    }

    /// The number of entries that are missing.
    pub fn lost(&self, env: Option<&BootEnv>) -> u32 {
        let newest = self.newest(env);
        // The write of another one may have failed, and the oldest was in its place.
        let first = newest.saturating_sub(RECORDS - 2).max(1);
        (first..=newest).filter(|n| self.entry(*n).is_none()).count() as u32
    }

    /// The trial that is over though no entry says so.
    pub fn over(&self, env: &BootEnv, running: Running) -> Option<(Slot, Ending)> {
        trial_over(env, running).filter(|(slot, _)| self.is_open(*slot, env))
    }

    /// Why the last trial of this slot was not confirmed, as far as it recorded that itself.
    pub fn failed(&self, slot: Slot, env: Option<&BootEnv>) -> Option<(&Entry, &Failed)> {
        let of_the_trial =
            |entry: &&Entry| !(entry.arms() && entry.slot == Some(slot) && self.took_effect(entry, env) == Some(true));
        let mut entries = self.entries.iter().rev().take_while(of_the_trial).filter(|entry| entry.slot == Some(slot));
        entries.find_map(|entry| Some((entry, entry.failed.as_deref()?)))
    }

    /// Whether a trial of this slot began and no entry says how it ended.
    fn is_open(&self, slot: Slot, env: &BootEnv) -> bool {
        for entry in self.entries.iter().rev() {
            let is_in_force = self.took_effect(entry, Some(env)) == Some(true);
            // Before what it ended: an upgrade may say how the last trial of this slot ended, and begin the next one.
            if is_in_force && entry.arms() && entry.slot == Some(slot) {
                return true;
            }
            let tells = |end: &TrialEnd| end.slot == slot && (is_in_force || end.how.was_before());
            if entry.ended.as_ref().is_some_and(tells) {
                return false;
            }
        }
        false
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
