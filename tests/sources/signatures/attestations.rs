//! `installer attest`. openssl judges what was signed, and skopeo copies it; an attestation is never a signature.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{INPUT, UNSUPPORTED},
    images::{Layout, MANIFEST},
    registry::{self, Debian, run},
    signing::{Kind, PREDICATE, Signer, put_bundle},
    world::{Outcome, World, installer},
};

use super::{
    failure, inspect, is_refused, listed,
    signing::{KINDS, key, layout, openssl_verifies, read},
};

const SBOM: &str = "https://cyclonedx.org/bom";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

fn attest(source: &str, extra: &[&str]) -> Outcome {
    Outcome::of(installer(["attest", source, "--progress=plain", "--output=json"]).args(extra))
}

/// `--predicate` with a file of this content.
fn predicate(world: &World, text: &str) -> String {
    let path = world.path("predicate.json");
    fs::write(&path, text).unwrap();
    format!("--predicate={}", path.display())
}

/// The manifests beside the image of this digest: those in index.json without a name.
fn referrers(layout: &Layout) -> Vec<Value> {
    let index = read(&layout.0.join("index.json"));
    let unnamed = index["manifests"].as_array().unwrap().iter().filter(|one| one["annotations"].is_null());
    unnamed.map(|one| read(&layout.path(one["digest"].as_str().unwrap()))).collect()
}

/// The bundle in such a manifest.
fn bundle(layout: &Layout, manifest: &Value) -> Value {
    read(&layout.path(manifest["layers"][0]["digest"].as_str().unwrap()))
}

/// The answer of `inspect` about each bundle.
fn found(source: &str, extra: &[&str]) -> Vec<Value> {
    let report = inspect(source, extra).succeeds().json();
    let all = report["signatures"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|one| one["form"] == "bundle").collect()
}

#[test]
fn what_is_said_is_a_bundle_that_others_read() {
    let world = listed();
    let (layout, image) = layout(&world);
    // Not sorted, and a number that a careless writer would change: the bytes of the file are what is signed.
    let text = r#"{ "specVersion": "1.6", "bomFormat": "CycloneDX", "version": 1.0 }"#;
    let file = predicate(&world, text);
    for kind in KINDS {
        let signer = Signer::new(&world.path(""), &format!("{kind:?}"), kind);
        let report = attest(&layout.source(), &[&file, "--type=cyclonedx", &key(&signer)]).succeeds().json();
        assert_eq!(
            (&report["predicate_type"], format!("sha256:{}", report["over"].as_str().unwrap())),
            (&SBOM.into(), image.clone())
        );
        assert_eq!(report["written"], format!("{}:{}", layout.source(), image.replace(':', "-")));
        let manifest = referrers(&layout).pop().unwrap();
        assert_eq!((&manifest["artifactType"], &manifest["layers"][0]["mediaType"]), (&BUNDLE.into(), &BUNDLE.into()));
        assert_eq!(
            (&manifest["subject"]["digest"], &manifest["subject"]["mediaType"]),
            (&image.as_str().into(), &MANIFEST.into())
        );
        assert_eq!(manifest["annotations"]["dev.sigstore.bundle.predicateType"], SBOM);
        let bundle = bundle(&layout, &manifest);
        assert_eq!(bundle["mediaType"], BUNDLE);
        let envelope = &bundle["dsseEnvelope"];
        let statement = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
        assert!(String::from_utf8(statement.clone()).unwrap().ends_with(&format!("\"predicate\":{text}}}")));
        let read: Value = serde_json::from_slice(&statement).unwrap();
        assert_eq!((&read["_type"], &read["predicateType"]), (&"https://in-toto.io/Statement/v1".into(), &SBOM.into()));
        assert_eq!(read["subject"], json!([{"digest": {"sha256": &image[7..]}}]));
        let signed =
            [format!("DSSEv1 28 application/vnd.in-toto+json {} ", statement.len()).as_bytes(), &statement].concat();
        let signatures = envelope["signatures"].as_array().unwrap();
        assert_eq!(signatures.len(), 1, "a bundle has one");
        openssl_verifies(&world, &signer, kind, &signed, signatures[0]["sig"].as_str().unwrap());
    }
    assert_eq!(referrers(&layout).len(), KINDS.len());
    // The image is still the only one in the layout, and as it was.
    inspect(&layout.source(), &[]).succeeds();
}

#[test]
fn an_attestation_is_no_signature() {
    let world = listed();
    let (layout, _) = layout(&world);
    let (disk, signer) = (world.image(), Signer::new(&world.path(""), "key", Kind::P256));
    let file = predicate(&world, "{}");
    for kind in ["cyclonedx", "slsaprovenance1", "https://example.com/tested/v1"] {
        attest(&layout.source(), &[&file, &format!("--type={kind}"), &key(&signer)]).succeeds();
    }
    let trusted = signer.trusted();
    is_refused(&world, &disk, &[&format!("--source={}", layout.source()), &trusted], &["it is an attestation"]);
    // Nor can one be made of another's type.
    attest(&layout.source(), &[&file, &format!("--type={PREDICATE}"), &key(&signer)])
        .exits(INPUT)
        .says(&["use `installer sign`"]);
    let all = found(&layout.source(), &[]);
    let said = |kind: &str| {
        all.iter().any(|one| one["problem"].as_str().unwrap().starts_with(&format!("it is an attestation ({kind})")))
    };
    assert!(all.len() == 3 && said(SBOM) && said("https://slsa.dev/provenance/v1"), "{all:?}");
    // Beside a signature it does no harm, and does not count.
    Outcome::of(&mut installer(["sign", &layout.source(), &key(&signer), "--progress=none"])).succeeds();
    let report = inspect(&layout.source(), &[&trusted]).succeeds().json();
    assert_eq!(report["signed_by"].as_array().unwrap().len(), 1);
    let by: Vec<_> = found(&layout.source(), &[&trusted]).iter().map(|one| one["made_by"].clone()).collect();
    assert!(by.iter().all(|keys| *keys == json!([signer.id()])), "{by:?}");
}

#[test]
fn one_by_the_same_key_is_replaced() {
    let world = listed();
    let (layout, _) = layout(&world);
    let [ann, ben] = ["ann", "ben"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    let say = |text: &str, kind: &str, keys: &[&str]| {
        let (file, kind) = (predicate(&world, text), format!("--type={kind}"));
        attest(&layout.source(), &[&[file.as_str(), &kind][..], keys].concat()).succeeds().json()
    };
    assert_eq!(say("{\"n\":1}", "cyclonedx", &[&key(&ann), &key(&ben)])["kept"], 0);
    assert_eq!(say("{\"n\":1}", "slsaprovenance1", &[&key(&ann)])["kept"], 0);
    let report = say("{\"n\":2}", "cyclonedx", &[&key(&ann)]);
    assert_eq!((&report["kept"], report["signed_by"].as_array().unwrap().len()), (&1.into(), 1));
    let mut said: Vec<_> = referrers(&layout)
        .iter()
        .map(|manifest| {
            let statement =
                STANDARD.decode(bundle(&layout, manifest)["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
            let statement: Value = serde_json::from_slice(&statement).unwrap();
            format!("{} {}", statement["predicateType"].as_str().unwrap(), statement["predicate"]["n"])
        })
        .collect();
    said.sort();
    assert_eq!(said, [format!("{SBOM} 1"), format!("{SBOM} 2"), "https://slsa.dev/provenance/v1 1".to_owned()]);
    // All of them, and nothing else, are in the index for registries.
    let index = read(&layout.0.join("index.json"));
    let named: Vec<_> =
        index["manifests"].as_array().unwrap().iter().filter(|one| one["mediaType"] != MANIFEST).collect();
    assert_eq!(named.len(), 1);
    let listed = read(&layout.path(named[0]["digest"].as_str().unwrap()));
    assert_eq!(listed["manifests"].as_array().unwrap().len(), 3);
}

#[test]
fn they_go_where_the_image_goes() {
    let world = listed();
    let (layout, image) = layout(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::Ed25519);
    for kind in ["cyclonedx", "slsaprovenance1"] {
        attest(&layout.source(), &[&predicate(&world, "{}"), &format!("--type={kind}"), &key(&signer)]).succeeds();
    }
    let is_there = |source: &str| {
        let all = found(source, &["--plain-http"]);
        assert_eq!(all.len(), 2, "{source}: {all:?}");
    };
    let pull = |source: &str, to: &str| {
        let to = format!("oci:{}", world.path(to).display());
        let pulled = Outcome::of(&mut installer(["pull", source, &to, "--plain-http", "--progress=none"])).succeeds();
        assert!(pulled.stdout.contains("with 2 signatures and attestations"), "{}", pulled.stdout);
        is_there(&to);
    };
    pull(&layout.source(), "copied");
    let archive = world.path("image.tar");
    run("tar", &["-C", layout.0.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."]);
    is_there(&format!("oci-archive:{}", archive.display()));
    // To a registry, as docs/signatures.md says.
    let dir = world.path("registry");
    fs::create_dir_all(&dir).unwrap();
    let debian = Debian::new(&dir, &registry::Image::new(), "", "", &["--dest-tls-verify=false"]);
    let referrers = image.replace(':', "-");
    for tag in ["1", &referrers] {
        let (from, to) = (format!("{}:{tag}", layout.source()), format!("docker://127.0.0.1:{}/os:{tag}", debian.port));
        let how = ["--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false"];
        run("skopeo", &[&how[..], &[&from, &to]].concat());
    }
    let there = format!("docker://127.0.0.1:{}/os:1", debian.port);
    is_there(&there);
    pull(&there, "pulled");
}

/// One that was made for another image is said to be so.
#[test]
fn one_that_was_moved_is_found_out() {
    let world = listed();
    let (layout, image) = layout(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let subject = read(&layout.0.join("index.json"))["manifests"][0].clone();
    let elsewhere = format!("sha256:{}", "7".repeat(64));
    for (about, says) in [(&image, "not a signature"), (&elsewhere, "of another image, sha256:7777")] {
        layout.list(&put_bundle(&layout, &subject, &signer.bundle(SBOM, about)));
        let problems: Vec<_> = found(&layout.source(), &[]).iter().map(|one| one["problem"].to_string()).collect();
        assert!(problems.iter().any(|problem| problem.contains(says)), "{problems:?}");
    }
}

#[test]
fn what_cannot_be_said_is_refused() {
    let world = listed();
    let (layout, _) = layout(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let before = fs::read(layout.0.join("index.json")).unwrap();
    let (source, key) = (layout.source(), key(&signer));
    for text in ["", "[1]", "{\"a\":", "{}, \"predicateType\": \"x\""] {
        let refused = attest(&source, &[&predicate(&world, text), "--type=cyclonedx", &key]);
        assert_eq!(failure(refused), "predicate", "{text}");
    }
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(3 << 20));
    attest(&source, &[&predicate(&world, &large), "--type=cyclonedx", &key]).exits(INPUT).says(&["4 MiB"]);
    let file = predicate(&world, "{}");
    attest(&source, &["--predicate=/nosuch", "--type=cyclonedx", &key]).exits(INPUT).says(&["/nosuch: No such file"]);
    attest(&source, &[&file, "--type=sbom", &key]).exits(INPUT).says(&["cyclonedx, spdxjson, slsaprovenance1"]);
    attest(&source, &[&file, &key]).exits(INPUT);
    attest(&source, &[&file, "--type=cyclonedx"]).exits(INPUT);
    attest(&world.payload.source(), &[&file, "--type=cyclonedx", &key])
        .exits(INPUT)
        .says(&["is about a container image"]);
    let archive = "oci-archive:os.tar";
    attest(archive, &[&file, "--type=cyclonedx", &key]).exits(UNSUPPORTED).says(&[archive, "installer pull"]);
    // A command that signs with another key than it says.
    let other = Signer::new(&world.path(""), "other", Kind::P256);
    let command = format!("--sign-command=openssl dgst -sha256 -sign {}", signer.private());
    let wrong = format!("--public-key={}", other.public());
    attest(&source, &[&file, "--type=cyclonedx", &command, &wrong]).exits(5);
    let manifest = read(&layout.path(read(&layout.0.join("index.json"))["manifests"][0]["digest"].as_str().unwrap()));
    let layer = layout.path(manifest["layers"][0]["digest"].as_str().unwrap());
    let good = fs::read(&layer).unwrap();
    fs::write(&layer, &good[1..]).unwrap();
    assert_eq!(failure(attest(&source, &[&file, "--type=cyclonedx", &key])), "image-invalid");
    assert!(fs::read(layout.0.join("index.json")).unwrap() == before);
    fs::write(&layer, &good).unwrap();
    let right = format!("--public-key={}", signer.public());
    attest(&source, &[&file, "--type=cyclonedx", &command, &right]).succeeds();
    // With the mark that some editors begin a file with.
    attest(&source, &[&predicate(&world, "\u{feff}{}"), "--type=cyclonedx", &key]).succeeds();
}
