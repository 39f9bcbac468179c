//! The boot state and every change the installer makes to it.
//!
//! The ESP holds two copies, `boot.env` and `boot2.env`, of one sector each. They are written one after the other with
//! a flush between, so a power loss damages at most one. The valid copy with the higher sequence number counts,
//! `boot.env` on a tie. If both are lost, the marker `slot.env` in each slot still tells which slot is good.

use crate::prelude::*;
pub use crate::refused::{Fault, Refused};
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
    /// Whether GRUB checks kernel and initramfs before it loads them; `check=off` in the block turns it off.
    pub check: bool,
    /// Nobody at the keyboard may choose a slot: `menu=off` in the block.
    #[cfg_attr(feature = "data", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub no_menu: bool,
    /// When the installer last changed the state of each slot. GRUB, which turns `trial` into `tried`, records no time.
    pub since: PerSlot<Option<u64>>,
    /// The slot activated last; with its state this tells how the trial ended.
    pub last_trial: Option<Slot>,
    /// The slot that GRUB was to start and did not, and why. It counts until the installer changes the slot's state.
    #[cfg_attr(feature = "data", serde(default, skip_serializing_if = "Option::is_none"))]
    pub refused: Option<Refused>,
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
        }
    }

    /// After both copies were lost: rebuilt from the slots' markers and the slot that is running, not as a trial.
    pub fn rebuilt(running: Slot, marks: &PerSlot<Option<Marker>>, now: u64) -> Self {
        let seq = Slot::BOTH.into_iter().filter_map(|s| marks[s].as_ref()).map(|m| m.seq).max();
        let mut env = BootEnv { seq: seq.unwrap_or(1), default: running, rebuilt: true, ..Self::installed(now) };
        let good = |s: Slot| s == running || marks[s].as_ref().is_some_and(|m| m.state == SlotState::Good);
        env.states = PerSlot::new(|s| if good(s) { SlotState::Good } else { SlotState::Empty });
        // Of a slot that it calls empty nothing is known.
        env.since = PerSlot::new(|s| good(s).then_some(now));
        env
    }

    /// Parse one copy. `None` where GRUB would not use it either: no block, no sequence number or no default.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = EnvBlock::parse(bytes)?;
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
            refused: block.get("refused").and_then(Refused::parse),
            bad: block.get("bad").unwrap_or_default().split(',').filter_map(|d| d.parse().ok()).take(MAX_BAD).collect(),
            format_ephemeral: block.get("format") == Some("ephemeral"),
            medium: block.get("medium").and_then(|v| v.parse().ok()),
            rebuilt: block.get("rebuilt") == Some("yes"),
            history: block.get("history").and_then(parse_seq).and_then(|n| n.try_into().ok()),
        })
    }

    /// One sector of text.
    pub fn render(&self) -> String {
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
        // Last, where GRUB adds it.
        pairs.extend(self.refused.map(|refused| ("refused", refused.to_string())));
        // The longest form is below 512 bytes, so it always fits.
        EnvBlock::new(pairs).render_sector().unwrap_or_default()
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

    /// The slot to be tried, and the state in which that try is spent, under the same number.
    pub fn spent(&self) -> Option<(Slot, Self)> {
        let trial = self.once?;
        let mut spent = BootEnv { once: None, ..self.clone() };
        spent.states[trial] = SlotState::Tried;
        Some((trial, spent))
    }

    /// The order in which to write a new state to the copies.
    pub const fn write_order(copies: &[Option<BootEnv>; 2]) -> [usize; 2] {
        // The copy that counts goes last: whenever the power fails, a valid copy holds the old state or the new one.
        match Self::which(copies) {
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
            next.set(target, SlotState::Trial, now);
            // That trial was of what the slot held before.
            next.last_trial = next.last_trial.filter(|tried| *tried != target);
        })
    }

    /// The next boot tries `target` once.
    pub fn armed(&self, target: Slot, now: u64) -> Self {
        self.changed(|next| {
            next.set(target, SlotState::Trial, now);
            (next.once, next.last_trial) = (Some(target), Some(target));
        })
    }

    /// The live medium that installed the disk.
    pub fn installed_by(&self, medium: MediumId) -> Self {
        self.changed(|next| next.medium = Some(medium))
    }

    /// The wipe of EPHEMERAL is complete.
    pub fn wiped(&self) -> Self {
        self.changed(|next| next.format_ephemeral = false)
    }

    /// The next boot tries nothing. A slot that was due for a trial stays staged.
    pub fn disarmed(&self) -> Self {
        self.changed(|next| next.once = None)
    }

    /// The trial of the running `slot` succeeded: it is the default from now on. What it holds goes by these digests.
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

    /// Whether the system in this slot failed its trial. What GRUB refused for a wrong digest was never started: the
    /// disk is to blame.
    pub fn came_back(&self, slot: Slot) -> bool {
        let state = self.states[slot];
        state == SlotState::Bad || (state == SlotState::Tried && self.fault(slot) != Some(Fault::Digest))
    }

    /// Whether an upgrade began to write this slot and did not end. No install ever changed the state of an empty one.
    pub fn is_incomplete(&self, slot: Slot) -> bool {
        slot != self.default && self.states[slot] == SlotState::Empty && self.since[slot].is_some()
    }

    /// What GRUB found wrong with this slot.
    pub fn fault(&self, slot: Slot) -> Option<Fault> {
        self.refused.filter(|refused| refused.slot == slot).map(|refused| refused.fault)
    }

    /// What goes by one of these digests works after all.
    pub fn forget_bad(&mut self, names: &[Sha256]) {
        self.bad.retain(|bad| !names.contains(bad));
    }
}

// As the boot rule accepts it: at most nine digits, no leading zero. GRUB compares 32-bit numbers: it would read a
// leading zero as octal, and more digits would wrap.
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
mod tests {
    use super::*;

    fn env(default: Slot, once: Option<Slot>, a: SlotState, b: SlotState) -> BootEnv {
        BootEnv { seq: 7, default, once, states: PerSlot { a, b }, since: PerSlot::default(), ..BootEnv::installed(0) }
    }

    /// What an upgrade leaves that was interrupted. An install leaves an empty slot too, and so does a lost boot.env.
    #[test]
    fn an_incomplete_slot() {
        let installed = BootEnv::installed(1);
        assert!(!installed.is_incomplete(Slot::B));
        assert!(installed.deactivated(Slot::B, 2).is_incomplete(Slot::B));
        let rebuilt = BootEnv::rebuilt(Slot::B, &PerSlot::default(), 3);
        assert_eq!((rebuilt.since, rebuilt.is_incomplete(Slot::A)), (PerSlot { a: None, b: Some(3) }, false));
    }

    /// The last trial was of what the slot held before.
    #[test]
    fn a_staged_system_had_no_trial() {
        let armed = BootEnv::installed(1).armed(Slot::B, 2);
        assert_eq!(armed.disarmed().last_trial, Some(Slot::B));
        assert_eq!(armed.deactivated(Slot::B, 3).staged(Slot::B, 4).last_trial, None);
    }

    #[test]
    fn golden() {
        let text = env(Slot::A, Some(Slot::B), SlotState::Good, SlotState::Trial).render();
        assert_eq!(text.len(), 512);
        assert!(text.starts_with("# GRUB Environment Block\nseq=7\ndefault=A\nonce=B\na=good\nb=trial\n##"));
        let marker = Marker { state: SlotState::Good, seq: 1 };
        assert_eq!(Marker::parse(marker.render().as_bytes()), Some(marker));
    }

    #[test]
    fn every_state_round_trips() {
        let states = [SlotState::Empty, SlotState::Trial, SlotState::Tried, SlotState::Good, SlotState::Bad];
        for a in states {
            for b in states {
                for once in [None, Some(Slot::A), Some(Slot::B)] {
                    let mut e = env(Slot::B, once, a, b);
                    assert_eq!(BootEnv::parse(e.render().as_bytes()), Some(e.clone()));
                    (e.check, e.no_menu) = (false, true);
                    (e.medium, e.rebuilt, e.history) = (Some(MediumId(0xbeef)), true, Some(7));
                    e.refused = Some(Refused { slot: Slot::A, fault: Fault::Load });
                    assert_eq!(BootEnv::parse(e.render().as_bytes()), Some(e));
                }
            }
        }
    }

    #[test]
    fn sequence_numbers_as_grub_takes_them() {
        for (text, seq) in [("0", Some(0)), ("1", Some(1)), ("999999999", Some(999_999_999))] {
            assert_eq!(parse_seq(text), seq);
        }
        for bad in ["", "05", "00", "+5", "-1", "1000000000", "0x5", "abc", "1 "] {
            assert_eq!(parse_seq(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_higher_copy_counts_and_the_first_on_a_tie() {
        let old = env(Slot::A, None, SlotState::Good, SlotState::Empty);
        let new = BootEnv { seq: 8, default: Slot::B, ..old.clone() };
        let tie = BootEnv { seq: 7, default: Slot::B, ..old.clone() };
        let pick = |a: &BootEnv, b: &BootEnv| BootEnv::pick(&[Some(a.clone()), Some(b.clone())]).unwrap().default;
        assert_eq!(pick(&old, &new), Slot::B);
        assert_eq!(pick(&new, &old), Slot::B);
        assert_eq!(pick(&old, &tie), Slot::A);
        assert_eq!(BootEnv::pick(&[None, Some(new.clone())]), Some(&new));
        assert_eq!(BootEnv::pick(&[None, None]), None);
    }

    #[test]
    fn the_longest_state_fits_into_a_sector() {
        let mut e = env(Slot::A, Some(Slot::B), SlotState::Empty, SlotState::Trial);
        e = BootEnv {
            seq: MAX_SEQ,
            check: false,
            no_menu: true,
            last_trial: Some(Slot::B),
            format_ephemeral: true,
            ..e
        };
        (e.medium, e.rebuilt, e.history) = (Some(MediumId(u64::MAX)), true, Some(999_999_999));
        e.since = PerSlot { a: Some(u64::from(u32::MAX)), b: Some(u64::from(u32::MAX)) };
        for n in 0..9 {
            e.remember_bad(Some(Sha256([n; 32])));
        }
        assert_eq!(e.bad.len(), MAX_BAD);
        assert_eq!(e.bad[0], Sha256([8; 32]), "the latest is kept");
        e.refused = Some(Refused { slot: Slot::B, fault: Fault::Digest });
        let text = e.render();
        assert_eq!(text.len(), 512);
        assert!(text.contains("##"), "GRUB needs room to save");
        assert_eq!(BootEnv::parse(text.as_bytes()), Some(e));
    }

    #[test]
    fn at_every_instant_of_a_change_the_old_state_or_the_new_counts() {
        let old = env(Slot::A, None, SlotState::Good, SlotState::Empty);
        let older = BootEnv { seq: 3, default: Slot::B, ..old.clone() };
        let last = BootEnv { seq: MAX_SEQ, ..old.clone() };
        let some = |e: &BootEnv| Some(e.clone());
        for copies in [
            [some(&old), some(&old)],
            [some(&old), some(&older)],
            [some(&older), some(&old)],
            [some(&old), None],
            [None, some(&old)],
            [some(&last), some(&last)],
            [some(&old), some(&last)],
        ] {
            let before = BootEnv::pick(&copies).unwrap().clone();
            let after = before.armed(Slot::B, 9);
            let mut now = copies.clone();
            for at in BootEnv::write_order(&copies) {
                // A torn sector, neither old nor new, still leaves one valid copy.
                let mut torn = now.clone();
                torn[at] = None;
                let picked = BootEnv::pick(&torn).unwrap();
                assert!(*picked == before || *picked == after, "{copies:?}");
                now[at] = some(&after);
                let picked = BootEnv::pick(&now).unwrap();
                assert!(*picked == before || *picked == after, "{copies:?}");
            }
            assert_eq!(now, [some(&after), some(&after)]);
        }
    }

    #[test]
    fn changes() {
        use SlotState::{Bad, Empty, Good, Trial, Tried};
        let digest = Some(Sha256([1; 32]));
        let e = env(Slot::A, None, Good, Tried);
        let d = e.deactivated(Slot::B, 5);
        assert_eq!((d.seq, d.default, d.once, d.states.b, d.since.b), (8, Slot::A, None, Empty, Some(5)));
        let s = d.staged(Slot::B, 6);
        assert_eq!((s.once, s.states.b), (None, Trial));
        let armed = s.armed(Slot::B, 7);
        assert_eq!((armed.once, armed.states.b, armed.last_trial), (Some(Slot::B), Trial, Some(Slot::B)));
        assert_eq!((armed.disarmed().once, armed.disarmed().states.b), (None, Trial));
        let tried = env(Slot::A, None, Good, Tried);
        let c = tried.confirmed(Slot::B, digest.as_slice(), 8);
        assert_eq!((c.default, c.states.a, c.states.b), (Slot::B, Good, Good));
        let g = tried.given_up(Slot::B, digest, 8);
        assert_eq!((g.default, g.states.b, g.bad.as_slice()), (Slot::A, Bad, digest.as_slice()));
        assert_eq!(g.confirmed(Slot::B, digest.as_slice(), 9).bad, []);
        let r = c.rolled_back(Slot::A, digest);
        assert_eq!((r.default, r.states.a, r.states.b, r.bad.len()), (Slot::A, Good, Good, 1));
        // A live medium left in the machine must not install over a system that was upgraded since.
        let by = e.installed_by(MediumId(5));
        let later = by.deactivated(Slot::B, 5).staged(Slot::B, 6).armed(Slot::B, 7).confirmed(Slot::B, &[], 8);
        let later = later.rolled_back(Slot::A, None).given_up(Slot::B, None, 9).disarmed().wiped();
        assert_eq!((by.seq, by.medium, later.medium), (8, Some(MediumId(5)), Some(MediumId(5))));
    }

    #[test]
    fn a_mark_of_grub_lasts_until_its_slot_changes() {
        let refused = Some(Refused { slot: Slot::B, fault: Fault::Digest });
        let e = BootEnv { refused, ..env(Slot::A, None, SlotState::Good, SlotState::Tried) };
        let text = e.render();
        assert!(text.contains("\nrefused=B:digest\n#"), "{text}");
        assert_eq!(BootEnv::parse(text.as_bytes()), Some(e.clone()));
        for odd in ["B", "B:", "C:load", "B:loads", "B:load:digest", ""] {
            let text = text.replace("B:digest", odd);
            assert_eq!(BootEnv::parse(text.as_bytes()), Some(BootEnv { refused: None, ..e.clone() }), "{odd:?}");
        }
        let b = Slot::B;
        for gone in [e.deactivated(b, 1), e.staged(b, 1), e.armed(b, 1), e.confirmed(b, &[], 1), e.given_up(b, None, 1)]
        {
            assert_eq!(gone.fault(b), None);
        }
        let a = Slot::A;
        for stays in [e.deactivated(a, 1), e.confirmed(a, &[], 1), e.rolled_back(a, None), e.disarmed(), e.wiped()] {
            assert_eq!((stays.fault(b), stays.fault(a)), (Some(Fault::Digest), None));
        }
    }
}
