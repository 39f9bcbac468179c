//! Signatures beside a container image: in layouts, archives and registries.

use std::fs;

use serde_json::Value;
use slipway_test_support::{
    images::{Image, Layer, Layout, Pack, built, dirs},
    registry::{self, Debian, digest},
    signing::{Kind, SIGNATURE_TYPE, Signer, put_signatures, simple_signing, tag_of},
    world::{Outcome, World, finished, installer, json_of, program},
};

use super::{failure, inspect, is_refused, listed};

const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

pub fn named(descriptor: &Value) -> String {
    descriptor["digest"].as_str().unwrap().to_owned()
}

/// A layout with the payload as `1`, and the digest of the image.
fn layout(world: &World) -> (Layout, String) {
    let layout = Layout::new(&world.path("layout"));
    let image = named(&built(world.payload.dir(), Pack::Gzip).write(&layout, "1"));
    (layout, image)
}

/// A layout with an index of two images as `1`: digests of the index and of ours.
pub fn layout_of_two(world: &World) -> (Layout, String, String) {
    let layout = Layout::new(&world.path("two"));
    let ours = built(world.payload.dir(), Pack::Gzip).write_blobs(&layout);
    let mut other = Image::new(vec![Layer::new(dirs().end(), Pack::Plain)]);
    other.arch = "arm64";
    let other = other.write_blobs(&layout);
    let index = layout.nested(&[(&other, "arm64"), (&ours, "amd64")]);
    layout.tag("1", &index);
    (layout, named(&index), named(&ours))
}

fn archive(world: &World, layout: &Layout) -> String {
    let file = world.path("image.tar");
    finished(program("tar").arg("-C").arg(&layout.0).arg("-cf").arg(&file).arg("."));
    format!("oci-archive:{}", file.display())
}

#[test]
fn a_signed_image_is_taken() {
    let world = listed();
    for kind in Kind::ALL {
        let signer = Signer::new(&world.path(""), "key", kind);
        let (layout, image) = layout(&world);
        signer.sign_image(&layout, &image);
        // The signatures are no second image.
        for source in [layout.source(), format!("{}:1", layout.source()), archive(&world, &layout)] {
            let report = inspect(&source, &[&signer.trusted()]).succeeds().json();
            assert_eq!(report["signed_by"][0]["over"], image.strip_prefix("sha256:").unwrap());
            let disk = world.image();
            world.install(&disk, &[&format!("--source={source}"), &signer.trusted()]).succeeds();
            assert_eq!(json_of(&disk, &["status"])["next_boot"]["slot"], "A");
        }
    }
}

#[test]
fn what_does_not_count_is_said() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let other = Signer::new(&world.path(""), "other", Kind::Rsa);
    let disk = world.image();
    let elsewhere = format!("sha256:{}", "7".repeat(64));
    let refused = |sign: &dyn Fn(&Layout, &str), texts: &[&str]| {
        let (layout, image) = layout(&world);
        sign(&layout, &image);
        is_refused(&world, &disk, &[&format!("--source={}", layout.source()), &signer.trusted()], texts);
    };
    let put = |layout: &Layout, image: &str, document: &str, media_type: &str, signature: &str| {
        put_signatures(layout, image, &[(document.as_bytes(), media_type, signature)]);
    };
    refused(
        &|_, _| (),
        &["no signature, and --trust-key demands one: looked for the tag sha256-", ".sig, and bundles beside it"],
    );
    refused(&|layout, image| other.sign_image(layout, image), &["layer 1: none of the trusted keys made it"]);
    refused(
        &|layout, image| {
            let document = simple_signing(SIGNATURE_TYPE, &elsewhere, "r.io/os");
            put(layout, image, &document, SIMPLE_SIGNING, &signer.sign_text(document.as_bytes()));
        },
        &["it is for another image, sha256:7777"],
    );
    refused(
        &|layout, image| {
            let document = simple_signing("cosign attestation", image, "r.io/os");
            put(layout, image, &document, SIMPLE_SIGNING, &signer.sign_text(document.as_bytes()));
        },
        &["it is of the type \"cosign attestation\", not a \"cosign container image signature\""],
    );
    // What was signed was something else.
    refused(
        &|layout, image| {
            let document = simple_signing(SIGNATURE_TYPE, &elsewhere, "r.io/os");
            let signature = signer.sign_text(document.as_bytes());
            put(layout, image, &simple_signing(SIGNATURE_TYPE, image, "r.io/os"), SIMPLE_SIGNING, &signature);
        },
        &["or what it signs was changed afterwards"],
    );
    // An attestation's layer is no signature.
    refused(
        &|layout, image| {
            let document = simple_signing(SIGNATURE_TYPE, image, "r.io/os");
            let signature = signer.sign_text(document.as_bytes());
            put(layout, image, &document, "application/vnd.dsse.envelope.v1+json", &signature);
        },
        &["no signature, and --trust-key demands one"],
    );
    // A byte of the document is flipped in the store.
    refused(
        &|layout, image| {
            signer.sign_image(layout, image);
            let document = simple_signing(SIGNATURE_TYPE, image, "registry.example/os");
            let path = layout.path(&digest(document.as_bytes()));
            fs::write(path, document.replace("registry.example", "registry.examplf")).unwrap();
        },
        &["layer 1: SHA-256 of its content is "],
    );
}

/// A signature of one image says nothing of another under the same tag.
#[test]
fn another_image_under_a_signed_tag() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image) = layout(&world);
    signer.sign_image(&layout, &image);
    let index = fs::read_to_string(layout.0.join("index.json")).unwrap();
    let other = named(&built(world.payload.dir(), Pack::Zstd).write_blobs(&layout));
    let size = fs::metadata(layout.path(&other)).unwrap().len();
    let old = fs::metadata(layout.path(&image)).unwrap().len();
    let (head, tail) = index.split_at(index.find(&image).unwrap() + image.len());
    let moved = head.replace(&image, &other) + tail;
    fs::write(layout.0.join("index.json"), moved.replace(&format!("\"size\":{old}"), &format!("\"size\":{size}")))
        .unwrap();
    assert_eq!(inspect(&layout.source(), &[]).succeeds().json()["version"], "1.2.3");
    assert_eq!(failure(inspect(&layout.source(), &[&signer.trusted()])), "signature-missing");
    // Nor if the signatures are moved along.
    let index = fs::read_to_string(layout.0.join("index.json")).unwrap();
    fs::write(layout.0.join("index.json"), index.replace(&tag_of(&image), &tag_of(&other))).unwrap();
    let refused = inspect(&layout.source(), &[&signer.trusted()]);
    refused.exits(2).says(&["it is for another image", &image]);
}

/// The index or the manifest of this machine's architecture: who signs one has signed what is installed.
#[test]
fn an_index_or_one_of_its_images_is_signed() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::Ed25519);
    for sign_index in [true, false] {
        let (layout, index, ours) = layout_of_two(&world);
        signer.sign_image(&layout, if sign_index { &index } else { &ours });
        inspect(&layout.source(), &[&signer.trusted()]).succeeds();
    }
    let (layout, _, _) = layout_of_two(&world);
    assert_eq!(failure(inspect(&layout.source(), &[&signer.trusted()])), "signature-missing");
}

/// What `cosign save` writes: signatures have no name, but a kind.
#[test]
fn a_layout_of_cosigns_own() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image) = layout(&world);
    signer.sign_image(&layout, &image);
    let path = layout.0.join("index.json");
    let index = fs::read_to_string(&path).unwrap();
    let name = |tag: &str| format!("\"org.opencontainers.image.ref.name\":\"{tag}\"");
    let kind = |kind: &str| format!("\"kind\":\"dev.cosignproject.cosign/{kind}\"");
    let index = index.replace(&name(&tag_of(&image)), &kind("sigs")).replace(&name("1"), &kind("image"));
    assert!(index.contains("cosign/sigs") && index.contains("cosign/image\""));
    fs::write(&path, index).unwrap();
    inspect(&layout.source(), &[&signer.trusted()]).succeeds();
}

/// Through a registry into a layout, and from there without a network: the index is signed, and only one of its images
/// comes along.
#[test]
fn pull_brings_the_signatures() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, index, _) = layout_of_two(&world);
    // Here by `installer sign`: what it writes has to pass through skopeo and a registry.
    let key = format!("--key={}", signer.private());
    Outcome::of(&mut installer(["sign", &layout.source(), &key, "--progress=none"])).succeeds();
    let dir = world.path("registry");
    fs::create_dir_all(&dir).unwrap();
    let debian = Debian::new(&dir, &registry::Image::new(), "", "", &["--dest-tls-verify=false"]);
    let copy = |from: &str, to: &str| {
        let to = format!("docker://127.0.0.1:{}/os:{to}", debian.port);
        let all = ["copy", "--insecure-policy", "--all", "--preserve-digests", "--dest-tls-verify=false"];
        registry::run("skopeo", &[&all[..], &[&format!("{}:{from}", layout.source()), &to]].concat());
    };
    copy("1", "1");
    let source = format!("docker://127.0.0.1:{}/os:1", debian.port);
    let pull = |from: &str, to: &str, extra: &[&str]| {
        let to = format!("oci:{}", world.path(to).display());
        let options = ["--plain-http", "--progress=none", "--output=json"];
        Outcome::of(installer(["pull", from, &to]).args(options).args(extra))
    };
    assert_eq!(pull(&source, "unsigned", &[]).succeeds().json()["signatures"], 0);
    assert_eq!(failure(pull(&source, "refused", &[&signer.trusted()])), "signature-missing");
    assert!(!world.path("refused").exists(), "written all the same");

    copy(&tag_of(&index), &tag_of(&index));
    inspect(&source, &["--plain-http", &signer.trusted()]).succeeds();
    let pulled = pull(&source, "pulled", &[&signer.trusted()]).succeeds().json();
    assert_eq!(pulled["signatures"], 1);
    drop(debian);
    let layout = format!("oci:{}", world.path("pulled").display());
    inspect(&layout, &[&signer.trusted()]).succeeds();
    // Once more from there, and again over it.
    for _ in 0..2 {
        assert_eq!(pull(&layout, "again", &[&signer.trusted()]).succeeds().json()["signatures"], 1);
    }
    let again = format!("oci:{}", world.path("again").display());
    inspect(&again, &[&signer.trusted()]).succeeds();
    let disk = world.image();
    world.install(&disk, &[&format!("--source={again}"), &signer.trusted()]).succeeds();
    // The signature is for the index. If that does not name the image, it is none.
    let index = world.path("again").join("blobs/sha256").join(index.strip_prefix("sha256:").unwrap());
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("amd64", "AMD64")).unwrap();
    assert_eq!(failure(inspect(&again, &[&signer.trusted()])), "signature-missing");
}

/// In a layout the image is signed once more, and then pulled again.
#[test]
fn a_second_pull_loses_no_signature() {
    let world = listed();
    let [ann, ben] = ["ann", "ben"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    let (from, image) = layout(&world);
    ann.sign_image(&from, &image);
    let to = format!("oci:{}", world.path("pulled").display());
    let pull = || {
        let args = ["pull", &from.source(), &to, "--progress=none", "--output=json"];
        assert_eq!(Outcome::of(&mut installer(args)).succeeds().json()["signatures"], 1);
    };
    pull();
    Outcome::of(&mut installer(["sign", &to, "--key", &ben.private(), "--progress=none"])).succeeds();
    for _ in 0..2 {
        pull();
        let report = inspect(&to, &[&ann.trusted(), &ben.trusted()]).succeeds().json();
        assert_eq!((report["signed_by"].as_array().unwrap().len(), &report["signatures"][2]), (2, &Value::Null));
    }
    // One that cannot be read is lost, and told.
    let index = fs::read_to_string(world.path("pulled").join("index.json")).unwrap();
    let index: Value = serde_json::from_str(&index).unwrap();
    let signatures = index["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["annotations"]["org.opencontainers.image.ref.name"] == tag_of(&image));
    let digest = named(signatures.unwrap());
    fs::write(world.path("pulled/blobs/sha256").join(digest.strip_prefix("sha256:").unwrap()), "{}").unwrap();
    let pulled = Outcome::of(&mut installer(["pull", &from.source(), &to, "--progress=plain"])).succeeds();
    pulled.says(&["not copied: signatures that the layout had: ", &digest]);
    inspect(&to, &[&ann.trusted()]).succeeds();
}

/// A live medium carries a container image, too.
#[test]
fn the_image_on_a_live_medium_has_to_be_signed() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    signer.sign_payload(&world.payload);
    let (layout, image) = layout(&world);
    let out = world.path("pxe.tar");
    let make = || {
        let container = format!("--container={}", layout.source());
        let payload = format!("--source={}", world.payload.source());
        let args = ["image", "--kind=pxe", "--out", out.to_str().unwrap(), "--progress=none", "--output=json"];
        Outcome::of(installer(args).args([&container, &payload, &signer.trusted()]))
    };
    assert_eq!(failure(make()), "signature-missing");
    assert!(!out.exists());
    signer.sign_image(&layout, &image);
    make().succeeds();
}
