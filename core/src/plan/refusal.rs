//! Why a request is not carried out.

use crate::prelude::*;

use crate::{
    boot::{
        running::Running,
        slot::{Slot, SlotState},
    },
    digest::Sha256,
    disk::{fat::FatError, identity::DiskUse, layout::LayoutError},
    kernel::cmdline::QuoteError,
    payload::manifest::Arch,
    report::FailureKind,
    units::approx,
};

/// Why a request is not carried out. Nothing has been written.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Somebody uses the disk.
    #[error("in use: {0}; unmount, swapoff or detach it first")]
    InUse(DiskUse),
    /// The disk is not empty.
    #[error("not empty: it holds {0}; --force overwrites it, --zero also erases all of it")]
    NotEmpty(String),
    /// No layout fits.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The payload does not fit into a slot.
    #[error("the payload does not fit into a slot of {}: {source}{}", approx(*slot), if_full(source, remedy))]
    SlotFull {
        /// Bytes of a slot.
        slot: u64,
        /// By how much.
        source: FatError,
        /// What helps against too many bytes.
        remedy: &'static str,
    },
    /// The ESP cannot hold the boot image.
    #[error("the EFI system partition: {0}")]
    Esp(FatError),
    /// BIOS core image larger than its partition.
    #[error("the BIOS core image has {size} bytes, its partition {room}")]
    CoreTooLarge {
        /// Bytes.
        size: u64,
        /// Bytes of the partition.
        room: u64,
    },
    /// A payload for another machine.
    #[error("the payload's kernel is for {have}, not for {want}: give --arch {have}, or a payload for {want}")]
    Arch {
        /// Asked for.
        want: Arch,
        /// Found in the kernel.
        have: Arch,
    },
    /// A kernel argument that cannot be handed over.
    #[error("kernel command line: {0}")]
    Cmdline(#[from] QuoteError),
    /// META values that do not fit.
    #[error(transparent)]
    Meta(#[from] crate::disk::meta::MetaError),
    /// Which slot runs is not known.
    #[error(
        "the running system is {0}: which slot may be written is not guessed; run this inside the system that was booted \
         from this disk"
    )]
    NotRunning(Running),
    /// The running trial is not confirmed.
    #[error(
        "slot {0}, which runs, is a trial that nobody has confirmed, and the other slot is what to come back to: \
         `installer confirm`, or reboot into the other slot, first"
    )]
    Unconfirmed(Slot),
    /// The slot that runs is not the default.
    #[error("slot {default} is the default and boots next, slot {running} runs: reboot first")]
    NotDefault {
        /// The slot that runs.
        running: Slot,
        /// The default.
        default: Slot,
    },
    /// The slot that runs is not one to come back to.
    #[error("slot {slot}, which runs, is {state} by boot.env: it cannot be what to come back to; reinstall")]
    NotGood {
        /// The slot that runs.
        slot: Slot,
        /// Its state.
        state: SlotState,
    },
    /// The slot that runs is damaged, and the other is the only one that boots.
    #[error(
        "slot {running}, which runs, is damaged on the disk ({why}), so slot {target} is the only one that boots and is \
         left as it is: boot it first (`installer rollback`, if it is not what boots next)"
    )]
    OnlyWayBack {
        /// The slot that runs.
        running: Slot,
        /// The other.
        target: Slot,
        /// What is wrong with it.
        why: String,
    },
    /// What a disk boots that nothing runs from is not without a doubt.
    #[error(
        "the installation on it is not at rest: {0}; which slot may be written is not guessed: boot the disk and settle it \
         there (`installer status` tells)"
    )]
    Unsettled(String),
    /// boot.env cannot be written in place.
    #[error(
        "slipway/boot.env and slipway/boot2.env on the ESP are not there, or not one sector each: the boot state cannot \
         be written; the disk boots by the slots' own markers; reinstall"
    )]
    NoBootEnv,
    /// The boot state is lost and cannot be rebuilt.
    #[error(
        "both copies of boot.env are damaged, and what runs is a trial, is damaged on the disk, or is not of \
         this disk: the boot state cannot be rebuilt; reboot, the disk boots by the slots' own markers"
    )]
    BootEnvLost,
    /// A version that must not follow.
    #[error("{to} must not follow {from}: {why}; --allow-any-version does it all the same")]
    Version {
        /// The running version.
        from: String,
        /// The payload's.
        to: String,
        /// Why not.
        why: &'static str,
    },
    /// It was tried and came back.
    #[error("payload {0} was tried on this disk and came back; --retry-bad tries it again")]
    KnownBad(Sha256),
    /// What an upgrade was to keep of the kernel arguments would be lost.
    #[error(
        "slot {0}, which is kept, has no manifest.json that can be read: its kernel arguments would be lost; give \
         --platform, --config and --extra-kernel-arg"
    )]
    KernelArgsLost(Slot),
    /// META would be lost.
    #[error(
        "META: neither copy is valid, and it is not blank: its tags would be lost; `installer meta set` makes a new one"
    )]
    MetaDamaged,
    /// Nothing to activate.
    #[error("slot {slot} is {state}, not staged: `installer stage` or `upgrade` writes it first")]
    NotStaged {
        /// The slot.
        slot: Slot,
        /// Its state.
        state: SlotState,
    },
    /// A slot that is to boot is damaged.
    #[error(
        "slot {slot} is damaged on the disk: {why}; `installer verify` tells all, an upgrade from the other slot mends it"
    )]
    NotWhole {
        /// The slot.
        slot: Slot,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing to confirm.
    #[error("the running system is not the trial: {0}")]
    NotTrial(String),
    /// Nothing to go back to.
    #[error("slot {slot} is {state}: there is no good system to go back to")]
    NoWayBack {
        /// The slot.
        slot: Slot,
        /// Its state.
        state: SlotState,
    },
}

/// All reasons against a request, so that one run tells them all.
#[derive(Debug)]
pub struct Refusals(pub Vec<Refusal>);

impl Refusals {
    /// The most specific kind, lowest exit code, of all.
    pub fn kind(&self) -> FailureKind {
        self.0.iter().map(Refusal::kind).min().unwrap_or(FailureKind::Install)
    }
}

impl core::fmt::Display for Refusals {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("refused, nothing was written:")?;
        self.0.iter().try_for_each(|reason| write!(f, "\n  - {reason}"))
    }
}

impl core::error::Error for Refusals {}

impl From<Refusal> for Refusals {
    fn from(one: Refusal) -> Self {
        Refusals(vec![one])
    }
}

/// A remedy against too many bytes is none against a file that FAT32 cannot hold.
const fn if_full(error: &FatError, remedy: &'static str) -> &'static str {
    match error {
        FatError::Full { .. } => remedy,
        _ => "",
    }
}

impl Refusal {
    /// Whose fault: the disk's, or what was asked for.
    const fn kind(&self) -> FailureKind {
        match self {
            Refusal::Version { .. } => FailureKind::Environment,
            Refusal::NotRunning(_)
            | Refusal::Unconfirmed(_)
            | Refusal::NotDefault { .. }
            | Refusal::NotGood { .. }
            | Refusal::OnlyWayBack { .. }
            | Refusal::Unsettled(_)
            | Refusal::NoBootEnv
            | Refusal::BootEnvLost
            | Refusal::KnownBad(_)
            | Refusal::KernelArgsLost(_)
            | Refusal::MetaDamaged
            | Refusal::NotStaged { .. }
            | Refusal::NotWhole { .. }
            | Refusal::NotTrial(_)
            | Refusal::NoWayBack { .. }
            | Refusal::InUse(_)
            | Refusal::NotEmpty(_)
            | Refusal::Layout(LayoutError::TooSmall { .. })
            | Refusal::Esp(_)
            | Refusal::CoreTooLarge { .. } => FailureKind::Install,
            Refusal::Layout(LayoutError::SlotSize { .. })
            | Refusal::SlotFull { .. }
            | Refusal::Arch { .. }
            | Refusal::Cmdline(_)
            | Refusal::Meta(_) => FailureKind::Input,
        }
    }
}
