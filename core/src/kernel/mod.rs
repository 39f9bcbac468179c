//! What a kernel is started with.

pub mod cmdline;
pub mod cpio;
pub mod platform;
pub mod smbios;
