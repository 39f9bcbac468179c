//! Configuration: Talos' machine config (`machine`), `/etc/slipway/policy.toml` ([`policy`]), `/etc/slipway/update.toml`
//! ([`update`]), and the instructions for an unattended installation ([`unattended`]).

mod cel;
mod machine;
pub mod policy;
mod selector;
pub mod unattended;
pub mod update;
pub(crate) mod value;

pub use super::yaml::ConfigError;
pub use machine::{DiskChoice, MachineConfig};
pub use selector::{DiskTraits, Selector};
