//! Reads FAT32 file systems, our own and others'. The writer is [`slipway_core::disk::fat`].
//!
//! Why not the `fatfs` crate: it allocates cluster by cluster while it writes (1.3 to 8 s for 299 MiB, where the disk
//! needs 0.13 s). It also cannot say where a file lies, which the read-back and the one-sector rewrite of boot.env
//! need. Our writer lays out the whole file system first, each file in one extent. The tests check its volumes with
//! `fatfs`, dosfstools, mtools, GRUB and Linux.

mod read;

pub use read::{FatFile, FatVolume, ReadError};
