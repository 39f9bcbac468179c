//! A disk on which the kernel of a slot cannot be read, and that is to move from GRUB to Slipway's own loader. GRUB may start
//! what could not be read just now, so the way back comes before the new loader.

use slipway::{
    error::Failure,
    fat::FatVolume,
    ops::{Change, bootloader::Update, upgrade::Upgrade},
    probe,
};
use slipway_core::{
    boot::EfiLoader,
    disk::{layout::Part, meta::ADV_BYTES},
    plan::{Plan, RunsFrom, Step, bootloader::RenewalRequest},
    report::{FailureKind, StatusFacts, next_step},
    units::Extent,
};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Call, Lasting, RecordingDisk},
    pages::{Pages, SECTOR},
    read,
    scenario::{self, NEXT, Story, UPGRADE, confirmed},
    world::{Verb, World},
};

fn to(loader: EfiLoader, mend: bool) -> RenewalRequest {
    RenewalRequest { loader: Some(loader), ..World::get().renewal(1, mend) }
}

fn update(loader: EfiLoader) -> Update {
    Update { runs_from: RunsFrom::Inside, renewal: to(loader, true) }
}

/// Byte offset of the beginning of a file.
pub fn offset(pages: &Pages, part: u32, path: &str) -> u64 {
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
        only_ukis_start: false,
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

/// Linux mounts no ESP whose number of free clusters it cannot read, and fsck.vfat does not mend it. Nothing of ours needs it, so
/// nothing but a repair takes notice.
#[test]
fn a_sector_that_has_a_copy_is_written_again() {
    let story = Story::installed();
    let esp = read::table(&story.pages, DISK_BYTES).unwrap().parts[&1];
    let bad = |number: u64| Extent { offset: esp.offset + number * SECTOR as u64, len: SECTOR as u64 };
    for sector in [1, 6, 7].map(bad) {
        let disk = || RecordingDisk::damaged(DISK_BYTES, story.pages.clone(), (sector.offset, Lasting::Unreadable));
        let world = World::get();
        let renewed = disk();
        let plan = world.change(&update(EfiLoader::Slipway), None, &renewed, &story.cmdline).unwrap();
        assert!(plan.steps.iter().any(|step| matches!(step, Step::WriteHistory { .. })), "{:?}", plan.warnings);
        let repaired = disk();
        let plan = world.run(&Verb::Repair, &repaired, "quiet", &|_| ()).unwrap();
        assert_eq!((&plan.left, repaired.bad()), (&vec![], None));
        assert!(repaired.pages().same(&story.pages, sector), "byte {}", sector.offset);
        // Where it takes no writes either, that is no success.
        let dead = RecordingDisk::damaged(DISK_BYTES, story.pages.clone(), (sector.offset, Lasting::Dead));
        let failed = world.run(&Verb::Repair, &dead, "quiet", &|_| ()).unwrap_err();
        assert!(failed.text.contains("the disk takes no writes there: replace it"), "{}", failed.text);
    }
}

/// No arguments mend a slot.
#[test]
fn a_running_slot_that_cannot_be_read_is_named_before_its_arguments() {
    let story = confirmed();
    let slot = read::table(&story.pages, DISK_BYTES).unwrap().parts[&4];
    let disk = RecordingDisk::damaged(DISK_BYTES, story.pages.clone(), (slot.offset, Lasting::Unreadable));
    let text = World::get().run(&NEXT, &disk, &story.cmdline, &|_| ()).unwrap_err().text;
    assert!(text.contains("slot B, which runs, is damaged on the disk") && !text.contains("arguments"), "{text}");
}

/// `verify` names what may bring it back, and not itself.
#[test]
fn a_volume_that_cannot_be_read_has_a_fault() {
    let story = Story::installed();
    for (number, part) in [(6, Part::State), (7, Part::Ephemeral)] {
        let at = read::table(&story.pages, DISK_BYTES).unwrap().parts[&number].offset;
        let disk = RecordingDisk::damaged(DISK_BYTES, story.pages.clone(), (at, Lasting::Unreadable));
        let facts = probe::system(&disk, &story.cmdline).unwrap();
        let fault = &facts.data_faults[&part].what;
        assert!(fault.starts_with(&format!("{part}: its beginning cannot be read: at byte {at}")), "{fault}");
        let status = StatusFacts { disk: "disk", is_image: true, problems: true, ..StatusFacts::default() };
        let step = next_step(&facts, &status);
        assert!(step.why.contains("xfs_repair") && step.why.contains(&format!("installer wipe {part}")), "{step:?}");
    }
}

/// The directory of the UEFI image is dead. Under a BIOS the disk boots by its boot state, which a repair must not take away.
#[test]
fn an_esp_that_cannot_be_made_again_stays_as_it_is() {
    let story = confirmed();
    let image = offset(&story.pages, 1, "EFI/BOOT/BOOTX64.EFI");
    let esp = read::table(&story.pages, DISK_BYTES).unwrap().parts[&1];
    // Its own directory comes before it, with those above.
    let directories = (esp.offset..image).step_by(SECTOR).filter(|at| {
        let mut first = [0; 11];
        story.pages.read(*at, &mut first);
        &first == b".          "
    });
    let efi = directories.min().unwrap();
    for (how, mends) in [(Lasting::Unreadable, true), (Lasting::Dead, false)] {
        let disk = RecordingDisk::damaged(DISK_BYTES, story.pages.clone(), (efi, how));
        let result = World::get().run(&Verb::Repair, &disk, "quiet", &|_| ());
        assert_eq!(result.is_ok(), mends, "{result:?}");
        let kept = disk.pages().same(&story.pages, Extent { offset: 0, len: DISK_BYTES });
        assert_eq!(kept, !mends, "{how:?}: {result:?}");
    }
}

/// A copy of META has many sectors. Once one copy cannot be written, a write of the other one could lose all tags, by a power cut
/// or in the same way.
#[test]
fn the_copy_of_meta_in_force_is_left_alone_if_the_other_one_cannot_be_written() {
    let setups = [scenario::meta_set, scenario::confirm, scenario::rollback_running_trial, scenario::upgrade_fresh];
    for (setup, lost) in setups.into_iter().flat_map(|setup| [false, true].map(|lost| (setup, lost))) {
        let mut scenario = setup().run("META");
        let meta = read::table(&scenario.story.pages, DISK_BYTES).unwrap().parts[&5];
        let copies = [0, ADV_BYTES as u64].map(|at| Extent { offset: meta.offset + at, len: ADV_BYTES as u64 });
        // The first one counts, unless it is lost.
        let (dead, kept) = if lost { (copies[0], copies[1]) } else { (copies[1], copies[0]) };
        if lost {
            scenario.story.pages.write(dead.offset, &[0; SECTOR]);
        }
        let bad = (dead.offset + 100 * SECTOR as u64, Lasting::Unwritable);
        let disk = RecordingDisk::damaged(DISK_BYTES, scenario.story.pages.clone(), bad);
        let result = scenario.again(&disk);
        assert_eq!(result.is_ok(), scenario.is_way_back(), "{result:?}");
        assert!(disk.log().iter().any(|op| dead.contains(op.extent()) && op.extent().len > 0), "META was not written");
        assert!(disk.pages().same(&scenario.story.pages, kept), "{:?}: the copy in force was written", scenario.verb);
        assert!(!disk.log().iter().any(|op| op.extent().len > 0 && kept.contains(op.extent())));
    }
}
