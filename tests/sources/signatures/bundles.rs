//! Signatures in bundles, which have the image as their subject: in a layout beside it, in a registry as its referrers.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use serde_json::{Value, json};
use slipway_test_support::{
    images::{INDEX, Layout, MANIFEST, Pack, built, descriptor},
    registry::{
        self, Debian, digest,
        server::{Server, reply},
    },
    signing::{Kind, PREDICATE, Signer, put_bundle},
    world::{Outcome, World, installer},
};

use super::{failure, inspect, is_refused, listed, policy::ANYTHING};

pub fn layout(world: &World) -> (Layout, Value, String) {
    let layout = Layout::new(&world.path("layout"));
    let image = built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let digest = image["digest"].as_str().unwrap().to_owned();
    (layout, image, digest)
}

#[test]
fn a_bundle_in_a_layout() {
    let world = listed();
    for kind in Kind::ALL {
        let signer = Signer::new(&world.path(""), "key", kind);
        let (layout, image, named) = layout(&world);
        layout.list(&put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named)));
        for source in [layout.source(), format!("{}:1", layout.source())] {
            let report = inspect(&source, &[&signer.trusted()]).succeeds().json();
            assert_eq!(report["signed_by"][0]["over"], named.strip_prefix("sha256:").unwrap());
        }
    }
}

#[test]
fn what_does_not_count_is_said() {
    let world = listed();
    let (signer, other) =
        (Signer::new(&world.path(""), "key", Kind::P256), Signer::new(&world.path(""), "other", Kind::P256));
    let disk = world.image();
    let elsewhere = format!("sha256:{}", "7".repeat(64));
    let provenance = "https://slsa.dev/provenance/v1";
    let refused = |bundle: &dyn Fn(&str) -> String, texts: &[&str]| {
        let (layout, image, named) = layout(&world);
        layout.list(&put_bundle(&layout, &image, &bundle(&named)));
        is_refused(&world, &disk, &[&format!("--source={}", layout.source()), &signer.trusted()], texts);
    };
    refused(&|image| signer.bundle(provenance, image), &["it is an attestation (https://slsa.dev/provenance/v1)"]);
    refused(&|_| signer.bundle(PREDICATE, &elsewhere), &["it is for another image, sha256:7777"]);
    refused(&|image| other.bundle(PREDICATE, image), &["none of the trusted keys made it"]);
    refused(
        &|image| {
            let (good, bad) = (signer.bundle(PREDICATE, &elsewhere), signer.bundle(PREDICATE, image));
            let (mut good, bad): (Value, Value) =
                (serde_json::from_str(&good).unwrap(), serde_json::from_str(&bad).unwrap());
            good["dsseEnvelope"]["payload"] = bad["dsseEnvelope"]["payload"].clone();
            good.to_string()
        },
        &["none of the trusted keys made it, or what it signs was changed afterwards"],
    );
    refused(&|image| signer.bundle(PREDICATE, image).replace("in-toto+json", "in-toto"), &["none of the trusted keys"]);
    refused(&|_| "{\"messageSignature\": {}}".to_owned(), &["not a bundle around an envelope"]);
}

/// Made by npm's @sigstore/sign 4.1.1 with a key of its own, and verified by its @sigstore/verify 3.1.1.
#[test]
fn a_bundle_that_another_program_has_made() {
    let dir = slipway_test_support::project().join("tests/fixtures/signatures");
    let read = |name: &str| fs::read(dir.join(name)).unwrap();
    let bundle = String::from_utf8(read("bundle.json")).unwrap();
    let (signed, signatures) = slipway::trust::bundle::open(bundle.as_bytes()).unwrap();
    let keys = slipway::trust::PublicKey::parse(&read("key.pem"), "key.pem").unwrap();
    assert!(keys[0].verifies(&signed, signatures[0].as_bytes()));
    let claim = slipway::trust::bundle::claim(&signed).unwrap();
    assert_eq!(claim.images[0].to_string(), "5".repeat(64));
}

/// A registry with the API for referrers, which Debian's does not have.
pub fn with_referrers(layout: &Path, image: &str, referrers: &[Value]) -> Server {
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": referrers}).to_string();
    with_answers(layout, image, move |_, out| reply(out, 200, &[("content-type", INDEX)], index.as_bytes()))
}

/// The same with this answer to who asks for referrers.
fn with_answers(
    layout: &Path,
    image: &str,
    referrers: impl Fn(&str, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
) -> Server {
    let (blobs, image) = (layout.join("blobs/sha256"), image.to_owned());
    Server::new(move |request, stream| {
        let path = request.target.strip_prefix("/v2/os/").unwrap_or_default();
        let named = |name: &str| if name == "1" { image.clone() } else { name.to_owned() };
        let answer = match path.split_once('/') {
            Some(("referrers", about)) if about.starts_with(&image) => return referrers(about, stream),
            Some((kind @ ("manifests" | "blobs"), name)) => {
                let blob = fs::read(blobs.join(named(name).trim_start_matches("sha256:"))).ok();
                blob.map(|bytes| (if kind == "blobs" { "application/octet-stream" } else { MANIFEST }, bytes))
            }
            _ => None,
        };
        match answer {
            Some((kind, bytes)) => reply(stream, 200, &[("content-type", kind)], &bytes),
            None => reply(stream, 404, &[], b"{}"),
        }
    })
}

#[test]
fn referrers_of_a_registry() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    let bundle = put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named));
    let pull = |source: &str, to: &str| {
        let to = format!("oci:{}", world.path(to).display());
        let pulled = installer(["pull", source, &to, "--plain-http", "--progress=none", "--output=json"])
            .arg(signer.trusted())
            .output()
            .unwrap();
        assert!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
        // Without a network, and once more from there.
        inspect(&to, &[&signer.trusted()]).succeeds();
        let report: Value = serde_json::from_slice(&pulled.stdout).unwrap();
        assert_eq!(report["signatures"], 1);
        to
    };
    // By the API.
    let server = with_referrers(&layout.0, &named, std::slice::from_ref(&bundle));
    let source = format!("docker://127.0.0.1:{}/os:1", server.port);
    inspect(&source, &["--plain-http", &signer.trusted()]).succeeds();
    let first = pull(&source, "by-api");
    pull(&first, "again");

    // By the tag that takes its place.
    let dir = world.path("registry");
    fs::create_dir_all(&dir).unwrap();
    let debian = Debian::new(&dir, &registry::Image::new(), "", "", &["--dest-tls-verify=false"]);
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [bundle]}).to_string();
    let host = format!("http://127.0.0.1:{}/v2/os", debian.port);
    for blob in ["{}".to_owned(), signer.bundle(PREDICATE, &named)] {
        // The signature of a P-256 key is another one each time; the one in the layout counts.
        let bytes = if blob == "{}" { blob.into_bytes() } else { in_layout(&layout, &bundle) };
        push(&format!("{host}/blobs/uploads/"), &bytes);
    }
    let manifest = fs::read(layout.path(bundle["digest"].as_str().unwrap())).unwrap();
    let to = format!("docker://127.0.0.1:{}/os:1", debian.port);
    let copy = ["copy", "--insecure-policy", "--preserve-digests", "--dest-tls-verify=false"];
    registry::run("skopeo", &[&copy[..], &[&format!("{}:1", layout.source()), &to]].concat());
    assert_eq!(failure(inspect(&to, &["--plain-http", &signer.trusted()])), "signature-missing");
    put(&format!("{host}/manifests/{}", digest(&manifest)), MANIFEST, &manifest);
    put(&format!("{host}/manifests/{}", named.replace(':', "-")), INDEX, index.as_bytes());
    inspect(&to, &["--plain-http", &signer.trusted()]).succeeds();
    pull(&to, "by-tag");
}

/// A mirror that was filled by hand has the image, and knows of nothing beside it.
#[test]
fn a_mirror_that_lists_none_is_passed_by() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    let bundle = put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named));
    let of = |referrers: &[Value]| with_referrers(&layout.0, &named, referrers);
    let (own, mirror, bare) = (of(&[bundle]), of(&[]), of(&[]));
    let look = |own: &Server| {
        let mirror = format!("--mirror=127.0.0.1:{}=http://127.0.0.1:{}", own.port, mirror.port);
        inspect(&format!("docker://127.0.0.1:{}/os:1", own.port), &["--plain-http", &mirror, &signer.trusted()])
    };
    look(&own).succeeds();
    assert_eq!(failure(look(&bare)), "signature-missing");
}

/// `skopeo copy --all` of the tag that takes the place of the API: index.json does not list what that lists.
#[test]
fn a_layout_with_the_tag_for_referrers() {
    let world = listed();
    let [ann, ben] = ["ann", "ben"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    let (layout, image, named) = layout(&world);
    let bundle = put_bundle(&layout, &image, &ann.bundle(PREDICATE, &named));
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [bundle]}).to_string().into_bytes();
    layout.blob(&index);
    layout.tag(&named.replace(':', "-"), &descriptor(INDEX, &index));
    let source = layout.source();
    let is_signed = |source: &str| {
        inspect(source, &[&ann.trusted()]).succeeds();
    };
    is_signed(&source);
    // Nothing of it is lost, neither by a statement that is added, nor on the way.
    fs::write(world.path("says.json"), "{}").unwrap();
    let (key, says) = (ben.private(), world.path("says.json").display().to_string());
    let attest = ["attest", &source, "--predicate", &says, "--type=cyclonedx", "--key", &key, "--progress=none"];
    Outcome::of(&mut installer(attest)).succeeds();
    is_signed(&source);
    let to = format!("oci:{}", world.path("copy").display());
    let pull = ["pull", &source, &to, "--progress=none", "--output=json"];
    assert_eq!(Outcome::of(&mut installer(pull)).succeeds().json()["signatures"], 2);
    is_signed(&to);
}

/// A stranger's comes first, and the list goes on in another page.
#[test]
fn referrers_in_pages() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    let stranger = Signer::new(&world.path(""), "stranger", Kind::P256);
    let pages = [&stranger, &signer].map(|signer| {
        let bundle = put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named));
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [bundle]}).to_string()
    });
    for (ends, says) in [(true, "none of the trusted keys"), (false, "more than 100 pages")] {
        let pages = pages.clone();
        let server = with_answers(&layout.0, &named, move |asked, out| {
            let last = asked.contains("n=2");
            let link = format!("</v2/os/referrers/{asked}?n=2>; rel=\"next\"");
            let headers = [("content-type", INDEX), ("link", &link)];
            let headers = if last && ends { &headers[..1] } else { &headers };
            reply(out, 200, headers, pages[usize::from(last)].as_bytes())
        });
        let source = format!("docker://127.0.0.1:{}/os:1", server.port);
        inspect(&source, &["--plain-http", &signer.trusted()]).succeeds();
        let other = Signer::new(&world.path(""), "other", Kind::P256);
        inspect(&source, &["--plain-http", &other.trusted()]).exits(2).says(&[says]);
    }
}

/// Registries that have no such API do not all say 404.
#[test]
fn how_a_registry_says_that_it_knows_no_referrers() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    let bundle = put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named));
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [bundle]}).to_string();
    fs::write(layout.0.join("blobs/sha256").join(named.replace(':', "-")), index).unwrap();
    for (status, exit) in [(400, 0), (404, 0), (405, 0), (406, 0), (501, 0), (403, 5)] {
        let server = with_answers(&layout.0, &named, move |_, out| reply(out, status, &[], b"{}"));
        let source = format!("docker://127.0.0.1:{}/os:1", server.port);
        inspect(&source, &["--plain-http", &signer.trusted()]).exits(exit);
    }
    // Some lead to a page for people, with 200.
    for (kind, body) in
        [("text/html", "<!doctype html><html>"), ("text/plain", ""), ("application/json", r#"{"status": "ok"}"#)]
    {
        let server =
            with_answers(&layout.0, &named, move |_, out| reply(out, 200, &[("content-type", kind)], body.as_bytes()));
        let source = format!("docker://127.0.0.1:{}/os:1", server.port);
        inspect(&source, &["--plain-http", &signer.trusted()]).succeeds();
    }
}

/// Some call a list no list. It is one all the same, and what is wrong with it is said.
#[test]
fn a_list_that_is_wrong_is_not_taken_for_none() {
    let world = listed();
    let (layout, _, named) = layout(&world);
    let list = |entries: Value| json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    let long = list(json!([])) + &" ".repeat(4 << 20);
    let (elsewhere, empty) = (digest(b"elsewhere"), list(json!([])));
    for (n, (header, body, says)) in [
        (("docker-content-digest", elsewhere.as_str()), empty, "not the one the registry says it has"),
        (("x", ""), long, "more than the limit"),
        (("x", ""), list(json!(["no descriptor"])), "not an image index"),
        (("content-encoding", "gzip"), "\u{1f}\u{8}".to_owned(), "Content-Encoding \"gzip\""),
    ]
    .into_iter()
    .enumerate()
    {
        let header = (header.0, header.1.to_owned());
        let server = with_answers(&layout.0, &named, move |_, out| {
            let headers = [("content-type", "application/json"), (header.0, &header.1)];
            reply(out, 200, &headers, body.as_bytes())
        });
        let source = format!("docker://127.0.0.1:{}/os:1", server.port);
        let to = format!("oci:{}", world.path(&format!("copy-{n}")).display());
        let pull = ["pull", &source, &to, "--plain-http", "--progress=plain"];
        let taken = Outcome::of(&mut installer(pull)).succeeds().says(&["not copied: referrers of", says]);
        assert!(taken.stdout.contains("left behind: 1 of what lies beside it"), "{n}: {}", taken.stdout);
    }
}

/// It has the image, and cannot say what is about it: who demands no signature gets the image all the same.
#[test]
fn a_registry_without_an_answer() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named));
    let server = with_referrers(&layout.0, &named, &[json!("no descriptor")]);
    let source = format!("docker://127.0.0.1:{}/os:1", server.port);
    let pull = |to: &str, extra: &[&str]| {
        let to = format!("oci:{}", world.path(to).display());
        Outcome::of(installer(["pull", &source, &to, "--plain-http", "--progress=plain"]).args(extra))
    };
    let taken = pull("taken", &[]).succeeds().says(&["not copied: referrers of", "not an image index"]);
    assert!(taken.stdout.contains("left behind: 1 of what lies beside it"), "{}", taken.stdout);
    inspect(&format!("oci:{}", world.path("taken").display()), &[]).succeeds();
    pull("refused", &[&signer.trusted()]).exits(2).says(&["not an image index"]);
    assert!(!world.path("refused").exists(), "written all the same");
}

/// Registries that are written in Go may answer so.
#[test]
fn a_list_that_is_null_lists_nothing() {
    let world = listed();
    let (layout, _, named) = layout(&world);
    let nothing = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": null}).to_string();
    let server =
        with_answers(&layout.0, &named, move |_, out| reply(out, 200, &[("content-type", INDEX)], nothing.as_bytes()));
    let (source, to) = (format!("docker://127.0.0.1:{}/os:1", server.port), world.path("copy").display().to_string());
    let pull = ["pull", &source, &format!("oci:{to}"), "--plain-http", "--progress=plain"];
    let pulled = Outcome::of(&mut installer(pull)).succeeds();
    assert!(!format!("{}{}", pulled.stdout, pulled.stderr).contains("not copied"), "{}", pulled.stderr);
    assert!(!pulled.stdout.contains("left behind"), "{}", pulled.stdout);
}

/// It does not say whether there are signatures, which is no matter of a rule that demands none.
#[test]
fn a_rule_that_demands_nothing_needs_no_answer() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, _, named) = layout(&world);
    let server = with_answers(&layout.0, &named, |_, out| reply(out, 403, &[], b""));
    let source = format!("docker://127.0.0.1:{}/os:1", server.port);
    fs::write(world.path("policy.toml"), ANYTHING).unwrap();
    let anything = format!("--trust-policy={}", world.path("policy.toml").display());
    let look = |trust: &str| inspect(&source, &["--plain-http", trust]);
    let pull = |trust: &str| {
        let to = format!("oci:{}", world.path("pulled").display());
        Outcome::of(&mut installer(["pull", &source, &to, "--plain-http", "--progress=plain", trust]))
    };
    for command in [&look as &dyn Fn(&str) -> Outcome, &pull] {
        command(&signer.trusted()).exits(5).says(&["403"]);
        let taken = command(&anything).succeeds();
        assert!(!taken.stderr.contains("demands"), "{}", taken.stderr);
    }
}

/// The bundle that a manifest in a layout refers to.
fn in_layout(layout: &Layout, manifest: &Value) -> Vec<u8> {
    let manifest: Value =
        serde_json::from_slice(&fs::read(layout.path(manifest["digest"].as_str().unwrap())).unwrap()).unwrap();
    fs::read(layout.path(manifest["layers"][0]["digest"].as_str().unwrap())).unwrap()
}

fn push(uploads: &str, bytes: &[u8]) {
    let answer = ureq::post(uploads).send_empty().unwrap();
    let location = answer.headers()["location"].to_str().unwrap().to_owned();
    let joint = if location.contains('?') { '&' } else { '?' };
    ureq::put(format!("{location}{joint}digest={}", digest(bytes))).send(bytes).unwrap();
}

fn put(url: &str, media_type: &str, bytes: &[u8]) {
    ureq::put(url).header("content-type", media_type).send(bytes).unwrap();
}

/// Of two signatures one is enough, in whichever form.
#[test]
fn both_forms_side_by_side() {
    let world = listed();
    let (old, new) = (Signer::new(&world.path(""), "old", Kind::Rsa), Signer::new(&world.path(""), "new", Kind::P256));
    let (layout, image, named) = layout(&world);
    layout.list(&put_bundle(&layout, &image, &new.bundle(PREDICATE, &named)));
    old.sign_image(&layout, &named);
    for signer in [&old, &new] {
        inspect(&layout.source(), &[&signer.trusted()]).succeeds();
    }
    let both = inspect(&layout.source(), &[&old.trusted(), &new.trusted()]).succeeds().json();
    assert_eq!(both["signed_by"].as_array().unwrap().len(), 2);
    // A list of the image's parts refers to it as well, and is no signature.
    let sbom = json!({"schemaVersion": 2, "mediaType": MANIFEST, "subject": image,
        "config": descriptor("application/vnd.oci.empty.v1+json", b"{}"),
        "layers": [descriptor("application/spdx+json", b"{}")]});
    let sbom = sbom.to_string().into_bytes();
    layout.blob(&sbom);
    layout.list(&descriptor(MANIFEST, &sbom));
    let outcome: Outcome = inspect(&layout.source(), &[&old.trusted()]);
    outcome.succeeds();
}
