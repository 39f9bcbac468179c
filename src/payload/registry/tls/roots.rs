//! Which certificate authorities are trusted: those of browsers (built in, because the container image has no bundle),
//! the system's bundle, the registry's own directory, and `--registry-ca`.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::Options;
use crate::payload::image::ImageError;

// Debian, Alpine and Talos; Fedora; SUSE. `SSL_CERT_FILE` replaces them.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
// With a directory HOST[:PORT] for each registry (containers-certs.d(5), dockerd's "certs.d").
const DIRS: [&str; 2] = ["/etc/containers/certs.d", "/etc/docker/certs.d"];

/// For connections to one registry, `HOST[:PORT]`, and to the hosts it redirects to.
pub fn tls_config(host: &str, options: &Options) -> Result<TlsConfig, ImageError> {
    let mut certificates: Vec<Certificate<'static>> =
        webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    match env::var_os("SSL_CERT_FILE").filter(|name| !name.is_empty()) {
        Some(named) => certificates.extend(load(Path::new(&named), " ($SSL_CERT_FILE)")?),
        None => {
            if let Some(bundle) = BUNDLES.iter().map(Path::new).find(|path| path.exists()) {
                certificates.extend(load(bundle, "")?);
            }
        }
    }
    for file in in_dirs(&DIRS.map(Path::new), host)?.iter().chain(&options.ca_files) {
        certificates.extend(load(file, "")?);
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .disable_verification(options.insecure_tls)
        .build())
}

fn in_dirs(dirs: &[&Path], host: &str) -> Result<Vec<PathBuf>, ImageError> {
    let mut files = Vec::new();
    for dir in dirs.iter().map(|dir| dir.join(host)) {
        let failed = |source| ImageError::Io { what: dir.display().to_string(), source };
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(failed(e)),
        };
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        files.extend(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "crt")));
    }
    Ok(files)
}

fn load(file: &Path, named_by: &str) -> Result<Vec<Certificate<'static>>, ImageError> {
    let what = || format!("{}{named_by}", file.display());
    let text = fs::read(file).map_err(|source| ImageError::Io { what: what(), source })?;
    let mut certificates = Vec::new();
    for item in parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => (),
            Err(e) => return Err(ImageError::invalid(what(), format!("not a list of certificates in PEM form: {e}"))),
        }
    }
    if certificates.is_empty() {
        return Err(ImageError::invalid(what(), "it holds no certificate in PEM form"));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        for (text, why) in [("", "holds no certificate"), ("hello", "holds no certificate"), (broken, "PEM form")] {
            fs::write(&path, text).unwrap();
            let error = load(&path, "").unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("ca.crt"), "{error}");
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
