//! Lists of signatures, as the variables of Secure Boot hold them: certificates and digests, and their owners
//! (EFI_SIGNATURE_LIST; UEFI 2.10, section 32.4.1).

use crate::prelude::*;

use uuid::{Uuid, uuid};

use super::certificate::Certificate;
use crate::{bytes::get_le32, digest::Sha256};

const X509: Uuid = uuid!("a5c059a1-94e4-4aa7-87b5-ab155c2bf072");
const DIGEST: Uuid = uuid!("c1c41626-504c-4092-aca9-41f936934328");
const CERTIFICATE_DIGEST: Uuid = uuid!("3bd2a492-96c0-4079-b420-fcf98ef103ed");

const GUID_BYTES: usize = 16;
const LIST_BYTES: usize = GUID_BYTES + 3 * 4;
// Time of revocation, behind a revoked certificate's digest.
const TIME_BYTES: usize = 16;

/// Certificate or digest of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// An X.509 certificate, DER.
    Certificate(Vec<u8>),
    /// A program, by its Authenticode digest.
    Program(Sha256),
    /// A certificate, by the digest of its signed part. Only dbx has such.
    RevokedCertificate(Sha256),
    /// Something else, such as a digest of another kind.
    Other(Uuid),
}

/// An entry of a list, with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As the list says; it is not verified.
    pub owner: Uuid,
    /// Its certificate or digest.
    pub signature: Signature,
}

/// Why bytes are no lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("list {number} of its signatures is cut short, or its sizes contradict each other")]
pub struct ListError {
    /// Its number, from 1.
    pub number: usize,
}

/// All entries of the lists in a variable, in their order.
pub fn parse(mut bytes: &[u8]) -> Result<Vec<Entry>, ListError> {
    let mut entries = Vec::new();
    for number in 1.. {
        if bytes.is_empty() {
            break;
        }
        let (found, rest) = first(bytes).ok_or(ListError { number })?;
        entries.extend(found);
        bytes = rest;
    }
    Ok(entries)
}

/// The entries of the first list, and the lists behind it.
fn first(bytes: &[u8]) -> Option<(Vec<Entry>, &[u8])> {
    let kind = guid(bytes)?;
    let [list, header, entry] = [0, 4, 8].map(|at| number(bytes, GUID_BYTES + at));
    let (list, header, entry) = (list?, header?, entry?);
    let (list, rest) = bytes.split_at_checked(list)?;
    let body = list.get(LIST_BYTES..)?.get(header..)?;
    if entry <= GUID_BYTES || body.is_empty() || body.len() % entry != 0 {
        return None;
    }
    let entries = body.chunks_exact(entry).map(|entry| {
        let content = &entry[GUID_BYTES..];
        Some(Entry { owner: guid(entry)?, signature: signature(kind, content)? })
    });
    Some((entries.collect::<Option<_>>()?, rest))
}

fn signature(kind: Uuid, content: &[u8]) -> Option<Signature> {
    let digest = |bytes: &[u8]| Some(Sha256(bytes.try_into().ok()?));
    Some(match kind {
        X509 => Signature::Certificate(content.to_vec()),
        DIGEST => Signature::Program(digest(content)?),
        CERTIFICATE_DIGEST => {
            Signature::RevokedCertificate(digest(content.get(..content.len().checked_sub(TIME_BYTES)?)?)?)
        }
        other => Signature::Other(other),
    })
}

/// A list with one certificate of this `owner`.
pub fn certificate_list(certificate: &[u8], owner: Uuid) -> Vec<u8> {
    list(X509, owner, &[certificate])
}

/// A list of programs, by their Authenticode digests.
pub fn digest_list(digests: &[Sha256], owner: Uuid) -> Vec<u8> {
    list(DIGEST, owner, &digests.iter().map(|digest| &digest.0[..]).collect::<Vec<_>>())
}

// All entries of a list are of one size.
fn list(kind: Uuid, owner: Uuid, entries: &[&[u8]]) -> Vec<u8> {
    let entry = GUID_BYTES + entries.first().map_or(0, |entry| entry.len());
    let mut bytes = kind.to_bytes_le().to_vec();
    for number in [LIST_BYTES + entries.len() * entry, 0, entry] {
        bytes.extend((number as u32).to_le_bytes());
    }
    for content in entries {
        bytes.extend(owner.to_bytes_le());
        bytes.extend_from_slice(content);
    }
    bytes
}

impl Signature {
    /// The certificate in it, if it is one that firmware can verify by.
    pub fn certificate(&self) -> Option<Certificate> {
        match self {
            Signature::Certificate(der) => Certificate::parse(der).ok(),
            _ => None,
        }
    }
}

fn guid(bytes: &[u8]) -> Option<Uuid> {
    Some(Uuid::from_bytes_le(bytes.get(..GUID_BYTES)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(get_le32(bytes, at)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Uuid = uuid!("01020304-0506-0708-090a-0b0c0d0e0f10");

    #[test]
    fn lists_have_the_sizes_of_the_specification() {
        let digests = digest_list(&[Sha256::of(b"a"), Sha256::of(b"b")], OWNER);
        assert_eq!(digests.len(), 28 + 2 * 48);
        assert_eq!(digests[16..28], [124, 0, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0]);
        assert_eq!(digests[28..36], [4, 3, 2, 1, 6, 5, 8, 7]);
        assert_eq!(digests[44..76], Sha256::of(b"a").0);
        assert_eq!(certificate_list(&[7; 100], OWNER)[16..28], [144, 0, 0, 0, 0, 0, 0, 0, 116, 0, 0, 0]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let [a, b] = [b"a", b"b"].map(|text| Sha256::of(text));
        let revoked = list(CERTIFICATE_DIGEST, OWNER, &[&[&a.0[..], &[0; 16]].concat()]);
        let other = list(OWNER, OWNER, &[&[1, 2, 3]]);
        let all = [certificate_list(&[7; 100], OWNER), digest_list(&[a, b], OWNER), revoked, other].concat();
        let found: Vec<_> = parse(&all).unwrap().into_iter().map(|entry| entry.signature).collect();
        let expected = [
            Signature::Certificate(vec![7; 100]),
            Signature::Program(a),
            Signature::Program(b),
            Signature::RevokedCertificate(a),
            Signature::Other(OWNER),
        ];
        assert_eq!(found, expected);
        assert_eq!(parse(&[]), Ok(vec![]));
        // The second list lacks a byte.
        let cut = certificate_list(&[7; 100], OWNER).len() + 100;
        assert_eq!(parse(&all[..cut]), Err(ListError { number: 2 }));
    }

    #[test]
    fn sizes_that_contradict_each_other_are_refused() {
        let good = digest_list(&[Sha256::of(b"a")], OWNER);
        // Size of the list, of its header, of an entry.
        for (at, value) in [(16, 0), (16, 27), (16, 77), (20, 49), (20, 48), (24, 0), (24, 16), (24, 47)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(parse(&bad), Err(ListError { number: 1 }), "{at} {value}");
        }
        // A digest of another length.
        assert_eq!(parse(&list(DIGEST, OWNER, &[&[1; 20]])), Err(ListError { number: 1 }));
    }
}
