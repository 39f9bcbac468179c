//! Container images as sources: every packing, every shape a builder or a copying tool makes, and what a later layer does
//! to an earlier one. Images are made byte by byte, and by buildah and skopeo.

use std::{collections::HashSet, fs, path::Path};

use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    images::{CHECKSUM_FILES, DIR, INDEX, Image, Layer, Layout, Pack, Tar, built, descriptor, dirs, files, layer},
    world::{self, Content, Node, Outcome, Payload, World, installer, json_of, noise, on_disk, program, tool},
};
use tar::EntryType;

/// A world whose payload is listed.
fn listed() -> World {
    let world = World::new();
    world.payload.checksum().succeeds();
    world
}

/// Install from a source onto a new image file; every file in the slot is then the payload's.
#[track_caller]
fn installs(world: &World, source: &str) {
    let image = world.image();
    world.install(&image, &[&format!("--source={source}")]).succeeds();
    on_disk(&image, &["verify", "--progress=none"]).succeeds();
    let digest = |payload: &Payload| {
        let args = ["inspect", "--output=json", "--progress=none", &payload.source()];
        Outcome::of(&mut installer(args)).succeeds().json()["payload"].clone()
    };
    assert_eq!(json_of(&image, &["status"])["slots"]["A"]["payload"], digest(&world.payload));
}

#[test]
fn every_packing_of_a_layer() {
    let world = listed();
    for pack in Pack::ALL {
        let layout = Layout::new(&world.path(&format!("{pack:?}")));
        built(world.payload.dir(), pack).write(&layout, "1");
        installs(&world, &layout.source());
        installs(&world, &format!("{}:1", layout.source()));
    }
}

#[test]
fn an_archive() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    for (name, member) in [("dot.tar", "."), ("plain.tar", "oci-layout index.json blobs")] {
        let file = world.path(name);
        let mut tar = program("tar");
        tar.arg("-C").arg(&layout.0).arg("-cf").arg(&file).args(member.split(' '));
        world::finished(&mut tar);
        installs(&world, &format!("oci-archive:{}", file.display()));
        installs(&world, &format!("oci-archive:{}:1", file.display()));
    }
}

/// What docker pushes: the same things under other names.
#[test]
fn docker_media_types() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let mut image = built(world.payload.dir(), Pack::Gzip);
    for layer in &mut image.layers {
        layer.descriptor["mediaType"] = json!("application/vnd.docker.image.rootfs.diff.tar.gzip");
    }
    image.edit_manifest = |manifest| {
        manifest["mediaType"] = json!("application/vnd.docker.distribution.manifest.v2+json");
        manifest["config"]["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
    };
    let mut descriptor = image.write_blobs(&layout);
    descriptor["mediaType"] = json!("application/vnd.docker.distribution.manifest.v2+json");
    layout.tag("1", &descriptor);
    installs(&world, &layout.source());
}

/// Descriptors of an image with our payload, and of one for another platform.
fn for_two_platforms(world: &World, layout: &Layout) -> [Value; 2] {
    let ours = built(world.payload.dir(), Pack::Zstd).write_blobs(layout);
    let mut other = Image::new(vec![Layer::new(dirs().end(), Pack::Plain)]);
    other.arch = "arm64";
    [ours, other.write_blobs(layout)]
}

#[test]
fn the_platform_is_chosen_from_an_index() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let [ours, other] = for_two_platforms(&world, &layout);
    layout.tag("1", &layout.nested(&[(&other, "arm64"), (&other, "arm64"), (&other, "unknown"), (&ours, "amd64")]));
    installs(&world, &layout.source());
    let copied =
        installer(["pull", &layout.source(), &format!("oci:{}", world.path("copy").display())]).output().unwrap();
    assert!(String::from_utf8(copied.stderr).unwrap().contains("not copied: the image for linux/arm64. A tag"));
}

/// In the layouts of apko index.json is the index of the image itself.
#[test]
fn the_platform_is_chosen_from_index_json() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let [ours, other] = for_two_platforms(&world, &layout);
    let lists = |manifests: &[(&Value, &str, Value)]| {
        let listed = |(descriptor, arch, annotations): &(&Value, &str, Value)| {
            let mut listed = (*descriptor).clone();
            listed["platform"] = json!({"os": "linux", "architecture": arch});
            listed["annotations"] = annotations.clone();
            listed
        };
        let manifests: Vec<_> = manifests.iter().map(listed).collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string();
        fs::write(layout.0.join("index.json"), &index).unwrap();
        index
    };
    let index = lists(&[(&other, "arm64", json!(null)), (&ours, "amd64", json!(null))]);
    installs(&world, &layout.source());
    let archive = world.path("archive.tar");
    world::finished(program("tar").arg("-C").arg(&layout.0).arg("-cf").arg(&archive).arg("."));
    installs(&world, &format!("oci-archive:{}", archive.display()));
    // A signature of it would change what it signs.
    let key = world.path("key");
    world::finished(program("openssl").args(["genpkey", "-algorithm", "ed25519", "-out"]).arg(&key));
    let sign = ["sign", &layout.source(), "--progress=none", "--key", key.to_str().unwrap()];
    Outcome::of(&mut installer(sign)).exits(INPUT).says(&["more than one image", "@DIGEST"]);
    assert!(fs::read_to_string(layout.0.join("index.json")).unwrap() == index);
    // These are several images.
    let named = json!({"org.opencontainers.image.ref.name": "1"});
    for listed in [
        [(&other, "amd64", json!(null)), (&ours, "amd64", json!(null))],
        [(&other, "arm64", named), (&ours, "amd64", json!(null))],
    ] {
        lists(&listed);
        world
            .install(&world.image(), &[&format!("--source={}", layout.source())])
            .exits(INPUT)
            .says(&["more than one"]);
    }
}

/// In an archive of containerd, and of docker, two images may have the same tag.
#[test]
fn the_whole_name_of_an_image_chooses_it() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let named = |image: Image, name: &str| {
        let mut descriptor = image.write_blobs(&layout);
        descriptor["annotations"] = json!({"io.containerd.image.name": format!("docker.io/library/{name}:1"),
            "org.opencontainers.image.ref.name": "1"});
        layout.list(&descriptor);
    };
    named(built(world.payload.dir(), Pack::Gzip), "os");
    named(Image::new(vec![Layer::new(dirs().end(), Pack::Plain)]), "other");
    installs(&world, &format!("{}:docker.io/library/os:1", layout.source()));
    let refused = |source: &str, texts: &[&str]| {
        world.install(&world.image(), &[&format!("--source={source}")]).exits(INPUT).says(texts);
    };
    refused(&layout.source(), &["docker.io/library/os:1, docker.io/library/other:1"]);
    refused(&format!("{}:1", layout.source()), &["more than one image of this name"]);
}

/// BuildKit's attestation is marked. Some builders write no platform, or the names of uname(1).
#[test]
fn the_only_image_beside_an_attestation_is_taken() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let ours = built(world.payload.dir(), Pack::Zstd).write_blobs(&layout);
    let mut said = Image::new(vec![Layer::new(b"{}".to_vec(), Pack::Plain)]);
    (said.arch, said.os) = ("unknown", "unknown");
    let mut said = said.write_blobs(&layout);
    said["platform"] = json!({"architecture": "unknown", "os": "unknown"});
    said["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    for (tag, platform) in [("none", json!(null)), ("uname", json!({"architecture": "x86_64", "os": "Linux"}))] {
        let mut ours = ours.clone();
        ours["platform"] = platform;
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [said, ours]}).to_string().into_bytes();
        layout.blob(&index);
        layout.tag(tag, &descriptor(INDEX, &index));
        installs(&world, &format!("{}:{tag}", layout.source()));
    }
    // The same in index.json itself.
    fs::write(layout.0.join("index.json"), json!({"schemaVersion": 2, "manifests": [said, ours]}).to_string()).unwrap();
    installs(&world, &layout.source());
}

#[test]
fn a_tag_or_a_digest_chooses_among_several() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    Image::new(vec![Layer::new(dirs().end(), Pack::Plain)]).write(&layout, "empty");
    let descriptor = built(world.payload.dir(), Pack::Plain).write(&layout, "full");
    installs(&world, &format!("{}:full", layout.source()));
    installs(&world, &format!("{}@{}", layout.source(), descriptor["digest"].as_str().unwrap()));
    let image = world.image();
    let refused = |source: &str, texts: &[&str]| {
        world.install(&image, &[&format!("--source={source}")]).exits(INPUT).says(texts);
    };
    refused(&layout.source(), &["more than one image", "empty, full"]);
    refused(&format!("{}:other", layout.source()), &["not found", "empty, full"]);
    refused(&format!("{}@sha256:{}", layout.source(), "0".repeat(64)), &["not found"]);
    refused(&format!("{}:empty", layout.source()), &["vmlinuz: missing"]);
    assert!(Content::of(&image) == Content::of(&world.image()), "written to");
}

/// Without checksums every file is read before the first write.
#[test]
fn an_image_without_checksums() {
    let world = World::new();
    let layout = Layout::new(&world.path("layout"));
    let files = files(world.payload.dir());
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    Image::new(vec![layer(&files, &names, Pack::Gzip)]).write(&layout, "1");
    installs(&world, &layout.source());
    let source = format!("--source={}", layout.source());
    world
        .install(&world.image(), &[&source, "--strict"])
        .exits(INPUT)
        .says(&["SHA256SUMS: missing", "installer checksum"]);
}

#[test]
fn a_later_layer_overrides_and_whites_out() {
    let world = listed();
    let files = files(world.payload.dir());
    let all: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let full = layer(&files, &all, Pack::Plain);
    let under = |top: Vec<Layer>| {
        let layout = Layout::new(&world.path("layout"));
        Image::new(top).write(&layout, "1");
        layout.source()
    };
    let one = |tar: Tar| Layer::new(tar.end(), Pack::Gzip);
    let noisy = |name: &str| one(dirs().file(&format!("{DIR}/{name}"), &noise(9, 5000)));
    let whiteout = |path: &str| one(Tar::new().file(path, b""));

    // An earlier version of a file, an extra one that was removed again, an earlier payload that was hidden whole.
    installs(&world, &under(vec![noisy("vmlinuz"), full.clone()]));
    let removed = whiteout(&format!("{DIR}/.wh.initramfs.img"));
    installs(&world, &under(vec![noisy("initramfs.img"), full.clone(), removed]));
    for opaque in
        [format!("{DIR}/.wh..wh..opq"), "usr/install/.wh.amd64".into(), "usr/.wh.install".into(), ".wh.usr".into()]
    {
        let mut hiding = layer(&files, &all, Pack::Plain);
        let tar = Tar(hiding.blob[..hiding.blob.len() - 1024].to_vec()).file(&opaque, b"");
        hiding = Layer::new(tar.end(), Pack::Plain);
        installs(&world, &under(vec![noisy("cmdline"), hiding]));
        // What is in the same layer stays, what is below is gone.
        let image = world.image();
        let source = format!("--source={}", under(vec![full.clone(), whiteout(&opaque)]));
        world.install(&image, &[&source]).exits(INPUT).says(&["vmlinuz: missing"]);
    }
    let source = format!("--source={}", under(vec![full.clone(), whiteout(&format!("{DIR}/.wh.vmlinuz"))]));
    world.install(&world.image(), &[&source]).exits(INPUT).says(&["lists a file that is not there: vmlinuz"]);

    // What an upper layer hides may have been anything: a link in place of a file, or of the directory.
    let link = one(dirs().link(&format!("{DIR}/vmlinuz"), EntryType::Symlink, "x"));
    installs(&world, &under(vec![link, full.clone()]));
    let link = one(Tar::new().dir("usr/").dir("usr/install/").link(DIR, EntryType::Symlink, "/etc"));
    let unlisted: Vec<_> = all.iter().copied().filter(|n| !CHECKSUM_FILES.contains(n)).collect();
    installs(&world, &under(vec![link, layer(&files, &unlisted, Pack::Plain)]));
}

/// One layer for everything, as buildah makes it unless told otherwise, in any order.
#[test]
fn all_in_one_layer_in_any_order() {
    let world = listed();
    let mut files = files(world.payload.dir());
    for round in 0..files.len() {
        files.rotate_left(1);
        let layout = Layout::new(&world.path(&format!("layout-{round}")));
        let all: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        Image::new(vec![layer(&files, &all, Pack::ALL[round % 3])]).write(&layout, "1");
        installs(&world, &layout.source());
    }
}

#[test]
fn names_that_need_extended_headers() {
    let world = listed();
    let long = format!("usr/share/{}/x", "long-".repeat(60));
    let layout = Layout::new(&world.path("layout"));
    let tar = dirs()
        .entry("././@LongLink", EntryType::GNULongName, &[long.as_bytes(), b"\0"].concat())
        .file("usr/share/long", b"content")
        .pax(EntryType::XGlobalHeader, &[("comment", "by git")])
        .pax(EntryType::XHeader, &[("path", &long), ("mtime", "1.5")])
        .file("usr/share/short", b"x");
    let files = files(world.payload.dir());
    let tar = files.iter().fold(tar, |tar, (name, bytes)| {
        tar.pax(EntryType::XHeader, &[("path", &format!("./{DIR}/{name}"))]).file("short", bytes)
    });
    Image::new(vec![Layer::new(tar.end(), Pack::Plain)]).write(&layout, "1");
    installs(&world, &layout.source());
}

/// Formats allow more than the simplest: gzip members and zstd frames in a row, zstd's skippable frames, anything behind
/// the end of the archive, no end of the archive at all.
#[test]
fn concatenated_and_trailing_data() {
    let world = listed();
    let files = files(world.payload.dir());
    let all: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let tar = layer(&files, &all, Pack::Plain).blob;
    let (head, tail) = tar.split_at(30_000);
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"skip"].concat();
    let zstd = [Pack::Zstd.pack(head), skippable, Pack::Zstd.pack(tail)].concat();
    let gzip = [Pack::Gzip.pack(head), Pack::Gzip.pack(tail)].concat();
    let longer = [&tar[..], &noise(5, 10_000)].concat();
    let endless = tar[..tar.len() - 1024].to_vec();
    let cases = [
        Layer::of(gzip, &tar, Pack::Gzip.media_type()),
        Layer::of(zstd, &tar, Pack::Zstd.media_type()),
        Layer::new(longer, Pack::Gzip),
        Layer::new(endless, Pack::Plain),
    ];
    for (n, case) in cases.into_iter().enumerate() {
        let layout = Layout::new(&world.path(&format!("layout-{n}")));
        Image::new(vec![case]).write(&layout, "1");
        installs(&world, &layout.source());
    }
}

#[test]
fn an_upgrade_reads_the_layers_once() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.checksum().succeeds();
    let layout = Layout::new(&world.path("layout"));
    let image = built(node.next.dir(), Pack::Gzip);
    image.write(&layout, "1");
    let blob = |n: usize| layout.path(image.layers[n].descriptor["digest"].as_str().unwrap());
    // The base below the payload is not even looked for.
    fs::remove_file(blob(0)).unwrap();
    let trace = world.path("trace");
    let script = format!("exec strace -f -y -e trace=read,pread64 -o {} \"$@\"", trace.display());
    let source = layout.source();
    let args = ["upgrade", "--progress=none", "--source", &source];
    let mut command = world::installer_in(
        &format!("mount --bind {} /proc/cmdline && {script}", cmdline(&world, &node).display()),
        args,
    );
    Outcome::of(command.arg("--disk").arg(&node.disk)).succeeds();
    let trace = fs::read_to_string(trace).unwrap();
    assert_eq!(
        bytes_read(&trace, &blob(1).display().to_string()),
        image.layers[1].blob.len(),
        "bytes read of the layer with the payload"
    );
    assert_eq!(
        json_of(&node.disk, &["status"])["next_boot"],
        json!({"slot": "B", "trial": true, "why": json_of(&node.disk, &["status"])["next_boot"]["why"]})
    );
}

/// Bytes that calls in a trace by `strace -f -y` have read of a file.
fn bytes_read(trace: &str, path: &str) -> usize {
    // The line of a call that another thread has interrupted is in two parts, and the second one does not name the file.
    let mut begun = HashSet::new();
    let ends = trace.lines().filter(|line| {
        let thread = line.split_whitespace().next().unwrap_or_default().to_owned();
        match (line.contains(path), line.contains("<unfinished ...>"), line.contains(" resumed>")) {
            (true, true, _) => !begun.insert(thread),
            (_, _, true) => begun.remove(&thread),
            (here, ..) => here,
        }
    });
    ends.filter_map(|line| line.rsplit("= ").next()?.parse::<usize>().ok()).sum()
}

#[test]
fn an_interrupted_call_counts_as_one() {
    let trace = "7 read(3</a>, \"x\", 9) = 9\n7 read(3</a>,  <unfinished ...>\n8 read(4</b>,  <unfinished ...>\n\
                 8 <... read resumed>\"\", 9) = 5\n7 <... read resumed>\"\", 9) = 4\n7 pread64(3</a>, \"\", 9, 1) = 2\n";
    assert_eq!((bytes_read(trace, "/a"), bytes_read(trace, "/b")), (15, 5));
}

fn cmdline(world: &World, node: &Node) -> std::path::PathBuf {
    let file = world.path("cmdline");
    fs::write(&file, node.cmdline('A', false)).unwrap();
    file
}

/// A system that is going to be overwritten is not given up for a payload that turns out bad.
#[test]
fn a_system_is_only_overwritten_by_a_payload_that_was_read_whole() {
    let world = listed();
    let disk = world.installed(&[]);
    let layout = Layout::new(&world.path("layout"));
    let mut image = built(world.payload.dir(), Pack::Plain);
    let middle = image.layers[1].blob.len() / 2;
    image.layers[1].blob[middle] ^= 1;
    image.write(&layout, "1");
    let source = format!("--source={}", layout.source());
    let before = Content::of(&disk);
    world.install(&disk, &[&source, "--force"]).exits(INPUT).says(&["SHA-256"]);
    assert!(Content::of(&disk) == before, "written to");
    // Where there is nothing to lose it is noticed while it is written; there is no partition table then.
    let empty = world.sparse("empty.img", world::IMAGE_BYTES);
    world.install(&empty, &[&source]).exits(INSTALL).says(&["SHA-256", "no partition table"]);
    on_disk(&empty, &["status"]).exits(INSTALL).says(&["no partition table"]);
}

#[test]
fn a_reference_that_leads_nowhere_changes_nothing() {
    let world = World::new();
    let node = Node::installed(&world);
    let before = Content::of(&node.disk);
    let here = world.path("nosuch").display().to_string();
    let cases: [(String, &[&str]); 9] = [
        (format!("oci:{here}"), &[&here, "not found"]),
        (format!("oci-archive:{here}"), &[&here, "not found"]),
        (format!("oci:{}", node.next.dir().display()), &["it is a payload", "write dir:DIR"]),
        (format!("oci-archive:{}", node.next.path("vmlinuz").display()), &["not a tar archive"]),
        ("oci:".into(), &["no path"]),
        ("oci:dir:-bad".into(), &["not a tag"]),
        ("docker:host/x".into(), &["two slashes"]),
        ("docker://host.example/UPPER".into(), &["cannot be part of a repository"]),
        ("ftp:x".into(), &["is not a source", "oci-archive:FILE"]),
    ];
    for (source, texts) in cases {
        node.run('A', false, &["upgrade", "--progress=none", "--source", &source]).exits(INPUT).says(texts);
        assert!(Content::of(&node.disk) == before, "{source}: written to");
    }
}

#[test]
fn pulled_into_a_layout() {
    let world = listed();
    let layout = Layout::new(&world.path("layout"));
    let descriptor = built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let to = format!("oci:{}:copy", world.path("copy").display());
    let pull = |from: &str| Outcome::of(&mut installer(["pull", from, &to, "--output=json", "--progress=none"]));
    let report = pull(&layout.source()).succeeds().json();
    assert_eq!(format!("sha256:{}", report["manifest"].as_str().unwrap()), descriptor["digest"].as_str().unwrap());
    assert_eq!(report["kept_bytes"], 0);
    installs(&world, &to);
    // Again: nothing is copied. With one blob damaged: that one.
    assert_eq!(pull(&layout.source()).succeeds().json()["fetched_bytes"], 0);
    let manifest: Value =
        serde_json::from_slice(&fs::read(layout.path(descriptor["digest"].as_str().unwrap())).unwrap()).unwrap();
    let layer = manifest["layers"][1].clone();
    let copy = Layout(world.path("copy")).path(layer["digest"].as_str().unwrap());
    world::flip(&copy, 100);
    assert_eq!(pull(&layout.source()).succeeds().json()["fetched_bytes"], layer["size"]);
    installs(&world, &to);
    // skopeo takes it for what it is.
    let inspected: Value = serde_json::from_str(&tool!("skopeo", "inspect", "--raw", &to)).unwrap();
    assert_eq!(inspected, manifest);
    // A blob that is not what it says does not get a name.
    world::flip(&layout.path(layer["digest"].as_str().unwrap()), 100);
    fs::remove_file(&copy).unwrap();
    pull(&layout.source()).exits(INPUT).says(&["SHA-256"]);
    assert!(!copy.exists(), "a damaged blob has a name");
    let there: Vec<_> = files_of(&world.path("copy/blobs/sha256"));
    assert!(there.iter().all(|name| name.len() == 64), "something was left: {there:?}");
    pull(&world.payload.source()).exits(INPUT).says(&["not a container image"]);
    let bad = ["pull", &layout.source(), "dir:/nowhere", "--progress=none"];
    Outcome::of(&mut installer(bad)).exits(INPUT).says(&["oci:DIR"]);
}

fn files_of(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// By the tools that people use: built by buildah, copied by skopeo in every form.
#[test]
fn what_buildah_and_skopeo_make() {
    let world = listed();
    let (root, run) = (world.path("storage"), world.path("run"));
    let context = world.payload.dir();
    let names: Vec<_> = files_of(context).into_iter().filter(|n| !CHECKSUM_FILES.contains(&n.as_str())).collect();
    let file = format!("FROM scratch\nCOPY {} /{DIR}/\nCOPY {} /{DIR}/\n", names.join(" "), CHECKSUM_FILES.join(" "));
    fs::write(world.path("Containerfile"), file).unwrap();
    for layers in ["--layers", "--layers=false"] {
        let mut buildah = program("buildah");
        buildah.args(["--storage-driver=vfs", "--root"]).arg(&root).arg("--runroot").arg(&run);
        buildah.args(["bud", "--isolation=chroot", layers, "-t", "localhost/test:1", "-f"]);
        world::finished(buildah.arg(world.path("Containerfile")).arg(context));
        let storage = format!("containers-storage:[vfs@{}+{}]localhost/test:1", root.display(), run.display());
        for (n, options) in
            [&[][..], &["--dest-compress-format=zstd"], &["--dest-compress-format=gzip", "--format=oci"]]
                .into_iter()
                .enumerate()
        {
            let dir = world.path(&format!("copied{layers}-{n}"));
            let to = format!("oci:{}:1", dir.display());
            let mut skopeo = program("skopeo");
            skopeo.args(["copy", "--insecure-policy"]);
            if !options.is_empty() {
                skopeo.arg("--dest-compress");
            }
            world::finished(skopeo.args(options).arg(&storage).arg(&to));
            installs(&world, &to);
            let archive = format!("oci-archive:{}.tar:1", dir.display());
            world::finished(program("skopeo").args(["copy", "--insecure-policy", &to, &archive]));
            installs(&world, &archive);
        }
    }
}
