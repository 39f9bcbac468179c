//! Machines and volumes as they are now, where nodes are replaced. Elsewhere they are not read: no right is needed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::Api;
use slipway_fleet_objects::pool::Strategy;
use slipway_rollout::{facts::Machine, ledger::Ledger};

use crate::{
    cluster::{Cluster, Objects, PAGE, Result},
    cluster_api::{ClusterApi, Found, Provider as _},
    observed_node, volumes,
};

/// Facts for the replacement of nodes.
#[derive(Debug)]
pub struct ReplacementFacts {
    /// The machines, or why they are not known.
    pub found: std::result::Result<Vec<Found>, String>,
    /// Which volumes a node would lose with its machine, as a sentence, by the UID of the Node.
    pub local_volumes: BTreeMap<String, String>,
}

impl Default for ReplacementFacts {
    fn default() -> Self {
        Self { found: Err("machines were not looked at".to_owned()), local_volumes: BTreeMap::new() }
    }
}

/// True if any node is replaced.
fn is_needed(objects: &Objects, ledger: &Ledger) -> bool {
    let mut pools = objects.pools.values().flatten();
    pools.any(|pool| pool.spec.strategy == Strategy::Replace) || ledger.grants.iter().any(|of| of.replaces.is_some())
}

impl ReplacementFacts {
    /// Look, if any node is replaced.
    pub async fn look(cluster: &Cluster, objects: &Objects, ledger: &Ledger) -> Self {
        if !is_needed(objects, ledger) {
            return Self::default();
        }
        let found = ClusterApi::new(cluster).find(&objects.nodes).await.map_err(|e| e.to_string());
        let local_volumes = local_volumes(cluster, objects).await.unwrap_or_else(|e| {
            // It is unknown, so every node may lose a volume.
            let unknown = format!("it is unknown which volumes it would lose: {e}");
            objects.nodes.iter().map(|node| (observed_node::uid(node).to_owned(), unknown.clone())).collect()
        });
        Self { found, local_volumes }
    }

    /// The machines as decisions see them.
    pub fn machines(&self) -> std::result::Result<Vec<Machine>, String> {
        self.found.as_ref().map(|all| all.iter().map(|found| found.machine.clone()).collect()).map_err(Clone::clone)
    }

    /// The machine with this UID.
    pub fn found(&self, uid: &str) -> Option<&Found> {
        self.found.as_ref().ok()?.iter().find(|found| found.machine.uid == uid)
    }
}

async fn local_volumes(cluster: &Cluster, objects: &Objects) -> Result<BTreeMap<String, String>> {
    let of_cluster: Api<PersistentVolume> = Api::all(cluster.client().clone());
    let volumes = cluster.list_trimmed("volumes", of_cluster, PAGE, volumes::is_needed).await?;
    let mut pods = Vec::new();
    if volumes::needs_pods(&volumes) {
        let of_cluster: Api<Pod> = Api::all(cluster.client().clone());
        pods = cluster.list_trimmed("pods", of_cluster, PAGE, volumes::is_needed_of).await?;
    }
    Ok(volumes::local_volumes(&objects.nodes, &volumes, &pods))
}
