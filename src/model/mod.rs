//! LAYER 1: values and formats. Bytes in, bytes out: no file, no process, no clock, no randomness.

pub mod bootenv;
pub mod bootrule;
pub mod cmdline;
pub mod config;
pub mod digest;
pub mod disk_image;
pub mod envblock;
pub mod environment;
pub mod gpt;
pub mod image_ref;
pub mod layout;
pub mod manifest;
pub mod mbr;
pub mod meta;
pub mod ovf;
pub mod parttype;
pub mod rate;
pub mod region;
pub mod running;
pub mod signature;
pub mod slot;
pub mod smbios;
pub mod units;
pub mod version;
pub mod xfs;
