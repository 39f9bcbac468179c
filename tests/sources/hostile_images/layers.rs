//! Layers: compression, sizes, digests, whiteouts.

use super::*;

pub const ROWS: &[Row] = &[
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
    ("a zstd window of 2 GiB", INPUT, &["window of more than 128 MiB", "with a smaller one"], |c| {
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
    ("a flipped bit in the first header of a plain layer", INPUT, &["SHA-256"], |c| {
        c.spoiled(Pack::Plain, |l| l.blob[5] ^= 1);
    }),
    ("a layer that is not there", INPUT, &["although the image lists it", "push the image there again"], |c| {
        let layer = Layer::new(c.tar().end(), Pack::Gzip);
        let path = c.layout.path(layer.descriptor["digest"].as_str().unwrap());
        c.layers(vec![layer]);
        fs::remove_file(path).unwrap();
    }),
    ("a flipped bit in a layer below the checksums", INSTALL, &["SHA-256", "make the payload again"], |c| {
        let tar = c.tar().end();
        let checksums = layer(c.files, &CHECKSUM_FILES, Pack::Gzip);
        let mut below = Layer::new(tar, Pack::Plain);
        let at = below.blob.len() - 2000;
        below.blob[at] ^= 1;
        c.layers(vec![below, checksums]);
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
    ("a wrong diff_id of a plain layer", INPUT, &["its diff_id is not its digest"], |c| {
        c.spoiled(Pack::Plain, |l| l.diff_id = format!("sha256:{}", "0".repeat(64)));
    }),
    ("a media type nobody knows", INPUT, &["media type application/x-evil"], |c| {
        c.spoiled(Pack::Plain, |l| l.descriptor["mediaType"] = json!("application/x-evil"));
    }),
    ("a layer that is not to be distributed", INPUT, &["only distributable ones"], |c| {
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
