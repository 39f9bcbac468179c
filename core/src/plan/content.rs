//! The files a slot holds beside the payload: boot configuration, manifest, checksums, marker.

use crate::prelude::*;

use uuid::Uuid;

use super::{Content, Refusal, Volume, VolumeFile};
use crate::{
    boot::env::{MARKER, Marker},
    digest::Sums,
    kernel::{
        arch::Arch,
        cmdline::{Cmdline, assemble},
        platform::Platform,
    },
    payload::{
        facts::PayloadFacts,
        manifest::{BOOT_SHA256, FileInfo, KernelArgs, MANIFEST, Manifest, SHA256SUMS, SLOT_CFG, SlotCfg},
    },
};

pub struct SlotContent<'a> {
    pub payload: &'a PayloadFacts,
    pub args: &'a KernelArgs,
    pub arch: Arch,
    pub disk_guid: Uuid,
    pub part_guid: Uuid,
    pub time: u64,
    pub marker: Marker,
}

impl SlotContent<'_> {
    /// The slot's file system and kernel command line. No list of checksums has the marker, because it changes later.
    pub fn volume(&self) -> Result<(Volume, String), Refusal> {
        let payload = self.payload;
        let KernelArgs { platform, config, extra, payload_only, firmware } = self.args;
        let platform = Platform::settled(platform)?;
        let cmdline = match (&payload.cmdline, payload_only) {
            (Some(own), true) => Cmdline::parse(&format!("{own} {}", firmware.join(" "))),
            (own, _) => assemble(platform, config, self.arch, own.as_deref(), extra),
        };
        let cfg = SlotCfg {
            kernel: payload.kernel().name.clone(),
            initrd: payload.initramfs().name.clone(),
            args: cmdline.quote_for_grub()?,
            disk_guid: self.disk_guid,
        };
        let cmdline = cmdline.to_string();
        let kernel_args = Some(self.args.clone());
        let manifest =
            Manifest { cmdline: Some(cmdline.clone()), kernel_args, image: payload.image, ..payload.manifest() };
        let cfg = VolumeFile::text(SLOT_CFG, cfg.render());
        let manifest = VolumeFile::text(MANIFEST, manifest.render());
        let digests = |files: &[&FileInfo], texts: &[&VolumeFile]| {
            let copied = files.iter().map(|f| (f.name.clone(), f.sha256));
            Sums(copied.chain(texts.iter().map(|f| (f.path.clone(), f.sha256))).collect()).render()
        };
        let boot = VolumeFile::text(BOOT_SHA256, digests(&[payload.kernel(), payload.initramfs()], &[&cfg]));
        let all: Vec<&FileInfo> = payload.files.iter().collect();
        let sums = VolumeFile::text(SHA256SUMS, digests(&all, &[&cfg, &manifest, &boot]));
        // When a file grows, all data behind it moves and must be written again. So the small files come first (their
        // sizes hardly change), then the large ones in falling size: squashfs, initramfs, kernel.
        let mut files = vec![cfg, manifest, boot, sums, VolumeFile::text(MARKER, self.marker.render())];
        let large = payload.files.iter().rev();
        files.extend(large.map(|f| VolumeFile::copied(&f.name, f, Content::Payload)));
        Ok((Volume { serial: serial(self.part_guid), time: self.time, files }, cmdline))
    }
}

/// Notes on kernel arguments that were asked for and have no effect.
pub fn kernel_args_notes(args: &KernelArgs, payload: &PayloadFacts) -> Vec<String> {
    if !args.payload_only {
        return vec![];
    }
    let Some(own) = &payload.cmdline else {
        let note = "the payload has no cmdline file to use alone, so the installer builds the kernel command line";
        return vec![note.to_owned()];
    };
    // machined always passes a platform and a config. What only repeats the payload, or says `none`, needs no note.
    let same = own.split_whitespace().any(|word| word == format!("talos.platform={}", args.platform));
    let platform = (!args.platform.is_empty() && !same).then(|| format!("--platform={}", args.platform));
    let config = (!matches!(args.config.as_str(), "" | "none")).then(|| format!("--config={}", args.config));
    let said: Vec<_> = platform.into_iter().chain(config).chain(args.extra.iter().cloned()).collect();
    if said.is_empty() {
        return vec![];
    }
    vec![format!(
        "the payload's own cmdline is used alone (grubUseUKICmdline or similar), so these have no effect: {}",
        said.join(" ")
    )]
}

/// The FAT32 serial number: the same plan gives the same bytes.
pub fn serial(part_guid: Uuid) -> u32 {
    part_guid.as_fields().0
}
