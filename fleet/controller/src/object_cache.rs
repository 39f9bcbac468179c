//! Objects that were read before, for the next round.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1 as core;
use slipway_fleet_objects::{rollout::Rollout, upgrade::NodeUpgrade};

use crate::older_kubelets::Kubelet;

/// The objects of the last round.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectCache {
    known: Arc<Mutex<Known>>,
    /// The kubelets of the last round, which stay while another one reads; `None` if there was none, or it could not read.
    kubelets: Arc<Mutex<Option<Vec<Kubelet>>>>,
}

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
        std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put(&self, known: Known, kubelets: Vec<Kubelet>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        *self.kubelets.lock().unwrap_or_else(PoisonError::into_inner) = Some(kubelets);
    }

    /// What was read is out of date by now.
    pub(crate) fn forget_kubelets(&self) {
        *self.kubelets.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn kubelets(&self) -> Option<Vec<Kubelet>> {
        self.kubelets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
