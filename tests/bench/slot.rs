//! What `hack/bench` times that no verb of `installer` does alone, on the public interface: a slot written without being
//! read back, which no user can ask for, and the limits of the machine.
//!
//! ```text
//! slot write DISK SOURCE SLOT_BYTES [--read-back]   into slot A, as `install` does it, up to the last flush
//! slot sha256 FILE                                  one pass over the bytes, in memory: prints the seconds
//! slot gunzip FILE                                  one pass of the library that layers are read with
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "ends with its first error")]

#[path = "../common/mod.rs"]
mod common;

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
    execute::{self, Sources},
    model::{digest::Sha256, layout::Part, manifest::Arch},
    payload::{Source, SourceRef, Sums, image::Look, registry::Options},
    plan::{self, InstallRequest, Step},
    probe,
};

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

/// The steps of an install that fill slot A, and no others.
fn write(disk: &str, source: &str, slot_bytes: u64, read_back: bool) {
    let disk = Disk::open(Path::new(disk), Access::Write, None, Duration::from_secs(10)).unwrap();
    let named: SourceRef = source.parse().unwrap();
    let mut source = Source::open(&named, Arch::Amd64, &Options::default()).unwrap();
    let payload = source.facts(Sums::Compared, Look::Declared, &mut |_| ()).unwrap();
    let assets = common::assets();
    let request = InstallRequest { slot_bytes, format_data: false, ..common::request(1) };
    let facts = probe::disk_facts(&disk).unwrap();
    let mut plan = plan::install(&request, &facts, &payload, &probe::asset_facts(&assets, request.arch)).unwrap();
    plan.steps.retain(|step| match step {
        Step::WriteVolume { part, .. } => *part == Part::BootA,
        Step::Verify { part, .. } => *part == Part::BootA && read_back,
        _ => false,
    });
    assert_eq!(plan.steps.len(), 1 + usize::from(read_back), "the plan writes and verifies a slot in other steps");
    execute::run(&plan, &disk, Sources { payload: Some(&source), assets: Some(&assets) }, &mut common::Silent).unwrap();
}
