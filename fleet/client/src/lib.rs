//! Connections to nodes: TLS with certificates on both sides, or the Unix socket.

use std::{
    error, fs, io, iter,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use slipway_node_api::{
    pem::lines,
    text::{certificate_error, clean_and_cut},
    v1::node_service_client::NodeServiceClient,
};
use tokio::{
    net::{TcpStream, UnixStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::{
    Status,
    transport::{Channel, Endpoint, Uri},
};
use tower::service_fn;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A node that may be called.
pub type Client = NodeServiceClient<Channel>;

/// The port of a node if none is said.
pub const PORT: u16 = 50000;
/// The longest time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// To notice a node that went away: a ping after this time of silence, and as long for its answer.
const PING: Duration = Duration::from_secs(15);

/// The largest answer, in bytes. A status whose fields all have their maxima has 260,000.
const LARGEST: usize = 512 << 10;
/// The most bytes of an error.
const MESSAGE: usize = 2048;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An address or a name is none.
    #[error("{0}")]
    Address(String),
    /// A file cannot be used.
    #[error("{path}: {why}")]
    File { path: PathBuf, why: String },
    /// The node does not answer, or one side does not trust the other.
    #[error("{0}")]
    Unreachable(String),
}

fn file(path: &Path, why: impl ToString) -> Error {
    Error::File { path: path.to_path_buf(), why: why.to_string() }
}

/// Where a client's certificates are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The CA of the nodes' certificates, or two while one replaces the other.
    pub ca: PathBuf,
    /// The client's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The client's certificate and its trusted authorities, as in the files.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    expires: Option<i64>,
    first_to_expire: Option<i64>,
}

impl Trust {
    /// Read the files.
    pub fn load(files: &Files) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        let authorities = certificates(&files.ca)?;
        for ca in authorities.clone() {
            roots.add(ca).map_err(|e| file(&files.ca, e))?;
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|e| file(&files.key, e))?;
        let chain = certificates(&files.certificate)?;
        let first_to_expire = first_to_expire(&chain, &authorities);
        let expires = chain.first().and_then(expires);
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| file(&files.key, e))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|e| file(&files.certificate, certificate_error(&e)))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { config: Arc::new(config), expires, first_to_expire })
    }

    /// When the client's certificate expires, in seconds since 1970; `None` if that cannot be read.
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }

    /// From when on no node is reached with these files: the first of the client's certificates has expired, or the last of
    /// the authorities.
    pub fn first_to_expire(&self) -> Option<i64> {
        self.first_to_expire
    }

    /// Connect to the node at `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
    pub async fn connect(&self, node: &str) -> Result<Client, Error> {
        let (host, port) = address(node)?;
        let name = ServerName::try_from(host.clone());
        let name = name.map_err(|e| Error::Address(format!("endpoint {host:?}: {e}")))?;
        let config = self.config.clone();
        let connector = service_fn(move |_: Uri| {
            let (host, name, config) = (host.clone(), name.clone(), config.clone());
            async move {
                let tcp = first_of(lookup_host((host.as_str(), port)).await?.collect(), CONNECT).await?;
                tcp.set_nodelay(true)?;
                let tls = TlsConnector::from(config).connect(name, tcp).await?;
                Ok::<_, io::Error>(TokioIo::new(tls))
            }
        });
        // `http`, because the connector makes the TLS: with `https` tonic would make it, too.
        let channel = endpoint(&format!("http://{node}"))?.connect_with_connector(connector).await;
        let channel = channel.map_err(|e| Error::Unreachable(unreachable(node, port, &e)))?;
        Ok(client(channel))
    }
}

/// The first of a node's addresses that takes a connection. One that is dead, as those of IPv6 are where no router leads there,
/// takes but a part of the time.
async fn first_of(addresses: Vec<SocketAddr>, within: Duration) -> io::Result<TcpStream> {
    let shares = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_add(1);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut left = addresses.len();
    for address in addresses {
        left -= 1;
        let share = if left == 0 { within } else { within / shares };
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(e)) => failed = e,
            Err(late) => failed = late.into(),
        }
    }
    Err(failed)
}

/// Why a node is not reached, with its port, and what to look at where nothing listens.
fn unreachable(node: &str, port: u16, error: &(dyn error::Error + 'static)) -> String {
    let at = if node.ends_with(&format!(":{port}")) { node.to_owned() } else { format!("{node}:{port}") };
    let is_refused = iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    let remedy = if is_refused { "; is slipwayd running there, with [api.tls]?" } else { "" };
    format!("{at}: {}{remedy}", chain(error))
}

/// A node may lie: an answer is refused above this size, before it is read.
fn client(channel: Channel) -> Client {
    NodeServiceClient::new(channel).max_decoding_message_size(LARGEST)
}

/// Connect to the node of this machine.
pub async fn connect_socket(path: &Path) -> Result<Client, Error> {
    let of = path.to_path_buf();
    let connector = service_fn(move |_: Uri| {
        let path = of.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = endpoint("http://node")?.connect_with_connector(connector).await;
    let channel = channel.map_err(|e| Error::Unreachable(format!("{}: {}", path.display(), chain(&e))))?;
    Ok(client(channel))
}

fn endpoint(uri: &str) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(uri.to_owned()).map_err(|e| Error::Address(format!("{uri}: {e}")))?;
    Ok(endpoint
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .keep_alive_while_idle(true))
}

/// Host, without brackets, and port, of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
pub fn address(endpoint: &str) -> Result<(String, u16), Error> {
    let wrong = || Error::Address(format!("{endpoint:?} is no endpoint: HOST, HOST:PORT or [ADDRESS]:PORT"));
    let uri: Uri = format!("http://{endpoint}").parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    if uri.authority().is_none_or(|authority| authority.as_str() != endpoint) || endpoint.contains('@') {
        return Err(wrong());
    }
    let port = match uri.port_u16() {
        Some(port) => port,
        None if host == endpoint => PORT,
        None => return Err(wrong()),
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map(|text| lines(&text)).map_err(|e| file(path, e))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let items = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<_, _>>();
    let items: Vec<_> = items.map_err(|e| file(path, e))?;
    if items.is_empty() { Err(file(path, "it has no certificate")) } else { Ok(items) }
}

fn expires(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Of authorities the longest counts: while one replaces another, the old one is there as well.
fn first_to_expire(chain: &[CertificateDer<'_>], authorities: &[CertificateDer<'_>]) -> Option<i64> {
    chain.iter().filter_map(expires).chain(authorities.iter().filter_map(expires).max()).min()
}

/// An error with its causes, and what to do if certificates are one. In one line of at most 2,048 bytes, because some of it
/// is the node's text.
pub fn chain(error: &(dyn error::Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut hint = "";
    let mut next = error.source();
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).or_else(|| error.downcast_ref());
        if let Some(error) = tls {
            hint = certificate_hint(error);
        }
        let says = error.to_string();
        if !text.contains(&says) {
            text = format!("{text}: {says}");
        }
        next = error.source();
    }
    clean_and_cut(&text, MESSAGE) + hint
}

/// What to do, if certificates are why. rustls has one alert for what has expired and for what is not valid yet: a node whose
/// clock was lost says it, too.
const fn certificate_hint(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, CertificateError as Why};
    match error {
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            "; for the node this certificate has expired, or is not valid yet: renew it, or set the node's clock"
        }
        rustls::Error::AlertReceived(
            Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate,
        ) => "; the node does not accept this certificate",
        rustls::Error::InvalidCertificate(
            Why::Expired | Why::ExpiredContext { .. } | Why::NotValidYet | Why::NotValidYetContext { .. },
        ) => "; by the clock of this machine the node's certificate is not valid now: renew it, or set the clock",
        rustls::Error::InvalidCertificate(_) => "; the node's certificate is not what is expected of it",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_listens_the_port_and_the_program_are_named() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let told = unreachable("node-1", PORT, &refused);
        assert!(
            told.starts_with("node-1:50000: ") && told.ends_with("is slipwayd running there, with [api.tls]?"),
            "{told}"
        );
        assert!(unreachable("[::1]:7", 7, &refused).starts_with("[::1]:7: "));
        let late = io::Error::from(io::ErrorKind::TimedOut);
        assert!(!unreachable("node-1", PORT, &late).contains("slipwayd"));
    }

    #[test]
    fn an_address_that_is_dead_does_not_hide_the_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        // Nobody is accepted: those who wait fill the queue, and the next one gets no answer.
        let (full, _waiting) = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let (full, mut waiting) = (socket.listen(0).unwrap(), Vec::new());
            let at = full.local_addr().unwrap();
            while let Ok(tcp) = timeout(Duration::from_millis(300), TcpStream::connect(at)).await {
                waiting.push(tcp.unwrap());
            }
            (full, waiting)
        });
        let dead = full.local_addr().unwrap();
        let reach = |addresses: Vec<SocketAddr>| {
            runtime.block_on(async { timeout(CONNECT, first_of(addresses, Duration::from_secs(2))).await.unwrap() })
        };
        assert_eq!(reach(vec![dead, dead, there]).unwrap().peer_addr().unwrap(), there);
        assert_eq!(reach(vec![dead]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(reach(vec![]).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_clock_that_is_wrong_is_thought_of() {
        use rustls::{AlertDescription as Alert, CertificateError as Why};
        let hint = |error: rustls::Error| certificate_hint(&error);
        assert!(hint(Why::NotValidYet.into()).contains("by the clock of this machine"));
        assert!(hint(Why::Expired.into()).contains("by the clock of this machine"));
        assert!(hint(Why::UnknownIssuer.into()).contains("not what is expected"));
        assert!(hint(rustls::Error::AlertReceived(Alert::CertificateExpired)).contains("the node's clock"));
        assert!(hint(rustls::Error::AlertReceived(Alert::UnknownCA)).contains("does not accept"));
        assert_eq!(hint(rustls::Error::AlertReceived(Alert::InternalError)), "");
    }

    /// A CA that expires at 2027-02-27 12:29:25.
    fn authority() -> CertificateDer<'static> {
        let pem = "-----BEGIN CERTIFICATE-----\n\
                   MIIBvzCCAWWgAwIBAgIUKlCUbCNXNBGymvbvnYh7RwObIF4wCgYIKoZIzj0EAwIw\n\
                   NTEbMBkGA1UECgwSc2xpcHdheTpjb250cm9sbGVyMRYwFAYDVQQDDA1zbGlwd2F5\n\
                   LWZsZWV0MB4XDTI2MTEyOTEyMjkyNVoXDTI3MDIyNzEyMjkyNVowNTEbMBkGA1UE\n\
                   CgwSc2xpcHdheTpjb250cm9sbGVyMRYwFAYDVQQDDA1zbGlwd2F5LWZsZWV0MFkw\n\
                   EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEn+AA/+bh4K8pHE2dJ+VcpemYcd0dm8W0\n\
                   2Im2yZ71oOkqWw2/T0v/ZujzlZ+ioxgT5vAQ2bJqscFgmprT2m3Y8qNTMFEwHQYD\n\
                   VR0OBBYEFJUHuuLDl8hPAp2lTLqrLLKoEmPCMB8GA1UdIwQYMBaAFJUHuuLDl8hP\n\
                   Ap2lTLqrLLKoEmPCMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIg\n\
                   buQPbkvTprfV3HqNxg2y1hH/TdsEVMa+05ialg/0uTACIQDVFOerTnplVbD1TlcL\n\
                   WIMqfj4Sp0r94qGsbhaU0+JONg==\n\
                   -----END CERTIFICATE-----\n";
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_certificate_says_when_it_expires() {
        assert_eq!(expires(&authority()), Some(1_803_731_365));
        assert_eq!(expires(&CertificateDer::from(vec![0])), None);
    }

    #[test]
    fn an_old_authority_beside_a_new_one_does_not_count() {
        // Nobody looks at the signature, so another year is one more certificate.
        let until = |year: &[u8; 2]| {
            let mut der = authority().to_vec();
            let at = der.windows(13).position(|text| text == b"270227122925Z").unwrap();
            der[at..at + 2].copy_from_slice(year);
            CertificateDer::from(der)
        };
        let list = |years: &[&[u8; 2]]| years.iter().map(|year| until(year)).collect::<Vec<_>>();
        let first = |chain: &[&[u8; 2]], authorities: &[&[u8; 2]]| first_to_expire(&list(chain), &list(authorities));
        let at = |year: &[u8; 2]| expires(&until(year));
        for both in [[b"27", b"30"], [b"30", b"27"]] {
            assert_eq!(first(&[b"28"], &both), at(b"28"));
            assert_eq!(first(&[b"31"], &both), at(b"30"));
        }
        assert_eq!(first(&[b"28"], &[b"27"]), at(b"27"), "the last authority counts");
        assert_eq!(first(&[b"28", b"27"], &[b"30"]), at(b"27"), "each certificate of the chain counts");
        assert_eq!(first(&[], &[]), None);
    }

    #[test]
    fn endpoints() {
        assert_eq!(address("node"), Ok(("node".to_owned(), 50000)));
        assert_eq!(address("10.0.0.1:7"), Ok(("10.0.0.1".to_owned(), 7)));
        assert_eq!(address("[::1]:7"), Ok(("::1".to_owned(), 7)));
        assert_eq!(address("[::1]"), Ok(("::1".to_owned(), 50000)));
        for wrong in ["", "https://node", "node/path", "a@node", ":7", "no de", "node:", "node:99999", "fd00::1"] {
            assert!(matches!(address(wrong), Err(Error::Address(_))), "{wrong}");
        }
    }
}
