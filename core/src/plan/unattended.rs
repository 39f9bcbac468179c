//! Which action an unattended installation takes on a disk: install, upgrade, or nothing. The install or upgrade itself
//! is planned, and may be refused, as usual.

use crate::prelude::*;

use super::SystemFacts;
use crate::{
    boot::slot::Slot,
    config::unattended::{ExistingInstallation, Instructions},
};

/// What a disk holds, seen from a live system.
#[derive(Clone, Debug)]
pub enum DiskHolds {
    /// Nothing.
    Nothing,
    /// An ISO 9660 image, as a live medium begins with.
    Medium,
    /// An installation of ours.
    System(Box<SystemFacts>),
    /// A META partition, as Talos has it, but not our layout.
    Talos,
    /// Anything else, described for people.
    Something(String),
}

impl DiskHolds {
    /// The installation on the disk, if any, described for people.
    pub fn installation(&self) -> Option<String> {
        match self {
            DiskHolds::System(system) => Some(match system.next.slot {
                Some(slot) => format!("an installation: slot {slot}, {}, boots next", system.slots[slot].version()),
                None => "an installation that does not boot".to_owned(),
            }),
            DiskHolds::Talos => Some("an installation of Talos or similar: it has a META partition".to_owned()),
            DiskHolds::Nothing | DiskHolds::Medium | DiskHolds::Something(_) => None,
        }
    }
}

/// What an unattended installation does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A fresh install.
    Install {
        /// Overwrite a disk that is not empty.
        force: bool,
    },
    /// Upgrade the slot that does not boot by default.
    Upgrade,
    /// Nothing: this live medium has already installed. It never does so twice.
    Done {
        /// Path of the disk it installed to, if that is not the named one.
        elsewhere: Option<String>,
        /// The slot that boots next there.
        slot: Option<Slot>,
    },
}

/// Why an unattended installation leaves the disk alone. Nothing has been written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftAlone {
    /// It may be the live medium itself.
    #[error(
        "it begins with an ISO 9660 image, as a live medium does, so nothing is installed onto it unattended; \
         use `installer install --force`, or erase its first MiB"
    )]
    Medium,
    /// Nobody said whether to keep or overwrite the installation.
    #[error(
        "it holds {0}, and the kernel command line does not say whether to keep it: \
         slipway.install.preserve=true upgrades it and keeps STATE and EPHEMERAL (an installation of Slipway only), \
         slipway.install.preserve=false installs over it"
    )]
    Installed(String),
    /// Another disk holds an installation, and `talos.halt_if_installed=1` forbids a second one.
    #[error(
        "{disk} holds {what}, and talos.halt_if_installed=1 is on the kernel command line: boot that disk, or add \
         slipway.install.preserve=true or =false to the command line, or leave talos.halt_if_installed out"
    )]
    Elsewhere {
        /// Path of that disk.
        disk: String,
        /// What it holds.
        what: String,
    },
    /// The disk is not empty, though it holds no installation.
    #[error("not empty: it holds {0}; slipway.install.preserve=false on the kernel command line installs over it")]
    NotEmpty(String),
    /// Without an ID of the live medium, it would install again at every boot.
    #[error(
        "it holds an installation, and slipway.medium= is not on the kernel command line: without it, every boot of this \
         live system would install over the disk again; use `installer install --force`"
    )]
    NoName,
    /// This live medium may have made the installation itself.
    #[error(
        "it holds an installation whose boot state was lost, so it is not known whether this medium made it, and nothing \
         is installed over it unattended; use `installer install --force`"
    )]
    StateLost,
}

/// Decide what to do with `disk`. `others` are the machine's other disks, by path.
pub fn unattended(
    orders: &Instructions,
    disk: &DiskHolds,
    others: &[(String, DiskHolds)],
) -> Result<Action, LeftAlone> {
    let ours = |system: &SystemFacts| {
        let by = system.env.as_ref().and_then(|env| env.medium);
        orders.medium.is_some() && orders.medium == by
    };
    // Device names move: today's /dev/sda need not be the disk that this medium installed to.
    for (name, held) in others {
        if let DiskHolds::System(system) = held
            && ours(system)
        {
            return Ok(Action::Done { elsewhere: Some(name.clone()), slot: system.next.slot });
        }
    }
    let mut installed = others.iter().filter_map(|(name, held)| Some((name.clone(), held.installation()?)));
    if let (ExistingInstallation::Refuse, true, Some((disk, what))) =
        (orders.existing, orders.halt_if_installed, installed.next())
    {
        return Err(LeftAlone::Elsewhere { disk, what });
    }
    match (disk, orders.existing) {
        (DiskHolds::Medium, _) => Err(LeftAlone::Medium),
        (DiskHolds::Nothing, _) => Ok(Action::Install { force: false }),
        // A medium left in the drive must neither destroy its own work nor undo a later upgrade. An interrupted
        // installation does not name the medium yet, so it is done again.
        (DiskHolds::System(system), _) if ours(system) => Ok(Action::Done { elsewhere: None, slot: system.next.slot }),
        (DiskHolds::System(_), ExistingInstallation::Preserve) => Ok(Action::Upgrade),
        (DiskHolds::System(_), ExistingInstallation::Overwrite) if orders.medium.is_none() => Err(LeftAlone::NoName),
        (DiskHolds::System(system), ExistingInstallation::Overwrite)
            if system.env.as_ref().is_none_or(|env| env.rebuilt) =>
        {
            Err(LeftAlone::StateLost)
        }
        (_, ExistingInstallation::Overwrite) => Ok(Action::Install { force: true }),
        (DiskHolds::Something(what), _) => Err(LeftAlone::NotEmpty(what.clone())),
        (held @ (DiskHolds::System(_) | DiskHolds::Talos), _) => {
            Err(LeftAlone::Installed(held.installation().unwrap_or_default()))
        }
    }
}
