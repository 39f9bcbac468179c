//! Slipway installs an operating system (kernel, initramfs, squashfs) onto an A/B disk that always boots.
//!
//! This page is the map. Every command takes the same way through the layers:
//!
//! ```text
//! argv ── cli ──► commands ──► Request ─┐
//!                                       ├─► plan::<verb> ─► Plan ─► printed; --dry-run stops here
//! disk (locked) + payload ── probe ──► Facts ─┘  pure          │
//!        ▲                                                     ▼
//!        └── device, fat, mkfs, bootloader ◄──── execute::run: step by step, each one flushed and read back
//!                                                              │
//!                                                              ▼
//!                                              report (text or JSON) + exit code
//! ```
//!
//! | layer | modules | rule |
//! |---|---|---|
//! | 4 | [`cli`], [`commands`] | one file per verb, all of the same shape |
//! | 3 | [`probe`], [`plan`], [`execute`] | look (never writes), decide (pure), do (the only place where a [`plan::Step`] becomes I/O) |
//! | 2 | [`device`], [`payload`], [`fat`], [`mkfs`], [`bootloader`], [`media`], [`durable`], [`tools`] | touch the machine |
//! | 1 | [`model`] | values and formats, bytes in and bytes out: no file, process, clock or randomness |
//!
//! A module uses its own layer and those below, never one above (`tests/layers.rs` checks it); [`error`] and
//! [`report`] serve layers 3 and 4. GUIDs and the time enter through the request, so the same inputs give the
//! same plan.
//!
//! # Where is…
//!
//! * the order of writes to the disk, and why it is safe: [`plan::install()`] and [`plan::upgrade()`], at the heads of
//!   `src/plan/install.rs` and `src/plan/upgrade.rs`
//! * every change of the boot state: the methods of [`model::bootenv::BootEnv`]
//! * what makes a step durable: the loop of [`execute::run`]
//! * the rule by which the machine boots: `assets/grub/grub.cfg`; the same rule as a function, for `status`:
//!   [`model::bootrule::next_boot`]
//! * partition numbers, sizes, types: [`model::layout`]; the GPT: [`model::gpt`]
//! * unattended installations: what is asked for, [`model::unattended`]; what is left alone, `src/plan/unattended.rs`; how a
//!   medium finds out that it has done its work, [`model::medium`]
//! * which system runs: [`model::running`]; which version may follow which: [`model::version`]
//! * container images as sources: [`payload::image`]; what of a layer is refused: `src/payload/image/tar.rs` and
//!   `source.rs`
//! * registries: [`payload::registry`]; which one is asked next, and when it is given up:
//!   `src/payload/registry/rounds.rs`
//! * from a source to the disk in one pass: [`payload::write_stream`]; back from the medium: [`payload::ReadBack`]; the
//!   digests and checksums of both: [`model::digest`]
//! * META (Talos ADV): [`model::meta`]
//! * how `stage --limit-rate` spares the disk: [`device::RateLimited`], with the arithmetic in [`model::rate`]
//! * the kernel command line: [`model::cmdline`]
//! * YAML, with the place of every key: [`model::yaml`]; the machine config on stdin: [`model::config`]; the profiles of
//!   `imager`: [`model::profile`], and as arguments of `image`: [`cli::Imager::image_args`]; machined's environment variables: [`model::environment`]
//! * disk images (`image` is an install onto a file): [`media`]; what makes them the same bytes every time:
//!   `Identities` in `src/commands/install.rs`, [`plan::Ids::seeded`] and [`model::xfs::settle_inodes`]
//! * live media (ISO, PXE): [`media::Iso`], [`media::Pxe`]; what they carry: [`model::live`]; how an ISO starts:
//!   `assets/grub/iso.cfg`
//! * why a request was refused: [`plan::Refusal`]; exit codes: [`error::Kind`]
//! * why output never makes the work wait: [`report::output`]; why stdin does not: `src/commands/stdin.rs`
//! * the picture of a disk: [`report::picture`]; what is free, and whose the rest is: [`model::region`]
//! * external programs: [`tools::Tool`]
//!
//! # Words
//!
//! *Payload*: kernel + initramfs + squashfs, with command line and version. *Slot* A or B: the partition BOOT-A
//! or BOOT-B and what is in it; its states are in [`model::slot::SlotState`]. *Container image*: what is run.
//! *Disk image*: a file that is a disk. *Trial*: a slot booted exactly once unless it is confirmed. *ESP*, *LBA*,
//! *PARTUUID* as in the UEFI specification; *ADV*: the tag-value record in the META partition.

pub mod atomic_file;
pub mod bootloader;
pub mod cli;
pub mod commands;
pub mod device;
pub mod error;
pub mod execute;
pub mod fat;
pub mod media;
pub mod mkfs;
pub mod ops;
pub mod payload;
pub mod probe;
pub mod tools;
pub mod transfer;
