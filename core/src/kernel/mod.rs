//! The kernel: command line, platforms, initramfs archives.

pub mod arch;
pub mod cmdline;
pub mod cpio;
pub mod platform;
pub mod smbios;
