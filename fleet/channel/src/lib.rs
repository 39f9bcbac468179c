//! Channels of a fleet: which image is the newest that may be used, and, of each other one, why not.
//!
//! ```text
//! registry ─► discover ─► candidates ─┐
//!                        spec, source ┼─► choose ─► chosen, floors, and why no other ─► next for a node
//!                                 now ┘
//! ```
//!
//! * [`spec`]: what a channel is, as people write it
//! * [`candidate`]: an image that was found, and what it says of itself
//! * [`choose`]: the choice; no I/O, no clock
//! * [`why`]: why an image was not chosen, as a sentence
//! * [`next`](choose::Choice::next): what a node that runs something older gets, floor by floor
//! * [`discover`]: looks into a registry, by the installer's own way

pub mod candidate;
pub mod choose;
pub mod discover;
pub mod pattern;
pub mod spec;
pub mod why;
