//! Trusted certificates: the authorities of browsers (built in, because the container image has no bundle), the
//! system's bundle, the registry's own directory, and `--registry-ca`.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject as _},
    },
};

use slipway_core::{
    efi::der::{self, SEQUENCE},
    pem as pem_file,
};

use super::{super::Options, named::Named};
use crate::image::ImageError;

// Debian, Alpine and Talos; Fedora; SUSE. `SSL_CERT_FILE` replaces them.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
// With a directory HOST[:PORT] for each registry (containers-certs.d(5), dockerd's "certs.d").
const DIRS: [&str; 2] = ["/etc/containers/certs.d", "/etc/docker/certs.d"];

/// Trusted certificates.
pub struct Roots {
    pub authorities: RootCertStore,
    /// Certificates in files: a server that presents the very same one is trusted, too.
    pub given: Vec<CertificateDer<'static>>,
}

impl Roots {
    /// For connections to one registry, `HOST[:PORT]`.
    pub fn for_host(host: &str, options: &Options) -> Result<Self, ImageError> {
        let mut given = match env::var_os("SSL_CERT_FILE").filter(|name| !name.is_empty()) {
            Some(named) => load(Path::new(&named), " ($SSL_CERT_FILE)")?,
            None => match BUNDLES.iter().map(Path::new).find(|path| path.exists()) {
                // A bare system has an empty one.
                Some(bundle) => read(bundle, "")?.1,
                None => Vec::new(),
            },
        };
        for file in in_dirs(&DIRS.map(Path::new), host)?.iter().chain(&options.ca_files) {
            let certificates = load(file, "")?;
            // In a bundle of the system some may be odd. A certificate that is given for a registry must be usable.
            if let Some(at) = certificates.iter().position(|certificate| Named::parse(certificate).is_none()) {
                let why = format!("certificate {} in it is damaged", at + 1);
                return Err(ImageError::setting(file.display().to_string(), why));
            }
            given.extend(certificates);
        }
        let mut authorities: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
        authorities.add_parsable_certificates(given.iter().cloned());
        Ok(Roots { authorities, given })
    }
}

fn in_dirs(dirs: &[&Path], host: &str) -> Result<Vec<PathBuf>, ImageError> {
    let mut files = Vec::new();
    for dir in dirs.iter().map(|dir| dir.join(host)) {
        let failed = |e| unreadable(dir.display().to_string(), &e);
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            // As for podman: dockerd makes /etc/docker for root alone.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => continue,
            Err(e) => return Err(failed(e)),
        };
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        files.extend(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "crt")));
    }
    Ok(files)
}

fn unreadable(what: String, error: &io::Error) -> ImageError {
    ImageError::setting(what, format!("it cannot be read: {error}"))
}

/// The text of a file, and the certificates in it.
fn read(file: &Path, named_by: &str) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), ImageError> {
    let what = || format!("{}{named_by}", file.display());
    let text = fs::read(file).map_err(|e| unreadable(what(), &e))?;
    let lines = pem_file::lines(&text);
    // OpenSSL takes these labels, too.
    let pem = String::from_utf8_lossy(&lines);
    let pem = pem.replace(" TRUSTED CERTIFICATE-", " CERTIFICATE-").replace(" X509 CERTIFICATE-", " CERTIFICATE-");
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map(|all| all.into_iter().filter_map(without_trust).collect()).map_err(|e| {
        let why = match e {
            pem::Error::MissingSectionEnd { .. } | pem::Error::IllegalSectionStart { .. } => {
                "a certificate in it is cut off, or its lines are joined".to_owned()
            }
            e => e.to_string(),
        };
        ImageError::setting(what(), format!("not a list of certificates in PEM form: {why}"))
    })?;
    Ok((text, certificates))
}

/// The certificate alone. Behind one that OpenSSL calls trusted stands for what it is: if that is a list without servers, or
/// names servers among what it is not for, it is left out.
fn without_trust(der: CertificateDer<'static>) -> Option<CertificateDer<'static>> {
    // Object identifiers, whole: serverAuth, anyExtendedKeyUsage.
    const SERVERS: [&[u8]; 2] = [b"\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01", b"\x06\x04\x55\x1d\x25\x00"];
    let parts = der::split_whole(&der).and_then(|(one, behind)| Some((one, der::only(behind, SEQUENCE)?)));
    let Some((certificate, content)) = parts else { return Some(der) };
    let (uses, rest) = der::split(content, SEQUENCE).map_or((None, content), |(uses, rest)| (Some(uses), rest));
    let refused = der::split(rest, der::tagged(0)).map_or(&[][..], |(refused, _)| refused);
    let names = |list: &[u8]| SERVERS.iter().any(|id| list.windows(id.len()).any(|at| at == *id));
    (uses.is_none_or(names) && !names(refused)).then(|| CertificateDer::from(certificate.to_vec()))
}

/// The certificates in a file that has some.
fn load(file: &Path, named_by: &str) -> Result<Vec<CertificateDer<'static>>, ImageError> {
    let (text, certificates) = read(file, named_by)?;
    if !certificates.is_empty() {
        return Ok(certificates);
    }
    let der = CertificateDer::from(text);
    let why = match Named::parse(&der) {
        Some(_) => {
            "it is a certificate in DER form, and PEM is needed: openssl x509 -inform DER -in FILE -out FILE.pem"
        }
        None => "it holds no certificate in PEM form",
    };
    Err(ImageError::setting(format!("{}{named_by}", file.display()), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        let joined = "-----BEGIN CERTIFICATE-----AAAA-----END CERTIFICATE-----";
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        for (text, why) in [
            ("", "holds no certificate"),
            ("hello", "holds no certificate"),
            (broken, "PEM form"),
            (joined, "cut off, or"),
            (cut, "cut off, or"),
        ] {
            fs::write(&path, text).unwrap();
            let error = load(&path, "").unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("ca.crt"), "{error}");
        }
    }

    /// `cat one.crt two.crt`, where the first has no last line break; and pasted out of YAML.
    #[test]
    fn no_certificate_of_a_file_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        let one = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        for text in [one.repeat(2), one.trim_end().repeat(2), format!("\u{feff}{one}  {}", one.replace('\n', "\r\n  "))]
        {
            fs::write(&path, &text).unwrap();
            assert_eq!(load(&path, "").unwrap().len(), 2, "{text:?}");
        }
    }

    #[test]
    fn a_registrys_directory_gives_its_authorities() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (dir, names) in [(&one, ["ca.crt", "client.cert"]), (&two, ["other.crt", "client.key"])] {
            let dir = dir.path().join("r.io:5000");
            fs::create_dir(&dir).unwrap();
            names.iter().for_each(|name| fs::write(dir.join(name), "").unwrap());
        }
        let dirs = [one.path(), Path::new("/nosuch"), two.path()];
        let expected = [one.path().join("r.io:5000/ca.crt"), two.path().join("r.io:5000/other.crt")];
        assert_eq!(in_dirs(&dirs, "r.io:5000").unwrap(), expected);
        assert!(in_dirs(&dirs, "r.io").unwrap().is_empty());
    }
}
