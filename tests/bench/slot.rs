//! What `hack/bench` times that no verb of `installer` does alone, on the public interface: a slot written without being
//! read back, which no user can ask for, and the limits of the machine.
//!
//! ```text
//! slot write DISK SOURCE SLOT_BYTES [--read-back]   into slot A, as `install` does it, up to the last flush
//! slot sha256 FILE                                  one pass over the bytes, in memory: prints the seconds
//! slot sha256-twice FILE                            two digests of the same bytes, as of a file in a layer
//! slot gunzip FILE, slot unzstd FILE                one pass of the library that layers are read with
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "ends with its first error")]

mod fill;

use std::{
    env,
    fs::{self, File},
    hint::black_box,
    io,
    path::Path,
    time::{Duration, Instant},
};

use slipway::{
    device::{Access, Disk},
    transfer::sha256::Hasher,
};
use slipway_core::digest::Sha256;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", disk, source, bytes] => write(disk, source, bytes.parse().unwrap(), false),
        ["write", disk, source, bytes, "--read-back"] => write(disk, source, bytes.parse().unwrap(), true),
        ["sha256", file] => in_memory(file, |bytes| {
            black_box(Sha256::of(bytes));
        }),
        ["sha256-twice", file] => in_memory(file, |bytes| {
            let (mut one, mut other) = (Hasher::default(), Hasher::default());
            Hasher::update_both(&mut one, &mut other, bytes);
            black_box((one.finish(), other.finish()));
        }),
        ["gunzip", file] => to_nowhere(flate2::read::MultiGzDecoder::new(File::open(file).unwrap())),
        ["unzstd", file] => to_nowhere(zstd::Decoder::new(File::open(file).unwrap()).unwrap()),
        _ => panic!("usage: see the head of tests/bench/slot.rs"),
    }
}

/// Prints how many seconds it takes.
fn in_memory(file: &str, work: impl FnOnce(&[u8])) {
    let bytes = fs::read(file).unwrap();
    let begun = Instant::now();
    work(&bytes);
    println!("{}", begun.elapsed().as_secs_f64());
}

fn to_nowhere(mut reader: impl io::Read) {
    io::copy(&mut reader, &mut io::sink()).unwrap();
}

fn write(disk: &str, source: &str, slot_bytes: u64, read_back: bool) {
    let disk = Disk::open(Path::new(disk), Access::Write, None, Duration::from_secs(10)).unwrap();
    fill::fill(&disk, source, slot_bytes, read_back);
}
