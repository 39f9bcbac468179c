//! The running system, from the boot rule's words on the kernel command line: `slipway.slot`, `slipway.disk` and
//! `slipway.try`. It is never guessed from anything else.

use core::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::slot::Slot;

/// The running system, seen from one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Running {
    /// Booted from this disk.
    This {
        /// The slot.
        slot: Slot,
        /// Whether it is a trial.
        trial: bool,
    },
    /// Booted from another disk.
    Other {
        /// GUID of that disk.
        disk: Uuid,
    },
    /// The command line does not say.
    Unknown,
}

impl Running {
    /// Read the kernel command line, as seen from the disk with this GUID.
    pub fn from_cmdline(cmdline: &str, disk: Uuid) -> Self {
        let found = || {
            let guid = booted_disk(cmdline)?;
            let slot: Slot = value(cmdline, "slipway.slot")?.parse().ok()?;
            let trial = match value(cmdline, "slipway.try")? {
                "0" => false,
                "1" => true,
                _ => return None,
            };
            Some(if guid == disk { Running::This { slot, trial } } else { Running::Other { disk: guid } })
        };
        found().unwrap_or(Running::Unknown)
    }

    /// The slot of this disk that is running.
    pub const fn slot(self) -> Option<Slot> {
        match self {
            Running::This { slot, .. } => Some(slot),
            _ => None,
        }
    }
}

/// GUID of the disk that the running system was booted from, by the kernel command line.
pub fn booted_disk(cmdline: &str) -> Option<Uuid> {
    value(cmdline, "slipway.disk")?.parse().ok()
}

/// The trial that runs, by the words of the boot rule alone. Whether it was confirmed meanwhile, only its disk says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Its slot.
    pub slot: Slot,
    /// GUID of its disk.
    pub disk: Uuid,
}

impl Trial {
    /// None if the running system is no trial.
    pub fn from_cmdline(cmdline: &str) -> Option<Self> {
        let disk = booted_disk(cmdline)?;
        match Running::from_cmdline(cmdline, disk) {
            Running::This { slot, trial: true } => Some(Trial { slot, disk }),
            _ => None,
        }
    }
}

/// The time that a trial may take, as the operator has set it: `slipway.deadline` on the kernel command line.
pub fn deadline(cmdline: &str) -> Option<&str> {
    value(cmdline, "slipway.deadline")
}

/// Whether the boot rule, the payload or the operator has set the kernel's action after a panic.
pub fn says_what_a_panic_does(cmdline: &str) -> bool {
    value(cmdline, "panic").is_some()
}

// The boot rule adds its words at the end, so the last one counts: a payload's own words cannot fake them.
fn value<'c>(cmdline: &'c str, key: &str) -> Option<&'c str> {
    let words = cmdline.split_ascii_whitespace();
    words.filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).next_back()
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Running::This { slot, trial: false } => write!(f, "slot {slot} of this disk"),
            Running::This { slot, trial: true } => write!(f, "slot {slot} of this disk, as a trial"),
            Running::Other { disk } => write!(f, "a system on the disk {disk}, not on this one"),
            Running::Unknown => f.write_str(
                "not a system that Slipway's boot rule started (not all of slipway.slot, \
                slipway.disk and slipway.try are on the kernel command line)",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn command_lines() {
        let disk = Uuid::from_u128(7);
        let of = |text: &str| Running::from_cmdline(text, disk);
        let guid = disk.to_string();
        let line = |slot: &str, guid: &str, r#try: &str| {
            format!("quiet slipway.slot={slot} slipway.disk={guid} slipway.try={try}\n")
        };
        assert_eq!(of(&line("A", &guid, "0")), Running::This { slot: Slot::A, trial: false });
        assert_eq!(of(&line("B", &guid.to_uppercase(), "1")), Running::This { slot: Slot::B, trial: true });
        let planted = format!("slipway.slot=A slipway.try=1 {}", line("B", &guid, "0"));
        assert_eq!(of(&planted), Running::This { slot: Slot::B, trial: false }, "the last word counts");
        let other = Uuid::from_u128(8);
        assert_eq!(of(&line("A", &other.to_string(), "0")), Running::Other { disk: other });
        for bad in [line("C", &guid, "0"), line("A", "x", "0"), line("A", &guid, "2"), "quiet".into(), String::new()] {
            assert_eq!(of(&bad), Running::Unknown, "{bad}");
        }
        let trial = |r#try| Trial::from_cmdline(&line("B", &guid, r#try));
        assert_eq!((trial("1"), trial("0")), (Some(Trial { slot: Slot::B, disk }), None));
        assert_eq!(of(&format!("slipway.slot=A slipway.disk={guid}")), Running::Unknown);
        assert_eq!(booted_disk(&format!("slipway.disk={other} x slipway.disk={guid}")), Some(disk));
        assert!(says_what_a_panic_does("quiet panic=0") && !says_what_a_panic_does("quiet oops=panic panicked=1"));
        for bad in ["slipway.disk=", "slipway.disk=sda", "slipway.disks=1", ""] {
            assert_eq!(booted_disk(bad), None, "{bad}");
        }
    }
}
