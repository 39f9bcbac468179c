//! Identifiers of failures: a program decides by them, where a person reads the message.

use crate::prelude::*;

use alloc::borrow::Cow;

/// Makes the type from the table, so that every identifier stands in one place.
macro_rules! identifiers {
    ($($name:ident = $id:literal: $meaning:literal;)*) => {
        /// Identifier of a failure. It keeps its meaning; new ones may come with every version.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FailureId {
            $(#[doc = $meaning] $name,)*
        }

        impl FailureId {
            /// All identifiers, by group.
            pub const ALL: &[FailureId] = &[$(FailureId::$name),*];

            /// The name in a report: lower case, words joined by hyphens.
            pub const fn name(self) -> &'static str {
                match self { $(FailureId::$name => $id,)* }
            }

            /// Its meaning, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(FailureId::$name => $meaning,)* }
            }
        }
    };
}

identifiers! {
    // Arguments and environment.
    Usage = "usage": "The command line cannot be parsed.";
    EnvironmentVariable = "environment-variable": "An environment variable has a wrong value.";
    Stdin = "stdin": "Stdin stays silent, or holds too much.";
    MachineConfig = "machine-config": "The machine config on stdin is wrong.";
    UpdateConfig = "update-config": "The file of `auto-upgrade` is wrong.";
    TrustPolicy = "trust-policy": "The policy for signatures is wrong.";
    TrustKey = "trust-key": "A public key cannot be used, or there are too few.";
    SigningKey = "signing-key": "A private key cannot be used.";
    Predicate = "predicate": "The predicate of an attestation is unreadable or no JSON object.";
    ImageName = "image-name": "`image --out` promises another format.";

    // The choice of the disk.
    NoDiskGiven = "no-disk-given": "No disk is named.";
    NoDiskMatches = "no-disk-matches": "No disk matches the selector.";
    DiskAmbiguous = "disk-ambiguous": "More than one disk is meant.";
    DiskUnknown = "disk-unknown": "It is unknown which disk is meant: one cannot be looked at.";
    NoSuchDisk = "no-such-disk": "There is no such file or device.";
    NotADisk = "not-a-disk": "It is a partition, a directory, or the like.";

    // Opening it.
    DiskLocked = "disk-locked": "Another program has locked the disk.";
    DiskInUse = "disk-in-use": "The disk is mounted, swapped to, or open in another program.";
    DiskUsersUnknown = "disk-users-unknown": "/proc or /sys is missing, so the users are unknown.";
    DiskReadOnly = "disk-read-only": "The disk is read-only.";
    DiskSectorSize = "disk-sector-size": "The sector size is not the given one, or none of the supported ones.";
    DiskError = "disk-error": "The disk cannot be opened or read.";
    DiskIsCopy = "disk-is-copy": "The disk is a copy, and the original is attached.";

    // Content of the disk.
    NotASlipwayDisk = "not-a-slipway-disk": "The disk has another layout, or none.";
    TableUnreadable = "table-unreadable": "The partition table cannot be read.";
    DiskDamaged = "disk-damaged": "A file system or a file on the disk is damaged.";

    // Refusals of an install.
    DiskNotEmpty = "disk-not-empty": "The disk is not empty, and no flag overwrites it.";
    DiskTooSmall = "disk-too-small": "The partitions do not fit onto the disk.";
    SlotSize = "slot-size": "A slot cannot have this size.";
    SlotFull = "slot-full": "The payload does not fit into a slot.";
    EspFull = "esp-full": "The boot image does not fit onto the ESP.";
    CoreImageTooLarge = "core-image-too-large": "GRUB's core image does not fit into its partition.";
    WrongArchitecture = "wrong-architecture": "The payload is for another architecture.";
    KernelArguments = "kernel-arguments": "A kernel argument would not arrive unchanged.";
    Placeholder = "placeholder": "A placeholder in a kernel argument is unknown, or has no value.";
    MetaTags = "meta-tags": "The META tags do not fit, or one has a reserved key.";
    UnknownPlatform = "unknown-platform": "There is no such platform.";

    // Refusals of a change.
    RunningUnknown = "running-unknown": "It is unknown which slot runs.";
    RunningFromDisk = "running-from-disk": "A system runs from the disk, so it is not offline.";
    TrialUnconfirmed = "trial-unconfirmed": "The running trial is not confirmed yet.";
    RunningNotDefault = "running-not-default": "The running slot is not the default.";
    RunningNotGood = "running-not-good": "The running slot cannot be the fallback.";
    RunningDamaged = "running-damaged": "The running slot is damaged; only the other boots.";
    BootStateUnsettled = "boot-state-unsettled": "It is uncertain what the disk boots.";
    BootEnvUnwritable = "boot-env-unwritable": "boot.env cannot be written in place.";
    PartitionInside = "partition-inside": "A foreign partition lies where the plan would write.";
    PartitionMisplaced = "partition-misplaced": "A partition lies elsewhere than the table says.";
    BootEnvLost = "boot-env-lost": "Both copies of boot.env are damaged.";
    VersionPolicy = "version-policy": "The payload's version may not follow the running one.";
    UnsignedUpgrade = "unsigned-upgrade": "The kept system was (or may have been) signed, and the payload has no verified signature.";
    OlderEpoch = "older-epoch": "The epoch is lower than that of the kept signed system.";
    EspUnfit = "esp-unfit": "No file on the ESP can be replaced.";
    BootChainUnreadable = "boot-chain-unreadable": "What starts the disk cannot be read.";
    BootChainDamaged = "boot-chain-damaged": "The boot chain is not what was recorded.";
    OlderBootloader = "older-bootloader": "The boot loader on the disk has a higher epoch.";
    BootloaderNotStarted = "bootloader-not-started": "Secure Boot would not start the new boot loader.";
    KernelNotStarted = "kernel-not-started": "It is not certain that the new boot loader starts the kernel of a slot.";
    SecureBootUnknown = "secure-boot-unknown": "Whether the firmware starts the new boot loader is unknown.";
    BootloaderNotShipped = "bootloader-not-shipped": "The installer does not ship this boot loader.";
    BootloaderArchitecture = "bootloader-architecture": "The boot loaders are for another architecture.";
    TrialPending = "trial-pending": "A slot is to be tried at the next boot.";
    KnownBad = "known-bad": "The payload failed its trial on this disk, or was rolled back.";
    KernelArgumentsLost = "kernel-arguments-lost": "The kernel arguments to keep cannot be read.";
    MetaDamaged = "meta-damaged": "META is damaged, and its tags would be lost.";
    NotStaged = "not-staged": "No slot is staged.";
    SlotDamaged = "slot-damaged": "The slot that is to boot is damaged.";
    NotRepaired = "not-repaired": "What could be repaired is; the rest has no place of its own.";
    NothingToRepair = "nothing-to-repair": "Both copies of boot.env are lost, and no good slot is whole.";
    CannotGrow = "cannot-grow": "EPHEMERAL cannot grow on the disk as it is.";
    NoTrial = "no-trial": "No trial is running.";
    CheckFailed = "check-failed": "A health check failed, so the trial is not confirmed.";
    NoWayBack = "no-way-back": "There is no good system to go back to.";
    SnapshotInTheClear = "snapshot-in-the-clear": "A volume is encrypted, and a snapshot of the configuration would not be.";
    NoRoomForSnapshot = "no-room-for-snapshot": "A slot has no room for a snapshot of the configuration.";

    // Enrolments.
    NotInSetupMode = "not-in-setup-mode": "The firmware has keys already, and is not in setup mode.";
    WouldNotStart = "would-not-start": "With the keys in force, what boots next would not start.";
    NextBootUnknown = "next-boot-unknown": "It is unknown what boots next.";
    OptionRom = "option-rom": "It is not certain that the drivers in option ROMs start with the keys.";
    SecureBootKeys = "secure-boot-keys": "A file with keys cannot be used.";
    FirmwareVariables = "firmware-variables": "The variables of Secure Boot are missing or cannot be read.";

    // Unattended installations that leave the disk alone.
    UnattendedMedium = "unattended-medium": "The disk may be the live medium itself.";
    UnattendedInstalled = "unattended-installed": "The disk holds an installation; `preserve` is not given.";
    UnattendedElsewhere = "unattended-elsewhere": "Another disk holds an installation.";
    UnattendedMayBeElsewhere = "unattended-may-be-elsewhere": "Another disk may hold an installation.";
    UnattendedDoubt = "unattended-doubt": "Another disk may be this live medium's installation.";
    UnattendedClone = "unattended-clone": "Another disk has the same disk GUID.";
    UnattendedUnreadable = "unattended-unreadable": "The disk cannot be looked at.";
    UnattendedNotEmpty = "unattended-not-empty": "The disk is not empty.";
    UnattendedNoMediumId = "unattended-no-medium-id": "The live medium has no ID, so every boot would install.";
    UnattendedStateLost = "unattended-state-lost": "The disk may hold this live medium's installation.";
    UnattendedInstructions = "unattended-instructions": "The instructions are wrong or contradict each other.";

    // Payloads and container images.
    PayloadMissing = "payload-missing": "A file of the payload is missing.";
    PayloadUnreadable = "payload-unreadable": "A file of the payload cannot be read.";
    PayloadDamaged = "payload-damaged": "A file of the payload is not what it should be.";
    PayloadChecksums = "payload-checksums": "SHA256SUMS or manifest.json is unusable, or lacks a file.";
    PayloadWithoutChecksums = "payload-without-checksums": "`--strict` asks for checksums, and there are none.";
    SignatureMissing = "signature-missing": "A signature is demanded, and there is none.";
    SignatureInvalid = "signature-invalid": "A signature is demanded, and none by a trusted key is valid.";
    SignaturesTooFew = "signatures-too-few": "Fewer trusted keys have signed than are demanded.";
    NoTrustRule = "no-trust-rule": "No rule of the policy is for the source.";
    SigningFailed = "signing-failed": "The command made no signature, or none by its key.";
    EfiProgram = "efi-program": "An EFI program (a stub, a kernel) cannot be used.";
    ImageNotFound = "image-not-found": "The container image, or a part of it, is missing.";
    ImageInvalid = "image-invalid": "The container image is damaged, or is none.";
    ImageUnreadable = "image-unreadable": "The container image cannot be read or written.";
    RegistrySettings = "registry-settings": "A proxy, an auth file or a certificate for registries is wrong.";
    RegistryDenied = "registry-denied": "The registry wants other credentials.";
    RegistryUnreachable = "registry-unreachable": "The registry cannot be reached, or did not deliver.";

    // Lacks of the machine, and files that are made.
    ToolMissing = "tool-missing": "An external program is not installed.";
    ToolFailed = "tool-failed": "An external program failed.";
    SideFile = "side-file": "The file in memory for mkfs.xfs cannot be made.";
    BootAssetsMissing = "boot-assets-missing": "There are no boot assets for the architecture.";
    BootAssetsDamaged = "boot-assets-damaged": "A boot asset is damaged.";
    FileExists = "file-exists": "The file that `image` is to make exists.";
    FileUnwritable = "file-unwritable": "The file that `image` is to make cannot be written.";
    FileDiffers = "file-differs": "What `image` made reads back differently.";
    InitramfsTooLarge = "initramfs-too-large": "GRUB cannot load the initramfs of the live medium.";

    // On the way.
    PlanChanged = "plan-changed": "Disk, payload or request changed since the plan.";
    ChangedMeanwhile = "changed-meanwhile": "Another program wrote to the disk meanwhile.";
    Interrupted = "interrupted": "A signal ended the run.";
    StepFailed = "step-failed": "A step of the plan failed for another reason.";

    // Everything else, by kind.
    Other = "other": "Any other failure.";
    InputOther = "input-other": "Other wrong input.";
    UnsupportedOther = "unsupported-other": "Other unsupported input.";
    EnvironmentOther = "environment-other": "The environment lacks something else.";
    DependencyOther = "dependency-other": "A program or a registry failed otherwise.";
    InstallOther = "install-other": "Another fault of the disk.";
}

/// Every identifier with its meaning, and any other text: a later version may have more.
impl schemars::JsonSchema for FailureId {
    fn schema_name() -> Cow<'static, str> {
        "FailureId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let known =
            Self::ALL.iter().map(|id| schemars::json_schema!({ "const": id.name(), "description": id.meaning() }));
        let any: Vec<_> = known.chain([schemars::json_schema!({ "type": "string" })]).collect();
        schemars::json_schema!({ "description": "Identifier of a failure. It keeps its meaning.", "anyOf": any })
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn identifiers_are_unique_and_in_kebab_case() {
        let names: BTreeSet<&str> = FailureId::ALL.iter().map(|id| id.name()).collect();
        assert_eq!(names.len(), FailureId::ALL.len(), "one stands for two things");
        for name in names {
            let words = name.split('-');
            let good = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(words.into_iter().all(good), "{name}");
        }
    }
}
