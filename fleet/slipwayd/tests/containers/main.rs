//! Size: gate
//! Needs: root programs boot-assets payloads containerd
//!
//! A real containerd with runc: pods that end before their volumes are needed, and the installer inside an image that
//! writes a slot of a disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod daemon;
mod node;
mod order;
mod pods;
mod pull;
mod stage;
mod starts;
