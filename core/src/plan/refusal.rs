//! The reasons for which planning refuses a request. Refused means that nothing was written.

use crate::prelude::*;

use alloc::borrow::Cow;

use super::{bootloader::NotRenewed, facts::Intruder};
use crate::{
    boot::{
        running::Running,
        slot::{Slot, SlotState},
    },
    disk::{
        fat::FatError,
        identity::DiskUse,
        layout::{LayoutError, Part},
        magic::{Kind, Magic, VHD},
    },
    kernel::{arch::Arch, cmdline::QuoteError, placeholder::PlaceholderError, platform::UnknownPlatform},
    payload::manifest::UKI,
    report::{FailureId, FailureKind},
    units::approx,
};

/// One reason to refuse a request. The message is the reason alone; [`Refusal::remedy`] is the remedy.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are; sizes are bytes")]
pub enum Refusal {
    /// The disk is mounted, swapped to, or otherwise in use.
    #[error("in use: {0}")]
    InUse(DiskUse),
    /// The disk is not empty.
    #[error("not empty: it holds {0}")]
    NotEmpty(String),
    /// The image file is in another format.
    #[error("the file is {}, and an install writes the bytes of a disk: it would be neither afterwards", format.name)]
    OtherFormat { format: &'static Magic, path: String },
    /// The partitions do not fit onto the disk.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The payload does not fit into a slot.
    #[error("the payload does not fit into a slot of {}: {source}", approx(*slot))]
    SlotFull { slot: u64, source: FatError, remedy: &'static str },
    /// The ESP cannot hold the boot image.
    #[error("the EFI system partition: {0}")]
    Esp(FatError),
    /// The BIOS core image is larger than its partition.
    #[error("the BIOS core image has {}, but its partition only {}", approx(*size), approx(*room))]
    CoreTooLarge { size: u64, room: u64 },
    /// The payload is for another architecture.
    #[error("the payload's kernel is for {have}, not for {want}")]
    Arch { want: Arch, have: Arch },
    /// The trial would not start.
    #[error("the payload has no {UKI}: Secure Boot is on, and this machine's boot loader starts nothing else")]
    NoUki,
    /// A kernel argument cannot be passed on by GRUB.
    #[error("kernel command line: {0}")]
    Cmdline(#[from] QuoteError),
    /// A placeholder in a kernel argument is unknown, or has no value.
    #[error("{place}, {source}")]
    Placeholder { place: String, source: PlaceholderError },
    /// A unified kernel image is the same for both slots, so its command line names neither.
    #[error(
        "the payload finds its root file system only in a slot ({words}), and a unified kernel image, which is the same for both \
         slots, has none: it would not start"
    )]
    RootInSlot { words: String },
    /// A live medium has neither slots nor a disk of its own.
    #[error(
        "the payload finds its root file system only in a slot or on a disk ({words}), and a live medium has none: it would not \
         start"
    )]
    RootNotOnMedium { words: String },
    /// The META tags do not fit.
    #[error(transparent)]
    Meta(#[from] crate::disk::meta::MetaError),
    /// The platform is unknown.
    #[error(transparent)]
    Platform(#[from] UnknownPlatform),
    /// It is not known which slot runs.
    #[error("the running system is {0}, so it is not known which slot is safe to write")]
    NotRunning(Running),
    /// The disk is not at rest.
    #[error(
        "slot {0} of this disk, or of a copy of it, is running by the kernel command line, and --offline is for a disk \
         that nothing runs from"
    )]
    NotOffline(Slot),
    /// The running trial is not confirmed.
    #[error("slot {0}, which runs, is an unconfirmed trial, and the other slot is its fallback")]
    Unconfirmed(Slot),
    /// The running slot is not the default.
    #[error("slot {default} is the default and boots next, but slot {running} is running")]
    NotDefault { running: Slot, default: Slot },
    /// The running slot cannot serve as the fallback.
    #[error("slot {slot}, which runs, is {}, so it cannot be the fallback", state.plain())]
    NotGood { slot: Slot, state: SlotState },
    /// The running slot is damaged, so the other is the only one that boots.
    #[error(
        "slot {running}, which runs, is damaged on the disk ({why}), so slot {target} is the only one that boots and \
         is not overwritten"
    )]
    OnlyWayBack { running: Slot, target: Slot, why: String, boots_next: bool },
    /// The default is damaged, so the trial that waits is the only system that boots.
    #[error(
        "slot {trial} is to be tried at the next boot, and it is the only one that boots: slot {default}, the default, is damaged \
         on the disk"
    )]
    OnlyTheTrialBoots { trial: Slot, default: Slot },
    /// From a live medium, or offline: the slot that the disk boots is not certain.
    #[error(
        "the boot state of the installation on it is not settled: {0}; so it is not known which slot is safe to write"
    )]
    Unsettled(String),
    /// boot.env cannot be written in place.
    #[error(
        "neither slipway/boot.env nor slipway/boot2.env on the ESP is there and exactly one sector of its own, so the \
         boot state cannot be written; under a BIOS the disk boots by the slots' own markers"
    )]
    NoBootEnv,
    /// The ESP has to be made again, and not everything on it is ours.
    #[error("the ESP can only be made again as a whole, and it has files of others, which would be lost: {}", .0.join(", "))]
    ForeignFiles(Vec<String>),
    /// A foreign partition lies where the plan would write.
    #[error("{0}, and would be overwritten")]
    Intruder(Intruder),
    /// A partition lies elsewhere than the table says.
    #[error("the partition table is damaged ({0}), and this would write to the wrong place")]
    Misplaced(String),
    /// The boot state is lost and cannot be rebuilt.
    #[error("both copies of boot.env are damaged, and {0}")]
    BootEnvLost(&'static str),
    /// The payload's version may not follow the running one.
    #[error("{to} must not follow {from}: {why}")]
    Version { from: String, to: String, why: &'static str },
    /// The system that is kept was signed, and the payload is not.
    #[error("slot {0}, which is kept, holds a signed system, and no signature of this payload was verified")]
    Unsigned(Slot),
    /// The signed system that is kept has a higher epoch than the payload.
    #[error(
        "slot {slot}, which is kept, is signed with the epoch {has}, and this payload has {}, so it is one that must \
         not come back", epoch_of(*offered)
    )]
    Older { slot: Slot, has: u32, offered: Option<u32> },
    /// It is unknown whether the system that is kept is signed, or with which epoch.
    #[error(
        "slot {slot}, which is kept, was written by a later version, and this one cannot read its manifest.json \
         ({what}), so it is not known whether this payload may follow it"
    )]
    LaterSlot { slot: Slot, what: String, allow: &'static str },
    /// The boot loaders stay as they are.
    #[error(transparent)]
    Bootloader(#[from] NotRenewed),
    /// The payload was tried on this disk with the same command line, and given up.
    #[error(
        "with this kernel command line the payload, {}, failed its trial on this disk, or was rolled back", version.as_deref().unwrap_or("which has no version")
    )]
    KnownBad { version: Option<String> },
    /// The kernel arguments that an upgrade keeps cannot be read.
    #[error("slot {0}, which is kept, has no readable manifest.json, so its kernel arguments would be lost")]
    KernelArgsLost(Slot),
    /// META is unreadable, and writing it would lose its tags.
    #[error("META: neither copy is valid, and it is not blank, so its tags would be lost")]
    MetaDamaged,
    /// There is no staged system to activate.
    #[error("slot {slot} is {}, not staged", state.plain())]
    NotStaged { slot: Slot, state: SlotState },
    /// The slot that is to boot is damaged.
    #[error("slot {slot} is damaged on the disk: {why}")]
    NotWhole { slot: Slot, why: String },
    /// Both copies of boot.env are lost, and no slot is whole.
    #[error("both copies of boot.env are lost, and no slot that is marked good is whole")]
    NothingToRepair,
    /// The partition table cannot grow, or EPHEMERAL must not.
    #[error("{0}")]
    CannotGrow(String),
    /// There is no running trial to confirm.
    #[error("there is no running trial to confirm: {0}")]
    NotTrial(String),
    /// The firmware has keys.
    #[error("the firmware is not in setup mode: it has a platform key, and takes other keys from its owner alone")]
    NotInSetupMode,
    /// A program that boots next would not start.
    #[error("{program}: {why}, so this machine would not start any more")]
    WouldNotStart { program: String, why: String },
    /// No record tells the next boot.
    #[error("nothing says what this machine starts next, so it may not start any more")]
    NextUnknown,
    /// A driver in a ROM would not start.
    #[error("the option ROM of {device}: {why}, so the device would be missing while the machine starts")]
    OptionRom { device: String, why: String },
    /// A volume is encrypted, and a snapshot is not.
    #[error("{0} is encrypted, and a snapshot of the configuration is not: it lies readable in a slot")]
    SnapshotInTheClear(Part),
    /// A file of a slot lies where a snapshot is to lie.
    #[error("slot {slot} has no room for a snapshot, which needs its last {}: {why}", approx(*room))]
    NoRoomForSnapshot { slot: Slot, room: u64, why: String },
    /// There is no good system to go back to.
    #[error("slot {slot} is {}: there is no good system to go back to", state.plain())]
    NoWayBack { slot: Slot, state: SlotState },
}

/// All reasons against a request, so that one run reports them all.
#[derive(Debug)]
pub struct Refusals(pub Vec<Refusal>);

impl Refusals {
    /// The most specific kind of them, which has the lowest exit code.
    pub fn kind(&self) -> FailureKind {
        self.0.iter().map(Refusal::kind).min().unwrap_or(FailureKind::Install)
    }
}

impl core::fmt::Display for Refusals {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("refused, nothing was written:")?;
        self.0.iter().try_for_each(|refusal| match refusal.remedy() {
            Some(remedy) => write!(f, "\n  - {refusal}; {remedy}"),
            None => write!(f, "\n  - {refusal}"),
        })
    }
}

impl core::error::Error for Refusals {}

impl From<Refusal> for Refusals {
    fn from(one: Refusal) -> Self {
        Refusals(vec![one])
    }
}

/// Epoch of a payload, if it is signed.
fn epoch_of(signed: Option<u32>) -> String {
    signed.map_or_else(|| "none that is signed".to_owned(), |epoch| epoch.to_string())
}

impl Refusal {
    /// The place of the fault: disk, environment or input.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Refusal::Bootloader(why) => why.kind(),
            Refusal::Version { .. } | Refusal::NotInSetupMode | Refusal::OptionRom { .. } => FailureKind::Environment,
            Refusal::NotRunning(_)
            | Refusal::NotOffline(_)
            | Refusal::Unconfirmed(_)
            | Refusal::NotDefault { .. }
            | Refusal::NotGood { .. }
            | Refusal::OnlyWayBack { .. }
            | Refusal::OnlyTheTrialBoots { .. }
            | Refusal::Unsettled(_)
            | Refusal::NoBootEnv
            | Refusal::ForeignFiles(_)
            | Refusal::Intruder(_)
            | Refusal::Misplaced(_)
            | Refusal::BootEnvLost(_)
            | Refusal::KnownBad { .. }
            | Refusal::KernelArgsLost(_)
            | Refusal::MetaDamaged
            | Refusal::NotStaged { .. }
            | Refusal::NotWhole { .. }
            | Refusal::NothingToRepair
            | Refusal::CannotGrow(_)
            | Refusal::NotTrial(_)
            | Refusal::NoWayBack { .. }
            | Refusal::NoRoomForSnapshot { .. }
            | Refusal::WouldNotStart { .. }
            | Refusal::NextUnknown
            | Refusal::InUse(_)
            | Refusal::NotEmpty(_)
            | Refusal::OtherFormat { .. }
            | Refusal::Layout(LayoutError::TooSmall { .. })
            | Refusal::Esp(_)
            | Refusal::CoreTooLarge { .. } => FailureKind::Install,
            Refusal::Layout(LayoutError::SlotSize { .. })
            | Refusal::SlotFull { .. }
            | Refusal::Arch { .. }
            | Refusal::NoUki
            | Refusal::Cmdline(_)
            | Refusal::Placeholder { .. }
            | Refusal::RootInSlot { .. }
            | Refusal::RootNotOnMedium { .. }
            | Refusal::Platform(_)
            | Refusal::Unsigned(_)
            | Refusal::Older { .. }
            | Refusal::LaterSlot { .. }
            | Refusal::SnapshotInTheClear(_)
            | Refusal::Meta(_) => FailureKind::Input,
        }
    }
}

/// For programs.
impl Refusal {
    /// The identifier, for programs to decide by. No two reasons share one.
    pub const fn id(&self) -> FailureId {
        match self {
            Refusal::InUse(_) => FailureId::DiskInUse,
            Refusal::NotEmpty(_) | Refusal::OtherFormat { .. } => FailureId::DiskNotEmpty,
            Refusal::Layout(LayoutError::TooSmall { .. }) => FailureId::DiskTooSmall,
            Refusal::Layout(LayoutError::SlotSize { .. }) => FailureId::SlotSize,
            Refusal::SlotFull { .. } => FailureId::SlotFull,
            Refusal::Esp(_) => FailureId::EspFull,
            Refusal::CoreTooLarge { .. } => FailureId::CoreImageTooLarge,
            Refusal::Arch { .. } => FailureId::WrongArchitecture,
            Refusal::Cmdline(_) => FailureId::KernelArguments,
            Refusal::Placeholder { .. } | Refusal::RootInSlot { .. } | Refusal::RootNotOnMedium { .. } => {
                FailureId::Placeholder
            }
            Refusal::Meta(_) => FailureId::MetaTags,
            Refusal::Platform(_) => FailureId::UnknownPlatform,
            Refusal::NotRunning(_) => FailureId::RunningUnknown,
            Refusal::NotOffline(_) => FailureId::RunningFromDisk,
            Refusal::Unconfirmed(_) => FailureId::TrialUnconfirmed,
            Refusal::NotDefault { .. } => FailureId::RunningNotDefault,
            Refusal::NotGood { .. } => FailureId::RunningNotGood,
            Refusal::OnlyWayBack { .. } => FailureId::RunningDamaged,
            Refusal::Unsettled(_) | Refusal::OnlyTheTrialBoots { .. } => FailureId::BootStateUnsettled,
            Refusal::NoBootEnv => FailureId::BootEnvUnwritable,
            Refusal::Intruder(_) => FailureId::PartitionInside,
            Refusal::Misplaced(_) => FailureId::PartitionMisplaced,
            Refusal::BootEnvLost(_) => FailureId::BootEnvLost,
            Refusal::Version { .. } => FailureId::VersionPolicy,
            Refusal::Unsigned(_) | Refusal::LaterSlot { .. } => FailureId::UnsignedUpgrade,
            Refusal::Older { .. } => FailureId::OlderEpoch,
            Refusal::Bootloader(why) => why.id(),
            Refusal::ForeignFiles(_) => FailureId::EspUnfit,
            Refusal::KnownBad { .. } => FailureId::KnownBad,
            Refusal::KernelArgsLost(_) => FailureId::KernelArgumentsLost,
            Refusal::MetaDamaged => FailureId::MetaDamaged,
            Refusal::NotStaged { .. } => FailureId::NotStaged,
            Refusal::NotWhole { .. } => FailureId::SlotDamaged,
            Refusal::NothingToRepair => FailureId::NothingToRepair,
            Refusal::CannotGrow(_) => FailureId::CannotGrow,
            Refusal::NotTrial(_) => FailureId::NoTrial,
            Refusal::NoWayBack { .. } => FailureId::NoWayBack,
            Refusal::SnapshotInTheClear(_) => FailureId::SnapshotInTheClear,
            Refusal::NoRoomForSnapshot { .. } => FailureId::NoRoomForSnapshot,
            Refusal::NotInSetupMode => FailureId::NotInSetupMode,
            Refusal::WouldNotStart { .. } | Refusal::NoUki => FailureId::WouldNotStart,
            Refusal::NextUnknown => FailureId::NextBootUnknown,
            Refusal::OptionRom { .. } => FailureId::OptionRom,
        }
    }
}

/// For people.
impl Refusal {
    /// The remedy, if anything helps: a clause behind the reason.
    pub fn remedy(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Refusal::Layout(error) => error.remedy().into(),
            Refusal::Bootloader(left) => left.remedy(),
            Refusal::Arch { want, have } => format!("give --arch {have}, or a payload for {want}").into(),
            Refusal::LaterSlot { allow, .. } => {
                format!("take an installer of that version, or this one with {allow}").into()
            }
            Refusal::OtherFormat { path, format } => {
                let convert = if **format == VHD { "convert -f vpc" } else { "convert" };
                let raw = match format.kind {
                    Kind::Packed => "unpack it first".to_owned(),
                    _ => format!("`qemu-img {convert} -O raw {path} disk.raw` makes a raw image of it"),
                };
                let new = "`installer image --kind qcow2 --out disk.qcow2` makes a new one with a system in it";
                format!("{raw}, and {new}").into()
            }
            Refusal::Intruder(intruder) => intruder.remedy("PATH").into(),
            other => other.own_remedy()?.into(),
        })
    }

    /// Remedies that are always the same.
    const fn own_remedy(&self) -> Option<&'static str> {
        Some(match self {
            Refusal::InUse(_) => "unmount, swapoff or detach it first",
            Refusal::Misplaced(_) => "`installer repair` writes the table again",
            Refusal::NotEmpty(_) => "--force overwrites it, --zero also erases all of it",
            // It helps only against too many bytes, not against a file that FAT32 cannot hold at all.
            Refusal::SlotFull { source: FatError::Full { .. }, remedy, .. } => remedy,
            Refusal::NotRunning(_) => {
                "run this inside the system that was booted from this disk, or give --offline if nothing runs from this disk"
            }
            Refusal::NotOffline(_) => "leave it out",
            Refusal::NoUki => {
                "make a signed one with `installer uki --key FILE --certificate FILE`, then run `installer checksum`; or turn \
                 Secure Boot off first"
            }
            Refusal::Unconfirmed(_) => "run `installer confirm` first, or go back with `installer rollback`",
            Refusal::NotDefault { .. } => "reboot first",
            Refusal::NotGood { .. } => "`installer status` says what helps",
            Refusal::NoBootEnv => "`installer repair` puts them onto the ESP again, and keeps the slots and all data",
            Refusal::OnlyWayBack { boots_next: true, .. } => "reboot first: the next boot tries it",
            Refusal::OnlyWayBack { .. } => "boot it first (with `installer rollback`, unless it boots next anyway)",
            Refusal::OnlyTheTrialBoots { .. } => {
                "boot the disk, which tries it; once `installer confirm` has made it the default, an upgrade writes the other slot"
            }
            Refusal::Unsettled(_) => {
                "boot the disk and settle it there, or settle it with `installer rollback --disk PATH --offline` (a trial, \
                 a damaged default) or `installer repair --disk PATH` (a lost boot.env); `installer status --disk PATH` \
                 shows the state"
            }
            Refusal::ForeignFiles(_) => "copy them elsewhere first; --force makes the ESP again without them",
            Refusal::BootEnvLost(_) => {
                "`installer repair` writes boot.env again, so that what the slots' own markers boot stays what boots"
            }
            Refusal::Version { .. } => "--allow-any-version allows it",
            Refusal::Unsigned(_) => {
                "name whom to trust by --trust-key or in /etc/slipway/policy.toml, or take it with --allow-unsigned"
            }
            Refusal::Older { .. } => "take a newer payload, or this one with --allow-older",
            Refusal::KnownBad { .. } => "--retry-bad tries it again",
            Refusal::RootInSlot { .. } => "take a payload whose initramfs finds it, as examples/debian-sealed does",
            Refusal::RootNotOnMedium { .. } => {
                "give another word with the same key by --extra-kernel-arg (-KEY takes one away and names no other place), or take \
                 a payload with a hook that finds it in /slipway/payload, and with that path on its cmdline"
            }
            Refusal::KernelArgsLost(_) => "give --platform, --config and --extra-kernel-arg",
            Refusal::MetaDamaged => "`installer meta set` starts afresh",
            Refusal::NotStaged { .. } => "run `installer stage` or `installer upgrade` first",
            Refusal::NotWhole { .. } => "`installer verify` lists all damage, and names the command that mends it",
            Refusal::NothingToRepair => {
                "inside a trial `installer confirm` still works; otherwise `installer status` says what does"
            }
            Refusal::NotTrial(_) => "`installer status` says what runs and what is on trial",
            Refusal::SnapshotInTheClear(_) => {
                "write `plain = true` into /etc/slipway/state.toml if others may read what it declares, or take it out there"
            }
            Refusal::NoRoomForSnapshot { .. } => {
                "take a smaller payload or larger slots, or give --no-snapshot: then a way back puts no configuration back"
            }
            Refusal::NoWayBack { .. } => "upgrade instead: that makes the other slot a system to go to",
            other => return other.remedy_of_enrolment(),
        })
    }

    const fn remedy_of_enrolment(&self) -> Option<&'static str> {
        Some(match self {
            Refusal::NotInSetupMode => {
                "in its menu, under Secure Boot, delete the platform key (often called \"reset to setup mode\" or \"erase all \
                 Secure Boot settings\"), and run this again"
            }
            Refusal::WouldNotStart { .. } => {
                "sign it with a key whose certificate is in db.auth, or enroll all the same with --mode=force"
            }
            Refusal::NextUnknown => "name the disk with --disk, or the programs with --starts",
            Refusal::OptionRom { .. } => {
                "put the certificate of its maker's signer into db (`installer keys --include-well-known-certs`), take the \
                 device out, or enroll all the same with --mode=force"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::magic::recognise;

    #[test]
    fn a_list_has_the_remedies_behind_the_reasons() {
        let full = FatError::Full { need: 2, have: 1 };
        let refusals = Refusals(vec![
            Refusal::Arch { want: Arch::Amd64, have: Arch::Arm64 },
            Refusal::SlotFull { slot: 1 << 20, source: full, remedy: "use a larger --slot-size" },
            Refusal::SlotFull { slot: 1 << 20, source: FatError::TooSmall(1, 512), remedy: "use a larger --slot-size" },
        ]);
        let text = refusals.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[1],
            "  - the payload's kernel is for arm64, not for amd64; give --arch arm64, or a payload for amd64"
        );
        assert!(lines[2].ends_with("; use a larger --slot-size") && !lines[3].contains("--slot-size"), "{text}");
    }

    /// `qemu-img` takes a compressed file for the bytes of a disk.
    #[test]
    fn what_is_compressed_is_not_converted() {
        let formats: [(&[u8], &str); 4] = [
            (b"\xfd7zXZ\0", "unpack it first"),
            (b"PK\x03\x04", "unpack it first"),
            (b"conectix", "`qemu-img convert -f vpc -O raw x disk.raw`"),
            (b"QFI\xfb", "`qemu-img convert -O raw x disk.raw`"),
        ];
        for (head, says) in formats {
            let format = recognise(head).unwrap();
            let remedy = Refusal::OtherFormat { format, path: "x".to_owned() }.remedy().unwrap();
            assert!(remedy.starts_with(says) && remedy.contains("installer image --kind qcow2"), "{remedy}");
        }
    }
}
