//! Decision of firmware with Secure Boot about a program: db lets it start, and dbx does not forbid it (UEFI 2.10,
//! section 32.5.3.3), as far as SHA-256 and RSA go. Undecidable cases are refused.

use crate::prelude::*;

use super::{
    certificate::Certificate,
    claim::Verifier,
    pe::{Pe, PeError},
    signature::Signed,
    signature_list::{Entry, Signature},
    variable::Variable,
};
use crate::digest::Sha256;

// Limit of the certificates between a signer and the one that is trusted. Real ones have one or two.
const MAX_CHAIN: usize = 4;

/// Why a program does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Firmware and Slipway may hash it differently, so nothing can be said.
    #[error("it cannot be judged: {0}")]
    Program(#[from] PeError),
    /// dbx has something that is not known here.
    #[error("dbx has entries that Slipway cannot read, and one may forbid it")]
    UnknownRevocation,
    /// It has no signature, and db does not have its digest.
    #[error("it is not signed")]
    Unsigned,
    /// Nothing in db is behind any of its signatures.
    #[error("no certificate in db is behind its signature")]
    OthersKey,
    /// dbx has its digest.
    #[error("dbx forbids it")]
    Forbidden,
    /// dbx has a certificate of its signer.
    #[error("dbx forbids what its signer has signed")]
    SignerForbidden,
}

/// Content of one of the two variables.
#[derive(Clone, Debug, Default)]
pub struct Database {
    certificates: Vec<Certificate>,
    programs: Vec<Sha256>,
    revoked: Vec<Sha256>,
    unknown: bool,
}

impl Database {
    /// Collects all entries of this variable.
    pub fn from_entries(variable: Variable, entries: &[Entry]) -> Self {
        let mut database = Database::default();
        for Entry { signature, .. } in entries {
            match signature {
                Signature::Program(digest) => database.programs.push(*digest),
                Signature::RevokedCertificate(digest) if variable == Variable::Dbx => database.revoked.push(*digest),
                Signature::Certificate(_) => match signature.certificate() {
                    Some(certificate) => database.certificates.push(certificate),
                    None => database.unknown = true,
                },
                Signature::RevokedCertificate(_) | Signature::Other(_) => database.unknown = true,
            }
        }
        database
    }

    /// For a missing variable: something in it may be unknown.
    pub fn unreadable() -> Self {
        Database { unknown: true, ..Database::default() }
    }

    /// Whether one of its certificates is this one, or has signed it, or has signed one that has.
    pub fn is_behind(&self, signer: &Certificate, others: &[Certificate], verify: Verifier<'_>) -> bool {
        self.leads_here(signer, others, verify, MAX_CHAIN)
    }

    fn leads_here(&self, signer: &Certificate, others: &[Certificate], verify: Verifier<'_>, left: usize) -> bool {
        if self.certificates.contains(signer) || self.revoked.contains(&signer.signed_digest()) {
            return true;
        }
        let issued = |issuer: &Certificate| signer.signed_by(issuer).is_some_and(|claim| verify(&claim));
        let further = |issuer: &&Certificate| left > 0 && *issuer != signer && issued(issuer);
        self.certificates.iter().any(issued)
            || others.iter().filter(further).any(|issuer| self.leads_here(issuer, others, verify, left - 1))
    }
}

/// Why a program does not start with these two in force, if that is certain.
pub fn surely_refused(program: &[u8], db: &Database, dbx: &Database, verify: Verifier<'_>) -> Option<Distrust> {
    match judge(program, db, dbx, verify) {
        Ok(()) | Err(Distrust::Program(_) | Distrust::UnknownRevocation) => None,
        // What cannot be read in db may be behind its signature.
        Err(Distrust::OthersKey) if db.unknown => None,
        Err(why) => Some(why),
    }
}

/// Decides whether a program would start with these two in force.
pub fn judge(program: &[u8], db: &Database, dbx: &Database, verify: Verifier<'_>) -> Result<(), Distrust> {
    if dbx.unknown {
        return Err(Distrust::UnknownRevocation);
    }
    let pe = Pe::parse(program)?;
    let digest = pe.digest();
    if dbx.programs.contains(&digest) {
        return Err(Distrust::Forbidden);
    }
    if db.programs.contains(&digest) {
        return Ok(());
    }
    let signatures = pe.signatures()?;
    let mut result = Err(if signatures.is_empty() { Distrust::Unsigned } else { Distrust::OthersKey });
    for signed in signatures.into_iter().filter_map(Signed::parse).filter(|signed| signed.program() == Some(digest)) {
        for signer in signed.signers(None, verify) {
            if dbx.is_behind(signer, signed.certificates(), verify) {
                return Err(Distrust::SignerForbidden);
            }
            if db.is_behind(signer, signed.certificates(), verify) {
                result = Ok(());
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{super::pe::tests::program, *};

    #[test]
    fn what_is_not_certain_refuses_nothing() {
        let unsigned = program(&[(".text", b"code")]);
        let others = Pe::parse(&unsigned).unwrap().with_signature(b"of somebody").unwrap();
        let entry = |signature| Entry { owner: Uuid::nil(), signature };
        let with = |variable, signature| Database::from_entries(variable, &[entry(signature)]);
        let (known, none) = (with(Variable::Db, Signature::Program(Sha256::of(b"another"))), Database::default());
        let refused = |program: &[u8], db: &Database, dbx: &Database| surely_refused(program, db, dbx, &|_| false);
        assert_eq!(refused(&others, &known, &none), Some(Distrust::OthersKey));
        for signature in [Signature::Other(Uuid::nil()), Signature::Certificate(b"of another kind".to_vec())] {
            let db = with(Variable::Db, signature.clone());
            assert_eq!(refused(&others, &db, &none), None, "{signature:?} may be behind it");
            assert_eq!(refused(&unsigned, &db, &none), Some(Distrust::Unsigned));
            assert_eq!(refused(&unsigned, &known, &with(Variable::Dbx, signature)), None);
        }
        assert_eq!(refused(b"no program", &known, &none), None);
        let forbidden = with(Variable::Dbx, Signature::Program(Pe::parse(&others).unwrap().digest()));
        let unknown = with(Variable::Db, Signature::Other(Uuid::nil()));
        assert_eq!(refused(&others, &unknown, &forbidden), Some(Distrust::Forbidden));
    }
}
