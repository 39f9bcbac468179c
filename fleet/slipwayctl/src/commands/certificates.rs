//! `gen`: a CA and certificates to start with, and the list of those that are revoked.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rcgen::{CertificateRevocationListParams, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber};
use serde_json::json;
use slipway_core::pem::lines;
use time::{Duration, OffsetDateTime};
use x509_parser::{
    pem::parse_x509_pem,
    prelude::{CertificateRevocationList, FromDer as _, X509Certificate},
};

use crate::{
    authority::{self, BEFORE, Holder, failed},
    cli::Gen,
    failure::Failure,
    output::Output,
};

/// When a list of revoked certificates says that the next one comes. Nodes go on with it after that.
const NEXT_LIST: Duration = Duration::days(365);

/// Make it.
pub fn run(dir: &Path, what: Gen, output: &Output) -> Result<(), Failure> {
    match what {
        Gen::Ca { name, days } => {
            let key = KeyPair::generate().map_err(failed)?;
            let certificate = authority::of_ca(name.as_deref(), days).self_signed(&key).map_err(failed)?;
            pair(dir, "ca", &certificate.pem(), &key, output)
        }
        Gen::Server { name, hosts, days } => signed(dir, &name, Holder::Node(&hosts), days, output),
        Gen::Client { name, role, days } => signed(dir, &name, Holder::Client(role), days, output),
        Gen::Revoke { certificates } => revoke(dir, &certificates, output),
    }
}

fn signed(dir: &Path, name: &str, holder: Holder<'_>, days: u32, output: &Output) -> Result<(), Failure> {
    let key = KeyPair::generate().map_err(failed)?;
    let params = authority::of_holder(name, holder, days)?;
    let certificate = params.signed_by(&key, &authority::issuer(dir)?).map_err(failed)?;
    pair(dir, name, &certificate.pem(), &key, output)
}

/// `NAME.crt` and `NAME.key`, both or none.
fn pair(dir: &Path, name: &str, certificate: &str, key: &KeyPair, output: &Output) -> Result<(), Failure> {
    authority::check_name(name)?;
    let (crt, pem) = authority::paths(dir, name);
    if let Some(there) = [&crt, &pem].into_iter().find(|path| path.exists()) {
        return Err(Failure::file(
            there,
            "it is there already, and is not overwritten: remove it, or say another name",
        ));
    }
    authority::make_dir(dir)?;
    authority::create(&pem, key.serialize_pem().as_bytes())?;
    authority::create(&crt, certificate.as_bytes())?;
    let text = format!("{} and {} are written", crt.display(), pem.display());
    output.answer(&json!({ "certificate": crt, "key": pem }), &text)
}

/// Certificates come into `revoked.pem`, and those that are there stay.
fn revoke(dir: &Path, certificates: &[PathBuf], output: &Output) -> Result<(), Failure> {
    let (path, ca_path) = (dir.join("revoked.pem"), dir.join("ca.crt"));
    let now = OffsetDateTime::now_utc();
    let ca = authority::read(&ca_path)?;
    let ca = authority::parse(&ca, &ca_path)?;
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
    let pem = list.signed_by(&authority::issuer(dir)?).and_then(|list| list.pem()).map_err(failed)?;
    // A node may read it at any time.
    authority::replace(&path, pem.as_bytes())?;
    let text = format!("{} revokes {count}: bring it to the nodes", path.display());
    output.answer(&json!({ "list": path, "revoked": count }), &text)
}

/// The certificates that the list has revoked so far.
fn before(path: &Path, ca: &X509Certificate<'_>) -> Result<Vec<RevokedCertParams>, Failure> {
    let text = match fs::read(path) {
        // An empty file is how a node is told that nothing is revoked.
        Ok(text) if text.trim_ascii().is_empty() => return Ok(Vec::new()),
        Ok(text) => lines(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::file(path, e)),
    };
    let wrong = || Failure::file(path, "it is no list of revoked certificates");
    let (rest, pem) = parse_x509_pem(&text).map_err(|_| wrong())?;
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
    let pem = authority::read(file)?;
    let certificate = authority::parse(&pem, file)?;
    if certificate.issuer() != ca.subject() {
        return Err(Failure::file(file, "another CA has signed it: revoke it there"));
    }
    Ok(SerialNumber::from_slice(certificate.raw_serial()))
}
