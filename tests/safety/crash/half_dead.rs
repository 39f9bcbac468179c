//! A disk on which the kernel of a slot cannot be read, and that is to move from GRUB to Slipway's own loader. GRUB may start
//! what could not be read just now, so the way back comes before the new loader.

use slipway::{
    error::Failure,
    fat::FatVolume,
    ops::{Change, bootloader::Update, upgrade::Upgrade},
};
use slipway_core::{
    boot::EfiLoader,
    plan::{Plan, RunsFrom, Step, bootloader::RenewalRequest},
    report::FailureKind,
};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Call, Lasting, RecordingDisk},
    pages::{Pages, SECTOR},
    read,
    scenario::{Story, UPGRADE, confirmed},
    world::{Verb, World},
};

fn to(loader: EfiLoader, mend: bool) -> RenewalRequest {
    RenewalRequest { loader: Some(loader), ..World::get().renewal(1, mend) }
}

fn update(loader: EfiLoader) -> Update {
    Update { runs_from: RunsFrom::Inside, renewal: to(loader, true) }
}

/// Byte offset of the beginning of a file.
fn offset(pages: &Pages, part: u32, path: &str) -> u64 {
    let part = read::table(pages, DISK_BYTES).unwrap().parts[&part];
    let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
    FatVolume::open(&disk, part).unwrap().find(path).unwrap().unwrap().extents[0].offset
}

/// The disk of a story, on which the kernel of a slot cannot be read.
fn half_dead(story: &Story, slot: u32) -> RecordingDisk {
    let bad = (offset(&story.pages, slot, "vmlinuz"), Lasting::Unreadable);
    RecordingDisk::damaged(DISK_BYTES, story.pages.clone(), bad)
}

fn run(story: &Story, disk: &RecordingDisk, change: &dyn Change, payload: Option<usize>) -> Result<Plan, Failure> {
    World::get().change(change, payload, disk, &story.cmdline)
}

fn becomes(plan: &Plan) -> Option<EfiLoader> {
    plan.bootloader.as_ref()?.efi.as_ref()?.to.loader
}

#[test]
fn a_disk_stays_with_grub() {
    let story = confirmed();
    let disk = half_dead(&story, 3);
    let failure = run(&story, &disk, &update(EfiLoader::Slipway), None).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Input);
    let text = failure.to_string();
    for said in
        ["kernel of slot A under UEFI: vmlinuz: ", "--efi-loader grub` renews GRUB", "an upgrade writes that slot anew"]
    {
        assert!(text.contains(said), "{said:?} is not in {text}");
    }
    let writes = disk.calls().iter().filter(|(call, _)| *call != Call::Read).count();
    assert_eq!((disk.log().len(), writes), (0, 0), "the disk was written to");
    // GRUB in its place is no other way to start.
    let plan = run(&story, &disk, &update(EfiLoader::Grub), None).unwrap();
    assert_eq!(becomes(&plan), Some(EfiLoader::Grub));
}

/// The slot is written anew, and it was the only thing to keep the loader.
#[test]
fn an_upgrade_writes_that_slot_and_moves_the_disk() {
    let story = confirmed();
    let verb = Verb::UpgradeAndRenew { payload: 2 };
    let request = verb.upgrade_request().unwrap();
    let upgrade = Upgrade {
        snapshot: None,
        request: &request,
        payload: &World::get().facts[2],
        firmware: &[],
        renewal: Some(to(EfiLoader::Slipway, false)),
        dry_run: false,
    };
    let plan = run(&story, &half_dead(&story, 3), &upgrade, Some(2)).unwrap();
    assert_eq!(becomes(&plan), Some(EfiLoader::Slipway), "{:?}", plan.warnings);
}

/// No boot loader starts the remains of an upgrade that was cut off.
#[test]
fn an_empty_slot_need_not_be_readable() {
    let cut = |plan: &mut Plan| {
        let commit = plan.steps.iter().position(Step::is_commit).unwrap();
        plan.steps.truncate(commit);
    };
    let story = Story::installed().edited_and_cut(&UPGRADE, &cut);
    let plan = run(&story, &half_dead(&story, 4), &update(EfiLoader::Slipway), None).unwrap();
    assert_eq!(becomes(&plan), Some(EfiLoader::Slipway));
}

/// UEFI starts nothing on this disk: it only gains.
#[test]
fn a_loader_that_nobody_recognises_is_mended() {
    let mut story = confirmed();
    let image = offset(&story.pages, 1, "EFI/BOOT/BOOTX64.EFI");
    story.pages.write(image, &[0; SECTOR]);
    let plan = run(&story, &half_dead(&story, 3), &update(EfiLoader::Slipway), None).unwrap();
    assert_eq!(becomes(&plan), Some(EfiLoader::Slipway));
}
