//! Size: gate
//! Needs: root boot-assets programs
//!
//! Disks: what an install leaves on them, upgrades of them, and everything that can be wrong with them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod advice;
mod bad_upgrade;
mod boot_menu;
mod bootloader;
mod cycle;
mod earlier;
mod fat_reader;
mod fat_volume;
mod grow;
mod half_dead;
mod history;
mod installed;
mod interrupted;
mod kernels;
mod later;
mod many_disks;
mod marks;
mod next_version;
mod odd_disks;
mod offline;
mod old_labels;
mod one_writer;
mod other_disks;
mod placeholders;
mod readers;
mod released;
mod signals;
mod snapshot;
mod support;
mod unattended;
mod upgrade;
