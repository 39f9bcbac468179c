//! What boots. Every test here ends in a machine that runs what the installer wrote: QEMU without
//! acceleration, SeaBIOS or OVMF, Debian's kernel and the reference OS.
//!
//! Run by `hack/test`, which builds what the guests need first: `out/installer`, `out/assets` and three
//! payloads, `out/payload*`. A test that misses one of them fails; none is ever skipped.
//!
//! - `world` is what the tests find, `image` a disk in a file, `qemu` a machine;
//! - the other modules are the promises, one file per group.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "the rule about who starts programs is the installer's")]

mod boot_rule;
mod image;
mod in_guest;
mod installed;
mod larger_disk;
mod qemu;
mod two_disks;
mod world;
