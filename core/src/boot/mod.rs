//! The boot state, the slots, and the rule that picks the slot to boot.

pub mod env;
pub mod env_block;
pub mod history;
pub mod refused;
pub mod rule;
pub mod running;
pub mod slot;
pub mod trial;
