//! The kernel: command line, platforms, initramfs archives.

pub mod cmdline;
pub mod cpio;
pub mod platform;
pub mod smbios;
