//! The boot state, and the boot rule that reads it.
//!
//! Below [`slipway_core`](../slipway_core/index.html), because the UEFI loader runs this very code and has room for
//! little else. The forecast of `installer status`, the model check, the crash sweep and the loader share this code.
//!
//! | module | what it holds |
//! |---|---|
//! | [`slot`] | the slots and their states |
//! | [`env`](mod@env), [`env_block`], [`boot_failure`] | `boot.env` and its copies, a slot's marker, and the format of both |
//! | [`esp`] | where both copies lie on the ESP |
//! | [`rule`] | which slot the next boot starts |
//! | [`run`] | a boot: the try is spent, a slot is started, another one takes its place |
//! | [`slot_cfg`] | what a slot boots with |
//! | [`loader_variable`] | whether a slot may start when the loader cannot tell it which one it is |
//! | [`digest`] | SHA-256, and lists of digests |
//! | [`enroll`], [`enroll_mode`], [`option_rom`] | whether the keys on a live medium go into the firmware, and what speaks against it |
//! | [`live`] | what lies where on a live medium that the loader starts |
//! | [`medium_id`] | the ID of a live medium, which the boot state remembers |
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod boot_failure;
pub mod digest;
pub mod enroll;
pub mod enroll_mode;
pub mod env;
pub mod env_block;
pub mod esp;
pub mod live;
pub mod loader_variable;
pub mod medium_id;
pub mod option_rom;
mod prelude;
pub mod rule;
pub mod run;
pub mod slot;
pub mod slot_cfg;

/// The version of this source. The loader, which is a workspace of its own, takes it from here.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
