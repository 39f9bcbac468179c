//! Structures that a disk has twice, and the loss of one, in the same words for every verb.

use core::fmt;

use super::{chain::CHAIN, fat::copies::LostSector};

/// Names of the two copies.
pub const WHICH: [&str; 2] = ["first", "second"];

/// What is lost, as a sentence without its place and its remedy. Copies are counted from 0.
#[derive(Clone, Copy, Debug)]
pub enum Loss<'a> {
    /// A copy of boot.env.
    BootState(usize),
    /// A copy of META.
    Meta(usize),
    /// A copy of the FAT of the ESP.
    Fat(usize),
    /// Both copies of that, each in part.
    Fats,
    /// A sector at the beginning of the ESP.
    Sector(&'a LostSector),
    /// The list of the boot chain.
    Chain,
}

impl fmt::Display for Loss<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Loss::BootState(copy) => write!(f, "the {} copy of the boot state is lost or damaged", WHICH[copy]),
            Loss::Meta(copy) => write!(f, "the {} copy of META is not valid", WHICH[copy]),
            Loss::Fat(copy) => write!(f, "the {} FAT of the ESP is damaged", WHICH[copy]),
            Loss::Fats => f.write_str("by neither of the two FATs of the ESP every file is whole"),
            Loss::Sector(lost) => write!(f, "{} of the ESP is damaged", lost.what),
            Loss::Chain => write!(f, "{CHAIN} is missing from the ESP"),
        }
    }
}
