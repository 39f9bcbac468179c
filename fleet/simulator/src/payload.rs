//! The payloads of a rollout.

use slipway_core::digest::Sha256;

/// What runs at first.
pub const OLD: Sha256 = Sha256([1; 32]);
/// What is rolled out.
pub const NEW: Sha256 = Sha256([2; 32]);
