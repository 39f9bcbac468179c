//! The two slots and their states.

use core::{fmt, ops::Not, str::FromStr};

/// Slot A or B: the partition BOOT-A or BOOT-B with its content. `!slot` is the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub enum Slot {
    /// BOOT-A, partition 3.
    A,
    /// BOOT-B, partition 4.
    B,
}

impl Slot {
    /// Both slots in order.
    pub const BOTH: [Slot; 2] = [Slot::A, Slot::B];
}

impl Not for Slot {
    type Output = Slot;
    fn not(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Slot::A => "A",
            Slot::B => "B",
        })
    }
}

impl FromStr for Slot {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "A" => Ok(Slot::A),
            "B" => Ok(Slot::B),
            _ => Err(()),
        }
    }
}

/// The state of a slot in boot.env.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "data", serde(rename_all = "lowercase"))]
pub enum SlotState {
    /// Holds nothing bootable, or is being written.
    Empty,
    /// Written and verified: may be tried once.
    // boot.env and reports call it so.
    #[cfg_attr(feature = "data", serde(rename = "trial"))]
    Untried,
    /// The boot loader started the trial; not confirmed, or not yet.
    Tried,
    /// Freshly installed, or confirmed by the running system.
    Good,
    /// Its trial failed.
    Bad,
}

impl SlotState {
    const NAMES: [(SlotState, &'static str); 5] = [
        (SlotState::Empty, "empty"),
        (SlotState::Untried, "trial"),
        (SlotState::Tried, "tried"),
        (SlotState::Good, "good"),
        (SlotState::Bad, "bad"),
    ];

    /// The state in a word for people; its name is for files and programs.
    pub const fn plain(self) -> &'static str {
        match self {
            SlotState::Empty => "empty",
            SlotState::Untried => "untried",
            SlotState::Tried => "unconfirmed",
            SlotState::Good => "good",
            SlotState::Bad => "given up",
        }
    }
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(state, _)| state == self);
        f.write_str(name.map_or("?", |(_, name)| name))
    }
}

impl FromStr for SlotState {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        let state = Self::NAMES.iter().find(|(_, name)| *name == s);
        state.map(|(state, _)| *state).ok_or(())
    }
}

/// A value for each slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct PerSlot<T> {
    /// Value of slot A.
    #[cfg_attr(feature = "data", serde(rename = "A"))]
    pub a: T,
    /// Value of slot B.
    #[cfg_attr(feature = "data", serde(rename = "B"))]
    pub b: T,
}

impl<T> PerSlot<T> {
    /// Make the value of each slot.
    pub fn new(mut make: impl FnMut(Slot) -> T) -> Self {
        PerSlot { a: make(Slot::A), b: make(Slot::B) }
    }
}

impl<T> core::ops::Index<Slot> for PerSlot<T> {
    type Output = T;
    fn index(&self, slot: Slot) -> &T {
        match slot {
            Slot::A => &self.a,
            Slot::B => &self.b,
        }
    }
}

impl<T> core::ops::IndexMut<Slot> for PerSlot<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        match slot {
            Slot::A => &mut self.a,
            Slot::B => &mut self.b,
        }
    }
}
