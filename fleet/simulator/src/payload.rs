//! The payloads of a rollout.

use slipway_core::digest::Sha256;

/// The first payload.
pub const OLD: Sha256 = Sha256([1; 32]);
/// The payload of the rollout.
pub const NEW: Sha256 = Sha256([2; 32]);
