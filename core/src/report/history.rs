//! The answer of `history`, and the last entries in that of `status`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::rows::{NARROW, NO_BREAK, Row};
use crate::{
    boot::{
        env::BootEnv,
        history::{Ending, Entry, History, RECORDS, TrialEnd, Verb},
        running::Running,
        slot::Slot,
        trial::Failed,
    },
    disk::{identity::DiskIdentity, layout::Part},
    text::{printable, wrap},
};

/// Columns of a line where the width does not matter.
const WIDTH: usize = 80;
/// Column at which lines go on: behind the verb, or below the date where there are few.
const INDENT: usize = 28;
const NARROW_INDENT: usize = 2;

/// The changes of a disk.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct HistoryReport {
    pub disk: DiskIdentity,
    /// Whether the disk has a history. One that an earlier version installed has none.
    pub kept: bool,
    /// The newest first.
    pub entries: Vec<HistoryEntry>,
    /// The number of entries that should be there and cannot be read.
    pub lost: u32,
    /// Columns at which the text is wrapped.
    #[serde(skip)]
    pub columns: Option<u16>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct HistoryEntry {
    /// Entries are numbered from 1; the last 64 are kept.
    pub number: u32,
    /// RFC 3339, UTC.
    pub time: String,
    /// The same in seconds since 1970 UTC.
    pub seconds: u64,
    pub verb: Verb,
    /// With the verb `later`: the one that only a later version knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<String>,
    /// The slot that it was about.
    pub slot: Option<Slot>,
    /// The version in that slot since.
    pub version: Option<String>,
    /// The volumes that were wiped.
    pub volumes: Vec<Part>,
    /// Whether a person at the keyboard may choose a slot since; `null` if it was not about that.
    #[serde(default)]
    pub menu: Option<bool>,
    /// Who asked for it.
    pub by: Option<String>,
    pub reason: Option<String>,
    /// `false`: it was interrupted, and the boot state is that of before. `null`: not known, because boot.env was lost or
    /// an earlier version has written it, or the entry that would say so is lost.
    pub took_effect: Option<bool>,
    /// The end of the trial that it began.
    pub trial: Option<TrialOutcome>,
    /// Why the trial that ran was not confirmed.
    #[serde(default)]
    pub failed: Option<Failed>,
}

/// The end of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct TrialOutcome {
    pub how: Ending,
    /// The reason that was given for going back.
    pub reason: Option<String>,
    /// The last words of its kernel, if the firmware kept them.
    pub panic: Option<String>,
    /// Whether the history has it; otherwise it is derived from the boot state; the next change records it.
    pub recorded: bool,
}

/// Facts about a disk besides the history itself.
#[derive(Clone, Copy)]
pub struct Now<'a> {
    /// The boot.env that counts.
    pub env: Option<&'a BootEnv>,
    /// The running system.
    pub running: Running,
    /// The last words of the kernel whose trial is over.
    pub panic: Option<&'a str>,
    /// Makes RFC 3339 of seconds.
    pub utc: fn(u64) -> String,
}

impl HistoryEntry {
    /// All entries, the newest first.
    pub fn all(history: &History, now: Now) -> Vec<Self> {
        let all = history.entries();
        let mut entries: Vec<_> = all.iter().map(|entry| Self::from_entry(entry, now.utc)).collect();
        for (at, entry) in all.iter().enumerate() {
            let took_effect = history.took_effect(entry, now.env);
            entries[at].took_effect = took_effect;
            let tells = |end: &&TrialEnd| took_effect == Some(true) || end.how.was_before();
            let Some(end) = entry.ended.as_ref().filter(tells) else { continue };
            let reason = entry.reason.clone().filter(|_| matches!(end.how, Ending::GivenUp | Ending::Cancelled));
            let outcome = TrialOutcome { how: end.how, reason, panic: end.panic.clone(), recorded: true };
            end_of(&mut entries[..at], end.slot, outcome);
        }
        if let Some((slot, how)) = now.env.and_then(|env| history.over(env, now.running)) {
            let panic = now.panic.filter(|_| how == Ending::NotConfirmed).map(str::to_owned);
            end_of(&mut entries, slot, TrialOutcome { how, reason: None, panic, recorded: false });
        }
        entries.reverse();
        entries
    }

    fn from_entry(entry: &Entry, utc: fn(u64) -> String) -> Self {
        let Entry { n, time, verb, later, slot, version, volumes, menu, by, reason, failed, .. } = entry.clone();
        let (took_effect, trial) = (None, None);
        HistoryEntry {
            number: n,
            time: utc(time),
            seconds: time,
            verb,
            later,
            slot,
            version,
            volumes,
            menu,
            by,
            reason,
            took_effect,
            trial,
            failed: failed.map(|failed| *failed),
        }
    }

    /// `2026-11-22 10:03  upgrade   slot B, 1.2.0`.
    fn line(&self) -> String {
        let time: String = self.time.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect();
        let volumes: Vec<_> = self.volumes.iter().map(|part| part.name()).collect();
        let slot = self.slot.map(|slot| format!("slot {slot}"));
        let version = self.version.as_deref().map(printable);
        let volumes = (!volumes.is_empty()).then(|| format!("wiped {}", volumes.join(" and ")));
        let menu = self.menu.map(|on| if on { "on" } else { "off" }.to_owned());
        let what: Vec<_> = [slot, version, volumes, menu].into_iter().flatten().collect();
        let verb = self.later.as_deref().map_or_else(|| self.verb.to_string(), printable);
        format!("{time}  {verb:<8}  {}", what.join(", "))
    }

    /// The outcome, if it differs from the request or from the line.
    fn outcome(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.later.is_some() {
            lines.push("a later version of the installer did this; this one cannot say more of it".to_owned());
        }
        match self.took_effect {
            Some(true) => {}
            Some(false) => lines.push("interrupted: it did not take effect".to_owned()),
            None => lines.push("not known whether it took effect".to_owned()),
        }
        lines.extend(self.failed.as_ref().map(|failed| printable(&failed.to_string())));
        if let Some(trial) = &self.trial {
            let recorded = if trial.recorded { "" } else { " (not recorded yet)" };
            lines.push(format!("trial: {}{recorded}", trial.how));
            lines.extend(trial.reason.as_deref().map(|reason| format!("reason: {}", printable(reason))));
            lines.extend(trial.panic.as_deref().map(|panic| format!("kernel: {}", printable(panic))));
        }
        lines
    }

    /// The whole report, in lines of this width.
    fn lines(&self, width: usize) -> Vec<String> {
        let line = self.line().trim_end().to_owned();
        let by = self.by.as_deref().map(|by| format!("by {}", printable(by)));
        let fits = |by: &String| line.chars().count() + 2 + by.chars().count() <= width;
        let (beside, below) = match by {
            Some(by) if fits(&by) => (format!("  {by}"), None),
            by => (String::new(), by),
        };
        let reason = self.reason.as_deref().map(|reason| format!("reason: {}", printable(reason)));
        let more = below.into_iter().chain(reason).chain(self.outcome());
        let indent = if width < NARROW { NARROW_INDENT } else { INDENT };
        let more = more.flat_map(|text| wrap(&" ".repeat(indent), &text, width, indent));
        wrap("", &format!("{line}{beside}"), width, indent).into_iter().chain(more).collect()
    }
}

/// The last of these entries that tried this slot gets its outcome, unless it has one.
fn end_of(entries: &mut [HistoryEntry], slot: Slot, outcome: TrialOutcome) {
    let tried = |entry: &&mut HistoryEntry| {
        let arms = matches!(entry.verb, Verb::Upgrade | Verb::Activate | Verb::Later);
        arms && entry.slot == Some(slot) && entry.took_effect == Some(true)
    };
    if let Some(entry) = entries.iter_mut().rev().find(tried) {
        entry.trial.get_or_insert(outcome);
    }
}

/// The last entries, as `status` shows them, without why a trial failed, which its last trial says. Lines that belong
/// to one stand below it, further to the right.
pub(super) fn recent(entries: &[HistoryEntry]) -> Vec<Row> {
    let entries = entries.iter().filter(|entry| entry.verb != Verb::Trial);
    let rows = entries.zip(["history", "", ""]).flat_map(|(entry, label)| {
        let outcome = entry.outcome().into_iter().map(|line| ("", format!("{NO_BREAK}{NO_BREAK}{line}")));
        [(label, entry.line().trim_end().to_owned())].into_iter().chain(outcome)
    });
    rows.collect()
}

impl fmt::Display for HistoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = &self.disk.path;
        let width = self.columns.map_or(WIDTH, usize::from);
        let head = match self.kept {
            false => format!("{disk} keeps no history: an earlier version installed it, or the file was lost"),
            true => format!("{disk}: the last {RECORDS} changes are kept; the newest first, times in UTC"),
        };
        let lost = match self.lost {
            0 => None,
            1 => Some("1 entry is lost: its record cannot be read".to_owned()),
            n => Some(format!("{n} entries are lost: their records cannot be read")),
        };
        let mut lines = wrap("", &head, width, NARROW_INDENT);
        lines.extend(self.entries.iter().flat_map(|entry| entry.lines(width)));
        lines.extend(lost.iter().flat_map(|lost| wrap("", lost, width, NARROW_INDENT)));
        f.write_str(&lines.join("\n"))
    }
}
