//! What the environment says: proxies, authorities, auth files. A process has only one environment, so each of these
//! runs this test program again: the first of them, with a reference to fetch.

use std::{env, fs, path::Path, process::Command};

use slipway::payload::{
    image::ImageStore as _,
    registry::{Options, Registry},
};
use slipway_test_support::registry::{
    Authority, auth_file, hurried,
    server::{Server, reply},
};
use tempfile::TempDir;

/// The reference that the program run again fetches; `--plain-http` if it begins with `http:`.
const REFERENCE: &str = "SLIPWAY_TEST_REFERENCE";
/// What is set around these tests, and must not be seen.
const CLEARED: [&str; 12] = [
    "ALL_PROXY",
    "all_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "REGISTRY_AUTH_FILE",
    "XDG_RUNTIME_DIR",
    "DOCKER_CONFIG",
];

#[test]
fn without_any_of_it_the_server_itself_is_asked() {
    if let Ok(reference) = env::var(REFERENCE) {
        return fetch(&reference);
    }
    let home = TempDir::new().unwrap();
    let server = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let said = fetched(&format!("http:127.0.0.1:{}/a/b:1", server.port), home.path(), &[]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
}

fn fetch(reference: &str) {
    let plain = reference.strip_prefix("http:");
    let options = Options { plain_http: plain.is_some(), ..hurried() };
    let image = plain.unwrap_or(reference).parse().unwrap();
    match Registry::new(&image, &options).and_then(|registry| registry.root()) {
        Ok(document) => println!("fetched {} bytes", document.bytes.len()),
        Err(e) => println!("failed: {e}"),
    }
}

/// The answer of `fetch` in this environment.
fn fetched(reference: &str, home: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "registry::environment::without_any_of_it_the_server_itself_is_asked", "--nocapture"]);
    for name in CLEARED {
        command.env_remove(name);
    }
    command.env("HOME", home).env("XDG_CONFIG_HOME", home).env(REFERENCE, reference);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_proxy_is_asked_unless_it_is_not_for_this_host() {
    let home = TempDir::new().unwrap();
    let proxy = Server::new(|_, out| reply(out, 502, &[], b""));
    let server = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let (at, name) = (format!("http://127.0.0.1:{}", proxy.port), format!("http:127.0.0.1:{}/a/b:1", server.port));
    let said = fetched(&name, home.path(), &[("http_proxy", &at)]);
    assert!(said.contains("failed: manifest 1") && said.contains("the proxy 127.0.0.1:"), "{said}");
    assert_eq!(proxy.requests()[0].method, "CONNECT");
    assert_eq!(proxy.requests()[0].target, format!("127.0.0.1:{}", server.port));
    assert!(server.requests().is_empty());
    let asked = proxy.requests().len();
    let said = fetched(&name, home.path(), &[("http_proxy", &at), ("no_proxy", "localhost, 127.0.0.0/8")]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    assert_eq!(proxy.requests().len(), asked);
}

/// What a proxy has against it is not asked again where that would not help, and 407 says what to write.
#[test]
fn a_proxy_that_refuses_is_named() {
    let home = TempDir::new().unwrap();
    for (status, words, asked) in [
        (407, "wants a user and a password", 1),
        (403, "does not connect to http://127.0.0.1:", 1),
        (503, "cannot reach http://127.0.0.1:", 2),
    ] {
        let proxy = Server::new(move |_, out| reply(out, status, &[], b""));
        let at = format!("http://127.0.0.1:{}", proxy.port);
        let said = fetched("http:127.0.0.1:9/a/b:1", home.path(), &[("HTTP_PROXY", &at)]);
        assert!(said.contains(&format!("the proxy {}", &at[7..])) && said.contains(words), "{said}");
        assert!(said.contains(&status.to_string()), "{said}");
        assert_eq!(proxy.requests().len().min(2), asked, "{said}");
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
        ("http", saying("SSH-2.0-OpenSSH_9.2\r\n\r\n"), "does not answer as a proxy does"),
        ("http", saying(""), "proxy server did not respond"),
        ("https", squid, "begin its address with http://"),
        ("https", with_tls, "is from an authority that is not trusted"),
    ] {
        for reference in ["http:registry.example/a/b:1", "registry.example/a/b:1"] {
            let at = format!("{scheme}://localhost:{}", server.port);
            let said = fetched(reference, home.path(), &[("ALL_PROXY", &at)]);
            let name = format!("the proxy localhost:{} ($ALL_PROXY)", server.port);
            assert!(said.contains(&name) && said.contains(words), "{at}: {said}");
        }
    }
}

#[test]
fn a_proxy_that_is_not_to_be_asked_need_not_be_one() {
    let home = TempDir::new().unwrap();
    let server = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let name = format!("http:127.0.0.1:{}/a/b:1", server.port);
    let wrong = ("ALL_PROXY", "socks5://127.0.0.1:9");
    let said = fetched(&name, home.path(), &[wrong, ("NO_PROXY", "localhost 127.0.0.1")]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    let said = fetched(&name, home.path(), &[wrong]);
    assert!(said.contains("failed: manifest 1") && said.contains("$ALL_PROXY"), "{said}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_bundle_of_the_environment_is_trusted() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path());
    let server = Server::with_tls(dir.path(), |_, out| reply(out, 200, &[], b"[1,2]"));
    let name = format!("localhost:{}/a/b:1", server.port);
    let bundle = authority.0.join("ca.crt");
    let said = fetched(&name, dir.path(), &[("SSL_CERT_FILE", bundle.to_str().unwrap())]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    let said = fetched(&name, dir.path(), &[]);
    assert!(said.contains("not trusted"), "{said}");
    let said = fetched(&name, dir.path(), &[("SSL_CERT_FILE", "/nosuch/bundle")]);
    assert!(said.contains("/nosuch/bundle ($SSL_CERT_FILE)"), "{said}");
}

#[test]
fn the_auth_files_of_podman_and_docker_are_found() {
    let home = TempDir::new().unwrap();
    // Base64 of `me:secret`.
    let server = Server::new(|request, out| match request.header("authorization") {
        Some("Basic bWU6c2VjcmV0") => reply(out, 200, &[], b"[1,2]"),
        _ => reply(out, 401, &[("WWW-Authenticate", "Basic realm=x")], b""),
    });
    let (host, name) = (format!("127.0.0.1:{}", server.port), format!("http:127.0.0.1:{}/a/b:1", server.port));
    let said = fetched(&name, home.path(), &[]);
    assert!(said.contains("no credentials"), "{said}");
    let elsewhere = auth_file(home.path(), &host, "me", "secret");
    let said = fetched(&name, home.path(), &[("REGISTRY_AUTH_FILE", elsewhere.to_str().unwrap())]);
    assert!(said.contains("fetched 5 bytes"), "{said}");
    for place in ["run/containers/auth.json", "containers/auth.json", "docker/config.json", ".docker/config.json"] {
        let path = home.path().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&elsewhere, &path).unwrap();
        let dir = |name: &str| home.path().join(name).display().to_string();
        let variables = [("XDG_RUNTIME_DIR", dir("run")), ("DOCKER_CONFIG", dir("docker"))];
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let said = fetched(&name, home.path(), &variables);
        assert!(said.contains("fetched 5 bytes"), "{place}: {said}");
        fs::remove_file(&path).unwrap();
    }
}
