//! What stands on the medium, and nothing else: both copies of boot.env, and what is in the slots.

use std::hash::{Hash, Hasher};

use slipway_core::boot::{
    env::{BootEnv, Marker},
    slot::{PerSlot, Slot, SlotState},
};

/// Payloads there are: from one to the other and back is all that upgrades can do.
pub const PAYLOADS: u8 = 2;

/// The copies of boot.env; `None` where a copy is lost.
pub type Copies = [Option<BootEnv>; 2];

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// No file system.
    Blank,
    /// Half of something: files may be found in it, no kernel that verifies.
    Torn,
    /// A payload.
    Payload(u8, Damage),
}

/// The fault of a payload in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// Nothing.
    None,
    /// GRUB sees it.
    Kernel,
    /// Only who reads every file sees it.
    Rootfs,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InSlot {
    pub content: Content,
    /// Its own marker.
    pub marker: Option<Marker>,
    /// What nothing on the medium knows for sure: this very content was confirmed from inside, or installed fresh.
    pub confirmed: bool,
}

impl InSlot {
    pub const BLANK: InSlot = InSlot { content: Content::Blank, marker: None, confirmed: false };

    pub fn payload(&self) -> Option<u8> {
        match self.content {
            Content::Payload(n, _) => Some(n),
            _ => None,
        }
    }

    /// Every file is what it was when it was written.
    pub fn whole(&self) -> bool {
        matches!(self.content, Content::Payload(_, Damage::None))
    }

    /// Whole, and known to work: what a machine may be left with.
    pub fn sound(&self) -> bool {
        self.whole() && self.confirmed
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Medium {
    pub copies: Copies,
    pub slots: PerSlot<InSlot>,
}

impl Medium {
    /// As an install leaves it, but for the number at which boot.env begins to count.
    pub fn installed(seq: u64) -> Self {
        let env = plain(&BootEnv { seq, ..BootEnv::installed(0) });
        let marker = Some(Marker { state: SlotState::Good, seq });
        let a = InSlot { content: Content::Payload(0, Damage::None), marker, confirmed: true };
        Medium { copies: [Some(env.clone()), Some(env)], slots: PerSlot { a, b: InSlot::BLANK } }
    }
}

/// Without what decides nothing here: times, the last trial, GRUB's mark, and payloads that came back, which are tried
/// again.
pub fn plain(env: &BootEnv) -> BootEnv {
    BootEnv { since: PerSlot::default(), last_trial: None, refused: None, bad: vec![], ..env.clone() }
}

impl Hash for Medium {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.copies.iter().for_each(|copy| copy.as_ref().map(code).hash(state));
        for slot in Slot::BOTH {
            let InSlot { content, marker, confirmed } = &self.slots[slot];
            (content, marker.as_ref().map(|m| (m.state as u8, m.seq)), confirmed).hash(state);
        }
    }
}

/// A boot.env as a value that can be hashed.
pub fn code(env: &BootEnv) -> (u64, [u8; 5]) {
    let once = env.once.map_or(2, |slot| slot as u8);
    let format = u8::from(env.format_ephemeral);
    (env.seq, [env.default as u8, once, env.states.a as u8, env.states.b as u8, format])
}
