//! The very certificate that was given as trusted, presented by a server. Its issuer and its other uses do not matter
//! then. Its time, its name and its key do.

use rustls::{
    CertificateError, DigitallySignedStruct, Error,
    client::verify_server_name,
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use slipway_core::efi::{
    certificate::Outline,
    der::{self, BIT_STRING, SEQUENCE, SET},
};

use crate::trust::{Validity, validity};

// Object identifiers, whole: commonName, subjectAltName.
const COMMON_NAME: &[u8] = b"\x06\x03\x55\x04\x03";
const ALTERNATIVE_NAME: &[u8] = b"\x06\x03\x55\x1d\x11";
const EXTENSIONS: u8 = der::tagged(3);

pub struct Named<'c> {
    certificate: &'c CertificateDer<'c>,
    outline: Outline<'c>,
    validity: Validity,
}

impl<'c> Named<'c> {
    /// `None`: it is no certificate.
    pub fn parse(certificate: &'c CertificateDer<'c>) -> Option<Self> {
        let outline = Outline::parse(certificate)?;
        Some(Named { certificate, outline, validity: validity(outline.validity)? })
    }

    /// Checks that it is for this name, and now.
    pub fn check(&self, name: &ServerName<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let (not_before, not_after) = (at(self.validity.not_before), at(self.validity.not_after));
        if now < not_before {
            return Err(CertificateError::NotValidYetContext { time: now, not_before });
        }
        if now > not_after {
            return Err(CertificateError::ExpiredContext { time: now, not_after });
        }
        let for_name = match has_alternative_name(self.outline.extensions) {
            true => ParsedCertificate::try_from(self.certificate).and_then(|cert| verify_server_name(&cert, name)),
            // As curl has it: the common name counts where there is no other.
            false if common_name(self.outline.subject).is_some_and(|own| own.eq_ignore_ascii_case(&name.to_str())) => {
                Ok(())
            }
            false => Err(CertificateError::NotValidForName.into()),
        };
        for_name.map_err(|error| match error {
            Error::InvalidCertificate(error) => error,
            _ => CertificateError::BadEncoding,
        })
    }

    /// Whether its key made this signature of a handshake. rustls does it for certificates that it reads, but it reads none
    /// of version 1.
    pub fn has_signed(
        &self,
        message: &[u8],
        signature: &DigitallySignedStruct,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> bool {
        let Some((algorithm, key)) = key_of(self.outline.info) else { return false };
        let of_scheme = algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signature.scheme);
        let mut of_key =
            of_scheme.flat_map(|(_, all)| *all).filter(|one| one.public_key_alg_id().as_ref() == algorithm);
        of_key.any(|one| one.verify_signature(key, message, signature.signature()).is_ok())
    }
}

/// AlgorithmIdentifier, without tag and length, and the key's bits of a SubjectPublicKeyInfo.
pub fn key_of(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let (algorithm, rest) = der::split(der::only(info, SEQUENCE)?, SEQUENCE)?;
    // The number of unused bits comes first.
    Some((algorithm, der::only(rest, BIT_STRING)?.strip_prefix(&[0])?))
}

fn has_alternative_name(extensions: &[u8]) -> bool {
    // Before them there may be unique identifiers of version 2.
    let elements = |bytes| Elements(bytes);
    let list = elements(extensions).find_map(|element| der::only(element, EXTENSIONS)).unwrap_or_default();
    let list = der::only(list, SEQUENCE).unwrap_or_default();
    elements(list).any(|one| der::only(one, SEQUENCE).is_some_and(|content| content.starts_with(ALTERNATIVE_NAME)))
}

/// The last one of a Name: the most specific.
fn common_name(subject: &[u8]) -> Option<&str> {
    let sets = Elements(der::only(subject, SEQUENCE)?);
    let attributes = sets.filter_map(|set| der::only(set, SET)).flat_map(Elements);
    let values = attributes.filter_map(|one| der::only(one, SEQUENCE)?.strip_prefix(COMMON_NAME));
    let (&tag, _) = values.clone().last()?.split_first()?;
    std::str::from_utf8(der::only(values.last()?, tag)?).ok()
}

/// The elements of a sequence or set, one after the other, each whole.
#[derive(Clone)]
struct Elements<'b>(&'b [u8]);

impl<'b> Iterator for Elements<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        let (element, rest) = der::split_whole(self.0)?;
        self.0 = rest;
        Some(element)
    }
}
