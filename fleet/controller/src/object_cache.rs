//! Objects that were read before, for the next round.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1 as core;
use slipway_fleet_objects::{rollout::Rollout, upgrade::NodeUpgrade};

/// The objects of the last round.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectCache(Arc<Mutex<Known>>);

/// Objects that were read as a whole. They were trimmed.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub rollouts: Vec<Rollout>,
    pub upgrades: Vec<NodeUpgrade>,
    pub nodes: Vec<core::Node>,
}

impl ObjectCache {
    /// Take them out: a round that fails reads everything anew.
    pub(crate) fn take(&self) -> Known {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put(&self, known: Known) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}
