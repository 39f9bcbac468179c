//! Size: gate
//! Needs: root boot-assets programs
//!
//! The program from outside: arguments, what it says, what it refuses, and what machined relies on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod all_clear;
mod bad_input;
mod boot_chain;
mod boot_variable;
mod clones;
mod completions;
mod contract;
mod damage;
mod failures;
mod firmware_table;
mod health;
mod help;
mod hooks_in_tools;
mod hostile_text;
mod inspect_disk;
mod install;
mod lost_table;
mod manual;
mod meta;
mod own_disk;
mod payload_verbs;
mod report_and_progress;
mod status_and_verify;
mod terminal;
mod trial_hooks;
mod volumes;
