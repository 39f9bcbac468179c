//! The ends of certificates, and the notices before them.

use rustls::pki_types::CertificateDer;
use slipway_node_api::v1::{Certificate, CertificateUse};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const DAY: i64 = 86_400;
/// Days before the end of a certificate at which a notice says that it comes. The last says that it is there.
const NOTICES: [i64; 4] = [30, 7, 1, 0];

/// The notice about a certificate; `None` if it cannot be read.
pub(crate) fn certificate(der: &CertificateDer<'_>, used_as: CertificateUse) -> Option<Certificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok()).unwrap_or_default();
    let expires = certificate.validity().not_after.timestamp();
    Some(Certificate { r#use: used_as.into(), name: name.to_owned(), expires })
}

/// The number of [`NOTICES`] that are due at `now`, in seconds since 1970.
pub(crate) fn notices_due(certificate: &Certificate, now: i64) -> usize {
    NOTICES.iter().filter(|days| certificate.expires.saturating_sub(now) <= **days * DAY).count()
}

/// The text of a notice at `now`.
pub(crate) fn notice(certificate: &Certificate, now: i64) -> String {
    let what = match certificate.r#use() {
        CertificateUse::ClientCa => "the CA of clients",
        _ => "the certificate of this node",
    };
    let name = &certificate.name;
    match certificate.expires.saturating_sub(now) {
        left if left <= 0 => format!("{what}, {name}, has expired: replace its file, the service reads it again"),
        left => format!("{what}, {name}, expires in {} d: replace its file, the service reads it again", left / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_told_of_in_time_and_not_each_day() {
        let of = Certificate { r#use: CertificateUse::Server.into(), name: "node-1".to_owned(), expires: 100 * DAY };
        let due = |day: i64| notices_due(&of, day * DAY);
        assert_eq!([0, 69, 70, 92, 93, 98, 99, 100, 200].map(due), [0, 0, 1, 1, 2, 2, 3, 4, 4]);
        assert!(notice(&of, 70 * DAY).contains("node-1, expires in 30 d"));
        assert!(notice(&of, 100 * DAY).contains("has expired"));
        let wild = Certificate { expires: i64::MIN, ..of };
        assert_eq!(notices_due(&wild, i64::MAX), 4);
    }
}
