//! Disks, payloads and arguments that must be refused: with the exit code of the public table, with a text
//! that names what is wrong, by how much and what helps, and without a byte written.
//!
//! Disks held by device mapper or md are in vm-tests/in_guest.rs, where the kernel has them.

mod arguments;
mod disk;
mod disk_in_use;
mod disk_not_empty;
mod environment;
mod held_disk;
mod locked_disk;
