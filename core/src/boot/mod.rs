//! The boot state, the slots, and the rule that picks the slot to boot.

pub mod efi_loader;
pub mod history;
pub mod running;
pub mod told;
pub mod trial;

pub use slipway_boot::{enroll, env, env_block, esp, live, refused, rule, run, slot, slot_cfg};
