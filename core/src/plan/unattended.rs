//! What an unattended installation does to the disk that was named, and what it leaves alone. What it does is an
//! `install` or an `upgrade`, with their own plans and refusals; this is only which one.

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
    /// An ISO 9660 image: an installation medium, or another.
    Medium,
    /// An installation of ours.
    System(Box<SystemFacts>),
    /// Somebody else's installation: a partition META, as Talos has it.
    Talos,
    /// Something else, described for people.
    Something(String),
}

impl DiskHolds {
    /// The installation it holds, if any, for people.
    pub fn installation(&self) -> Option<String> {
        match self {
            DiskHolds::System(system) => Some(match system.next.slot {
                Some(slot) => format!("an installation: slot {slot}, {}, boots next", system.slots[slot].version()),
                None => "an installation that does not boot".to_owned(),
            }),
            DiskHolds::Talos => Some("an installation of Talos, or of its kind: it has a partition META".to_owned()),
            DiskHolds::Nothing | DiskHolds::Medium | DiskHolds::Something(_) => None,
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A fresh install.
    Install {
        /// Over what is there.
        force: bool,
    },
    /// An upgrade of the slot that does not boot by default.
    Upgrade,
    /// Nothing: this medium has done its work, once and for all.
    Done {
        /// On this disk; none where it is the one that was named.
        elsewhere: Option<String>,
        /// What boots next there.
        slot: Option<Slot>,
    },
}

/// Why nothing is done to a disk. Nothing has been written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftAlone {
    /// Never the medium itself.
    #[error(
        "it begins with an ISO 9660 image, as an installation medium does, and is never installed onto unattended; \
         `installer install --force` does it, or erase its first MiB"
    )]
    Medium,
    /// It is not said what becomes of it.
    #[error(
        "it holds {0}; nothing is done to it unless the kernel command line says what becomes of it: \
         slipway.install.preserve=true upgrades it and keeps STATE and EPHEMERAL (an installation of Slipway only), \
         slipway.install.preserve=false installs over it"
    )]
    Installed(String),
    /// Another disk holds one.
    #[error(
        "{disk} holds {what}, and talos.halt_if_installed=1 is on the kernel command line: boot that disk; or say \
         slipway.install.preserve=true or =false there, or leave talos.halt_if_installed out"
    )]
    Elsewhere {
        /// Its path.
        disk: String,
        /// What it holds.
        what: String,
    },
    /// It holds no installation of ours, but something.
    #[error("not empty: it holds {0}; slipway.install.preserve=false on the kernel command line installs over it")]
    NotEmpty(String),
    /// It would be done again and again.
    #[error(
        "it holds an installation, and slipway.medium= is not on the kernel command line: without a name that the disk can \
         keep, the next start of this system would install over it again, and again; `installer install --force` does it"
    )]
    NoName,
    /// It may be this medium's own work.
    #[error(
        "it holds an installation whose boot state is lost, or was once, so it is not known whether this medium has made it, and nothing \
         is installed over it unattended; `installer install --force` does it"
    )]
    StateLost,
}

/// Decide. `others` are the other disks of the machine by their paths.
pub fn unattended(
    orders: &Instructions,
    disk: &DiskHolds,
    others: &[(String, DiskHolds)],
) -> Result<Action, LeftAlone> {
    let ours = |system: &SystemFacts| {
        let by = system.env.as_ref().and_then(|env| env.medium);
        orders.medium.is_some() && orders.medium == by
    };
    // Names of disks move: what is /dev/sda today need not be the disk that the medium was made for.
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
        // A medium that is still in when it should not boot any more must neither destroy what it has made, nor go back to
        // what it brings when the system has had an upgrade since. (What was interrupted does not name it yet.)
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
