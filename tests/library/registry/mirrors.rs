//! Mirrors: who is asked, and when the registry itself is.

use std::{fs, io::Read as _};

use slipway::payload::{
    image::{FromRange, ImageSource, ImageStore as _, Pull},
    registry::{Options, Registry},
};
use slipway_core::{digest::Sha256, kernel::arch::Arch};
use slipway_test_support::{
    registry::{
        Image, auth_file, blob, descriptor, digest, plain, registry, says,
        server::{Server, blob_head, reply, serve_blob, token_service},
    },
    world::noise,
};
use tempfile::TempDir;

use super::blobs::chunked_with;

/// `a/b:1` of a registry, with these mirrors of it.
fn mirrored(own: &Server, mirrors: &[&str]) -> Registry {
    let host = format!("127.0.0.1:{}", own.port);
    let mirrors = mirrors.iter().map(|url| format!("{host}={url}").parse().unwrap()).collect();
    registry(&format!("{host}/a/b:1"), &Options { mirrors, ..plain() })
}

fn url(server: &Server) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

fn serving(bytes: &'static [u8]) -> Server {
    Server::new(move |request, out| serve_blob(request, out, bytes))
}

#[test]
fn a_mirror_is_asked_first() {
    let (own, mirror) = (serving(b"[1]"), serving(b"[12,3]"));
    assert_eq!(mirrored(&own, &[&format!("{}/v2/proxy", url(&mirror))]).root().unwrap().bytes, b"[12,3]");
    assert_eq!(mirror.requests()[0].target, "/v2/proxy/a/b/manifests/1");
    assert!(own.requests().is_empty());
    // A mirror of another registry is not.
    let other = Options { mirrors: vec![format!("r.example={}", url(&mirror)).parse().unwrap()], ..plain() };
    let registry = registry(&format!("127.0.0.1:{}/a/b:1", own.port), &other);
    assert_eq!(registry.root().unwrap().bytes, b"[1]");
    assert_eq!(mirror.requests().len(), 1);
}

/// Harbor has the repositories of another registry below a project, which may have credentials of its own.
#[test]
fn the_place_of_a_mirror_is_part_of_its_repositories() {
    let service = token_service("token", true);
    let offer = format!("Bearer realm=\"http://127.0.0.1:{}/token\",service=\"s\"", service.port);
    let mirror = Server::new(move |request, out| match request.header("authorization") {
        Some(_) => reply(out, 200, &[], b"[1,2]"),
        None => reply(out, 401, &[("WWW-Authenticate", &offer)], b""),
    });
    let dir = TempDir::new().unwrap();
    let key = format!("127.0.0.1:{}/proxy", mirror.port);
    let auth_file = Some(auth_file(dir.path(), &key, "me", "secret"));
    let mirrors = vec![format!("r.example={}/v2/proxy", url(&mirror)).parse().unwrap()];
    let registry = registry("r.example/a/b:1", &Options { mirrors, auth_file, ..plain() });
    assert_eq!(registry.root().unwrap().bytes, b"[1,2]");
    let asked = service.requests();
    assert!(asked[0].target.contains("scope=repository%3Aproxy%2Fa%2Fb%3Apull"), "{}", asked[0].target);
}

#[test]
fn mirrors_that_cannot_help_are_passed_by() {
    let gone = url(&serving(b""));
    let (lacking, broken) =
        (Server::new(|_, out| reply(out, 404, &[], b"")), Server::new(|_, out| reply(out, 500, &[], b"")));
    let own = serving(b"[1,2]");
    let registry = mirrored(&own, &[&gone, &url(&lacking), &url(&broken)]);
    assert_eq!(registry.root().unwrap().bytes, b"[1,2]");
    assert_eq!(blob(&registry, b"[1,2]").unwrap(), b"[1,2]");
    assert_eq!((lacking.requests().len(), broken.requests().len(), own.requests().len()), (2, 2, 2));
}

#[test]
fn when_nobody_helps_all_are_named() {
    let lacking = Server::new(|_, out| reply(out, 404, &[], b""));
    let own = Server::new(|_, out| reply(out, 500, &[], b""));
    let error = mirrored(&own, &[&url(&lacking)]).root().unwrap_err();
    assert_eq!(says(&error, &["500", "asked 5 times", &format!("mirror {}", url(&lacking)), "404"]), "fetch");
    assert_eq!((lacking.requests().len(), own.requests().len()), (1, 5));
}

/// A look-up of a signature mostly ends with 404, which the registry knows best.
#[test]
fn what_the_registry_has_not_is_not_waited_for() {
    let own = Server::new(|request, out| match request.target.as_str() {
        "/v2/a/b/manifests/1" => reply(out, 200, &[], b"[1,2]"),
        _ => reply(out, 404, &[], b""),
    });
    let broken = Server::new(|_, out| reply(out, 500, &[], b""));
    let registry = mirrored(&own, &[&url(&broken)]);
    registry.root().unwrap();
    assert!(registry.tagged("none").unwrap().found.is_empty());
    assert!(registry.referrers(Sha256::of(b"[1,2]")).unwrap().found.is_empty());
    assert_eq!((broken.requests().len(), own.requests().len()), (4, 4));

    // It may be that only the mirror has the image.
    let own = Server::new(|_, out| reply(out, 404, &[], b""));
    mirrored(&own, &[&url(&broken)]).root().unwrap_err();
    assert_eq!((broken.requests().len(), own.requests().len()), (4 + 5, 1));
}

#[test]
fn a_mirror_with_other_content_is_passed_by() {
    let (own, stale) = (serving(b"[1,2]"), serving(b"other"));
    let host = format!("127.0.0.1:{}", own.port);
    let mirrors = vec![format!("{host}={}", url(&stale)).parse().unwrap()];
    let name = format!("{host}/a/b@{}", digest(b"[1,2]"));
    assert_eq!(registry(&name, &Options { mirrors, ..plain() }).root().unwrap().bytes, b"[1,2]");
    // A blob of another length, too.
    let (own, stale) = (serving(b"[1,2]"), serving(b"hello there"));
    assert_eq!(blob(&mirrored(&own, &[&url(&stale)]), b"[1,2]").unwrap(), b"[1,2]");
}

#[test]
fn a_blob_whose_mirror_dies_is_finished_by_the_registry() {
    let bytes = noise(1, 200_000);
    let content = bytes.clone();
    let mirror = Server::new(move |request, out| {
        if request.start().is_some() {
            return reply(out, 500, &[], b"");
        }
        blob_head(request, out, &content)?;
        out.write_all(&content[..120_000])
    });
    let content = bytes.clone();
    let own = Server::new(move |request, out| serve_blob(request, out, &content));
    assert!(blob(&mirrored(&own, &[&url(&mirror)]), &bytes).unwrap() == bytes);
    let last = own.requests().pop().unwrap();
    // The mirror's ETag says nothing here.
    assert_eq!((last.start(), last.header("if-match")), (Some(120_000), None));
}

#[test]
fn a_mirror_that_cuts_but_brings_bytes_is_asked_on() {
    let bytes = noise(1, 200_000);
    let content = bytes.clone();
    let mirror = Server::new(move |request, out| {
        blob_head(request, out, &content)?;
        let start = request.start().unwrap_or(0);
        out.write_all(&content[start..usize::min(start + 30_000, content.len())])
    });
    let own = Server::new(|_, out| reply(out, 404, &[], b""));
    assert!(blob(&mirrored(&own, &[&url(&mirror)]), &bytes).unwrap() == bytes);
    assert_eq!((mirror.requests().len(), own.requests().len()), (7, 0));
}

/// What a mirror refuses says nothing of the registry. And each part would wait for a mirror that is silent.
#[test]
fn a_part_is_asked_of_the_one_that_answers() {
    for status in [403, 404, 416] {
        let bytes = noise(1, 200_000);
        let content = bytes.clone();
        let own = Server::new(move |request, out| serve_blob(request, out, &content));
        let mirror = Server::new(move |_, out| reply(out, status, &[], b""));
        let registry = mirrored(&own, &[&url(&mirror)]);
        for start in [150_000, 180_000] {
            let part = descriptor("application/octet-stream", &bytes);
            let FromRange { mut reader, .. } = registry.blob_from(&part, start..200_000)().unwrap();
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert!(read == bytes[start as usize..], "{status}");
        }
        let starts: Vec<_> = own.requests().iter().map(|request| request.start()).collect();
        assert_eq!((starts, mirror.requests().len()), (vec![Some(150_000), Some(180_000)], 1), "{status}");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Blobs {
    Right,
    /// With another last byte.
    Wrong,
    WrongLayer,
    /// The layer is longer than it is, and is said to be compressed.
    EncodedLayer,
    Missing,
}

fn with_blobs(image: &Image, blobs: Blobs) -> Server {
    let all = [&image.index, &image.manifest, &image.config, &image.layer].map(Vec::clone);
    Server::new(move |request, out| {
        let [index, manifest, config, layer] = &all;
        let target = request.target.as_str();
        let is_config = target.ends_with(&digest(config));
        let mut blob = if is_config { config.clone() } else { layer.clone() };
        if blobs == Blobs::Wrong || (blobs == Blobs::WrongLayer && !is_config) {
            *blob.last_mut().unwrap() ^= 1;
        }
        match target {
            _ if target.ends_with("/manifests/1") => reply(out, 200, &[], index),
            _ if target.ends_with(&format!("/manifests/{}", digest(manifest))) => reply(out, 200, &[], manifest),
            _ if target.contains("/blobs/") && blobs == Blobs::EncodedLayer && !is_config => {
                chunked_with(out, &[("Content-Encoding", "gzip")], &[&blob[..], b"more"].concat())
            }
            _ if target.contains("/blobs/") && blobs != Blobs::Missing => reply(out, 200, &[], &blob),
            _ => reply(out, 404, &[], b""),
        }
    })
}

/// One bad cache does not stop a site.
#[test]
fn a_mirror_with_a_damaged_blob_is_given_up() {
    let image = Image::new();
    let [own, good, wrong, half, encoded] =
        [Blobs::Right, Blobs::Right, Blobs::Wrong, Blobs::WrongLayer, Blobs::EncodedLayer]
            .map(|blobs| with_blobs(&image, blobs));
    // The number of blobs that the registry itself has sent then.
    let pull = |mirrors: &[&Server]| {
        let mirrors: Vec<_> = mirrors.iter().map(|server| url(server)).collect();
        let registry = mirrored(&own, &mirrors.iter().map(String::as_str).collect::<Vec<_>>());
        let (dir, mut told) = (TempDir::new().unwrap(), 0);
        let pull = Pull::new(&registry, Arch::Amd64).unwrap();
        let all = pull.bytes();
        pull.into(dir.path(), Some("1"), None, &mut |n| told += n).unwrap();
        assert_eq!(told, all, "each byte is told once");
        let layer = fs::read(dir.path().join("blobs/sha256").join(&digest(&image.layer)[7..])).unwrap();
        assert!(layer == image.layer);
        own.requests().iter().filter(|request| request.target.contains("/blobs/")).count()
    };
    assert_eq!(pull(&[&wrong]), 3, "the configuration twice, and the layer");
    // Another mirror comes before the registry.
    assert_eq!(pull(&[&wrong, &good]), 3);
    assert_eq!(pull(&[&half]), 4, "the layer");
    assert_eq!(pull(&[&encoded]), 5, "the layer");
}

/// Who runs it has to know: the registry's own bytes are right.
#[test]
fn wrong_bytes_of_a_mirror_are_told_with_its_name() {
    let image = Image::new();
    let [own, wrong, lacking] = [Blobs::Right, Blobs::Wrong, Blobs::Missing].map(|blobs| with_blobs(&image, blobs));
    let opened = |registry: Registry| {
        let source = "docker://r.example/a/b:1".parse().unwrap();
        ImageSource::open(Box::new(registry), source, Arch::Amd64).map(drop)
    };
    opened(mirrored(&own, &[])).unwrap();
    opened(mirrored(&own, &[&url(&wrong)])).unwrap();
    let error = opened(mirrored(&lacking, &[&url(&wrong)])).unwrap_err();
    let (said, remedy) = (error.to_string(), error.remedy().unwrap());
    let name = format!("as the mirror {} sends it: SHA-256 of its content", url(&wrong));
    assert!(said.contains(&name), "{said}");
    assert!(remedy.contains(&format!("leave out the mirror {} (--mirror", url(&wrong))), "{remedy}");
    // The registry itself is named already.
    for mirrors in [&[][..], &[url(&wrong).as_str()]] {
        let error = opened(mirrored(&wrong, mirrors)).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("SHA-256 of its content") && !said.contains("mirror"), "{said}");
        assert_eq!(error.remedy(), None);
    }
}
