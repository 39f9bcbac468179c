//! Registries behind the proxies that the environment names: what they are asked, and whose fault it is that nothing comes.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read as _, Write},
    net::{Shutdown, TcpStream},
    os::unix::ffi::OsStrExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use slipway_core::digest::Sha256;
use slipway_test_support::{
    exit_code::DEPENDENCY,
    port::free_port,
    registry::{
        Authority, Debian, Image,
        server::{Request, Server, reply},
    },
    world::{Outcome, installer},
};
use tempfile::TempDir;

use super::environment::{CLEARED, NOTHING, fetched};

/// Answers as the host of its target does, and connects to none: as squid does for a port other than 443.
fn forward(request: &Request, out: &mut dyn Write) -> io::Result<()> {
    let Some((authority, path)) = request.target.strip_prefix("http://").and_then(|rest| rest.split_once('/')) else {
        return reply(out, 403, &[("X-Squid-Error", "ERR_ACCESS_DENIED 0")], b"<html>denied</html>");
    };
    let mut host = TcpStream::connect(authority)?;
    let own = |name: &str| name.starts_with("proxy-") || name == "connection";
    let headers =
        request.headers.iter().filter(|(name, _)| !own(name)).map(|(name, value)| format!("{name}: {value}\r\n"));
    let headers: String = headers.collect();
    write!(host, "{} /{path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n{}", request.method, request.body)?;
    host.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    host.read_to_end(&mut answer)?;
    out.write_all(&answer)
}

#[test]
fn a_proxy_is_asked_unless_it_is_not_for_this_host() {
    let home = TempDir::new().unwrap();
    let proxy = Server::new(|_, out| reply(out, 502, &[], b""));
    let server = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let (at, host) = (format!("http://127.0.0.1:{}", proxy.port), format!("127.0.0.1:{}", server.port));
    for (scheme, method, target) in
        [("", "CONNECT", host.clone()), ("http:", "GET", format!("http://{host}/v2/a/b/manifests/1"))]
    {
        let name = format!("{scheme}{host}/a/b:1");
        let asked = proxy.requests().len();
        let said = fetched(&name, home.path(), &[("all_proxy", &at)]);
        assert!(said.contains("failed: manifest 1") && said.contains("the proxy 127.0.0.1:"), "{said}");
        let first = &proxy.requests()[asked];
        assert_eq!((first.method.as_str(), &first.target, first.header("host")), (method, &target, Some(&host[..])));
        assert!(server.requests().is_empty());
    }
    let asked = proxy.requests().len();
    let variables = [("http_proxy", &at[..]), ("no_proxy", "localhost, 127.0.0.0/8")];
    let said = fetched(&format!("http:{host}/a/b:1"), home.path(), &variables);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    assert_eq!(proxy.requests().len(), asked);
}

/// A proxy that opens no tunnels gets its own credentials, and nobody else gets them. Each redirect is judged anew.
#[test]
fn without_tls_a_proxy_needs_no_tunnel() {
    let home = TempDir::new().unwrap();
    let proxy = Server::new(|request, out| match request.header("proxy-authorization") {
        Some(own) if own == format!("Basic {}", STANDARD.encode("me:sec#ret")) => forward(request, out),
        _ => reply(out, 407, &[("Proxy-Authenticate", "Basic realm=x")], b""),
    });
    let store = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let location = format!("http://127.0.0.1:{}/elsewhere?x=http://y/", store.port);
    let registry = Server::new(move |_, out| reply(out, 307, &[("Location", &location)], b""));
    let name = format!("http:127.0.0.1:{}/a/b:1", registry.port);
    let at = format!("http://me:sec%23ret@127.0.0.1:{}", proxy.port);
    let said = fetched(&name, home.path(), &[("HTTP_PROXY", &at)]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    let targets: Vec<_> = proxy.requests().iter().map(|request| request.target.clone()).collect();
    let of = |server: &Server, path: &str| format!("http://127.0.0.1:{}/{path}", server.port);
    assert_eq!(targets, [of(&registry, "v2/a/b/manifests/1"), of(&store, "elsewhere?x=http://y/")]);
    for server in [&registry, &store] {
        let [request] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
        assert_eq!(request.header("host"), Some(&format!("127.0.0.1:{}", server.port)[..]));
        assert_eq!(request.header("proxy-authorization"), None);
    }
    let without = format!("127.0.0.1:{}", store.port);
    let said = fetched(&name, home.path(), &[("HTTP_PROXY", &at), ("NO_PROXY", &without)]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    assert_eq!((proxy.requests().len(), store.requests().len()), (3, 2));
    // With TLS it would take a tunnel.
    let said = fetched(&name[5..], home.path(), &[("HTTPS_PROXY", &at)]);
    assert!(said.contains("does not connect to https://127.0.0.1:") && said.contains("403"), "{said}");
}

/// What a proxy has against it is not asked again where that would not help, and 407 says what to write.
#[test]
fn a_proxy_that_refuses_is_named() {
    let home = TempDir::new().unwrap();
    for (status, words, asked) in [
        (407, "wants a user and a password", 1),
        (407, "They are sent by Basic", 1),
        (401, "wants a user and a password", 1),
        (403, "does not connect to http", 1),
        (503, "cannot reach http", 2),
        (504, "cannot reach http", 2),
    ] {
        for scheme in ["", "http:", "digest:", "digest:http:"] {
            let proxy = Server::new(move |_, out| reply(out, status, &[("X-Squid-Error", "ERR_X 0")], b""));
            let at = format!("http://127.0.0.1:{}", proxy.port);
            let said = fetched(&format!("{scheme}127.0.0.1:9/a/b:1"), home.path(), &[("ALL_PROXY", &at)]);
            assert!(said.contains(&format!("the proxy {}", &at[7..])) && said.contains(words), "{said}");
            assert!(said.contains(&status.to_string()) && !said.contains("credentials"), "{said}");
            assert_eq!(proxy.requests().len().min(2), asked, "{said}");
        }
    }
}

/// Of an answer without TLS that does not say who gave it, both may be the author. A registry says a code.
#[test]
fn an_answer_through_a_proxy_is_its_own_or_the_registrys() {
    let home = TempDir::new().unwrap();
    for (status, body, either) in [
        (403, "<html>denied</html>", true),
        (404, "", true),
        (502, "<html>bad gateway</html>", true),
        (404, r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#, false),
        (403, r#"{"errors": [{"code": "DENIED"}]}"#, false),
    ] {
        let registry = Server::new(move |_, out| reply(out, status, &[], body.as_bytes()));
        let proxy = Server::new(forward);
        let at = format!("http://127.0.0.1:{}", proxy.port);
        let name = format!("http:127.0.0.1:{}/a/b:1", registry.port);
        let said = fetched(&name, home.path(), &[("HTTP_PROXY", &at)]);
        assert!(said.contains(&format!("http://127.0.0.1:{} answers {status}", registry.port)), "{said}");
        let named = said.contains(&format!("or the proxy {} ($HTTP_PROXY) does so in its place", &at[7..]));
        assert_eq!(named, either, "{said}");
        let said = fetched(&name, home.path(), NOTHING);
        assert!(said.contains(&format!("answers {status}")) && !said.contains("proxy"), "{said}");
    }
}

/// Whatever goes wrong before it connects is the fault of the proxy, not of the registry.
#[test]
fn a_proxy_that_is_none_is_named() {
    let home = TempDir::new().unwrap();
    Authority::new(home.path());
    let saying = |text: &'static str| Server::new(move |_, out| out.write_all(text.as_bytes()));
    let with_tls = Server::with_tls(home.path(), |_, _| Ok(()));
    // As squid answers a ClientHello.
    let squid = Server::answering_anything(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    for (scheme, server, words) in [
        ("http", saying("SSH-2.0-OpenSSH_9.2\r\n\r\n"), ["does not answer as a proxy does"; 2]),
        ("http", saying(""), ["breaks the connection", "gives no answer"]),
        ("https", squid, ["begin its address with http://"; 2]),
        ("https", with_tls, ["is from an authority that is not trusted"; 2]),
    ] {
        for (reference, words) in ["http:registry.example/a/b:1", "registry.example/a/b:1"].into_iter().zip(words) {
            let at = format!("{scheme}://localhost:{}", server.port);
            let said = fetched(reference, home.path(), &[("ALL_PROXY", &at)]);
            let name = format!("the proxy localhost:{} ($ALL_PROXY)", server.port);
            assert!(said.contains(&name) && said.contains(words), "{at}: {said}");
        }
    }
}

/// squid waits for a registry that is down as long as a minute.
#[test]
fn a_proxy_that_waits_for_the_registry_may_be_well() {
    let home = TempDir::new().unwrap();
    let proxy = Server::new(|_, _| {
        thread::sleep(Duration::from_secs(3));
        Ok(())
    });
    let at = format!("http://127.0.0.1:{}", proxy.port);
    let said = fetched("hasty:registry.example/a/b:1", home.path(), &[("HTTPS_PROXY", &at)]);
    let words = format!("the proxy {} ($HTTPS_PROXY) brings no answer of https://registry.example in time", &at[7..]);
    assert!(said.contains(&words), "{said}");
    assert_eq!(proxy.requests()[0].method, "CONNECT");
}

/// The proxy may be the one that ends a connection.
#[test]
fn a_proxy_that_dies_on_the_way_is_named() {
    let home = TempDir::new().unwrap();
    for (reference, text) in [
        ("http:registry.example/a/b:1", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1,"),
        ("registry.example/a/b:1", "HTTP/1.1 200 Connection established\r\n\r\n"),
    ] {
        let proxy = Server::new(move |_, out| out.write_all(text.as_bytes()));
        let at = format!("http://127.0.0.1:{}", proxy.port);
        let said = fetched(reference, home.path(), &[("ALL_PROXY", &at)]);
        let words = format!("; it was asked through the proxy {} ($ALL_PROXY)", &at[7..]);
        assert!(said.contains("://registry.example ") && said.contains(&words), "{said}");
    }
}

/// The same, in the middle of a blob.
#[test]
fn a_proxy_that_dies_in_a_blob_is_named() {
    let blob = Sha256::of(b"{}");
    let manifest = format!(
        r#"{{"schemaVersion": 2, "config": {{"mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": "sha256:{blob}", "size": 2}}, "layers": []}}"#
    );
    let proxy = Server::new(move |request, out| match request.target.contains("/blobs/") {
        true => out.write_all(b"HTTP/1.1 200 OK\r\n\r\n{"),
        false => reply(out, 200, &[], manifest.as_bytes()),
    });
    let at = format!("127.0.0.1:{}", proxy.port);
    let mut command = installer(["inspect", "docker://registry.example/a/b:1", "--plain-http", "--progress=none"]);
    for name in CLEARED {
        command.env_remove(name);
    }
    command.env("HTTP_PROXY", format!("http://{at}"));
    let words = format!("closed the connection too early; it was asked through the proxy {at} ($HTTP_PROXY)");
    Outcome::of(&mut command).exits(DEPENDENCY).says(&[&words]);
}

#[test]
fn a_proxy_that_is_not_to_be_asked_need_not_be_one() {
    let home = TempDir::new().unwrap();
    let server = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let name = format!("http:127.0.0.1:{}/a/b:1", server.port);
    let wrong = ("ALL_PROXY", "socks5://127.0.0.1:9");
    let said = fetched(&name, home.path(), &[wrong, ("NO_PROXY", "localhost 127.0.0.1")]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    let no_text = OsStr::from_bytes(b"http://127.0.0.1:9\xff");
    for wrong in [wrong.1.as_ref(), no_text] {
        let said = fetched(&name, home.path(), &[("ALL_PROXY", wrong)]);
        assert!(said.contains("failed: manifest 1") && said.contains("$ALL_PROXY"), "{said}");
    }
    assert_eq!(server.requests().len(), 1);
}

/// Debian's tinyproxy. It ends with its guard.
struct Tinyproxy(Child, u16);

impl Tinyproxy {
    /// Opens tunnels to this port alone.
    fn new(dir: &TempDir, tunnels_to: u16) -> Self {
        let (port, file) = (free_port(), dir.path().join("tinyproxy.conf"));
        let text =
            format!("Port {port}\nListen 127.0.0.1\nConnectPort {tunnels_to}\nBasicAuth me secret\nMaxClients 20\n");
        fs::write(&file, text).unwrap();
        let mut command = Command::new("tinyproxy");
        let command =
            command.arg("-d").arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("tinyproxy: it comes with the package tinyproxy: run hack/test");
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = child.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < Duration::from_secs(60),
                "tinyproxy does not start: {ended:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
        Tinyproxy(child, port)
    }
}

impl Drop for Tinyproxy {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn an_image_comes_through_a_real_proxy() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let debian = Debian::new(dir.path(), &image, "", "", &["--dest-tls-verify=false"]);
    let proxy = Tinyproxy::new(&dir, 443);
    let name = format!("all:http:127.0.0.1:{}/a/b:1", debian.port);
    let through =
        |user: &str| fetched(&name, dir.path(), &[("HTTP_PROXY", &format!("http://{user}127.0.0.1:{}", proxy.1))]);
    let said = through("me:secret@");
    assert!(said.contains("fetched all of it"), "{said}");
    let said = through("me:other@");
    let words = format!("the proxy 127.0.0.1:{} ($HTTP_PROXY) wants a user and a password", proxy.1);
    assert!(said.contains(&words) && !said.contains("other"), "{said}");
    let said = through("");
    assert!(said.contains(&words), "{said}");
    // A registry that is down.
    drop(debian);
    let said = through("me:secret@");
    let words = format!("the proxy 127.0.0.1:{} ($HTTP_PROXY) cannot reach http://127.0.0.1:", proxy.1);
    assert!(said.contains(&words) && said.contains("it answers 500"), "{said}");
}

/// With TLS the registry's bytes go through a tunnel.
#[test]
fn an_image_comes_through_a_tunnel_of_a_real_proxy() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let authority = Authority::new(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let http = format!("  tls:\n    certificate: {}\n    key: {}\n", path("server.crt"), path("server.key"));
    let debian = Debian::new(dir.path(), &image, &http, "", &["--dest-tls-verify=false"]);
    let bundle = authority.0.join("ca.crt").display().to_string();
    for (tunnels_to, words) in [(debian.port, "fetched all of it"), (443, "does not connect to https://127.0.0.1:")] {
        let proxy = Tinyproxy::new(&dir, tunnels_to);
        let at = format!("http://me:secret@127.0.0.1:{}", proxy.1);
        let name = format!("all:127.0.0.1:{}/a/b:1", debian.port);
        let said = fetched(&name, dir.path(), &[("HTTPS_PROXY", &at), ("SSL_CERT_FILE", &bundle)]);
        assert!(said.contains(words), "{said}");
    }
}
