//! Layers laid one over the other, into a directory of this machine.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use slipway_core::digest::Sha256;
use slipway_test_support::images::{Image, Layer, Layout, Pack, Tar};
use slipwayd::machine::unpack::unpack;
use tar::EntryType;
use tempfile::{TempDir, tempdir};

use crate::installer::NoWatcher;

struct Unpacked {
    dir: TempDir,
    layout: Layout,
    manifest: Sha256,
}

impl Unpacked {
    fn from_layers(layers: Vec<Layer>) -> Self {
        let dir = tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("layout"));
        let mut image = Image::new(layers);
        image.edit_config = |config| config["config"]["Env"] = ["A=b"].into();
        let descriptor = image.write(&layout, "1");
        let manifest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().parse().unwrap();
        Self { dir, layout, manifest }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn unpack(&self) -> std::io::Result<Vec<String>> {
        unpack(&self.layout.0, self.manifest, &self.path(""), &NoWatcher)
    }

    fn refused(&self) -> String {
        let error = self.unpack().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        error.to_string()
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }
}

fn layer(tar: Tar) -> Layer {
    Layer::new(tar.end(), Pack::Plain)
}

#[test]
fn layers_of_every_packing_lie_one_over_the_other() {
    let packs = [Pack::Plain, Pack::Gzip, Pack::Zstd];
    let tars = [
        Tar::new().dir("usr/").dir("usr/bin/").program("usr/bin/a", b"1").file("usr/b", b"1"),
        Tar::new().file("./usr/bin/a", b"2").link("bin", EntryType::Symlink, "usr/bin"),
        // Through the link of the layer below.
        Tar::new().program("bin/c", b"3"),
    ];
    let image =
        Unpacked::from_layers(tars.into_iter().zip(packs).map(|(tar, pack)| Layer::new(tar.end(), pack)).collect());
    assert_eq!(image.unpack().unwrap(), ["A=b"]);
    assert_eq!(["usr/bin/a", "usr/b", "usr/bin/c"].map(|name| image.text(name).unwrap()), ["2", "1", "3"]);
    assert_eq!(fs::metadata(image.path("usr/bin/c")).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn a_whiteout_hides_what_is_below_and_no_more() {
    let low = Tar::new().dir("a/").file("a/1", b"low").file("a/2", b"low").dir("b/").dir("b/c/").file("b/c/1", b"low");
    // The order within a layer is not promised.
    let high = Tar::new().file("a/3", b"high").file("a/.wh.1", b"").file("b/d", b"high").file("b/.wh..wh..opq", b"");
    let image = Unpacked::from_layers(vec![layer(low), layer(high.file("none/.wh.1", b""))]);
    image.unpack().unwrap();
    assert_eq!(
        ["a/1", "a/2", "a/3", "b/c/1", "b/d"].map(|name| image.text(name)),
        [None, Some("low".to_owned()), Some("high".to_owned()), None, Some("high".to_owned())]
    );
    assert!(!image.path("a/.wh.1").exists() && !image.path("none").exists());
}

#[test]
fn a_directory_and_a_file_take_each_others_place() {
    let low = Tar::new().dir("a/").file("a/1", b"low").file("b", b"low");
    let image =
        Unpacked::from_layers(vec![layer(low), layer(Tar::new().file("a", b"high").dir("b/").file("b/1", b"high"))]);
    image.unpack().unwrap();
    assert_eq!(["a", "b/1"].map(|name| image.text(name).unwrap()), ["high", "high"]);
}

/// Paths outside of the root are this machine's. Links lead as they do for programs in the image: never above its root.
#[test]
fn nothing_leads_out_of_the_image() {
    let outside = tempdir().unwrap();
    fs::write(outside.path().join("mine"), "mine").unwrap();
    let link = |to: &Path| Tar::new().link("out", EntryType::Symlink, to.to_str().unwrap());
    let below = outside.path().to_str().unwrap().trim_start_matches('/');
    let up = "../".repeat(20) + below;
    let is_kept = |what: &str| {
        assert_eq!(fs::read_to_string(outside.path().join("mine")).unwrap(), "mine", "{what}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{what}");
    };
    for tar in [
        Tar::new().file("../mine", b"theirs"),
        Tar::new().file("a/../../mine", b"theirs"),
        Tar::new().file("../.wh.mine", b""),
        Tar::new().link("hard", EntryType::Link, "../../mine"),
    ] {
        assert!(Unpacked::from_layers(vec![layer(tar)]).refused().contains("leads out of the image"));
    }
    for to in [outside.path().to_owned(), PathBuf::from(&up)] {
        for entry in ["mine", "new", "new/deeper/new", ".wh.mine", ".wh..wh..opq"] {
            let high = Tar::new().file(&format!("out/{entry}"), b"theirs");
            for layers in
                [vec![layer(link(&to)), layer(high.clone())], vec![layer(Tar([link(&to).0, high.0].concat()))]]
            {
                let image = Unpacked::from_layers(layers);
                image.unpack().unwrap();
                is_kept(entry);
                let there = image.text(&format!("{below}/{entry}"));
                assert_eq!(there.is_some(), !entry.starts_with(".wh."), "{entry}");
            }
        }
    }
    // A hard link to a file outside would be that file.
    let file = outside.path().join("mine");
    let image = Unpacked::from_layers(vec![layer(Tar::new().link("hard", EntryType::Link, file.to_str().unwrap()))]);
    assert!(image.refused().contains("which is not there") && !image.path("hard").exists());
    // Nor does a link that is there already.
    let image = Unpacked::from_layers(vec![layer(Tar::new().file("out/new", b"theirs"))]);
    fs::create_dir(image.path("")).unwrap();
    symlink(outside.path(), image.path("out")).unwrap();
    image.unpack().unwrap();
    is_kept("a link that was there");
    let round = Tar::new().link("a", EntryType::Symlink, "b").link("b", EntryType::Symlink, "a").file("a/c", b"");
    assert!(Unpacked::from_layers(vec![layer(round)]).refused().contains("too many links"));
}

/// What kaniko, crane and bazel write, and what they call it.
#[test]
fn what_builders_write_is_unpacked() {
    let low = || Tar::new().dir("usr/").dir("usr/bin/").program("usr/bin/a", b"1").dir("run/");
    let links = low()
        .link("usr/bin/b", EntryType::Link, "/usr/bin/a")
        .link("usr/bin/c", EntryType::Link, "usr/bin/a")
        .dir("var/")
        .link("var/run", EntryType::Symlink, "/run")
        .link("bin", EntryType::Symlink, "/usr/bin");
    let through = || Tar::new().file("var/run/x", b"2").file("bin/d", b"3");
    let image = Unpacked::from_layers(vec![layer(links.clone()), layer(through())]);
    image.unpack().unwrap();
    let read = |names: [&str; 4]| names.map(|name| image.text(name));
    assert_eq!(
        read(["usr/bin/b", "usr/bin/c", "run/x", "usr/bin/d"]),
        ["1", "1", "2", "3"].map(|t| Some(t.to_owned()))
    );
    // A directory takes the place of a link, in the same layer, too.
    for layers in [
        vec![layer(links.clone()), layer(Tar::new().dir("bin/").file("bin/e", b"4"))],
        vec![layer(links.dir("bin/").file("bin/e", b"4"))],
    ] {
        let image = Unpacked::from_layers(layers);
        image.unpack().unwrap();
        assert_eq!((image.text("bin/e").as_deref(), image.text("usr/bin/e")), (Some("4"), None));
    }
    // The first bytes tell the packing.
    for pack in [Pack::Plain, Pack::Gzip, Pack::Zstd] {
        for called in ["tar", "tar+gzip", "tar+zstd"] {
            let (tar, called) = (low().end(), format!("application/vnd.oci.image.layer.v1.{called}"));
            let layer = Layer::of(pack.pack(&tar), &tar, &called);
            let image = Unpacked::from_layers(vec![layer]);
            image.unpack().unwrap();
            assert_eq!(image.text("usr/bin/a").as_deref(), Some("1"), "{called}");
        }
    }
}

/// Nobody waits for such an image to become better.
#[test]
fn what_cannot_be_unpacked_is_the_images_fault() {
    let cut = Layer::new(Tar::new().file("a", &[1; 4096]).end()[..1024].to_vec(), Pack::Gzip);
    let garbage = Layer::new(vec![0xa5; 2048], Pack::Plain);
    let zeros = Layer::new(Tar::new().file("a", &vec![0; 80 << 20]).end(), Pack::Zstd);
    for (layer, why) in [(cut, ""), (garbage, ""), (zeros, "200 times its size")] {
        let said = Unpacked::from_layers(vec![layer]).refused();
        assert!(said.contains(why), "{said}");
    }
    let below_a_file = vec![layer(Tar::new().file("a", b"1")), layer(Tar::new().file("a/b", b"2"))];
    assert!(Unpacked::from_layers(below_a_file).refused().contains("is no directory"));
}

#[test]
fn a_damaged_blob_is_not_unpacked() {
    let image = Unpacked::from_layers(vec![layer(Tar::new().file("a", b"1"))]);
    for entry in fs::read_dir(image.layout.0.join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        fs::write(&path, bad).unwrap();
        assert!(image.refused().contains("is damaged"));
        assert!(!image.path("a").exists());
        fs::write(&path, good).unwrap();
    }
    image.unpack().unwrap();
}
