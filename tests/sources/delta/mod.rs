//! Delta upgrades: an upgrade from a registry that moves only what changed, and that is never worse than without.

mod failures;
mod registry;
mod tools;

use std::{cmp::Reverse, collections::BTreeMap, fs};

use serde_json::{Value, json};
use slipway_test_support::{
    files,
    images::{self, Layout, Pack, built},
    world::{Node, Outcome, Payload, World, installer, json_of, noise, on_disk, partition, write_at},
};

use registry::{Fault, serve};

/// A squashfs that is nothing but these bytes.
fn squashfs(bytes: &[u8]) -> Vec<u8> {
    files::squashfs(bytes.to_vec())
}

/// The old squashfs, and a new one: 30 KiB in it are others, and some bytes before these are gone.
fn versions() -> [Vec<u8>; 2] {
    let old = noise(7, 3 << 20);
    let mut new = old.clone();
    new.splice((1 << 20)..(1 << 20) + 30_000, noise(8, 30_000));
    new.drain(500_000..500_007);
    [squashfs(&old), squashfs(&new)]
}

/// A disk with the old squashfs, and the payload to upgrade to.
fn node<'w>(world: &'w World, [old, new]: &[Vec<u8>; 2]) -> Node<'w> {
    world.payload.write(Payload::ROOTFS, old);
    let node = Node::installed(world);
    set_rootfs(&node, new);
    node
}

fn set_rootfs(node: &Node, rootfs: &[u8]) {
    node.next.write(Payload::ROOTFS, rootfs);
    node.next.checksum().succeeds();
}

/// The image of the next payload, prepared, in a layout as `1`.
fn chunked(world: &World, node: &Node, name: &str) -> Image {
    let layout = Layout::new(&world.path(name));
    built(node.next.dir(), Pack::Gzip).write(&layout, "1");
    chunk(&layout);
    Image::of(&layout)
}

/// The same with all in one layer, in this order, as `COPY payload/` makes it: the small files are read by parts, too.
fn chunked_in_one(world: &World, files: &[(String, Vec<u8>)], name: &str) -> Image {
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let layout = Layout::new(&world.path(name));
    images::Image::new(vec![images::layer(files, &names, Pack::Gzip)]).write(&layout, "1");
    chunk(&layout);
    Image::of(&layout)
}

/// Both: with checksums in a layer of their own, and in one.
fn both(world: &World, node: &Node) -> [Image; 2] {
    [chunked(world, node, "image"), chunked_in_one(world, &images::files(node.next.dir()), "one")]
}

fn chunk(layout: &Layout) -> Value {
    let image = format!("{}:1", layout.source());
    Outcome::of(&mut installer(["chunk", &image, "--progress=none", "--output=json"])).succeeds().json()
}

/// An image as a registry has it.
#[derive(Clone)]
struct Image {
    manifest: Value,
    /// By their digests.
    blobs: BTreeMap<String, Vec<u8>>,
}

/// Annotations of a prepared layer.
const INDEX: &str = "dev.slipway.chunks.digest";
const INDEX_SIZE: &str = "dev.slipway.chunks.size";

impl Image {
    fn of(layout: &Layout) -> Self {
        let index: Value = serde_json::from_slice(&fs::read(layout.0.join("index.json")).unwrap()).unwrap();
        let is_it = |m: &&Value| m["annotations"]["org.opencontainers.image.ref.name"] == "1";
        let root = index["manifests"].as_array().unwrap().iter().find(is_it).unwrap()["digest"].as_str().unwrap();
        let blobs = fs::read_dir(layout.0.join("blobs/sha256")).unwrap().map(|entry| {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            (images::digest(&bytes), bytes)
        });
        let blobs: BTreeMap<_, _> = blobs.collect();
        Image { manifest: serde_json::from_slice(&blobs[root]).unwrap(), blobs }
    }

    /// The layer that has an index.
    fn layer(&mut self) -> &mut Value {
        let layers = self.manifest["layers"].as_array_mut().unwrap();
        layers.iter_mut().find(|layer| layer["annotations"][INDEX].is_string()).unwrap()
    }

    fn layer_bytes(&mut self) -> u64 {
        self.layer()["size"].as_u64().unwrap()
    }

    fn layer_digest(&mut self) -> String {
        self.layer()["digest"].as_str().unwrap().to_owned()
    }

    fn index(&mut self) -> Vec<u8> {
        let digest = self.layer()["annotations"][INDEX].as_str().unwrap().to_owned();
        self.blobs[&digest].clone()
    }

    /// The image with another index, which its manifest names.
    fn with_index(mut self, index: Vec<u8>) -> Self {
        let digest = images::digest(&index);
        self.layer()["annotations"][INDEX] = json!(digest);
        self.layer()["annotations"][INDEX_SIZE] = json!(index.len().to_string());
        self.blobs.insert(digest, index);
        self
    }

    /// As the layout has it, too.
    fn put(mut self, layout: &Layout) {
        let manifest = self.manifest.to_string().into_bytes();
        let (digest, size) = (images::digest(&manifest), manifest.len());
        self.blobs.insert(digest.clone(), manifest);
        for (digest, bytes) in &self.blobs {
            fs::write(layout.0.join("blobs").join(digest.replace(':', "/")), bytes).unwrap();
        }
        let path = layout.0.join("index.json");
        let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let listed = index["manifests"].as_array_mut().unwrap();
        let image = listed.iter_mut().find(|m| m["annotations"]["org.opencontainers.image.ref.name"] == "1").unwrap();
        (image["digest"], image["size"]) = (json!(digest), json!(size));
        fs::write(path, index.to_string()).unwrap();
    }
}

/// The index, of whose squashfs two chunks have changed places.
fn lying(index: &[u8]) -> Vec<u8> {
    let chunks = 64 + 64 * usize::from(index[56]);
    let at = |n: usize| chunks + 12 * n;
    let mut swapped = index.to_vec();
    swapped.copy_within(at(30)..at(31), at(40));
    swapped[at(30)..at(31)].copy_from_slice(&index[at(40)..at(41)]);
    swapped
}

/// `upgrade` to `os:1` of this registry.
fn upgrade(node: &Node, port: u16, extra: &[&str]) -> Outcome {
    let source = format!("docker://127.0.0.1:{port}/os:1");
    let args = ["upgrade", "--plain-http", "--progress=none", "--output=json", "--source", source.as_str()];
    node.run('A', false, &[&args[..], extra].concat())
}

#[track_caller]
fn slot_b_is_next(node: &Node) {
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "B");
    on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
}

/// Slot B has no file system any more, as after a write that was interrupted; its bytes are there.
fn interrupt(node: &Node) {
    write_at(&node.disk, partition(&node.disk, "BOOT-B").offset, &[0; 4096]);
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn only_what_changed_is_fetched() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let (bytes, layer) = (image.layer_bytes(), image.layer_digest());
    let index = images::digest(&image.index());
    let server = serve(image, Fault::None);
    let indexes = || server.requests().iter().filter(|r| r.target.ends_with(&index)).count();
    // A dry run knows it, and fetches the index alone, and a byte, which tells whether the registry sends parts.
    let would = upgrade(&node, server.port, &["--dry-run"]).succeeds().json();
    let of_layer = server.requests().into_iter().filter(|r| r.target.ends_with(&layer));
    let asked: Vec<_> = of_layer.map(|r| r.header("range").unwrap().to_owned()).collect();
    let [first, last] = [0, 1].map(|n| asked[0]["bytes=".len()..].split('-').nth(n).unwrap().to_owned());
    assert!(asked.len() == 1 && first == last, "{asked:?}");
    assert_eq!(indexes(), 1, "by a dry run");
    let outcome = upgrade(&node, server.port, &[]).succeeds();
    assert_eq!(indexes(), 2, "by an upgrade");
    assert_eq!((&would["bytes_reused"], &would["bytes_written"]), (&outcome.json()["bytes_reused"], &json!(0)));
    let apart = number(&would, "bytes_fetched").abs_diff(number(&outcome.json(), "bytes_fetched"));
    assert!(apart < 10_000, "{would}");
    assert!(!outcome.stderr.contains("fetched"), "{}", outcome.stderr);
    let report = outcome.json();
    let [fetched, reused, written] = ["bytes_fetched", "bytes_reused", "bytes_written"].map(|n| number(&report, n));
    assert!(fetched < bytes / 10 && reused > bytes * 9 / 10, "{fetched} fetched, {reused} reused of {bytes}");
    assert!(written > 0 && written < 2 * bytes, "{written} written");
    slot_b_is_next(&node);
    // Once more there is nothing to do, which all of the image says; and that is on the disk.
    let again = upgrade(&node, server.port, &[]).succeeds().json();
    // A chunk that differs in the other slot may have been looked for there: samples pass over it. It is fetched then.
    assert!(number(&again, "bytes_fetched") < 200_000 && number(&again, "bytes_written") == 0, "{again}");
    // One range a request, and few of them: each upgrade asks for its head, its end and two changes at most.
    let asked = server.requests();
    let ranges: Vec<_> =
        asked.iter().filter(|r| r.target.ends_with(&layer)).map(|r| r.header("range").unwrap()).collect();
    assert!((1..=8).contains(&ranges.len()), "{ranges:?}");
    assert!(ranges.iter().all(|range| range.starts_with("bytes=") && !range.contains(',')), "{ranges:?}");
}

/// As `COPY payload/` has them in one layer, or as they come, the largest first.
#[test]
fn small_files_behind_large_ones_cost_little() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut files = images::files(node.next.dir());
    for (name, fault) in [("by-name", Fault::None), ("by-size", Fault::None), ("whole", Fault::All)] {
        let mut image = chunked_in_one(&world, &files, name);
        let bytes = image.layer_bytes();
        let outcome = upgrade(&node, serve(image, fault).port, &[]).succeeds();
        let fetched = number(&outcome.json(), "bytes_fetched");
        // A registry that sends no parts is asked for them once; then the layer is inspected, and written.
        let most = if fault == Fault::None { bytes / 10 } else { bytes * 5 / 2 };
        assert!(fetched < most, "{name}: {fetched} of {bytes}");
        slot_b_is_next(&node);
        interrupt(&node);
        files.sort_by_key(|(_, bytes)| Reverse(bytes.len()));
    }
}

/// As `FROM` an image with a payload, and `COPY` of another one.
#[test]
fn a_dry_run_counts_no_layer_that_is_covered() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = built(node.next.dir(), Pack::Gzip);
    let covered = images::dirs().file(&format!("{}/{}", images::DIR, Payload::ROOTFS), &squashfs(&noise(3, 2 << 20)));
    image.layers.insert(1, images::Layer::new(covered.end(), Pack::Gzip));
    let layout = Layout::new(&world.path("image"));
    image.write(&layout, "1");
    assert_eq!(chunk(&layout)["layers"].as_array().unwrap().len(), 2);
    let server = tools::registry_of(&world, &layout);
    let would = upgrade(&node, server.port, &["--dry-run"]).succeeds().json();
    let done = upgrade(&node, server.port, &[]).succeeds().json();
    let apart = number(&would, "bytes_fetched").abs_diff(number(&done, "bytes_fetched"));
    assert!(apart < 10_000, "{} and {}", would["bytes_fetched"], done["bytes_fetched"]);
}

/// What was staged needs no more to be activated; and from outside both slots are reused, too.
#[test]
fn staging_and_upgrading_from_outside_reuse_as_well() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let bytes = image.layer_bytes();
    let server = serve(image, Fault::None);
    let source = format!("docker://127.0.0.1:{}/os:1", server.port);
    let args = ["--plain-http", "--progress=none", "--output=json", "--source", &source];
    let staged = node.run('A', false, &[&["stage"], &args[..]].concat()).succeeds().json();
    assert!(number(&staged, "bytes_reused") > bytes * 9 / 10, "{staged}");
    interrupt(&node);
    let offline = [&["upgrade", "--offline"], &args[..]].concat();
    let offline = on_disk(&node.disk, &offline).succeeds().json();
    assert!(number(&offline, "bytes_fetched") < bytes / 10, "{offline}");
}

/// A node that runs the installer of the new image fetches the image first, into a layout.
#[test]
fn a_pull_reuses_what_the_slots_hold() {
    let world = World::new();
    let node = node(&world, &versions());
    let mut image = chunked(&world, &node, "image");
    let (bytes, layer) = (image.layer_bytes(), image.layer_digest());
    let reuse = format!("--reuse={}", node.disk.display());
    let pull = |image: &Image, to: &str, extra: &[&str]| {
        let server = serve(image.clone(), Fault::None);
        let source = format!("docker://127.0.0.1:{}/os:1", server.port);
        let to = format!("oci:{}", world.path(to).display());
        let args = ["pull", &source, &to, "--plain-http", "--progress=none", "--output=json"];
        (Outcome::of(&mut installer([&args[..], extra].concat())).succeeds(), server)
    };
    let before = fs::read(&node.disk).unwrap();
    let (outcome, _) = pull(&image, "reused", &[&reuse]);
    let report = outcome.json();
    assert!(
        number(&report, "fetched_bytes") < bytes / 10 && number(&report, "reused_bytes") > bytes * 9 / 10,
        "{report}"
    );
    assert!(before == fs::read(&node.disk).unwrap(), "the disk was written");
    // It is the same as a whole pull, which the next one finds.
    let (outcome, server) = pull(&image, "reused", &[]);
    assert!(outcome.json()["kept_bytes"].as_u64() > Some(bytes));
    assert!(!server.requests().iter().any(|r| r.target.ends_with(&layer)));
    // Whatever stands against it, the image comes.
    let nowhere = format!("--reuse={}", world.path("nowhere").display());
    let lying = lying(&image.index());
    let cases = [
        (image.clone(), nowhere.as_str(), "nothing is reused"),
        (image.clone(), "--reuse", "give --reuse=PATH"),
        (image.clone().with_index(lying), reuse.as_str(), "all of it is fetched"),
    ];
    for (image, reuse, why) in cases {
        let (outcome, _) = pull(&image, why, &[reuse]);
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
        assert!(number(&outcome.json(), "fetched_bytes") >= bytes, "{}", outcome.json());
    }
}

/// The slot that is written holds what the new payload needs, and the other one does not.
#[test]
fn the_slot_that_is_written_is_reused_ahead_of_the_write() {
    let world = World::new();
    let old = noise(11, 3 << 20);
    let node = node(&world, &[squashfs(&noise(9, 3 << 20)), squashfs(&old)]);
    upgrade(&node, serve(chunked(&world, &node, "first"), Fault::None).port, &[]).succeeds();
    let mut reused = Vec::new();
    for (name, new) in [
        // What is behind the gap comes earlier than it was: it lies ahead of the write.
        ("shorter", [&old[..100_000], &old[100_100..]].concat()),
        // And then later: by the time that it is needed, it was overwritten.
        ("longer", [&old[..100_000], &noise(12, 40_000), &old[100_100..]].concat()),
    ] {
        set_rootfs(&node, &squashfs(&new));
        let mut image = chunked(&world, &node, name);
        let bytes = image.layer_bytes();
        let outcome = upgrade(&node, serve(image, Fault::None).port, &[]).succeeds();
        slot_b_is_next(&node);
        reused.push(number(&outcome.json(), "bytes_reused") * 100 / bytes);
    }
    assert!(reused[0] > 90 && reused[1] < 20, "{reused:?} percent");
}

/// Whatever an interrupted run has written is used by the next.
#[test]
fn an_interrupted_upgrade_goes_on() {
    let world = World::new();
    let versions = [squashfs(&noise(9, 3 << 20)), squashfs(&noise(11, 3 << 20))];
    let node = node(&world, &versions);
    let mut image = chunked(&world, &node, "image");
    let bytes = image.layer_bytes();
    // Of the second half nothing comes.
    let cut = serve(image.clone(), Fault::Gone(bytes / 2));
    let outcome = upgrade(&node, cut.port, &[]);
    assert_ne!(outcome.code, 0, "{}", outcome.stderr);
    let outcome = upgrade(&node, serve(image, Fault::None).port, &[]).succeeds();
    slot_b_is_next(&node);
    let reused = number(&outcome.json(), "bytes_reused");
    assert!(reused > bytes / 4, "{reused} of {bytes}");
}
