//! A service that runs, with its files, and clients of it.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use slipway_node_api::v1::node_service_client::NodeServiceClient;
use slipway_node_server::{
    accept,
    events::{Bound, EventLog},
    limits::Limits,
    serve::{Listeners, serve},
    tls::{Files, Trust},
};
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream, UnixStream},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::{
    certificates::{Ca, Pair},
    recorder::Recorder,
};

pub type Client = NodeServiceClient<Channel>;

/// A service that runs.
pub struct Site {
    pub ca: Ca,
    pub dir: TempDir,
    pub log: EventLog,
    pub node: Arc<Recorder>,
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Site {
    pub async fn new() -> Self {
        Self::with(Limits::default(), Bound::default()).await
    }

    pub async fn with(limits: Limits, bound: Bound) -> Self {
        let (dir, ca, log) = (tempfile::tempdir().unwrap(), Ca::new("CA 1"), EventLog::new(bound));
        let at = |name: &str| dir.path().join(name);
        let server = ca.server(1);
        fs::write(at("ca.crt"), &ca.certificate).unwrap();
        fs::write(at("node.crt"), &server.certificate).unwrap();
        fs::write(at("node.key"), &server.key).unwrap();
        fs::write(at("revoked.pem"), "").unwrap();
        let files = Files {
            certificate: at("node.crt"),
            key: at("node.key"),
            ca: at("ca.crt"),
            revoked: Some(at("revoked.pem")),
        };
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let trust = Trust::load(files, log.clone()).unwrap();
        let listeners = Listeners { tcp: Some((tcp, trust)), socket: Some(accept::bind(&at("node.sock")).unwrap()) };
        let node = Recorder::new(log.clone());
        let (stop, stopped) = oneshot::channel();
        let served = serve(node.clone(), log.clone(), listeners, limits, async move {
            let _ = stopped.await;
        });
        Self { ca, dir, log, node, address, stop, task: tokio::spawn(served) }
    }

    /// Replace a file as a person would: in one step.
    pub fn replace(&self, name: &str, content: &str) {
        let new = self.dir.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.dir.path().join(name)).unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("node.sock")
    }

    pub fn admin(&self) -> Pair {
        self.ca.client("alice", Some("slipway:admin"), 10)
    }

    /// The service ends, and says how.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// TLS as a client that trusts `ca`, and the first byte of the other side: what it thinks of our certificate comes
    /// after our side of the handshake.
    pub async fn shake(&self, ca: &Ca, pair: Option<&Pair>) -> Result<TlsStream<TcpStream>, String> {
        let mut tls = self.tls(ca, pair).await.map_err(|e| e.to_string())?;
        tls.read_u8().await.map(|_| tls).map_err(|e| e.to_string())
    }

    async fn tls(&self, ca: &Ca, pair: Option<&Pair>) -> std::io::Result<TlsStream<TcpStream>> {
        self.tls_over(TcpStream::connect(self.address).await?, ca, pair).await
    }

    /// TLS over a connection that is there already.
    pub async fn tls_over(
        &self,
        tcp: TcpStream,
        ca: &Ca,
        pair: Option<&Pair>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.certificate.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match pair {
            None => config.with_no_client_auth(),
            Some(Pair { certificate, key, .. }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(self.address.ip().to_string()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    /// A client with this certificate.
    pub async fn client(&self, pair: &Pair) -> Client {
        NodeServiceClient::new(self.channel(pair).await)
    }

    /// A connection with this certificate.
    pub async fn channel(&self, pair: &Pair) -> Channel {
        // One connection, made now: it does not come back with other certificates.
        let mut tls = Some(TokioIo::new(self.tls(&self.ca, Some(pair)).await.unwrap()));
        let connector = service_fn(move |_: Uri| {
            let tls = tls.take().ok_or_else(|| std::io::Error::other("the connection has ended"));
            async move { tls }
        });
        let endpoint = Endpoint::from_static("http://node");
        endpoint.connect_with_connector(connector).await.unwrap()
    }

    /// A client at the socket.
    pub async fn local(&self) -> Client {
        NodeServiceClient::new(self.socket_channel().await)
    }

    /// A connection to the socket.
    pub async fn socket_channel(&self) -> Channel {
        let path = self.socket();
        let connector = service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://node");
        endpoint.connect_with_connector(connector).await.unwrap()
    }
}
