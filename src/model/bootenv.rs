//! Boot state: what `boot.env` and the slots' own markers say, and what the next boot makes of it.
//!
//! `boot.env` and `boot2.env` on the ESP are one sector each, written one after the other with a flush
//! between. Each carries a sequence number; the valid copy with the higher one counts, `boot.env` on a
//! tie. `slot.env` in each slot is the second source for the case that both are lost.

use serde::{Deserialize, Serialize};

use super::{
    envblock::EnvBlock,
    slot::{PerSlot, Slot, SlotState},
};

/// Paths of both copies on the ESP, in the order in which they are written.
pub const PATHS: [&str; 2] = ["slipway/boot.env", "slipway/boot2.env"];
/// Name of a slot's own marker.
pub const MARKER: &str = "slot.env";

/// The content of one copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootEnv {
    /// Counts every change the installer makes.
    pub seq: u64,
    /// The slot that boots.
    pub default: Slot,
    /// The slot to try exactly one time.
    pub once: Option<Slot>,
    /// State of each slot.
    pub states: PerSlot<SlotState>,
    /// Whether GRUB checks kernel and initramfs before it loads them (`check=off` in the block: no).
    pub check: bool,
}

impl BootEnv {
    /// State after a fresh install into slot A.
    pub const fn installed() -> Self {
        BootEnv {
            seq: 1,
            default: Slot::A,
            once: None,
            states: PerSlot { a: SlotState::Good, b: SlotState::Empty },
            check: true,
        }
    }

    /// Parse one copy. `None` where GRUB would not use it either: no block, no sequence number, no
    /// default. A state it does not know reads as `empty`: not bootable is the safe side.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = EnvBlock::parse(bytes)?;
        let state = |key| block.get(key).and_then(|v| v.parse().ok()).unwrap_or(SlotState::Empty);
        Some(BootEnv {
            seq: parse_seq(block.get("seq")?)?,
            default: block.get("default")?.parse().ok()?,
            once: block.get("once").and_then(|v| v.parse().ok()),
            states: PerSlot { a: state("a"), b: state("b") },
            check: block.get("check") != Some("off"),
        })
    }

    /// One sector of text. Its longest form is far below 512 bytes.
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
        EnvBlock::new(pairs).render_sector().unwrap_or_default()
    }

    /// The copy that counts: the valid one with the higher sequence number, the first on a tie.
    pub fn pick(copies: [Option<BootEnv>; 2]) -> Option<BootEnv> {
        match copies {
            [Some(first), Some(second)] if second.seq > first.seq => Some(second),
            [Some(first), _] => Some(first),
            [None, second] => second,
        }
    }
}

/// A sequence number as the boot rule takes it: decimal, at most nine digits, no leading zero. GRUB compares
/// 32-bit numbers and would read others as octal or wrap.
fn parse_seq(text: &str) -> Option<u64> {
    let digits = text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    let seq = text.parse().ok()?;
    (digits && (seq == 0) == text.starts_with('0') && (seq != 0 || text == "0")).then_some(seq)
}

/// A slot's own marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Marker {
    /// `good` once the slot was installed fresh or confirmed.
    pub state: SlotState,
    /// The sequence number of boot.env when this was written: the higher one was default last.
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

/// What the boot rule finds in a slot.
#[derive(Clone, Debug, Default)]
pub struct SlotView {
    /// Kernel, initramfs and slot.cfg are what boot.sha256 says.
    pub verifies: bool,
    /// Its own marker.
    pub marker: Option<Marker>,
}

/// What the next boot starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NextBoot {
    /// The slot, or none where nothing can be booted.
    pub slot: Option<Slot>,
    /// Whether it is a trial: booted this one time only, unless confirmed.
    pub trial: bool,
    /// Why, as a sentence.
    pub why: String,
}

/// The boot rule of `assets/grub/grub.cfg`, as far as it can be foreseen (a firmware that refuses to
/// save boot.env makes GRUB skip a trial; a panic cannot be seen from here).
pub fn next_boot(env: Option<&BootEnv>, slots: &PerSlot<SlotView>) -> NextBoot {
    let Some(env) = env else {
        return without_env(slots);
    };
    let mut failed = String::new();
    if let Some(trial) = env.once {
        if !env.check || slots[trial].verifies {
            return NextBoot { slot: Some(trial), trial: true, why: format!("slot {trial} is to be tried once") };
        }
        failed = format!("slot {trial} was to be tried once but does not verify; ");
    }
    // A failed trial reboots, and the boot after that finds `once` cleared and the slot `tried`.
    let state = |slot| match env.once {
        Some(trial) if trial == slot => SlotState::Tried,
        _ => env.states[slot],
    };
    let (default, other) = (env.default, !env.default);
    let order = match (state(default), state(other)) {
        (_, s) if s != SlotState::Good => vec![default],
        (SlotState::Good, _) => vec![default, other],
        _ => vec![other, default],
    };
    for slot in order {
        if !env.check || slots[slot].verifies {
            let why = match (slot == default, state(default)) {
                (true, _) => format!("{failed}slot {slot} is the default"),
                (false, SlotState::Good) => {
                    format!("{failed}the default, slot {default}, does not verify; slot {slot} is good")
                }
                (false, s) => format!("{failed}the default, slot {default}, is {s}; slot {slot} is good"),
            };
            return NextBoot { slot: Some(slot), trial: false, why };
        }
    }
    let why = format!("{failed}slot {default} is the default but does not verify, slot {other} is {}", state(other));
    NextBoot { slot: None, trial: false, why }
}

fn without_env(slots: &PerSlot<SlotView>) -> NextBoot {
    let good = PerSlot::new(|s| {
        let marker = slots[s].marker.as_ref()?;
        (marker.state == SlotState::Good).then_some(marker.seq)
    });
    let order = match (good.a, good.b) {
        (Some(a), Some(b)) if b > a => vec![Slot::B, Slot::A],
        (Some(_), Some(_)) | (None, None) => vec![Slot::A, Slot::B],
        (Some(_), None) => vec![Slot::A],
        (None, Some(_)) => vec![Slot::B],
    };
    let slot = order.into_iter().find(|s| slots[*s].verifies);
    let why = match slot {
        Some(s) if good[s].is_some() => {
            format!("both copies of boot.env are lost; slot {s} is marked good and verifies")
        }
        Some(s) => format!("both copies of boot.env are lost and no slot is marked good; slot {s} verifies"),
        None => "both copies of boot.env are lost and no slot that may boot verifies".to_owned(),
    };
    NextBoot { slot, trial: false, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(default: Slot, once: Option<Slot>, a: SlotState, b: SlotState) -> BootEnv {
        BootEnv { seq: 7, default, once, states: PerSlot { a, b }, check: true }
    }

    fn view(a: bool, b: bool) -> PerSlot<SlotView> {
        PerSlot { a: SlotView { verifies: a, marker: None }, b: SlotView { verifies: b, marker: None } }
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
                    e.check = false;
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
        let pick = |a: &BootEnv, b: &BootEnv| BootEnv::pick([Some(a.clone()), Some(b.clone())]).unwrap().default;
        assert_eq!(pick(&old, &new), Slot::B);
        assert_eq!(pick(&new, &old), Slot::B);
        assert_eq!(pick(&old, &tie), Slot::A);
        assert_eq!(BootEnv::pick([None, Some(new.clone())]), Some(new));
        assert_eq!(BootEnv::pick([None, None]), None);
    }

    #[test]
    fn corners_of_the_rule() {
        use Slot::{A, B};
        use SlotState::{Bad, Empty, Good, Trial, Tried};
        let boot = |e: BootEnv, v: PerSlot<SlotView>| {
            let next = next_boot(Some(&e), &v);
            (next.slot, next.trial)
        };
        assert_eq!(boot(env(A, None, Good, Empty), view(true, false)), (Some(A), false));
        assert_eq!(boot(env(A, Some(B), Good, Trial), view(true, true)), (Some(B), true));
        assert_eq!(boot(env(A, Some(B), Good, Trial), view(true, false)), (Some(A), false));
        assert_eq!(boot(env(A, None, Good, Good), view(false, true)), (Some(B), false));
        assert_eq!(boot(env(A, None, Good, Tried), view(false, true)), (None, false));
        assert_eq!(boot(env(A, None, Bad, Good), view(true, true)), (Some(B), false));
        assert_eq!(boot(env(B, None, Good, Good), view(true, true)), (Some(B), false));
        assert_eq!(boot(BootEnv { check: false, ..env(A, None, Good, Empty) }, view(false, false)), (Some(A), false));
    }

    #[test]
    fn without_boot_env_the_markers_decide() {
        let marker = |seq| Some(Marker { state: SlotState::Good, seq });
        let mut v = view(true, true);
        assert_eq!(next_boot(None, &v).slot, Some(Slot::A));
        v.b.marker = marker(3);
        assert_eq!(next_boot(None, &v).slot, Some(Slot::B));
        v.a.marker = marker(4);
        assert_eq!(next_boot(None, &v).slot, Some(Slot::A));
        v.a.verifies = false;
        assert_eq!(next_boot(None, &v).slot, Some(Slot::B));
        v.b.verifies = false;
        assert_eq!(next_boot(None, &v).slot, None);
    }
}
