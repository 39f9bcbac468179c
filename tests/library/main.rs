//! Size: quick
//!
//! The library by itself: formats, plans, pictures, the boot state, the registry client. No test here needs root, boot
//! assets or another program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod advised_commands;
mod auto_upgrade;
mod command_definition;
mod damaged_slots;
mod diagram;
mod epoch;
mod failure_report;
mod fuzz_seeds;
mod grow_plan;
mod history;
mod image_profile;
mod initramfs;
mod install_plan;
mod layers;
mod lost_volume;
mod machine_config;
mod markers;
mod menu_plan;
mod next_step;
mod not_read;
mod offline_plan;
mod registry;
mod report_fixtures;
mod report_schema;
mod status_text;
mod torn_boot_env;
mod trial;
mod unattended;
mod upgrade_plan;
mod wipe_plan;
