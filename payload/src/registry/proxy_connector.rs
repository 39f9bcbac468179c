//! Connects to a proxy, and marks the faults on the way there: later ones are those of the host behind it.
//!
//! TLS goes through a tunnel that the proxy opens (CONNECT). A request without TLS goes to the proxy with its whole address
//! (RFC 9112, section 3.2.2), as those of curl, Go and containerd do: many proxies open tunnels to port 443 alone.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ureq::{
    Body, Error, Proxy,
    config::Config,
    http::Response,
    unversioned::transport::{
        Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, NextTimeout, Transport,
    },
};

#[derive(Debug)]
pub struct ProxyConnector {
    tunnel: ConnectProxyConnector,
    /// Of the connection to the proxy itself.
    direct: Config,
}

/// Stands with an answer that came through a proxy: the proxy's name. Without TLS the proxy may have given it itself.
#[derive(Clone, Debug)]
pub struct ThroughProxy(pub String);

/// The name of the proxy that an answer came through.
pub fn proxy_of(response: &Response<Body>) -> Option<String> {
    response.extensions().get::<ThroughProxy>().map(|ThroughProxy(proxy)| proxy.clone())
}

/// A fault between this machine and its proxy.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct AtProxy {
    pub error: Error,
    /// The proxy has taken the connection. From then on it may be waiting for the host behind it.
    pub is_connected: bool,
}

impl ProxyConnector {
    /// `direct` names no proxy.
    pub fn new(direct: Config) -> Self {
        ProxyConnector { tunnel: ConnectProxyConnector::default(), direct }
    }

    fn forwarding(&self, details: &ConnectionDetails<'_>, proxy: &Proxy) -> Result<Forwarding, Error> {
        let to_proxy = ConnectionDetails {
            uri: proxy.uri(),
            addrs: details.resolver.resolve(proxy.uri(), &self.direct, details.timeout)?,
            config: &self.direct,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        };
        let inner = (details.run_connector)(&to_proxy)?;
        let authority = details.uri.authority().map_or("", |authority| authority.as_str());
        let user = proxy.username().is_some() || proxy.password().is_some();
        let credentials = user.then(|| {
            let text = format!("{}:{}", proxy.username().unwrap_or_default(), proxy.password().unwrap_or_default());
            format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(text))
        });
        let headers = credentials.unwrap_or_default();
        Ok(Forwarding { inner, host: format!("http://{authority}"), headers, is_at_head: true })
    }
}

impl<In: Transport> Connector<In> for ProxyConnector {
    type Out = Either<In, Box<dyn Transport>>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        let is_connected = Arc::new(AtomicBool::new(false));
        let (run, told) = (details.run_connector.clone(), is_connected.clone());
        let watched = ConnectionDetails {
            addrs: details.addrs.clone(),
            current_time: details.current_time.clone(),
            run_connector: Arc::new(move |to_proxy: &ConnectionDetails<'_>| {
                run(to_proxy).inspect(|_| told.store(true, Ordering::Relaxed))
            }),
            register_shutdown: details.register_shutdown.clone(),
            ..*details
        };
        let connected = match details.config.proxy().filter(|_| chained.is_none() && !details.needs_tls()) {
            Some(proxy) => self.forwarding(&watched, proxy).map(|transport| Some(Either::B(transport.boxed()))),
            None => self.tunnel.connect(&watched, chained),
        };
        connected.map_err(|error| {
            let is_connected = is_connected.load(Ordering::Relaxed);
            Error::Other(Box::new(AtProxy { error, is_connected }))
        })
    }
}

/// Sends requests to a proxy: with the whole address in place of the path, and with our credentials for the proxy.
struct Forwarding {
    inner: Box<dyn Transport>,
    /// `http://HOST[:PORT]`, as it goes before the path.
    host: String,
    /// Lines for the proxy itself.
    headers: String,
    /// The next bytes begin with the head of a request: nothing was sent, or an answer came since.
    is_at_head: bool,
}

// The credentials must not get into a message.
impl std::fmt::Debug for Forwarding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forwarding({:?})", self.inner)
    }
}

/// The head of a request, as ureq writes it, or its beginning, which has the first line.
fn for_proxy(host: &str, headers: &str, head: &[u8]) -> Option<Vec<u8>> {
    let path = head.iter().position(|byte| *byte == b' ')? + 1;
    let end = head.windows(2).position(|end| end == b"\r\n")? + 2;
    let (line, others) = head.split_at(end);
    let (method, target) = line.split_at(path);
    Some([method, host.as_bytes(), target, headers.as_bytes(), others].concat())
}

impl Transport for Forwarding {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let Forwarding { inner, host, headers, is_at_head } = self;
        if !std::mem::take(is_at_head) {
            return inner.transmit_output(amount, timeout);
        }
        let head = for_proxy(host, headers, &inner.buffers().output()[..amount]);
        // ureq writes the first line of a request whole.
        let head = head.ok_or_else(|| Error::Other("a request without its first line".into()))?;
        let mut rest = &head[..];
        while !rest.is_empty() {
            let output = inner.buffers().output();
            let (piece, later) = rest.split_at(rest.len().min(output.len()));
            output[..piece.len()].copy_from_slice(piece);
            inner.transmit_output(piece.len(), timeout)?;
            rest = later;
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.is_at_head = true;
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }
}
