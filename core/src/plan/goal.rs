//! What a plan is for.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The goal of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// A fresh system on a whole disk.
    Install,
    /// A new system in the other slot, tried at the next boot.
    Upgrade,
    /// A new system in the other slot, not tried yet.
    Stage,
    /// The next boot tries the staged system.
    Activate,
    /// The running trial becomes the default.
    Confirm,
    /// The other slot becomes the default, or the trial is given up.
    Rollback,
    /// STATE or EPHEMERAL is wiped.
    Wipe,
    /// The META tags change.
    Meta,
    /// What is lost is made again from what is still there.
    Repair,
    /// The disk tells why the running trial is not confirmed.
    Trial,
    /// EPHEMERAL takes the rest of a larger disk.
    Grow,
    /// The boot loaders are those of the installer.
    Bootloader,
    /// Whether a person at the keyboard may choose a slot.
    Menu,
    /// A copy of what belongs to a system is in its slot, or was put back.
    Snapshot,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Goal::Install => "install",
            Goal::Upgrade => "upgrade",
            Goal::Stage => "stage",
            Goal::Activate => "activate",
            Goal::Confirm => "confirm",
            Goal::Rollback => "rollback",
            Goal::Wipe => "wipe",
            Goal::Meta => "meta",
            Goal::Repair => "repair",
            Goal::Trial => "trial",
            Goal::Grow => "grow",
            Goal::Bootloader => "bootloader",
            Goal::Menu => "menu",
            Goal::Snapshot => "snapshot",
        })
    }
}
