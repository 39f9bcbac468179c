//! Layers as the builders of images write them (builders.py has their shapes), names of images in layouts, and archives that
//! are no layouts.

use std::{fs, io::Write as _, os::unix::fs::FileExt as _, path::Path};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INPUT},
    images::{Image, Layer, Layout, MANIFEST, Pack, built, descriptor, files, layer},
    project,
    world::{Outcome, World, finished, finished_bytes, installer, installer_in, program},
};

fn inspect(source: &str) -> Outcome {
    Outcome::of(&mut installer(["inspect", source, "--output=json", "--progress=none"]))
}

fn listed() -> World {
    let world = World::new();
    Outcome::of(&mut installer(["checksum", world.payload.dir().to_str().unwrap(), "--progress=none"])).succeeds();
    world
}

fn builders(args: &[&Path]) -> String {
    finished(program("python3").arg(project().join("tests/sources/builders.py")).args(args))
}

/// The same bytes, packed in pieces that can each be unpacked alone, as eStargz has it.
fn in_pieces(tar: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    for piece in tar.chunks(100_000) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(piece).unwrap();
        packed.extend(encoder.finish().unwrap());
    }
    packed
}

#[test]
fn what_every_builder_writes_is_read() {
    let world = listed();
    let names = builders(&[Path::new("names"), world.payload.dir(), Path::new("-")]);
    let payload = inspect(&world.payload.source()).succeeds().json()["payload"].clone();
    for name in names.split_whitespace() {
        let out = world.path("layer.tar");
        builders(&[Path::new(name), world.payload.dir(), &out]);
        let tar = fs::read(&out).unwrap();
        for packed in [tar.clone(), in_pieces(&tar)] {
            let kind = if packed == tar { Pack::Plain } else { Pack::Gzip };
            let layout = Layout::new(&world.path(&format!("{name}-{kind:?}")));
            Image::new(vec![Layer::of(packed, &tar, kind.media_type())]).write(&layout, "1");
            let seen = inspect(&layout.source());
            assert_eq!(seen.code, 0, "{name}: {}", seen.stderr);
            assert_eq!(seen.json()["payload"], payload, "{name}");
        }
    }
}

/// As docker and podman read them: by what they are. The digests say what was meant.
#[test]
fn a_layer_packed_in_another_way_than_announced_is_read() {
    let world = listed();
    let payload = inspect(&world.payload.source()).succeeds().json()["payload"].clone();
    let files = files(world.payload.dir());
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let kinds = Pack::ALL.into_iter().flat_map(|is| Pack::ALL.map(|said| (is, said)));
    for (n, (is, said)) in kinds.enumerate() {
        let mut made = layer(&files, &names, is);
        made.descriptor["mediaType"] = said.media_type().into();
        let layout = Layout::new(&world.path(&format!("layout-{n}")));
        Image::new(vec![made]).write(&layout, "1");
        let seen = inspect(&layout.source());
        assert_eq!(seen.code, 0, "{is:?}, announced as {said:?}: {}", seen.stderr);
        assert_eq!(seen.json()["payload"], payload, "{is:?}, announced as {said:?}");
        world.install(&world.image(), &["--source", &layout.source()]).succeeds();
    }
}

/// GNU tar's own format for them has blocks of a map behind the header, here more than one: they are no content.
#[test]
fn sparse_files_outside_of_the_payload_are_passed_over() {
    let world = listed();
    let root = world.path("root");
    let dir = root.join("usr/install/amd64");
    fs::create_dir_all(&dir).unwrap();
    for file in fs::read_dir(world.payload.dir()).unwrap().flatten() {
        fs::copy(file.path(), dir.join(file.file_name())).unwrap();
    }
    let sparse = fs::File::create(root.join("usr/first")).unwrap();
    for n in 0..100 {
        sparse.write_all_at(&[7; 4096], n << 20).unwrap();
    }
    let payload = inspect(&world.payload.source()).succeeds().json()["payload"].clone();
    for format in ["gnu", "pax"] {
        let args = ["--sparse", &format!("--format={format}"), "-c", "usr/first", "usr/install"];
        let tar = finished_bytes(program("tar").current_dir(&root).args(args));
        let layout = Layout::new(&world.path(format));
        Image::new(vec![Layer::new(tar, Pack::Plain)]).write(&layout, "1");
        let seen = inspect(&layout.source());
        assert_eq!(seen.code, 0, "{format}: {}", seen.stderr);
        assert_eq!(seen.json()["payload"], payload, "{format}");
    }
}

/// `tar --append` leaves what was there, and the later file counts; files of the same content may be stored once.
#[test]
fn archives_of_layouts_with_links_and_later_files_are_read() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let archive = world.path("archive.tar");
    let tar = |args: &[&str]| finished(program("tar").current_dir(&layout.0).arg("--file").arg(&archive).args(args));
    let image = |name: &str| format!("oci-archive:{}:{name}", archive.display());
    let blobs = layout.0.join("blobs/sha256");
    for (n, blob) in fs::read_dir(&blobs).unwrap().flatten().filter(|blob| blob.file_name().len() == 64).enumerate() {
        fs::hard_link(blob.path(), blobs.join(format!(".again-{n}"))).unwrap();
    }
    tar(&["--create", "--sort=name", "oci-layout", "index.json", "blobs"]);
    let listing = finished(program("tar").arg("-tvf").arg(&archive));
    assert!(listing.contains(" link to blobs/sha256/.again-0"), "{listing}");
    inspect(&image("1")).succeeds();
    inspect(&image("2")).exits(INPUT).says(&["not found"]);
    built(world.payload.dir(), Pack::Gzip).write(&layout, "2");
    tar(&["--append", "index.json"]);
    inspect(&image("2")).succeeds();
    finished(program("skopeo").args(["inspect", "--raw", &image("2")]));
    // A link to what is not kept.
    fs::create_dir(layout.0.join("a")).unwrap();
    let blob = fs::read_dir(&blobs).unwrap().flatten().find(|blob| blob.file_name().len() == 64).unwrap();
    fs::hard_link(blob.path(), layout.0.join("a/blob")).unwrap();
    let name = blob.file_name().into_string().unwrap();
    fs::remove_file(&archive).unwrap();
    tar(&["--create", "a/blob", "oci-layout", "index.json", &format!("blobs/sha256/{name}")]);
    inspect(&image("1")).exits(INPUT).says(&[&name, "hard link to \"a/blob\"", "skopeo copy"]);
}

#[test]
fn images_are_named_as_skopeo_names_them() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let descriptor = built(world.payload.dir(), Pack::Gzip).write(&layout, "localhost/os:1.2");
    Image::new(vec![]).write(&layout, "r.example:5000/os");
    let source = layout.source();
    let digest = descriptor["digest"].as_str().unwrap();
    for name in [":localhost/os:1.2", ":@0", &format!("@{digest}"), &format!(":localhost/os:1.2@{digest}")] {
        inspect(&format!("{source}{name}")).succeeds();
    }
    finished(program("skopeo").args(["inspect", "--raw", &format!("{source}:localhost/os:1.2")]));
    inspect(&source).exits(INPUT).says(&["more than one image", "localhost/os:1.2, r.example:5000/os", "@DIGEST"]);
    inspect(&format!("{source}:os:1.2")).exits(INPUT).says(&["not found", "localhost/os:1.2"]);
    inspect(&format!("{source}:@2")).exits(INPUT).says(&["not found", "localhost/os:1.2"]);
    // Two pulls without a name: nothing sends to the older one alone.
    let unnamed = Layout::new(&world.path("unnamed"));
    let digests = [Pack::Gzip, Pack::Zstd].map(|pack| {
        let descriptor = built(world.payload.dir(), pack).write_blobs(&unnamed);
        unnamed.list(&descriptor);
        descriptor["digest"].as_str().unwrap().to_owned()
    });
    inspect(&unnamed.source()).exits(INPUT).says(&[&digests.join(", "), "@DIGEST"]);
    inspect(&format!("{}@{}", unnamed.source(), digests[1])).succeeds();
    // A directory with a colon in its name, which skopeo cannot name.
    let colon = Layout::new(&world.path("a:b"));
    built(world.payload.dir(), Pack::Gzip).write(&colon, "1");
    inspect(&colon.source()).succeeds();
    inspect(&format!("{}:1", colon.source())).succeeds();
}

/// An image as `docker buildx` and `docker save` list it; its digest.
fn save(layout: &Layout, image: &Image, name: &str) -> String {
    let mut descriptor = image.write_blobs(layout);
    descriptor["annotations"] = json!({
        "io.containerd.image.name": format!("r.example/{name}:1"), "org.opencontainers.image.ref.name": "1",
    });
    layout.list(&descriptor);
    descriptor["digest"].as_str().unwrap().to_owned()
}

fn manifests(layout: &Layout) -> Vec<Value> {
    let index: Value = serde_json::from_slice(&fs::read(layout.0.join("index.json")).unwrap()).unwrap();
    index["manifests"].as_array().unwrap().clone()
}

fn pull(from: &Layout, to: &str) -> Outcome {
    Outcome::of(&mut installer(["pull", &from.source(), to, "--progress=none", "--output=json"]))
}

/// By whichever name it is replaced, the old one is gone, and the new one has all names.
#[test]
fn a_new_image_takes_all_names_of_the_old_one() {
    let world = listed();
    let new = Layout::new(&world.path("new"));
    built(world.payload.dir(), Pack::Zstd).write(&new, "new");
    for (n, name) in [":r.example/os:1", ":1", "", ":@0", "@"].into_iter().enumerate() {
        let layout = Layout::new(&world.path(&format!("layout-{n}")));
        let old = save(&layout, &built(world.payload.dir(), Pack::Gzip), "os");
        let names = manifests(&layout)[0]["annotations"].clone();
        let named = |digest: &Value| {
            let mut now = manifests(&layout);
            assert!(now.iter().all(|listed| listed["digest"] != old), "{name}: {now:?}");
            now.retain(|listed| listed["annotations"]["io.containerd.image.name"].is_string());
            assert_eq!(now.len(), 1, "{name}: {now:?}");
            assert_eq!(now[0]["digest"], format!("sha256:{}", digest.as_str().unwrap()), "{name}");
            assert_eq!(now[0]["annotations"], names, "{name}");
            inspect(&format!("{}:r.example/os:1", layout.source())).succeeds();
        };
        let source = format!("{}{}", layout.source(), if name == "@" { format!("@{old}") } else { name.to_owned() });
        let chunked = Outcome::of(&mut installer(["chunk", &source, "--progress=none", "--output=json"]));
        let chunked = chunked.succeeds().json();
        assert_ne!(chunked["digest"], chunked["was"]);
        named(&chunked["digest"]);
        if name.contains('1') {
            named(&pull(&new, &source).succeeds().json()["manifest"]);
        }
    }
}

#[test]
fn a_name_of_two_images_is_replaced_in_neither() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let [os, app] = [("os", Pack::Gzip), ("app", Pack::Plain)]
        .map(|(name, pack)| save(&layout, &built(world.payload.dir(), pack), name));
    let new = Layout::new(&world.path("new"));
    built(world.payload.dir(), Pack::Zstd).write(&new, "new");
    let source = layout.source();
    let there = || (manifests(&layout), fs::read_dir(layout.0.join("blobs/sha256")).unwrap().count());
    let before = there();
    let refused = ["more than one image of this name", &format!("{source}:r.example/os:1"), "r.example/app:1"];
    pull(&new, &format!("{source}:1")).exits(INPUT).says(&refused);
    assert_eq!(there(), before);
    // As a source it is named by its digest.
    let [os, app] = [(os, "os"), (app, "app")].map(|(digest, name)| format!("{source}@{digest} (r.example/{name}:1)"));
    inspect(&format!("{source}:1")).exits(INPUT).says(&["more than one", &format!("write {os} or {app}")]);
    let pulled = pull(&new, &format!("{source}:r.example/os:1")).succeeds().json();
    let now = manifests(&layout);
    assert_eq!((now.len(), &now[0]), (2, &before.0[1]));
    assert_eq!(now[1]["digest"], format!("sha256:{}", pulled["manifest"].as_str().unwrap()));
    assert_eq!(now[1]["annotations"], before.0[0]["annotations"]);
}

/// As `umoci init` makes it.
#[test]
fn a_layout_that_lists_null_is_empty() {
    let world = listed();
    let [layout, from] = ["layout", "from"].map(|name| Layout::new(&world.path(name)));
    fs::write(layout.0.join("index.json"), r#"{"schemaVersion": 2, "manifests": null}"#).unwrap();
    built(world.payload.dir(), Pack::Gzip).write(&from, "1");
    inspect(&layout.source()).exits(INPUT).says(&["not found", "the images in it: none"]);
    pull(&from, &layout.source()).succeeds();
    inspect(&layout.source()).succeeds();
}

/// Docker's store has the images that were pulled, and the index of all.
#[test]
fn an_index_of_images_that_are_not_there() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let here = built(world.payload.dir(), Pack::Gzip).write_blobs(&layout);
    let elsewhere = descriptor(MANIFEST, b"an image for arm64");
    layout.tag("1", &layout.nested(&[(&here, "amd64"), (&elsewhere, "arm64")]));
    let (source, copy) = (format!("{}:1", layout.source()), format!("oci:{}:1", world.path("copy").display()));
    inspect(&source).succeeds();
    let says = ["lists an image for linux/arm64", elsewhere["digest"].as_str().unwrap(), "installer pull"];
    for (verb, more) in
        [("chunk", None), ("push", Some("docker://127.0.0.1:1/os:1")), ("inspect", Some("--arch=arm64"))]
    {
        let asked = Outcome::of(installer([verb, &source, "--progress=none"]).args(more));
        assert!(asked.code == INPUT, "{verb}: {}", asked.stderr);
        asked.says(&says);
    }
    // As it says. A signature that is missing is no image.
    let signature = descriptor(MANIFEST, b"a signature");
    layout.tag(&format!("{}.sig", here["digest"].as_str().unwrap().replace(':', "-")), &signature);
    let pulled = Outcome::of(&mut installer(["pull", &source, &copy, "--progress=plain"])).succeeds();
    let missing = signature["digest"].as_str().unwrap().trim_start_matches("sha256:");
    let said = format!("{}{}", pulled.stdout, pulled.stderr);
    assert!(said.contains(missing) && said.contains("left behind"), "{said}");
    assert!(!said.contains("lists an image"), "{said}");
    Outcome::of(&mut installer(["chunk", &copy, "--progress=none"])).succeeds();
}

/// It is said what it is, and what makes a layout of it.
#[test]
fn what_is_no_layout_is_named() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let copy = |to: &str| {
        let from = format!("{}:1", layout.source());
        finished(program("skopeo").args(["copy", "--insecure-policy", "--quiet", &from, to]));
    };
    let archive = world.path("docker.tar").display().to_string();
    copy(&format!("docker-archive:{archive}:localhost/os:1.2"));
    let docker = ["docker save", "skopeo copy docker-archive:FILE oci-archive:NEW"];
    inspect(&format!("oci-archive:{archive}")).exits(INPUT).says(&docker);
    inspect(&format!("oci-archive:{archive}:localhost/os:1.2")).exits(INPUT).says(&docker);
    let converted = format!("oci-archive:{}:os:1.2", world.path("converted.tar").display());
    finished(program("skopeo").args(["copy", "--insecure-policy", &format!("docker-archive:{archive}"), &converted]));
    inspect(&converted).succeeds();
    let unpacked = world.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    finished(program("tar").arg("-xf").arg(&archive).arg("-C").arg(&unpacked));
    inspect(&format!("oci:{}", unpacked.display())).exits(INPUT).says(&docker);
    // The directory itself, and not what is in it.
    let below = world.path("below.tar");
    finished(program("tar").current_dir(world.path("")).arg("-cf").arg(&below).arg("layout"));
    inspect(&format!("oci-archive:{}", below.display())).exits(INPUT).says(&["in a directory of it", "write oci:DIR"]);
    let dir = world.path("dir").display().to_string();
    copy(&format!("dir:{dir}"));
    inspect(&format!("oci:{dir}")).exits(INPUT).says(&["skopeo copy dir:DIR oci:NEW"]);
    inspect(&format!("oci:{archive}")).exits(INPUT).says(&["it is a file", "oci-archive:FILE"]);
    inspect(&format!("oci-archive:{dir}")).exits(INPUT).says(&["it is a directory", "oci:DIR"]);
}

/// A payload and an archive of docker both have a manifest.json.
#[test]
fn a_payload_and_an_image_are_not_taken_for_each_other() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let payload = format!("oci:{}", world.payload.dir().display());
    let packed = world.path("payload.tar").display().to_string();
    finished(program("tar").args(["-cf", &packed, "-C"]).arg(world.payload.dir()).arg("."));
    for (source, is) in
        [(payload, "it is a payload"), (format!("oci-archive:{packed}"), "it is a payload in an archive")]
    {
        let refused = inspect(&source).exits(INPUT).says(&[is, "write dir:DIR"]);
        assert!(!refused.stderr.contains("docker"), "{}", refused.stderr);
    }
    inspect(&format!("dir:{packed}")).exits(INPUT).says(&["this is a file", "oci-archive:FILE"]);
    inspect(&Layout::new(&world.path("empty")).source()).exits(INPUT).says(&["not found", "the images in it: none"]);
    let layout = world.path("layout").display().to_string();
    inspect(&format!("dir:{layout}")).exits(INPUT).says(&["an OCI layout, and no payload", "oci:DIR"]);
}

/// `crane append` without a base names neither.
#[test]
fn an_image_of_no_architecture_and_system() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let image = Image { arch: "", os: "", ..built(world.payload.dir(), Pack::Gzip) };
    image.write(&layout, "1");
    inspect(&layout.source()).succeeds();
    let one = Layout::new(&world.path("one"));
    Image { os: "linux", ..image }.write(&one, "1");
    inspect(&one.source()).exits(INPUT).says(&["the image is for linux/, not for"]);
}

/// `ulimit -f`: an error and an exit code, and no signal that ends the program without a word.
#[test]
fn a_limit_on_the_size_of_files_is_told() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let to = format!("oci:{}", world.path("copy").display());
    let mut limited = installer_in("ulimit -f 8 && exec \"$@\"", ["pull", &layout.source(), &to, "--progress=none"]);
    Outcome::of(&mut limited).exits(ENVIRONMENT).says(&["File too large", "ulimit -f"]);
}
