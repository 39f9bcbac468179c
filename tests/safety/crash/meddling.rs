//! Another program changes the disk: between the look and the claim, and between any two steps. No success is false, and
//! nothing is written over what the other program has put there.

use std::{collections::BTreeMap, io::Write as _};

use slipway_core::{disk::meta::Adv, plan::Plan};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::RecordingDisk,
    grub::Outcome,
    history::{FILE as FILE_OF_HISTORY, history},
    pages::{Pages, PagesVolume, SECTOR},
    read::{self, Table, env_block_with},
    scenario::{Scenario, ends},
    thorough,
    world::{Failed, Verb, World},
};

/// The action of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meddling {
    /// It replaces boot.env, and another file gets its old place.
    EnvMoved,
    /// It removes the history, and another file gets its place.
    HistoryMoved,
    /// It makes the other slot the default.
    EnvChanged,
    /// It sets a tag in META.
    Tag,
    /// It gives the disk another GUID.
    TableChanged,
}

const ALL: [Meddling; 5] =
    [Meddling::EnvMoved, Meddling::HistoryMoved, Meddling::EnvChanged, Meddling::Tag, Meddling::TableChanged];
/// The other program's file, and its tag in META.
const FILE: (&str, [u8; SECTOR]) = ("other.txt", [b'o'; SECTOR]);
const TAG: (u8, &[u8]) = (0x42, b"theirs");
/// The tag with the label to return to.
const LABEL: u32 = 6;
const ENV: &str = "slipway/boot.env";

fn meddle(how: Meddling, table: &Table, pages: &mut Pages) {
    let part = |number| table.parts[&number];
    match how {
        Meddling::EnvMoved => {
            let (env, old) = read::file(pages, part(1), ENV).unwrap();
            let volume = PagesVolume { pages, extent: part(1), at: 0 };
            let volume = fatfs::FileSystem::new(volume, fatfs::FsOptions::new().update_accessed_date(false)).unwrap();
            let root = volume.root_dir();
            root.remove(ENV).unwrap();
            // The new boot.env comes first: it must not get the old place back.
            let mut keep = root.create_file(FILE.0).unwrap();
            keep.write_all(&FILE.1).unwrap();
            root.create_file(ENV).unwrap().write_all(&env).unwrap();
            drop((keep, root));
            volume.unmount().unwrap();
            // What takes the old place sooner or later.
            pages.write(old, &FILE.1);
        }
        Meddling::HistoryMoved => {
            let Some((bytes, at)) = history(pages, part(1)) else { return };
            let volume = PagesVolume { pages, extent: part(1), at: 0 };
            let volume = fatfs::FileSystem::new(volume, fatfs::FsOptions::new().update_accessed_date(false)).unwrap();
            volume.root_dir().remove(FILE_OF_HISTORY).unwrap();
            volume.unmount().unwrap();
            pages.write(at, &vec![b'o'; bytes.len()]);
        }
        Meddling::EnvChanged => {
            for path in [ENV, "slipway/boot2.env"] {
                let Ok((env, at)) = read::file(pages, part(1), path) else { continue };
                let vars = read::env_block(&env).unwrap_or_default();
                let Some(seq) = vars.get("seq").and_then(|seq| seq.parse::<u64>().ok()) else { continue };
                let seq = (seq + 5).min(999_999_999).to_string();
                let bytes = env_block_with(&env, &[("seq", Some(&seq)), ("once", Some(&String::new()))]).unwrap();
                pages.write(at, &bytes);
            }
        }
        Meddling::Tag => {
            let mut adv = Adv::default();
            for (tag, value) in read::meta(pages, part(5)).unwrap_or_default() {
                adv.set(tag as u8, value).unwrap();
            }
            adv.set(TAG.0, TAG.1.to_vec()).unwrap();
            let copy = adv.encode();
            pages.write(part(5).offset, &[copy.clone(), copy].concat());
        }
        Meddling::TableChanged => {
            // Both copies get another GUID of the disk, with checksums that fit.
            let end = DISK_BYTES - SECTOR as u64;
            for at in [SECTOR as u64, end] {
                let mut header = [0; SECTOR];
                pages.read(at, &mut header);
                header[56] ^= 1;
                header[16..20].fill(0);
                let crc = crc32fast::hash(&header[..92]);
                header[16..20].copy_from_slice(&crc.to_le_bytes());
                pages.write(at, &header);
            }
        }
    }
}

impl Scenario {
    /// Run the verb with another program at work before a step; step 0 is the claim.
    fn meddled(&self, how: Meddling, step: usize) -> (RecordingDisk, Result<Plan, Failed>) {
        let disk = RecordingDisk::new(DISK_BYTES, self.story.pages.clone());
        let table = &self.judge.table;
        if step == 0 {
            let table = table.clone();
            disk.meddle_before_claim(move |pages| meddle(how, &table, pages));
        }
        let before_step = |n: usize| {
            if n == step {
                disk.meddle(|pages| meddle(how, table, pages));
            }
        };
        let result = World::get().run_with(&self.verb, &disk, &self.story.cmdline, &|_| (), &before_step);
        (disk, result)
    }

    fn judge_meddled(&self, how: Meddling, disk: &RecordingDisk, result: &Result<Plan, Failed>) -> Result<(), String> {
        let mut pages = disk.pages();
        let part = |number| self.judge.table.parts[&number];
        if how == Meddling::EnvMoved {
            let found = read::file(&pages, part(1), FILE.0).map(|(bytes, _)| bytes);
            let (_, old) = read::file(&self.story.pages, part(1), ENV).unwrap();
            let mut there = [0; SECTOR];
            pages.read(old, &mut there);
            if found.ok().as_deref() != Some(&FILE.1[..]) || there != FILE.1 {
                return Err("what the other program wrote was written over".to_owned());
            }
        }
        if let (Meddling::HistoryMoved, Some((bytes, at))) = (how, history(&self.story.pages, part(1))) {
            let mut there = vec![0; bytes.len()];
            pages.read(at, &mut there);
            // Written before it was moved, or not at all.
            if history(&pages, part(1)).is_none() && there.iter().any(|byte| *byte != b'o') {
                return Err("what the other program wrote was written over".to_owned());
            }
        }
        let tags: BTreeMap<_, _> = self.judge.meta(&pages).ok_or("META is lost")?;
        if how == Meddling::Tag && tags.get(&u32::from(TAG.0)).map(Vec::as_slice) != Some(TAG.1) {
            return Err("the other program's tag is lost".to_owned());
        }
        // Whatever the other program has done, something comes up.
        let first = self.judge.machine.power_on(&mut pages.clone(), super::grub::Saves::Both);
        let last = (0..4).map(|_| self.judge.machine.power_on(&mut pages, super::grub::Saves::Both)).last();
        let Some(Outcome::Boots { slot, trial: false }) = last else { return Err(format!("{last:?} in the end")) };
        if self.judge.whole(&pages, slot).is_none() {
            return Err(format!("slot {slot} comes up and is not whole"));
        }
        let Ok(plan) = result else { return Ok(()) };
        let mut should = self.judge.meta(&self.done).unwrap_or_default();
        if how == Meddling::Tag {
            should.insert(TAG.0.into(), TAG.1.to_vec());
        }
        let (slot, payload, trial) = ends(&self.verb, &self.judge.expect);
        if first != (Outcome::Boots { slot, trial }) || self.judge.whole(&disk.pages(), slot) != Some(payload) {
            return Err(format!("success ({}), and {first:?}", plan.result));
        }
        let label =
            tags.get(&LABEL).filter(|_| self.is_way_back() && plan.warnings.iter().any(|w| w.starts_with("failed: ")));
        should.extend(label.map(|label| (LABEL, label.clone())));
        if tags != should {
            return Err(format!("success, and META has {tags:?}"));
        }
        if how == Meddling::TableChanged && !matches!(self.verb, Verb::MetaSet(..) | Verb::MetaDelete(_)) {
            return Err("success on a disk with another GUID".to_owned());
        }
        Ok(())
    }

    pub fn survives_meddling(&self) {
        let steps = {
            let disk = RecordingDisk::new(DISK_BYTES, self.story.pages.clone());
            self.again(&disk).unwrap().steps.len()
        };
        let (mut wrong, mut done, mut refused) = (Vec::new(), 0, 0);
        for how in ALL {
            // Where both copies are lost there is nothing that another program would move.
            if self.judge.expect.env_lost && how != Meddling::Tag {
                continue;
            }
            // META needs no claim.
            let claims = !matches!(self.verb, Verb::MetaSet(..) | Verb::MetaDelete(_));
            for step in usize::from(!claims)..=steps {
                // In the gate each way meets the claim and the last step, and one in six of those between, by turns.
                let always = thorough() || step == 0 || step == steps;
                if !always && !(step + how as usize + self.turn()).is_multiple_of(6) {
                    continue;
                }
                let (disk, result) = self.meddled(how, step);
                match result {
                    Ok(_) => done += 1,
                    Err(_) => refused += 1,
                }
                if let Err(why) = self.judge_meddled(how, &disk, &result) {
                    let result = result.map_or_else(|failed| failed.text, |plan| plan.result);
                    wrong.push(format!("{how:?} before step {step} of {steps}: {why}: {result}"));
                }
            }
        }
        eprintln!("{}: {steps} steps: {done} times done, {refused} times refused or failed", self.name);
        assert!(done + refused > 0, "{}: nobody meddled", self.name);
        assert_eq!(wrong, [""; 0], "{}", self.name);
    }
}
