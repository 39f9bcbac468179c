//! Certificates as people have them: which are trusted when they, or their authority, are given with --registry-ca.
//! openssl makes them, and its server presents them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use slipway::payload::{
    image::{ImageError, ImageStore as _},
    registry::{Options, Registry},
};
use slipway_test_support::registry::{
    options, registry, run, says,
    server::{Server, reply},
};
use tempfile::TempDir;

/// The fate of a certificate.
enum Seen {
    Trusted,
    /// With this in its words.
    Refused(&'static str),
}
use Seen::{Refused, Trusted};

const HERE: &str = "-addext subjectAltName=IP:127.0.0.1";
const RSA: &str = "-newkey rsa:2048";
const P256: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256";
const P521: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-521";

/// `openssl` in this directory with these words.
fn openssl(dir: &Path, words: &str) {
    let path = |word: &str| match word.strip_prefix('@') {
        Some(name) => dir.join(name).to_str().unwrap().to_owned(),
        None => word.replace('~', " "),
    };
    let words: Vec<_> = words.split_whitespace().map(path).collect();
    run("openssl", &words.iter().map(String::as_str).collect::<Vec<_>>());
}

/// openssl's server, which answers every request with what lies in its directory. It ends with its guard.
struct Presents {
    child: Child,
    port: u16,
}

impl Presents {
    fn new(dir: &Path, more: &str) -> Self {
        let manifests = dir.join("v2/a/b/manifests");
        fs::create_dir_all(&manifests).unwrap();
        fs::write(manifests.join("1"), "HTTP/1.0 418 I'm a teapot\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", "127.0.0.1:0", "-HTTP", "-cert", "server.crt", "-key", "server.key"]);
        command.args(["-cipher", "ALL:@SECLEVEL=0"]).args(more.split_whitespace()).current_dir(dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("ACCEPT ")?.rsplit(':').next()?.parse().ok());
        Presents { child, port: port.expect("openssl s_server says where it listens") }
    }
}

impl Drop for Presents {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn asked(port: u16, given: &Path) -> ImageError {
    let options = Options { ca_files: vec![given.to_owned()], ..options() };
    registry(&format!("127.0.0.1:{port}/a/b:1"), &options).root().map(drop).unwrap_err()
}

#[track_caller]
fn check(case: &str, made: &[&str], given: &str, how: &str, expected: Seen) {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("here"), "subjectAltName=IP:127.0.0.1").unwrap();
    made.iter().for_each(|words| openssl(dir.path(), words));
    let server = Presents::new(dir.path(), how);
    let error = asked(server.port, &dir.path().join(given));
    let text = match expected {
        Trusted => "answers 418",
        Refused(why) => why,
    };
    assert!(error.to_string().contains(text), "{case}: {text:?} is not in: {error}");
    says(&error, &[]);
}

/// A certificate that its own key signs.
fn own(key: &str, more: &str) -> String {
    format!("req -x509 {key} -nodes -keyout @server.key -out @server.crt -days 2 {more}")
}

/// The same, without extensions: of version 1.
fn first_version(subject: &str) -> [String; 2] {
    [
        format!("req -new {RSA} -nodes -keyout @server.key -out @csr -subj {subject}"),
        "x509 -req -in @csr -signkey @server.key -out @server.crt -days 2".to_owned(),
    ]
}

/// One by an authority: its key and how it signs; then the server's.
fn issued(authority: &str, by: &str, server: &str) -> [String; 3] {
    [
        format!("req -x509 {authority} -nodes -keyout @ca.key -out @ca.crt -days 2 -subj /CN=an~authority {by}"),
        format!("req -new {server} -nodes -keyout @server.key -out @csr -subj /CN=a~registry"),
        format!(
            "x509 -req -in @csr -CA @ca.crt -CAkey @ca.key -CAcreateserial -extfile @here -days 2 -out @server.crt {by}"
        ),
    ]
}

#[track_caller]
fn check_all(case: &str, made: &[String], given: &str, how: &str, expected: Seen) {
    check(case, &made.iter().map(String::as_str).collect::<Vec<_>>(), given, how, expected);
}

#[test]
fn the_very_certificate_that_was_given_is_trusted() {
    for tls in ["-tls1_2", "-tls1_3"] {
        let docs = own(RSA, &format!("-subj /CN=registry {HERE}"));
        check("as docker's documentation makes it", &[&docs], "server.crt", tls, Trusted);
        let no_authority = own(P256, &format!("-subj /CN=registry {HERE} -addext basicConstraints=critical,CA:FALSE"));
        check("that is no authority", &[&no_authority], "server.crt", tls, Trusted);
        check_all("of version 1", &first_version("/CN=127.0.0.1"), "server.crt", tls, Trusted);
        check("without another name", &[&own(P256, "-subj /CN=127.0.0.1")], "server.crt", tls, Trusted);
        check_all("by an authority that is not", &issued(P256, "-sha256", RSA), "server.crt", tls, Trusted);
        check_all("by one that signs with SHA-1", &issued(RSA, "-sha1", RSA), "server.crt", tls, Trusted);
    }
}

#[test]
fn a_given_certificate_counts_for_its_time_and_its_names_alone() {
    for tls in ["-tls1_2", "-tls1_3"] {
        let other = own(RSA, "-subj /CN=127.0.0.1 -addext subjectAltName=DNS:other.example");
        check("with the names of others", &[&other], "server.crt", tls, Refused("for another name"));
        check_all(
            "of version 1, of others",
            &first_version("/CN=registry"),
            "server.crt",
            tls,
            Refused("for another name"),
        );
        let mut late = first_version("/CN=127.0.0.1");
        late[1] = late[1].replace("-days 2", "-days -1");
        check_all("of version 1, expired", &late, "server.crt", tls, Refused("not valid now: it counted until 20"));
        late[1] += " -extfile @here";
        check_all("expired", &late, "server.crt", tls, Refused("not valid now"));
    }
}

/// Whose certificate is not checked needs no authorities.
#[test]
fn authorities_that_cannot_be_read_stop_only_who_needs_them() {
    let server = Server::new(|_, out| reply(out, 200, &[], b"[1,2]"));
    let image = format!("127.0.0.1:{}/a/b:1", server.port).parse().unwrap();
    let open = Options { ca_files: vec!["/no/such.crt".into()], plain_http: true, ..options() };
    let error = Registry::new(&image, &open).map(drop).unwrap_err();
    assert_eq!(says(&error, &["/no/such.crt"]), "setting");
    let unchecked = Registry::new(&image, &Options { insecure_tls: true, ..open }).unwrap();
    assert_eq!(unchecked.root().unwrap().bytes, b"[1,2]");
}

/// Neither docker nor podman takes it; curl does. The advice helps: see [`the_very_certificate_that_was_given_is_trusted`].
#[test]
fn an_authoritys_certificate_without_another_name_is_to_be_given_itself() {
    let mut made = issued(P256, "-sha256", RSA).map(|words| words.replace("a~registry", "127.0.0.1"));
    made[1] += " -addext basicConstraints=CA:FALSE";
    made[2] = made[2].replace("-extfile @here", "-copy_extensions copy");
    check_all("by its authority", &made, "ca.crt", "-tls1_3", Refused("give this very certificate to --registry-ca"));
    check_all("itself", &made, "server.crt", "-tls1_3", Trusted);
}

/// Keys that are for PSS alone, and certificates with openssl's own label.
#[test]
fn what_curl_takes_is_taken() {
    const PSS: &str = "-newkey rsa-pss -pkeyopt rsa_keygen_bits:2048";
    // rustls takes no such key for TLS 1.2.
    check("for PSS alone", &[&own(PSS, &format!("-subj /CN=registry {HERE}"))], "server.crt", "-tls1_3", Trusted);
    for (authority, by) in [(RSA, "-sha256"), (PSS, "-sha256 -sigopt rsa_pss_saltlen:-1")] {
        check_all("for PSS alone, by an authority", &issued(authority, by, PSS), "ca.crt", "-tls1_3", Trusted);
    }
    for trust in
        ["-setalias a~registry", "-addtrust serverAuth", "-addreject emailProtection -addtrust anyExtendedKeyUsage"]
    {
        let mut made = issued(RSA, "-sha256", RSA).to_vec();
        made.push(format!("x509 -in @ca.crt -trustout {trust} -out @trusted.crt"));
        check_all(trust, &made, "trusted.crt", "-tls1_3", Trusted);
    }
    for trust in ["-addtrust emailProtection", "-addreject serverAuth"] {
        let dir = TempDir::new().unwrap();
        openssl(dir.path(), &own(P256, "-subj /CN=registry"));
        openssl(dir.path(), &format!("x509 -in @server.crt -trustout {trust} -out @trusted.crt"));
        let options = Options { ca_files: vec![dir.path().join("trusted.crt")], ..options() };
        let error = Registry::new(&"127.0.0.1:1/a/b:1".parse().unwrap(), &options).map(drop).unwrap_err();
        assert!(error.to_string().contains("no certificate"), "{trust}: {error}");
    }
}

#[test]
fn another_certificate_of_the_same_name_is_not_trusted() {
    let made = |key: &str| own(key, &format!("-subj /CN=registry {HERE}"));
    for (key, why) in [(RSA, "--registry-ca"), (P256, "--registry-ca")] {
        let first = made(key).replace("server.", "ca.");
        check("made anew", &[&first, &made(key)], "ca.crt", "-tls1_3", Refused(why));
    }
}

#[test]
fn authorities_may_sign_as_people_have_them_sign() {
    let p384 = P256.replace("256", "384");
    for (authority, by, server) in [
        (P256, "-sha256", RSA),
        (P256, "-sha384", &p384),
        (&p384, "-sha384", P256),
        (RSA, "-sha512", P256),
        ("-newkey ed25519", "", P256),
        (P256, "-sha256", "-newkey ed25519"),
    ] {
        let made = issued(authority, by, server);
        for tls in ["-tls1_2", "-tls1_3"] {
            check_all(&format!("{authority} {by} {server} {tls}"), &made, "ca.crt", tls, Trusted);
        }
    }
}

#[test]
fn what_is_not_supported_is_said_in_words() {
    let curve = |name: &str| P256.replace("P-256", name);
    for (authority, by, server, why) in [
        (P521, "-sha512", P256, "its certificate is signed with SHA-512 and ECDSA"),
        (P521, "-sha256", RSA, "its authority has a key for P-521"),
        (P256, "-sha512", P256, "its certificate is signed with SHA-512 and ECDSA"),
        (&curve("P-384"), "-sha512", RSA, "its certificate is signed with SHA-512 and ECDSA"),
        (RSA, "-sha1", RSA, "its certificate is signed with SHA-1 and RSA"),
        (P256, "-sha1", P256, "its certificate is signed with SHA-1 and ECDSA"),
        (P256, "-sha224", P256, "its certificate is signed with SHA-224 and ECDSA"),
        ("-newkey rsa:1024", "-sha256", RSA, "its authority has an RSA key of 1024 bits"),
        (&curve("secp256k1"), "-sha256", RSA, "its authority has a key for secp256k1"),
        (&curve("brainpoolP256r1"), "-sha256", RSA, "its authority has a key for brainpoolP256r1"),
        ("-newkey ed448", "", P256, "its certificate is signed with Ed448"),
        (RSA, "-sha3-256", RSA, "its certificate is signed with the algorithm 2.16.840.1.101.3.4.3.14"),
        (RSA, "-sha256", "-newkey rsa:1024", "its certificate has an RSA key of 1024 bits"),
    ] {
        let made = issued(authority, by, server);
        check_all(&format!("{authority} {by} {server}"), &made, "ca.crt", "-tls1_3", Refused(why));
        // The way out that the message names.
        if !why.starts_with("its certificate has") {
            check_all(&format!("{authority} {by} {server}"), &made, "server.crt", "-tls1_3", Trusted);
        }
    }
}

/// Who has the certificate, which is no secret, and not its key.
#[derive(Debug)]
struct Thief(Arc<CertifiedKey>);

impl ResolvesServerCert for Thief {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[test]
fn a_certificate_proves_nothing_without_its_key() {
    let third_version = [own(RSA, &format!("-subj /CN=registry {HERE}"))];
    for made in [&third_version[..], &first_version("/CN=127.0.0.1")] {
        let dir = TempDir::new().unwrap();
        made.iter().for_each(|words| openssl(dir.path(), words));
        openssl(dir.path(), "genpkey -algorithm RSA -out @thief.key");
        let chain = CertificateDer::from_pem_file(dir.path().join("server.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(dir.path().join("thief.key")).unwrap();
        let key = ring::sign::any_supported_type(&key).unwrap();
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let thief = Thief(Arc::new(CertifiedKey::new(vec![chain.clone()], Arc::clone(&key))));
            let server = Server::with_config(config(version, thief), |_, out| reply(out, 418, &[], b""));
            let error = asked(server.port, &dir.path().join("server.crt"));
            assert_eq!(says(&error, &["not trusted"]), "fetch");
            assert!(server.requests().is_empty());
        }
    }
}

fn config(version: &'static SupportedProtocolVersion, thief: Thief) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_protocol_versions(&[version]).unwrap().with_no_client_auth().with_cert_resolver(Arc::new(thief))
}

#[test]
fn what_no_algorithm_is_shared_for_is_said() {
    let made = own(P521, &format!("-subj /CN=registry {HERE}"));
    check("a key on P-521", &[&made], "server.crt", "", Refused("key on P-521 or Ed448 needs another one, on P-256"));
    let made = own("-newkey ed448", &format!("-subj /CN=registry {HERE}"));
    check("a key of Ed448", &[&made], "server.crt", "", Refused("key on P-521 or Ed448 needs another one, on P-256"));
    let made = own(RSA, &format!("-subj /CN=registry {HERE}"));
    check("TLS 1.1", &[&made], "server.crt", "-tls1_1", Refused("shares no version or algorithm"));
    check("CBC alone", &[&made], "server.crt", "-tls1_2 -cipher AES128-SHA", Refused("shares no version or algorithm"));
    for tls in ["-tls1_2", "-tls1_3"] {
        let how = format!("{tls} -Verify 1");
        check("of the client", &[&made], "server.crt", &how, Refused("asks for a certificate of the client"));
    }
}
