//! Facts that reading a payload yields.

use crate::prelude::*;

use super::{
    components::Components,
    format_checks::Unconfirmed,
    manifest::{FileInfo, Manifest, ROOTFS, has_uki},
    signer::Signer,
    unified::Unified,
};
use crate::{
    digest::Sha256,
    kernel::{arch::Arch, cmdline::split_words, efi_stub::StubLack, placeholder::Placeholder},
};

/// A payload whose files were hashed, or whose checksums are compared while they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct PayloadFacts {
    /// The source as `--source` names it.
    pub source: String,
    pub arch: Arch,
    /// `VERSION_ID` of its os-release.
    pub version: Option<String>,
    /// The epoch in its manifest.json, see [`Manifest::epoch`]. It counts only if it was signed.
    pub epoch: u32,
    /// The versions of programs in it that its manifest.json names.
    pub components: Components,
    /// Kernel, initramfs and, if there are such, squashfs and unified kernel image: always in this order. The first two are
    /// not there if they are in the unified kernel image alone.
    pub files: Vec<FileInfo>,
    /// Contents of the unified kernel image, if kernel and initramfs are no files.
    pub unified: Option<Unified>,
    /// The reason that keeps Slipway's own loader from starting it under UEFI.
    pub stub_lack: Option<StubLack>,
    /// Options that its kernel needs, and does not list. Empty if only the checksums were read.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The initramfs, or the file with it, in which Linux finds nothing to start. None if that is not known.
    pub lacks_init: Option<String>,
    /// Content of its `cmdline` file, if it has one.
    pub cmdline: Option<String>,
    /// Whether it has a SHA256SUMS, which then agreed.
    pub checksums: bool,
    /// The container image it is in: the digest of the index, or of the manifest if there is none.
    pub image: Option<Sha256>,
    /// The trusted keys that have signed it; empty if none has, or none was asked for.
    pub signed_by: Vec<Signer>,
}

impl PayloadFacts {
    /// The epoch that the owner of a trusted key vouches for.
    pub fn signed_epoch(&self) -> Option<u32> {
        (!self.signed_by.is_empty()).then_some(self.epoch)
    }

    /// A note on an initramfs with which Linux starts nothing. A kernel may have another one built in.
    pub fn init_note(&self) -> Option<String> {
        let file = self.lacks_init.as_ref()?;
        let own = self.unified.as_ref().map(|unified| &unified.cmdline).or(self.cmdline.as_ref());
        let is_named = own.is_some_and(|own| split_words(own).iter().any(|word| word.starts_with("rdinit=")));
        (!is_named).then(|| {
            format!(
                "{file} has no /init, which Linux starts first: pack what is in a directory, and not the directory (`cd DIR && \
                 find . | cpio -o -H newc`)"
            )
        })
    }

    /// Whether it brings a unified kernel image.
    pub fn has_uki(&self) -> bool {
        has_uki(&self.files)
    }

    /// Kernel and initramfs, if they are files.
    pub fn separate(&self) -> Option<[&FileInfo; 2]> {
        self.unified.is_none().then(|| [&self.files[0], &self.files[1]])
    }

    /// The files that boot: kernel, initramfs and, if there is one, the unified kernel image.
    pub fn boots(&self) -> impl Iterator<Item = &FileInfo> {
        self.files.iter().filter(|file| file.name != ROOTFS)
    }

    /// Value of a placeholder of the payload's own. A version that is more than one word to the kernel has none.
    pub fn value(&self, of: Placeholder) -> Option<String> {
        let squashfs = || self.files.iter().find(|file| file.name == ROOTFS);
        match of {
            Placeholder::Version => {
                let splits = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\');
                self.version.clone().filter(|version| !version.contains(splits))
            }
            Placeholder::SquashfsSha256 => squashfs().map(|file| file.sha256.to_string()),
            _ => None,
        }
    }

    /// The payload's manifest, without the fields of a slot's manifest.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            format: Manifest::FORMAT,
            version: self.version.clone(),
            epoch: self.epoch,
            components: self.components.clone(),
            arch: self.arch,
            files: self.files.clone(),
            unified: self.unified.clone(),
            efi_stub: self.stub_lack,
            cmdline: self.cmdline.clone(),
            payload_cmdline: None,
            kernel_args: None,
            image: None,
            signed_by: vec![],
        }
    }
}

/// The reason that keeps Slipway's own loader from starting these files under UEFI, by the first bytes of their kernel.
/// With a unified kernel image beside it, that one starts there.
pub fn stub_lack(files: &[FileInfo], kernel: &[u8]) -> Option<StubLack> {
    if has_uki(files) { None } else { StubLack::find(kernel) }
}
