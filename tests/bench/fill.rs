//! A slot filled as an install fills it, on the public interface, with or without being read back.

use slipway::{
    device::{BlockIo as _, Disk},
    execute::{self, Sources},
    payload::{ChecksumPolicy, Source, SourceRef, image::Inspection, registry::Options},
    probe,
};
use slipway_core::{
    disk::layout::Part,
    kernel::arch::Arch,
    plan::{self, InstallRequest, Step},
};
use slipway_test_support::fixtures;

/// The steps of an install that fill slot A, and no others; flushed.
pub fn fill(disk: &Disk, source: &str, slot_bytes: u64, read_back: bool) {
    let named: SourceRef = source.parse().unwrap();
    let mut source = Source::open(&named, Arch::Amd64, &Options::default()).unwrap();
    let payload = source.facts(ChecksumPolicy::Compared, Inspection::Declared, &mut |_| ()).unwrap();
    let assets = fixtures::assets();
    let request = InstallRequest { slot_bytes, format_data: false, ..fixtures::request(1) };
    let facts = probe::disk_facts(disk).unwrap();
    let mut plan = plan::install(&request, &facts, &payload, &probe::asset_facts(&assets, request.arch)).unwrap();
    plan.steps.retain(|step| match step {
        Step::WriteVolume { part, .. } => *part == Part::BootA,
        Step::Verify { part, .. } => *part == Part::BootA && read_back,
        _ => false,
    });
    assert_eq!(plan.steps.len(), 1 + usize::from(read_back), "the plan writes and verifies a slot in other steps");
    execute::run(
        &plan,
        disk,
        Sources { payload: Some(&source), assets: Some(&assets), ..Sources::default() },
        &mut fixtures::Silent,
    )
    .unwrap();
    disk.sync().unwrap();
}
