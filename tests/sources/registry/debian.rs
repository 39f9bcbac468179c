//! Against Debian's docker-registry, filled by skopeo.

use std::{fs, sync::atomic::Ordering, time::Duration};

use slipway::payload::{
    image::ImageStore as _,
    registry::{MinimumSpeed, Options, Registry},
};
use slipway_test_support::registry::{
    Authority, Debian, Image, auth_file, blob, digest, options, plain, registry, run, says,
    server::{Proxy, Then},
    sized,
};
use tempfile::TempDir;

const PLAIN: [&str; 1] = ["--dest-tls-verify=false"];

/// With TLS by this authority, whose files are in the same directory.
fn with_tls(dir: &TempDir, image: &Image) -> (Authority, Debian) {
    let authority = Authority::new(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let http = format!("  tls:\n    certificate: {}\n    key: {}\n", path("server.crt"), path("server.key"));
    let debian = Debian::new(dir.path(), image, &http, "", &PLAIN);
    (authority, debian)
}

#[test]
fn an_image_comes_over_plain_http() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let debian = Debian::new(dir.path(), &image, "", "", &PLAIN);
    let name = format!("127.0.0.1:{}/a/b:1", debian.port);
    let by_tag = registry(&name, &plain());
    assert_eq!(by_tag.name(), format!("docker://{name}"));
    image.comes_from(&by_tag);
    image.comes_from(&registry(&format!("{name}@{}", digest(&image.index)), &plain()));
    // localhost is a registry like any other: TLS unless asked for.
    let error = registry(&format!("localhost:{}/a/b:1", debian.port), &options()).root().unwrap_err();
    assert_eq!(says(&error, &["manifest 1 in docker://localhost:", "/a/b", "--plain-http"]), "fetch");
    let error = registry(&name, &options()).blob(&sized("x", &digest(b"x"), 1)).err().unwrap();
    assert_eq!(says(&error, &["does not speak TLS", "--plain-http"]), "fetch");
}

#[test]
fn what_is_not_there_is_named() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let debian = Debian::new(dir.path(), &image, "", "", &PLAIN);
    let host = format!("127.0.0.1:{}", debian.port);
    let error = registry(&format!("{host}/a/b:2"), &plain()).root().unwrap_err();
    assert_eq!(
        says(&error, &["manifest 2", &format!("docker://{host}/a/b"), "not found", "MANIFEST_UNKNOWN"]),
        "not found"
    );
    let error = registry(&format!("{host}/a/c:1"), &plain()).root().unwrap_err();
    assert_eq!(says(&error, &["manifest 1", "/a/c", "not found", "404"]), "not found");
    let there = registry(&format!("{host}/a/b:1"), &plain());
    let other = digest(b"other");
    let error = there.blob(&sized("x", &other, 5)).err().unwrap();
    assert_eq!(says(&error, &[&other, "not found", "BLOB_UNKNOWN"]), "not found");
    let error = there.document(&sized("x", &other, 5)).unwrap_err();
    assert_eq!(says(&error, &[&other, "not found"]), "not found");
    let error = registry(&format!("{host}/a/b@{other}"), &plain()).root().unwrap_err();
    assert_eq!(says(&error, &[&other, "not found"]), "not found");
}

#[test]
fn tls_is_checked_against_the_authorities_given() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let (authority, debian) = with_tls(&dir, &image);
    let name = format!("127.0.0.1:{}/a/b:1", debian.port);
    image.comes_from(&registry(&name, &authority.trusted()));
    image.comes_from(&registry(&name.replace("127.0.0.1", "localhost"), &authority.trusted()));
    image.comes_from(&registry(&name, &Options { insecure_tls: true, ..options() }));
    let error = registry(&name, &options()).root().unwrap_err();
    assert_eq!(says(&error, &["127.0.0.1", "not trusted", "--registry-ca", "--tls-verify=false"]), "fetch");
    // An authority of another one does not help, nor does TLS that was not asked for.
    let other = TempDir::new().unwrap();
    let error = registry(&name, &Authority::new(other.path()).trusted()).root().unwrap_err();
    assert_eq!(says(&error, &["not trusted"]), "fetch");
    let error = registry(&name, &plain()).root().unwrap_err();
    assert_eq!(says(&error, &["leave out --plain-http"]), "fetch");
    let other = Proxy::new("127.0.0.2", debian.port, u64::MAX, Then::Cut);
    // A certificate for 127.0.0.1 is not one for 127.0.0.2.
    let error = registry(&format!("127.0.0.2:{}/a/b:1", other.port), &authority.trusted()).root().unwrap_err();
    assert_eq!(says(&error, &["127.0.0.2", "for another name"]), "fetch");
}

#[test]
fn an_authority_that_cannot_be_read_is_named() {
    let missing = Options { ca_files: vec!["/nosuch/ca.crt".into()], ..options() };
    let error = Registry::new(&"r.example/x".parse().unwrap(), &missing).err().unwrap();
    assert_eq!(says(&error, &["/nosuch/ca.crt"]), "setting");
}

#[test]
fn an_auth_file_lets_in() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    fs::write(dir.path().join("users"), run("htpasswd", &["-nbB", "me", "secret"])).unwrap();
    let auth = format!("auth: {{htpasswd: {{realm: x, path: {}}}}}", dir.path().join("users").display());
    let debian = Debian::new(dir.path(), &image, "", &auth, &["--dest-tls-verify=false", "--dest-creds=me:secret"]);
    let host = format!("127.0.0.1:{}", debian.port);
    let with = |key: &str, password: &str| {
        let auth_file = Some(auth_file(dir.path(), key, "me", password));
        registry(&format!("{host}/a/b:1"), &Options { auth_file, ..plain() })
    };
    image.comes_from(&with(&host, "secret"));
    image.comes_from(&with(&format!("{host}/a"), "secret"));
    let error = with(&host, "wrong-word").root().unwrap_err();
    assert_eq!(says(&error, &["401", "auth.json", &host, "refused"]), "denied");
    assert!(!error.to_string().contains("wrong-word"));
    let error = with("other.example", "secret").root().unwrap_err();
    assert_eq!(says(&error, &["401", "no credentials", "auth.json"]), "denied");
}

/// As a mirror of another registry.
#[test]
fn an_auth_file_lets_in_to_a_mirror_with_tls_or_when_asked() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    fs::write(dir.path().join("users"), run("htpasswd", &["-nbB", "me", "secret"])).unwrap();
    let auth = format!("auth: {{htpasswd: {{realm: x, path: {}}}}}", dir.path().join("users").display());
    let debian = Debian::new(dir.path(), &image, "", &auth, &["--dest-tls-verify=false", "--dest-creds=me:secret"]);
    let host = format!("127.0.0.1:{}", debian.port);
    let mirrors = vec![format!("127.0.0.1:1=http://{host}").parse().unwrap()];
    let auth_file = Some(auth_file(dir.path(), &host, "me", "secret"));
    let open = Options { mirrors, auth_file, ..options() };
    let error = registry("127.0.0.1:1/a/b:1", &open).root().unwrap_err();
    assert_eq!(says(&error, &["401", &host, "are not sent without TLS", "--plain-http"]), "fetch");
    assert!(!error.to_string().contains("secret"));
    image.comes_from(&registry("127.0.0.1:1/a/b:1", &Options { plain_http: true, ..open }));
}

#[test]
fn connections_to_a_real_registry_that_break_are_resumed() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let (authority, debian) = with_tls(&dir, &image);
    // In the middle of TLS records, every time elsewhere in the layer. What drips inside a record never gets out of
    // it: 16 KiB would take minutes.
    for then in [Then::Cut, Then::Drip] {
        let proxy = Proxy::new("127.0.0.1", debian.port, 700_001, then);
        let mut options = authority.trusted();
        options.patience.pace = MinimumSpeed { window: Duration::from_millis(500), least_bytes: 10_000 };
        options.patience.attempts = 100;
        let registry = registry(&format!("127.0.0.1:{}/a/b:1", proxy.port), &options);
        assert!(blob(&registry, &image.layer).unwrap() == image.layer);
        let connections = proxy.connections.load(Ordering::SeqCst);
        assert!(connections >= 5, "3 MiB in {connections} connections of 700,001 bytes");
    }
}

#[test]
fn one_connection_serves_them_all() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let (authority, debian) = with_tls(&dir, &image);
    let proxy = Proxy::new("127.0.0.1", debian.port, u64::MAX, Then::Cut);
    image.comes_from(&registry(&format!("127.0.0.1:{}/a/b:1", proxy.port), &authority.trusted()));
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_registry_that_comes_late_is_waited_for() {
    let (dir, image) = (TempDir::new().unwrap(), Image::new());
    let debian = Debian::new(dir.path(), &image, "", "", &PLAIN);
    let port = debian.port;
    drop(debian);
    let mut patient = plain();
    (patient.patience.attempts, patient.patience.first_pause) = (1000, Duration::from_millis(100));
    patient.patience.longest_pause = Duration::from_millis(100);
    let late = registry(&format!("127.0.0.1:{port}/a/b:1"), &patient);
    let asking = std::thread::spawn(move || late.root().map(|document| document.bytes));
    // The storage is still there.
    let _again = Debian::again(dir.path(), port);
    assert_eq!(asking.join().unwrap().unwrap(), image.index);
}
