//! Changes of the variables of Secure Boot, as they are read: the files called `.auth`.

use crate::prelude::*;

use super::{
    certificate::Certificate,
    claim::Verifier,
    database::Database,
    signature::Signed,
    signature_list::{self, Entry, ListError, Signature},
    variable::{self, Variable},
};

/// Why a file is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// It is something else.
    #[error("it is no change of a variable of Secure Boot (EFI_VARIABLE_AUTHENTICATION_2)")]
    Malformed,
    /// Its content for the variable cannot be read.
    #[error("it is a change of a variable, but {0}")]
    Lists(#[from] ListError),
    /// It would empty the variable.
    #[error("it holds no signatures: it would empty the variable")]
    Empty,
    /// It needs one certificate.
    #[error("it holds {0} signatures, and PK has one certificate")]
    NotOne(usize),
    /// Firmware cannot verify by its content.
    #[error("a certificate in it cannot be used: its key is not RSA of 2048 to 4096 bits")]
    Unusable,
    /// No key that the firmware would ask for has signed it.
    #[error("it is not signed for {name}, or by none of {by}")]
    Signature {
        /// The variable.
        name: &'static str,
        /// The signer that firmware would accept.
        by: &'static str,
    },
}

/// Change of a variable, as a file holds it.
#[derive(Clone, Debug)]
pub struct Auth {
    /// The variable.
    pub variable: Variable,
    /// The whole file, as firmware takes it.
    pub file: Vec<u8>,
    /// The lists, as the variable holds them afterwards.
    pub content: Vec<u8>,
    /// The entries of its lists.
    pub entries: Vec<Entry>,
    signed: Signed,
    message: Vec<u8>,
}

impl Auth {
    /// Read a file. Its signature is not looked at yet.
    pub fn parse(variable: Variable, file: &[u8]) -> Result<Self, AuthError> {
        let variable::Parts { time, signed, content } = variable::split(file).ok_or(AuthError::Malformed)?;
        let signed = Signed::parse(signed).ok_or(AuthError::Malformed)?;
        let entries = signature_list::parse(content)?;
        if entries.is_empty() {
            return Err(AuthError::Empty);
        }
        if entries
            .iter()
            .any(|e| matches!(e.signature, Signature::Certificate(_)) && e.signature.certificate().is_none())
        {
            return Err(AuthError::Unusable);
        }
        let message = variable.message(false, time, content);
        Ok(Auth { variable, file: file.to_vec(), content: content.to_vec(), entries, signed, message })
    }

    /// The certificates in it.
    pub fn certificates(&self) -> Vec<Certificate> {
        self.entries.iter().filter_map(|entry| entry.signature.certificate()).collect()
    }

    fn is_signed_by(&self, by: &Database, verify: Verifier<'_>) -> bool {
        let signers = self.signed.signers(Some(&self.message), verify);
        signers.into_iter().any(|signer| by.is_behind(signer, self.signed.certificates(), verify))
    }
}

/// The three files of an enrolment.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "they are what their names say")]
pub struct KeySet {
    pub pk: Auth,
    pub kek: Auth,
    pub db: Auth,
}

impl KeySet {
    /// Checks that firmware that holds these keys would have taken these changes: PK signed by itself, KEK by PK, db by
    /// KEK or PK. In setup mode firmware asks for the first alone.
    pub fn check(&self, verify: Verifier<'_>) -> Result<(), (Variable, AuthError)> {
        let KeySet { pk, kek, db } = self;
        let own = pk.certificates();
        if own.len() != 1 || pk.entries.len() != 1 {
            return Err((Variable::Pk, AuthError::NotOne(pk.entries.len())));
        }
        let owner = Database::from_entries(Variable::Pk, &pk.entries);
        let either = Database::from_entries(Variable::Kek, &[&pk.entries[..], &kek.entries].concat());
        let checks = [(pk, &owner, "its own certificate"), (kek, &owner, "PK"), (db, &either, "KEK and PK")];
        match checks.into_iter().find(|(auth, by, _)| !auth.is_signed_by(by, verify)) {
            None => Ok(()),
            Some((auth, _, by)) => Err((auth.variable, AuthError::Signature { name: auth.variable.name(), by })),
        }
    }

    /// In the order in which they are written. Without PK a machine stays in setup mode, in which everything may be
    /// written again. So PK is the last one.
    pub const fn in_order(&self) -> [&Auth; 3] {
        [&self.db, &self.kek, &self.pk]
    }
}
