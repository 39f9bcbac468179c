//! A small HTTP server that answers as a test tells it to, and remembers what it was asked.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    ops::Range,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::json;

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// As text: bytes that are none are lost.
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The first byte that a Range header asks for.
    pub fn start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }

    /// The bytes of so many that a Range header asks for: one range, with or without its last byte.
    pub fn range(&self, total: usize) -> Option<Range<usize>> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = if last.is_empty() { total } else { total.min(last.parse::<usize>().ok()? + 1) };
        let range = first.parse().ok()?..end;
        (!range.is_empty()).then_some(range)
    }

    fn read(stream: &mut dyn Read) -> Option<Self> {
        let mut lines = BufReader::new(stream);
        let mut line = || {
            let mut text = String::new();
            lines.read_line(&mut text).ok().filter(|n| *n > 0)?;
            Some(text.trim_end().to_owned())
        };
        let first = line()?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let mut headers = Vec::new();
        while let Some((name, value)) = line()?.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Request { method, target, headers, body: String::new() };
        let length = request.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        let mut body = Vec::new();
        lines.take(length).read_to_end(&mut body).ok()?;
        request.body = String::from_utf8_lossy(&body).into_owned();
        Some(request)
    }
}

/// Answers one request; the connection is closed when it returns.
pub trait Handler: Fn(&Request, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static {}
impl<F: Fn(&Request, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static> Handler for F {}

/// The server. It ends with its guard.
pub struct Server {
    pub port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    /// Without TLS.
    pub fn new(handler: impl Handler) -> Self {
        Server::start(None, handler)
    }

    /// With TLS; the certificate and its key as [`super::Authority`] makes them.
    pub fn with_tls(dir: &Path, handler: impl Handler) -> Self {
        let chain = CertificateDer::from_pem_slice(&fs::read(dir.join("server.crt")).unwrap()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&fs::read(dir.join("server.key")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![chain], key).unwrap();
        Server::with_config(config, handler)
    }

    pub fn with_config(config: ServerConfig, handler: impl Handler) -> Self {
        Server::start(Some(Arc::new(config)), handler)
    }

    /// Answers the first bytes of each connection so, whatever they are.
    pub fn answering_anything(answer: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server { port, requests: Arc::default(), stopped: Arc::new(AtomicBool::new(false)) };
        let stopped = Arc::clone(&server.stopped);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                // The client may be gone.
                let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer));
            }
        });
        server
    }

    fn start(tls: Option<Arc<ServerConfig>>, handler: impl Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, stopped) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let server = Server { port, requests: Arc::clone(&requests), stopped: Arc::clone(&stopped) };
        let handler = Arc::new(handler);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let (tls, handler, requests) = (tls.clone(), Arc::clone(&handler), Arc::clone(&requests));
                thread::spawn(move || match tls {
                    Some(config) => {
                        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                        serve(&mut stream, &*handler, &requests);
                        stream.conn.send_close_notify();
                        // The client may be gone.
                        let _ = stream.flush();
                    }
                    None => serve(&mut { stream }, &*handler, &requests),
                });
            }
        });
        server
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for connections.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn serve(stream: &mut (impl Read + Write), handler: &impl Handler, requests: &Mutex<Vec<Request>>) {
    if let Some(request) = Request::read(stream) {
        requests.lock().unwrap().push(request.clone());
        // A client that has enough goes away, which is an error here only.
        let _ = handler(&request, stream).and_then(|()| stream.flush());
    }
}

/// A whole answer.
pub fn reply(out: &mut dyn Write, status: u16, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
    let length = body.len().to_string();
    head(out, status, &[&[("Content-Length", length.as_str())], headers].concat())?;
    out.write_all(body)
}

/// Status and headers; what follows is up to the caller.
pub fn head(out: &mut dyn Write, status: u16, headers: &[(&str, &str)]) -> io::Result<()> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(out, "HTTP/1.1 {status} text\r\n{lines}Connection: close\r\n\r\n")
}

/// `bytes` with support for Range, as a good server does it; the ETag is `"v1"`.
pub fn serve_blob(request: &Request, out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    blob_head(request, out, bytes)?;
    out.write_all(&bytes[request.range(bytes.len()).unwrap_or(0..bytes.len())])
}

/// The same without the bytes.
pub fn blob_head(request: &Request, out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let total = bytes.len();
    let asked = request.range(total);
    let Range { start, end } = asked.clone().unwrap_or(0..total);
    let length = (end - start).to_string();
    let range = format!("bytes {start}-{}/{total}", end.saturating_sub(1));
    let mut headers = vec![("Content-Length", length.as_str()), ("ETag", "\"v1\"")];
    if asked.is_some() {
        headers.push(("Content-Range", range.as_str()));
    }
    head(out, if asked.is_some() { 206 } else { 200 }, &headers)
}

/// Base64 of `me:secret`.
pub const ME: &str = "Basic bWU6c2VjcmV0";

/// A token service whose tokens are `t1`, `t2`, and so on; only for `me` if `private`.
pub fn token_service(field: &'static str, private: bool) -> Server {
    let count = AtomicUsize::new(0);
    Server::new(move |request, out| {
        if private && request.header("authorization") != Some(ME) {
            return reply(out, 401, &[], b"");
        }
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        reply(out, 200, &[], json!({field: format!("t{number}"), "expires_in": 60}).to_string().as_bytes())
    })
}

/// The challenge of a registry that relies on this service.
pub fn challenge(service: &Server) -> String {
    format!(
        r#"Bearer realm="http://127.0.0.1:{}/token?x=y",service="a service",scope="repository:a/b:pull""#,
        service.port
    )
}

/// Something between a client and a server of 127.0.0.1 that hands on both ways.
pub struct Proxy {
    pub port: u16,
    /// Connections so far.
    pub connections: Arc<AtomicUsize>,
}

/// The end of a connection that has brought its share of answers.
#[derive(Clone, Copy)]
pub enum Then {
    Cut,
    /// A byte every 10 ms.
    Drip,
}

impl Proxy {
    /// At this address, before this port; each connection brings so many bytes as they come. It lives as long as the
    /// test program: nothing asks it to end.
    pub fn new(address: &str, to: u16, most: u64, then: Then) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                let (mut asks, mut hears) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || io::copy(&mut asks, &mut hears));
                // Either end may go away, which ends both.
                thread::spawn(move || {
                    let _ = hand_on(&server, &client, most, then);
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        Proxy { port, connections }
    }
}

fn hand_on(mut from: &TcpStream, mut to: &TcpStream, most: u64, then: Then) -> io::Result<()> {
    io::copy(&mut from.take(most), &mut to)?;
    let mut byte = [0];
    while matches!(then, Then::Drip) && from.read(&mut byte)? == 1 {
        to.write_all(&byte)?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
