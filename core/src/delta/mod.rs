//! Delta upgrades: which parts of a layer a machine has already, and which it fetches.
//!
//! * [`cutter`]: where a file is cut into chunks. The same content is cut at the same places, wherever it lies
//! * [`index`]: the chunks of a layer, as the producer of an image lists them
//! * [`reuse`]: which chunk is taken from which place, and that no place is read that was written before
//!
//! An index is only a hint. Its users compare the digests of the layer and of its files as without one, so that a
//! wrong index wastes traffic and does no other harm.

pub mod cutter;
pub mod index;
pub mod reuse;
