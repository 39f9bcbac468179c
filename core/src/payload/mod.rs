//! A payload: kernel, initramfs and squashfs, with what is known of them.

pub mod facts;
pub mod image_ref;
pub mod manifest;
pub mod version;
