//! What the environment says: authorities, auth files; and proxies, in `proxies`. A process has only one environment, so each of
//! these runs this test program again: the first of them, with a reference to fetch.

use std::{env, ffi::OsStr, fs, path::Path, process::Command, time::Duration};

use slipway::payload::{
    image::ImageStore as _,
    registry::{Options, Registry},
};
use slipway_test_support::{
    exit_code::DEPENDENCY,
    registry::{
        Authority, Image, auth_file, hurried,
        server::{Server, reply},
    },
    world::{NOBODY, Nobody, Outcome, World, program},
};
use tempfile::TempDir;

/// The reference that the program run again fetches; `--plain-http` if it begins with `http:`. Behind `all:` comes one of an image
/// that is fetched as a whole, [`Image::new`]; behind `digest:` one of which the digest is asked; behind `hasty:` one that is
/// asked for once, with a second for the connection.
const REFERENCE: &str = "SLIPWAY_TEST_REFERENCE";
/// No variables.
pub const NOTHING: &[(&str, &str)] = &[];
/// What is set around these tests, and must not be seen.
pub const CLEARED: [&str; 12] = [
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
    let said = fetched(&format!("http:127.0.0.1:{}/a/b:1", server.port), home.path(), NOTHING);
    assert!(said.contains("fetched 5 bytes"), "{said}");
}

fn fetch(reference: &str) {
    let [all, digest, hasty] = ["all:", "digest:", "hasty:"].map(|prefix| reference.strip_prefix(prefix));
    let reference = all.or(digest).or(hasty).unwrap_or(reference);
    let plain = reference.strip_prefix("http:");
    let mut options = Options { plain_http: plain.is_some(), ..hurried() };
    if hasty.is_some() {
        options.patience.attempts = 1;
        options.patience.connect = Duration::from_secs(1);
    }
    let registry = Registry::new(&plain.unwrap_or(reference).parse().unwrap(), &options);
    if digest.is_some() {
        return match registry.and_then(|registry| registry.digest()) {
            Ok(digest) => println!("asked for {digest}"),
            Err(e) => println!("failed: {e}"),
        };
    }
    match registry.and_then(|registry| Ok((registry.root()?, registry))) {
        Ok((_, registry)) if all.is_some() => {
            Image::new().comes_from(&registry);
            println!("fetched all of it");
        }
        Ok((document, _)) => println!("fetched {} bytes", document.bytes.len()),
        Err(e) => println!("failed: {e}"),
    }
}

/// The answer of `fetch` in this environment.
pub fn fetched<V: AsRef<OsStr>>(reference: &str, home: &Path, variables: &[(&str, V)]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "registry::environment::without_any_of_it_the_server_itself_is_asked", "--nocapture"]);
    for name in CLEARED {
        command.env_remove(name);
    }
    command.env("HOME", home).env("XDG_CONFIG_HOME", home).env(REFERENCE, reference);
    let output = command.envs(variables.iter().map(|(name, value)| (name, value))).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
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
    let said = fetched(&name, dir.path(), NOTHING);
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
    let said = fetched(&name, home.path(), NOTHING);
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

/// podman has a directory for each user, dockerd makes its own for root alone, and a bare system has an empty bundle.
#[test]
fn nothing_of_the_system_stops_a_user() {
    let (world, home) = (World::new(), TempDir::new().unwrap());
    let nobody = Nobody::new(&world);
    let server = Server::new(|request, out| match request.header("authorization") {
        Some("Basic bWU6c2VjcmV0") => reply(out, 404, &[], b""),
        _ => reply(out, 401, &[("WWW-Authenticate", "Basic realm=x")], b""),
    });
    let host = format!("127.0.0.1:{}", server.port);
    let file = auth_file(home.path(), &host, "me", "secret");
    for (user, says) in [(0, "no auth file was found"), (NOBODY, "answers 404")] {
        let script = format!(
            "mount -t tmpfs none /run && dir=/run/containers/{user} && mkdir -p $dir && cp {} $dir && \
             chown -R {user} $dir && chmod 700 $dir && \
             mount -t tmpfs none /etc && mkdir -m 700 /etc/docker /etc/containers && \
             mkdir -p /etc/ssl/certs && : > /etc/ssl/certs/ca-certificates.crt && exec \"$@\"",
            file.display()
        );
        let run = nobody.installer();
        let mut command = program("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]).arg(run.get_program()).args(run.get_args());
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        for name in CLEARED.iter().chain(&["XDG_CONFIG_HOME"]) {
            command.env_remove(name);
        }
        command.args(["inspect", &format!("docker://{host}/a/b:1"), "--plain-http", "--progress=none"]);
        Outcome::of(&mut command).exits(DEPENDENCY).says(&[says]);
    }
}
