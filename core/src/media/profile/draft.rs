//! An incomplete profile: the values of a base profile, overridden by the keys of a profile or by arguments.

use crate::prelude::*;

use super::{
    DiskOptions, EnrolledKeys, Fault, OutFormat, OutputKind, PayloadInput, Product, Profile, SecureBoot,
    secure_boot::{NO_KEYS_ON_IT, NOT_GRUB},
};
use crate::{
    boot::EfiLoader,
    efi::enroll_mode::EnrollMode,
    kernel::{arch::Arch, platform::Platform},
    media::format::ImageKind,
    units::SectorSize,
};

/// A profile in which anything may still be missing. Each field names its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Draft {
    pub arch: Option<Arch>,
    pub platform: Option<Platform>,
    /// `customization.extraKernelArgs`.
    pub extra_kernel_args: Vec<String>,
    /// `customization.metaContents`.
    pub meta: Vec<(u8, String)>,
    /// `input`.
    pub origin: Option<PayloadInput>,
    /// `output.kind`.
    pub kind: Option<OutputKind>,
    /// `output.imageOptions.diskSize`, bytes.
    pub disk_bytes: Option<u64>,
    /// `output.imageOptions.diskFormat`.
    pub disk_format: Option<ImageKind>,
    /// `output.imageOptions.diskSectorSize`.
    pub sector: Option<SectorSize>,
    /// `output.imageOptions.bootloader`.
    pub efi_loader: Option<EfiLoader>,
    /// `input.sdStub.path`.
    pub stub: Option<String>,
    /// `secureboot`, and `input.secureboot`.
    pub secure_boot: Option<SecureBoot>,
    /// `output.isoOptions.sdBootEnrollKeys`.
    pub enroll: Option<EnrollMode>,
    /// `output.outFormat`.
    pub out_format: Option<OutFormat>,
}

impl Draft {
    /// Set the META tags, once the kind is known. Only a disk has META; Talos' ISOs pass the tags on to the installer.
    pub fn set_meta(&mut self, tags: Vec<(u8, String)>) -> Result<(), Fault> {
        if matches!(self.kind, Some(OutputKind::Iso | OutputKind::Uki)) && !tags.is_empty() {
            let what = "only a disk has META: give it to the installer that writes the disk, by --meta, or by the kernel \
                        argument talos.environment=INSTALLER_META_BASE64=... where machined runs it";
            return Err(Fault::Unsupported(what.to_owned()));
        }
        self.meta = tags;
        Ok(())
    }

    /// Whether a unified kernel image is made.
    pub fn has_uki(&self) -> bool {
        self.secure_boot.is_some() || self.kind == Some(OutputKind::Uki)
    }

    /// Whether the image can bring keys for firmware.
    pub fn brings_keys(&self) -> bool {
        self.secure_boot.is_some() && self.kind == Some(OutputKind::Iso)
    }

    /// Set when keys are enrolled. `manual` and `off` go with every image.
    pub fn set_enroll(&mut self, name: &str) -> Result<(), Fault> {
        let names = || EnrollMode::ALL.map(|(_, name, _)| name).join(", ");
        let mode = EnrollMode::by_name(name)
            .ok_or_else(|| Fault::Wrong(format!("{name:?} is no time to enroll: {}", names())))?;
        match mode {
            mode if self.brings_keys() => self.enroll = Some(mode),
            EnrollMode::Off | EnrollMode::Manual => {}
            EnrollMode::IfSafe | EnrollMode::Force => return Err(Fault::Unsupported(NO_KEYS_ON_IT.to_owned())),
        }
        Ok(())
    }

    /// Microsoft's certificates are enrolled, too.
    pub fn set_well_known(&mut self) -> Result<(), Fault> {
        if !self.brings_keys() {
            return Err(Fault::Unsupported(NO_KEYS_ON_IT.to_owned()));
        }
        if let Some(signed) = &mut self.secure_boot {
            signed.enrolled = EnrolledKeys::Own { well_known: true };
        }
        Ok(())
    }

    /// Fill in the defaults, or say which key is missing.
    pub fn settle(self) -> Result<Profile, Fault> {
        let arch = self.arch.ok_or_else(|| Fault::Wrong("arch is missing: amd64 or arm64".to_owned()))?;
        let product = required(self.kind, "output.kind")?.product(self.disk_format)?;
        let product = required(product, "output.imageOptions.diskFormat")?;
        if self.secure_boot.is_some() && self.efi_loader == Some(EfiLoader::Grub) {
            return Err(Fault::Wrong(format!("output.imageOptions.bootloader: {}", NOT_GRUB)));
        }
        let disk = match product {
            Product::Uki => None,
            Product::Image(kind) if kind.live().is_some() => None,
            Product::Image(_) => Some(DiskOptions {
                bytes: required(self.disk_bytes, "output.imageOptions.diskSize")?,
                sector: self.sector.unwrap_or(SectorSize::S512),
                efi_loader: self.efi_loader.unwrap_or_default(),
            }),
        };
        let enroll = self.brings_keys().then(|| self.enroll.unwrap_or(EnrollMode::IfSafe));
        let compression = required(self.out_format, "output.outFormat")?.compression()?;
        if product == Product::Uki && compression.is_some() {
            let what = "firmware starts no compressed unified kernel image: write raw";
            return Err(Fault::Wrong(format!("output.outFormat: {what}")));
        }
        Ok(Profile {
            arch,
            platform: required(self.platform, "platform")?,
            extra_kernel_args: self.extra_kernel_args,
            meta: self.meta,
            origin: self.origin.unwrap_or_else(|| PayloadInput::default_of(arch)),
            product,
            disk,
            enroll,
            stub: self.stub,
            secure_boot: self.secure_boot,
            compression,
        })
    }
}

/// Only base profiles have a default for this key.
fn required<T>(value: Option<T>, key: &str) -> Result<T, Fault> {
    value.ok_or_else(|| {
        Fault::Wrong(format!(
            "{key} is missing: add it, or start from a base profile that has it, such as metal or iso"
        ))
    })
}
