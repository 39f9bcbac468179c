//! Tokens, and where credentials may go.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;
use slipway::payload::{
    image::ImageStore as _,
    registry::{Options, Registry},
};
use slipway_test_support::{
    registry::{
        Authority, at, auth_file, blob, options, plain, registry, says,
        server::{ME, Server, blob_head, challenge, reply, token_service},
    },
    world::noise,
};
use tempfile::TempDir;

/// A registry that accepts what begins with these letters, and answers with `bytes`; each token for so many requests.
fn guarded(challenge: String, accepted: &'static str, bytes: Vec<u8>, uses: usize) -> Server {
    let used = AtomicUsize::new(0);
    Server::new(move |request, out| {
        let number = used.load(Ordering::SeqCst) / uses + 1;
        let wanted = format!("{accepted}{number}");
        if request.header("authorization") != Some(&wanted) {
            return reply(out, 401, &[("WWW-Authenticate", &challenge)], b"");
        }
        used.fetch_add(1, Ordering::SeqCst);
        blob_head(request, out, &bytes)?;
        let start = request.start().unwrap_or(0);
        out.write_all(&bytes[start..usize::min(start + 50_000, bytes.len())])
    })
}

/// As `me` at this server.
fn as_me(dir: &TempDir, server: &Server) -> Registry {
    let host = format!("127.0.0.1:{}", server.port);
    let auth_file = Some(auth_file(dir.path(), &host, "me", "secret"));
    registry(&format!("{host}/a/b:1"), &Options { auth_file, ..plain() })
}

#[test]
fn anybody_gets_a_token() {
    for field in ["token", "access_token"] {
        let service = token_service(field, false);
        let server = guarded(challenge(&service), "Bearer t", b"[1,2]".to_vec(), 100);
        let registry = at(server.port);
        assert_eq!(registry.root().unwrap().bytes, b"[1,2]");
        assert_eq!(blob(&registry, b"[1,2]").unwrap(), b"[1,2]");
        let asked = service.requests();
        assert_eq!(asked.len(), 1, "the token is used again");
        assert_eq!(asked[0].target, "/token?x=y&scope=repository%3Aa%2Fb%3Apull&service=a%20service");
        assert_eq!(asked[0].header("authorization"), None);
    }
}

#[test]
fn credentials_go_to_the_token_service_and_nowhere_else() {
    let dir = TempDir::new().unwrap();
    let service = token_service("token", true);
    let server = guarded(challenge(&service), "Bearer t", b"[1,2]".to_vec(), 100);
    assert_eq!(as_me(&dir, &server).root().unwrap().bytes, b"[1,2]");
    assert_eq!(service.requests()[0].header("authorization"), Some(ME));
    assert!(server.requests().iter().all(|r| r.header("authorization") != Some(ME)));
    // Without them the service refuses, and it is told where they were looked for.
    let error = at(server.port).root().unwrap_err();
    let place = format!("http://127.0.0.1:{} answers 401", service.port);
    assert_eq!(says(&error, &[&place, "no credentials", "no-credentials.json"]), "denied");
}

/// As containerd and skopeo do: nobody says what such an address is relative to.
#[test]
fn a_token_service_with_half_an_address() {
    for (realm, shown) in
        [("/token", "address \"/token\" of"), ("token", "\"token\""), ("http://me:word@x/", "the address of")]
    {
        let offer = format!("Bearer realm=\"{realm}\",service=\"s\"");
        let server = guarded(offer, "Bearer t", Vec::new(), 1);
        let error = at(server.port).root().unwrap_err();
        let place = format!("http://127.0.0.1:{}", server.port);
        assert_eq!(says(&error, &[&place, shown, "realm", "https://HOST/token"]), "fetch");
        assert!(!error.to_string().contains("word"));
    }
}

/// Unrequested credentials for a mirror without TLS: every host on the way could read them.
#[test]
fn a_mirror_without_tls_gets_no_credentials() {
    let dir = TempDir::new().unwrap();
    let service = token_service("token", true);
    let offers = ["Basic realm=x".to_owned(), challenge(&service)];
    for offer in offers {
        let accepted = if offer.starts_with("Basic") { "Basic bWU6c2VjcmV0" } else { "Bearer t" };
        let mirror = Server::new(move |request, out| match request.header("authorization") {
            Some(header) if header.starts_with(accepted) => reply(out, 200, &[], b"[1,2]"),
            _ => reply(out, 401, &[("WWW-Authenticate", &offer)], b""),
        });
        let host = format!("127.0.0.1:{}", mirror.port);
        let mirrors = vec![format!("127.0.0.1:1=http://{host}").parse().unwrap()];
        let auth_file = Some(auth_file(dir.path(), &host, "me", "secret"));
        let open = Options { mirrors, auth_file, ..options() };
        let error = registry("127.0.0.1:1/a/b:1", &open).root().unwrap_err();
        let file = dir.path().join("auth.json").display().to_string();
        let why = format!("the credentials for {host} in {file} are not sent without TLS");
        assert_eq!(says(&error, &[&format!("http://{host}"), &why, "--plain-http allows it"]), "fetch");
        let sent = |server: &Server| {
            let requests = server.requests();
            requests.iter().filter(|r| r.header("authorization").is_some()).count()
        };
        assert_eq!((sent(&mirror), sent(&service)), (0, 0), "nobody was told");
        let plain = Options { plain_http: true, ..open };
        assert_eq!(registry("127.0.0.1:1/a/b:1", &plain).root().unwrap().bytes, b"[1,2]");
        assert!(sent(&mirror) > 0);
    }
}

/// A public image needs no credentials, and the registry's own go to it alone.
#[test]
fn a_mirror_without_tls_may_serve_what_is_public() {
    let dir = TempDir::new().unwrap();
    let mirror = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let host = format!("127.0.0.1:{}", mirror.port);
    let mirrors = vec![format!("r.example=http://{host}").parse().unwrap()];
    for key in [host.as_str(), "r.example"] {
        let auth_file = Some(auth_file(dir.path(), key, "me", "secret"));
        let open = Options { mirrors: mirrors.clone(), auth_file, ..options() };
        assert_eq!(registry("r.example/a/b:1", &open).root().unwrap().bytes, b"[1,2]");
    }
    assert!(mirror.requests().iter().all(|r| r.header("authorization").is_none()));
}

#[test]
fn a_token_that_expires_in_the_middle_is_renewed() {
    let bytes = noise(1, 200_000);
    let service = token_service("token", false);
    // Four connections of 50,000 bytes, each with a token of its own.
    let server = guarded(challenge(&service), "Bearer t", bytes.clone(), 1);
    assert!(blob(&at(server.port), &bytes).unwrap() == bytes);
    assert_eq!(service.requests().len(), 4);
}

#[test]
fn a_token_that_is_never_accepted_is_not_asked_for_twice() {
    let service = token_service("token", false);
    let server = guarded(challenge(&service), "Bearer nothing", Vec::new(), 1);
    let error = at(server.port).root().unwrap_err();
    assert_eq!(says(&error, &["401", "no credentials"]), "denied");
    assert_eq!((server.requests().len(), service.requests().len()), (2, 1));
}

#[test]
fn wrong_credentials_are_not_sent_twice() {
    let dir = TempDir::new().unwrap();
    let server = Server::new(|_, out| reply(out, 401, &[("WWW-Authenticate", "Basic realm=x")], b""));
    let registry = as_me(&dir, &server);
    for _ in 0..2 {
        let error = registry.root().unwrap_err();
        assert_eq!(says(&error, &["401", "auth.json", "refused"]), "denied");
        let text = error.to_string();
        assert!(!text.contains("secret") && !text.contains("bWU6"), "{text}");
    }
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn forbidden_is_not_tried_again() {
    let dir = TempDir::new().unwrap();
    let server = Server::new(|_, out| reply(out, 403, &[], br#"{"errors": [{"code": "DENIED"}]}"#));
    let registry = as_me(&dir, &server);
    let error = registry.root().unwrap_err();
    let why = format!("no credentials were asked for; there are some for 127.0.0.1:{}", server.port);
    assert_eq!(says(&error, &["403", "DENIED", &why, "auth.json"]), "denied");
    assert!(!error.to_string().contains("refused"), "{error}");
    let asked = || server.requests().into_iter().map(|request| request.target).collect::<Vec<_>>();
    assert_eq!(asked(), ["/v2/a/b/manifests/1", "/v2/"]);
    // The registry was asked what it wants, and has said it.
    registry.root().unwrap_err();
    assert_eq!(asked().len(), 3);
    // Who has no credentials has no answer to a challenge.
    assert_eq!(says(&at(server.port).root().unwrap_err(), &["403", "no credentials"]), "denied");
    assert_eq!(asked().len(), 4);
}

/// It lets strangers in, and asks for credentials at `/v2/` alone. The scope there is nobody's.
fn half_open(status: u16, challenge: String, accepted: &'static str) -> Server {
    Server::new(move |request, out| match request.header("authorization") {
        Some(header) if header.starts_with(accepted) => reply(out, 200, &[], b"[1,2]"),
        None if request.target.ends_with("/manifests/open") => reply(out, 200, &[], b"[3]"),
        None if request.target != "/v2/" => reply(out, status, &[], br#"{"errors": [{"code": "DENIED"}]}"#),
        _ => reply(out, 401, &[("WWW-Authenticate", &challenge)], b""),
    })
}

#[test]
fn what_strangers_may_not_see_is_asked_for_with_credentials() {
    let dir = TempDir::new().unwrap();
    for status in [403, 404] {
        let server = half_open(status, "Basic realm=x".to_owned(), ME);
        let registry = as_me(&dir, &server);
        for _ in 0..2 {
            assert_eq!(registry.root().unwrap().bytes, b"[1,2]", "{status}");
        }
        // The challenge, the credentials with which it is content, and the request again.
        assert_eq!(server.requests().len(), 5, "{status}");

        let service = token_service("token", true);
        let offer = challenge(&service).replace("a/b:pull", "other/image:pull");
        let server = half_open(status, offer, "Bearer t1");
        assert_eq!(as_me(&dir, &server).root().unwrap().bytes, b"[1,2]", "{status}");
        let asked = service.requests();
        assert!(asked.len() == 1 && asked[0].target.contains("repository%3Aa%2Fb%3Apull"), "{asked:?}");
    }
}

/// An old password in a file takes nothing away.
#[test]
fn wrong_credentials_hide_nothing_that_strangers_see() {
    let dir = TempDir::new().unwrap();
    let refusing = Server::new(|_, out| reply(out, 401, &[], b""));
    for offer in ["Basic realm=x".to_owned(), challenge(&refusing)] {
        let server = half_open(404, offer.clone(), "nothing");
        let registry = as_me(&dir, &server);
        assert!(registry.tagged("signature").unwrap().found.is_empty());
        assert_eq!(registry.tagged_as("open").root().unwrap().bytes, b"[3]");
        // What is not there may be there for others.
        assert_eq!(says(&as_me(&dir, &server).root().unwrap_err(), &["404", "auth.json were refused"]), "not found");
        let server = half_open(403, offer, "nothing");
        let registry = as_me(&dir, &server);
        for _ in 0..2 {
            assert_eq!(says(&registry.root().unwrap_err(), &["401", "auth.json were refused"]), "denied");
        }
        let sent = server.requests().iter().filter(|request| request.header("authorization").is_some()).count();
        assert!(sent <= 1, "they are not sent twice");
    }
    // Nor do those that nothing is said of.
    let server = Server::new(|request, out| match request.header("authorization") {
        Some(_) if request.target == "/v2/" => reply(out, 429, &[], b""),
        None if request.target.ends_with("/manifests/open") => reply(out, 200, &[], b"[3]"),
        None if request.target != "/v2/" => reply(out, 404, &[], b""),
        _ => reply(out, 401, &[("WWW-Authenticate", "Basic realm=x")], b""),
    });
    let registry = as_me(&dir, &server);
    assert!(registry.tagged("signature").unwrap().found.is_empty());
    assert_eq!(registry.tagged_as("open").root().unwrap().bytes, b"[3]");
}

/// Port 80 of many a registry leads to its port 443, and does nothing else.
#[test]
fn a_redirect_to_tls_asks_to_leave_out_plain_http() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path());
    for status in [401, 403, 404] {
        let tls = Server::with_tls(dir.path(), move |_, out| reply(out, status, &[], b""));
        let (place, port) = (format!("https://127.0.0.1:{}", tls.port), tls.port);
        let plain_port = Server::new(move |request, out| {
            reply(out, 308, &[("Location", &format!("https://127.0.0.1:{port}{}", request.target))], b"")
        });
        let host = format!("127.0.0.1:{}", plain_port.port);
        let auth_file = Some(auth_file(dir.path(), &host, "me", "secret"));
        let options = Options { auth_file, plain_http: true, ..authority.trusted() };
        let error = registry(&format!("{host}/a/b:1"), &options).root().unwrap_err();
        says(&error, &[&place, &status.to_string(), "credentials do not go along", "leave out --plain-http"]);
        assert!(tls.requests().iter().all(|request| request.header("authorization").is_none()));
    }
}

#[test]
fn a_helper_is_named_when_it_is_all_there_is() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("config.json");
    fs::write(&path, r#"{"auths": {}, "credsStore": "desktop"}"#).unwrap();
    let options = Options { auth_file: Some(path), ..plain() };
    // It does not matter where the server asks for no credentials.
    let open = Server::new(|_, out| reply(out, 200, &[], b"{}"));
    registry(&format!("127.0.0.1:{}/a/b:1", open.port), &options).root().unwrap();
    let shut = Server::new(|_, out| reply(out, 401, &[("WWW-Authenticate", "Basic realm=x")], b""));
    let error = registry(&format!("127.0.0.1:{}/a/b:1", shut.port), &options).root().unwrap_err();
    assert_eq!(says(&error, &["docker-credential-desktop", "config.json", "--authfile"]), "denied");
}

#[test]
fn an_auth_file_that_was_named_must_be_there() {
    let options = Options { auth_file: Some(PathBuf::from("/nosuch/auth.json")), ..plain() };
    let error = Registry::new(&"r.example/x".parse().unwrap(), &options).err().unwrap();
    assert_eq!(says(&error, &["/nosuch/auth.json"]), "setting");
}

#[test]
fn an_identity_token_is_exchanged() {
    let dir = TempDir::new().unwrap();
    let service = token_service("access_token", false);
    let server = guarded(challenge(&service), "Bearer t", b"[1,2]".to_vec(), 100);
    let host = format!("127.0.0.1:{}", server.port);
    let path = dir.path().join("auth.json");
    fs::write(&path, json!({"auths": {&host: {"auth": "PHRva2VuPjo=", "identitytoken": "a+b"}}}).to_string()).unwrap();
    let registry = registry(&format!("{host}/a/b:1"), &Options { auth_file: Some(path), ..plain() });
    assert_eq!(registry.root().unwrap().bytes, b"[1,2]");
    let asked = &service.requests()[0];
    assert_eq!((asked.method.as_str(), asked.header("authorization")), ("POST", None));
    for part in ["grant_type=refresh_token", "refresh_token=a%2Bb", "service=a%20service", "repository%3Aa%2Fb%3Apull"]
    {
        assert!(asked.body.contains(part), "{part}: {}", asked.body);
    }
}

/// RFC 6749, section 5.2: the service says it with a 400.
#[test]
fn a_login_that_has_run_out_is_told_as_such() {
    let dir = TempDir::new().unwrap();
    let refusal: &[u8] = br#"{"error": "invalid_grant", "error_description": "a+b has expired"}"#;
    let other: &[u8] = br#"{"error": "invalid_scope"}"#;
    for (answer, kind, text) in
        [(refusal, "denied", "auth.json were refused; log in again"), (other, "fetch", "token service failed")]
    {
        let service = Server::new(move |_, out| reply(out, 400, &[], answer));
        let server = guarded(challenge(&service), "Bearer t", Vec::new(), 1);
        let host = format!("127.0.0.1:{}", server.port);
        let path = dir.path().join("auth.json");
        fs::write(&path, json!({"auths": {&host: {"auth": "MDAwOg==", "identitytoken": "a+b"}}}).to_string()).unwrap();
        let registry = registry(&format!("{host}/a/b:1"), &Options { auth_file: Some(path), ..plain() });
        let error = registry.root().unwrap_err();
        assert_eq!(says(&error, &["answers 400, invalid_", text]), kind);
        assert!(!error.to_string().contains("expired") && !error.to_string().contains("--plain-http"), "{error}");
        assert_eq!(service.requests().len(), 1, "it is not asked twice");
    }
}

#[test]
fn token_services_that_fail() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let answers: [(u16, &'static [u8], &str, usize); 7] = [
        (200, b"{}", "answers without a token", 1),
        (200, b"no json", "answers without a token", 1),
        (200, b"<html>Please log in</html>", "answers with a web page", 1),
        (200, br#"{"token": "a\r\nHost: b"}"#, "answers without a token", 1),
        (302, b"", "redirects: not followed", 1),
        (404, b"", "the token service failed", 1),
        (503, b"", "the token service failed", 5),
    ];
    for (status, body, text, asked) in answers {
        let elsewhere = [("Location", "http://x.example/")];
        let service = Server::new(move |_, out| reply(out, status, &elsewhere, body));
        let server = guarded(challenge(&service), "Bearer t", Vec::new(), 1);
        let error = at(server.port).root().unwrap_err();
        assert_eq!(says(&error, &[text, "manifest 1", "/a/b"]), "fetch");
        assert_eq!(service.requests().len(), asked, "{status} {body:?}");
    }
    // Nobody knows the service but by the registry that names it.
    let gone = token_service("token", false);
    let (offer, place) = (challenge(&gone), format!("http://127.0.0.1:{} refuses connections", gone.port));
    drop(gone);
    let server = guarded(offer, "Bearer t", Vec::new(), 1);
    let named = format!("; http://127.0.0.1:{} has it for its token service", server.port);
    assert_eq!(says(&at(server.port).root().unwrap_err(), &[&place, &named]), "fetch");
    // 100 MiB of token are not read.
    let service = Server::new(move |_, out| {
        slipway_test_support::registry::server::head(out, 200, &[])?;
        while counted.fetch_add(1, Ordering::SeqCst) < 1600 {
            out.write_all(&[b' '; 64 << 10])?;
        }
        Ok(())
    });
    let server = guarded(challenge(&service), "Bearer t", Vec::new(), 1);
    assert_eq!(says(&at(server.port).root().unwrap_err(), &["without a token"]), "fetch");
    assert!(count.load(Ordering::SeqCst) < 400, "the service could send it all");
}

/// It is for people, who need not read English.
#[test]
fn a_realm_in_any_language() {
    let dir = TempDir::new().unwrap();
    let server = Server::new(|request, out| match request.header("authorization") {
        Some(ME) => reply(out, 200, &[], b"[1,2]"),
        _ => reply(out, 401, &[("WWW-Authenticate", "Basic realm=\"Zugang für Geräte\", charset=\"UTF-8\"")], b""),
    });
    assert_eq!(as_me(&dir, &server).root().unwrap().bytes, b"[1,2]");
}

#[test]
fn neither_basic_nor_bearer() {
    let server = Server::new(|_, out| reply(out, 401, &[("WWW-Authenticate", "Negotiate")], b""));
    let error = at(server.port).root().unwrap_err();
    assert_eq!(says(&error, &["neither Basic nor Bearer"]), "fetch");
    // Nor is that a reason to send anything unasked.
    assert!(server.requests().iter().all(|r| r.header("authorization").is_none()));
}
