//! Notes about a kernel that not every boot loader starts, and about kernel arguments without an effect.

use crate::prelude::*;

use crate::{
    boot::{EfiLoader, slot::Slot},
    kernel::{arch::Arch, efi_stub::StubLack},
    payload::{
        facts::PayloadFacts,
        manifest::{KernelArgs, Manifest, UKI, has_uki},
    },
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

/// Notes on kernel arguments that were asked for and have no effect.
pub fn kernel_args_notes(args: &KernelArgs, payload: &PayloadFacts) -> Vec<String> {
    let unified = payload.unified.as_ref().map(|unified| &unified.cmdline);
    if !args.payload_only && unified.is_none() {
        return vec![];
    }
    let Some(own) = unified.or(payload.cmdline.as_ref()) else {
        let note = "the payload has no cmdline file to use alone, so the installer builds the kernel command line";
        return vec![note.to_owned()];
    };
    let said = said(args, own);
    if said.is_empty() {
        return vec![];
    }
    let why = match unified {
        Some(_) => "the payload has no kernel but the one in uki.efi, which brings its command line along",
        None => "the payload's own cmdline is used alone (grubUseUKICmdline or similar)",
    };
    vec![format!("{why}, so these have no effect: {}", said.join(" "))]
}

/// The same where Slipway's loader starts the system: of a unified kernel image and a kernel beside it, it takes the image.
pub fn uki_note(args: &KernelArgs, payload: &PayloadFacts, loader: Option<EfiLoader>) -> Option<String> {
    let is_beside = payload.unified.is_none() && payload.has_uki();
    if !is_beside || args.payload_only || loader != Some(EfiLoader::Slipway) {
        return None;
    }
    let said = said(args, payload.cmdline.as_deref().unwrap_or_default()).join(" ");
    let why = "Slipway's loader starts the payload's uki.efi, which brings its command line along, so under UEFI these have no effect";
    (!said.is_empty()).then(|| format!("{why}: {said}"))
}

/// The arguments that were asked for, but for those that the payload has itself: `own`.
fn said(args: &KernelArgs, own: &str) -> Vec<String> {
    // machined always passes a platform and a config. An argument that only repeats the payload, or says `none`, needs
    // no note.
    let same = own.split_whitespace().any(|word| word == format!("talos.platform={}", args.platform));
    let platform = (!args.platform.is_empty() && !same).then(|| format!("--platform={}", args.platform));
    let config = (!matches!(args.config.as_str(), "" | "none")).then(|| format!("--config={}", args.config));
    platform.into_iter().chain(config).chain(args.extra.iter().cloned()).collect()
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
