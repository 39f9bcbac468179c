//! What others have put beside a signed image: it neither stands in the way of the signature, nor fills memory or disk.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};
use slipway_test_support::{
    images::{Image, Layer, Layout, MANIFEST, Pack, built, descriptor, dirs},
    signing::{Kind, PREDICATE, Signer, manifest_about, put_bundle, put_manifest, put_signatures},
    world::{Outcome, World, installer, installer_by},
};

use super::{
    bundles::{layout, with_referrers},
    failure, inspect, listed,
};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// A bundle with so many signatures over a payload of so many bytes.
fn bomb(signatures: usize, bytes: usize) -> String {
    let payload = STANDARD.encode(vec![b'x'; bytes]);
    let signatures = vec![json!({"sig": ""}); signatures];
    json!({"mediaType": BUNDLE, "verificationMaterial": {},
        "dsseEnvelope": {"payload": payload, "payloadType": "t", "signatures": signatures}})
    .to_string()
}

/// A manifest about the image with these layers, and so many bytes more.
fn put_padded(layout: &Layout, image: &Value, layers: &[Value], pad: usize) -> Value {
    let mut manifest = manifest_about(image, layers);
    manifest["pad"] = "x".repeat(pad).into();
    put_manifest(layout, &manifest)
}

/// The installer with so much memory, in KiB.
fn within(kib: u64, args: &[&str]) -> Outcome {
    let limited = format!("ulimit -v {kib} && exec \"$0\" \"$@\"");
    Outcome::of(&mut installer_by(&["sh", "-c", &limited], args))
}

/// Puts something beside an image, which has this digest.
type Put<'a> = &'a dyn Fn(&Layout, &Value, &str);

/// A signature counts, and comes along, beside each of these; what is wrong with the other is said.
fn counts_beside(world: &World, signer: &Signer, others: &[(&str, Put)]) {
    for (says, put) in others {
        let (layout, image, named) = layout(world);
        put(&layout, &image, &named);
        // It is said, and is no signature.
        let refused = inspect(&layout.source(), &[&signer.trusted()]).exits(2);
        assert!(refused.stderr.contains(says), "{says}: {}", refused.stderr);
        layout.list(&put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named)));
        let report = inspect(&layout.source(), &[&signer.trusted()]).succeeds().json();
        assert_eq!(report["signed_by"].as_array().unwrap().len(), 1, "{says}");
        let to = format!("oci:{}", world.path("pulled").display());
        let args = ["pull", &layout.source(), &to, "--progress=none", &signer.trusted()];
        Outcome::of(&mut installer(args)).succeeds();
        inspect(&to, &[&signer.trusted()]).succeeds();
        fs::remove_dir_all(world.path("pulled")).unwrap();
        fs::remove_dir_all(&layout.0).unwrap();
    }
}

#[test]
fn a_signature_counts_whatever_lies_beside_it() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let unreadable = json!({"certificate": {"rawBytes": "AAAA"}});
    let others: [(&str, Put); 5] = [
        ("not a bundle around an envelope", &|layout, image, _| {
            let other = json!({"mediaType": BUNDLE, "messageSignature": {"signature": "AAAA"}});
            layout.list(&put_bundle(layout, image, &other.to_string()));
        }),
        ("its certificate cannot be read", &|layout, image, named| {
            let mut bundle: Value = serde_json::from_str(&signer.bundle(PREDICATE, named)).unwrap();
            bundle["verificationMaterial"] = unreadable.clone();
            layout.list(&put_bundle(layout, image, &bundle.to_string()));
        }),
        ("does not follow the OCI image specification", &|layout, _, _| {
            layout.blob(b"{\"layers\":1}");
            let mut broken = descriptor(MANIFEST, b"{\"layers\":1}");
            broken["annotations"] = json!({"kind": "dev.cosignproject.cosign/sigs"});
            layout.list(&broken);
        }),
        ("not found", &|layout, image, _| {
            let bundle = put_bundle(layout, image, &bomb(1, 7));
            let manifest = fs::read(layout.path(bundle["digest"].as_str().unwrap())).unwrap();
            let manifest: Value = serde_json::from_slice(&manifest).unwrap();
            fs::remove_file(layout.path(manifest["layers"][0]["digest"].as_str().unwrap())).unwrap();
            layout.list(&bundle);
        }),
        ("none of the trusted keys", &|layout, image, _| {
            layout.list(&put_bundle(layout, image, &bomb(1, 7)));
        }),
    ];
    counts_beside(&world, &signer, &others);
}

#[test]
fn a_signature_counts_however_much_lies_beside_it() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let others: [(&str, Put); 4] = [
        ("and 184 more signatures that do not count", &|layout, image, _| {
            (0..200).for_each(|n| layout.list(&put_bundle(layout, image, &bomb(1, n))));
        }),
        // More signatures than any verifier reads, smaller than the one that counts.
        ("none of the trusted keys", &|layout, image, _| {
            let document = bomb(16, 1);
            layout.blob(document.as_bytes());
            layout.list(&put_padded(layout, image, &vec![descriptor(BUNDLE, document.as_bytes()); 300], 0));
        }),
        // As many as fit nowhere, and larger than the signature.
        ("more than 32 MiB lie beside the image", &|layout, image, _| {
            (0..13).for_each(|n| layout.list(&put_bundle(layout, image, &bomb(1, (2 << 20) - n))));
        }),
        ("more than 32 MiB lie beside the image", &|layout, image, _| {
            let document = bomb(1, 7);
            layout.blob(document.as_bytes());
            for n in 0..9 {
                let layers = [descriptor(BUNDLE, document.as_bytes())];
                layout.list(&put_padded(layout, image, &layers, 4_000_000 + n));
            }
        }),
    ];
    counts_beside(&world, &signer, &others);
}

/// Each signature in a bundle had a copy of what it is over.
#[test]
fn a_bundle_does_not_fill_the_memory() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, _) = layout(&world);
    layout.list(&put_bundle(&layout, &image, &bomb(100_000, 1_500_000)));
    let args = ["inspect", &layout.source(), "--progress=none"];
    within(1 << 20, &args).succeeds();
    within(1 << 20, &[&args[..], &[&signer.trusted()]].concat()).exits(2).says(&["only the first 16 signatures of it"]);
}

/// Adding a signature keeps the others.
#[test]
fn layers_do_not_fill_the_memory() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    let document = vec![b'x'; 4 << 20];
    put_signatures(&layout, &named, &vec![(&document[..], SIMPLE_SIGNING, "AAAA"); 500]);
    let key = format!("--key={}", signer.private());
    within(1 << 20, &["sign", &layout.source(), &key, "--progress=none"])
        .exits(2)
        .says(&["more than 32 MiB are under"]);
    within(1 << 20, &["inspect", &layout.source(), "--progress=none"]).succeeds();
    // The same of bundles.
    layout.list(&put_padded(&layout, &image, &vec![descriptor(BUNDLE, &document); 500], 0));
    let predicate = world.path("predicate.json");
    fs::write(&predicate, "{}").unwrap();
    let predicate = format!("--predicate={}", predicate.display());
    let args = ["attest", &layout.source(), &predicate, "--type=vuln", &key, "--progress=none"];
    within(1 << 20, &args).succeeds();
}

/// Any person may attach any document, and say that it is about the image.
#[test]
fn pull_brings_signatures_and_nothing_else() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    let bundle = put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named));
    let read = |descriptor: &Value| -> Value {
        serde_json::from_slice(&fs::read(layout.path(descriptor["digest"].as_str().unwrap())).unwrap()).unwrap()
    };
    let junk = vec![0; 5 << 20];
    layout.blob(&junk);
    let mut large = read(&bundle);
    let layers = large["layers"].as_array_mut().unwrap();
    layers.push(descriptor("application/octet-stream", &junk));
    layers.push(descriptor(BUNDLE, &junk));
    let mut alone = read(&bundle);
    alone.as_object_mut().unwrap().remove("subject");
    let server = with_referrers(&layout.0, &named, &[put_manifest(&layout, &large), put_manifest(&layout, &alone)]);
    let source = format!("docker://127.0.0.1:{}/os:1", server.port);
    let to = format!("oci:{}", world.path("pulled").display());
    let args = ["pull", &source, &to, "--plain-http", "--progress=plain", &signer.trusted()];
    let pulled = Outcome::of(&mut installer(args)).succeeds();
    for says in ["its other layers (1) are no signatures", "larger than 4 MiB", "its subject is another one"] {
        assert!(pulled.stderr.contains(says), "{says}: {}", pulled.stderr);
    }
    let junk = descriptor("x", &junk)["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    assert!(!world.path("pulled").join(junk).exists());
    // There is one image in it.
    inspect(&to, &[&signer.trusted()]).succeeds();
}

/// Each would be a request.
#[test]
fn the_same_document_listed_many_times() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (layout, image, named) = layout(&world);
    let missing = put_padded(&layout, &image, &vec![descriptor(BUNDLE, b"not there"); 500], 0);
    let document = bomb(1, 1);
    layout.blob(document.as_bytes());
    let same = put_padded(&layout, &image, &vec![descriptor(BUNDLE, document.as_bytes()); 500], 0);
    let valid = put_bundle(&layout, &image, &signer.bundle(PREDICATE, &named));
    let server = with_referrers(&layout.0, &named, &[missing, same, valid]);
    let source = format!("docker://127.0.0.1:{}/os:1", server.port);
    inspect(&source, &["--plain-http", &signer.trusted()]).succeeds();
    let asked = |digest: &str| server.requests().iter().filter(|request| request.target.ends_with(digest)).count();
    for bytes in [&b"not there"[..], document.as_bytes()] {
        assert_eq!(asked(descriptor(BUNDLE, bytes)["digest"].as_str().unwrap()), 1);
    }
}

/// An index that is signed and names two images for one architecture is a signature of the one that it stands for.
#[test]
fn the_other_image_of_a_signed_index() {
    let world = listed();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let layout = Layout::new(&world.path("layout"));
    let first = built(world.payload.dir(), Pack::Gzip).write_blobs(&layout);
    let mut other = Image::new(vec![Layer::new(dirs().end(), Pack::Plain)]);
    other.arch = "arm64";
    let second = built(world.payload.dir(), Pack::Zstd).write_blobs(&layout);
    let other = other.write_blobs(&layout);
    let index = layout.nested(&[(&other, "arm64"), (&first, "amd64"), (&second, "amd64")]);
    for (image, counts) in [(&index, true), (&first, true), (&second, false)] {
        fs::remove_file(layout.0.join("index.json")).ok();
        fs::write(layout.0.join("index.json"), "{\"schemaVersion\":2,\"manifests\":[]}").unwrap();
        layout.tag("1", image);
        signer.sign_image(&layout, index["digest"].as_str().unwrap());
        let outcome = inspect(&layout.source(), &[&signer.trusted()]);
        match counts {
            true => drop(outcome.succeeds()),
            false => assert_eq!(failure(outcome), "signature-missing"),
        }
    }
}

/// It took half a minute for each thousand.
#[test]
fn the_same_manifest_listed_many_times() {
    let world = listed();
    let (layout, image, _) = layout(&world);
    let padded = put_padded(&layout, &image, &[], 4_000_000);
    let path = layout.0.join("index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let manifests = index["manifests"].as_array_mut().unwrap();
    manifests.extend(vec![padded; 5000]);
    fs::write(&path, index.to_string()).unwrap();
    inspect(&layout.source(), &[]).succeeds();
}

/// A named pipe where a file is expected would be waited for without an end.
#[test]
fn pipes_in_the_layout_that_is_pulled_into() {
    let world = listed();
    let (layout, _, named) = layout(&world);
    let to = world.path("to");
    fs::create_dir_all(to.join("blobs/sha256")).unwrap();
    let pull = || {
        let args = ["pull", &layout.source(), &format!("oci:{}", to.display()), "--progress=none"];
        Outcome::of(&mut installer_by(&["timeout", "60"], args))
    };
    // That of a blob is replaced by the blob.
    let manifest: Value = serde_json::from_slice(&fs::read(layout.path(&named)).unwrap()).unwrap();
    let config = manifest["config"]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    mkfifo(&to.join(config), Mode::S_IRWXU).unwrap();
    pull().succeeds();
    fs::remove_file(to.join("index.json")).unwrap();
    mkfifo(&to.join("index.json"), Mode::S_IRWXU).unwrap();
    let refused = pull();
    assert!(refused.stderr.contains("not a regular file"), "{}", refused.stderr);
}
