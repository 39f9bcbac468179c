//! `chunk` itself, and the tools that carry what it makes: skopeo with Debian's registry, and our own verbs.

use std::{fs, sync::Mutex};

use serde_json::{Value, json};
use slipway_test_support::{
    images::{self, Layout, Pack, built},
    registry::{
        Debian, run,
        server::{Request, Server, reply},
    },
    signing::{Kind, Signer},
    world::{Outcome, World, installer},
};

use super::{INDEX, INDEX_SIZE, Image, chunk, node, number, slot_b_is_next, upgrade, versions};
use crate::from_registry::registry_with;

fn prepared<'w>(world: &'w World) -> (super::Node<'w>, Layout) {
    let node = node(world, &versions());
    let layout = Layout::new(&world.path("image"));
    built(node.next.dir(), Pack::Zstd).write(&layout, "1");
    (node, layout)
}

#[test]
fn the_same_image_gives_the_same_bytes() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let report = chunk(&layout);
    let first = Image::of(&layout);
    assert_ne!(report["digest"], report["was"]);
    assert_eq!(report["layers"].as_array().unwrap().len(), 1, "{report}");
    // Once more is no change.
    let again = chunk(&layout);
    assert_eq!((&again["digest"], &again["was"]), (&report["digest"], &report["digest"]));
    assert_eq!(Image::of(&layout).blobs, first.blobs);
    // And elsewhere, from the same payload packed in another way, the layer and its index are the same.
    let other = Layout::new(&world.path("other"));
    built(node.next.dir(), Pack::Gzip).write(&other, "1");
    assert_eq!(chunk(&other)["layers"][0]["index"], report["layers"][0]["index"]);
    // It is a good image.
    let image = format!("{}:1", layout.source());
    let seen = Outcome::of(&mut installer(["inspect", &image, "--output=json", "--progress=none"])).succeeds().json();
    assert_eq!(seen["chunks"][0]["chunks"], report["layers"][0]["chunks"], "{seen}");
    let judged = world.path("judged").display().to_string();
    run("skopeo", &["copy", "--insecure-policy", "--preserve-digests", &image, &format!("oci:{judged}:1")]);
}

#[test]
fn what_is_no_image_in_a_layout_is_refused() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let chunk = |source: &str| Outcome::of(&mut installer(["chunk", source, "--progress=none"]));
    chunk(&node.next.source()).exits(2).says(&["no image"]);
    chunk("docker://127.0.0.1:1/os").exits(3).says(&["installer pull"]);
    chunk(&format!("{}:2", layout.source())).exits(2).says(&["not found", "1"]);
    let empty = Layout::new(&world.path("empty"));
    images::Image::new(vec![images::Layer::new(images::dirs().end(), Pack::Gzip)]).write(&empty, "1");
    chunk(&empty.source()).exits(2).says(&["no layer"]);
    // An only image whose platform the index does not name.
    for (arch, says) in [("riscv64", "riscv64"), ("amd64", "no layer"), ("arm64", "no layer")] {
        let layout = Layout::new(&world.path(&arch.to_uppercase()));
        let mut image = images::Image::new(vec![images::Layer::new(images::dirs().end(), Pack::Gzip)]);
        image.arch = arch;
        let index = json!({"schemaVersion": 2, "mediaType": images::INDEX, "manifests": [image.write_blobs(&layout)]});
        let index = index.to_string();
        layout.blob(index.as_bytes());
        layout.tag("1", &images::descriptor(images::INDEX, index.as_bytes()));
        let said = chunk(&layout.source()).exits(2).says(&[says]).stderr;
        assert_eq!(said.contains("no layer"), arch != "riscv64", "{said}");
    }
}

/// The image is good: to copy it again would not help.
#[test]
fn a_layer_with_more_files_than_an_index_lists_is_told() {
    let world = World::new();
    let node = node(&world, &versions());
    let files = images::files(node.next.dir());
    let kernel = files.iter().find(|(name, _)| name == "vmlinuz").unwrap();
    for (more, is_good) in [(13, true), (14, false)] {
        let files = [&vec![kernel.clone(); more][..], &files].concat();
        let layout = Layout::new(&world.path(&format!("image-{more}")));
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        images::Image::new(vec![images::layer(&files, &names, Pack::Gzip)]).write(&layout, "1");
        let source = format!("{}:1", layout.source());
        let outcome = Outcome::of(&mut installer(["chunk", &source, "--progress=none"]));
        if is_good {
            outcome.succeeds();
        } else {
            let said = outcome.exits(2).says(&["17 files, more than the limit of 16", "each file of the payload once"]);
            assert!(!said.stderr.contains("pull the image again"), "{}", said.stderr);
        }
    }
}

/// A reader of what zstd:chunked or eStargz say would look for their table in a plain archive.
#[test]
fn what_is_said_of_the_old_bytes_goes_with_them() {
    let world = World::new();
    let node = node(&world, &versions());
    let layout = Layout::new(&world.path("image"));
    let mut image = built(node.next.dir(), Pack::Zstd);
    let said = json!({
        "io.github.containers.zstd-chunked.manifest-checksum": "sha256:1",
        "io.github.containers.zstd-chunked.manifest-position": "1:2:3:1",
        "containerd.io/snapshot/stargz/toc.digest": "sha256:1",
        "io.containers.estargz.uncompressed-size": "9",
        "org.example": "kept",
    });
    image.layers.iter_mut().for_each(|layer| layer.descriptor["annotations"] = said.clone());
    image.layers[1].descriptor["data"] = json!("eA==");
    let ours = image.write_blobs(&layout);
    // As BuildKit lists what it says of an image.
    let mut statement = images::Image::new(vec![]).write_blobs(&layout);
    statement["annotations"] = json!({
        "vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": ours["digest"],
    });
    layout.tag("1", &layout.nested(&[(&ours, "amd64"), (&statement, "unknown")]));
    let source = format!("{}:1", layout.source());
    let outcome = Outcome::of(&mut installer(["chunk", &source, "--progress=plain", "--output=json"])).succeeds();
    let outcome = outcome.says(&["attestations of sha256:", "do not cover the new image"]);
    assert_eq!(outcome.json()["old_signatures"], 1);

    let index = Image::of(&layout);
    let new = index.manifest["manifests"][0]["digest"].as_str().unwrap();
    let manifest: Value = serde_json::from_slice(&index.blobs[new]).unwrap();
    let names = |layer: &Value| -> Vec<_> { layer["annotations"].as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(&manifest["layers"][1]), [INDEX, INDEX_SIZE, "org.example"]);
    assert_eq!(manifest["layers"][1].get("data"), None);
    // This layer is as it was.
    assert_eq!(manifest["layers"][0]["annotations"], said);
    assert_eq!(chunk(&layout)["old_signatures"], 0, "they are of another image now");
}

/// As `crane append` and `crane index append` leave it. `inspect` takes such an image, too.
#[test]
fn an_image_without_a_platform_is_prepared() {
    let world = World::new();
    let node = node(&world, &versions());
    let inspected = |layout: &Layout| {
        let args = ["inspect", &format!("{}:1", layout.source()), "--output=json", "--progress=none"];
        Outcome::of(&mut installer(args)).succeeds().json()
    };
    for (name, arch, os) in [("listed", "amd64", "linux"), ("nowhere", "", "")] {
        let mut image = built(node.next.dir(), Pack::Gzip);
        (image.arch, image.os) = (arch, os);
        for in_index in [true, false] {
            let layout = Layout::new(&world.path(&format!("{name}-{in_index}")));
            let ours = image.write_blobs(&layout);
            let index = json!({"schemaVersion": 2, "mediaType": images::INDEX, "manifests": [ours]}).to_string();
            layout.blob(index.as_bytes());
            layout.tag("1", &if in_index { images::descriptor(images::INDEX, index.as_bytes()) } else { ours });
            let report = chunk(&layout);
            let (said, seen) = (&report["layers"][0]["chunks"], inspected(&layout));
            assert!(said.is_u64() && *said == seen["chunks"][0]["chunks"], "{name}, {in_index}: {report} {seen}");
        }
    }
    // For two variants the same, and beside it one that is no system, which stays as it is.
    let layout = Layout::new(&world.path("variants"));
    let ours = built(node.next.dir(), Pack::Gzip).write_blobs(&layout);
    let mut other = images::Image::new(vec![images::Layer::new(images::dirs().end(), Pack::Gzip)]);
    other.arch = "arm64";
    let other = other.write_blobs(&layout);
    layout.tag("1", &layout.nested(&[(&ours, "amd64"), (&ours, "amd64"), (&other, "arm64")]));
    chunk(&layout);
    let listed: Vec<_> = (0..3).map(|n| Image::of(&layout).manifest["manifests"][n]["digest"].clone()).collect();
    assert!(listed[0] == listed[1] && listed[0] != ours["digest"] && listed[2] == other["digest"], "{listed:?}");
}

/// A registry that answers so to what has this text: with a status, or 0, with what is no HTTP.
fn answering(status: u16, at: &'static str) -> Server {
    let tagged = Mutex::new(String::new());
    Server::new(move |request, out| match (request.method.as_str(), request.target.as_str()) {
        ("POST", _) => reply(out, 202, &[("Location", "/upload")], b""),
        ("PUT", _) if request.body.contains(at) => match status {
            0 => out.write_all(b"no HTTP\r\n\r\n"),
            _ => reply(out, status, &[], br#"{"errors": [{"code": "MANIFEST_INVALID"}]}"#),
        },
        ("PUT", "/v2/os/manifests/1") => {
            *tagged.lock().unwrap() = images::digest(request.body.as_bytes());
            reply(out, 201, &[], b"")
        }
        ("PUT", _) => reply(out, 201, &[], b""),
        ("HEAD", "/v2/os/manifests/1") => {
            reply(out, 200, &[("Docker-Content-Digest", tagged.lock().unwrap().as_str())], b"")
        }
        ("HEAD", target) => match target.strip_prefix("/v2/os/manifests/") {
            Some(digest) => reply(out, 200, &[("Docker-Content-Digest", digest)], b""),
            None => reply(out, 404, &[], b""),
        },
        _ => reply(out, 404, &[], b""),
    })
}

/// GitLab, for one, knows the media types that it takes. Without the index the image is whole. What may pass is no such answer.
#[test]
fn a_registry_without_artifacts_gets_the_image() {
    const ARTIFACT: &str = "\"artifactType\"";
    let world = World::new();
    let (_node, layout) = prepared(&world);
    chunk(&layout);
    let push = |server: &Server| {
        let to = format!("docker://127.0.0.1:{}/os:1", server.port);
        let args = ["push", &format!("{}:1", layout.source()), &to, "--plain-http", "--progress=none", "--output=json"];
        Outcome::of(&mut installer(args))
    };
    for status in [400, 415, 422] {
        let pushed = push(&answering(status, ARTIFACT)).succeeds();
        assert!(pushed.stderr.contains("note: not copied: index of chunks: "), "{}", pushed.stderr);
        assert_eq!(pushed.json()["left_behind"].as_array().unwrap().len(), 1);
    }
    for (status, at) in [(413, ARTIFACT), (0, ARTIFACT), (413, "slipchk1")] {
        let server = answering(status, at);
        assert_eq!(push(&server).exits(5).json()["id"], "registry-unreachable", "{status} {at}");
        let is_tag = |request: &Request| request.method == "PUT" && request.target == "/v2/os/manifests/1";
        assert!(!server.requests().iter().any(is_tag), "{status} {at}: the tag has moved");
    }
}

/// A signature of before is not one of the new image; signed anew, the policy is met and the index is covered.
#[test]
fn signatures_are_made_afterwards() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let image = format!("{}:1", layout.source());
    let sign = || {
        Outcome::of(&mut installer(["sign", &image, "--key", &signer.private(), "--progress=none"])).succeeds();
    };
    sign();
    let report = chunk(&layout);
    assert_eq!(report["old_signatures"], 1, "{report}");
    sign();
    let debian = registry_of(&world, &layout);
    let outcome = upgrade(&node, debian.port, &[&signer.trusted()]).succeeds().json();
    assert!(number(&outcome, "bytes_reused") > 2_500_000, "{outcome}");
    slot_b_is_next(&node);
}

/// For whichever architecture the image is that was pulled of an index.
#[test]
fn signatures_of_the_index_that_it_came_from_are_told() {
    let world = World::new();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let layout = Layout::new(&world.path("both"));
    let images = ["amd64", "arm64"].map(|arch| {
        let kernel = images::Tar::new().file(&format!("usr/install/{arch}/vmlinuz"), arch.as_bytes()).end();
        let image = images::Image { arch, ..images::Image::new(vec![images::Layer::new(kernel, Pack::Gzip)]) };
        (image.write_blobs(&layout), arch)
    });
    layout.tag("1", &layout.nested(&images.each_ref().map(|(image, arch)| (image, *arch))));
    let (source, key) = (format!("{}:1", layout.source()), signer.private());
    Outcome::of(&mut installer(["sign", &source, "--key", &key, "--progress=none"])).succeeds();
    for arch in ["amd64", "arm64"] {
        let one = Layout::new(&world.path(arch));
        let (to, arch_flag) = (format!("{}:1", one.source()), format!("--arch={arch}"));
        Outcome::of(&mut installer(["pull", &source, &to, &arch_flag, "--progress=none"])).succeeds();
        assert_eq!(chunk(&one)["old_signatures"], 1, "{arch}");
    }
}

/// It lies beside the prepared image, as the index does, and takes nothing away.
#[test]
fn what_is_attested_of_it_goes_along() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    chunk(&layout);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let (image, file) = (format!("{}:1", layout.source()), world.path("sbom.json"));
    fs::write(&file, r#"{"bomFormat": "CycloneDX"}"#).unwrap();
    let predicate = format!("--predicate={}", file.display());
    let attest = ["attest", &image, &predicate, "--type=cyclonedx", "--key", &signer.private(), "--progress=none"];
    Outcome::of(&mut installer(attest)).succeeds();
    let debian = registry_of(&world, &layout);
    let source = format!("docker://127.0.0.1:{}/os:1", debian.port);
    let inspect = ["inspect", &source, "--plain-http", "--output=json", "--progress=none"];
    let seen = Outcome::of(&mut installer(inspect)).succeeds().json();
    assert_eq!((&seen["signatures"][0]["form"], seen["chunks"].as_array().unwrap().len()), (&json!("bundle"), 1));
    let outcome = upgrade(&node, debian.port, &[]).succeeds().json();
    assert!(number(&outcome, "bytes_reused") > 2_500_000, "{outcome}");
}

/// Pushed by us.
pub(super) fn registry_of(world: &World, layout: &Layout) -> Debian {
    let dir = world.path("registry");
    fs::create_dir(&dir).unwrap();
    let debian = Debian::empty(&dir, "", "");
    let to = format!("docker://127.0.0.1:{}/os:1", debian.port);
    let image = format!("{}:1", layout.source());
    Outcome::of(&mut installer(["push", &image, &to, "--plain-http", "--progress=none"])).succeeds();
    debian
}

#[test]
fn push_and_pull_carry_it() {
    let world = World::new();
    let (node, layout) = prepared(&world);
    chunk(&layout);
    let debian = registry_of(&world, &layout);
    let copy = Layout::new(&world.path("copy"));
    let (from, to) = (format!("docker://127.0.0.1:{}/os:1", debian.port), format!("{}:1", copy.source()));
    let pull = ["pull", &from, &to, "--plain-http", "--progress=none", "--output=json"];
    let pulled = Outcome::of(&mut installer(pull)).succeeds().json();
    assert_eq!(pulled["left_behind"], json!([]), "{pulled}");
    assert_eq!(Image::of(&copy).index(), Image::of(&layout).index());
    drop(debian);
    let other = World::new();
    let debian = registry_of(&other, &copy);
    let outcome = upgrade(&node, debian.port, &[]).succeeds().json();
    assert!(number(&outcome, "bytes_reused") > 2_500_000, "{outcome}");
}

/// Two copies: the image, and what is listed beside it. From where it was prepared, and from where that was pulled to.
#[test]
fn skopeo_carries_it() {
    for is_pulled in [false, true] {
        let world = World::new();
        let (node, mut layout) = prepared(&world);
        let digest = chunk(&layout)["digest"].as_str().unwrap().to_owned();
        if is_pulled {
            let copy = Layout::new(&world.path("copy"));
            let [from, to] = [&layout, &copy].map(|layout| format!("{}:1", layout.source()));
            // Once more changes nothing.
            for _ in 0..2 {
                Outcome::of(&mut installer(["pull", &from, &to, "--progress=none"])).succeeds();
            }
            layout = copy;
        }
        by_skopeo(&world, &node, &layout, &digest);
    }
}

fn by_skopeo(world: &World, node: &super::Node, layout: &Layout, digest: &str) {
    let debian = registry_with(&world.path("registry"), layout, "", "", &[]);
    let beside = format!("sha256-{digest}");
    let (from, to) =
        (format!("{}:{beside}", layout.source()), format!("docker://127.0.0.1:{}/os:{beside}", debian.port));
    let copy = ["copy", "--insecure-policy", "--all", "--preserve-digests", "--dest-tls-verify=false"];
    run("skopeo", &[&copy[..], &[&from, &to]].concat());
    let outcome = upgrade(node, debian.port, &[]).succeeds().json();
    assert!(number(&outcome, "bytes_reused") > 2_500_000, "{outcome}");
    slot_b_is_next(node);
}
