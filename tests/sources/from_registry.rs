//! The finished program and a registry: what it installs from there, and how it ends when the registry does not do its
//! part. The client itself is tested in `tests/library/registry/` and `tests/sources/registry/`.

use std::{fs, path::Path};

use serde_json::json;
use slipway_test_support::{
    exit_code::{DEPENDENCY, INPUT, INSTALL},
    files,
    images::{self, Layout, Pack, built},
    port::free_port,
    registry::{
        self, Authority, Debian, auth_file,
        server::{self, Proxy, Server, Then, reply, serve_blob},
    },
    world::{Content, Node, Outcome, World, installer, json_of, noise, on_disk, tool},
};

/// A disk to upgrade, and a layout with the image to upgrade to, as `1`; its squashfs has 3 MiB.
fn prepared(world: &World) -> (Node<'_>, Layout) {
    let node = Node::installed(world);
    node.next.write("rootfs.squashfs", files::squashfs(noise(7, 3 << 20)));
    node.next.checksum().succeeds();
    let layout = Layout::new(&world.path("image"));
    built(node.next.dir(), Pack::Gzip).write(&layout, "1");
    (node, layout)
}

fn upgrade(node: &Node, port: u16, tag: &str, extra: &[&str]) -> Outcome {
    let source = format!("docker://127.0.0.1:{port}/os:{tag}");
    node.run('A', false, &[&["upgrade", "--progress=none", "--source", source.as_str()], extra].concat())
}

#[track_caller]
fn slot_b_is_next(node: &Node) {
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "B");
    on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
}

#[track_caller]
fn slot_b_is_empty(node: &Node) {
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["slots"]["B"]["state"]), (&json!("A"), &json!("empty")));
}

/// Debian's registry with this image as `os:1`.
pub fn registry_with(dir: &Path, layout: &Layout, http: &str, rest: &str, login: &[&str]) -> Debian {
    fs::create_dir_all(dir).unwrap();
    let options = [&["--dest-tls-verify=false"], login].concat();
    let debian = Debian::new(dir, &registry::Image::new(), http, rest, &options);
    let (from, to) = (format!("{}:1", layout.source()), format!("docker://127.0.0.1:{}/os:1", debian.port));
    let copy = ["copy", "--insecure-policy", "--preserve-digests"];
    registry::run("skopeo", &[&copy[..], &options, &[&from, &to]].concat());
    debian
}

#[test]
fn an_upgrade_over_plain_http() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let debian = registry_with(&world.path("registry"), &layout, "", "", &[]);
    upgrade(&node, debian.port, "1", &["--plain-http"]).succeeds();
    slot_b_is_next(&node);
    // By digest it is the same image: there is nothing to do.
    let digest = tool!("skopeo", "inspect", "--raw", format!("{}:1", layout.source()));
    let digest = format!("1@{}", images::digest(digest.as_bytes()));
    let again = upgrade(&node, debian.port, &digest, &["--plain-http", "--output=json"]).succeeds().json();
    assert_eq!(again["changed"], false);
}

#[test]
fn with_tls_and_a_password() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let dir = world.path("registry");
    fs::create_dir_all(&dir).unwrap();
    let authority = Authority::new(&dir);
    let path = |name: &str| dir.join(name).display().to_string();
    let http = format!("  tls:\n    certificate: {}\n    key: {}\n", path("server.crt"), path("server.key"));
    fs::write(path("htpasswd"), tool!("htpasswd", "-Bbn", "user", "secret")).unwrap();
    let auth = format!("auth: {{htpasswd: {{realm: r, path: {}}}}}", path("htpasswd"));
    let debian = registry_with(&dir, &layout, &http, &auth, &["--dest-creds=user:secret"]);
    let ca = format!("--registry-ca={}", authority.0.join("ca.crt").display());
    let file = |password: &str| {
        let file = auth_file(&world.path(""), &format!("127.0.0.1:{}", debian.port), "user", password);
        format!("--authfile={}", file.display())
    };
    let before = Content::of(&node.disk);
    upgrade(&node, debian.port, "1", &[&file("secret")]).exits(DEPENDENCY).says(&["--registry-ca"]);
    let outcome =
        upgrade(&node, debian.port, "1", &[&ca, &file("wrong")]).exits(DEPENDENCY).says(&["401", "auth.json"]);
    assert!(!outcome.stderr.contains("wrong"), "the password is in the message: {}", outcome.stderr);
    upgrade(&node, debian.port, "2", &[&ca, &file("secret")]).exits(DEPENDENCY).says(&["not found"]);
    assert!(Content::of(&node.disk) == before, "written to");
    upgrade(&node, debian.port, "1", &[&ca, &file("secret")]).succeeds();
    slot_b_is_next(&node);
}

#[test]
fn a_line_that_is_cut_again_and_again() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let debian = registry_with(&world.path("registry"), &layout, "", "", &[]);
    // Each connection brings one MiB, then it is cut.
    let proxy = Proxy::new("127.0.0.1", debian.port, 1 << 20, Then::Cut);
    upgrade(&node, proxy.port, "1", &["--plain-http"]).succeeds();
    slot_b_is_next(&node);
}

#[test]
fn pulled_and_installed_without_a_network() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let debian = registry_with(&world.path("registry"), &layout, "", "", &[]);
    let (from, to) =
        (format!("docker://127.0.0.1:{}/os:1", debian.port), format!("oci:{}:1", world.path("here").display()));
    // Of runs that were killed.
    let blobs = world.path("here/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let left = [world.path("here/.pull-aB3dE6"), blobs.join(".pull-x")];
    left.iter().for_each(|file| fs::write(file, "x").unwrap());
    Outcome::of(&mut installer(["pull", &from, &to, "--plain-http", "--progress=none"])).succeeds();
    assert!(left.iter().all(|file| !file.exists()));
    drop(debian);
    node.run('A', false, &["upgrade", "--progress=none", "--source", &to]).succeeds();
    slot_b_is_next(&node);
}

#[test]
fn nobody_is_there() {
    let world = World::new();
    let (node, _) = prepared(&world);
    let port = free_port();
    let before = Content::of(&node.disk);
    upgrade(&node, port, "1", &["--plain-http"]).exits(DEPENDENCY).says(&["connection", &port.to_string()]);
    assert!(Content::of(&node.disk) == before, "written to");
}

/// A registry with this image, which changes each blob that it sends, or has it not.
fn serve(layout: &Layout, change: impl Fn(&str, &mut Vec<u8>) -> bool + Send + Sync + 'static) -> Server {
    let (root, manifest) = (layout.0.clone(), manifest(layout));
    Server::new(move |request: &server::Request, out: &mut dyn std::io::Write| {
        let name = request.target.rsplit('/').next().unwrap().to_owned();
        if request.target.contains("/manifests/") {
            return reply(out, 200, &[("Content-Type", images::MANIFEST)], manifest.as_bytes());
        }
        let read = fs::read(root.join("blobs").join(name.replace(':', "/"))).ok();
        match read.and_then(|mut bytes| change(&name, &mut bytes).then_some(bytes)) {
            Some(bytes) => serve_blob(request, out, &bytes),
            None => reply(out, 404, &[], b""),
        }
    })
}

fn manifest(layout: &Layout) -> String {
    tool!("skopeo", "inspect", "--raw", format!("{}:1", layout.source()))
}

/// The digest of what the manifest lists at this place.
fn listed(layout: &Layout, place: &str) -> String {
    let parsed: serde_json::Value = serde_json::from_str(&manifest(layout)).unwrap();
    parsed.pointer(place).unwrap()["digest"].as_str().unwrap().to_owned()
}

/// The registry hands out bytes that do not fit the digest: they are refused.
#[test]
fn a_registry_that_lies() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let before = Content::of(&node.disk);
    for (lie, code) in [("/config", INPUT), ("/layers/2", INPUT), ("/layers/1", INSTALL)] {
        let victim = listed(&layout, lie);
        let server = serve(&layout, move |name, bytes| {
            let last = bytes.len() - 1;
            bytes[last] ^= u8::from(name == victim);
            true
        });
        let outcome = upgrade(&node, server.port, "1", &["--plain-http"]).exits(code);
        assert!(
            outcome.stderr.contains("SHA-256") || outcome.stderr.contains("gzip data is damaged"),
            "{}",
            outcome.stderr
        );
        slot_b_is_empty(&node);
        assert!(code == INSTALL || Content::of(&node.disk) == before, "{lie}: written to");
    }
}

/// Wherever they are: in the header of a file, or in a file, whose own digest is compared first.
#[test]
fn wrong_bytes_of_a_mirror_are_its_fault() {
    let world = World::new();
    let (node, _) = prepared(&world);
    let layout = Layout::new(&world.path("plain"));
    built(node.next.dir(), Pack::Plain).write(&layout, "1");
    let victim = listed(&layout, "/layers/1");
    let bytes = fs::metadata(layout.path(&victim)).unwrap().len() as usize;
    let own = serve(&layout, |_, _| true);
    for at in [5, bytes / 2] {
        let victim = victim.clone();
        let mirror = serve(&layout, move |name, bytes| {
            if name == victim {
                bytes[at] ^= 1;
            }
            true
        });
        let (url, host) = (format!("http://127.0.0.1:{}", mirror.port), format!("127.0.0.1:{}", own.port));
        let said = upgrade(&node, own.port, "1", &["--plain-http", "--mirror", &format!("{host}={url}")]).stderr;
        let name = format!("as the mirror {url} sends it: SHA-256 of its content");
        let remedy = format!("leave out the mirror {url} (--mirror");
        assert!(said.contains(&name) && said.contains(&remedy), "{at}: {said}");
        slot_b_is_empty(&node);
    }
}

/// The name of the image is right.
#[test]
fn a_layer_that_the_registry_has_not() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let victim = listed(&layout, "/layers/2");
    let server = serve(&layout, move |name, _| name != victim);
    let outcome = upgrade(&node, server.port, "1", &["--plain-http"]).exits(DEPENDENCY);
    outcome.says(&["although the image lists it", "push the image there again", "404"]);
}
