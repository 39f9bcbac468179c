//! The kernel: how it was configured, command line and its placeholders, platforms, initramfs archives.

pub mod arch;
pub mod cmdline;
pub mod config;
mod control_characters;
pub mod cpio;
pub mod efi_stub;
pub mod placeholder;
pub mod platform;
pub mod smbios;
pub mod uki_words;
