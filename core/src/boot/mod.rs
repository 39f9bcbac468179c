//! The boot state, the slots, and the rule that picks the slot to boot.

pub mod efi_loader;
pub mod history;
pub mod loader_variable;
pub mod running;
pub mod trial;

pub use slipway_boot::{boot_failure, enroll, env, env_block, esp, live, rule, run, slot, slot_cfg};
