//! What comes from the support crate: payloads, loop devices, container images, a registry. Nothing else here names it.

pub use slipway_test_support::{
    images::{Layout, Pack, built},
    registry::{Authority, Debian, Image},
    world::{Loop, Payload, assets},
};
