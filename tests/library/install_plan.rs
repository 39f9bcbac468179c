//! The plan of an install: its text (golden files; `SLIPWAY_UPDATE_GOLDEN=1` rewrites them) and the laws
//! that hold for every request and every disk.

use proptest::prelude::*;
use slipway_core::payload::facts::PayloadFacts;
use slipway_core::{
    boot::EfiLoader,
    digest::Sha256,
    disk::{
        identity::{DiskIdentity, DiskKind, DiskUse},
        layout::Part,
    },
    kernel::arch::Arch,
    payload::manifest::{FileInfo, KernelArgs},
    plan::{self, AssetFacts, BiosFacts, Content, DiskFacts, Found, InstallRequest, Plan, Refusal, Step},
    units::{Extent, GIB, MIB, SectorSize},
};
use slipway_test_support::{assert_golden, fixtures};

fn file(name: &str, size: u64) -> FileInfo {
    FileInfo { name: name.to_owned(), size, sha256: Sha256::of(name.as_bytes()) }
}

fn payload_facts(kernel: u64, initramfs: u64, rootfs: u64) -> PayloadFacts {
    PayloadFacts {
        source: "dir:/payload".parse().unwrap(),
        arch: Arch::Amd64,
        version: Some("1.2.3".to_owned()),
        epoch: 0,
        components: Default::default(),
        files: vec![file("vmlinuz", kernel), file("initramfs.xz", initramfs), file("rootfs.squashfs", rootfs)],
        unified: None,
        stub_lack: None,
        unconfirmed: vec![],
        lacks_init: None,
        cmdline: Some("console=ttyS0 quiet".to_owned()),
        checksums: true,
        image: None,
        signed_by: vec![],
    }
}

fn disk(bytes: u64, sector: SectorSize, kind: DiskKind) -> DiskFacts {
    let identity = DiskIdentity { path: "/dev/sda".to_owned(), kind, model: None, serial: None, wwid: None };
    DiskFacts { identity, bytes, sector, busy: vec![], found: Found::Nothing }
}

fn assets() -> AssetFacts {
    let bios = BiosFacts { boot_code: Sha256::of(b"boot code"), core: file("core.img", 182_000) };
    AssetFacts { efi: file("BOOTX64.EFI", 700_000), loader: Some(EfiLoader::Slipway), bios: Some(bios) }
}

fn request() -> InstallRequest {
    InstallRequest { force: false, slot_bytes: GIB, ..fixtures::request(1) }
}

/// What people read of a step has no words that only the source has.
#[test]
fn steps_are_in_plain_words() {
    let goldens = std::fs::read_dir(slipway_test_support::project().join("tests/golden")).unwrap();
    let mut steps = 0;
    for path in goldens.map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let is_number = |n: &str| n.ends_with('.') && n.starts_with(|c: char| c.is_ascii_digit());
        for line in text.lines().filter(|line| line.split_whitespace().next().is_some_and(is_number)) {
            steps += 1;
            let words =
                ["seq", "once", "default=", "state=", "ADV", "marker", "boot.env", "boot2.env", "0x06", " of 2"];
            let internal = words.iter().find(|word| line.contains(**word));
            assert_eq!(internal, None, "{}: {line}", path.display());
            assert!(line.chars().count() <= 100, "{}: {line}", path.display());
        }
    }
    assert!(steps > 100, "{steps}");
}

fn golden(name: &str, plan: &Plan) {
    let text = plan.to_string();
    assert_golden(&format!("tests/golden/{name}"), &text);
}

#[test]
fn a_plain_install() {
    let facts = disk(10 * GIB, SectorSize::S512, DiskKind::Disk);
    let plan = plan::install(&request(), &facts, &payload_facts(14 * MIB, 8 * MIB, 60 * MIB), &assets()).unwrap();
    golden("install-disk-512.txt", &plan);
}

#[test]
fn an_install_onto_a_4096_byte_sector_image_with_everything_asked_for() {
    let mut facts = disk(6 * GIB, SectorSize::S4096, DiskKind::Image);
    facts.found = Found::Something("an XFS file system".to_owned());
    let request = InstallRequest { zero: true, format_data: false, ..request() };
    let plan = plan::install(&request, &facts, &payload_facts(14 * MIB, 8 * MIB, 60 * MIB), &assets()).unwrap();
    golden("install-image-4096.txt", &plan);
}

/// The steps that a machine config adds.
#[test]
fn an_install_for_an_old_bios_with_an_encrypted_volume() {
    let facts = disk(10 * GIB, SectorSize::S512, DiskKind::Disk);
    let args = KernelArgs { extra: vec!["dropped=1".to_owned()], payload_only: true, ..KernelArgs::default() };
    let request = InstallRequest { encrypted: vec![Part::State], bootable_mbr: true, args, ..request() };
    let plan = plan::install(&request, &facts, &payload_facts(14 * MIB, 8 * MIB, 60 * MIB), &assets()).unwrap();
    golden("install-legacy-bios.txt", &plan);
}

/// The text of a file that the plan writes to the ESP.
fn on_esp<'p>(plan: &'p Plan, path: &str) -> Option<&'p str> {
    let files = &plan.system.as_ref().unwrap().volumes[&Part::Esp].files;
    match &files.iter().find(|file| file.path == path)?.from {
        Content::Text(text) => Some(text),
        other => panic!("{path}: {other:?}"),
    }
}

/// What the firmware starts is listed: what the disk has of it, and nothing else.
#[test]
fn the_boot_chain_is_recorded() {
    let payload = |arch| PayloadFacts { arch, ..payload_facts(MIB, MIB, MIB) };
    let chain = |sector, arch, assets| {
        let request = InstallRequest { arch, ..request() };
        let plan = plan::install(&request, &disk(10 * GIB, sector, DiskKind::Disk), &payload(arch), &assets).unwrap();
        on_esp(&plan, "slipway/chain.sha256").unwrap().to_owned()
    };
    let [efi, code, core] = ["BOOTX64.EFI", "boot code", "core.img"].map(|name| Sha256::of(name.as_bytes()));
    let uefi = format!("{efi}  EFI/BOOT/BOOTX64.EFI\n");
    let all = format!("{uefi}{code}  boot-code:440\n{core}  core-image:182000\n");
    assert_eq!(chain(SectorSize::S512, Arch::Amd64, assets()), all);
    assert_eq!(chain(SectorSize::S4096, Arch::Amd64, assets()), uefi);
    let efi = Sha256::of(b"BOOTAA64.EFI");
    let arm64 = AssetFacts { efi: file("BOOTAA64.EFI", 700_000), bios: None, ..assets() };
    assert_eq!(chain(SectorSize::S512, Arch::Arm64, arm64), format!("{efi}  EFI/BOOT/BOOTAA64.EFI\n"));
}

/// The drive is recorded, but not in an image: that is written to any number of drives.
#[test]
fn the_drive_is_recorded() {
    let record = |kind, serial: Option<&str>| {
        let mut facts = disk(10 * GIB, SectorSize::S512, kind);
        facts.identity.serial = serial.map(str::to_owned);
        let plan = plan::install(&request(), &facts, &payload_facts(MIB, MIB, MIB), &assets()).unwrap();
        on_esp(&plan, "slipway/drive.env").map(str::to_owned)
    };
    assert_eq!(record(DiskKind::Disk, Some("S1")), Some("serial=S1\n".to_owned()));
    assert_eq!(record(DiskKind::Disk, None), None);
    assert_eq!(record(DiskKind::Image, Some("S1")), None);
}

#[test]
fn all_reasons_are_told_at_once() {
    let mut facts = disk(3 * GIB, SectorSize::S512, DiskKind::Disk);
    facts.busy = vec![DiskUse { device: "/dev/sda1".into(), by: "mounted on /mnt".into() }];
    facts.found = Found::Something("an XFS file system".to_owned());
    let payload = PayloadFacts { arch: Arch::Arm64, ..payload_facts(1, 1, 1) };
    let refusals = plan::install(&request(), &facts, &payload, &assets()).unwrap_err().0;
    assert!(
        matches!(refusals[..], [Refusal::Layout(_), Refusal::InUse(_), Refusal::NotEmpty(_), Refusal::Arch { .. }]),
        "{refusals:?}"
    );
    // On a disk that is too small for slots of any size, --force leads nowhere.
    let small = DiskFacts { bytes: GIB, ..facts.clone() };
    let refusals = plan::install(&request(), &small, &payload, &assets()).unwrap_err().0;
    assert!(matches!(refusals[..], [Refusal::Layout(_), Refusal::InUse(_), Refusal::Arch { .. }]), "{refusals:?}");
    let forced = InstallRequest { force: true, ..request() };
    let refusals = plan::install(&forced, &facts, &payload, &assets()).unwrap_err().0;
    assert!(matches!(refusals[1], Refusal::InUse(_)), "force does not overwrite a disk in use");
}

/// Where a step may write.
fn allowed(plan: &Plan, step: &Step) -> Extent {
    let layout = &plan.table.as_ref().unwrap().layout;
    let whole = Extent { offset: 0, len: layout.disk_bytes };
    match step {
        Step::WriteVolume { part, .. } | Step::Blank { part, .. } | Step::WriteXfs { part, .. } => layout.part(*part),
        Step::WriteCore { .. } => layout.part(Part::Bios),
        Step::WriteMetaCopy { .. } | Step::WriteMetaLegacy { .. } => layout.part(Part::Meta),
        Step::ClearLba0 { .. } | Step::WriteLba0 { .. } | Step::MendLba0 { .. } => {
            Extent { offset: 0, len: layout.sector_size.bytes() }
        }
        Step::WritePrimaryGpt { .. } => Extent { offset: layout.sector_size.bytes(), len: MIB },
        Step::WriteBackupGpt { .. } => Extent { offset: whole.len - MIB, len: MIB },
        Step::ClearLabels { .. } | Step::Erase { .. } => whole,
        Step::Reserve { .. }
        | Step::PrepareXfs { .. }
        | Step::Verify { .. }
        | Step::ForgetCached { .. }
        | Step::WriteBootEnv { .. }
        | Step::WriteHistory { .. }
        | Step::WriteMarker { .. }
        | Step::Discard { .. }
        | Step::DropPartitions
        | Step::ClearEnd { .. }
        | Step::WriteEntries { .. }
        | Step::WritePrimaryHeader { .. }
        | Step::ResizePartition { .. }
        | Step::GrowXfs { .. }
        | Step::WriteSnapshot { .. }
        | Step::WriteSnapshotHead { .. }
        | Step::WriteFile { .. }
        | Step::LinkClusters { .. }
        | Step::WriteEntry { .. }
        | Step::WriteBootCode { .. }
        | Step::FreeClusters { .. }
        | Step::CountFree { .. }
        | Step::CopyFat { .. }
        | Step::CopyBootSector { .. }
        | Step::AddEntry { .. }
        | Step::RereadTable => Extent { offset: 0, len: 0 },
    }
}

fn at(plan: &Plan, wanted: impl Fn(&Step) -> bool) -> Vec<usize> {
    plan.steps.iter().enumerate().filter(|(_, s)| wanted(s)).map(|(i, _)| i).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn laws(
        disk_mib in 1000u64..30_000,
        odd_sectors in 0u64..2048,
        slot_mib in 260u64..2000,
        sectors_4096: bool,
        image: bool,
        zero: bool,
        format_data: bool,
        kernel in 1u64..(64 << 20),
        rootfs in 1u64..(900 << 20),
    ) {
        let sector = if sectors_4096 { SectorSize::S4096 } else { SectorSize::S512 };
        let kind = if image { DiskKind::Image } else { DiskKind::Disk };
        let facts = disk(disk_mib * MIB + odd_sectors * 4096, sector, kind);
        let request = InstallRequest { zero, format_data, slot_bytes: slot_mib * MIB, ..request() };
        let payload = payload_facts(kernel, 5 << 20, rootfs);
        let Ok(plan) = plan::install(&request, &facts, &payload, &assets()) else { return Ok(()) };

        // The same inputs give the same plan.
        prop_assert_eq!(&plan, &plan::install(&request, &facts, &payload, &assets()).unwrap());
        // Every write stays inside what it is for.
        for step in &plan.steps {
            for extent in step.writes() {
                prop_assert!(allowed(&plan, step).contains(extent), "{:?}", step);
            }
        }
        // The commit is there once, and nothing is written after it.
        let commit = at(&plan, |s| s.is_commit());
        prop_assert_eq!(commit.len(), 1);
        prop_assert!(plan.steps[commit[0] + 1..].iter().all(|s| s.writes().is_empty()));
        // LBA 0 is cleared before anything else is written.
        let first = at(&plan, |s| !s.writes().is_empty())[0];
        let clears = matches!(plan.steps[first], Step::ClearLba0 { .. });
        prop_assert!(clears);
        // Right before it the kernel forgets the old partitions. It knows none of an image file.
        prop_assert_eq!(at(&plan, |s| *s == Step::DropPartitions), if image { vec![] } else { vec![first - 1] });
        // What is written in bulk is verified after it and before the commit.
        for (part, written) in [(Part::Esp, 0), (Part::BootA, 0), (Part::Bios, 1)] {
            let write = at(&plan, |s| match s {
                Step::WriteVolume { part: p, .. } => *p == part,
                Step::WriteCore { .. } => written == 1,
                _ => false,
            });
            let verify = at(&plan, |s| matches!(s, Step::Verify { part: p, .. } if *p == part));
            if sectors_4096 && written == 1 {
                prop_assert!(write.is_empty() && verify.is_empty());
            } else {
                prop_assert_eq!((write.len(), verify.len()), (1, 1));
                prop_assert!(write[0] < verify[0] && verify[0] < commit[0]);
            }
        }
        // The backup GPT stands before the primary, both before the commit.
        let backup = at(&plan, |s| matches!(s, Step::WriteBackupGpt { .. }))[0];
        let primary = at(&plan, |s| matches!(s, Step::WritePrimaryGpt { .. }))[0];
        prop_assert!(backup < primary && primary < commit[0]);
        // A plan survives being saved as JSON.
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}
