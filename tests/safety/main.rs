//! Size: gate
//! Needs: boot-assets programs
//!
//! That there is always a system that boots: power cuts and I/O errors at every instant, and the boot rule under GRUB
//! itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod boot_rule;
mod crash;
mod grow;
mod grub_images;
