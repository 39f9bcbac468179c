//! Slipway installs and upgrades an operating system (kernel, initramfs, squashfs) on a disk with two slots, A and B.
//!
//! This crate does all the I/O. Formats, decisions and reports are in `slipway-core`, which does none. Every verb takes
//! the same way:
//!
//! ```text
//! argv ──► cli ──► commands ──► Request ──► ops ──► probe ──► plan (core) ──► execute ──► Report
//! ```
//!
//! * [`cli`]: the command line as clap types; progress and output
//! * [`commands`]: turns the arguments of each verb into a request
//! * [`ops`]: the use cases, from request to report
//! * [`probe`]: looks at a disk, never writes
//! * [`execute`]: carries out a plan, the only module that does
//! * [`transfer`]: streams files to the disk, hashes them and reads them back
//! * `payload`: opens payloads in directories, container images and registries; a crate that the fleet has, too
//! * [`trust`]: makes the signatures of payloads, which `payload` verifies
//! * [`media`]: makes disk images and live media
//! * [`device`]: block devices and image files
//! * [`fat`]: FAT32 on a block device
//! * [`mkfs`]: XFS volumes, made by `mkfs.xfs`
//! * [`bootloader`]: finds the boot assets: GRUB's images and the UEFI loader
//! * [`tools`]: runs external programs
//! * [`machine`]: resets the machine, feeds its watchdog
//! * [`cleanup`]: files that go when a signal ends the program
//! * [`snapshot`]: what belongs to a system, on its mounted file systems
//! * [`error`]: failures and their exit codes
//! * [`report_failure`]: failures as JSON documents, and which identifier each has
//!
//! `docs/architecture.md` tells where to find what, why the order of writes is safe, and what each word means.

pub mod bootloader;
pub mod cleanup;
pub mod cli;
pub mod commands;
pub mod device;
pub mod error;
pub mod execute;
pub mod fat;
pub mod lookup;
pub mod machine;
pub mod media;
pub mod mkfs;
pub mod ops;
pub mod probe;
pub mod report_failure;
pub mod snapshot;
pub mod tools;
pub mod transfer;
pub mod trust;

pub use slipway_payload as payload;
