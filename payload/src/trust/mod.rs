//! Signatures of payloads: who has signed what, and whether that is enough.
//!
//! The sources bring the evidence ([`Evidence`]: the very bytes that are then used, and the signatures that lie beside
//! them), the caller says what is demanded ([`Requirement`]), and [`check()`] compares the two. Nothing here reads a
//! payload. The cryptography is `ring`'s.

pub mod bundle;
mod certificate;
mod check;
pub mod claim;
pub mod der;
mod evidence;
pub mod key;
pub mod simple_signing;

pub use bundle::attested;
pub use certificate::{Validity, validity};
pub use check::{Requirement, TrustError, check, found};
pub use evidence::{Attached, Evidence, Form};
pub use key::{KeyError, Kind, PublicKey, text_of};
pub use simple_signing::MEDIA_TYPE as SIMPLE_SIGNING;
