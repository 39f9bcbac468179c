//! The disk as bytes at offsets.

mod aligned_buf;
mod block_io;
mod busy;
mod disk;
mod firmware;
mod identity;
mod ioctl;
mod list;
mod progress_file;
mod rate_limit;

pub use aligned_buf::AlignedBuf;
pub use block_io::{BlockIo, CHUNK_BYTES};
pub use disk::{Access, Disk, OpenError};
pub use firmware::kernel_args as firmware_kernel_args;
pub use identity::NotADisk;
pub use list::{DiskList, disks, lies_on_others};
pub use progress_file::ProgressFile;
pub use rate_limit::{RateLimited, RateLimiter};
