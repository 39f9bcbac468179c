//! What the client asks of a server with TLS, whose certificates openssl makes.

use slipway::payload::{image::ImageStore as _, registry::Options};
use slipway_test_support::registry::{
    Authority, blob, registry, says,
    server::{Server, challenge, reply, serve_blob, token_service},
};
use tempfile::TempDir;

#[test]
fn redirects_away_from_tls_are_refused() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path());
    let store = Server::new(|request, out| serve_blob(request, out, b"hello"));
    let location = format!("http://127.0.0.1:{}/x", store.port);
    let server = Server::with_tls(dir.path(), move |_, out| reply(out, 302, &[("Location", &location)], b""));
    let name = format!("127.0.0.1:{}/a/b:1", server.port);
    let error = blob(&registry(&name, &authority.trusted()), b"hello").unwrap_err();
    assert_eq!(says(&error, &["without TLS", "--tls-verify=false allows it"]), "fetch");
    assert!(store.requests().is_empty());
    // The advice helps: the registry itself is still asked with TLS.
    let unchecked = Options { insecure_tls: true, ..authority.trusted() };
    assert_eq!(blob(&registry(&name, &unchecked), b"hello").unwrap(), b"hello");
    // A mirror with TLS, and plain HTTP allowed.
    let mirrors = vec![format!("r.example=https://127.0.0.1:{}", server.port).parse().unwrap()];
    let allowed = Options { plain_http: true, mirrors, ..authority.trusted() };
    assert_eq!(blob(&registry("r.example/a/b:1", &allowed), b"hello").unwrap(), b"hello");
}

/// nginx, which is in front of many registries, says it in a page.
#[test]
fn a_page_about_a_certificate_of_the_client_is_told_in_words() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path());
    let asked = |status: u16, page: &'static str| {
        let server = Server::with_tls(dir.path(), move |_, out| reply(out, status, &[], page.as_bytes()));
        registry(&format!("127.0.0.1:{}/a/b:1", server.port), &authority.trusted()).root().unwrap_err()
    };
    const NGINX: &str = "<html><center>No required SSL certificate was sent</center><hr><center>nginx</center></html>";
    assert_eq!(says(&asked(400, NGINX), &["answers 400", "asks for a certificate of the client", "--mirror"]), "fetch");
    for (status, page) in [(400, "<html>Bad Request</html>"), (404, NGINX)] {
        let error = asked(status, page);
        assert!(!error.to_string().contains("certificate"), "{error}");
    }
}

#[test]
fn a_token_service_without_tls_is_not_asked_for_a_registry_with_tls() {
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path());
    let service = token_service("token", false);
    let offer = challenge(&service);
    let server = Server::with_tls(dir.path(), move |_, out| reply(out, 401, &[("WWW-Authenticate", &offer)], b""));
    let error = registry(&format!("127.0.0.1:{}/a/b:1", server.port), &authority.trusted()).root().unwrap_err();
    assert_eq!(says(&error, &["token service without TLS", "refused"]), "fetch");
    assert!(service.requests().is_empty());
}
