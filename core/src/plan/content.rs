//! The files a slot holds beside the payload: boot configuration, manifest, checksums, marker.

use crate::prelude::*;

use uuid::Uuid;

use super::{Content, Refusal, Volume, VolumeFile};
use crate::{
    boot::{
        env::{MARKER, Marker},
        slot::Slot,
    },
    digest::{Sha256, Sums},
    disk::layout::Part,
    kernel::{
        arch::Arch,
        cmdline::{Cmdline, assemble, split_words},
        placeholder::{Placeholder, names_a_disk, settle},
        platform::Platform,
    },
    payload::{
        facts::PayloadFacts,
        manifest::{
            BOOT_SHA256, FileInfo, GrubLoads, KernelArgs, MANIFEST, Manifest, SHA256SUMS, SLOT_CFG, SlotCfg,
            system_digest,
        },
    },
};

/// The content that a slot is to hold.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct SlotContent<'a> {
    pub payload: &'a PayloadFacts,
    pub args: &'a KernelArgs,
    pub arch: Arch,
    pub disk_guid: Uuid,
    /// PARTUUIDs by partition number.
    pub guids: &'a [Uuid; 7],
    pub slot: Slot,
    pub time: u64,
    pub marker: Marker,
}

impl SlotContent<'_> {
    /// Names the files and the command line that they get in `slot`.
    pub fn digest(&self, slot: Slot) -> Result<Sha256, Refusal> {
        Ok(system_digest(&self.payload.files, &self.cmdline(slot)?.to_string()))
    }

    fn cmdline(&self, slot: Slot) -> Result<Cmdline, Refusal> {
        // Firmware starts a UKI with no other words, and GRUB starts the same system out of the same file.
        if let Some(unified) = &self.payload.unified {
            return Ok(Cmdline::parse(&unified.cmdline));
        }
        let KernelArgs { platform, config, payload_only, firmware, .. } = self.args;
        let platform = Platform::settled(platform)?;
        let Words { own, extra } = Words::new(self.payload, self.args).settled(&|of| self.value(of, slot))?;
        Ok(match (own, payload_only) {
            (Some(own), true) => Cmdline::parse(&format!("{own} {}", firmware.join(" "))),
            (own, _) => assemble(platform, config, self.arch, own.as_deref(), &extra),
        })
    }

    fn loads(&self) -> GrubLoads {
        let PayloadFacts { unified, files, .. } = self.payload;
        match unified {
            Some(unified) => GrubLoads::Unified { kernel: unified.kernel, initrd: unified.initramfs },
            None => GrubLoads::Files { kernel: files[0].name.clone(), initrd: files[1].name.clone() },
        }
    }

    fn value(&self, of: Placeholder, slot: Slot) -> Option<String> {
        let partuuid = |part| Some(self.guid(part).to_string());
        match of {
            Placeholder::Slot => Some(slot.to_string()),
            Placeholder::SlotPartuuid => partuuid(slot.into()),
            Placeholder::SlotUuid => {
                let serial = serial(self.guid(slot.into()));
                Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff))
            }
            Placeholder::EspPartuuid => partuuid(Part::Esp),
            Placeholder::MetaPartuuid => partuuid(Part::Meta),
            Placeholder::StatePartuuid => partuuid(Part::State),
            Placeholder::EphemeralPartuuid => partuuid(Part::Ephemeral),
            Placeholder::DiskGuid => Some(self.disk_guid.to_string()),
            Placeholder::Version | Placeholder::SquashfsSha256 => self.payload.value(of),
        }
    }

    const fn guid(&self, part: Part) -> Uuid {
        self.guids[part.index()]
    }

    /// The description that [`Self::volume`] will put into `slot`.
    pub fn described(&self, slot: Slot) -> Result<Described, Refusal> {
        let Texts { manifest, sums, .. } = self.texts(slot)?;
        Ok(Described { system: self.digest(slot)?, manifest, sums })
    }

    fn texts(&self, slot: Slot) -> Result<Texts, Refusal> {
        let payload = self.payload;
        let cmdline = self.cmdline(slot)?;
        let cfg = SlotCfg { loads: self.loads(), args: cmdline.quote_for_grub()?, disk_guid: self.disk_guid };
        let cmdline = cmdline.to_string();
        let manifest = Manifest {
            cmdline: Some(cmdline.clone()),
            payload_cmdline: payload.cmdline.clone(),
            kernel_args: Some(self.args.clone()),
            image: payload.image,
            signed_by: payload.signed_by.iter().map(|signer| signer.key).collect(),
            ..payload.manifest()
        };
        let cfg = VolumeFile::text(SLOT_CFG, cfg.render());
        let rendered = VolumeFile::text(MANIFEST, manifest.render());
        let digests = |files: &[&FileInfo], texts: &[&VolumeFile]| {
            let copied = files.iter().map(|f| (f.name.clone(), f.sha256));
            Sums(copied.chain(texts.iter().map(|f| (f.path.clone(), f.sha256))).collect())
        };
        let boot = VolumeFile::text(BOOT_SHA256, digests(&payload.boots().collect::<Vec<_>>(), &[&cfg]).render());
        let all: Vec<&FileInfo> = payload.files.iter().collect();
        let sums = digests(&all, &[&cfg, &rendered, &boot]);
        Ok(Texts { cmdline, manifest, sums, files: [cfg, rendered, boot] })
    }

    /// The slot's file system and kernel command line. No list of checksums has the marker, because it changes later.
    pub fn volume(&self) -> Result<(Volume, String), Refusal> {
        let Texts { cmdline, sums, files: [cfg, manifest, boot], .. } = self.texts(self.slot)?;
        let (payload, sums) = (self.payload, VolumeFile::text(SHA256SUMS, sums.render()));
        // When a file grows, all data behind it moves and must be written again. So the small files come first (their
        // sizes hardly change), then the large ones, mostly in falling size: unified kernel image, squashfs, initramfs, kernel.
        let mut files = vec![cfg, manifest, boot, sums, VolumeFile::text(MARKER, self.marker.render())];
        let large = payload.files.iter().rev();
        files.extend(large.map(|f| VolumeFile::copied(&f.name, f, Content::Payload)));
        Ok((Volume { serial: serial(self.guid(self.slot.into())), time: self.time, files }, cmdline))
    }
}

struct Texts {
    cmdline: String,
    manifest: Manifest,
    /// SHA256SUMS, which lists everything but itself.
    sums: Sums,
    /// slot.cfg, manifest.json and boot.sha256.
    files: [VolumeFile; 3],
}

/// A slot as it would be written.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Described {
    /// Names the files and the command line.
    pub system: Sha256,
    pub manifest: Manifest,
    /// Its SHA256SUMS.
    pub sums: Sums,
}

/// The kernel arguments in which placeholders may stand: the payload's own, and the requested ones.
pub struct Words {
    /// The payload's `cmdline`, if it has one.
    pub own: Option<String>,
    /// Words of `--extra-kernel-arg`, in order.
    pub extra: Vec<String>,
}

impl Words {
    fn new(payload: &PayloadFacts, args: &KernelArgs) -> Self {
        Words { own: payload.cmdline.clone(), extra: args.extra.clone() }
    }

    /// For a live medium, which has no slots: words that name one are left out, and returned beside.
    pub fn of_live_medium(payload: &PayloadFacts, args: &KernelArgs) -> Result<(Self, Vec<String>), Refusal> {
        let Words { own, extra } = Words::new(payload, args);
        let mut left_out = Vec::new();
        let mut keep = |text: &String| {
            let (out, kept) = split_words(text).into_iter().partition::<Vec<_>, _>(|word| names_a_disk(word));
            left_out.extend(out);
            kept.join(" ")
        };
        let words = Words { own: own.as_ref().map(&mut keep), extra: extra.iter().map(&mut keep).collect() };
        Ok((words.settled(&|of| payload.value(of))?, left_out))
    }

    /// The words for something that lies on no certain disk. A place on one has no value there.
    pub fn of_no_disk(payload: &PayloadFacts, args: &KernelArgs) -> Result<Self, Refusal> {
        Words::new(payload, args).settled(&|of| payload.value(of))
    }

    fn settled(self, value: &dyn Fn(Placeholder) -> Option<String>) -> Result<Self, Refusal> {
        let settle = |text: &str, place: &dyn Fn() -> String| {
            settle(text, value).map_err(|source| Refusal::Placeholder { place: place(), source })
        };
        let own = self.own.map(|own| settle(&own, &|| "the payload's cmdline".to_owned())).transpose()?;
        let extra = self.extra.iter().map(|arg| settle(arg, &|| format!("kernel argument {arg:?}")));
        Ok(Words { own, extra: extra.collect::<Result<_, _>>()? })
    }
}

/// The FAT32 serial number: the same plan gives the same bytes.
pub fn serial(part_guid: Uuid) -> u32 {
    part_guid.as_fields().0
}
