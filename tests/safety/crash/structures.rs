//! Wrong structures: one bit of a directory entry, of the FAT or of a FAT32 boot sector is another one, in the ESP or in a slot.
//! Whatever the verb makes of it, it writes only where it would have written anyway, what booted before boots, and nothing is
//! told that is not so.

use std::time::Instant;

use slipway_core::{
    plan::{Plan, Step},
    units::Extent,
};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    all_states,
    disk::{Op, RecordingDisk},
    grub_fat::Volume,
    pages::Pages,
    scenario::{self, Scenario},
    thorough,
    world::{Failed, Verb, World},
};

/// The number of bits that are tried in the gate and in the campaign. From ten million states on it is every bit, which takes a day.
const BITS: [usize; 2] = [6, 1000];
/// The partitions with a FAT32 volume.
const VOLUMES: [u32; 3] = [1, 3, 4];
/// Every bit of these structures of a disk: a byte, and which bit of it.
fn bits(pages: &Pages, parts: impl Iterator<Item = Extent>) -> Vec<(u64, u8)> {
    let structures = parts.filter_map(|part| Volume::open(pages, part)).flat_map(|volume| volume.structures());
    let bytes = structures.flat_map(|extent| extent.offset..extent.end());
    bytes.flat_map(|byte| (0..8).map(move |bit| (byte, bit))).collect()
}

fn flipped(pages: &Pages, (at, bit): (u64, u8)) -> Pages {
    let (mut pages, mut byte) = (pages.clone(), [0]);
    pages.read(at, &mut byte);
    pages.write(at, &[byte[0] ^ 1 << bit]);
    pages
}

/// The two copies of the FAT of a volume.
pub fn fats(pages: &Pages, volume: Extent) -> Vec<Extent> {
    let mut boot = [0; 512];
    pages.read(volume.offset, &mut boot);
    let number = |at: usize, len: usize| boot[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let (sector, reserved, len) = (number(11, 2), number(14, 2), number(36, 4));
    [0, 1].map(|copy| Extent { offset: volume.offset + (reserved + copy * len) * sector, len: len * sector }).into()
}

impl Scenario {
    /// The first write that is none of the verb's business.
    pub fn strays(&self, disk: &RecordingDisk, mends: &[Extent]) -> Option<Extent> {
        let own = self.log.iter().map(Op::extent).chain(mends.iter().copied());
        let may: Vec<Extent> = self.may_write().into_iter().chain(own).collect();
        let log = disk.log();
        log.iter().map(Op::extent).find(|write| write.len > 0 && !may.iter().any(|may| may.contains(*write)))
    }

    fn judge_wrong_bit(&self, bit: (u64, u8)) -> Result<&'static str, String> {
        let base = flipped(&self.story.pages, bit);
        let disk = RecordingDisk::new(DISK_BYTES, base.clone());
        let before = self.seen(&disk);
        let result: Result<Plan, Failed> = self.again(&disk);
        // A boot loader that is lost by this bit is a repair's business, and so are FATs that differ by it.
        let esp = self.judge.table.parts[&1];
        let mends = match self.verb {
            Verb::Repair if World::get().makes_esp(&base) => vec![esp],
            Verb::Repair => fats(&self.story.pages, esp),
            _ => vec![],
        };
        // A file without a place of its own gets another one, where nothing is.
        let is_used = |write: &Extent| {
            let mut held = vec![0; write.len as usize];
            base.read(write.offset, &mut held);
            self.verb != Verb::Repair || held.iter().any(|byte| *byte != 0)
        };
        if let Some(write) = self.strays(&disk, &mends).filter(is_used) {
            return Err(format!("{} bytes at {} were written, which are somebody else's", write.len, write.offset));
        }
        self.judge_end(&disk, &base, &before, &result, true)
    }

    pub fn survives_wrong_structures(mut self) {
        let start = Instant::now();
        self.judge.reads_wrong_structures();
        let parts = VOLUMES.iter().map(|number| self.judge.table.parts[number]);
        let all = bits(&self.story.pages, parts);
        // Each scenario begins elsewhere.
        let most = if all_states() >= 10_000_000 { all.len() } else { BITS[usize::from(thorough())] };
        let step = all.len().div_ceil(most);
        let tried: Vec<_> = all.iter().skip(self.turn() % step).step_by(step).collect();
        let wrong: Vec<String> = tried
            .iter()
            .filter_map(|bit| {
                let why = self.judge_wrong_bit(**bit).err()?;
                let part =
                    self.judge.table.parts.iter().find(|(_, part)| part.contains(Extent { offset: bit.0, len: 1 }));
                let at = part.map_or_else(String::new, |(n, part)| format!("{} of partition {n}", bit.0 - part.offset));
                Some(format!("bit {} of byte {at}: {why}", bit.1))
            })
            .collect();
        eprintln!(
            "{}: {} bits of {}, {:.1} s: {} wrong",
            self.name,
            tried.len(),
            all.len(),
            start.elapsed().as_secs_f32(),
            wrong.len()
        );
        assert!(all.len() > 1000, "{}: structures were found", self.name);
        assert_eq!(wrong, [""; 0], "{}", self.name);
    }
}

/// A verb that took the directory's word for it would write into the loader: the sweep must see that.
#[test]
fn a_plan_that_trusts_the_directory_is_caught() {
    let scenario = scenario::confirm().run("confirm");
    let esp = scenario.judge.table.parts[&1];
    let image = Volume::open(&scenario.story.pages, esp).unwrap().file("EFI/BOOT/BOOTX64.EFI").unwrap().1;
    let disk = RecordingDisk::new(DISK_BYTES, scenario.story.pages.clone());
    let trusting = |plan: &mut Plan| {
        for step in &mut plan.steps {
            if let Step::WriteHistory { offset, over, .. } = step {
                (*offset, *over) = (image, None);
            }
            if let Step::WriteMarker { offset, over, .. } = step {
                (*offset, *over) = (image, None);
            }
        }
    };
    let _ = scenario.edited(&disk, &trusting);
    assert_eq!(scenario.strays(&disk, &[]).map(|write| write.offset), Some(image));
}
