//! What requests have in common: where the installer runs, and who asks for what disk.

use crate::prelude::*;

use super::{Asked, SystemFacts};
use crate::{boot::slot::Slot, media::medium_id::MediumId};

/// Place that the installer runs from. It decides the slot that an upgrade keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsFrom {
    /// On this disk. The running slot is kept.
    Inside,
    /// On a live medium. The slot that boots by default is kept, and boot.env records the medium if it has an ID.
    Medium(Option<MediumId>),
    /// Anywhere, and nothing runs from this disk. The slot that boots by default is kept.
    Offline,
}

impl RunsFrom {
    /// The slot to keep, if that is known.
    pub fn kept(self, system: &SystemFacts) -> Option<Slot> {
        match self {
            RunsFrom::Inside => system.running.slot(),
            RunsFrom::Medium(_) | RunsFrom::Offline => system.env.as_ref().map(|env| env.default),
        }
    }

    pub(super) const fn medium(self) -> Option<MediumId> {
        match self {
            RunsFrom::Inside | RunsFrom::Offline => None,
            RunsFrom::Medium(id) => id,
        }
    }
}

/// The part that every request carries.
#[derive(Clone, Debug)]
pub struct RequestBase {
    /// Path of the disk, for people.
    pub disk: String,
    /// Seconds since 1970 UTC.
    pub now: u64,
    /// For the history.
    pub asked: Asked,
}
