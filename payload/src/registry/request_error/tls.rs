//! Faults of TLS, each with its remedy.

use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, pki_types::UnixTime};

use super::{IF_PLAIN, RequestError};
use crate::{registry::tls::Unsupported, trust::Time};

/// Behind the name of a server that wants mutual TLS.
pub const NO_CLIENT: &str =
    "asks for a certificate of the client, and Slipway presents none: use a mirror that asks for none (--mirror)";

/// The fault of TLS behind an error of I/O, if there is one.
pub fn cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// `server` is the registry or a proxy.
pub fn failed(error: &rustls::Error, server: &dyn fmt::Display) -> RequestError {
    let remedy = "add the authority with --registry-ca FILE, or skip the check with --tls-verify=false";
    match error {
        rustls::Error::InvalidCertificate(e) => RequestError::fetch(match e {
            // BadSignature: the authority was made anew under the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!(
                    "the certificate of {server} is from an authority that is not trusted, or it does not send those in \
                     between; {remedy}"
                )
            }
            CertificateError::ExpiredContext { time, not_after } => not_now(server, "counted until", *not_after, *time),
            CertificateError::NotValidYetContext { time, not_before } => {
                not_now(server, "counts from", *not_before, *time)
            }
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => format!(
                "the certificate of {server} has no name in its subjectAltName, and a common name alone counts only where \
                 the certificate was given itself: give this very certificate to --registry-ca, or have another issued"
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the certificate of {server} is for another name: {e}")
            }
            CertificateError::Other(other) if other.0.is::<Unsupported>() => {
                format!("TLS with {server}: {}; or skip the check with --tls-verify=false", other.0)
            }
            // `openssl req -x509` makes the one by default, `openssl x509 -req -signkey` the other.
            e if ["CaUsedAsEndEntity", "UnsupportedCertVersion"].iter().any(|kind| e.to_string().contains(kind)) => {
                format!(
                    "the certificate of {server} is a CA certificate (CA:TRUE) or of version 1, and such a one is trusted only \
                 where it was given itself: give this very certificate to --registry-ca, or have another signed"
                )
            }
            e => format!(
                "the certificate of {server} is not accepted: {e}; have another issued, give this very certificate to \
                 --registry-ca, or skip the check with --tls-verify=false"
            ),
        }),
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(_) => RequestError::fetch(format!(
            "TLS with {server} failed: it shares no version or algorithm with Slipway, which has TLS 1.2 and 1.3, ECDHE with \
             AES-GCM or ChaCha20, and certificates with ECDSA on P-256 or P-384, RSA or Ed25519. A registry that has a key on \
             P-521 or Ed448 needs another one, on P-256 for example ({error})"
        )),
        // Slipway presents none, so a bad one is a missing one.
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::BadCertificate) => {
            RequestError::fetch(format!("{server} {NO_CLIENT}"))
        }
        rustls::Error::InvalidMessage(_) => RequestError::fetch(format!("{server} does not speak TLS{IF_PLAIN}")),
        e => RequestError::passing(format!("TLS with {server} failed: {e}")),
    }
}

fn not_now(server: &dyn fmt::Display, counts: &str, limit: UnixTime, now: UnixTime) -> String {
    format!(
        "the certificate of {server} is not valid now: it {counts} {}, and it is {} by the clock of this machine; is that right?",
        Time(limit.as_secs()),
        Time(now.as_secs())
    )
}
