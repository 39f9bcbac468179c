//! The bodies of the fuzz targets on their seeds, and on what a small deterministic mutator makes of these.
//!
//! `SLIPWAY_FUZZ_CASES` sets how many mutants each target gets (default 500); `hack/fuzz` runs the same bodies under
//! libFuzzer, which sees what it has covered.

#[path = "../fuzz/src/lib.rs"]
mod bodies;

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

/// Mutants of each target.
const CASES: usize = 500;
/// Most bytes a mutant has.
const MAX_BYTES: usize = 32 << 10;

fn seeds_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds")
}

/// The seeds of a target, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = seeds_dir().join(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())).map(Result::unwrap);
    let mut seeds: Vec<_> =
        entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} is empty", dir.display());
    seeds
}

fn cases() -> usize {
    let text = std::env::var("SLIPWAY_FUZZ_CASES").unwrap_or_else(|_| CASES.to_string());
    text.parse().unwrap_or_else(|e| panic!("SLIPWAY_FUZZ_CASES={text}: {e}"))
}

/// Numbers that look random and are the same on each run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `end`; 0 where there is nothing below.
    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }
}

/// Bytes that mean something in one format or another.
const BYTES: &[u8] = b"\0\x01\x7f\x80\xa0\xff \n\r\t\"'\\/.:=-#$@{}[],0179azAZ";

/// A mutant of a seed: one to eight changes.
fn mutate(seed: &[u8], others: &[(String, Vec<u8>)], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(8) {
        let at = numbers.below(bytes.len() + 1);
        let len = numbers.below(32).min(bytes.len() - at);
        match numbers.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < bytes.len() => bytes[at] = BYTES[numbers.below(BYTES.len())],
            2 => bytes.insert(at, BYTES[numbers.below(BYTES.len())]),
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let copy = bytes[at..at + len].to_vec();
                let to = numbers.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            5 => {
                let other = &others[numbers.below(others.len())].1;
                let from = numbers.below(other.len() + 1);
                let piece = &other[from..other.len().min(from + 1 + numbers.below(64))];
                bytes.splice(at..at + len, piece.iter().copied());
            }
            _ if numbers.below(8) == 0 => bytes.truncate(at),
            _ => {}
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

fn run(target: &str) {
    let body = bodies::body(target);
    let seeds = seeds(target);
    // A seed that is refused by mistake reaches nothing: each says by its name which it is.
    let mut misnamed = Vec::new();
    for (name, bytes) in &seeds {
        let accepted = catch_unwind(|| body(bytes)).unwrap_or_else(|_| panic!("target {target}, seed {name}"));
        if accepted == name.starts_with("refused-") {
            misnamed.push(name);
        }
    }
    assert!(misnamed.is_empty(), "target {target}: accepted, or refused, as their names do not say: {misnamed:?}");
    let mut numbers = Numbers(0x5119_7a11);
    for n in 0..cases() {
        let bytes = mutate(&seeds[numbers.below(seeds.len())].1, &seeds, &mut numbers);
        if catch_unwind(AssertUnwindSafe(|| body(&bytes))).is_err() {
            let file = std::env::temp_dir().join(format!("slipway-fuzz-{target}-{n}"));
            fs::write(&file, &bytes).unwrap();
            panic!("target {target}, mutant {n}: kept in {}", file.display());
        }
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
    };
}

targets! { oci layer sums manifest adv bootenv gpt cmdline config profile image_ref running signature pe auth chunks fat history initramfs }

/// No target is left out: by this file, by the fuzzer's list of programs, by the seeds, by the campaign.
#[test]
fn every_target_is_run() {
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    let all = names(&bodies::TARGETS.map(|(name, _)| name));
    assert_eq!(names(TESTED), all);
    let programs = fs::read_dir(seeds_dir().parent().unwrap().join("fuzz_targets")).unwrap();
    let stem = |e: fs::DirEntry| e.path().file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(programs.map(|e| stem(e.unwrap())).collect::<BTreeSet<_>>(), all);
    let seeded = fs::read_dir(seeds_dir()).unwrap();
    assert_eq!(seeded.map(|e| stem(e.unwrap())).collect::<BTreeSet<_>>(), all);
    let campaign = include_str!("../../hack/campaign.toml");
    let stories = campaign.lines().filter_map(|line| line.strip_prefix("name = \"fuzz::")?.strip_suffix('"'));
    assert_eq!(stories.map(str::to_owned).collect::<BTreeSet<_>>(), all);
}

/// The mutator makes the same of the same, and hardly ever nothing.
#[test]
fn mutants_are_the_same_on_each_run() {
    let seeds = [("a".to_owned(), b"slipway.slot=A".to_vec()), ("b".to_owned(), vec![7; 300])];
    let make = || {
        let mut numbers = Numbers(1);
        (0..200).map(|_| mutate(&seeds[0].1, &seeds, &mut numbers)).collect::<Vec<_>>()
    };
    assert_eq!(make(), make());
    assert!(make().into_iter().collect::<BTreeSet<_>>().len() > 100);
}
