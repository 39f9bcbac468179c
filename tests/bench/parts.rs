//! The hot parts, one by one: `cargo bench --features bench --bench parts`. What they add up to is measured by `hack/bench`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "ends with its first error")]

mod fill;
mod image;

use std::{
    fs::{self, File},
    io::{self, Read, Write as _},
    path::Path,
    time::Duration,
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fill::fill;
use image::{Image, archive};
use slipway::{
    device::{Access, CHUNK_BYTES, Disk},
    transfer::{Checksum, sha256::Hasher},
};
use slipway_core::{digest::Sha256, kernel::arch::Arch};
use slipway_test_support::files;

/// What is read, decompressed and written in one round, bytes.
const BYTES: usize = 64 << 20;

const SLOT_BYTES: u64 = (BYTES as u64) + (16 << 20);
/// Room for two of them and everything else.
const DISK_BYTES: u64 = 2 * SLOT_BYTES + (600 << 20);

/// Bytes without a pattern, as kernels and squashfs are.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect()
}

fn hashing(c: &mut Criterion) {
    let chunk = noise(1, CHUNK_BYTES);
    let mut group = c.benchmark_group("hash");
    group.throughput(Throughput::Bytes(chunk.len() as u64));
    group.bench_function("a chunk of 1 MiB", |b| b.iter(|| Sha256::of(&chunk)));
    let both = |bytes: &[u8]| {
        let (mut layer, mut file) = (Hasher::default(), Hasher::default());
        Hasher::update_both(&mut layer, &mut file, bytes);
        (layer.finish(), file.finish())
    };
    group.bench_function("of a layer and a file, at once", |b| b.iter(|| both(&chunk)));
    group.bench_function("XXH3 of it", |b| b.iter(|| Checksum::of_bytes(&chunk)));
    group.finish();
}

fn gzipped(plain: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    gzip.write_all(plain).unwrap();
    gzip.finish().unwrap()
}

/// With the libraries that layers are read with.
fn decompressing(c: &mut Criterion) {
    let plain = noise(1, BYTES);
    let (gzip, zstd) = (gzipped(&plain), zstd::encode_all(&plain[..], 3).unwrap());
    let mut group = c.benchmark_group("decompress");
    group.throughput(Throughput::Bytes(BYTES as u64));
    let drain = |mut reader: &mut dyn Read| io::copy(&mut reader, &mut io::sink()).unwrap();
    group.bench_function("gzip", |b| b.iter(|| drain(&mut flate2::read::MultiGzDecoder::new(&gzip[..]))));
    group.bench_function("zstd", |b| b.iter(|| drain(&mut zstd::Decoder::new(&zstd[..]).unwrap())));
    group.finish();
}

const PAYLOAD_DIR: &str = "usr/install";

/// A payload with a squashfs of this many bytes, by path in an image.
fn payload(seed: u64, rootfs: usize) -> Vec<(String, Vec<u8>)> {
    let files = [
        ("vmlinuz", files::kernel(noise(seed, 1 << 20))),
        ("initramfs.xz", files::initramfs(&noise(seed, 1 << 20))),
        ("rootfs.squashfs", files::squashfs(noise(seed, rootfs))),
    ];
    files.map(|(name, bytes)| (format!("{PAYLOAD_DIR}/{}/{name}", Arch::Amd64), bytes)).into()
}

/// A whole layer: blob and its digest, decompression, diff_id, entries, digests of the files.
fn layers(c: &mut Criterion) {
    let files = payload(1, BYTES);
    let plain = archive(files.iter().map(|(path, bytes)| (path.clone(), &bytes[..])));
    let mut group = c.benchmark_group("layer");
    group.throughput(Throughput::Bytes(plain.len() as u64));
    let packed = [("", plain.clone()), ("+gzip", gzipped(&plain)), ("+zstd", zstd::encode_all(&plain[..], 3).unwrap())];
    for (packing, blob) in packed {
        let image = Image::new(&plain, blob, packing);
        group.bench_function(format!("tar{packing}"), |b| b.iter(|| image.look()));
    }
    group.finish();

    // Other people's files beside a small payload: what the entries cost themselves.
    const ENTRIES: usize = 20_000;
    let files = payload(1, 1 << 20);
    let small = (0..ENTRIES).map(|n| (format!("usr/share/{}/{n}", n % 100), &b"a few bytes"[..]));
    let plain = archive(small.chain(files.iter().map(|(path, bytes)| (path.clone(), &bytes[..]))));
    let image = Image::new(&plain, plain.clone(), "");
    let mut group = c.benchmark_group("entries");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    group.bench_function("small files", |b| b.iter(|| image.look()));
    group.finish();
}

/// Two payloads in turns, so that never what is to be written is there already; onto a file system with direct I/O and
/// one in memory without.
fn slots(c: &mut Criterion) {
    let mut group = c.benchmark_group("slot");
    group.throughput(Throughput::Bytes(BYTES as u64));
    for (name, dir) in [("disk", env!("CARGO_TARGET_TMPDIR")), ("tmpfs", "/dev/shm")] {
        let dir = tempfile::tempdir_in(Path::new(dir)).unwrap();
        let sources = [1, 2].map(|seed| {
            let payload_dir = dir.path().join(seed.to_string());
            fs::create_dir(&payload_dir).unwrap();
            for (path, bytes) in payload(seed, BYTES) {
                fs::write(payload_dir.join(path.rsplit('/').next().unwrap()), bytes).unwrap();
            }
            format!("dir:{}", payload_dir.display())
        });
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = Disk::open(&image, Access::Whole, None, Duration::ZERO).unwrap();
        for (what, read_back) in [("write", false), ("write and read back", true)] {
            let mut turn = sources.iter().cycle();
            // Blocks that are there already, as in a slot.
            let mut write = || fill(&disk, turn.next().unwrap(), SLOT_BYTES, read_back);
            write();
            group.bench_function(BenchmarkId::new(what, name), |b| b.iter(&mut write));
        }
    }
    group.finish();
}

criterion_group! {
    name = parts;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3));
    targets = hashing, decompressing, layers, slots
}
criterion_main!(parts);
