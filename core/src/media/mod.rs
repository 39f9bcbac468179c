//! Disk images and live media.

pub mod format;
pub mod live;
pub mod ovf;
pub mod profile;

pub use slipway_boot::medium_id;
