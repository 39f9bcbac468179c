//! Payloads: kernel, initramfs and squashfs, and their metadata.

pub mod components;
pub mod facts;
pub mod format_checks;
pub mod image_ref;
pub mod lists;
pub mod manifest;
pub mod minor_version;
pub mod partuuids;
pub mod signer;
pub mod unified;
pub mod unused;
pub mod version;
