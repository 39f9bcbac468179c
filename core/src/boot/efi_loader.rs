//! The programs that carry out the boot rule under UEFI.

use serde::{Deserialize, Serialize};

/// What a new disk boots with under UEFI. Under BIOS it is always GRUB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EfiLoader {
    /// Slipway's own loader, `loader/`.
    #[default]
    Slipway,
    /// GRUB with `assets/grub/grub.cfg`.
    Grub,
}

impl EfiLoader {
    /// Every loader, its name, and its distinction.
    pub const ALL: [(EfiLoader, &'static str, &'static str); 2] = [
        (
            EfiLoader::Slipway,
            "slipway",
            "Slipway's own: starts the next slot in the same run, and signed unified kernel images under Secure Boot",
        ),
        (EfiLoader::Grub, "grub", "GRUB, as under BIOS: starts kernels without an EFI stub, too"),
    ];
}
