//! The action that an unattended installation takes on a disk: install, upgrade, or nothing. The install or upgrade
//! itself is planned, and may be refused, as usual.

use crate::prelude::*;

use core::iter;

use uuid::Uuid;

use super::SystemFacts;
use crate::{
    boot::slot::Slot,
    config::unattended::{ExistingInstallation, Instructions},
    media::medium_id::MediumId,
    report::FailureId,
};

/// Content of a disk, seen from a live system.
#[derive(Clone, Debug)]
pub enum DiskHolds {
    /// Nothing.
    Nothing,
    /// An installation that was cut off, or one that was never used and has lost its beginning: no data is in it.
    Unfinished,
    /// An ISO 9660 image, as a live medium begins with.
    Medium,
    /// An installation of ours.
    System(Box<SystemFacts>),
    /// A META partition, as Talos has it, but not our layout.
    Talos,
    /// Anything else, described for people.
    Something(String),
    /// It cannot be looked at, and why: it may hold anything.
    Unknown(String),
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
            DiskHolds::Nothing
            | DiskHolds::Unfinished
            | DiskHolds::Medium
            | DiskHolds::Something(_)
            | DiskHolds::Unknown(_) => None,
        }
    }

    /// Whether the live medium `medium` has installed or upgraded it; None if it is not known.
    fn made_by(&self, medium: Option<MediumId>) -> Option<bool> {
        match self {
            DiskHolds::Unknown(_) => None,
            DiskHolds::System(system) => {
                let env = system.env.as_ref()?;
                match medium? {
                    medium if env.medium == Some(medium) => Some(true),
                    // It was made anew after it was lost, when the medium was unknown.
                    _ if env.rebuilt => None,
                    _ => Some(false),
                }
            }
            DiskHolds::Nothing
            | DiskHolds::Unfinished
            | DiskHolds::Medium
            | DiskHolds::Talos
            | DiskHolds::Something(_) => Some(false),
        }
    }

    /// The reason why it is unknown whether a live medium has made it, for people.
    fn why_unknown(&self) -> String {
        match self {
            DiskHolds::Unknown(why) => format!("cannot be looked at ({why})"),
            DiskHolds::System(system) if system.env.as_ref().is_none_or(|env| env.rebuilt) => {
                "holds an installation whose boot state was lost".to_owned()
            }
            _ => "holds an installation, and slipway.medium= is not on the kernel command line".to_owned(),
        }
    }
}

/// Action of an unattended installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A fresh install.
    Install {
        /// Overwrite a disk that is not empty.
        force: bool,
        /// Other disks that may hold this live medium's installation, for people. Only an empty disk is installed all
        /// the same.
        despite: Vec<String>,
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
    /// It is not said whether to keep or overwrite the installation.
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
        /// The content of the disk.
        what: String,
    },
    /// Another disk cannot be looked at, and `talos.halt_if_installed=1` is given.
    #[error(
        "{disk} cannot be looked at ({why}), so it may hold an installation, and talos.halt_if_installed=1 is on the \
         kernel command line: detach that disk, or add slipway.install.preserve=true or =false to the command line, or \
         leave talos.halt_if_installed out"
    )]
    MayBeElsewhere {
        /// Path of that disk.
        disk: String,
        /// The fault.
        why: String,
    },
    /// Another disk may be the one that this live medium has installed.
    #[error(
        "{disk} {why}, so it may be what this live medium has installed, and device names move: nothing is overwritten \
         or upgraded unattended; detach {disk}, or do it by hand: `installer install --force`, or `installer upgrade` \
         inside the installed system"
    )]
    Doubt {
        /// Path of that disk.
        disk: String,
        /// The reason why it is unknown.
        why: String,
    },
    /// Another disk is a copy of this one.
    #[error(
        "{disk} has the same disk GUID, {guid}: it is a clone, or the same disk on a second path, and after an upgrade \
         it would be unknown which of them boots; detach {disk}, or upgrade from inside the installed system"
    )]
    Clone {
        /// Path of the other disk.
        disk: String,
        /// GUID of both.
        guid: Uuid,
    },
    /// The disk itself.
    #[error("it cannot be looked at: {0}")]
    Unknown(String),
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

impl LeftAlone {
    /// The identifier, for programs to decide by.
    pub const fn id(&self) -> FailureId {
        match self {
            LeftAlone::Medium => FailureId::UnattendedMedium,
            LeftAlone::Installed(_) => FailureId::UnattendedInstalled,
            LeftAlone::Elsewhere { .. } => FailureId::UnattendedElsewhere,
            LeftAlone::MayBeElsewhere { .. } => FailureId::UnattendedMayBeElsewhere,
            LeftAlone::Doubt { .. } => FailureId::UnattendedDoubt,
            LeftAlone::Clone { .. } => FailureId::UnattendedClone,
            LeftAlone::Unknown(_) => FailureId::UnattendedUnreadable,
            LeftAlone::NotEmpty(_) => FailureId::UnattendedNotEmpty,
            LeftAlone::NoName => FailureId::UnattendedNoMediumId,
            LeftAlone::StateLost => FailureId::UnattendedStateLost,
        }
    }
}

/// Decide about `disk`. `others` are the machine's other disks, by path.
///
/// Device names move: today's /dev/sda need not be the disk that the words mean, nor the one that this medium has
/// installed. So a disk that is not empty is only written to when every other disk has been looked at, and none of them
/// may be that one.
pub fn unattended(
    instructions: &Instructions,
    disk: &DiskHolds,
    others: &[(String, DiskHolds)],
) -> Result<Action, LeftAlone> {
    // A medium left in the drive must neither destroy its own work nor undo a later upgrade. An interrupted installation
    // does not name the medium yet, so it is done again.
    let all = iter::once((None, disk)).chain(others.iter().map(|(path, held)| (Some(path), held)));
    for (elsewhere, held) in all {
        if let (DiskHolds::System(system), Some(true)) = (held, held.made_by(instructions.medium)) {
            return Ok(Action::Done { elsewhere: elsewhere.cloned(), slot: system.next.slot });
        }
    }
    if instructions.halt_if_installed && instructions.existing == ExistingInstallation::Refuse {
        none_installed(others)?;
    }
    let doubts = others.iter().filter(|(_, held)| held.made_by(instructions.medium).is_none());
    let mut doubts = doubts.map(|(path, held)| (path.clone(), held.why_unknown()));
    let action = match (disk, instructions.existing) {
        (DiskHolds::Unknown(why), _) => return Err(LeftAlone::Unknown(why.clone())),
        (DiskHolds::Medium, _) => return Err(LeftAlone::Medium),
        // Nothing is lost, and one dead disk must not keep a machine from being installed.
        (DiskHolds::Nothing | DiskHolds::Unfinished, _) => {
            let despite = doubts.map(|(path, why)| format!("{path} {why}")).collect();
            return Ok(Action::Install { force: matches!(disk, DiskHolds::Unfinished), despite });
        }
        (DiskHolds::System(system), ExistingInstallation::Preserve) => {
            unique(system, others)?;
            Action::Upgrade
        }
        (DiskHolds::System(_), ExistingInstallation::Overwrite) if instructions.medium.is_none() => {
            return Err(LeftAlone::NoName);
        }
        (DiskHolds::System(_), ExistingInstallation::Overwrite) if disk.made_by(instructions.medium).is_none() => {
            return Err(LeftAlone::StateLost);
        }
        (_, ExistingInstallation::Overwrite) => Action::Install { force: true, despite: vec![] },
        (DiskHolds::Something(what), _) => return Err(LeftAlone::NotEmpty(what.clone())),
        (held @ (DiskHolds::System(_) | DiskHolds::Talos), _) => {
            return Err(LeftAlone::Installed(held.installation().unwrap_or_default()));
        }
    };
    match doubts.next() {
        Some((disk, why)) => Err(LeftAlone::Doubt { disk, why }),
        None => Ok(action),
    }
}

/// `talos.halt_if_installed=1`: no other disk holds an installation, and none may.
fn none_installed(others: &[(String, DiskHolds)]) -> Result<(), LeftAlone> {
    if let Some((disk, what)) = others.iter().find_map(|(path, held)| Some((path, held.installation()?))) {
        return Err(LeftAlone::Elsewhere { disk: disk.clone(), what });
    }
    let unknown = |(disk, held): &(String, DiskHolds)| match held {
        DiskHolds::Unknown(why) => Some(LeftAlone::MayBeElsewhere { disk: disk.clone(), why: why.clone() }),
        _ => None,
    };
    others.iter().find_map(unknown).map_or(Ok(()), Err)
}

/// No other disk has the same GUID: after an upgrade of one of two, it would be unknown which of them boots.
fn unique(system: &SystemFacts, others: &[(String, DiskHolds)]) -> Result<(), LeftAlone> {
    let guid = system.gpt.disk_guid;
    let clone = |held: &DiskHolds| matches!(held, DiskHolds::System(other) if other.gpt.disk_guid == guid);
    match others.iter().find(|(_, held)| clone(held)) {
        Some((disk, _)) => Err(LeftAlone::Clone { disk: disk.clone(), guid }),
        None => Ok(()),
    }
}
