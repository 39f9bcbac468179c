//! Certificates, which may change while the service runs. For a new server certificate, another CA or a new list of
//! revoked certificates, replace the file by `rename`: the next connection sees it.
//!
//! A new key and its certificate are two files. Between the two renames they do not fit each other, and what was read
//! before goes on; so it does when a file is broken. The service tells that in a notice.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use slipway_node_api::{
    pem::lines,
    text::certificate_error,
    v1::{Certificate, CertificateUse, event::What},
};

use crate::{
    events::EventLog,
    expiry::{certificate, notice, notices_due},
};

/// HTTP/2, and nothing else.
const ALPN: &[u8] = b"h2";
/// A file of certificates that is larger is none.
const LARGEST: u64 = 1 << 20;

/// Where certificates are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The server's certificate, then those between it and its CA.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CAs of clients; two while one replaces the other.
    pub ca: PathBuf,
    /// Revoked certificates: one list for each CA that revoked any. Without one nothing is revoked.
    ///
    /// A list that is past its `nextUpdate` counts: what it revokes stays revoked, and no client is locked out by a list
    /// that was not renewed.
    pub revoked: Option<PathBuf>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    /// A file does not have what it should.
    #[error("{path}: {why}")]
    Content { path: PathBuf, why: String },
}

/// The certificates as they were in the files when they were last whole. Clones share them.
#[derive(Clone, Debug)]
pub struct Trust {
    files: Arc<Files>,
    loaded: Arc<Mutex<Loaded>>,
    log: EventLog,
}

#[derive(Debug)]
struct Loaded {
    /// The bytes that were read last, usable or not.
    read: Read,
    config: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
    /// The notices about those in use, and how many notices of their end were given.
    certificates: Vec<(Certificate, usize)>,
    /// Why the files are not used as they are. Told once.
    problem: Option<String>,
}

/// The content of the files.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    certificate: Vec<u8>,
    key: Vec<u8>,
    ca: Vec<u8>,
    revoked: Option<Vec<u8>>,
}

type Usable = (Arc<ServerConfig>, Arc<dyn ClientCertVerifier>, Vec<Certificate>);

impl Trust {
    /// Read the files. Later faults of them go to `log`.
    pub fn load(files: Files, log: EventLog) -> Result<Self, Unusable> {
        let read = Read::from(&files)?;
        let (config, clients, certificates) = usable(&files, &read)?;
        let certificates = certificates.into_iter().map(|certificate| (certificate, 0)).collect();
        let loaded = Loaded { read, config, clients, certificates, problem: None };
        Ok(Self { files: Arc::new(files), loaded: Arc::new(Mutex::new(loaded)), log })
    }

    /// The configuration of a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.fresh().config.clone()
    }

    /// Checks whether a client with this chain would be let in now.
    pub(crate) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let clients = self.fresh().clients.clone();
        let (end, between) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        clients.verify_client_cert(end, between, UnixTime::now()).map(|_| ())
    }

    /// The certificates in use, and when they expire.
    pub(crate) fn certificates(&self) -> Vec<Certificate> {
        self.fresh().certificates.iter().map(|(certificate, _)| certificate.clone()).collect()
    }

    /// Tell in the log which certificates are about to expire. Each notice is given once.
    pub(crate) fn tell_expiry(&self, now: i64) {
        for (certificate, given) in &mut self.fresh().certificates {
            let due = notices_due(certificate, now);
            if due > *given {
                self.log.push(What::notice(notice(certificate, now)));
            }
            *given = due;
        }
    }

    /// The files are read each time: they are small, calls are few, and no change of a time stamp is missed.
    fn fresh(&self) -> MutexGuard<'_, Loaded> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = loaded.refresh(&self.files) {
            self.log.push(What::notice(problem));
        }
        loaded
    }
}

impl Loaded {
    /// The answer is a problem that was not there before.
    fn refresh(&mut self, files: &Files) -> Option<String> {
        let outcome = match Read::from(files) {
            Ok(read) if read == self.read => return None,
            Ok(read) => {
                let outcome = usable(files, &read);
                self.read = read;
                outcome
            }
            Err(e) => Err(e),
        };
        let problem = match outcome {
            Ok((config, clients, certificates)) => {
                let given = |of: &Certificate| {
                    self.certificates.iter().find(|(before, _)| before == of).map_or(0, |(_, given)| *given)
                };
                self.certificates = certificates.into_iter().map(|of| (of.clone(), given(&of))).collect();
                (self.config, self.clients) = (config, clients);
                None
            }
            Err(e) => Some(format!("certificates: {e}; those that were read before stay in use")),
        };
        let is_new = problem != self.problem;
        self.problem.clone_from(&problem);
        problem.filter(|_| is_new)
    }
}

impl Read {
    fn from(files: &Files) -> Result<Self, Unusable> {
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            ca: read(&files.ca)?,
            revoked: files.revoked.as_ref().map(read).transpose()?,
        })
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Unusable> {
    let failed = |error| Unusable::Read { path: path.clone(), error };
    if fs::metadata(path).map_err(failed)?.len() > LARGEST {
        return Err(content(path, "it is larger than 1 MiB"));
    }
    fs::read(path).map_err(failed)
}

fn content(path: &Path, why: impl ToString) -> Unusable {
    Unusable::Content { path: path.to_path_buf(), why: why.to_string() }
}

/// Every item of a kind in a file.
fn items<T: PemObject>(path: &Path, pem: &[u8]) -> Result<Vec<T>, Unusable> {
    T::pem_slice_iter(&lines(pem)).collect::<Result<_, _>>().map_err(|e| content(path, e))
}

fn usable(files: &Files, read: &Read) -> Result<Usable, Unusable> {
    let provider = Arc::new(ring::default_provider());
    let clients = clients(files, read, &provider)?;
    let chain: Vec<CertificateDer<'static>> = items(&files.certificate, &read.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&lines(&read.key)).map_err(|e| content(&files.key, e))?;
    let own = chain.first().and_then(|own| certificate(own, CertificateUse::Server));
    let cas = items::<CertificateDer<'static>>(&files.ca, &read.ca)?;
    let certificates = own.into_iter().chain(cas.iter().filter_map(|ca| certificate(ca, CertificateUse::ClientCa)));
    let certificates = certificates.collect();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| content(&files.key, e))?
        .with_client_cert_verifier(clients.clone())
        .with_single_cert(chain, key)
        .map_err(|e| content(&files.certificate, certificate_error(&e)))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would not look at the certificate again.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((Arc::new(config), clients, certificates))
}

fn clients(files: &Files, read: &Read, with: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, Unusable> {
    let mut roots = RootCertStore::empty();
    for ca in items::<CertificateDer<'static>>(&files.ca, &read.ca)? {
        roots.add(ca).map_err(|e| content(&files.ca, e))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), with.clone());
    if let (Some(path), Some(pem)) = (&files.revoked, &read.revoked) {
        let lists: Vec<CertificateRevocationListDer<'static>> = items(path, pem)?;
        if lists.is_empty() && !pem.iter().all(u8::is_ascii_whitespace) {
            return Err(content(path, "it has no list of revoked certificates; for none, let the file be empty"));
        }
        // A CA without a list has revoked nothing.
        builder = builder.with_crls(lists).only_check_end_entity_revocation().allow_unknown_revocation_status();
    }
    let path = files.revoked.as_ref().unwrap_or(&files.ca);
    builder.build().map_err(|e| match e {
        rustls::server::VerifierBuilderError::InvalidCrl(e) => content(path, format!("{e:?}")),
        e => content(&files.ca, e),
    })
}
