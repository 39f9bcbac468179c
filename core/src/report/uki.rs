//! The answers of `uki` and `keys`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{digest::Sha256, text::printable, units::approx};

/// The image that `uki` made.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct UkiReport {
    /// Path of the file.
    pub out: String,
    pub file_bytes: u64,
    /// Digest of the file.
    pub sha256: Sha256,
    /// The digest that signatures are over and that dbx takes. A signature does not change it.
    pub authenticode: Sha256,
    /// The certificate of the key that signed: SHA-256 of its DER form. None if it is unsigned.
    pub signed_by: Option<Sha256>,
    /// All parts of the program, in their order.
    pub sections: Vec<UkiPart>,
    /// Its contents; none for a program that was only signed.
    pub system: Option<UkiSystem>,
}

/// A section of a program.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UkiPart {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The contents of a UKI.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct UkiSystem {
    pub version: Option<String>,
    /// Digest that names the payload's files.
    pub payload: Sha256,
    /// The version of systemd that the stub is from.
    pub stub: Option<String>,
    pub cmdline: String,
    /// PCR 11 (bank SHA-256) when the stub starts the kernel; none if it cannot be told.
    pub pcr11: Option<Sha256>,
    /// After which phases a signed policy lets PCR 11 be. Empty without a key for that.
    pub pcr_phases: Vec<String>,
}

impl fmt::Display for UkiReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = if f.alternate() { self.file_bytes.to_string() } else { approx(self.file_bytes) };
        writeln!(f, "made     {}, {size}", printable(&self.out))?;
        if let Some(system) = &self.system {
            writeln!(f, "version  {}", printable(system.version.as_deref().unwrap_or("-")))?;
            writeln!(f, "payload  {}", system.payload)?;
            writeln!(f, "stub     systemd {}", printable(system.stub.as_deref().unwrap_or("-")))?;
            writeln!(f, "cmdline  {}", printable(&system.cmdline))?;
            if let Some(value) = system.pcr11 {
                writeln!(f, "pcr 11   {value}")?;
            }
            for phases in &system.pcr_phases {
                writeln!(f, "policy   {}", if phases.is_empty() { "before any phase" } else { phases })?;
            }
        }
        writeln!(f, "digest   {}", self.authenticode)?;
        match self.signed_by {
            Some(certificate) => write!(f, "signed   by the key of certificate {certificate}"),
            None => f.write_str("signed   no: with Secure Boot it does not start"),
        }
    }
}

/// The keys and files that `keys` made.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeysReport {
    /// The directory.
    pub dir: String,
    /// The certificate that the variables name: SHA-256 of its DER form.
    pub certificate: Sha256,
    /// Who has put it there, as the variables say.
    #[schemars(with = "String")]
    pub owner: Uuid,
    /// Files that were written.
    pub written: Vec<String>,
}

impl fmt::Display for KeysReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "certificate  {}", self.certificate)?;
        writeln!(f, "owner        {}", self.owner)?;
        write!(f, "wrote        {} in {}", self.written.join(", "), printable(&self.dir))
    }
}
