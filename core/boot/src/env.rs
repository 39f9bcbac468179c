//! The boot state and every change the installer makes to it.
//!
//! The ESP holds two copies, `boot.env` and `boot2.env`, of one sector each. They are written one after the other with
//! a flush between, so a power loss damages at most one. The valid copy with the higher sequence number counts,
//! `boot.env` on a tie. If both are lost, the marker `slot.env` in each slot still tells which slot is good.

pub use crate::boot_failure::{BootFailure, Fault};
use crate::prelude::*;
use crate::slot::{PerSlot, Slot, SlotState};
use crate::{digest::Sha256, env_block::EnvBlock, medium_id::MediumId};

/// Both copies, as paths on the ESP.
pub const PATHS: [&str; 2] = ["slipway/boot.env", "slipway/boot2.env"];
/// A slot's marker, as a path in the slot.
pub const MARKER: &str = "slot.env";
// GRUB compares 32-bit numbers, and the boot rule accepts nine digits.
const MAX_SEQ: u64 = 999_999_999;
// As many digests as fit into the sector beside everything else.
const MAX_BAD: usize = 4;
/// The key by which the UEFI loader notes, in the copy that does not count, which slot it is about to open. Only the
/// loader reads it, and every writer of a new boot state leaves it out.
pub const OPENING: &str = "opening";
/// The keys that this version knows.
const KEYS: [&str; 17] = [
    "seq",
    "default",
    "once",
    "a",
    "b",
    "check",
    "menu",
    "a_since",
    "b_since",
    "last_trial",
    "bad",
    "format",
    "medium",
    "rebuilt",
    "history",
    "refused",
    OPENING,
];

/// One copy of the boot state. Times are seconds since 1970 UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct BootEnv {
    /// Goes up by one with every change the installer makes.
    pub seq: u64,
    /// The slot that boots unless a trial is due.
    pub default: Slot,
    /// The slot to boot exactly once, as a trial.
    pub once: Option<Slot>,
    /// The state of each slot.
    pub states: PerSlot<SlotState>,
    /// Whether the boot loader checks kernel and initramfs before it loads them; `check=off` in the block turns it off.
    pub check: bool,
    /// No person at the keyboard may choose a slot: `menu=off` in the block.
    #[cfg_attr(feature = "data", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub no_menu: bool,
    /// When the installer last changed the state of each slot. The boot loader, which turns `trial` into `tried`, records
    /// no time.
    pub since: PerSlot<Option<u64>>,
    /// The slot activated last; with its state this tells how the trial ended.
    pub last_trial: Option<Slot>,
    /// The slot that the boot loader was to start and did not, and why. It counts until the installer changes the slot's
    /// state.
    #[cfg_attr(feature = "data", serde(default, skip_serializing_if = "Option::is_none"))]
    pub refused: Option<BootFailure>,
    /// Systems (files and kernel command line) that failed their trial or were rolled back, latest first. An upgrade
    /// refuses them by default. Earlier versions wrote the digest of the payload's files, which still counts.
    pub bad: Vec<Sha256>,
    /// EPHEMERAL is being wiped and must become XFS. Set until done, so that a run after a power loss finishes it.
    pub format_ephemeral: bool,
    /// The live medium that last installed this disk unattended. It is kept through upgrades and rollbacks, so that a
    /// medium left in the machine boots the disk and never installs again.
    #[cfg_attr(feature = "data", serde(skip_serializing_if = "Option::is_none"))]
    pub medium: Option<MediumId>,
    /// Both copies were lost and rebuilt from the slots' markers, so `medium` is not known.
    #[cfg_attr(feature = "data", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub rebuilt: bool,
    /// The number of the last entry of the history that took effect.
    #[cfg_attr(feature = "data", serde(default, skip_serializing_if = "Option::is_none"))]
    pub history: Option<u32>,
    /// Keys that only a later version knows, with their values. They stay as they are.
    #[cfg_attr(feature = "data", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub later: Vec<(String, String)>,
}

impl BootEnv {
    /// After a fresh install into slot A.
    pub const fn installed(now: u64) -> Self {
        BootEnv {
            seq: 1,
            default: Slot::A,
            once: None,
            states: PerSlot { a: SlotState::Good, b: SlotState::Empty },
            check: true,
            no_menu: false,
            since: PerSlot { a: Some(now), b: None },
            last_trial: None,
            refused: None,
            bad: Vec::new(),
            format_ephemeral: false,
            medium: None,
            rebuilt: false,
            history: None,
            later: Vec::new(),
        }
    }

    /// After both copies were lost: rebuilt from the slots' markers and the slot that is running, not as a trial.
    pub fn rebuilt(running: Slot, marks: &PerSlot<Option<Marker>>, now: u64) -> Self {
        let seq = Slot::BOTH.into_iter().filter_map(|s| marks[s].as_ref()).map(|m| m.seq).max();
        let mut env = BootEnv { seq: seq.unwrap_or(1), default: running, rebuilt: true, ..Self::installed(now) };
        let good = |s: Slot| s == running || marks[s].as_ref().is_some_and(|m| m.state == SlotState::Good);
        env.states = PerSlot::new(|s| if good(s) { SlotState::Good } else { SlotState::Empty });
        // Nothing is known of an empty slot.
        env.since = PerSlot::new(|s| good(s).then_some(now));
        env
    }

    /// Parse one copy. `None` where GRUB would not use it either: no block, no sequence number or no default.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = EnvBlock::parse(bytes)?;
        let mut env = BootEnv { later: later(&block), ..Self::from_block(&block)? };
        // A block may lack keys that are always written.
        while !env.block().has_room() && env.later.pop().is_some() {}
        Some(env)
    }

    /// The state without keys of later versions. A boot loader changes the block itself, which keeps them.
    pub fn from_block(block: &EnvBlock) -> Option<Self> {
        // An unknown state reads as `empty`: not booting such a slot is the safe choice.
        let state = |key| block.get(key).and_then(|v| v.parse().ok()).unwrap_or(SlotState::Empty);
        let time = |key| block.get(key).and_then(|v| v.parse().ok());
        let slot = |key| block.get(key)?.parse().ok();
        Some(BootEnv {
            seq: parse_seq(block.get("seq")?)?,
            default: slot("default")?,
            once: slot("once"),
            states: PerSlot { a: state("a"), b: state("b") },
            check: block.get("check") != Some("off"),
            no_menu: block.get("menu") == Some("off"),
            since: PerSlot { a: time("a_since"), b: time("b_since") },
            last_trial: slot("last_trial"),
            refused: block.get("refused").and_then(BootFailure::parse),
            bad: block.get("bad").unwrap_or_default().split(',').filter_map(|d| d.parse().ok()).take(MAX_BAD).collect(),
            format_ephemeral: block.get("format") == Some("ephemeral"),
            medium: block.get("medium").and_then(|v| v.parse().ok()),
            rebuilt: block.get("rebuilt") == Some("yes"),
            history: block.get("history").and_then(parse_seq).and_then(|n| n.try_into().ok()),
            later: Vec::new(),
        })
    }

    /// One sector of text.
    pub fn render(&self) -> String {
        // The longest form of this version's keys is below 512 bytes, and the rest fits: see `parse` and `fit`.
        self.block().render_sector().unwrap_or_default()
    }

    fn block(&self) -> EnvBlock {
        let mut pairs = vec![
            ("seq", self.seq.to_string()),
            ("default", self.default.to_string()),
            ("once", self.once.map(|s| s.to_string()).unwrap_or_default()),
            ("a", self.states.a.to_string()),
            ("b", self.states.b.to_string()),
        ];
        if !self.check {
            pairs.push(("check", "off".to_owned()));
        }
        if self.no_menu {
            pairs.push(("menu", "off".to_owned()));
        }
        for (key, time) in [("a_since", self.since.a), ("b_since", self.since.b)] {
            pairs.extend(time.map(|t| (key, t.to_string())));
        }
        pairs.extend(self.last_trial.map(|s| ("last_trial", s.to_string())));
        if !self.bad.is_empty() {
            let digests: Vec<String> = self.bad.iter().map(ToString::to_string).collect();
            pairs.push(("bad", digests.join(",")));
        }
        if self.format_ephemeral {
            pairs.push(("format", "ephemeral".to_owned()));
        }
        pairs.extend(self.medium.map(|id| ("medium", id.to_string())));
        if self.rebuilt {
            pairs.push(("rebuilt", "yes".to_owned()));
        }
        pairs.extend(self.history.map(|n| ("history", n.to_string())));
        pairs.extend(self.later.iter().map(|(key, value)| (key.as_str(), value.clone())));
        // Last, where GRUB adds it.
        pairs.extend(self.refused.map(|refused| ("refused", refused.to_string())));
        EnvBlock::new(pairs)
    }

    /// Make room for the longest of everything else: first the oldest systems that failed are forgotten, as a fifth one
    /// would make it, and then the keys of a later version.
    fn fit(&mut self) {
        let has_room = |env: &BootEnv| {
            let (medium, history) = (Some(MediumId(u64::MAX)), Some(MAX_SEQ as u32));
            let refused = Some(BootFailure { slot: Slot::A, fault: Fault::Digest });
            let longest = BootEnv { medium, history, refused, format_ephemeral: true, no_menu: true, ..env.clone() };
            longest.block().has_room()
        };
        while !self.later.is_empty() && !has_room(self) {
            if self.bad.pop().is_none() {
                self.later.pop();
            }
        }
    }

    /// The copy that counts.
    pub fn pick(copies: &[Option<BootEnv>; 2]) -> Option<&BootEnv> {
        copies[Self::which(copies)?].as_ref()
    }

    /// The place of that copy.
    pub const fn which(copies: &[Option<BootEnv>; 2]) -> Option<usize> {
        match copies {
            [Some(first), Some(second)] if second.seq > first.seq => Some(1),
            [Some(_), _] => Some(0),
            [None, Some(_)] => Some(1),
            [None, None] => None,
        }
    }

    /// The place of the copy that the installer goes by. Boot loaders go by [`Self::which`].
    ///
    /// Under one number, copies differ only in what boot loaders write, one copy after the other. If the first one differs in
    /// anything else, it is damaged, or the second one is: the slots' markers decide.
    pub fn trusted(copies: &[Option<BootEnv>; 2], markers: &PerSlot<Option<Marker>>) -> Option<usize> {
        match copies {
            // At the limit the number does not grow with the state.
            [Some(first), Some(second)]
                if first.seq == second.seq
                    && first.seq < MAX_SEQ
                    && first.of_installer() != second.of_installer()
                    && second.contradictions(markers) < first.contradictions(markers) =>
            {
                Some(1)
            }
            _ => Self::which(copies),
        }
    }

    /// The state without what boot loaders change.
    fn of_installer(&self) -> Self {
        let untried = |state| if state == SlotState::Tried { SlotState::Untried } else { state };
        let states = PerSlot::new(|slot| untried(self.states[slot]));
        BootEnv { once: None, refused: None, states, ..self.clone() }
    }

    /// Slots that are good by their marker and not by this copy, or the other way round; and keys that nothing explains. A slot
    /// that is empty counts as well: a damaged state reads as that, and two copies with one number do not differ in it.
    fn contradictions(&self, markers: &PerSlot<Option<Marker>>) -> usize {
        let is_marked = |slot: Slot| markers[slot].as_ref().is_some_and(|marker| marker.state == SlotState::Good);
        let differs = |slot: &Slot| is_marked(*slot) != (self.states[*slot] == SlotState::Good);
        let is_empty = |slot: &Slot| self.states[*slot] == SlotState::Empty;
        let slots = || Slot::BOTH.into_iter();
        slots().filter(differs).count() + slots().filter(is_empty).count() + self.later.len()
    }

    /// The slot to be tried, and the state in which that try is spent, under the same number.
    pub fn spent(&self) -> Option<(Slot, Self)> {
        let trial = self.once?;
        let mut spent = BootEnv { once: None, ..self.clone() };
        spent.states[trial] = SlotState::Tried;
        Some((trial, spent))
    }

    /// The order in which to write a new state to the copies, of which this one counts.
    pub const fn write_order(counts: Option<usize>) -> [usize; 2] {
        // The copy that counts goes last: whenever the power fails, a valid copy holds the old state or the new one.
        match counts {
            Some(0) => [1, 0],
            _ => [0, 1],
        }
    }
}

/// Changes: each returns a new state with the next sequence number. `now` is seconds since 1970 UTC.
impl BootEnv {
    fn changed(&self, edit: impl FnOnce(&mut BootEnv)) -> Self {
        // At the limit the number no longer grows. Writing the copy that counts, which goes last, is then the commit.
        let mut next = BootEnv { seq: (self.seq + 1).min(MAX_SEQ), ..self.clone() };
        edit(&mut next);
        next.fit();
        next
    }

    fn set(&mut self, slot: Slot, state: SlotState, now: u64) {
        self.states[slot] = state;
        self.since[slot] = Some(now);
        self.refused = self.refused.filter(|refused| refused.slot != slot);
    }

    /// Before `target` is written: it must not boot any more. The other slot, which is running, becomes the default.
    pub fn deactivated(&self, target: Slot, now: u64) -> Self {
        self.changed(|next| {
            (next.default, next.once) = (!target, None);
            next.set(target, SlotState::Empty, now);
        })
    }

    /// `target` is written and verified, but does not boot yet.
    pub fn staged(&self, target: Slot, now: u64) -> Self {
        self.changed(|next| {
            next.set(target, SlotState::Untried, now);
            // The last trial was of the slot's earlier content.
            next.last_trial = next.last_trial.filter(|tried| *tried != target);
        })
    }

    /// The next boot tries `target` once.
    pub fn armed(&self, target: Slot, now: u64) -> Self {
        self.changed(|next| {
            next.set(target, SlotState::Untried, now);
            (next.once, next.last_trial) = (Some(target), Some(target));
        })
    }

    /// The live medium that installed the disk.
    pub fn installed_by(&self, medium: MediumId) -> Self {
        self.changed(|next| next.medium = Some(medium))
    }

    /// Whether a person at the keyboard may choose a slot.
    pub fn with_menu(&self, on: bool) -> Self {
        self.changed(|next| next.no_menu = !on)
    }

    /// The wipe of EPHEMERAL is complete.
    pub fn wiped(&self) -> Self {
        self.changed(|next| next.format_ephemeral = false)
    }

    /// The next boot tries nothing. A slot that was due for a trial stays staged.
    pub fn disarmed(&self) -> Self {
        self.changed(|next| next.once = None)
    }

    /// The same, under this number at least. It is none that follows: the slots' markers may be later than this state.
    #[must_use]
    pub fn at_least(self, seq: u64) -> Self {
        BootEnv { seq: self.seq.max(seq.min(MAX_SEQ)), ..self }
    }

    /// The trial of the running `slot` succeeded: it is the default from now on. These digests name its system.
    pub fn confirmed(&self, slot: Slot, names: &[Sha256], now: u64) -> Self {
        self.changed(|next| {
            (next.default, next.once) = (slot, None);
            next.set(slot, SlotState::Good, now);
            // It works now, so it may be installed again.
            next.forget_bad(names);
        })
    }

    /// The trial of `system` in the running `slot` failed: it is not tried again.
    pub fn given_up(&self, slot: Slot, system: Option<Sha256>, now: u64) -> Self {
        self.changed(|next| {
            next.set(slot, SlotState::Bad, now);
            next.remember_bad(system);
        })
    }

    /// Back to `to`, the default from now on; `left` is the system in the other slot.
    pub fn rolled_back(&self, to: Slot, left: Option<Sha256>) -> Self {
        self.changed(|next| {
            (next.default, next.once) = (to, None);
            next.remember_bad(left);
        })
    }

    /// Record that this system failed its trial or was rolled back.
    pub fn remember_bad(&mut self, system: Option<Sha256>) {
        if let Some(system) = system {
            self.forget_bad(&[system]);
            self.bad.insert(0, system);
            self.bad.truncate(MAX_BAD);
        }
    }

    /// Whether the system in this slot failed its trial. A system that the boot loader refused for a wrong digest
    /// was never started: the disk is to blame.
    pub fn came_back(&self, slot: Slot) -> bool {
        let state = self.states[slot];
        state == SlotState::Bad || (state == SlotState::Tried && self.fault(slot) != Some(Fault::Digest))
    }

    /// Whether an upgrade began to write this slot and did not end. No install ever changed the state of an empty one.
    pub fn is_incomplete(&self, slot: Slot) -> bool {
        slot != self.default && self.states[slot] == SlotState::Empty && self.since[slot].is_some()
    }

    /// The fault that the boot loader found in this slot.
    pub fn fault(&self, slot: Slot) -> Option<Fault> {
        self.refused.filter(|refused| refused.slot == slot).map(|refused| refused.fault)
    }

    /// Forgets these digests as bad: their systems work after all.
    pub fn forget_bad(&mut self, names: &[Sha256]) {
        self.bad.retain(|bad| !names.contains(bad));
    }
}

/// The keys of a block that this version does not know, each once. An invalid name of a key is damage.
fn later(block: &EnvBlock) -> Vec<(String, String)> {
    let is_name =
        |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let mut later: Vec<(String, String)> = Vec::new();
    for key in block.keys().filter(|key| is_name(key) && !KEYS.contains(key)) {
        if let (Some(value), false) = (block.get(key), later.iter().any(|(known, _)| known == key)) {
            later.push((key.to_owned(), value.to_owned()));
        }
    }
    later
}

// Parses it as the boot rule does: at most nine digits, no leading zero. GRUB compares 32-bit numbers: it would
// read a leading zero as octal, and more digits would wrap.
fn parse_seq(text: &str) -> Option<u64> {
    let digits = text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    let seq = text.parse().ok()?;
    (digits && (seq == 0) == text.starts_with('0') && (seq != 0 || text == "0")).then_some(seq)
}

/// A slot's marker, `slot.env`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Marker {
    /// `good` once the slot is freshly installed or confirmed.
    pub state: SlotState,
    /// The sequence number of boot.env when this was written: the slot with the higher one was the default last.
    pub seq: u64,
}

impl Marker {
    /// Parse `slot.env`.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = EnvBlock::parse(bytes)?;
        let seq = block.get("seq").and_then(parse_seq).unwrap_or(0);
        Some(Marker { state: block.get("state")?.parse().ok()?, seq })
    }

    /// One sector of text.
    pub fn render(&self) -> String {
        let pairs = [("state", self.state.to_string()), ("seq", self.seq.to_string())];
        EnvBlock::new(pairs).render_sector().unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;
