//! The metadata files of payloads and slots: manifest, boot configuration, checksums.

use crate::prelude::*;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    components::Components,
    unified::{Sectors, Unified},
};
use crate::kernel::{arch::Arch, efi_stub::StubLack};
use crate::{
    boot::{env_block::EnvBlock, slot_cfg},
    digest::{Sha256, Sums},
    text::printable,
};

/// File name of the squashfs in payloads and slots.
pub const ROOTFS: &str = "rootfs.squashfs";
/// File name of the kernel in payloads and slots.
pub const KERNEL: &str = "vmlinuz";
/// File names an initramfs may have; the first one found is used.
pub const INITRAMFS: [&str; 4] = ["initramfs.xz", "initramfs.zst", "initramfs.gz", "initramfs.img"];
/// File name of the unified kernel image in payloads and slots. Slipway's own loader starts it under UEFI instead of kernel and
/// initramfs.
pub const UKI: &str = slot_cfg::UKI;
/// Checksums of every file of a payload, in coreutils' format.
pub const SHA256SUMS: &str = "SHA256SUMS";
/// Signatures over the bytes of [`SHA256SUMS`], beside it.
pub const SHA256SUMS_SIG: &str = "SHA256SUMS.sig";
/// Checksums of the files that boot. The squashfs is left out, because GRUB hashes slowly.
pub const BOOT_SHA256: &str = slot_cfg::BOOT_SHA256;
/// The slot's file for the boot loader.
pub const SLOT_CFG: &str = slot_cfg::SLOT_CFG;
/// Describes a payload for tools.
pub const MANIFEST: &str = "manifest.json";

/// One file of a payload; its size is in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct FileInfo {
    /// File name without a directory.
    pub name: String,
    pub size: u64,
    /// SHA-256 of its content.
    pub sha256: Sha256,
}

/// The content of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Manifest {
    /// Version of this format: 1.
    pub format: u32,
    /// Version of the payload (`VERSION_ID` of its os-release).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Counts what must not come back: a payload with a lower epoch does not follow a signed system. 0 if there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u32,
    /// The versions of programs in it by which a cluster decides.
    #[serde(default, skip_serializing_if = "Components::is_empty")]
    pub components: Components,
    pub arch: Arch,
    /// Kernel, initramfs, squashfs and unified kernel image, in this order; the last two if there are any. The first two may
    /// be in the unified kernel image alone.
    pub files: Vec<FileInfo>,
    /// The contents of the unified kernel image, if kernel and initramfs are no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unified: Option<Unified>,
    /// The feature that the kernel lacks to start under UEFI by Slipway's own loader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efi_stub: Option<StubLack>,
    /// In a payload: its own kernel command line. In a slot: the finished one, without what the boot rule adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<String>,
    /// In a slot: the payload's own kernel command line, from which the finished one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_cmdline: Option<String>,
    /// In a slot: what the user asked for, so that the next upgrade can keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_args: Option<KernelArgs>,
    /// In a slot: the container image that it was written from, as a registry names it: the digest of the index, or of the
    /// manifest if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Sha256>,
    /// In a slot: the trusted keys that had signed what was written, each by the SHA-256 of its DER form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_by: Vec<Sha256>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(epoch: &u32) -> bool {
    *epoch == 0
}

/// The epoch in a `manifest.json`; 0 if it has none. The rest of it does not matter.
pub fn epoch(manifest: &[u8]) -> Result<u32, String> {
    let members: serde_json::Map<_, _> = serde_json::from_slice(manifest).map_err(|e| e.to_string())?;
    let Some(epoch) = members.get("epoch") else { return Ok(0) };
    let number = epoch.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| format!("its epoch is {epoch}, not a number up to {}", u32::MAX))
}

/// The arguments that the user adds to the payload's own kernel arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelArgs {
    /// Name of the platform; empty if none was asked for. Text, so that a later version's platform does not make the whole
    /// manifest unreadable.
    pub platform: String,
    /// Value of `talos.config`; empty for none.
    pub config: String,
    /// `--extra-kernel-arg`, in order.
    pub extra: Vec<String>,
    /// Use the payload's own `cmdline` alone, if it has one: ignore all of the above.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub payload_only: bool,
    /// The arguments that the firmware adds to a `cmdline` that is used alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware: Vec<String>,
}

/// Whether a unified kernel image is one of these files.
pub fn has_uki(files: &[FileInfo]) -> bool {
    files.iter().any(|file| file.name == UKI)
}

impl Manifest {
    /// The only format so far.
    pub const FORMAT: u32 = 1;

    /// As indented JSON with a newline at the end.
    pub fn render(&self) -> String {
        // Cannot fail: the struct holds only strings and numbers.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Parse, and refuse other format numbers. The number comes first: another format has other keys, and they say less.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let found: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        match found["format"].as_u64() {
            Some(number) if number != u64::from(Self::FORMAT) => {
                let own = Self::FORMAT;
                Err(format!("it has format {number}, and this version reads format {own}: use a later installer"))
            }
            _ => serde_json::from_slice(bytes).map_err(|e| e.to_string()),
        }
    }

    /// The manifest of a slot. It must stay readable from any writer: the slot may be the way back. So control
    /// characters in the version, which earlier installers took, become escapes here.
    ///
    /// With the parts that only a later version knows: `format 2`, or names of keys. None if all of it is known; and
    /// all that is known if there is no manifest.
    pub fn of_slot(bytes: &[u8]) -> (Option<Self>, Vec<String>) {
        let mut later = Vec::new();
        let found = Self::parse(bytes).ok().or_else(|| Self::of_later(bytes, &mut later));
        let printed = |manifest: Self| Manifest { version: manifest.version.as_deref().map(printable), ..manifest };
        (found.map(printed), later)
    }

    /// The part of a later version's manifest that this version understands.
    fn of_later(bytes: &[u8], later: &mut Vec<String>) -> Option<Self> {
        type Members = serde_json::Map<String, serde_json::Value>;
        const KNOWN: [&str; 13] = [
            "format",
            "version",
            "epoch",
            "components",
            "arch",
            "files",
            "unified",
            "efi_stub",
            "cmdline",
            "payload_cmdline",
            "kernel_args",
            "image",
            "signed_by",
        ];
        const KNOWN_ARGS: [&str; 5] = ["platform", "config", "extra", "payload_only", "firmware"];
        let mut keep = |members: &mut Members, known: &[&str], within: &str| {
            members.retain(|key, _| {
                let is_known = known.contains(&key.as_str());
                if !is_known {
                    later.push(printable(&format!("{within}{key}")));
                }
                is_known
            });
        };
        let mut members: Members = serde_json::from_slice(bytes).ok()?;
        let format = members.insert("format".to_owned(), Self::FORMAT.into())?;
        keep(&mut members, &KNOWN, "");
        if let Some(args) = members.get_mut("kernel_args").and_then(|args| args.as_object_mut()) {
            keep(args, &KNOWN_ARGS, "kernel_args.");
        }
        if format != Self::FORMAT {
            later.insert(0, format!("format {format}"));
        }
        // Nothing that is asked of a slot needs these.
        for key in ["unified", "efi_stub", "components"] {
            let mut without = members.clone();
            if without.remove(key).is_some() && serde_json::from_value::<Manifest>(members.clone().into()).is_err() {
                later.push(key.to_owned());
                members = without;
            }
        }
        let manifest = serde_json::from_value(members.into()).ok();
        if manifest.is_none() && later.is_empty() {
            later.push("the form of what it says".to_owned());
        }
        manifest
    }

    /// The digest that names this payload: its files and its own kernel command line. A user's additions do not count,
    /// so it is the same on all machines, and the same in the payload and in the slot that it was written to.
    pub fn payload_digest(&self) -> Sha256 {
        // Only a slot has kernel arguments that were asked for.
        let is_slot = self.kernel_args.is_some();
        match if is_slot { &self.payload_cmdline } else { &self.cmdline } {
            Some(cmdline) => system_digest(&self.files, cmdline),
            None => Sha256::of(sums(&self.files).render().as_bytes()),
        }
    }

    /// In a slot: the digest that names its system, see [`system_digest`].
    pub fn system_digest(&self) -> Sha256 {
        match &self.cmdline {
            Some(cmdline) => system_digest(&self.files, cmdline),
            None => self.payload_digest(),
        }
    }
}

/// The digest that names a system: all that decides how it boots, which is its files and its finished kernel command
/// line. A slot is tried, and given up, under this name. So the same files with a command line that was mended are
/// another system.
pub fn system_digest(files: &[FileInfo], cmdline: &str) -> Sha256 {
    let mut sums = sums(files);
    sums.0.insert("cmdline".to_owned(), Sha256::of(cmdline.as_bytes()));
    Sha256::of(sums.render().as_bytes())
}

fn sums(files: &[FileInfo]) -> Sums {
    Sums(files.iter().map(|f| (f.name.clone(), f.sha256)).collect())
}

/// Place where GRUB finds kernel and initramfs of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum GrubLoads {
    /// Files of these names.
    Files { kernel: String, initrd: String },
    /// Parts of the unified kernel image.
    Unified { kernel: Sectors, initrd: Sectors },
}

/// `slot.cfg`: a GRUB environment block that GRUB only reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct SlotCfg {
    pub loads: GrubLoads,
    /// Kernel arguments, each quoted as a word of GRUB's script language.
    pub args: String,
    /// Disk GUID, which GRUB passes to the kernel as `slipway.disk`.
    pub disk_guid: Uuid,
}

impl SlotCfg {
    /// Text of the file.
    pub fn render(&self) -> String {
        let loads = match &self.loads {
            GrubLoads::Files { kernel, initrd } => {
                vec![("kernel", format!("/{kernel}")), ("initrd", format!("/{initrd}"))]
            }
            // Names of their own: an earlier GRUB would take sectors of the image for sectors of the slot.
            GrubLoads::Unified { kernel, initrd } => {
                vec![("uki", format!("/{UKI}")), ("uki_kernel", kernel.to_string()), ("uki_initrd", initrd.to_string())]
            }
        };
        let rest = [("args", self.args.clone()), ("guid", self.disk_guid.to_string())];
        EnvBlock::new(loads.into_iter().chain(rest)).render()
    }
}

/// `VERSION_ID` of an os-release file (os-release(5)). As in a shell, the last one counts.
pub fn version_id(os_release: &str) -> Option<String> {
    let lines = os_release.trim_start_matches('\u{feff}').lines();
    let line = lines.rev().find_map(|l| l.trim().strip_prefix("VERSION_ID="))?;
    let value = line.trim_matches(['"', '\'']).to_owned();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_recognised() {
        let mut x86 = vec![0; 1024];
        x86[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        x86[0x202..0x206].copy_from_slice(b"HdrS");
        assert_eq!(Arch::of_kernel(&x86), Some(Arch::Amd64));
        let mut arm = vec![0; 64];
        arm[56..60].copy_from_slice(b"ARM\x64");
        assert_eq!(Arch::of_kernel(&arm), Some(Arch::Arm64));
        assert_eq!(Arch::of_kernel(&[0; 1024]), None);
        assert_eq!(Arch::of_kernel(b"short"), None);
    }

    #[test]
    fn manifest_round_trips_and_refuses_the_future() {
        let m = Manifest {
            format: 1,
            version: Some("1.2.3".into()),
            epoch: 0,
            components: Components::default(),
            arch: Arch::Amd64,
            unified: None,
            efi_stub: None,
            files: vec![FileInfo { name: KERNEL.into(), size: 3, sha256: Sha256::of(b"abc") }],
            cmdline: None,
            payload_cmdline: None,
            kernel_args: None,
            image: None,
            signed_by: vec![],
        };
        assert_eq!(Manifest::parse(m.render().as_bytes()), Ok(m.clone()));
        // An epoch of 0 counts as none, so earlier installers can read a manifest without one.
        assert!(!m.render().contains("epoch"));
        let counted = Manifest { epoch: 3, ..m.clone() };
        assert_eq!(Manifest::parse(counted.render().as_bytes()), Ok(counted.clone()));
        assert_eq!((epoch(counted.render().as_bytes()), epoch(m.render().as_bytes())), (Ok(3), Ok(0)));
        assert_eq!(epoch(b"{\"epoch\": 7, \"new\": []}"), Ok(7));
        for wrong in ["", "[]", "[7]", "{\"epoch\": -1}", "{\"epoch\": 4294967296}", "{\"epoch\": \"3\"}"] {
            assert!(epoch(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let newer = m.render().replace("\"format\": 1", "\"format\": 2");
        assert!(Manifest::parse(newer.as_bytes()).unwrap_err().contains("format 2"));
        // The number is told, not the first key that is not known.
        let with_key = newer.replace("\"arch\"", "\"colour\": 1, \"arch\"");
        assert!(Manifest::parse(with_key.as_bytes()).unwrap_err().contains("format 2"));
        assert!(Manifest::parse(b"{}").is_err());
    }

    #[test]
    fn a_system_is_its_files_and_its_command_line() {
        let file = |n: u8| FileInfo { name: KERNEL.into(), size: 3, sha256: Sha256::of(&[n]) };
        let slot = |n: u8, cmdline: Option<&str>| Manifest {
            format: 1,
            version: None,
            epoch: 0,
            components: Components::default(),
            arch: Arch::Amd64,
            files: vec![file(n)],
            unified: None,
            efi_stub: None,
            cmdline: cmdline.map(ToOwned::to_owned),
            payload_cmdline: None,
            kernel_args: Some(KernelArgs::default()),
            image: None,
            signed_by: vec![],
        };
        let system = |n, cmdline| slot(n, Some(cmdline)).system_digest();
        assert_eq!(system(1, "quiet"), system_digest(&[file(1)], "quiet"));
        assert_eq!(
            system(1, "quiet"),
            Manifest { version: Some("2".into()), ..slot(1, Some("quiet")) }.system_digest()
        );
        assert_ne!(system(1, "quiet"), system(1, "quiet splash"));
        assert_ne!(system(1, "quiet"), system(2, "quiet"));
        assert_eq!(slot(1, Some("a")).payload_digest(), slot(1, None).payload_digest());
        assert_ne!(slot(1, None).system_digest(), system(1, ""));
    }

    #[test]
    fn a_payload_is_its_files_and_its_own_command_line() {
        let files = vec![FileInfo { name: KERNEL.into(), size: 3, sha256: Sha256::of(b"abc") }];
        let payload = |own: Option<&str>| {
            let text = serde_json::json!({ "format": 1, "arch": Arch::Amd64, "files": files, "cmdline": own });
            Manifest::parse(text.to_string().as_bytes()).unwrap()
        };
        let slot = |own: Option<&str>, extra: &str| Manifest {
            cmdline: Some(format!("{} {extra}", own.unwrap_or("console=tty0"))),
            payload_cmdline: own.map(ToOwned::to_owned),
            kernel_args: Some(KernelArgs { extra: vec![extra.to_owned()], ..KernelArgs::default() }),
            ..payload(None)
        };
        for own in [None, Some("quiet"), Some("debug")] {
            for extra in ["a", "b"] {
                assert_eq!(slot(own, extra).payload_digest(), payload(own).payload_digest(), "{own:?}, {extra}");
            }
        }
        let digests = [None, Some("quiet"), Some("debug")].map(|own| payload(own).payload_digest());
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    }

    #[test]
    fn a_slot_stays_readable_whatever_its_version_is() {
        let text = r#"{"format": 1, "version": "1\u001b[31m\n2", "arch": "amd64", "files": []}"#;
        let (of_slot, later) = Manifest::of_slot(text.as_bytes());
        assert_eq!((of_slot.unwrap().version.as_deref(), later.len()), (Some("1\\x1b[31m\\n2"), 0));
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap().version.as_deref(), Some("1\x1b[31m\n2"));
    }

    /// A manifest of another version's installer, in a slot that is to be kept.
    #[test]
    fn a_slot_of_a_later_version_is_read_as_far_as_it_is_known() {
        let key = Sha256::of(b"key");
        let known = format!(
            r#""version": "7", "epoch": 3, "arch": "amd64", "files": [], "cmdline": "quiet", "signed_by": ["{key}"]"#
        );
        let args = r#""kernel_args": {"platform": "metal", "config": "", "extra": ["a"], "sealed": true}"#;
        let read = |text: String| Manifest::of_slot(text.as_bytes());
        for (text, later) in [
            (format!(r#"{{"format": 1, {known}, "colour": []}}"#), vec!["colour"]),
            (format!(r#"{{"format": 2, {known}}}"#), vec!["format 2"]),
            (format!(r#"{{"format": 2, {known}, {args}}}"#), vec!["format 2", "kernel_args.sealed"]),
            (format!(r#"{{"format": 1, {known}, "efi_stub": "signed"}}"#), vec!["efi_stub"]),
            (format!(r#"{{"format": 1, {known}, "efi_stub": "old", "unified": 5}}"#), vec!["unified"]),
        ] {
            let (manifest, found) = read(text.clone());
            let manifest = manifest.unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found, later, "{text}");
            assert_eq!(
                (manifest.version.as_deref(), manifest.epoch, manifest.signed_by.as_slice()),
                (Some("7"), 3, &[key][..])
            );
            assert_eq!(manifest.kernel_args.is_some(), text.contains("metal"));
        }
        assert_eq!(read(format!(r#"{{"format": 1, {known}}}"#)).1, [""; 0]);
        for text in
            [r#"{"format": 3, "arch": "amd64", "files": {}}"#, r#"{"format": 1, "arch": "riscv64", "files": []}"#]
        {
            let (manifest, found) = read(text.to_owned());
            assert!(manifest.is_none() && !found.is_empty(), "{text}");
        }
        assert_eq!(read("no JSON".to_owned()), (None, vec![]));
    }

    #[test]
    fn version_ids() {
        assert_eq!(version_id("ID=x\nVERSION_ID=\"1.2\"\n"), Some("1.2".into()));
        assert_eq!(version_id("VERSION_ID=3\n"), Some("3".into()));
        assert_eq!(version_id("\u{feff}VERSION_ID=3\r\n"), Some("3".into()));
        assert_eq!(version_id("VERSION_ID=\nID=x"), None);
        assert_eq!(version_id("VERSION_ID=\"12\"\nID=debian\nVERSION_ID=2.4.0\n"), Some("2.4.0".into()));
    }

    #[test]
    fn slot_cfg_golden() {
        let cfg = SlotCfg {
            loads: GrubLoads::Files { kernel: KERNEL.into(), initrd: "initramfs.xz".into() },
            args: "'console=ttyS0' 'quiet'".into(),
            disk_guid: Uuid::from_u128(1),
        };
        let [kernel, initrd] = [(17, 27_708), (30_000, 2)].map(|(first, count)| Sectors { first, count });
        let unified = SlotCfg { loads: GrubLoads::Unified { kernel, initrd }, ..cfg.clone() };
        assert_eq!(
            unified.render(),
            "# GRUB Environment Block\nuki=/uki.efi\nuki_kernel=17+27708\nuki_initrd=30000+2\n\
             args='console=ttyS0' 'quiet'\nguid=00000000-0000-0000-0000-000000000001\n"
        );
        assert_eq!(
            cfg.render(),
            "# GRUB Environment Block\nkernel=/vmlinuz\ninitrd=/initramfs.xz\nargs='console=ttyS0' 'quiet'\n\
             guid=00000000-0000-0000-0000-000000000001\n"
        );
    }
}
