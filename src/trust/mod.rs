//! Signatures of payloads: verified by `slipway-payload`, and made here. [`SigningKey`] makes them.

mod attestation;
mod signing;

pub use attestation::{PredicateType, bundle as bundle_of, statement};
pub use signing::{SigningError, SigningKey, SigningKeyError};
pub use slipway_payload::trust::*;
