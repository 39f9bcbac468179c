//! The lists of a slot: SHA256SUMS, boot.sha256 and manifest.json. The installer writes them together, so they agree.
//!
//! SHA256SUMS alone does not tell which files boot. A boot loader goes by boot.sha256, an upgrade by manifest.json, and
//! Slipway's loader starts a unified kernel image because it is there.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::{
    format_checks::is_initramfs,
    manifest::{BOOT_SHA256, KERNEL, MANIFEST, Manifest, ROOTFS, SLOT_CFG, UKI},
};
use crate::digest::{Sha256, Sums};

/// Content of a slot's lists.
#[derive(Clone, Debug)]
pub struct Lists {
    /// SHA256SUMS.
    pub sums: BTreeMap<String, Sha256>,
    /// `boot.sha256`, if it can be read.
    pub boot: Option<Sums>,
    /// `manifest.json`, if it can be read.
    pub manifest: Option<Manifest>,
}

impl Lists {
    /// Whether they disagree on a file that is in the slot. One that nothing starts need not be in any list: fsck leaves
    /// such files.
    pub fn dispute(&self, name: &str) -> bool {
        let (sum, boot) = (found(&self.sums, name), self.boot.as_ref().map(|boot| found(&boot.0, name)));
        let boots = boots(name);
        let in_manifest = self.manifest.as_ref().filter(|_| is_of_payload(name)).map(|manifest| {
            let file = manifest.files.iter().find(|file| file.name.eq_ignore_ascii_case(name));
            file.map(|file| file.sha256)
        });
        let unlisted = sum.is_none() && (boots || is_own(name) || is_of_payload(name));
        // Files that boot are in boot.sha256, and its entries agree with the other lists.
        let by_boot = boot.is_some_and(|boot| boot != sum && (boots || boot.is_some()));
        unlisted || by_boot || in_manifest.is_some_and(|listed| listed != sum)
    }

    /// Names that must be in SHA256SUMS, and are not.
    pub fn left_out(&self) -> Vec<String> {
        let of_payload = self.manifest.iter().flat_map(|manifest| &manifest.files).map(|file| file.name.as_str());
        let names = of_payload.chain([SLOT_CFG, BOOT_SHA256, MANIFEST]);
        names.filter(|name| found(&self.sums, name).is_none()).map(ToOwned::to_owned).collect()
    }
}

fn found(list: &BTreeMap<String, Sha256>, name: &str) -> Option<Sha256> {
    list.iter().find(|(listed, _)| listed.eq_ignore_ascii_case(name)).map(|(_, digest)| *digest)
}

/// Whether a boot loader reads it.
fn boots(name: &str) -> bool {
    is(&[UKI, KERNEL, SLOT_CFG], name) || is_initramfs(&name.to_ascii_lowercase())
}

/// Whether the installer makes it.
fn is_own(name: &str) -> bool {
    is(&[SLOT_CFG, BOOT_SHA256, MANIFEST], name)
}

/// Whether it comes from the payload.
fn is_of_payload(name: &str) -> bool {
    is(&[UKI, KERNEL, ROOTFS], name) || is_initramfs(&name.to_ascii_lowercase())
}

fn is(names: &[&str], name: &str) -> bool {
    names.iter().any(|one| one.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kernel::arch::Arch,
        payload::{components::Components, manifest::FileInfo},
    };

    const INITRAMFS: &str = "initramfs.xz";

    fn lists() -> Lists {
        let digest = |name: &&str| ((*name).to_owned(), Sha256::of(name.as_bytes()));
        let sums: BTreeMap<_, _> =
            [KERNEL, INITRAMFS, ROOTFS, SLOT_CFG, BOOT_SHA256, MANIFEST].iter().map(digest).collect();
        let boot = Sums([KERNEL, INITRAMFS, SLOT_CFG].iter().map(digest).collect());
        let file = |name: &str| FileInfo { name: name.to_owned(), size: 1, sha256: Sha256::of(name.as_bytes()) };
        let manifest = Manifest {
            format: 1,
            version: None,
            epoch: 0,
            components: Components::default(),
            arch: Arch::Amd64,
            files: [KERNEL, INITRAMFS, ROOTFS].map(file).into(),
            unified: None,
            efi_stub: None,
            cmdline: None,
            payload_cmdline: None,
            kernel_args: None,
            image: None,
            signed_by: vec![],
        };
        Lists { sums, boot: Some(boot), manifest: Some(manifest) }
    }

    fn disputed(lists: &Lists, more: &[&str]) -> Vec<String> {
        let names = lists.sums.keys().cloned().chain(more.iter().map(|name| (*name).to_owned()));
        names.filter(|name| lists.dispute(name)).collect()
    }

    #[test]
    fn what_the_installer_wrote_agrees() {
        assert_eq!(disputed(&lists(), &["FSCK0000.REC", "readme.txt"]), Vec::<String>::new());
        assert_eq!(lists().left_out(), Vec::<String>::new());
        // A manifest of a later version says nothing, and neither does a boot.sha256 that cannot be read.
        assert_eq!(disputed(&Lists { manifest: None, boot: None, ..lists() }, &[]), Vec::<String>::new());
    }

    #[test]
    fn one_list_that_differs_is_found() {
        let other = Sha256::of(b"other");
        for name in [KERNEL, INITRAMFS, SLOT_CFG] {
            let (mut changed, mut without, mut sums) = (lists(), lists(), lists());
            changed.boot.as_mut().unwrap().0.insert(name.to_owned(), other);
            without.boot.as_mut().unwrap().0.remove(name);
            sums.sums.insert(name.to_owned(), other);
            for lists in [changed, without, sums] {
                assert_eq!(disputed(&lists, &[]), [name]);
            }
        }
        // boot.sha256 does not list it.
        let mut lists = lists();
        lists.sums.insert(ROOTFS.to_owned(), other);
        assert_eq!(disputed(&lists, &[]), [ROOTFS]);
        // No boot reads the manifest's file list.
        lists.manifest.as_mut().unwrap().files[2].sha256 = other;
        assert_eq!(disputed(&lists, &[]), Vec::<String>::new());
        lists.sums.remove(SLOT_CFG);
        assert_eq!(lists.left_out(), [SLOT_CFG]);
    }

    #[test]
    fn what_was_added_is_found() {
        for name in [UKI, "UKI.EFI", "initramfs.gz", "INITRAMFS.IMG"] {
            assert_eq!(disputed(&lists(), &[name]), [name]);
            let mut listed = lists();
            listed.sums.insert(name.to_owned(), Sha256::of(b"evil"));
            assert_eq!(disputed(&listed, &[]), [name]);
            listed.boot.as_mut().unwrap().0.insert(name.to_owned(), Sha256::of(b"evil"));
            assert_eq!(disputed(&listed, &[]), [name]);
        }
        let mut bare = lists();
        bare.sums.remove(SLOT_CFG);
        assert_eq!(disputed(&bare, &[SLOT_CFG]), [SLOT_CFG]);
    }
}
