//! Signers of a payload.

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
    /// The signed digest: that of the container image, or that of the file SHA256SUMS.
    pub over: Sha256,
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signed by {} (key {})", printable(&self.name), self.key)
    }
}

/// A signature that lies beside a payload. Unless one of the keys made it, its signer is unknown: signatures do not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FoundSignature {
    /// Where: a file, or the layer of a manifest.
    pub place: String,
    /// `checksums` (over SHA256SUMS), `simple-signing` or `bundle`.
    pub form: String,
    /// Those of the named keys that made it. `null`: none was named, so it was not verified.
    pub made_by: Option<Vec<Sha256>>,
    /// Why it does not count, by any key: an attestation, one of another image, or one out of the time of its certificate.
    pub problem: Option<String>,
}

impl fmt::Display for FoundSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): ", printable(&self.place), printable(&self.form))?;
        match &self.made_by {
            None => f.write_str("not verified, no key is named")?,
            Some(keys) if keys.is_empty() => f.write_str("by none of the named keys")?,
            Some(keys) => {
                let keys: Vec<_> = keys.iter().map(Sha256::to_string).collect();
                write!(f, "by key {}", keys.join(", "))?;
            }
        }
        self.problem.iter().try_for_each(|problem| write!(f, "; {}", printable(problem)))
    }
}
