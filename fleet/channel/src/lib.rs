//! Channels of a fleet: which image is the newest that may be used, and, of each other one, why not.
//!
//! ```text
//! registry ─► discover ─► candidates ─┐
//!                        spec, source ┼─► choose ─► chosen, floors, and why no other ─► next for a node
//!                                 now ┘
//! ```
//!
//! * [`spec`]: what a channel is, as people write it
//! * [`candidate`]: an image that was found, with its labels
//! * [`pattern`]: patterns of tags
//! * [`choose`]: the choice; no I/O, no clock
//! * [`refusal`]: why an image was not chosen, as a sentence
//! * [`next`](choose::Choice::next): what a node that runs something older gets, floor by floor
//! * `discover`: lists the images of a repository with the installer's client (feature `registry`)
//! * `payload`: which payload is in an image (feature `registry`)
//! * [`signature_demand`]: whose signatures a channel demands
//! * `signature_lookup`: who has signed an image (feature `registry`)
//! * `lookup`: one lookup: the images, with signatures and payloads of those that may be chosen (feature `registry`)

pub mod candidate;
pub mod choose;
#[cfg(feature = "registry")]
pub mod discover;
#[cfg(feature = "registry")]
pub mod lookup;
pub mod pattern;
#[cfg(feature = "registry")]
pub mod payload;
pub mod refusal;
pub mod signature_demand;
#[cfg(feature = "registry")]
pub mod signature_lookup;
pub mod spec;
