//! What `hack/bench` times that no verb of `installer` does alone, on the public interface: a slot written without being
//! read back, which no user can ask for, and the limits of the machine.
//!
//! ```text
//! slot write DISK SOURCE SLOT_BYTES [--read-back]   into slot A, as `install` does it, up to the last flush
//! slot sha256 FILE                                  one pass over the bytes, in memory: prints the seconds
//! slot gunzip FILE                                  one pass of the library that layers are read with
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

use slipway::device::{Access, Disk};
use slipway_core::digest::Sha256;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", disk, source, bytes] => write(disk, source, bytes.parse().unwrap(), false),
        ["write", disk, source, bytes, "--read-back"] => write(disk, source, bytes.parse().unwrap(), true),
        ["sha256", file] => {
            let bytes = fs::read(file).unwrap();
            let begun = Instant::now();
            black_box(Sha256::of(&bytes));
            println!("{}", begun.elapsed().as_secs_f64());
        }
        ["gunzip", file] => {
            io::copy(&mut flate2::read::MultiGzDecoder::new(File::open(file).unwrap()), &mut io::sink()).unwrap();
        }
        _ => panic!("usage: see the head of tests/bench/slot.rs"),
    }
}

fn write(disk: &str, source: &str, slot_bytes: u64, read_back: bool) {
    let disk = Disk::open(Path::new(disk), Access::Write, None, Duration::from_secs(10)).unwrap();
    fill::fill(&disk, source, slot_bytes, read_back);
}
