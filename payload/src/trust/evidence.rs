//! Evidence that a source has for a payload.

use std::sync::Arc;

use super::certificate::Validity;
use slipway_core::digest::Sha256;

/// The signatures that came with a payload, none of them verified.
#[derive(Debug)]
pub struct Evidence {
    /// The payload, for messages.
    pub place: String,
    /// For a container image: the digests by which a signature may name it, the named one first. Empty for a directory.
    pub images: Vec<Sha256>,
    /// Places that were searched for signatures, for messages.
    pub looked_for: String,
    pub signatures: Vec<Attached>,
    /// Documents there that could not be read, for messages. Other people may have put them there: they decide nothing.
    pub faults: Vec<String>,
    /// Why it is not known whether there is more: a registry has not answered.
    pub unanswered: Option<anyhow::Error>,
}

/// One signature with the signed bytes.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Its place, for messages.
    pub place: String,
    pub form: Form,
    /// The bytes that are signed.
    pub signed: Arc<[u8]>,
    /// Raw or in base64.
    pub signature: Vec<u8>,
    /// When it counts, if it came with a certificate.
    pub validity: Option<Validity>,
}

/// Kind of the signed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The SHA256SUMS of the payload, the very bytes that its files are then compared with.
    Sums,
    /// A document that names a container image (cosign's "simple signing").
    SimpleSigning,
    /// Such a document in a bundle: an in-toto statement with its type.
    Statement,
}

impl Form {
    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Sums => "checksums",
            Form::SimpleSigning => "simple-signing",
            Form::Statement => "bundle",
        }
    }
}
