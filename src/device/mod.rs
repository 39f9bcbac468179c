//! The disk as bytes at offsets.

mod aligned_buf;
mod block_io;
mod busy;
mod disk;
mod efi_variables;
mod identity;
mod ioctl;
mod list;
mod option_rom;
mod progress_file;
mod rate_limit;
mod smbios;
mod sparse;

use std::{fs, io, path::Path};

pub use aligned_buf::AlignedBuf;
pub use block_io::{BlockIo, CHUNK_BYTES};
pub use disk::{Access, Disk, OpenError};
pub use efi_variables::{EfiVariables, Efivarfs, SECURE_BOOT, SETUP_MODE, mount_efivarfs};
pub use identity::NotADisk;
pub use list::{DiskList, disks, lies_on_others};
pub use option_rom::{OptionRom, option_roms};
pub use progress_file::ProgressFile;
pub use rate_limit::{RateLimited, RateLimiter};
pub use smbios::{is_virtual_machine, kernel_args as firmware_kernel_args};
pub use sparse::{SparseReader, data_ranges};

/// A text of the kernel. It passes on any byte, as in a kernel argument, a path or the name of a program: such a word is of no
/// use here, and all others are.
pub fn kernel_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
