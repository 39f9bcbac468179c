//! Parses Authenticode signatures: SignedData of PKCS #7 (RFC 2315), as far as firmware looks at it.

use crate::prelude::*;

use super::{
    certificate::Certificate,
    claim::{Claim, Hash, Verifier},
    der::{self, INTEGER, OCTET_STRING, SEQUENCE, SET},
    signed_data::{INDIRECT_DATA, MESSAGE_DIGEST, SHA256, SIGNED_DATA},
};
use crate::digest::Sha256;

/// A signature, and the certificates that came with it.
#[derive(Clone, Debug)]
pub struct Signed {
    certificates: Vec<Certificate>,
    /// The signed content, without tag and length, if it is in there.
    content: Option<Vec<u8>>,
    /// ContentType, whole.
    kind: Vec<u8>,
    signers: Vec<Signer>,
}

#[derive(Clone, Debug)]
struct Signer {
    /// IssuerAndSerialNumber, whole.
    name: Vec<u8>,
    /// Attributes that are signed in place of the content: a SET, whole.
    attributes: Option<Vec<u8>>,
    signature: Vec<u8>,
}

impl Signed {
    /// Read one that is hashed by SHA-256, alone or in a ContentInfo. Padding behind its end is passed over, as
    /// programs have it. Certificates that firmware cannot verify by are left out.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, _filling) = der::split(bytes, SEQUENCE)?;
        let body = match body.strip_prefix(SIGNED_DATA) {
            Some(wrapped) => der::only(der::only(wrapped, der::tagged(0))?, SEQUENCE)?,
            None => body,
        };
        let (_version, rest) = der::split(body, INTEGER)?;
        let (_algorithms, rest) = der::split(rest, SET)?;
        let (info, rest) = der::split(rest, SEQUENCE)?;
        let (kind, content) = der::split_whole(info)?;
        let content = match content {
            [] => None,
            wrapped => Some(der::split_whole(der::only(wrapped, der::tagged(0))?)?.0),
        };
        let content = content.map(without_header);
        let (certificates, rest) = der::split(rest, der::tagged(0)).unwrap_or((&[], rest));
        let rest = der::split(rest, der::tagged(1)).map_or(rest, |(_revoked, rest)| rest);
        let signers = each(der::only(rest, SET)?)?.into_iter().map(Signer::parse).collect::<Option<Vec<_>>>()?;
        Some(Signed {
            certificates: each(certificates)?.into_iter().filter_map(|der| Certificate::parse(der).ok()).collect(),
            content: content.map(<[u8]>::to_vec),
            kind: kind.to_vec(),
            signers,
        })
    }

    /// The certificates in it that firmware can verify by.
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// The digest of the program that it is for (Authenticode, SHA-256).
    pub fn program(&self) -> Option<Sha256> {
        let content = self.content.as_deref().filter(|_| self.kind == INDIRECT_DATA)?;
        let (_data, rest) = der::split(content, SEQUENCE)?;
        let (algorithm, rest) = der::split(der::only(rest, SEQUENCE)?, SEQUENCE)?;
        let digest = der::only(rest, OCTET_STRING)?;
        algorithm.starts_with(SHA256).then_some(())?;
        Some(Sha256(digest.try_into().ok()?))
    }

    /// The certificates whose keys have signed `bytes`, or, without them, the enclosed content.
    pub fn signers(&self, bytes: Option<&[u8]>, verify: Verifier<'_>) -> Vec<&Certificate> {
        let Some(content) = bytes.or(self.content.as_deref()) else { return vec![] };
        let signed = |certificate: &&Certificate| {
            let name = certificate.issuer_and_serial();
            self.signers.iter().any(|signer| signer.name == name && signer.has_signed(content, certificate, verify))
        };
        self.certificates.iter().filter(signed).collect()
    }
}

impl Signer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (_version, rest) = der::split(der::only(bytes, SEQUENCE)?, INTEGER)?;
        let (name, rest) = der::split_whole(rest)?;
        let (algorithm, rest) = der::split(rest, SEQUENCE)?;
        algorithm.starts_with(SHA256).then_some(())?;
        let (attributes, rest) = match der::split(rest, der::tagged(0)) {
            Some((attributes, rest)) => (Some(attributes), rest),
            None => (None, rest),
        };
        let (_encryption, rest) = der::split(rest, SEQUENCE)?;
        let (signature, _not_signed) = der::split(rest, OCTET_STRING)?;
        // The attributes are signed as a SET and carried with another tag.
        let attributes = attributes.map(|content| der::element(SET, &[content]));
        Some(Signer { name: name.to_vec(), attributes, signature: signature.to_vec() })
    }

    fn has_signed(&self, content: &[u8], certificate: &Certificate, verify: Verifier<'_>) -> bool {
        let key = certificate.rsa_public_key();
        let claim = |message| Claim { key, hash: Hash::Sha256, message, signature: &self.signature };
        match &self.attributes {
            None => verify(&claim(content)),
            Some(attributes) => names_digest(attributes, Sha256::of(content)) && verify(&claim(attributes)),
        }
    }
}

/// Whether the attributes say that the content has this digest.
fn names_digest(attributes: &[u8], digest: Sha256) -> bool {
    let digest = der::element(SET, &[der::element(OCTET_STRING, &[digest.0])]);
    let attribute = der::element(SEQUENCE, &[MESSAGE_DIGEST, &digest]);
    der::only(attributes, SET).and_then(each).is_some_and(|all| all.contains(&&attribute[..]))
}

/// All elements, each whole.
fn each(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (one, rest) = der::split_whole(bytes)?;
        found.push(one);
        bytes = rest;
    }
    Some(found)
}

/// The content of an element.
fn without_header(whole: &[u8]) -> &[u8] {
    whole.first().and_then(|tag| der::only(whole, *tag)).unwrap_or_default()
}
