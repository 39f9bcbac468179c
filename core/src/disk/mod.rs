//! Structures on a disk: partition table, layout, META, file systems.

pub mod bios;
pub mod chain;
pub mod drive_record;
pub mod fat;
pub mod foreign_mbr;
pub mod gpt;
pub mod gpt_choice;
pub mod gpt_grow;
pub mod gpt_mend;
pub mod identity;
pub mod layout;
pub mod loss;
pub mod magic;
pub mod meta;
pub mod own;
pub mod partition_type;
pub mod region;
pub mod sectors;
pub mod volume_bytes;
pub mod volume_fault;
pub mod xfs;
