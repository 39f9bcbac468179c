//! The gate that looks at the certificates which etcd's members and the kubelets of the control plane show in a TLS handshake.
//!
//! The handshake ends when the certificate is there: nothing is sent, and nothing is believed but its last day. Kubelets of
//! workers have no part in the upgrade, so none of them can hold it up.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use slipway_kubernetes::{command_line::CommandLine, component::Component};
use tokio::{net::TcpStream, task::JoinSet, time::timeout};
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{
    look::{Seen, name},
    mirror_pods::{ETCD, MirrorPods},
};

/// How long one may take until its certificate is there.
const ANSWER: Duration = Duration::from_secs(10);
/// The longest address.
const LONGEST: usize = 260;
/// What to do where a firewall is in between.
const WITHOUT: &str = "servingCertificates: false, or --no-serving-certificates, looks at none";
/// Addresses that a node may have. More are not meant.
const MOST: usize = 32;

/// Where a certificate is shown, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Endpoint {
    host: String,
    port: u16,
    who: String,
}

/// Why the gate is closed: each must be valid until then.
pub async fn closed(seen: &Seen, pods: &MirrorPods, until: Timestamp) -> Option<String> {
    let mut endpoints = BTreeSet::new();
    for node in seen.control_plane.keys().filter_map(|name| seen.node(name)) {
        match of_node(node, pods) {
            Ok(of) if of.len() > MOST => return Some(format!("{}: it has more than {MOST} addresses", name(node))),
            Ok(of) => endpoints.extend(of),
            Err(why) => return Some(format!("{}: {why}", name(node))),
        }
    }
    let mut looks: JoinSet<Option<String>> =
        endpoints.into_iter().map(|of| async move { look(&of, until).await }).collect();
    let mut closed = BTreeSet::new();
    while let Some(look) = looks.join_next().await {
        closed.extend(look.unwrap_or_else(|e| Some(format!("a look has failed: {e}"))));
    }
    // The same one at each look.
    closed.pop_first()
}

async fn look(of: &Endpoint, until: Timestamp) -> Option<String> {
    let Endpoint { host, port, who } = of;
    let shown = timeout(ANSWER, presented(host, *port)).await;
    let shown = shown.unwrap_or_else(|_| Err(format!("nothing came within {} s", ANSWER.as_secs())));
    let expires = shown.and_then(|certificate| {
        let (_, certificate) = X509Certificate::from_der(&certificate).map_err(|e| e.to_string())?;
        Timestamp::from_second(certificate.validity().not_after.timestamp()).map_err(|e| e.to_string())
    });
    match expires {
        Err(why) => Some(format!("{who} at {host}, port {port}, shows no certificate: {why}; {WITHOUT}")),
        Ok(expires) if expires < until => Some(format!(
            "{who} at {host}, port {port}, shows a certificate that expires at {expires:.0}: renew it first"
        )),
        Ok(_) => None,
    }
}

/// The addresses of what runs on a node and shows a certificate.
fn of_node(node: &Node, pods: &MirrorPods) -> Result<BTreeSet<Endpoint>, String> {
    let status = node.status.as_ref();
    let address = status.and_then(|of| of.addresses.iter().flatten().find(|of| of.type_ == "InternalIP"));
    let address = || {
        let address = address.and_then(|of| of.address.parse::<IpAddr>().ok());
        address.map(|of| of.to_string()).ok_or_else(|| format!("its Node has no address as InternalIP; {WITHOUT}"))
    };
    let name = name(node);
    let mut all = BTreeSet::new();
    let kubelet = status.and_then(|of| Some(of.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref()?.port));
    if let Some(port) = kubelet.filter(|port| *port != 0) {
        let port = u16::try_from(port).map_err(|_| format!("{port} is no port of a kubelet"))?;
        all.insert(Endpoint { host: address()?, port, who: format!("the kubelet of {name}") });
    }
    let of_server = pods.of(name, Component::ApiServer.name()).map(of_api_server);
    let of_member = pods.of(name, ETCD).map(of_member);
    for url in of_server.into_iter().chain(of_member).flatten() {
        // Others show none.
        let Some(rest) = url.strip_prefix("https://") else { continue };
        let (host, port) = split(rest.split('/').next().unwrap_or_default())?;
        // The node itself is meant: kubeadm's etcd listens at both.
        let host = if is_loopback(&host) { address()? } else { host };
        all.insert(Endpoint { host, port, who: "etcd".to_owned() });
    }
    Ok(all)
}

/// The members that an API server asks: of all kinds, and of single kinds, `GROUP/RESOURCE#URL;URL`.
fn of_api_server(line: &CommandLine) -> Vec<&str> {
    let of_kinds = line.items("etcd-servers-overrides").filter_map(|of| Some(of.split_once('#')?.1));
    line.items("etcd-servers").chain(of_kinds.flat_map(|of| of.split(';'))).collect()
}

/// The addresses of a member, for clients and for other members.
fn of_member(line: &CommandLine) -> Vec<&str> {
    line.items("advertise-client-urls").chain(line.items("initial-advertise-peer-urls")).collect()
}

/// Host and port. People read them: a kubelet may write anything.
fn split(authority: &str) -> Result<(String, u16), String> {
    if authority.len() > LONGEST || !authority.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c)) {
        let beginning: String = authority.chars().take(40).collect();
        return Err(format!("{beginning:?} is no address of etcd"));
    }
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return Ok((address.ip().to_string(), address.port()));
    }
    let both = authority.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    both.ok_or_else(|| format!("{authority:?} is no address of etcd with a port"))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The certificate that a server shows.
async fn presented(host: &str, port: u16) -> Result<CertificateDer<'static>, String> {
    let provider = Arc::new(ring::default_provider());
    let recorder = Arc::new(Recorder { shown: Mutex::default(), provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let verifier: Arc<dyn ServerCertVerifier> = recorder.clone();
    let config = config.map_err(|e| e.to_string())?.dangerous().with_custom_certificate_verifier(verifier);
    let name = ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?;
    let stream = TcpStream::connect((host, port)).await.map_err(|e| e.to_string())?;
    let ended = TlsConnector::from(Arc::new(config.with_no_client_auth())).connect(name, stream).await;
    let shown = recorder.shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    shown.ok_or_else(|| ended.err().map_or_else(|| "it has none".to_owned(), |e| e.to_string()))
}

/// It takes the certificate, and ends the handshake.
#[derive(Debug)]
struct Recorder {
    shown: Mutex<Option<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
}

fn ended<T>() -> Result<T, Error> {
    Err(Error::General("only its certificate was to be seen".to_owned()))
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown.clone().into_owned());
        ended()
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ended()
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ended()
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
