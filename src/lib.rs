//! map
pub mod bootloader;
pub mod cli;
pub mod commands;
pub mod device;
pub mod error;
pub mod execute;
pub mod fat;
pub mod mkfs;
pub mod model;
pub mod payload;
pub mod plan;
pub mod probe;
pub mod report;
pub mod tools;
