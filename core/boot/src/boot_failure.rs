//! The mark that the boot loader leaves in boot.env when a slot does not start.

use core::fmt;

use crate::slot::Slot;

/// The record of a slot that the boot loader was to start, as a trial or as the default, and could not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct BootFailure {
    /// The slot that was to boot.
    pub slot: Slot,
    /// The fault that the boot loader found.
    pub fault: Fault,
}

/// Why the boot loader did not start a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "data", serde(rename_all = "lowercase"))]
pub enum Fault {
    /// A file does not match its digest: damage on the disk, for which the system is not to blame.
    Digest,
    /// The digests match, or are not checked, but the kernel or the initramfs does not load.
    Load,
    /// It did not get through: the machine was started anew while its files were read or loaded.
    Hung,
}

impl BootFailure {
    /// Parse the text of grub.cfg, such as `B:digest`.
    pub fn parse(text: &str) -> Option<Self> {
        let (slot, fault) = text.split_once(':')?;
        let fault = match fault {
            "digest" => Fault::Digest,
            "load" => Fault::Load,
            "hung" => Fault::Hung,
            _ => return None,
        };
        Some(BootFailure { slot: slot.parse().ok()?, fault })
    }
}

impl fmt::Display for BootFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            Fault::Digest => "digest",
            Fault::Load => "load",
            Fault::Hung => "hung",
        };
        write!(f, "{}:{fault}", self.slot)
    }
}
