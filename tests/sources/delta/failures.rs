//! The table of failures: each of them ends in a whole upgrade within the same run, and a note says why more was fetched.
//!
//! Subject: payload/src/registry payload/src/delta payload/src/image/source

use std::collections::BTreeSet;

use slipway_test_support::{
    images::{self, Layout, Pack, built, digest},
    registry::server::{Server, reply},
    signing::{Kind, Signer},
    world::{Node, Outcome, World, installer, noise, write_at},
};

use super::{
    Fault, INDEX, INDEX_SIZE, Image, both, chunk, chunked, chunked_in_one, interrupt, lying, node, number, serve,
    slot_b_is_next, squashfs, tools::registry_of, upgrade, versions,
};

/// Runs the upgrade, which must succeed, and returns its report's `bytes_fetched` and what it said.
#[track_caller]
fn upgraded(node: &Node, image: Image, fault: Fault) -> (u64, String) {
    let outcome = upgrade(node, serve(image, fault).port, &[]).succeeds();
    slot_b_is_next(node);
    // So that the next one writes it again.
    interrupt(node);
    (number(&outcome.json(), "bytes_fetched"), outcome.stderr)
}

/// Where the small files are read by parts, too, all of the layer is read to see them, and once more to write it.
#[test]
fn a_registry_that_misbehaves_is_read_in_full() {
    let world = World::new();
    let node = node(&world, &versions());
    for (mut image, times) in both(&world, &node).into_iter().zip([3, 5]) {
        let bytes = image.layer_bytes();
        for (fault, why) in [
            (Fault::All, "answers with all of the layer"),
            (Fault::PartOnly, "shorter than its descriptor says"),
            (Fault::Status(416), "answers with all of the layer"),
            (Fault::Status(501), "answers with all of the layer"),
            (Fault::Status(400), "answers with all of the layer"),
            (Fault::Status(403), "answers with all of the layer"),
            (Fault::Later(429), "answers 429"),
            (Fault::Later(500), "answers 500"),
            (Fault::Later(503), "answers 503"),
            (Fault::IndexLater, "answers 429"),
            (Fault::OtherSize, "its descriptor says"),
            (Fault::OtherStart, "answers with another range"),
            (Fault::Untold, "answers with another range"),
            (Fault::Multipart, "answers with another range"),
            (Fault::OtherBytes, "is another one than its index says"),
            (Fault::RedirectExpired, "answers with all of the layer"),
        ] {
            let (fetched, said) = upgraded(&node, image.clone(), fault);
            assert!(said.contains(why) && said.contains("fetched"), "{fault:?}: {said}");
            assert!(fetched >= bytes && fetched < bytes * times / 2, "{fault:?}: {fetched} fetched of {bytes}");
        }
    }
}

/// Whether the registry sends parts or not, and however it says so.
#[test]
fn a_dry_run_says_what_is_fetched_from_a_registry_that_misbehaves() {
    let world = World::new();
    let node = node(&world, &versions());
    for image in both(&world, &node) {
        for fault in [Fault::None, Fault::All, Fault::Status(416), Fault::Later(429), Fault::OtherSize] {
            let [would, done] = [&["--dry-run"][..], &[]].map(|extra| {
                let outcome = upgrade(&node, serve(image.clone(), fault).port, extra).succeeds();
                assert_eq!(outcome.stderr.contains("fetched"), fault != Fault::None, "{fault:?}: {}", outcome.stderr);
                number(&outcome.json(), "bytes_fetched")
            });
            interrupt(&node);
            assert!(would.abs_diff(done) < 100_000, "{fault:?}: {would} and {done}");
        }
    }
}

/// It is waited for once, 30 s, and no other part is asked for.
#[test]
#[ignore = "campaign"]
fn a_registry_that_is_silent_is_read_in_full() {
    let world = World::new();
    let node = node(&world, &versions());
    let [_, mut image] = both(&world, &node);
    let layer = image.layer_digest();
    let server = serve(image, Fault::Silence);
    let said = upgrade(&node, server.port, &[]).succeeds().stderr;
    slot_b_is_next(&node);
    assert!(said.contains("only 0 bytes came in 30 s (asked 1 times)") && said.contains("fetched"), "{said}");
    let asked = server.requests();
    let parts = asked.iter().filter(|request| request.target.ends_with(&layer) && request.header("range").is_some());
    assert_eq!(parts.count(), 1);
}

/// What the small files say is believed before anything is written. A part that has another bit there is found, whoever sent it,
/// and what follows is no failure.
#[test]
fn a_bit_in_a_part_of_a_small_file_is_found() {
    let world = World::new();
    let node = node(&world, &versions());
    let files = images::files(node.next.dir());
    let mut image = chunked_in_one(&world, &files, "image");
    let layer = image.layer_digest();
    let layer = image.blobs[&layer].clone();
    let at = |part: &[u8]| layer.windows(part.len()).position(|bytes| bytes == part).unwrap();
    let small =
        files.iter().filter(|(_, bytes)| bytes.len() < 4096).map(|(name, bytes)| (name, at(bytes), bytes.len()));
    let small: Vec<_> = small.collect();
    assert!(small.len() >= 3, "{small:?}");
    // A digit of a sum, a name, a number of bytes, and the headers of the archive.
    let inside = small.iter().flat_map(|(_, begin, len)| [*begin, begin + 63, begin + len / 2, begin + len - 2]);
    let headers = small.iter().flat_map(|(_, begin, _)| [begin - 512, begin - 388, begin - 300]);
    let places: BTreeSet<_> = inside.chain(headers).collect();
    for (n, at) in places.into_iter().enumerate() {
        let wrong = serve(image.clone(), Fault::Bit(at as u64));
        let outcome = if n % 2 == 0 {
            upgrade(&node, wrong.port, &[])
        } else {
            let own = serve(image.clone(), Fault::None);
            let mirror = format!("127.0.0.1:{}=http://127.0.0.1:{}", own.port, wrong.port);
            upgrade(&node, own.port, &["--mirror", &mirror])
        };
        assert_eq!(outcome.code, 0, "byte {at}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("is another one than its index says"), "byte {at}: {}", outcome.stderr);
        slot_b_is_next(&node);
        interrupt(&node);
    }
}

/// A later entry takes the place of an earlier one, with an index as without.
#[test]
fn a_payload_in_place_of_another_one_in_its_layer_is_the_one_that_counts() {
    let world = World::new();
    let node = node(&world, &versions());
    world.payload.checksum().succeeds();
    let both = [images::files(world.payload.dir()), images::files(node.next.dir())].concat();
    let mut image = chunked_in_one(&world, &both, "image");
    let bytes = image.layer_bytes();
    let (fetched, said) = upgraded(&node, image, Fault::None);
    assert!(fetched < bytes / 4 && !said.contains("all of"), "{fetched} of {bytes}: {said}");
}

/// Who runs it has to know.
#[test]
fn wrong_chunks_of_a_mirror_are_told_with_its_name() {
    let world = World::new();
    let node = node(&world, &versions());
    let image = chunked(&world, &node, "image");
    let (own, mirror) = (serve(image.clone(), Fault::None), serve(image, Fault::OtherBytes));
    let url = format!("http://127.0.0.1:{}", mirror.port);
    let outcome = upgrade(&node, own.port, &["--mirror", &format!("127.0.0.1:{}={url}", own.port)]).succeeds();
    let name = format!(", as the mirror {url} sends it: it is another one than its index says");
    assert!(outcome.stderr.contains(&name), "{}", outcome.stderr);
}

/// One that knows no ranges is named, and one that has nothing is passed by.
#[test]
fn a_mirror_is_told_from_its_registry() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let bytes = image.layer_bytes();
    let (own, all) = (serve(image.clone(), Fault::None), serve(image, Fault::All));
    let lacking = Server::new(|_, out| reply(out, 404, &[], b""));
    let through = |mirror: &Server| {
        let url = format!("http://127.0.0.1:{}", mirror.port);
        let outcome = upgrade(&node, own.port, &["--mirror", &format!("127.0.0.1:{}={url}", own.port)]).succeeds();
        interrupt(&node);
        (number(&outcome.json(), "bytes_fetched"), outcome.stderr)
    };
    let (_, said) = through(&all);
    let named = format!("the mirror http://127.0.0.1:{} answers with all of the layer", all.port);
    assert!(said.contains(&named), "{said}");
    let (fetched, said) = through(&lacking);
    assert!(fetched < bytes / 4 && !said.contains("all of"), "{fetched} of {bytes}: {said}");
}

/// The registry has the right one. One that is wrong there, too, is no fault of the mirror.
#[test]
fn a_mirror_with_a_wrong_index_is_passed_by() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let (bytes, index) = (image.layer_bytes(), image.index());
    let through = |own: &Image, mirror: Image| {
        let (own, mirror) = (serve(own.clone(), Fault::None), serve(mirror, Fault::None));
        let url = format!("http://127.0.0.1:{}", mirror.port);
        let outcome = upgrade(&node, own.port, &["--mirror", &format!("127.0.0.1:{}={url}", own.port)]).succeeds();
        slot_b_is_next(&node);
        interrupt(&node);
        (number(&outcome.json(), "bytes_fetched"), outcome.stderr, own.requests().len())
    };
    let mut other = index.clone();
    *other.last_mut().unwrap() ^= 1;
    for wrong in [vec![0; index.len()], other] {
        let mut mirror = image.clone();
        mirror.blobs.insert(digest(&index), wrong);
        let (fetched, said, _) = through(&image, mirror);
        assert!(fetched < bytes / 4 && !said.contains("all of"), "{fetched} of {bytes}: {said}");
    }
    let mut lies = index;
    lies[8] ^= 1;
    let image = image.with_index(lies);
    let (fetched, said, asked) = through(&image, image.clone());
    assert!(said.contains("about another layer") && fetched >= bytes, "{fetched} of {bytes}: {said}");
    assert_eq!(asked, 0, "the mirror has all");
}

#[test]
fn what_can_be_mended_costs_little() {
    for fault in [Fault::Short, Fault::ToTheEnd, Fault::RedirectOnce, Fault::AtMost(64 << 10)] {
        let world = World::new();
        let node = node(&world, &versions());
        for mut image in both(&world, &node) {
            let bytes = image.layer_bytes();
            let (fetched, said) = upgraded(&node, image, fault);
            assert!(fetched < bytes / 4 && !said.contains("all of"), "{fault:?}: {fetched} of {bytes}: {said}");
        }
    }
}

/// What the new payload needs is in the slot that is written alone, and a part of it has rotten.
#[test]
fn a_rotten_chunk_is_fetched() {
    let world = World::new();
    let there = noise(11, 3 << 20);
    let node = node(&world, &[squashfs(&noise(9, 3 << 20)), squashfs(&there)]);
    upgrade(&node, serve(chunked(&world, &node, "there"), Fault::None).port, &[]).succeeds();
    let at = node.file("B", "rootfs.squashfs");
    write_at(&node.disk, at + (2 << 20), &[0; 100]);
    super::set_rootfs(&node, &squashfs(&there[1000..]));
    let (fetched, said) = upgraded(&node, chunked(&world, &node, "image"), Fault::None);
    assert!(fetched < 400_000 && said.is_empty(), "{fetched}: {said}");
}

/// Nothing is believed of an index, although the manifest names it by its digest.
#[test]
fn a_hostile_index_costs_traffic_alone() {
    type Edit = fn(&mut Vec<u8>);
    let edits: [(&str, Edit, &str); 10] = [
        ("10^9 chunks", |i| i[52..56].copy_from_slice(&1_000_000_000_u32.to_le_bytes()), "1000000000 chunks"),
        ("another layer", |i| i[8] ^= 1, "about another layer"),
        ("another size", |i| i[40] ^= 1, "about a layer of"),
        ("no index", |i| i[0] = b'x', "no index of chunks"),
        ("an average of nothing", |i| i[48..52].fill(0), "average of 0"),
        ("huge chunks", |i| i[64 + 3 * 64..][..4].fill(0xff), "bytes"),
        ("a file behind the layer", |i| i[64..72].fill(0xff), "file 1"),
        ("files that overlap", |i| i.copy_within(64..72, 128), "file 2"),
        ("cut", |i| i.truncate(i.len() - 7), "ends within its chunks"),
        ("longer", |i| i.extend([0; 12]), "ends within its chunks"),
    ];
    let world = World::new();
    let node = node(&world, &versions());
    for (mut image, times) in both(&world, &node).into_iter().zip([5, 9]) {
        let bytes = image.layer_bytes();
        for (name, edit, why) in edits {
            let mut index = image.index();
            edit(&mut index);
            let (fetched, said) = upgraded(&node, image.clone().with_index(index), Fault::None);
            assert!(said.contains(why) && said.contains("all of the layer is fetched"), "{name}: {said}");
            assert!(fetched >= bytes && fetched < bytes * times / 4, "{name}: {fetched} of {bytes}");
        }
    }
}

/// It is refused before it comes: memory and traffic are bounded by what the layer is.
#[test]
fn an_index_out_of_proportion_is_not_fetched() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let (bytes, mut index) = (image.layer_bytes(), image.index());
    // Chunks of six bytes.
    let chunks = usize::try_from(bytes / 6).unwrap();
    index.truncate(64 + 64 * usize::from(index[56]));
    index[52..56].copy_from_slice(&(chunks as u32).to_le_bytes());
    for n in 0..chunks {
        let len = if n + 1 == chunks { bytes as u32 - 6 * n as u32 } else { 6 };
        index.extend([&len.to_le_bytes()[..], &(n as u64).to_le_bytes()].concat());
    }
    let image = image.with_index(index.clone());
    let server = serve(image, Fault::None);
    let outcome = upgrade(&node, server.port, &[]).succeeds();
    assert!(outcome.stderr.contains("is no size up to"), "{}", outcome.stderr);
    let fetched = number(&outcome.json(), "bytes_fetched");
    assert!(fetched < bytes * 5 / 4, "{fetched} of {bytes}");
    assert!(!server.requests().iter().any(|request| request.target.ends_with(&digest(&index))));
}

/// The index is well made and lies: what it has reused is not the payload's. That shows in the digests of the files.
#[test]
fn an_index_that_lies_is_found_by_the_digests() {
    let world = World::new();
    let node = node(&world, &versions());
    // The same chunks are reused where checksums have a layer of their own. In one layer they lie where a part is fetched, too:
    // either may be seen first.
    let told = ["is not the payload's: all of it is fetched", "it is another one than its index says"];
    for mut image in both(&world, &node) {
        let bytes = image.layer_bytes();
        let index = image.index();
        let swapped = lying(&index);
        let (fetched, said) = upgraded(&node, image.clone().with_index(swapped), Fault::None);
        assert!(told.iter().any(|told| said.contains(told)), "{said}");
        assert!(fetched >= bytes && fetched < bytes * 5 / 4, "{fetched} of {bytes}");
        // A file is said to lie elsewhere.
        let mut moved = index.clone();
        moved[64] ^= 2;
        let (_, said) = upgraded(&node, image.with_index(moved), Fault::None);
        assert!(said.contains("does not list"), "{said}");
    }
}

/// Signed with the image, and of an earlier build of it.
#[test]
fn a_stale_index_costs_traffic_alone() {
    let world = World::new();
    let [old, new] = versions();
    let node = node(&world, &[old.clone(), old]);
    let stale = chunked(&world, &node, "old").index();
    super::set_rootfs(&node, &new);
    let layout = Layout::new(&world.path("new"));
    built(node.next.dir(), Pack::Gzip).write(&layout, "1");
    chunk(&layout);
    let mut image = Image::of(&layout).with_index(stale);
    let bytes = image.layer_bytes();
    image.put(&layout);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let tag = format!("{}:1", layout.source());
    Outcome::of(&mut installer(["sign", &tag, "--key", &signer.private(), "--progress=none"])).succeeds();
    let debian = registry_of(&world, &layout);
    let outcome = upgrade(&node, debian.port, &[&signer.trusted()]).succeeds();
    slot_b_is_next(&node);
    assert!(outcome.stderr.contains("about another layer"), "{}", outcome.stderr);
    assert!(number(&outcome.json(), "bytes_fetched") >= bytes, "{}", outcome.stdout);
}

#[test]
fn an_index_that_is_not_there_costs_traffic_alone() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let index = digest(&image.index());
    let mut gone = image.clone();
    gone.blobs.remove(&index);
    let mut other = image.clone();
    other.blobs.insert(index.clone(), vec![0; image.index().len()]);
    let with = |name: &str, text: &str| {
        let mut image = image.clone();
        image.layer()["annotations"][name] = text.into();
        image
    };
    for (image, why) in [
        (gone, "not found"),
        (other, "SHA-256 of its content is"),
        (with(INDEX, "sha512:00"), "is not sha256:"),
        (with(INDEX_SIZE, "99999999999"), "is no size up to"),
        (with(INDEX_SIZE, "-1"), "is no size up to"),
        (with(INDEX_SIZE, "100"), "longer than"),
    ] {
        let (_, said) = upgraded(&node, image, Fault::None);
        assert!(said.contains(why) && said.contains("all of the layer is fetched"), "{why}: {said}");
    }
}

/// What fails without it fails with it, too, and the slot stays empty.
#[test]
fn a_layer_that_is_wrong_is_refused() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let layer = image.layer_digest();
    let last = image.blobs[&layer].len() - 3000;
    image.blobs.get_mut(&layer).unwrap()[last] ^= 1;
    let outcome = upgrade(&node, serve(image, Fault::None).port, &[]);
    assert_ne!(outcome.code, 0, "{}", outcome.stderr);
    let status = slipway_test_support::world::json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["slots"]["B"]["state"]), (&"A".into(), &"empty".into()));
}
