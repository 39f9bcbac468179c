//! Notes about a kernel that not every boot loader starts.

use crate::prelude::*;

use crate::{
    boot::{EfiLoader, slot::Slot},
    kernel::{arch::Arch, efi_stub::StubLack},
    payload::manifest::{Manifest, UKI, has_uki},
};

/// A warning of a kernel that does not start under UEFI; `loader` starts the disk there, if that is known. It is no
/// reason for a refusal: the machine may have a BIOS, whose GRUB starts any kernel.
pub fn kernel_note(lack: Option<StubLack>, arch: Arch, loader: Option<EfiLoader>) -> Option<String> {
    let lack = lack?;
    match (lack, loader) {
        // Only GRUB for x86 starts a kernel by other means.
        (StubLack::Missing, _) if !arch.has_bios() => Some(format!(
            "the kernel does not boot: {lack}, without which nothing starts it under UEFI; take another kernel"
        )),
        (_, Some(EfiLoader::Grub)) => None,
        (_, Some(EfiLoader::Slipway)) => Some(format!(
            "the kernel does not boot under UEFI, where Slipway's loader is to start it: {lack}; take --efi-loader grub, or \
             another kernel"
        )),
        (_, None) => Some(format!(
            "the kernel does not boot under UEFI unless GRUB starts it (--efi-loader grub): {lack}; `installer bootloader \
             status` shows what starts this disk"
        )),
    }
}

/// A warning of a slot that was staged before Secure Boot was on: now its trial fails. It is no reason for a refusal: the
/// machine goes back to the other slot.
pub fn no_uki_note(slot: Slot, manifest: &Manifest) -> Option<String> {
    (!has_uki(&manifest.files)).then(|| {
        format!(
            "slot {slot} would not start, because it has no {UKI}: Secure Boot is on, and this machine's boot loader starts \
             nothing else"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_it_concerns() {
        let note = |lack, arch, loader| kernel_note(Some(lack), arch, loader).unwrap_or_default();
        let (own, grub) = (Some(EfiLoader::Slipway), Some(EfiLoader::Grub));
        for lack in [StubLack::Missing, StubLack::Old] {
            assert_eq!(note(lack, Arch::Amd64, grub), "");
            assert!(note(lack, Arch::Amd64, own).contains("take --efi-loader grub, or another kernel"));
            assert!(note(lack, Arch::Amd64, None).contains("unless GRUB starts it"));
        }
        assert_eq!(note(StubLack::Old, Arch::Arm64, grub), "");
        assert!(note(StubLack::Old, Arch::Arm64, own).contains("--efi-loader grub"));
        for loader in [own, grub, None] {
            assert!(note(StubLack::Missing, Arch::Arm64, loader).contains("nothing starts it"));
            assert_eq!(kernel_note(None, Arch::Arm64, loader), None);
        }
    }
}
