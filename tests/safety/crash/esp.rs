//! An ESP that is made again: what is lost of it, what firmware may find meanwhile, and the plans that the sweep must find wrong.

use slipway_core::{
    disk::layout::Part,
    plan::{Plan, Step},
    units::{Extent, MIB},
};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Op, RecordingDisk},
    mutants::{broken, whole},
    pages::{Pages, PagesVolume, SECTOR},
    read,
    scenario::{A0, B1, Scenario, Setup, Story, confirmed, setup, with_env_lost},
    structures,
    world::Verb,
};

fn esp(story: &Story) -> Extent {
    read::table(&story.pages, DISK_BYTES).unwrap().parts[&1]
}

/// From a rescue system, of a disk that has lost this much at the beginning of its ESP.
fn without_esp(mut story: Story, boots: &[super::system::System]) -> Setup {
    let extent = esp(&story);
    story.pages.zero(Extent { len: MIB, ..extent });
    made_again(story, boots)
}

fn made_again(story: Story, boots: &[super::system::System]) -> Setup {
    let mut setup = with_env_lost(setup(Story { cmdline: "quiet".to_owned(), ..story }, Verb::Repair, boots, &[]));
    setup.expect.makes_esp = true;
    setup
}

pub fn repair_without_esp() -> Setup {
    without_esp(Story::installed(), &[A0])
}

/// Both slots are good; the one that was confirmed last boots.
pub fn repair_without_esp_two_systems() -> Setup {
    without_esp(confirmed(), &[A0, B1])
}

/// The boot state is whole, and the directory with the UEFI image is lost.
pub fn repair_without_the_directory_efi() -> Setup {
    let mut story = Story::installed();
    let mut boot = [0; SECTOR];
    let esp = esp(&story);
    story.pages.read(esp.offset, &mut boot);
    let short = |at: usize| u64::from(u16::from_le_bytes([boot[at], boot[at + 1]]));
    let (sector, cluster) = (SECTOR as u64, u64::from(boot[13]) * SECTOR as u64);
    let root = esp.offset + (short(14) + 2 * (short(36) | short(38) << 16)) * sector;
    // The root's cluster comes first, and then that of EFI.
    story.pages.zero(Extent { offset: root + cluster, len: sector });
    made_again(story, &[A0])
}

/// A repair that writes to an ESP whose files must all stay as they are.
fn mended(story: Story) -> Setup {
    let mut setup = setup(Story { cmdline: "quiet".to_owned(), ..story }, Verb::Repair, &[A0], &[]);
    setup.expect.mends_esp = true;
    setup
}

/// No reader goes by it, as long as the first one is whole.
pub fn repair_with_the_second_fat_lost() -> Setup {
    let mut story = Story::installed();
    let second = structures::fats(&story.pages, esp(&story))[1];
    story.pages.zero(second);
    let mut setup = mended(story);
    setup.expect.chain_damaged = true;
    setup
}

/// All of it but its first sector, which has the entries of the root directory.
pub fn repair_with_the_first_fat_damaged() -> Setup {
    let mut story = Story::installed();
    let first = structures::fats(&story.pages, esp(&story))[0];
    story.pages.zero(Extent { offset: first.offset + SECTOR as u64, len: first.len - SECTOR as u64 });
    let mut setup = mended(story);
    setup.expect.chain_damaged = true;
    setup
}

/// Nothing starts by it.
pub fn repair_with_a_sector_lost_that_has_a_copy() -> Setup {
    let mut story = Story::installed();
    let copy = Extent { offset: esp(&story).offset + 6 * SECTOR as u64, len: SECTOR as u64 };
    story.pages.zero(copy);
    mended(story)
}

/// With a copy of boot.env that is missing: that is known only once the first sector is back.
pub fn repair_with_the_first_sector_lost() -> Setup {
    let mut story = without_files(Story::installed(), &["slipway/boot2.env"]);
    let sector = Extent { offset: esp(&story).offset, len: SECTOR as u64 };
    story.pages.zero(sector);
    let mut setup = with_env_lost(mended(story));
    setup.expect.chain_damaged = true;
    setup
}

/// What a repair of an ESP must leave: both copies of the FAT say the same, and so do those of boot.env.
pub fn summary(pages: &Pages, esp: Extent) -> String {
    let fats = structures::fats(pages, esp).into_iter().map(|extent| {
        let mut bytes = vec![0; extent.len as usize];
        pages.read(extent.offset, &mut bytes);
        read::digest(&bytes)
    });
    let envs =
        ["slipway/boot.env", "slipway/boot2.env"].map(|path| read::file(pages, esp, path).ok().map(|file| file.0));
    let fats: Vec<read::Digest> = fats.collect();
    format!(
        "the FATs agree: {}, the copies of boot.env: {}",
        fats[0] == fats[1],
        envs[0].is_some() && envs[0] == envs[1]
    )
}

fn without_files(mut story: Story, paths: &[&str]) -> Story {
    let extent = esp(&story);
    let volume = PagesVolume { pages: &mut story.pages, extent, at: 0 };
    let volume = fatfs::FileSystem::new(volume, fatfs::FsOptions::new().update_accessed_date(false)).unwrap();
    paths.iter().for_each(|path| volume.root_dir().remove(path).unwrap());
    volume.unmount().unwrap();
    story
}

pub fn repair_with_a_copy_missing() -> Setup {
    mended(without_files(Story::installed(), &["slipway/boot2.env"]))
}

pub fn repair_with_both_copies_missing() -> Setup {
    with_env_lost(mended(without_files(Story::installed(), &["slipway/boot.env", "slipway/boot2.env"])))
}

/// The UEFI image is missing, and its directory is there.
pub fn repair_with_the_image_missing() -> Setup {
    made_again(without_files(Story::installed(), &["EFI/BOOT/BOOTX64.EFI"]), &[A0])
}

/// The directory with the boot state is gone, and with it the history and the list of the boot chain.
pub fn repair_with_the_directory_missing() -> Setup {
    let files = ["boot.env", "boot2.env", "chain.sha256", "history", "drive.env"].map(|name| format!("slipway/{name}"));
    let mut story = Story::installed();
    let there = files.iter().filter(|path| read::file(&story.pages, esp(&story), path).is_ok()).map(String::as_str);
    let gone: Vec<&str> = there.chain(["slipway"]).collect();
    story = without_files(story, &gone);
    without_a_list(with_env_lost(mended(story)))
}

pub fn repair_with_the_list_missing() -> Setup {
    without_a_list(mended(without_files(Story::installed(), &["slipway/chain.sha256"])))
}

/// The list is there at the end, and not before.
fn without_a_list(mut setup: Setup) -> Setup {
    setup.expect.chain_damaged = true;
    setup
}

/// The fault of a plan that was edited.
fn edited(scenario: &Scenario, edit: &dyn Fn(&mut Plan)) -> Option<String> {
    let disk = RecordingDisk::new(DISK_BYTES, scenario.story.pages.clone());
    scenario.edited(&disk, edit).expect("a mutant is wrong in another way than not to run");
    broken(scenario, &disk.log())
}

#[test]
fn plans_that_are_not_safe_are_caught() {
    let lost = repair_without_esp().run("repair_without_esp");
    assert_eq!(whole(&lost, &lost.log), None);
    let directory = repair_without_the_directory_efi().run("repair_without_the_directory_efi");
    let is_blank = |step: &Step| matches!(step, Step::Blank { part: Part::Esp, .. });
    let not_blanked = edited(&directory, &|plan| plan.steps.retain(|step| !is_blank(step)));
    assert!(not_blanked.is_some(), "mutant survived: not blanked");
    // The last write but one flush is that of the boot sector.
    let boot_sector = esp(&lost.story).offset;
    let mut log = lost.log.clone();
    let at = log.iter().rposition(|op| !matches!(op, Op::Sync) && op.extent().offset == boot_sector).unwrap();
    let flush = log[..at].iter().rposition(|op| matches!(op, Op::Sync)).unwrap();
    log.remove(flush);
    assert!(broken(&lost, &log).is_some(), "mutant survived: no flush before the boot sector");
}
