//! Payloads that were cut off on their way. Everything about them is right but their length, and `installer checksum`
//! would have made that official.

use std::{fs, path::Path};

use serde_json::{Value, json};
use slipway_core::{
    digest::Sha256,
    kernel::efi_stub::StubLack,
    payload::{
        format_checks::{HEAD_BYTES, InitramfsWatch, Unbootable, check_head},
        manifest::version_id,
    },
};
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    files::{cpio, initramfs},
    images::{Layout, Pack, built},
    project,
    world::{
        Content, Node, Outcome, Payload, World, finished, finished_bytes, installer, installer_path, json_of, noise,
        on_disk, program, real_kernel, refused,
    },
};

/// Checksums by a program that does not look into the files, as earlier versions did.
fn list(payload: &Payload) {
    let file = |name: &&str| {
        let bytes = payload.read(name);
        json!({"name": name, "size": bytes.len(), "sha256": Sha256::of(&bytes).to_string()})
    };
    let files: Vec<Value> = Payload::FILES.iter().map(file).collect();
    let version = version_id(&String::from_utf8(payload.read("os-release")).unwrap());
    let manifest = json!({"format": 1, "version": version, "arch": "amd64", "files": files});
    payload.write("manifest.json", manifest.to_string());
    payload.write_sums(&[&Payload::LISTED[..], &["manifest.json"]].concat());
}

/// What is cut, to how many bytes, and what the message says of it.
const CUTS: [(&str, u64, &str); 5] = [
    (Payload::KERNEL, 15_000, "vmlinuz: cut off: by its header it has 39985 bytes or more, but there are 15000"),
    (Payload::KERNEL, 39_900, "vmlinuz: cut off: by its header it has 39985 bytes or more, but there are 39900"),
    (Payload::INITRAMFS, 3, "initramfs.xz: not an initramfs"),
    (Payload::INITRAMFS, 5_000, "initramfs.xz: cut off: by its xz stream it has "),
    (
        Payload::ROOTFS,
        20_000,
        "rootfs.squashfs: cut off: by its superblock it has 69632 bytes or more, but there are 20000",
    ),
];

#[test]
fn every_verb_refuses_one_from_a_directory() {
    for (name, bytes, text) in CUTS {
        let world = World::new();
        world.payload.resize(name, bytes);
        let dir = world.payload.dir().to_str().unwrap();
        Outcome::of(&mut installer(["checksum", dir])).exits(INPUT).says(&[text]);
        assert!(!world.payload.path("SHA256SUMS").exists());
        for listed in [false, true] {
            if listed {
                list(&world.payload);
            }
            Outcome::of(&mut installer(["inspect", &world.payload.source()])).exits(INPUT).says(&[text]);
            let image = world.image();
            refused(&image, INPUT, &[text], || world.install(&image, &[]));
            refused(&image, INPUT, &[text], || world.install(&image, &["--dry-run"]));
            for kind in ["raw", "iso", "pxe"] {
                let out = world.path("made");
                let args = ["image", "--kind", kind, "--out", out.to_str().unwrap(), "--source"];
                Outcome::of(installer(args).arg(world.payload.source())).exits(INPUT).says(&[text]);
                assert!(!out.exists());
            }
        }
    }
}

/// The slot that runs is not given up, the other is not touched.
#[test]
fn an_upgrade_to_one() {
    let world = World::new();
    let node = Node::installed(&world);
    for (name, bytes, text) in CUTS {
        let whole = node.next.read(name);
        node.next.resize(name, bytes);
        for listed in [false, true] {
            if listed {
                list(&node.next);
            }
            let before = Content::of(&node.disk);
            node.upgrade().exits(INPUT).says(&[text]);
            assert!(Content::of(&node.disk) == before);
        }
        node.next.write(name, whole);
        ["SHA256SUMS", "manifest.json"].iter().for_each(|name| node.next.remove(name));
    }
}

/// From an image whose checksums are believed it shows while it is written: nothing was committed. Where all of it is
/// read first, nothing is written.
#[test]
fn one_in_an_image() {
    for (name, bytes, text) in CUTS {
        let world = World::new();
        let text = text.split_once(": ").unwrap().1;
        world.payload.resize(name, bytes);
        list(&world.payload);
        let layout = Layout::new(&world.path("image"));
        built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
        let source = format!("--source={}", layout.source());
        let image = world.image();
        world.install(&image, &[&source]).exits(INSTALL).says(&[name, text]);
        let found = on_disk(&image, &["status"]);
        assert_eq!(found.code, INSTALL, "a disk without a table: {}", found.stdout);
        // A disk that holds something is not given up.
        let node = World::new();
        let disk = node.installed(&[]);
        refused(&disk, INPUT, &[name, text], || world.install(&disk, &[&source, "--force"]));
        assert_eq!(json_of(&disk, &["status"])["next_boot"]["slot"], "A");
        Outcome::of(&mut installer(["inspect", &layout.source()])).exits(INPUT).says(&[name, text]);
        let out = world.path("live.iso");
        let args = ["image", "--kind=iso", "--out", out.to_str().unwrap(), &source];
        Outcome::of(&mut installer(args)).exits(INPUT).says(&[name, text]);
        assert!(!out.exists());
    }
}

/// With a digest that is right for what is there: only the stream tells.
#[test]
fn gzip_shows_while_it_is_written() {
    let world = World::new();
    let whole = finished_bytes(program("gzip").arg("-c").write_stdin(cpio(&noise(8, 50_000))));
    world.payload.write(Payload::INITRAMFS, &whole[..40_000]);
    list(&world.payload);
    let image = world.image();
    let texts = ["initramfs.xz: cut off: by its gzip stream it has 40001 bytes or more, but there are 40000"];
    world.install(&image, &["--strict"]).exits(INSTALL).says(&texts);
    on_disk(&image, &["status"]).exits(INSTALL);
    let world = World::new();
    let node = Node::installed(&world);
    node.next.write(Payload::INITRAMFS, &whole[..40_000]);
    // Read to its end before anything is written, unless its checksums are believed.
    let before = Content::of(&node.disk);
    node.upgrade().exits(INPUT).says(&texts);
    assert!(Content::of(&node.disk) == before);
    list(&node.next);
    node.upgrade().exits(INSTALL).says(&texts);
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["next_boot"]["trial"]), (&json!("A"), &json!(false)));
    assert_eq!(status["slots"]["B"]["state"], "empty");
}

fn size_in(error: &Unbootable) -> Option<u64> {
    match error {
        Unbootable::Cut { needs, .. } => Some(*needs),
        _ => None,
    }
}

/// Of Debian's kernels, signed for Secure Boot, every byte: the signature is the last that their headers count.
#[test]
fn real_kernels() {
    for payload in ["payload", "payload-arm64", "payload-watchdog"] {
        let kernel = real_kernel(payload);
        let head = &kernel[..HEAD_BYTES as usize];
        let check = |size| check_head(Payload::KERNEL, head, size);
        assert!(check(kernel.len() as u64).is_ok(), "{payload}");
        assert_eq!(StubLack::find(head), None, "{payload}: Slipway's loader starts it");
        let mut needs = HEAD_BYTES;
        while let Err(cut) = check(needs) {
            needs = size_in(&cut).unwrap();
        }
        assert_eq!(needs, kernel.len() as u64, "{payload}");
        assert!(check(needs - 1).is_err(), "{payload}");
    }
}

#[test]
fn real_payloads() {
    for payload in ["payload", "payload-arm64", "payload-watchdog"] {
        let dir = project().join("out").join(payload);
        Outcome::of(&mut installer(["inspect", "--strict", &format!("dir:{}", dir.display())])).succeeds();
        let rootfs = fs::read(dir.join(Payload::ROOTFS)).unwrap();
        let check = |size| check_head(Payload::ROOTFS, &rootfs[..HEAD_BYTES as usize], size);
        let needs = size_in(&check(100).unwrap_err()).unwrap();
        assert!(check(needs - 1).is_err() && rootfs[needs as usize..].iter().all(|byte| *byte == 0), "{payload}");
        let initramfs = fs::read(dir.join(Payload::INITRAMFS)).unwrap();
        assert_eq!(verdict(&initramfs), Ok(()), "{payload}");
        for n in 1..200 {
            let at = initramfs.len() * n / 200;
            assert!(verdict(&initramfs[..at]).is_err(), "{payload}: cut at {at} of {}", initramfs.len());
        }
        assert!(verdict(&initramfs[..initramfs.len() - 1]).is_err(), "{payload}");
    }
}

fn verdict(bytes: &[u8]) -> Result<(), Unbootable> {
    let mut watch = InitramfsWatch::default();
    bytes.chunks(100_000).for_each(|piece| watch.see(piece));
    watch.finish()
}

fn piped(name: &str, args: &[&str], bytes: &[u8]) -> Vec<u8> {
    finished_bytes(program(name).args(args).write_stdin(bytes))
}

/// A directory with links, a device and empty files, as `cpio` packs it.
fn by_cpio(dir: &Path, format: &str) -> Vec<u8> {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/empty"), "").unwrap();
    // Both have names as long as that of the last entry.
    fs::write(dir.join("a/b/tenbytes"), noise(1, 300_001)).unwrap();
    fs::write(dir.join("TRAILER!!?"), noise(2, 77)).unwrap();
    std::os::unix::fs::symlink("b", dir.join("a/link")).unwrap();
    fs::hard_link(dir.join("a/b/tenbytes"), dir.join("a/other")).unwrap();
    let script = format!("find . | cpio --create --quiet --format={format}");
    finished_bytes(program("sh").current_dir(dir).args(["-c", &script]))
}

/// What the programs make by default, or with options that Linux' own decoders do not know.
#[test]
fn what_real_tools_make_and_linux_does_not_unpack() {
    let world = World::new();
    let archive = by_cpio(&world.path("root"), "newc");
    let two: &[&str] = &["--check=crc32", "--x86", "--delta=dist=4", "--lzma2=preset=1"];
    for args in [&[][..], &["--check=sha256"], two] {
        let bytes = piped("xz", &[&["--stdout"], args].concat(), &archive);
        assert!(matches!(verdict(&bytes), Err(Unbootable::NotUnpacked { .. })), "{args:?}: {:?}", verdict(&bytes));
    }
}

/// Whatever the tools make that make initramfs is whole; cut, it is not, where the format tells.
#[test]
fn what_real_tools_make() {
    let world = World::new();
    let archive = by_cpio(&world.path("root"), "newc");
    let crc = by_cpio(&world.path("again"), "crc");
    let xz = |args: &[&str]| piped("xz", &[&["--stdout"], args].concat(), &archive);
    let zstd = |args: &[&str]| piped("zstd", &[&["--stdout", "--quiet"], args].concat(), &archive);
    let mut exact = vec![
        ("cpio newc", archive.clone()),
        ("cpio crc", crc),
        ("xz as Debian and dracut call it", xz(&["--check=crc32"])),
        ("xz as the kernel's build calls it", xz(&["--check=crc32", "--lzma2=dict=1MiB"])),
        ("xz", xz(&["-9", "--check=crc32"])),
        ("xz in blocks", xz(&["--check=none", "--threads=2", "--block-size=50KiB"])),
        ("xz with a filter", xz(&["--check=crc32", "--x86", "--lzma2=preset=1"])),
        ("zstd", zstd(&[])),
        ("zstd -19 -T0", zstd(&["-19", "-T0"])),
        ("zstd -1 --no-check", zstd(&["-1", "--no-check", "--no-content-size"])),
        ("zstd --ultra --long", zstd(&["--ultra", "-22", "--long=27"])),
        ("gzip", piped("gzip", &["-9", "--no-name"], &archive)),
        ("gzip with a name", {
            fs::write(world.path("initramfs"), &archive).unwrap();
            finished_bytes(program("gzip").arg("--stdout").arg(world.path("initramfs")))
        }),
    ];
    // Microcode first, which the kernel reads before it can decompress anything.
    let early = [&by_cpio(&world.path("early"), "newc")[..], &[0; 512]].concat();
    let main = exact[8].1.clone();
    exact.push(("microcode and zstd", [&early[..], &main].concat()));
    for (name, bytes) in &exact {
        assert_eq!(verdict(bytes), Ok(()), "{name}");
        let padded = [bytes, &[0; 4096][..]].concat();
        assert_eq!(verdict(&padded), Ok(()), "{name}, padded");
        // `cpio` fills its archive up to a block with zeros.
        let last = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
        for n in 0..500 {
            let at = last * n / 500;
            let between = name.starts_with("microcode") && early[..at.min(early.len())].ends_with(b"TRAILER!!!\0");
            let zeros = at < early.len() + 2 && early[at.min(early.len())..].iter().all(|byte| *byte == 0);
            let may_end = name.starts_with("microcode") && (between || zeros);
            assert!(verdict(&bytes[..at]).is_err() || may_end, "{name}: cut at {at} of {}", bytes.len());
        }
        if !bytes.ends_with(&[0; 4]) {
            assert!(verdict(&bytes[..bytes.len() - 1]).is_err(), "{name}");
        }
    }
    for (name, bytes) in [
        ("lz4", piped("lz4", &["-l", "-9", "-c"], &archive)),
        ("bzip2", piped("bzip2", &["--stdout"], &archive)),
        ("lzma", piped("xz", &["--format=lzma", "--stdout"], &archive)),
    ] {
        assert_eq!(verdict(&bytes), Ok(()), "{name}");
        assert!(verdict(&bytes[..7]).is_err(), "{name}");
    }
    let lz4 = piped("lz4", &["-l", "-9", "-c"], &archive);
    assert!((0..lz4.len()).step_by(1000).skip(1).all(|at| verdict(&lz4[..at]).is_err()));
    let frame = piped("lz4", &["-9", "-c"], &archive);
    assert_eq!(verdict(&frame), Err(Unbootable::NotInitramfs), "Linux does not unpack this one");
}

/// What the tests themselves use for an initramfs is one.
#[test]
fn the_initramfs_of_these_tests() {
    let unpacked = piped("xz", &["--decompress", "--stdout"], &initramfs(b"content"));
    let names = String::from_utf8(piped("cpio", &["--list", "--quiet"], &unpacked)).unwrap();
    assert_eq!(names, "init\n");
}

/// hack/bench makes its own, and nothing else in the gate runs it.
#[test]
fn the_payload_of_the_benchmark_is_whole() {
    let world = World::new();
    let dir = world.path("payload");
    let make = "import sys; sys.path.insert(0, sys.argv[1]); import pathlib, sources; \
                sources.make_payload(pathlib.Path(sys.argv[2]), 22, sys.argv[3])";
    let bench = project().join("hack/bench.d");
    finished(program("python3").args(["-B", "-c", make]).args([&bench, &dir, &installer_path()]));
    assert!(dir.join("SHA256SUMS").exists());
}
