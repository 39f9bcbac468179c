//! CAs and certificates of the tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use time::{Duration, OffsetDateTime};

/// A certificate and its key, in PEM, and the serial number.
#[derive(Clone, Debug)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
    pub serial: u64,
}

/// From and to, in days from now.
#[derive(Clone, Copy, Debug)]
pub struct Days(pub i64, pub i64);

pub const NOW: Days = Days(-1, 365);

/// A CA.
pub struct Ca {
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = params(&[(DnType::CommonName, name)], NOW);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// For 127.0.0.1.
    pub fn server(&self, serial: u64) -> Pair {
        self.server_for(serial, NOW)
    }

    pub fn server_for(&self, serial: u64, days: Days) -> Pair {
        let mut params = params(&[(DnType::CommonName, "node-1")], days);
        params.subject_alt_names = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().subject_alt_names;
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth, serial)
    }

    /// For a client of this role, or of none.
    pub fn client(&self, name: &str, role: Option<&str>, serial: u64) -> Pair {
        self.client_for(name, role, serial, NOW)
    }

    pub fn client_for(&self, name: &str, role: Option<&str>, serial: u64, days: Days) -> Pair {
        let common = (DnType::CommonName, name);
        let subject: Vec<_> = [common].into_iter().chain(role.map(|of| (DnType::OrganizationName, of))).collect();
        self.sign(params(&subject, days), ExtendedKeyUsagePurpose::ClientAuth, serial)
    }

    /// For a client with two entries `O=`.
    pub fn client_of_two(&self, roles: [&str; 2], serial: u64) -> Pair {
        let second = DnType::CustomDnType(vec![2, 5, 4, 10]);
        let params = params(&[(DnType::OrganizationName, roles[0]), (second, roles[1])], NOW);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth, serial)
    }

    fn sign(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose, serial: u64) -> Pair {
        params.serial_number = Some(serial.into());
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem(), serial }
    }

    /// The list that revokes these, and says that the next one comes on the last of `days`.
    pub fn revoke(&self, revoked: &[&Pair], Days(from, to): Days) -> String {
        let now = OffsetDateTime::now_utc();
        let entry = |of: &&Pair| RevokedCertParams {
            serial_number: SerialNumber::from(of.serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now + Duration::days(from),
            next_update: now + Duration::days(to),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

fn params(subject: &[(DnType, &str)], Days(from, to): Days) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (now + Duration::days(from), now + Duration::days(to));
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params
}
