//! The machine of the boot rule: the firmware, and the disk that the loader is from.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use slipway_boot::{
    env::Fault,
    run::{Machine, Start},
    slot::Slot,
    slot_cfg::UKI,
};
use uefi::{Status, runtime};

use crate::{
    console::{self, print},
    disk::{Disk, ESP},
    env::Copies,
    image::Image,
    initrd::Offer,
    kernel,
    slot::{Files, Refusal},
    variable,
};

/// Time for a person to press a key before a slot is chosen. Firmware forgets the keys that were pressed before it
/// starts a loader, and a fast disk answers at once: without this time, a key that was pressed ten times a second was
/// missed at two starts of five.
const LISTEN: Duration = Duration::from_millis(200);

/// The firmware of this machine, as seen from its disk.
pub struct Firmware {
    disk: Disk,
    copies: Copies,
    /// Whether a slot was started and came back.
    has_run: bool,
}

impl Firmware {
    /// With the disk that the loader was started from. A reason in words if that is not one of ours.
    pub fn of_this_disk() -> Result<Self, String> {
        let disk = Disk::of_this_image()?;
        let esp = disk.partition(ESP).ok_or("the ESP cannot be found again")?;
        let copies = Copies::on_esp(esp).map_err(|e| alloc::format!("the ESP cannot be read: {}", e.status()))?;
        Ok(Firmware { disk, copies, has_run: false })
    }

    fn read(&mut self, start: Start) -> Result<Loaded, Refusal> {
        // Each slot has the whole time, and finds no words that are about another one.
        crate::watch();
        variable::forget();
        let Some(mut files) = Files::open(&self.disk, start.slot) else {
            return Err(Refusal::digest("it has no file system"));
        };
        let sums = files.digests(start.check)?;
        let slot = start.slot;
        if files.has(UKI) {
            let image = kernel::load_unified(&mut files, sums.as_ref(), start, self.disk.whole())?;
            return Ok(Loaded { slot, image, _offer: None });
        }
        if variable::secure_boot() {
            return Err(Refusal::load("Secure Boot is on, and the slot has no unified kernel image"));
        }
        let (image, offer) = kernel::load_files(&mut files, sums.as_ref(), start)?;
        Ok(Loaded { slot, image, _offer: Some(offer) })
    }

    fn refused(&mut self, slot: Slot, refusal: Refusal) -> Fault {
        let Refusal { fault, why, has_run } = refusal;
        print(&alloc::format!("slot {slot} does not start: {why}"));
        self.has_run |= has_run;
        fault
    }
}

/// A slot in memory.
pub struct Loaded {
    slot: Slot,
    image: Image,
    /// Lasts until the kernel has come back.
    _offer: Option<Offer>,
}

impl Machine for Firmware {
    type Loaded = Loaded;

    fn read_copy(&mut self, copy: usize) -> Option<Vec<u8>> {
        self.copies.read(copy)
    }

    fn write_copy(&mut self, copy: usize, sector: &[u8]) -> bool {
        self.copies.write(copy, sector).is_some()
    }

    fn read_marker(&mut self, slot: Slot) -> Option<Vec<u8>> {
        Files::open(&self.disk, slot)?.marker()
    }

    fn load(&mut self, start: Start) -> Result<Loaded, Fault> {
        let Start { slot, trial, .. } = start;
        print(&alloc::format!("slot {slot} try={}: booting", u8::from(trial)));
        self.read(start).map_err(|refusal| self.refused(slot, refusal))
    }

    fn start(&mut self, loaded: Loaded) -> Fault {
        let Loaded { slot, image, _offer } = loaded;
        let refusal = image.start();
        self.refused(slot, refusal)
    }

    fn reset_if_run(&mut self) {
        if self.has_run {
            print("starting the machine anew: what has run may have left something behind");
            runtime::reset(runtime::ResetType::COLD, Status::LOAD_ERROR, None);
        }
    }

    fn print(&mut self, line: &str) {
        print(line);
    }

    fn menu_requested(&mut self) -> bool {
        console::pressed_within(LISTEN)
    }

    fn choose(&mut self, offered: &[(Slot, &'static str)]) -> Option<Slot> {
        print("release the key");
        if !console::released() {
            return None;
        }
        for (slot, state) in offered {
            print(&alloc::format!("slot {slot} ({state}): press {slot} within 30 s to boot it, this time only"));
        }
        console::pressed(&offered.iter().map(|(slot, _)| *slot).collect::<Vec<_>>())
    }
}
