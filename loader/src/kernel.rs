//! Starts a slot with a kernel and an initramfs as files. Only where Secure Boot is off: otherwise the firmware would
//! verify the kernel alone.

use alloc::format;

use crate::{
    image::Image,
    initrd::Offer,
    memory,
    slot::{Files, Refusal},
};
use slipway_boot::{digest::Sums, run::Start};

/// Loads it.
pub fn load(files: &mut Files, sums: Option<&Sums>, start: Start) -> Result<(Image, Offer), Refusal> {
    let cfg = files.cfg(sums)?;
    let line = cfg.command_line(start.slot, start.trial).ok_or_else(|| Refusal::load("slot.cfg: odd arguments"))?;
    let initramfs = files.large(&cfg.initrd, sums)?;
    let kernel = files.large(&cfg.kernel, sums)?;
    let image = Image::load(&kernel, files.partition, &cfg.kernel)?.with_options(&line)?;
    drop(kernel);
    // The kernel's stub takes the initramfs into memory of its own. A kernel that gets none may hang, and the other slot may be
    // smaller.
    if !memory::has_room(initramfs.len()) {
        return Err(Refusal::load(format!(
            "the machine has too little memory: the kernel needs {} MiB more in one piece, for the initramfs",
            initramfs.len().div_ceil(1 << 20)
        )));
    }
    let offer = Offer::new(initramfs)
        .map_err(|e| Refusal::load(format!("the initramfs cannot be handed to the kernel: {}", e.status())))?;
    Ok((image, offer))
}
