//! What comes from the other tests: payloads, loop devices, container images, a registry. Nothing else here names them.

#[path = "../images/mod.rs"]
mod images;
#[allow(dead_code, reason = "shared with the tests of the registry client")]
#[path = "../registry/world.rs"]
mod registry;
#[path = "../world/mod.rs"]
pub mod world;

pub use images::{Layout, Pack, built};
pub use registry::{Authority, Debian, Image};
pub use world::{Loop, Payload, assets};
