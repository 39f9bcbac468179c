//! Loads the kernel of a slot.

use alloc::format;

use crate::{
    image::{self, Image},
    initrd::Offer,
    slot::{Files, Refusal},
    variable,
};
use slipway_boot::{digest::Sums, run::Start, slot_cfg::UKI};
use uefi::{
    Handle,
    boot::{self, MemoryType, PAGE_SIZE},
    mem::memory_map::MemoryMap as _,
};

/// Loads a kernel and an initramfs that are files of their own. Only where Secure Boot is off: otherwise the firmware would
/// verify the kernel alone.
pub fn load_files(files: &mut Files, sums: Option<&Sums>, start: Start) -> Result<(Image, Offer), Refusal> {
    let cfg = files.cfg(sums)?;
    let line = cfg.command_line(start.slot, start.trial).ok_or_else(|| Refusal::load("slot.cfg: odd arguments"))?;
    let initramfs = files.large(&cfg.initrd, sums)?;
    let kernel = files.large(&cfg.kernel, sums)?;
    let image = Image::load(&kernel, files.partition, &cfg.kernel)?.with_options(&line)?;
    drop(kernel);
    // The kernel's stub takes the initramfs into memory of its own. A kernel that gets none may hang, and the other slot may be
    // smaller.
    if !has_room(initramfs.len()) {
        return Err(Refusal::load(format!(
            "the machine has too little memory: the kernel needs {} MiB more in one piece, for the initramfs",
            initramfs.len().div_ceil(1 << 20)
        )));
    }
    let offer = Offer::new(initramfs)
        .map_err(|e| Refusal::load(format!("the initramfs cannot be handed to the kernel: {}", e.status())))?;
    Ok((image, offer))
}

/// Loads a unified kernel image: kernel, initramfs and command line in one signed file. Its own command line counts, so the
/// facts of this boot reach the system by a variable.
pub fn load_unified(
    files: &mut Files,
    sums: Option<&Sums>,
    start: Start,
    disk: Option<Handle>,
) -> Result<Image, Refusal> {
    let bytes = files.large(UKI, sums)?;
    // A program that was signed for another purpose is no system.
    if !image::is_unified(&bytes) {
        return Err(Refusal::load("uki.efi is no unified kernel image"));
    }
    let image = Image::load(&bytes, files.partition, UKI)?;
    variable::tell(start, disk)?;
    Ok(image)
}

/// Whether a program could still get so many bytes in one piece. Where the firmware does not tell, it could.
fn has_room(bytes: usize) -> bool {
    let Ok(map) = boot::memory_map(MemoryType::LOADER_DATA) else { return true };
    let pages = bytes.div_ceil(PAGE_SIZE) as u64;
    map.entries().any(|range| range.ty == MemoryType::CONVENTIONAL && range.page_count >= pages)
}
