//! Size: gate
//! Needs: root boot-assets payloads container-image programs
//!
//! Where a payload comes from: directories, container images, registries; and the project's own container image.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod auto_upgrade;
mod bad_payload;
mod builders;
mod container_image;
mod cut_payload;
mod delta;
mod from_registry;
mod hostile_images;
mod image_documents;
mod kernel_config;
mod kernel_reads;
mod later_entries;
mod layouts;
mod progress;
mod push;
mod registry;
mod signatures;
mod unified;
