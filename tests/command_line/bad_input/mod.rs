//! Disks, payloads and arguments that must be refused: with the exit code of the public table, with a text
//! that names what is wrong, by how much and what helps, and without a byte written.
//!
//! Not exercised, for want of a kernel that has them: disks held by device mapper or md.

mod arguments;
mod disk;
mod disk_in_use;
mod disk_not_empty;
mod environment;
mod locked_disk;
