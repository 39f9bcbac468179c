//! Disk images and live media.

pub mod format;
pub mod live;
pub mod medium_id;
pub mod ovf;
pub mod profile;
