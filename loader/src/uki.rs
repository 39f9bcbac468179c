//! Starts a slot with a unified kernel image: kernel, initramfs and command line in one signed file. Its own command
//! line counts, so the facts of this boot reach the system by a variable.

use crate::{
    image::{self, Image},
    slot::{Files, Refusal},
    variable,
};
use slipway_boot::{digest::Sums, run::Start, slot_cfg::UKI};
use uefi::Handle;

/// Loads it, and tells its system the facts of this boot.
pub fn load(files: &mut Files, sums: Option<&Sums>, start: Start, disk: Option<Handle>) -> Result<Image, Refusal> {
    let bytes = files.large(UKI, sums)?;
    // A program that was signed for another purpose is no system.
    if !image::is_unified(&bytes) {
        return Err(Refusal::load("uki.efi is no unified kernel image"));
    }
    let image = Image::load(&bytes, files.partition, UKI)?;
    variable::tell(start, disk)?;
    Ok(image)
}
