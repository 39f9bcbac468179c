//! The machine of the boot rule: the firmware, and the disk that the loader is from.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use slipway_boot::{
    env::Fault,
    run::{Machine, Start},
    slot::Slot,
    slot_cfg::UKI,
};

use crate::{
    console::{self, say},
    disk::{Disk, ESP},
    env::Copies,
    kernel,
    slot::{Files, Refusal},
    uki, variable,
};

/// The firmware of this machine, as seen from its disk.
pub struct Firmware {
    disk: Disk,
    copies: Copies,
}

impl Firmware {
    /// With the disk that the loader was started from. A reason in words if that is not one of ours.
    pub fn of_this_disk() -> Result<Self, String> {
        let disk = Disk::of_this_image()?;
        let esp = disk.partition(ESP).ok_or("the ESP cannot be found again")?;
        let copies = Copies::of(esp).map_err(|e| alloc::format!("the ESP cannot be read: {}", e.status()))?;
        Ok(Firmware { disk, copies })
    }

    fn attempt(&mut self, start: Start) -> Refusal {
        let Some(mut files) = Files::open(&self.disk, start.slot) else {
            return Refusal { fault: Fault::Digest, why: "it has no file system".to_string() };
        };
        let sums = match files.digests(start.check) {
            Ok(sums) => sums,
            Err(refusal) => return refusal,
        };
        if files.has(UKI) {
            return uki::start(&mut files, sums.as_ref(), start, self.disk.whole());
        }
        if variable::secure_boot() {
            return Refusal::load("Secure Boot is on, and the slot has no unified kernel image");
        }
        kernel::start(&mut files, sums.as_ref(), start)
    }
}

impl Machine for Firmware {
    fn read_copy(&mut self, copy: usize) -> Option<Vec<u8>> {
        self.copies.read(copy)
    }

    fn write_copy(&mut self, copy: usize, sector: &[u8]) {
        // Whether it worked is seen by reading it.
        let _ = self.copies.write(copy, sector);
    }

    fn read_marker(&mut self, slot: Slot) -> Option<Vec<u8>> {
        Files::open(&self.disk, slot)?.marker()
    }

    fn start(&mut self, start: Start) -> Fault {
        let Start { slot, trial, .. } = start;
        say(&alloc::format!("slot {slot} try={}: booting", u8::from(trial)));
        let Refusal { fault, why } = self.attempt(start);
        say(&alloc::format!("slot {slot} does not start: {why}"));
        fault
    }

    fn say(&mut self, line: &str) {
        say(line);
    }

    fn is_asked(&mut self) -> bool {
        console::key().is_some()
    }

    fn choose(&mut self, offered: &[(Slot, &'static str)]) -> Option<Slot> {
        say("release the key");
        if !console::released() {
            return None;
        }
        for (slot, state) in offered {
            say(&alloc::format!("slot {slot} ({state}): press {slot} within 30 s to boot it, this time only"));
        }
        console::pressed(&offered.iter().map(|(slot, _)| *slot).collect::<Vec<_>>())
    }
}
