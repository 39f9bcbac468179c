//! Answers that are errors, redirects, or documents that are wrong.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use slipway::payload::{
    image::{ImageStore as _, Local, LocalRef, Pull},
    registry::Options,
};
use slipway_core::kernel::arch::Arch;
use slipway_test_support::{
    registry::{
        Image, MANIFEST, at, auth_file, blob, descriptor, digest, options, plain, registry, says,
        server::{Server, head, reply},
    },
    world::noise,
};
use tempfile::TempDir;

#[test]
fn too_many_requests_are_waited_out() {
    let count = AtomicUsize::new(0);
    let server = Server::new(move |_, out| match count.fetch_add(1, Ordering::SeqCst) {
        0 => reply(out, 429, &[("Retry-After", "1")], b""),
        1 => reply(out, 503, &[("Retry-After", "1")], b""),
        _ => reply(out, 200, &[], b"[1,2]"),
    });
    let start = Instant::now();
    assert_eq!(at(server.port).root().unwrap().bytes, b"[1,2]");
    assert!(start.elapsed() >= Duration::from_secs(2), "asked again after {:?}", start.elapsed());
    let server = Server::new(|_, out| reply(out, 429, &[], br#"{"errors": [{"code": "TOOMANYREQUESTS"}]}"#));
    let error = at(server.port).root().unwrap_err();
    assert_eq!(says(&error, &["429", "TOOMANYREQUESTS", "log in"]), "fetch");
}

#[test]
fn a_broken_registry_is_given_up() {
    let server = Server::new(|_, out| reply(out, 500, &[], b"secret inside"));
    for error in [at(server.port).root().unwrap_err(), blob(&at(server.port), b"x").unwrap_err()] {
        assert_eq!(says(&error, &["127.0.0.1", "/a/b", "500", "asked 5 times"]), "fetch");
        assert!(!error.to_string().contains("secret"));
    }
    assert_eq!(server.requests().len(), 10);
}

#[test]
fn what_is_no_registry_is_told() {
    let server = Server::new(|_, out| out.write_all(b"220 mail.example ESMTP\r\n"));
    let error = at(server.port).root().unwrap_err();
    assert_eq!(says(&error, &["does not answer in HTTP"]), "fetch");
    let port = server.port;
    drop(server);
    let error = at(port).root().unwrap_err();
    assert_eq!(says(&error, &["127.0.0.1", "refuses connections", "asked 5 times"]), "fetch");
    let error = registry("nosuch.invalid/a/b:1", &plain()).root().unwrap_err();
    assert_eq!(says(&error, &["http://nosuch.invalid", "DNS"]), "fetch");
}

/// Who answers with a code of registries has understood the request: TLS has no part in it.
#[test]
fn tls_is_not_advised_where_a_registry_has_answered() {
    for (body, is_advised) in [(&br#"{"errors": [{"code": "TAG_INVALID"}]}"#[..], false), (b"<html>", true)] {
        let server = Server::new(move |_, out| reply(out, 400, &[], body));
        let error = at(server.port).root().unwrap_err();
        assert_eq!(says(&error, &["answers 400"]), "fetch");
        assert_eq!(error.to_string().contains("leave out --plain-http"), is_advised, "{error}");
    }
}

/// A web server before a registry may compress whatever it hands out.
#[test]
fn what_was_compressed_on_the_way_is_told() {
    let sends =
        |bytes: &'static [u8]| Server::new(move |_, out| reply(out, 200, &[("Content-Encoding", "gzip")], bytes));
    let server = sends(b"\x1f\x8b\x08\0");
    for error in [at(server.port).root().unwrap_err(), blob(&at(server.port), b"hello").unwrap_err()] {
        assert_eq!(says(&error, &["Content-Encoding \"gzip\"", "switch that off"]), "fetch");
    }
    // Stores name it where the bytes are right, too.
    let server = sends(b"[1,2]");
    assert_eq!(at(server.port).root().unwrap().bytes, b"[1,2]");
    assert_eq!(blob(&at(server.port), b"[1,2]").unwrap(), b"[1,2]");
}

#[test]
fn a_document_comes_with_its_type() {
    for (sent, seen) in
        [(Some("text/html; charset=utf-8"), Some("text/html")), (Some(MANIFEST), Some(MANIFEST)), (None, None)]
    {
        let headers: Vec<(&str, &str)> = sent.map(|value| ("Content-Type", value)).into_iter().collect();
        let server = Server::new(move |_, out| reply(out, 200, &headers, b"{}"));
        assert_eq!(at(server.port).root().unwrap().media_type.as_deref(), seen);
        let accept = server.requests()[0].header("accept").unwrap().to_owned();
        assert!(accept.contains(MANIFEST) && accept.contains("manifest.list.v2+json"), "{accept}");
    }
}

#[test]
fn a_document_of_another_digest_is_refused() {
    let other = digest(b"other");
    let server = Server::new(|_, out| reply(out, 200, &[], b"{}"));
    let by_digest = registry(&format!("127.0.0.1:{}/a/b:1@{other}", server.port), &plain());
    let error = by_digest.root().unwrap_err();
    assert_eq!(says(&error, &[&other, &digest(b"{}"), "/a/b"]), "invalid");
    let error = by_digest.document(&descriptor(MANIFEST, b"other")).unwrap_err();
    assert_eq!(says(&error, &[&other, &digest(b"{}")]), "invalid");
    let server = Server::new(move |_, out| reply(out, 200, &[("Docker-Content-Digest", &other)], b"{}"));
    let error = at(server.port).root().unwrap_err();
    assert_eq!(says(&error, &["manifest 1", &digest(b"{}"), "the registry says"]), "invalid");
}

#[test]
fn a_document_cut_short_is_asked_for_again() {
    let count = AtomicUsize::new(0);
    let server = Server::new(move |_, out| {
        head(out, 200, &[("Content-Length", "5")])?;
        out.write_all(if count.fetch_add(1, Ordering::SeqCst) == 0 { b"[1" } else { b"[1,2]" })
    });
    assert_eq!(at(server.port).root().unwrap().bytes, b"[1,2]");
}

#[test]
fn a_document_of_100_mib_is_not_read() {
    const SIZE: usize = 100 << 20;
    for with_length in [true, false] {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = Server::new(move |_, out| {
            let length = SIZE.to_string();
            let headers = [("Content-Length", length.as_str())];
            head(out, 200, if with_length { &headers } else { &[] })?;
            let part = vec![b' '; 64 << 10];
            while count.load(Ordering::SeqCst) < SIZE {
                out.write_all(&part)?;
                count.fetch_add(part.len(), Ordering::SeqCst);
            }
            Ok(())
        });
        let error = at(server.port).root().unwrap_err();
        assert_eq!(says(&error, &["more than the limit of 4194304 bytes", "/a/b"]), "invalid");
        // What was read, and what the kernel's buffers took.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 24 << 20, "{sent} bytes were sent");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn redirects_to_another_host_are_followed_without_credentials() {
    let bytes = noise(1, 100_000);
    let content = bytes.clone();
    let store = Server::new(move |request, out| {
        if request.header("authorization").is_some() {
            return reply(out, 400, &[], b"");
        }
        slipway_test_support::registry::server::blob_head(request, out, &content)?;
        let start = request.start().unwrap_or(0);
        out.write_all(&content[start..usize::min(start + 60_000, content.len())])
    });
    let port = store.port;
    let server = Server::new(move |request, out| match request.header("authorization") {
        None => reply(out, 401, &[("WWW-Authenticate", "Basic realm=x")], b""),
        // The same host by another name: also that is another one.
        Some(_) => {
            reply(out, 307, &[("Location", &format!("http://localhost:{port}/store?signature=hidden"))], b"moved")
        }
    });
    let dir = TempDir::new().unwrap();
    let host = format!("127.0.0.1:{}", server.port);
    let auth_file = Some(auth_file(dir.path(), &host, "me", "secret"));
    let registry = registry(&format!("{host}/a/b:1"), &Options { auth_file, ..plain() });
    assert!(blob(&registry, &bytes).unwrap() == bytes);
    let stored = store.requests();
    assert_eq!(stored.iter().map(|r| r.start().unwrap_or(0)).collect::<Vec<_>>(), [0, 60_000]);
    assert_eq!(stored[1].header("if-match"), Some("\"v1\""));
    // The resumption began at the registry, for a fresh address, and without the store's ETag.
    let asked = server.requests();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked[2].header("authorization").is_some() && asked[2].header("if-match").is_none());
    // What the store's refusals say does not give the signature away.
    drop(store);
    let error = blob(&registry, &bytes).unwrap_err();
    let redirects = format!("; http://{host} redirects there");
    assert_eq!(says(&error, &["http://localhost:", "refuses connections", &redirects]), "fetch");
    assert!(!error.to_string().contains("hidden"));
}

/// Nobody has asked for it, and no flag changes how it is asked.
#[test]
fn a_store_is_told_with_the_registry_that_leads_there() {
    let refuses = Server::new(|_, out| reply(out, 403, &[], b""));
    let lacks = Server::new(|_, out| reply(out, 404, &[], b""));
    let no_tls = Server::answering_anything(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    for (scheme, store, says_what, kind) in [
        ("http", &refuses, "answers 403", "fetch"),
        ("http", &lacks, "answers 404", "not found"),
        ("https", &no_tls, "does not speak TLS", "fetch"),
    ] {
        let location = format!("{scheme}://localhost:{}/store", store.port);
        let server = Server::new(move |_, out| reply(out, 307, &[("Location", &location)], b""));
        let error = at(server.port).root().unwrap_err();
        let redirects = format!("{says_what}; http://127.0.0.1:{} redirects there", server.port);
        assert_eq!(says(&error, &["://localhost:", &redirects]), kind);
    }
}

#[test]
fn redirects_that_lead_nowhere_are_refused() {
    let server = Server::new(|_, out| reply(out, 302, &[("Location", "/v2/again")], b""));
    let error = at(server.port).root().unwrap_err();
    assert_eq!(says(&error, &["redirects more than 10 times"]), "fetch");
    assert_eq!(server.requests().len(), 11);
    for location in ["ftp://x.example/", "http://user:word@x.example/", ""] {
        let server = Server::new(move |_, out| reply(out, 302, &[("Location", location)], b""));
        let error = at(server.port).root().unwrap_err();
        assert_eq!(says(&error, &["redirects to a malformed address"]), "fetch");
    }
    let server = Server::new(|_, out| reply(out, 304, &[], b""));
    assert_eq!(says(&at(server.port).root().unwrap_err(), &["304"]), "fetch");
}

#[test]
fn a_redirect_may_stay_at_the_registry() {
    let server = Server::new(|request, out| match request.target.as_str() {
        "/v2/a/b/manifests/1" => reply(out, 301, &[("Location", "one?x=y")], b""),
        "/v2/a/b/manifests/one?x=y" => reply(out, 200, &[], b"[1,2]"),
        _ => reply(out, 404, &[], b""),
    });
    assert_eq!(at(server.port).root().unwrap().bytes, b"[1,2]");
    assert_eq!(
        says(&registry(&format!("127.0.0.1:{}/a/c", server.port), &plain()).root().unwrap_err(), &[]),
        "not found"
    );
}

#[test]
fn a_redirect_may_lead_upwards() {
    let server = Server::new(|request, out| match request.target.as_str() {
        "/v2/a/b/manifests/1" => reply(out, 307, &[("Location", "../../../store/./one")], b""),
        "/v2/store/one" => reply(out, 200, &[], b"[1,2]"),
        _ => reply(out, 404, &[], b""),
    });
    assert_eq!(at(server.port).root().unwrap().bytes, b"[1,2]");
}

/// What is there in place of the registry: exit code 5, and what it is.
#[test]
fn what_another_server_answers_is_named() {
    const PAGE: &[u8] = b"<!DOCTYPE html><html><title>Welcome, please log in</title></html>";
    for (status, kind, body, text) in [
        (200, "text/html", PAGE, "with a web page"),
        (200, MANIFEST, PAGE, "with a web page"),
        (200, "", PAGE, "with a web page"),
        (200, "text/plain", b"OK".as_slice(), "no JSON"),
        (200, MANIFEST, b"", "with nothing"),
        (200, MANIFEST, b"{\"schemaVersion\": 2,", "ends too early"),
        (511, "text/html", PAGE, "captive portal"),
        (407, "text/html", PAGE, "the proxy wants a user"),
    ] {
        let server = Server::new(move |_, out| reply(out, status, &[("Content-Type", kind)], body));
        let error = at(server.port).root().unwrap_err();
        assert_eq!(says(&error, &[text, "http://127.0.0.1"]), "fetch", "{status} {kind}");
        let by_digest = registry(&format!("127.0.0.1:{}/a/b@{}", server.port, digest(b"x")), &plain());
        assert_eq!(says(&by_digest.root().unwrap_err(), &[text]), "fetch", "{status} {kind}");
    }
    let login = Server::new(|_, out| reply(out, 200, &[("Content-Type", "text/html")], PAGE));
    let location = format!("http://127.0.0.1:{}/login?from=registry", login.port);
    let server = Server::new(move |_, out| reply(out, 302, &[("Location", &location)], b""));
    for error in [at(server.port).root().unwrap_err(), blob(&at(server.port), b"x").unwrap_err()] {
        assert_eq!(says(&error, &["with a web page", &login.port.to_string()]), "fetch");
    }
}

/// Other types than those of the specification, for what is a manifest.
#[test]
fn a_manifest_of_another_type_is_taken() {
    for kind in ["application/json", "text/plain; charset=utf-8", "application/octet-stream", "binary/octet-stream"] {
        let server = Server::new(move |_, out| reply(out, 200, &[("Content-Type", kind)], b"{\"a\": 1}"));
        assert_eq!(at(server.port).root().unwrap().bytes, b"{\"a\": 1}", "{kind}");
    }
}

/// A server that knows no images calls a manifest anything. In a layout it has the type that other programs know.
#[test]
fn a_copy_is_listed_by_what_it_is() {
    let image = Image::of(&noise(0, 1000));
    let docker = "application/vnd.docker.distribution.manifest.v2+json";
    let docker_config = "application/vnd.docker.container.image.v1+json";
    for (own, config) in [(MANIFEST, "application/vnd.oci.image.config.v1+json"), (docker, docker_config)] {
        let mut manifest: Value = serde_json::from_slice(&image.manifest).unwrap();
        manifest["config"]["mediaType"] = json!(config);
        for named in [true, false] {
            manifest["mediaType"] = if named { json!(own) } else { Value::Null };
            for kind in [None, Some("text/plain"), Some("application/octet-stream"), Some(own)] {
                let (manifest, image) =
                    (manifest.to_string().into_bytes(), (image.config.clone(), image.layer.clone()));
                let server = Server::new(move |request, out| {
                    let headers: Vec<(&str, &str)> = kind.map(|kind| ("Content-Type", kind)).into_iter().collect();
                    match request.target.rsplit_once('/').unwrap() {
                        ("/v2/a/b/manifests", "1") => reply(out, 200, &headers, &manifest),
                        ("/v2/a/b/blobs", name) if name == digest(&image.0) => reply(out, 200, &[], &image.0),
                        ("/v2/a/b/blobs", name) if name == digest(&image.1) => reply(out, 200, &[], &image.1),
                        _ => reply(out, 404, &[], b""),
                    }
                });
                let dir = TempDir::new().unwrap();
                Pull::new(&at(server.port), Arch::Amd64).unwrap().into(dir.path(), None, None, &mut |_| ()).unwrap();
                let index: Value = serde_json::from_slice(&fs::read(dir.path().join("index.json")).unwrap()).unwrap();
                assert_eq!(index["manifests"][0]["mediaType"], own, "{named} {kind:?}");
                let copy = Local::directory(dir.path(), LocalRef::Only, "oci:copy".to_owned()).unwrap();
                Pull::new(&copy, Arch::Amd64).unwrap();
            }
        }
    }
}

#[test]
fn nothing_is_sent_before_it_is_asked_for() {
    let server = Server::new(|_, out| reply(out, 200, &[], b"{}"));
    let name = format!("127.0.0.1:{}/a/b:1", server.port);
    drop((registry(&name, &plain()), registry(&name, &options())));
    assert!(server.requests().is_empty());
}

#[test]
fn a_digest_costs_a_head_request() {
    let said = digest(b"[1,2,34]");
    let server = Server::new(move |request, out| match request.method.as_str() {
        "HEAD" => head(out, 200, &[("Content-Length", "8"), ("Docker-Content-Digest", said.as_str())]),
        _ => reply(out, 200, &[], b"[1,2,34]"),
    });
    assert_eq!(format!("sha256:{}", at(server.port).digest().unwrap()), digest(b"[1,2,34]"));
    let asked: Vec<_> = server.requests().into_iter().map(|request| (request.method, request.target)).collect();
    assert_eq!(asked, [("HEAD".to_owned(), "/v2/a/b/manifests/1".to_owned())]);
    // Not every registry says it; then the manifest is read.
    let silent = Server::new(|_, out| reply(out, 200, &[], b"[1,2,34]"));
    assert_eq!(format!("sha256:{}", at(silent.port).digest().unwrap()), digest(b"[1,2,34]"));
    // Nor does every one answer HEAD.
    for refusal in [403, 404, 405, 501] {
        let refusing = Server::new(move |request, out| match request.method.as_str() {
            "HEAD" => head(out, refusal, &[]),
            _ => reply(out, 200, &[], b"[1,2,34]"),
        });
        assert_eq!(format!("sha256:{}", at(refusing.port).digest().unwrap()), digest(b"[1,2,34]"), "{refusal}");
    }
    // A store may have signed its address for GET.
    let store = Server::new(|request, out| match request.method.as_str() {
        "HEAD" => head(out, 403, &[]),
        _ => reply(out, 200, &[], b"[1,2,34]"),
    });
    let there = format!("http://127.0.0.1:{}/?signed", store.port);
    let redirecting =
        Server::new(move |_, out| head(out, 307, &[("Location", there.as_str()), ("Content-Length", "0")]));
    assert_eq!(format!("sha256:{}", at(redirecting.port).digest().unwrap()), digest(b"[1,2,34]"));
    let forbidden = Server::new(|_, out| reply(out, 403, &[], b""));
    assert_eq!(says(&at(forbidden.port).digest().unwrap_err(), &["403", "no credentials"]), "denied");
    let none = Server::new(|_, out| reply(out, 404, &[], b""));
    assert_eq!(says(&at(none.port).digest().unwrap_err(), &["404"]), "not found");
}
