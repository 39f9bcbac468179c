//! Signatures of payloads: who has signed what, and whether that is enough.
//!
//! The sources bring the evidence ([`Evidence`]: the very bytes that are then used, and the signatures that lie beside
//! them), the caller says what is demanded ([`Requirement`]), and [`check()`] compares the two. Nothing here reads a
//! payload. The cryptography is `ring`'s.

pub mod bundle;
mod certificate;
mod check;
mod evidence;
pub mod key;
pub mod simple_signing;

pub use bundle::attested;
pub use certificate::{Time, Validity, validity};
pub use check::{Requirement, TrustError, check, found};
pub use evidence::{Attached, Evidence, Form};
pub use key::{KeyError, Kind, PublicKey, text_of};
pub use simple_signing::MEDIA_TYPE as SIMPLE_SIGNING;

use ring::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
};
use slipway_core::efi::claim::{Claim, Hash};

/// Whether the key has signed the claim. Firmware would verify it by this key.
pub fn is_signed(claim: &Claim<'_>) -> bool {
    let algorithm = match claim.hash {
        Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        Hash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        Hash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
    };
    UnparsedPublicKey::new(algorithm, claim.key).verify(claim.message, claim.signature).is_ok()
}
