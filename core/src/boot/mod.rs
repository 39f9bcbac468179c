//! The boot state, the slots, the rule that picks the slot to boot, and the programs that carry it out under UEFI.

pub mod history;
pub mod loader_variable;
pub mod running;
pub mod trial;

pub use slipway_boot::{boot_failure, enroll, env, env_block, esp, live, rule, run, slot, slot_cfg};

use serde::{Deserialize, Serialize};

/// The loader that boots a new disk under UEFI. Under BIOS it is always GRUB.
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
