//! The pure part of Slipway: formats, plans, the boot rule, reports.
//!
//! This crate has no `std`. So it has no files, no processes, no clock, no randomness and no threads, and the compiler
//! holds it to that. Inputs that change from one run to the next come in as values.
//!
//! | module | what it holds |
//! |---|---|
//! | [`boot`] | the boot state (`boot.env`), the slots, and the rule that picks the slot to boot |
//! | [`disk`] | GPT, partition layout, META, FAT32 layout, what a disk is and what it holds |
//! | [`efi`] | programs in PE format, their signatures, unified kernel images, variables of Secure Boot |
//! | [`kernel`] | the kernel command line, platforms, initramfs archives |
//! | [`payload`] | manifest, version policy, image references |
//! | [`config`] | machine config, and the words that ask for an unattended installation |
//! | [`media`] | formats of disk images and live media, imager profiles |
//! | [`plan`] | what to do, decided from what was asked and what was found |
//! | [`snapshot`] | what goes back with a system beside its slot |
//! | [`delta`] | which parts of a layer a machine has already, and which it fetches |
//! | [`report`] | what a command answers, its progress events, and the picture of a disk |
//! | [`text`] | what comes from outside and is shown to people |
//! | [`pem`] | files of certificates and keys as people have them |
//! | [`support`], [`redact`] | the archive of a failure; text without secrets |
//! | [`bytes`], [`glob`], [`yaml`], [`units`], [`rate_limit`], [`seeded_guid`], [`zeros`], [`digest`] | values that all of these share |
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod boot;
pub mod bytes;
pub mod config;
pub mod delta;
pub mod disk;
pub mod efi;
pub mod glob;
pub mod kernel;
pub mod media;
pub mod payload;
pub mod pem;
pub mod plan;
mod prelude;
pub mod rate_limit;
pub mod redact;
pub mod report;
pub mod seeded_guid;
pub mod snapshot;
pub mod support;
pub mod text;
mod toml;
pub mod units;
pub mod yaml;
pub mod zeros;

pub use slipway_boot::digest;
