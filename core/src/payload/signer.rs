//! Who has signed a payload.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{digest::Sha256, text::printable};

/// A valid signature by a trusted key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Signer {
    /// Names the key: SHA-256 of its SubjectPublicKeyInfo in DER.
    pub key: Sha256,
    /// The file that the key was read from.
    pub name: String,
    /// What is signed: the digest of the container image, or that of the file SHA256SUMS.
    pub over: Sha256,
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signed by {} (key {})", printable(&self.name), self.key)
    }
}
