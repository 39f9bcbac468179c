//! Boot loaders of a disk, and the answer of `bootloader status`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::rows::{Row, lines};
use crate::{efi::boot_image::BootImage, plan::bootloader::BootloaderChange};

/// Shown when the menu is off and a boot loader may ignore that.
pub const MAY_OFFER_MENU: &str = "off, but a boot loader without an epoch may not know that, and offer it all the same: \
                                  `installer bootloader update` replaces it";

/// The boot loaders of a disk, and those that this installer would make of them.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootloaderReport {
    /// Path of the disk.
    pub disk: String,
    /// Path of the UEFI image on the ESP.
    pub path: String,
    /// The image that UEFI starts; `null` if there is no such file, or it cannot be read.
    pub uefi: Option<BootImage>,
    /// The image that a BIOS starts; `null` on a disk that no BIOS starts.
    pub bios: Option<BiosImage>,
    /// The loader for UEFI that this installer has for the disk.
    pub shipped: Option<BootImage>,
    /// Whether a person at the keyboard may choose a slot; `null` if both copies of boot.env are lost, and the menu is on.
    #[serde(default)]
    pub menu: Option<bool>,
    /// The parts of the boot chain that differ from their record.
    pub damage: Vec<String>,
    /// The changes that `bootloader update` would make. Empty where `left` says why it would make none.
    pub update: Option<BootloaderChange>,
    /// Why the boot loaders would stay as they are, though this installer has others.
    pub left: Option<String>,
    /// The command that makes these changes, between backticks.
    #[serde(skip)]
    pub command: String,
}

/// The boot loaders of a disk, as they say themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bootloaders {
    /// The image that UEFI starts; `null` if there is no such file, or it cannot be read.
    pub uefi: Option<BootImage>,
    /// The image that a BIOS starts; `null` on a disk that no BIOS starts.
    pub bios: Option<BiosImage>,
}

impl Bootloaders {
    pub(super) fn rows(&self) -> Vec<Row> {
        let uefi = self.uefi.iter().map(|image| ("UEFI", image.to_string()));
        uefi.chain(self.bios.iter().map(|image| ("BIOS", image.to_string()))).collect()
    }

    /// Whether one of them may offer the boot menu although it is off. All that have an epoch keep to that.
    pub fn may_offer_menu(&self) -> bool {
        let [uefi, bios] = [self.uefi.as_ref().map(|image| image.epoch), self.bios.as_ref().map(|image| image.epoch)];
        uefi == Some(0) || bios == Some(0)
    }

    /// Whether a person at the keyboard may choose a slot, for people. None: the boot state is lost. `update` replaces them.
    pub(super) fn menu(&self, on: Option<bool>, update: &str) -> String {
        match on {
            Some(true) => "on: while the machine starts, a key offers the slots",
            Some(false) if self.may_offer_menu() => {
                return MAY_OFFER_MENU.replace("`installer bootloader update`", update);
            }
            Some(false) => "off: while the machine starts, no key does anything",
            None => "on: the boot state is lost, and with it whether the menu was off",
        }
        .to_owned()
    }
}

/// GRUB's core image for BIOS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BiosImage {
    /// Its epoch; 0 of one that was made before there were epochs.
    pub epoch: u32,
    /// In which half of the BIOS partition it lies, 1 or 2; `null` if the boot code starts neither.
    pub half: Option<u8>,
}

impl fmt::Display for BiosImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(half) = self.half else { return f.write_str("boot code that starts no core image of this disk") };
        f.write_str("GRUB")?;
        match self.epoch {
            0 => f.write_str(", without an epoch")?,
            epoch => write!(f, ", epoch {epoch}")?,
        }
        write!(f, " (half {half} of BIOS)")
    }
}

impl fmt::Display for BootloaderReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = || "nothing that can be read".to_owned();
        let mut rows: Vec<Row> = vec![("disk", self.disk.clone())];
        rows.push(("UEFI", self.uefi.as_ref().map_or_else(none, |image| format!("{image} ({})", self.path))));
        rows.extend(self.bios.as_ref().map(|bios| ("BIOS", bios.to_string())));
        let found = Bootloaders { uefi: self.uefi.clone(), bios: self.bios.clone() };
        rows.push(("boot menu", found.menu(self.menu, &self.command)));
        rows.extend(self.shipped.as_ref().map(|image| ("installer", image.to_string())));
        rows.extend(self.damage.iter().map(|damage| ("damaged", damage.clone())));
        let update = match (&self.left, &self.update) {
            (Some(why), _) => format!("none: {why}"),
            (None, Some(change)) => format!("{}: {change}", self.command),
            (None, None) => "none: the boot loaders are those of this installer".to_owned(),
        };
        rows.push(("update", update));
        f.write_str(&lines(&rows, None).join("\n"))
    }
}
