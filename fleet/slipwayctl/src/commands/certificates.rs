//! `gen`: a CA and certificates to start with, and the list of those that are revoked.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use x509_parser::{
    pem::{Pem, parse_x509_pem},
    prelude::{CertificateRevocationList, FromDer as _, X509Certificate},
};

use crate::{
    cli::{Gen, Role, is_host},
    failure::Failure,
    show::Output,
};

/// Clocks differ.
const BEFORE: Duration = Duration::hours(1);
/// When a list of revoked certificates says that the next one comes. Nodes go on with it after that.
const NEXT_LIST: Duration = Duration::days(365);

/// Make it.
pub fn run(dir: &Path, what: Gen, output: &Output) -> Result<(), Failure> {
    match what {
        Gen::Ca { name, days } => {
            let name = name.unwrap_or_else(|| format!("slipway CA {:08x}", uuid::Uuid::new_v4().as_fields().0));
            let mut params = params(&name, days)?;
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let key = KeyPair::generate().map_err(failed)?;
            let certificate = params.self_signed(&key).map_err(failed)?;
            pair(dir, "ca", &certificate.pem(), &key, output)
        }
        Gen::Server { name, hosts, days } => {
            if let Some(wrong) = hosts.iter().find(|host| !is_host(host)) {
                return Err(Failure::Usage(format!("--host {wrong:?} is neither a name nor an address")));
            }
            let mut params = params(&name, days)?;
            params.subject_alt_names = CertificateParams::new(hosts).map_err(failed)?.subject_alt_names;
            signed(dir, &name, params, ExtendedKeyUsagePurpose::ServerAuth, output)
        }
        Gen::Client { name, role, days } => {
            let mut params = params(&name, days)?;
            let role = match role {
                Role::Reader => "slipway:reader",
                Role::Controller => "slipway:controller",
                Role::Operator => "slipway:operator",
                Role::Admin => "slipway:admin",
            };
            params.distinguished_name.push(DnType::OrganizationName, role);
            signed(dir, &name, params, ExtendedKeyUsagePurpose::ClientAuth, output)
        }
        Gen::Revoke { certificates } => revoke(dir, &certificates, output),
    }
}

fn failed(e: rcgen::Error) -> Failure {
    Failure::Failed(format!("certificate: {e}"))
}

/// A certificate that is valid from now on.
fn params(name: &str, days: u32) -> Result<CertificateParams, Failure> {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.not_before = now - BEFORE;
    params.not_after = now + Duration::days(days.into());
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// The CA in `dir`.
fn issuer(dir: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
    let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
    if !certificate.exists() && !key.exists() {
        let dir = dir.display();
        let remedy = "make one first with `slipwayctl gen ca`, or name its directory with --dir";
        return Err(Failure::Usage(format!("{dir}: there is no CA here, no ca.crt and no ca.key: {remedy}")));
    }
    let text = |path: &Path| fs::read_to_string(path).map_err(|e| Failure::file(path, e));
    let pair = KeyPair::from_pem(&text(&key)?).map_err(|e| Failure::file(&key, e))?;
    Issuer::from_ca_cert_pem(&text(&certificate)?, pair).map_err(|e| Failure::file(&certificate, e))
}

fn signed(
    dir: &Path,
    name: &str,
    mut params: CertificateParams,
    purpose: ExtendedKeyUsagePurpose,
    output: &Output,
) -> Result<(), Failure> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer(dir)?).map_err(failed)?;
    pair(dir, name, &certificate.pem(), &key, output)
}

/// `NAME.crt` and `NAME.key`, both or none.
fn pair(dir: &Path, name: &str, certificate: &str, key: &KeyPair, output: &Output) -> Result<(), Failure> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(Failure::Usage(format!("{name:?} is not the name of a file")));
    }
    let (crt, pem) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    if let Some(there) = [&crt, &pem].into_iter().find(|path| path.exists()) {
        return Err(Failure::file(
            there,
            "it is there already, and is not overwritten: remove it, or say another name",
        ));
    }
    fs::create_dir_all(dir).map_err(|e| Failure::file(dir, e))?;
    create(&pem, key.serialize_pem().as_bytes())?;
    create(&crt, certificate.as_bytes())?;
    let text = format!("{} and {} are written", crt.display(), pem.display());
    output.answer(&json!({ "certificate": crt, "key": pem }), &text)
}

fn create(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    written().map_err(|e| Failure::file(path, e))
}

/// Certificates come into `revoked.pem`, and those that are there stay.
fn revoke(dir: &Path, certificates: &[PathBuf], output: &Output) -> Result<(), Failure> {
    let path = dir.join("revoked.pem");
    let now = OffsetDateTime::now_utc();
    let ca = read(&dir.join("ca.crt"))?;
    let ca = ca.parse_x509().map_err(|_| Failure::file(&dir.join("ca.crt"), "it is no certificate"))?;
    let mut revoked = before(&path, &ca)?;
    for file in certificates {
        let serial = serial(file, &ca)?;
        if revoked.iter().all(|of| of.serial_number != serial) {
            revoked.push(entry(serial, now));
        }
    }
    let count = revoked.len();
    let list = CertificateRevocationListParams {
        this_update: now - BEFORE,
        next_update: now + NEXT_LIST,
        crl_number: SerialNumber::from_slice(&now.unix_timestamp().to_be_bytes()),
        issuing_distribution_point: None,
        revoked_certs: revoked,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let pem = list.signed_by(&issuer(dir)?).and_then(|list| list.pem()).map_err(failed)?;
    // A node may read it at any time.
    let new = dir.join(".revoked.pem.new");
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Failure::file(&new, e)),
        _ => create(&new, pem.as_bytes())?,
    }
    fs::rename(&new, &path).map_err(|e| Failure::file(&path, e))?;
    let text = format!("{} revokes {count}: bring it to the nodes", path.display());
    output.answer(&json!({ "list": path, "revoked": count }), &text)
}

/// The certificates that the list has revoked so far.
fn before(path: &Path, ca: &X509Certificate<'_>) -> Result<Vec<RevokedCertParams>, Failure> {
    let pem = match fs::read(path) {
        // An empty file is how a node is told that nothing is revoked.
        Ok(pem) if pem.trim_ascii().is_empty() => return Ok(Vec::new()),
        Ok(pem) => pem,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::file(path, e)),
    };
    let wrong = || Failure::file(path, "it is no list of revoked certificates");
    let (rest, pem) = parse_x509_pem(&pem).map_err(|_| wrong())?;
    let (_, list) = CertificateRevocationList::from_der(&pem.contents).map_err(|_| wrong())?;
    if !rest.iter().all(u8::is_ascii_whitespace) || list.issuer() != ca.subject() {
        return Err(Failure::file(path, "it has the list of another CA: let each CA have a directory of its own"));
    }
    let revoked = list.iter_revoked_certificates();
    Ok(revoked.map(|of| entry(SerialNumber::from_slice(of.raw_serial()), of.revocation_date.to_datetime())).collect())
}

fn entry(serial_number: SerialNumber, revocation_time: OffsetDateTime) -> RevokedCertParams {
    RevokedCertParams { serial_number, revocation_time, reason_code: None, invalidity_date: None }
}

/// The serial number of a certificate that `ca` has signed.
fn serial(file: &Path, ca: &X509Certificate<'_>) -> Result<SerialNumber, Failure> {
    let pem = read(file)?;
    let certificate = pem.parse_x509().map_err(|_| Failure::file(file, "it is no certificate"))?;
    if certificate.issuer() != ca.subject() {
        return Err(Failure::file(file, "another CA has signed it: revoke it there"));
    }
    Ok(SerialNumber::from_slice(certificate.raw_serial()))
}

fn read(path: &Path) -> Result<Pem, Failure> {
    let bytes = fs::read(path).map_err(|e| Failure::file(path, e))?;
    parse_x509_pem(&bytes).map(|(_, pem)| pem).map_err(|_| Failure::file(path, "it is no certificate"))
}
