//! Identifies the boot loader in a UEFI image.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{pe::Pe, sbat::Sbat};
use crate::boot::EfiLoader;

// grub-mkimage puts GRUB's modules into a section of this name.
const MODULES_OF_GRUB: &str = "mods";
const SBAT: &str = ".sbat";

/// The facts that an image states about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootImage {
    /// Which loader it is. None: neither of ours says so.
    pub loader: Option<EfiLoader>,
    /// Its version, if it says one.
    pub version: Option<String>,
    /// Its epoch; 0 of an image that was made before there were epochs.
    pub epoch: u32,
    /// Whether it carries a signature for Secure Boot, valid or not.
    pub signed: bool,
}

impl BootImage {
    /// Reads a file. One that is no program yields the default.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let Ok(pe) = Pe::parse(bytes) else { return BootImage::default() };
        let signed = pe.is_signed();
        let Some(sbat) = pe.content(SBAT).and_then(Sbat::parse) else {
            let grub = pe.sections().iter().any(|section| section.name == MODULES_OF_GRUB);
            return BootImage { loader: grub.then_some(EfiLoader::Grub), signed, ..BootImage::default() };
        };
        let loader = match (sbat.is_grub(), sbat.is_own()) {
            (true, _) => Some(EfiLoader::Grub),
            (_, true) => Some(EfiLoader::Slipway),
            _ => None,
        };
        BootImage { loader, version: sbat.version(), epoch: sbat.epoch(), signed }
    }

    /// Whether GRUB was chosen for UEFI: an image of it that was made before there were epochs was the only choice.
    pub fn is_chosen_grub(&self) -> bool {
        self.loader == Some(EfiLoader::Grub) && self.epoch > 0
    }
}

impl fmt::Display for BootImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.loader {
            Some(EfiLoader::Grub) => "GRUB",
            Some(EfiLoader::Slipway) => "Slipway's loader",
            None => "a program that does not say what it is",
        })?;
        if let Some(version) = &self.version {
            write!(f, " {version}")?;
        }
        match self.epoch {
            0 => f.write_str(", without an epoch")?,
            epoch => write!(f, ", epoch {epoch}")?,
        }
        f.write_str(if self.signed { ", signed for Secure Boot" } else { "" })
    }
}
