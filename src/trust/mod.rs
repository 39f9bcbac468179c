//! Signatures of payloads: the signers and the signed bytes, and whether they are enough.
//!
//! The sources bring the evidence ([`Evidence`]: the very bytes that are then used, and the signatures that lie beside
//! them), the caller brings the demands ([`Requirement`]), and [`check()`] compares the two. Nothing here reads a
//! payload. [`SigningKey`] makes signatures. The cryptography is `ring`'s.

mod attestation;
pub mod bundle;
mod certificate;
mod check;
pub mod claim;
mod der;
mod evidence;
mod key;
mod signing;
pub mod simple_signing;

pub use attestation::{PredicateType, bundle as bundle_of, statement};
pub use bundle::attested;
pub use certificate::{Validity, validity};
pub use check::{Requirement, TrustError, check, found};
pub use evidence::{Attached, Evidence, Form};
pub use key::{KeyError, Kind, PublicKey, text_of};
pub use signing::{SigningError, SigningKey, SigningKeyError};
pub use simple_signing::MEDIA_TYPE as SIMPLE_SIGNING;
