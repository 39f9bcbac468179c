//! map
pub mod model;
pub mod device;
pub mod fat;
pub mod payload;
pub mod tools;
pub mod bootloader;
pub mod mkfs;
