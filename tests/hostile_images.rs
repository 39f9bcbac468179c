//! Container images made to do harm, and damaged ones: each is refused, with the exit code and the words of its row, the
//! running slot boots next, the other is empty, and META is as it was.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod images;
mod world;

use std::{fs, io::Write as _, os::unix::fs::symlink, path::Path};

use flate2::{Compression, write::GzEncoder};
use images::{DIR, Image, Layer, Layout, Pack, SEALS, Tar, descriptor, dirs, files, layer};
use serde_json::json;
use slipway::model::{digest::Sha256, units::MIB};
use tar::EntryType;
use world::{Content, Outcome, World, boot::Node, installer, json_of, on_disk};

/// Exit codes: seen before the first write, or while the slot was written.
const INPUT: i32 = 2;
const INSTALL: i32 = 7;

/// What a case starts from.
struct Case<'w> {
    files: &'w [(String, Vec<u8>)],
    layout: Layout,
}

impl Case<'_> {
    /// All files of the payload and its seal.
    fn tar(&self) -> Tar {
        self.tar_without("")
    }

    fn tar_without(&self, name: &str) -> Tar {
        let rest = self.files.iter().filter(|(n, _)| n != name);
        rest.fold(dirs(), |tar, (name, bytes)| tar.file(&format!("{DIR}/{name}"), bytes))
    }

    /// One layer.
    fn image(&self, tar: Tar) {
        self.layers(vec![Layer::new(tar.end(), Pack::Gzip)]);
    }

    fn layers(&self, layers: Vec<Layer>) {
        Image::new(layers).write(&self.layout, "1");
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.files.iter().find(|(n, _)| n == name).unwrap().1
    }

    /// One layer, plain, with its blob or descriptor spoiled afterwards.
    fn spoiled(&self, pack: Pack, spoil: impl FnOnce(&mut Layer)) {
        let mut layer = Layer::new(self.tar().end(), pack);
        spoil(&mut layer);
        self.layers(vec![layer]);
    }

    /// The seal in a layer of its own, on one of the payload.
    fn sealed_apart(&self, edit: impl Fn(&str, &[u8]) -> Vec<u8>) {
        let edited: Vec<_> = self.files.iter().map(|(n, bytes)| (n.clone(), edit(n, bytes))).collect();
        let copied: Vec<_> = edited.iter().map(|(n, _)| n.as_str()).filter(|n| !SEALS.contains(n)).collect();
        self.layers(vec![layer(&edited, &copied, Pack::Gzip), layer(&edited, &SEALS, Pack::Gzip)]);
    }
}

type Make = fn(&Case);

/// Name, exit code, words of the refusal, how the image is made.
type Row = (&'static str, i32, &'static [&'static str], Make);

const KERNEL: &str = "usr/install/amd64/vmlinuz";

const TAR: &[Row] = &[
    ("a path that leaves the tree", INPUT, &["../../etc/x", "leaves the tree"], |c| {
        c.image(Tar::new().file("../../etc/x", b"x"));
    }),
    ("a path that leaves the tree in the middle", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().file("usr/install/../../../etc/x", b"x"));
    }),
    ("an absolute path", INPUT, &["absolute path"], |c| c.image(Tar::new().file("/usr/install/amd64/vmlinuz", b"x"))),
    ("a path that leaves the tree, in an extended header", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().pax(EntryType::XHeader, &[("path", "../x")]).file("x", b"x"));
    }),
    ("a path that leaves the tree, as a long name", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().entry("././@LongLink", EntryType::GNULongName, b"a/../../x\0").file("x", b"x"));
    }),
    ("a hard link out of the tree", INPUT, &["/etc/shadow", "absolute path"], |c| {
        c.image(Tar::new().link("etc/x", EntryType::Link, "/etc/shadow"));
    }),
    ("a hard link out of the tree, in an extended header", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().pax(EntryType::XHeader, &[("linkpath", "../x")]).link("etc/x", EntryType::Link, "y"));
    }),
    ("a hard link in place of the kernel", INPUT, &["vmlinuz\" is a hard link"], |c| {
        c.image(c.tar_without("vmlinuz").link(KERNEL, EntryType::Link, "etc/hostname"));
    }),
    ("a symbolic link in place of the kernel", INPUT, &["vmlinuz\" is a symbolic link"], |c| {
        c.image(c.tar_without("vmlinuz").link(KERNEL, EntryType::Symlink, "/dev/mem"));
    }),
    ("a symbolic link in place of the digests", INPUT, &["SHA256SUMS\" is a symbolic link"], |c| {
        c.image(c.tar_without("SHA256SUMS").link(&format!("{DIR}/SHA256SUMS"), EntryType::Symlink, "x"));
    }),
    ("a symbolic link in place of the directory", INPUT, &["amd64\" is a symbolic link"], |c| {
        c.image(Tar::new().dir("usr/").dir("usr/install/").link(DIR, EntryType::Symlink, "/etc"));
    }),
    ("a symbolic link above the directory", INPUT, &["usr\" is a symbolic link"], |c| {
        c.image(Tar::new().link("usr", EntryType::Symlink, "etc"));
    }),
    ("a file above the directory", INPUT, &["usr/install\" is a regular file"], |c| {
        c.image(Tar::new().file("usr/install", b"x"));
    }),
    ("a block device in place of the kernel", INPUT, &["vmlinuz\" is a device node"], |c| {
        c.image(c.tar_without("vmlinuz").link(KERNEL, EntryType::Block, ""));
    }),
    ("a character device in place of the squashfs", INPUT, &["rootfs.squashfs\" is a device node"], |c| {
        c.image(c.tar_without("rootfs.squashfs").link(&format!("{DIR}/rootfs.squashfs"), EntryType::Char, ""));
    }),
    ("a fifo in place of the initramfs", INPUT, &["initramfs.xz\" is a device node, fifo"], |c| {
        c.image(c.tar_without("initramfs.xz").link(&format!("{DIR}/initramfs.xz"), EntryType::Fifo, ""));
    }),
    ("a directory in place of the kernel", INPUT, &["lists a file that is not there: vmlinuz"], |c| {
        c.image(c.tar_without("vmlinuz").dir(KERNEL));
    }),
    ("a sparse file in GNU's old format", INPUT, &["sparse"], |c| {
        c.image(Tar::new().entry(KERNEL, EntryType::GNUSparse, b"x"));
    }),
    ("a sparse file in PAX format", INPUT, &["vmlinuz\" is a sparse file"], |c| {
        let sparse = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9000000000")];
        c.image(c.tar_without("vmlinuz").pax(EntryType::XHeader, &sparse).file(KERNEL, b"x"));
    }),
    ("an extended size that is not the header's", INPUT, &["another size than its header"], |c| {
        c.image(c.tar_without("vmlinuz").pax(EntryType::XHeader, &[("size", "5")]).file(KERNEL, b"x"));
    }),
    ("a global extended header with a path", INPUT, &["global extended header"], |c| {
        c.image(Tar::new().pax(EntryType::XGlobalHeader, &[("path", KERNEL)]).file("x", b"x"));
    }),
    ("two names in one extended header", INPUT, &["two names"], |c| {
        let names = [("path", "usr/install/amd64/other"), ("path", KERNEL)];
        c.image(c.tar_without("vmlinuz").pax(EntryType::XHeader, &names).file("x", c.bytes("vmlinuz")));
    }),
    ("a long name and another in an extended header", INPUT, &["two names"], |c| {
        let tar = c.tar_without("vmlinuz").entry("x", EntryType::GNULongName, b"usr/install/amd64/other\0");
        c.image(tar.pax(EntryType::XHeader, &[("path", KERNEL)]).file("x", c.bytes("vmlinuz")));
    }),
    ("a malformed extended header", INPUT, &["malformed extended header"], |c| {
        c.image(Tar::new().entry("x", EntryType::XHeader, b"99 path=x\n").file("x", b"x"));
    }),
    ("an extended header of 2 MiB", INPUT, &["extended header of 2097152 bytes"], |c| {
        c.image(Tar::new().entry("x", EntryType::XHeader, &vec![b'1'; 2 * MIB as usize]).file("x", b"x"));
    }),
    ("a name twice", INPUT, &["vmlinuz\" is there twice"], |c| c.image(c.tar().file(KERNEL, b"x"))),
    ("a name twice, spelled in another way", INPUT, &["vmlinuz\" is there twice"], |c| {
        c.image(c.tar().file("./usr//install/./amd64/vmlinuz", b"x"));
    }),
    ("a header that claims 8 EiB", INPUT, &["ends", "bytes before its content does"], |c| {
        c.image(c.tar_without("vmlinuz").header(KERNEL, EntryType::Regular, (8 << 60) - 1, ""));
    }),
    ("a header that claims 16 EiB", INPUT, &["claims 18446744073709551615 bytes"], |c| {
        c.image(Tar::new().header("etc/x", EntryType::Regular, u64::MAX, ""));
    }),
    ("a file after the payload that claims 8 EiB", INPUT, &["ends", "before the content of an entry does"], |c| {
        c.image(c.tar().header("z", EntryType::Regular, (8 << 60) - 1, "").content(b"x"));
    }),
    ("a header with a wrong checksum", INPUT, &["checksum"], |c| {
        let mut tar = Tar::new().file("etc/x", b"x");
        tar.0[100] ^= 1;
        c.image(tar);
    }),
    ("a header cut in the middle", INPUT, &["inside its header"], |c| {
        let mut tar = Tar::new().file("etc/x", b"x").0;
        tar.extend([1; 100]);
        c.layers(vec![Layer::new(tar, Pack::Gzip)]);
    }),
    ("no tar archive", INPUT, &["not a tar archive"], |c| {
        c.layers(vec![Layer::new(world::noise(1, 5000), Pack::Gzip)])
    }),
    ("a device with content", INPUT, &["with 512 bytes of content"], |c| {
        c.image(Tar::new().header("dev/x", EntryType::Char, 512, "").content(&[1; 512]));
    }),
    ("a path of 5000 bytes", INPUT, &["a path of 5000 bytes"], |c| {
        let path = "x".repeat(5000);
        c.image(Tar::new().pax(EntryType::XHeader, &[("path", path.as_str())]).file("x", b"x"));
    }),
    ("thousands of names that are whited out", INPUT, &["more than 1000 names that are whited out"], |c| {
        c.image((0..1100).fold(dirs(), |tar, n| tar.file(&format!("{DIR}/.wh.{n}"), b"")));
    }),
    ("a name that forges a line of the log", INPUT, &["x\\nerror: done"], |c| {
        c.image(Tar::new().link(&format!("{DIR}/x\nerror: done"), EntryType::Symlink, "x"));
    }),
    ("thousands of files beside the payload", INPUT, &["more than 1000 files"], |c| {
        let tar = (0..1100).fold(dirs(), |tar, n| tar.file(&format!("{DIR}/{n}"), b""));
        c.image(tar);
    }),
];

const LAYERS: &[Row] = &[
    ("a bomb: 200 MiB of zeros in 200 KiB of gzip", INPUT, &["out of all proportion"], |c| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let head = dirs().header(&format!("{DIR}/initramfs.xz"), EntryType::Regular, 1 << 40, "").0;
        encoder.write_all(&head).unwrap();
        (0..200).for_each(|_| encoder.write_all(&vec![0; MIB as usize]).unwrap());
        c.layers(vec![Layer::of(encoder.finish().unwrap(), b"", Pack::Gzip.media_type())]);
    }),
    ("a bomb: 1 GiB of zeros in zstd, behind the end of the archive", INPUT, &["out of all proportion"], |c| {
        let bomb = zstd::encode_all(std::io::Read::take(std::io::repeat(0), 1 << 30), 19).unwrap();
        let blob = [zstd::encode_all(&Tar::new().end()[..], 1).unwrap(), bomb].concat();
        c.layers(vec![Layer::of(blob, b"", Pack::Zstd.media_type())]);
    }),
    ("a zstd window of 2 GiB", INPUT, &["zstd data is damaged", "memory"], |c| {
        // Magic, a frame header that has no content size, its window descriptor (RFC 8878, 3.1.1.1.2), an empty last block.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (31 - 10) << 3, 1, 0, 0];
        c.layers(vec![Layer::of(frame.to_vec(), b"", Pack::Zstd.media_type())]);
    }),
    ("a layer longer than its descriptor", INPUT, &["longer than the"], |c| c.spoiled(Pack::Plain, |l| l.blob.push(0))),
    ("a layer shorter than its descriptor", INPUT, &["truncated"], |c| {
        c.spoiled(Pack::Plain, |l| l.blob.truncate(l.blob.len() - 1));
    }),
    ("a gzip layer cut in the middle", INPUT, &["truncated"], |c| {
        c.spoiled(Pack::Gzip, |l| l.blob.truncate(l.blob.len() / 2));
    }),
    ("gzip data that ends too early, with the digest of what is there", INPUT, &["gzip data is damaged"], |c| {
        let tar = c.tar().end();
        let mut blob = Pack::Gzip.pack(&tar);
        blob.truncate(blob.len() / 2);
        c.layers(vec![Layer::of(blob, &tar, Pack::Gzip.media_type())]);
    }),
    ("zstd data that ends too early, with the digest of what is there", INPUT, &["zstd data is damaged"], |c| {
        let tar = c.tar().end();
        let mut blob = Pack::Zstd.pack(&tar);
        blob.truncate(blob.len() / 2);
        c.layers(vec![Layer::of(blob, &tar, Pack::Zstd.media_type())]);
    }),
    ("something behind the gzip data", INPUT, &["gzip data is damaged or followed by something else"], |c| {
        let tar = c.tar().end();
        let blob = [Pack::Gzip.pack(&tar), b"trailing garbage".to_vec()].concat();
        c.layers(vec![Layer::of(blob, &tar, Pack::Gzip.media_type())]);
    }),
    ("something behind the zstd data", INPUT, &["zstd data is damaged or followed by something else"], |c| {
        let tar = c.tar().end();
        let blob = [Pack::Zstd.pack(&tar), b"trailing garbage".to_vec()].concat();
        c.layers(vec![Layer::of(blob, &tar, Pack::Zstd.media_type())]);
    }),
    ("a flipped bit in a plain layer", INPUT, &["SHA-256"], |c| {
        c.spoiled(Pack::Plain, |l| l.blob[5000] ^= 1);
    }),
    ("a flipped bit in a layer below the seal", INSTALL, &["SHA-256"], |c| {
        let tar = c.tar().end();
        let seal = layer(c.files, &SEALS, Pack::Gzip);
        let mut below = Layer::new(tar, Pack::Plain);
        let at = below.blob.len() - 2000;
        below.blob[at] ^= 1;
        c.layers(vec![below, seal]);
    }),
    ("another blob of the same size", INPUT, &["SHA-256"], |c| {
        c.spoiled(Pack::Plain, |l| {
            let last = l.blob.len() - 1;
            l.blob[last] = 1;
        });
    }),
    ("a wrong diff_id", INPUT, &["diff_id", "SHA-256"], |c| {
        c.spoiled(Pack::Gzip, |l| l.diff_id = format!("sha256:{}", "0".repeat(64)));
    }),
    ("a wrong diff_id of a plain layer", INPUT, &["diff_id is another one"], |c| {
        c.spoiled(Pack::Plain, |l| l.diff_id = format!("sha256:{}", "0".repeat(64)));
    }),
    ("gzip announced as zstd", INPUT, &["zstd data is damaged"], |c| {
        c.spoiled(Pack::Gzip, |l| l.descriptor["mediaType"] = json!(Pack::Zstd.media_type()));
    }),
    ("a media type nobody knows", INPUT, &["media type application/x-evil"], |c| {
        c.spoiled(Pack::Plain, |l| l.descriptor["mediaType"] = json!("application/x-evil"));
    }),
    ("a layer that is not to be distributed", INPUT, &["not to be distributed"], |c| {
        let media_type = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
        c.spoiled(Pack::Gzip, |l| l.descriptor["mediaType"] = json!(media_type));
    }),
    ("a digest that is a path", INPUT, &["Invalid encoded value ../../../../etc/passwd"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Plain)]);
        image.edit_manifest = |m| m["layers"][0]["digest"] = json!("sha256:../../../../etc/passwd");
        image.write(&c.layout, "1");
    }),
    ("SHA-512", INPUT, &["only SHA-256"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Plain)]);
        image.edit_manifest = |m| m["layers"][0]["digest"] = json!(format!("sha512:{}", "0".repeat(128)));
        image.write(&c.layout, "1");
    }),
    ("a blob that is a link to a device", INPUT, &["not a regular file"], |c| {
        let layer = Layer::new(c.tar().end(), Pack::Plain);
        let path = c.layout.path(layer.descriptor["digest"].as_str().unwrap());
        c.layers(vec![layer]);
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
    }),
];

const DOCUMENTS: &[Row] = &[
    ("an index of indexes", INPUT, &["an index inside an index"], |c| {
        let inner = Image::new(vec![]).write_blobs(&c.layout);
        let inner = c.layout.nested(&[(&inner, "amd64")]);
        c.layout.tag("1", &c.layout.nested(&[(&inner, "amd64")]));
    }),
    ("an index that names itself", INPUT, &["SHA-256"], |c| {
        // Its own digest cannot stand in it: what it names is not what is there.
        let own = format!("sha256:{}", Sha256::of(b"loop"));
        let entry = json!({"mediaType": images::INDEX, "digest": own, "size": 300});
        let index =
            json!({"schemaVersion": 2, "mediaType": images::INDEX, "manifests": [entry], "pad": "x".repeat(300)});
        let mut bytes = index.to_string().into_bytes();
        bytes.truncate(300);
        c.layout.blob_as(&own, &bytes);
        c.layout.tag("1", &entry_of(&own));
    }),
    ("no image for this platform", INPUT, &["no image for linux/amd64", "linux/arm64"], |c| {
        let image = Image::new(vec![]).write_blobs(&c.layout);
        c.layout.tag("1", &c.layout.nested(&[(&image, "arm64")]));
    }),
    ("an image for another platform", INPUT, &["is for linux/arm64, not for linux/amd64"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.arch = "arm64";
        image.write(&c.layout, "1");
    }),
    ("an image for another system", INPUT, &["is for windows/amd64"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.os = "windows";
        image.write(&c.layout, "1");
    }),
    ("an index.json of 100 MiB", INPUT, &["index.json", "larger than 4 MiB"], |c| {
        fs::write(c.layout.0.join("index.json"), vec![b' '; 100 << 20]).unwrap();
    }),
    ("a manifest of 100 MiB", INPUT, &["larger than 4 MiB"], |c| {
        let bytes = vec![b'['; 100 << 20];
        c.layout.blob(&bytes);
        c.layout.tag("1", &descriptor(images::MANIFEST, &bytes));
    }),
    ("a configuration of 100 MiB", INPUT, &["larger than 4 MiB"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.edit_config = |config| config["author"] = json!("x".repeat(100 << 20));
        image.write(&c.layout, "1");
    }),
    ("a manifest nested ten thousand deep", INPUT, &["not what the image specification says"], |c| {
        let bytes = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
        c.layout.blob(&bytes);
        c.layout.tag("1", &descriptor(images::MANIFEST, &bytes));
    }),
    ("both an index and a manifest", INPUT, &["both an index and a manifest"], |c| {
        let mut image = Image::new(vec![]);
        image.edit_manifest = |m| m["manifests"] = json!([]);
        image.write(&c.layout, "1");
    }),
    ("a manifest announced as an index", INPUT, &["was announced as"], |c| {
        let mut descriptor = Image::new(vec![]).write_blobs(&c.layout);
        descriptor["mediaType"] = json!(images::INDEX);
        c.layout.tag("1", &descriptor);
    }),
    ("a configuration with a diff_id too many", INPUT, &["2 diff_ids for 1 layers"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.edit_config = |config| config["rootfs"]["diff_ids"].as_array_mut().unwrap().push(json!("sha256:0"));
        image.write(&c.layout, "1");
    }),
    ("a configuration that is another one", INPUT, &["configuration sha256:", "SHA-256 of its content"], |c| {
        let descriptor = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]).write(&c.layout, "1");
        let config = config_of(&c.layout, &descriptor);
        let size = config["size"].as_u64().unwrap() as usize;
        c.layout.blob_as(config["digest"].as_str().unwrap(), &vec![b'x'; size]);
    }),
    ("a layout of the future", INPUT, &["layout version \"9.0.0\""], |c| {
        fs::write(c.layout.0.join("oci-layout"), r#"{"imageLayoutVersion":"9.0.0"}"#).unwrap();
    }),
];

const SEAL: &[Row] = &[
    ("a wrong digest in SHA256SUMS", INPUT, &["vmlinuz: SHA-256 is"], |c| {
        c.sealed_apart(|name, bytes| match name {
            "SHA256SUMS" => replaced(bytes, "vmlinuz"),
            _ => bytes.to_vec(),
        });
    }),
    ("a file that is not the one that was sealed", INSTALL, &["rootfs.squashfs", "SHA-256 of what was read"], |c| {
        c.sealed_apart(|name, bytes| match name {
            "rootfs.squashfs" => [&bytes[..bytes.len() - 1], &[!bytes[bytes.len() - 1]]].concat(),
            _ => bytes.to_vec(),
        });
    }),
    ("a file that is longer than the one that was sealed", INSTALL, &["bytes in its layer, not the"], |c| {
        c.sealed_apart(|name, bytes| if name == "vmlinuz" { [bytes, &[0]].concat() } else { bytes.to_vec() });
    }),
    ("a manifest that is not the one that was sealed", INPUT, &["manifest.json: SHA-256 is"], |c| {
        c.sealed_apart(|name, bytes| if name == "manifest.json" { [bytes, b"\n"].concat() } else { bytes.to_vec() });
    }),
    ("a SHA256SUMS that names a file elsewhere", INPUT, &["not a plain file name"], |c| {
        c.sealed_apart(|name, bytes| match name {
            "SHA256SUMS" => [bytes, format!("{}  ../../etc/passwd\n", "0".repeat(64)).as_bytes()].concat(),
            _ => bytes.to_vec(),
        });
    }),
    ("a SHA256SUMS of 10 MiB", INPUT, &["SHA256SUMS: larger than 64 KiB"], |c| {
        c.sealed_apart(|name, bytes| if name == "SHA256SUMS" { vec![b'0'; 10 << 20] } else { bytes.to_vec() });
    }),
    ("a cmdline that is not sealed", INPUT, &["does not list cmdline"], |c| {
        let cmdline = Layer::new(dirs().file(&format!("{DIR}/cmdline"), b"init=/bin/sh").end(), Pack::Gzip);
        c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), cmdline]);
    }),
    ("a manifest with a file of 8 EiB", INPUT, &["slot"], |c| {
        resealed(c, |m| m["files"][0]["size"] = json!(8_u64 << 60));
    }),
    ("a manifest with other files", INPUT, &["not those of a payload"], |c| {
        resealed(c, |m| m["files"][1]["name"] = json!("../../x"));
    }),
    ("a manifest without files", INPUT, &["not those of a payload"], |c| resealed(c, |m| m["files"] = json!([]))),
    ("a kernel that is not the sealed one, above the seal", INPUT, &["vmlinuz: SHA-256 is"], |c| {
        let kernel = Layer::new(dirs().file(KERNEL, b"another kernel").end(), Pack::Gzip);
        c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), kernel]);
    }),
    ("a squashfs that is not sealed, above the seal", INPUT, &["does not list rootfs.squashfs"], |c| {
        let squashfs = Layer::new(dirs().file(&format!("{DIR}/rootfs.squashfs"), b"hsqs").end(), Pack::Gzip);
        let below = Layer::new(without(c, "rootfs.squashfs"), Pack::Gzip);
        c.layers(vec![below, squashfs]);
    }),
    ("an initramfs that is not sealed, below the seal", INSTALL, &["does not list initramfs.gz"], |c| {
        let copied: Vec<_> = c.files.iter().map(|(n, _)| n.as_str()).filter(|n| !SEALS.contains(n)).collect();
        let with_it = dirs().file(&format!("{DIR}/initramfs.gz"), b"x");
        let files = c.files.iter().filter(|(n, _)| copied.contains(&n.as_str()));
        let tar = files.fold(with_it, |tar, (n, bytes)| tar.file(&format!("{DIR}/{n}"), bytes));
        c.layers(vec![Layer::new(tar.end(), Pack::Gzip), layer(c.files, &SEALS, Pack::Gzip)]);
    }),
    ("a file that was sealed and is whited out", INPUT, &["lists a file that is not there: os-release"], |c| {
        let gone = Layer::new(dirs().file(&format!("{DIR}/.wh.os-release"), b"").end(), Pack::Gzip);
        c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), gone]);
    }),
    ("a kernel that is none, sealed by other means", INSTALL, &["not a Linux kernel"], |c| {
        forged(c, "vmlinuz", b"no kernel at all");
    }),
    ("a squashfs that is none, sealed by other means", INSTALL, &["not a squashfs"], |c| {
        forged(c, "rootfs.squashfs", b"no squashfs at all");
    }),
    ("a manifest of the future", INPUT, &["format 2"], |c| resealed(c, |m| m["format"] = json!(2))),
    ("a manifest for another architecture", INPUT, &["arm64"], |c| resealed(c, |m| m["arch"] = json!("arm64"))),
    ("a command line that GRUB would run", INPUT, &["quotes inside a word"], |c| {
        resealed(c, |m| m["cmdline"] = json!("quiet x='; halt; '"));
    }),
];

fn entry_of(digest: &str) -> serde_json::Value {
    json!({"mediaType": images::INDEX, "digest": digest, "size": 300})
}

/// The descriptor of an image's configuration.
fn config_of(layout: &Layout, manifest: &serde_json::Value) -> serde_json::Value {
    let bytes = fs::read(layout.path(manifest["digest"].as_str().unwrap())).unwrap();
    serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["config"].clone()
}

/// The list with a zero digest for one file.
fn replaced(sums: &[u8], name: &str) -> Vec<u8> {
    let text = std::str::from_utf8(sums).unwrap();
    let line = |l: &str| if l.ends_with(name) { format!("{}  {name}\n", "0".repeat(64)) } else { format!("{l}\n") };
    text.lines().map(line).collect::<String>().into_bytes()
}

/// A seal whose digests are right, around a manifest that was edited.
fn resealed(c: &Case, edit: impl Fn(&mut serde_json::Value)) {
    let mut manifest: serde_json::Value = serde_json::from_slice(c.bytes("manifest.json")).unwrap();
    edit(&mut manifest);
    let manifest = manifest.to_string().into_bytes();
    let sums = std::str::from_utf8(c.bytes("SHA256SUMS")).unwrap();
    let kept = sums.lines().filter(|l| !l.ends_with("manifest.json")).map(|l| format!("{l}\n"));
    let sums = kept.chain([format!("{}  manifest.json\n", Sha256::of(&manifest))]).collect::<String>();
    // A renamed file is listed under its new name, too.
    let sums = sums + &format!("{}  x\n", Sha256::of(c.bytes("initramfs.xz")));
    let seal =
        dirs().file(&format!("{DIR}/SHA256SUMS"), sums.as_bytes()).file(&format!("{DIR}/manifest.json"), &manifest);
    c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), Layer::new(seal.end(), Pack::Gzip)]);
}

/// A payload without one of its files, sealed: a tar archive.
fn without(c: &Case, name: &str) -> Vec<u8> {
    let mut manifest: serde_json::Value = serde_json::from_slice(c.bytes("manifest.json")).unwrap();
    manifest["files"].as_array_mut().unwrap().retain(|f| f["name"] != name);
    let manifest = manifest.to_string().into_bytes();
    let kept = c.files.iter().filter(|(n, _)| n != name && !SEALS.contains(&n.as_str()));
    let sums = kept.clone().map(|(n, bytes)| format!("{}  {n}\n", Sha256::of(bytes)));
    let sums = sums.chain([format!("{}  manifest.json\n", Sha256::of(&manifest))]).collect::<String>();
    let tar = kept.fold(dirs(), |tar, (n, bytes)| tar.file(&format!("{DIR}/{n}"), bytes));
    tar.file(&format!("{DIR}/SHA256SUMS"), sums.as_bytes()).file(&format!("{DIR}/manifest.json"), &manifest).end()
}

/// The seal that somebody wrote who does not look into the files: one of them is something else.
fn forged(c: &Case, name: &str, bytes: &[u8]) {
    let mut manifest: serde_json::Value = serde_json::from_slice(c.bytes("manifest.json")).unwrap();
    for file in manifest["files"].as_array_mut().unwrap().iter_mut().filter(|f| f["name"] == name) {
        (file["size"], file["sha256"]) = (json!(bytes.len()), json!(Sha256::of(bytes).to_string()));
    }
    let manifest = manifest.to_string().into_bytes();
    let edited = c.files.iter().filter(|(n, _)| !SEALS.contains(&n.as_str()));
    let edited: Vec<_> = edited.map(|(n, old)| (n, if n == name { bytes } else { old })).collect();
    let sums = edited.iter().map(|(n, bytes)| format!("{}  {n}\n", Sha256::of(bytes)));
    let sums = sums.chain([format!("{}  manifest.json\n", Sha256::of(&manifest))]).collect::<String>();
    let tar = edited.iter().fold(dirs(), |tar, (n, bytes)| tar.file(&format!("{DIR}/{n}"), bytes));
    let seal =
        dirs().file(&format!("{DIR}/SHA256SUMS"), sums.as_bytes()).file(&format!("{DIR}/manifest.json"), &manifest);
    c.layers(vec![Layer::new(tar.end(), Pack::Gzip), Layer::new(seal.end(), Pack::Gzip)]);
}

/// Run an upgrade from every image of a table.
#[track_caller]
fn all_refused(table: &[Row]) {
    let world = World::new();
    let node = Node::installed(&world);
    Outcome::of(&mut installer(["seal", node.next.dir().to_str().unwrap(), "--progress=none"])).succeeds();
    let files = files(node.next.dir());
    let mut wrong = Vec::new();
    for (n, (name, code, words, make)) in table.iter().enumerate() {
        let case = Case { files: &files, layout: Layout::new(&world.path(&format!("layout-{n}"))) };
        make(&case);
        let before = Content::of(&node.disk);
        let outcome = node.run('A', false, &["upgrade", "--progress=none", "--source", &case.layout.source()]);
        let missing: Vec<_> = words.iter().filter(|w| !outcome.stderr.contains(**w)).collect();
        if outcome.code != *code || !missing.is_empty() {
            wrong.push(format!(
                "{name}: exit code {} (not {code}), without {missing:?}: {}",
                outcome.code, outcome.stderr
            ));
        }
        if outcome.code == INPUT && Content::of(&node.disk) != before {
            wrong.push(format!("{name}: written to"));
        }
        wrong.extend(harm(&node.disk).map(|harm| format!("{name}: {harm}")));
        fs::remove_dir_all(&case.layout.0).unwrap();
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

/// What must hold whatever the image was.
fn harm(disk: &Path) -> Option<String> {
    let status = json_of(disk, &["status"]);
    let next = &status["next_boot"];
    if (&next["slot"], &next["trial"]) != (&json!("A"), &json!(false)) {
        return Some(format!("the next boot is {next}"));
    }
    if status["slots"]["B"]["state"] != "empty" || status["meta"] != json!({}) {
        return Some(format!("slot B or META: {status}"));
    }
    let verify = on_disk(disk, &["verify", "--progress=none"]);
    (!verify.stdout.contains("slot A")).then(|| format!("verify says {}", verify.stdout))
}

#[test]
fn hostile_archives() {
    all_refused(TAR);
}

#[test]
fn hostile_layers() {
    all_refused(LAYERS);
}

#[test]
fn hostile_documents() {
    all_refused(DOCUMENTS);
}

#[test]
fn hostile_seals() {
    all_refused(SEAL);
}
