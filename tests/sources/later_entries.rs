//! Layers in which a file of the payload is a hard link, or is there twice: what counts is what an extractor leaves behind, when
//! the payload is looked at and when it is written.

use std::path::Path;

use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    images::{DIR, Image, Layer, Layout, Pack, Tar, dirs, files},
    world::{Node, Outcome, World, installer, noise},
};
use tar::EntryType;

type Files = Vec<(String, Vec<u8>)>;

const KERNEL: &str = "usr/install/amd64/vmlinuz";

/// All files but these.
fn without(files: &Files, tar: Tar, left: &[&str]) -> Tar {
    let rest = files.iter().filter(|(name, _)| !left.contains(&name.as_str()));
    rest.fold(tar, |tar, (name, bytes)| tar.file(&format!("{DIR}/{name}"), bytes))
}

fn bytes<'f>(files: &'f Files, name: &str) -> &'f [u8] {
    &files.iter().find(|(n, _)| n == name).unwrap().1
}

/// Of the same size, and another.
fn other(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    bytes
}

fn link(tar: Tar, name: &str, to: &str) -> Tar {
    tar.link(name, EntryType::Link, to)
}

/// Its name, and its layers from the lowest up.
type Row = (&'static str, fn(&Files) -> Vec<Tar>);

const ROWS: &[Row] = &[
    ("an older kernel before it", |f| vec![without(f, dirs().file(KERNEL, b"old"), &[])]),
    ("an older kernel of the same size", |f| vec![without(f, dirs().file(KERNEL, &other(bytes(f, "vmlinuz"))), &[])]),
    ("the same kernel again, spelled in another way", |f| {
        vec![without(f, dirs(), &[]).file("./usr//install/./amd64/vmlinuz", bytes(f, "vmlinuz"))]
    }),
    ("every file was another before", |f| {
        let old = f.iter().fold(dirs(), |tar, (name, bytes)| tar.file(&format!("{DIR}/{name}"), &other(bytes)));
        vec![without(f, old, &[])]
    }),
    ("older ones in a layer below, and again", |f| {
        vec![
            without(f, dirs().file(KERNEL, b"lowest"), &["os-release"]),
            without(f, Tar::new().file(KERNEL, b"old"), &[]),
        ]
    }),
    ("a link to a file outside of the payload", |f| {
        let tar = without(f, Tar::new().file("boot/vmlinuz", bytes(f, "vmlinuz")), &["vmlinuz"]);
        vec![link(tar, KERNEL, "boot/vmlinuz")]
    }),
    ("an absolute link, to a link", |f| {
        let tar = without(f, Tar::new().file("boot/vmlinuz", bytes(f, "vmlinuz")), &["vmlinuz"]);
        vec![link(link(tar, "boot/again", "./boot/vmlinuz"), KERNEL, "/boot//again")]
    }),
    ("a link to what was there when it was made", |f| {
        let tar = Tar::new().file("boot/vmlinuz", b"old").file("boot/vmlinuz", bytes(f, "vmlinuz"));
        vec![link(without(f, tar, &["vmlinuz"]), KERNEL, "boot/vmlinuz").file("boot/vmlinuz", b"new")]
    }),
    ("a link into the layer below", |f| {
        let below = Tar::new().file("boot/vmlinuz", b"old").file("boot/vmlinuz", bytes(f, "vmlinuz"));
        vec![below, Tar::new().file("etc/x", b"x"), link(without(f, Tar::new(), &["vmlinuz"]), KERNEL, "boot/vmlinuz")]
    }),
    ("a link to a link into the layer below", |f| {
        let below = Tar::new().file("boot/vmlinuz", bytes(f, "vmlinuz"));
        let tar = link(without(f, Tar::new(), &["vmlinuz"]), "boot/again", "boot/vmlinuz").file("boot/vmlinuz", b"new");
        vec![below, link(tar, KERNEL, "boot/again")]
    }),
    ("a link in place of an older kernel", |f| {
        let tar = Tar::new().file("boot/vmlinuz", bytes(f, "vmlinuz")).file(KERNEL, b"old");
        vec![link(without(f, tar, &["vmlinuz"]), KERNEL, "boot/vmlinuz")]
    }),
    ("a kernel in place of a link to an older one", |f| {
        let tar = link(Tar::new().file("boot/vmlinuz", b"old"), KERNEL, "boot/vmlinuz");
        vec![without(f, tar, &[])]
    }),
    ("every file a link, and all others are elsewhere", |f| {
        let stored = f.iter().fold(Tar::new(), |tar, (name, bytes)| tar.file(&format!("objects/{name}"), bytes));
        vec![f.iter().fold(stored, |tar, (name, _)| link(tar, &format!("{DIR}/{name}"), &format!("objects/{name}")))]
    }),
    ("a link that has the size of its file", |f| {
        let kernel = bytes(f, "vmlinuz");
        let tar = without(f, Tar::new().file("boot/vmlinuz", kernel), &["vmlinuz"]);
        vec![tar.header(KERNEL, EntryType::Link, kernel.len() as u64, "boot/vmlinuz")]
    }),
    ("a link to one of two names that are no text", |f| {
        let named = |tar: Tar, name: &[u8], bytes: &[u8]| tar.entry("x", EntryType::GNULongName, name).file("x", bytes);
        let tar = named(Tar::new(), b"boot/\xff\0", bytes(f, "vmlinuz"));
        let tar = without(f, named(tar, b"boot/\xfe\0", &other(bytes(f, "vmlinuz"))), &["vmlinuz"]);
        vec![link(tar.entry("x", EntryType::GNULongLink, b"boot/\xff\0"), KERNEL, "x")]
    }),
    ("links that nothing uses", |f| {
        let tar = link(without(f, dirs(), &[]), &format!("{DIR}/sub/kernel"), "nowhere");
        vec![link(tar, "boot/vmlinuz", KERNEL)]
    }),
];

fn written(layout: &Layout, layers: Vec<Tar>, pack: Pack) -> String {
    Image::new(layers.into_iter().map(|tar| Layer::new(tar.end(), pack)).collect()).write(layout, "1");
    layout.source()
}

fn inspect(source: &str) -> Outcome {
    Outcome::of(&mut installer(["inspect", source, "--output=json", "--progress=none"]))
}

fn checksum(dir: &Path) {
    Outcome::of(installer(["checksum", "--progress=none"]).arg(dir)).succeeds();
}

/// With checksums and without; onto an empty disk, which trusts what they say, onto one that is not, and into a slot. Each of
/// these reads back what it wrote, and compares it.
#[test]
fn what_counts_is_what_an_extractor_leaves() {
    let world = World::new();
    let node = Node::installed(&world);
    for listed in [false, true] {
        if listed {
            checksum(node.next.dir());
        }
        let files = files(node.next.dir());
        let payload = inspect(&node.next.source()).succeeds().json()["payload"].clone();
        for (n, (name, make)) in ROWS.iter().enumerate() {
            let layout = Layout::new(&world.path(&format!("layout-{listed}-{n}")));
            let source = written(&layout, make(&files), Pack::ALL[n % Pack::ALL.len()]);
            let seen = inspect(&source);
            assert_eq!(seen.code, 0, "{name}: {}", seen.stderr);
            assert_eq!(seen.json()["payload"], payload, "{name}");
            let disk = world.image();
            for force in [&[][..], &["--force"]].into_iter().take(if listed { 2 } else { 1 }) {
                let outcome = world.install(&disk, &[&["--source", &source], force].concat());
                assert_eq!(outcome.code, 0, "{name}, install {force:?}: {}", outcome.stderr);
            }
            if listed {
                let outcome = node.run('A', false, &["upgrade", "--progress=none", "--source", &source]);
                assert_eq!(outcome.code, 0, "{name}, upgrade: {}", outcome.stderr);
            }
        }
    }
}

/// In a layer that is not read to its end before the write, what SHA256SUMS says tells the entries apart, but for those of one
/// size: of these, only what is read first knows which is the last.
#[test]
fn a_layer_that_is_written_while_it_is_read() {
    let world = World::new();
    checksum(world.payload.dir());
    let files = files(world.payload.dir());
    let kernel = bytes(&files, "vmlinuz");
    let made = |name: &str, before: &[u8], after: Option<&[u8]>| {
        let layout = Layout::new(&world.path(name));
        let tar = ["SHA256SUMS", "manifest.json"]
            .iter()
            .fold(dirs(), |tar, name| tar.file(&format!("{DIR}/{name}"), bytes(&files, name)));
        let tar = without(&files, tar.file(KERNEL, before), &["vmlinuz", "SHA256SUMS", "manifest.json"]);
        let tar = after.into_iter().fold(tar, |tar, kernel| tar.file(KERNEL, kernel));
        written(&layout, vec![tar.file("usr/large", &noise(7, 17 << 20))], Pack::Plain)
    };
    for (name, before) in [("older", &b"old"[..]), ("same", kernel)] {
        let source = made(name, before, Some(kernel));
        let outcome = world.install(&world.image(), &["--source", &source]);
        assert_eq!(outcome.code, 0, "{name}: {}", outcome.stderr);
    }
    for (name, before, after, words) in [
        ("of one size", &other(kernel)[..], Some(kernel), &["vmlinuz", "SHA-256"][..]),
        ("newer", kernel, Some(&b"new"[..]), &["vmlinuz", "is there again in its layer"]),
        ("only another", b"old", None, &["vmlinuz", "it has 3 bytes in its layer, but manifest.json says"]),
    ] {
        let source = made(name, before, after);
        world.install(&world.image(), &["--source", &source]).exits(INSTALL).says(words);
        // What reads all of it first knows.
        let first = world.install(&world.installed(&[]), &["--force", "--source", &source]);
        assert_eq!(first.code, if name == "of one size" { 0 } else { INPUT }, "{name}: {}", first.stderr);
    }
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    let world = World::new();
    let files = files(world.payload.dir());
    let linked = |to: &str, tar: Tar| link(without(&files, tar, &["vmlinuz"]), KERNEL, to);
    let kernel = Tar::new().file("boot/vmlinuz", bytes(&files, "vmlinuz"));
    let gone = |entry: &str| vec![kernel.clone(), linked("boot/vmlinuz", Tar::new().file(entry, b""))];
    let many = (0..50).fold(kernel.clone(), |tar, n| match n {
        0 => link(tar, "boot/0", "boot/vmlinuz"),
        n => link(tar, &format!("boot/{n}"), &format!("boot/{}", n - 1)),
    });
    for (n, (layers, words)) in [
        (vec![linked("boot/vmlinuz", Tar::new())], "to \"boot/vmlinuz\", which is not there"),
        (vec![linked(KERNEL, Tar::new())], "which is not there"),
        (vec![linked("boot/vmlinuz", Tar::new()).file("boot/vmlinuz", b"too late")], "which is not there"),
        (vec![linked("boot", Tar::new().dir("boot/"))], "to \"boot\", which is a directory"),
        (vec![linked("boot/x", Tar::new().link("boot/x", EntryType::Symlink, "vmlinuz"))], "which is a symbolic link"),
        (vec![linked("", Tar::new())], "which is not there"),
        (gone("boot/.wh.vmlinuz"), "which is not there"),
        (gone(".wh.boot"), "which is not there"),
        (gone("boot/.wh..wh..opq"), "which is not there"),
        (gone(".wh..wh..opq"), "which is not there"),
        (gone("boot"), "which is not there"),
        (vec![linked("boot/49", many)], "more than 8 links"),
        (vec![without(&files, dirs(), &[]).dir(KERNEL)], "is there as a file and as a directory"),
    ]
    .into_iter()
    .enumerate()
    {
        let layout = Layout::new(&world.path(&format!("layout-{n}")));
        let outcome = inspect(&written(&layout, layers, Pack::Gzip));
        assert_eq!(outcome.code, INPUT, "{n}: {}", outcome.stderr);
        outcome.says(&["vmlinuz\" is", words]);
    }
}
