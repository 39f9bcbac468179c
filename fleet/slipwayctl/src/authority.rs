//! A directory with a CA: `ca.crt`, `ca.key`, and certificates that it signs. Only who asks for it gets a new key in place of
//! another one.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use slipway_core::pem::lines;
use time::{Duration, OffsetDateTime};
use x509_parser::{
    pem::{Pem, parse_x509_pem},
    prelude::{X509Certificate, X509Version},
};

use crate::{
    cli::{Anew, Role, is_host},
    failure::Failure,
};

/// Clocks differ.
pub const BEFORE: Duration = Duration::hours(1);

/// Whose certificate it is.
#[derive(Clone, Copy, Debug)]
pub enum Holder<'a> {
    /// A node, which clients reach by these names and addresses.
    Node(&'a [String]),
    /// A client.
    Client(Role),
}

/// A certificate and its key, as files.
#[derive(Debug)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// True if the certificate was made now.
    pub is_new: bool,
}

/// A certificate of a CA, valid from now on. Without a name it gets one that no other CA has.
pub fn of_ca(name: Option<&str>, days: u32) -> CertificateParams {
    let unique = || format!("slipway CA {:08x}", uuid::Uuid::new_v4().as_fields().0);
    let mut params = params(&name.map_or_else(unique, str::to_owned), days);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A certificate for `holder`, valid from now on.
pub fn of_holder(name: &str, holder: Holder<'_>, days: u32) -> Result<CertificateParams, Failure> {
    let mut params = params(name, days);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let usage = match holder {
        Holder::Node(hosts) => {
            if let Some(wrong) = hosts.iter().find(|host| !is_host(host)) {
                return Err(Failure::Usage(format!("--host {wrong:?} is neither a name nor an address")));
            }
            params.subject_alt_names = CertificateParams::new(hosts).map_err(failed)?.subject_alt_names;
            ExtendedKeyUsagePurpose::ServerAuth
        }
        Holder::Client(role) => {
            let role = match role {
                Role::Reader => "slipway:reader",
                Role::Controller => "slipway:controller",
                Role::Operator => "slipway:operator",
                Role::Admin => "slipway:admin",
            };
            params.distinguished_name.push(DnType::OrganizationName, role);
            ExtendedKeyUsagePurpose::ClientAuth
        }
    };
    params.extended_key_usages = vec![usage];
    Ok(params)
}

fn params(name: &str, days: u32) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.not_before = now - BEFORE;
    params.not_after = now + Duration::days(days.into());
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// The CA in `dir`.
pub fn issuer(dir: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
    let (certificate, key) = paths(dir, "ca");
    if !certificate.exists() && !key.exists() {
        let dir = dir.display();
        let remedy =
            "make one first with `slipwayctl fleet init` or `slipwayctl gen ca`, or name its directory with --dir";
        return Err(Failure::Usage(format!("{dir}: there is no CA here, no ca.crt and no ca.key: {remedy}")));
    }
    Issuer::from_ca_cert_pem(&text(&certificate)?, key_in(&key)?).map_err(|e| Failure::file(&certificate, e))
}

/// The CAs of the nodes' certificates beside the fleet's own, as [`trust_for_nodes`] left them.
const NODES: &str = "nodes-ca.crt";

/// Where the CAs of the nodes' certificates are: the fleet's own, and others that are trusted for nodes.
pub fn ca_of_nodes(dir: &Path) -> PathBuf {
    let all = dir.join(NODES);
    if all.exists() { all } else { dir.join("ca.crt") }
}

/// True if nodes may show certificates of another CA than the one in `dir`.
pub fn trusts_others_for_nodes(dir: &Path) -> bool {
    dir.join(NODES).exists()
}

/// Trust the CA in this file for nodes, beside the one in `dir`. Clients are let in by that one alone.
pub fn trust_for_nodes(dir: &Path, other: &Path) -> Result<(), Failure> {
    let (own, other_text) = (text(&dir.join("ca.crt"))?, text(other)?);
    let mut count = 0;
    for pem in Pem::iter_from_buffer(&lines(other_text.as_bytes())) {
        let pem = pem.map_err(|e| Failure::file(other, e))?;
        if pem.label != "CERTIFICATE" {
            return Err(Failure::file(other, format!("it has a {}: name a file with certificates only", pem.label)));
        }
        let certificate = pem.parse_x509().map_err(|e| Failure::file(other, e))?;
        if certificate.version() == X509Version::V1 {
            let why = "is an X.509 certificate of version 1, which cannot say that it is a CA: make the CA anew, with the \
                       extension basicConstraints=CA:TRUE";
            return Err(Failure::file(other, format!("{} {why}", certificate.subject())));
        }
        if !certificate.is_ca() {
            return Err(Failure::file(other, format!("{} is no CA", certificate.subject())));
        }
        count += 1;
    }
    if count == 0 {
        return Err(Failure::file(other, "it has no certificate"));
    }
    replace(&dir.join(NODES), format!("{}\n{other_text}", own.trim_end()).as_bytes())
}

/// The CA in `dir`, made if there is none.
pub fn ensure_ca(dir: &Path) -> Result<Pair, Failure> {
    const DAYS: u32 = 3650;
    let (certificate, key) = paths(dir, "ca");
    let is_new = !certificate.exists();
    if is_new {
        let pair = ensure_key(dir, &key)?;
        replace(&certificate, of_ca(None, DAYS).self_signed(&pair).map_err(failed)?.pem().as_bytes())?;
    } else {
        issuer(dir)?;
    }
    Ok(Pair { certificate, key, is_new })
}

/// `NAME.crt` and `NAME.key` in `at`, signed by the CA in `ca`. Existing files stay, if they are those that would be
/// made; else they are made anew only as far as that is wanted.
pub fn ensure(
    ca: &Path,
    at: &Path,
    name: &str,
    params: CertificateParams,
    Anew { renew, rekey }: Anew,
) -> Result<Pair, Failure> {
    let (certificate, key) = paths(at, name);
    let issuer = issuer(ca)?;
    let is_there = certificate.exists();
    if is_there && !key.exists() && !rekey {
        let why = format!("its key {} is not there: bring it back, or --rekey makes both anew", key.display());
        return Err(Failure::file(&certificate, why));
    }
    let pair = if rekey { new_key(at, &key, replace)? } else { ensure_key(at, &key)? };
    let made = params.signed_by(&pair, &issuer).map_err(failed)?;
    let kept = |why: &str| Failure::file(&certificate, format!("{why}: --renew makes it anew, for the same key"));
    let is_new = !is_there || renew || rekey;
    if is_new {
        replace(&certificate, made.pem().as_bytes())?;
    } else if let Some(why) = differs(&certificate, made.der(), &ca.join("ca.crt"), &pair)? {
        return Err(kept(why));
    }
    Ok(Pair { certificate, key, is_new })
}

/// Why the certificate that is there is not what would be made now.
fn differs(there: &Path, made: &[u8], ca: &Path, key: &KeyPair) -> Result<Option<&'static str>, Failure> {
    let (pem, ca_pem) = (read(there)?, read(ca)?);
    let (old, signer) = (parse(&pem, there)?, parse(&ca_pem, ca)?);
    let (_, new) = x509_parser::parse_x509_certificate(made).map_err(|e| Failure::file(there, e))?;
    let names = |of: &X509Certificate<'_>| {
        let extensions = of.extensions().iter().filter(|one| !one.oid.to_id_string().starts_with("2.5.29.35"));
        extensions.map(|one| (one.oid.to_id_string(), one.value.to_vec())).collect::<Vec<_>>()
    };
    Ok(if old.issuer() != signer.subject() || old.verify_signature(Some(signer.public_key())).is_err() {
        Some("another CA has signed it")
    } else if old.public_key().raw != key.subject_public_key_info() {
        Some("it is the certificate of another key")
    } else if old.subject() != new.subject() || names(&old) != names(&new) {
        Some("it has other names or another role")
    } else if !old.validity().is_valid() {
        Some("it has expired")
    } else {
        None
    })
}

/// When the certificate in a file expires, in seconds since 1970.
pub fn expiry(path: &Path) -> Result<i64, Failure> {
    let pem = read(path)?;
    Ok(parse(&pem, path)?.validity().not_after.timestamp())
}

/// The key in a file, made if there is none.
fn ensure_key(dir: &Path, path: &Path) -> Result<KeyPair, Failure> {
    // Another run may make one meanwhile: that one is not written over.
    if path.exists() { key_in(path) } else { new_key(dir, path, create) }
}

/// A new key in a file, which `write` makes.
fn new_key(dir: &Path, path: &Path, write: fn(&Path, &[u8]) -> Result<(), Failure>) -> Result<KeyPair, Failure> {
    let key = KeyPair::generate().map_err(failed)?;
    make_dir(dir)?;
    write(path, key.serialize_pem().as_bytes())?;
    Ok(key)
}

fn key_in(path: &Path) -> Result<KeyPair, Failure> {
    KeyPair::from_pem(&text(path)?).map_err(|e| Failure::file(path, e))
}

/// The paths of a certificate and its key.
pub fn paths(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")))
}

/// Checks whether a file may have this name.
pub fn check_name(name: &str) -> Result<(), Failure> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(Failure::Usage(format!("{name:?} is not the name of a file")));
    }
    Ok(())
}

/// A directory that only its owner reads.
pub fn make_dir(dir: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| Failure::file(dir, e))
}

/// A file that is not there yet, for its owner alone.
pub fn create(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    written().map_err(|e| Failure::file(path, e))
}

/// A file in one step: who reads it has the old content or the new one.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Failure::file(&new, e)),
        _ => create(&new, content)?,
    }
    fs::rename(&new, path).map_err(|e| Failure::file(path, e))
}

/// The content of a text file.
pub fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| Failure::file(path, e))
}

/// The first certificate in a file.
pub fn read(path: &Path) -> Result<Pem, Failure> {
    let bytes = fs::read(path).map_err(|e| Failure::file(path, e))?;
    parse_x509_pem(&lines(&bytes)).map(|(_, pem)| pem).map_err(|_| Failure::file(path, "it is no certificate"))
}

/// The certificate itself.
pub fn parse<'a>(pem: &'a Pem, path: &Path) -> Result<X509Certificate<'a>, Failure> {
    pem.parse_x509().map_err(|_| Failure::file(path, "it is no certificate"))
}

pub fn failed(e: rcgen::Error) -> Failure {
    Failure::Failed(format!("certificate: {e}"))
}
