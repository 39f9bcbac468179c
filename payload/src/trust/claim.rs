//! Checks that a key has signed a claim that firmware would verify by it.

use ring::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
};
use slipway_core::efi::claim::{Claim, Hash};

pub fn is_true(claim: &Claim<'_>) -> bool {
    let algorithm = match claim.hash {
        Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        Hash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        Hash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
    };
    UnparsedPublicKey::new(algorithm, claim.key).verify(claim.message, claim.signature).is_ok()
}
