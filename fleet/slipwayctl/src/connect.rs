//! To a node: TLS with certificates on both sides, or the Unix socket.

use std::{io, path::Path, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use slipway_node_api::v1::node_service_client::NodeServiceClient;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::{
    config::{Context, TlsContext},
    failure::{Failure, chain},
};

/// A node that may be called.
pub type Client = NodeServiceClient<Channel>;

/// The port if none is said.
const PORT: u16 = 50000;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How a node that went away is noticed: a ping after this time without anything, and as long for its answer.
const PING: Duration = Duration::from_secs(15);

/// Connect to the node of `context`.
pub async fn connect(context: &Context) -> Result<Client, Failure> {
    let channel = match context {
        Context::Socket(of) => {
            let path = of.socket.clone();
            let connector = service_fn(move |_: Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            });
            let channel = endpoint("http://node")?.connect_with_connector(connector).await;
            channel.map_err(|e| Failure::Unreachable(format!("{}: {}", of.socket.display(), chain(&e))))?
        }
        Context::Tls(of) => tls(of).await?,
    };
    Ok(NodeServiceClient::new(channel))
}

fn endpoint(uri: &str) -> Result<Endpoint, Failure> {
    let endpoint = Endpoint::from_shared(uri.to_owned()).map_err(|e| Failure::Usage(format!("{uri}: {e}")))?;
    Ok(endpoint
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .keep_alive_while_idle(true))
}

async fn tls(context: &TlsContext) -> Result<Channel, Failure> {
    let (host, port) = address(&context.endpoint)?;
    let config = Arc::new(client_config(context)?);
    let name = ServerName::try_from(host.clone());
    let name = name.map_err(|e| Failure::Usage(format!("endpoint {host:?}: {e}")))?;
    let connector = service_fn(move |_: Uri| {
        let (host, name, config) = (host.clone(), name.clone(), config.clone());
        async move {
            let tcp = TcpStream::connect((host.as_str(), port)).await?;
            tcp.set_nodelay(true)?;
            let tls = TlsConnector::from(config).connect(name, tcp).await?;
            Ok::<_, io::Error>(TokioIo::new(tls))
        }
    });
    // The scheme is tonic's word for who makes the TLS; the connector does.
    let channel = endpoint(&format!("http://{}", context.endpoint))?.connect_with_connector(connector).await;
    channel.map_err(|e| Failure::Unreachable(format!("{}: {}", context.endpoint, chain(&e))))
}

/// Host, without brackets, and port.
fn address(endpoint: &str) -> Result<(String, u16), Failure> {
    let wrong = || Failure::Usage(format!("{endpoint:?} is no endpoint: HOST, HOST:PORT or [ADDRESS]:PORT"));
    let uri: Uri = format!("http://{endpoint}").parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    if uri.authority().is_none_or(|authority| authority.as_str() != endpoint) || endpoint.contains('@') {
        return Err(wrong());
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((host, uri.port_u16().unwrap_or(PORT)))
}

fn client_config(context: &TlsContext) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    for ca in certificates(&context.ca)? {
        roots.add(ca).map_err(|e| Failure::file(&context.ca, e))?;
    }
    let key = PrivateKeyDer::from_pem_file(&context.key).map_err(|e| Failure::file(&context.key, e))?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| Failure::Failed(e.to_string()))?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(&context.certificate)?, key)
        .map_err(|e| Failure::file(&context.certificate, e))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let items = CertificateDer::pem_file_iter(path).map_err(|e| Failure::file(path, e))?;
    let items: Vec<_> = items.collect::<Result<_, _>>().map_err(|e| Failure::file(path, e))?;
    if items.is_empty() { Err(Failure::file(path, "it has no certificate")) } else { Ok(items) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        assert_eq!(address("node"), Ok(("node".to_owned(), 50000)));
        assert_eq!(address("10.0.0.1:7"), Ok(("10.0.0.1".to_owned(), 7)));
        assert_eq!(address("[::1]:7"), Ok(("::1".to_owned(), 7)));
        assert_eq!(address("[::1]"), Ok(("::1".to_owned(), 50000)));
        for wrong in ["", "https://node", "node/path", "a@node", ":7", "no de"] {
            assert!(matches!(address(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
