//! LAYER 2: FAT32, laid out first and then streamed.
//!
//! The writer computes a whole file system from names and sizes (`layout.rs`): every file in one extent,
//! so that its data goes to the disk as one sequential stream, and all metadata known before the first
//! byte of data. The reader (`read.rs`) follows what stands on the disk, ours or anybody's.
//!
//! Why not a library: the `fatfs` crate allocates cluster by cluster while it writes (measured: 1.3 to
//! 8 s for 299 MiB where the disk takes 0.13 s), and has no way to ask where a file lies, which the read-back and
//! the one-sector rewrite of boot.env both need. One module for ESP and slots is less than a library
//! for the one and our own for the other. `fatfs`, dosfstools, mtools, GRUB and Linux judge it in the tests.

mod read;

pub use read::{FatFile, FatVolume, ReadError};
