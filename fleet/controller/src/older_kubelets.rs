//! The kubelets that are older than the version of Kubernetes that was reached, by the pools that upgrade them.

use std::collections::BTreeMap;

use slipway_fleet_objects::kubernetes_upgrade::OlderKubelets;
use slipway_kubernetes::version::Version;

/// Names that a row has. A status is read by people, and has its room in etcd.
const NAMES: usize = 20;
/// Rows that a status has. A kubelet says of its version what it wants to: with more of them, a pool has one row.
const ROWS: usize = 40;
/// The longest version that is taken for one.
const LONGEST: usize = 64;

/// The kubelet of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubelet {
    /// Its node.
    pub node: String,
    /// The pool that upgrades it.
    pub pool: Option<String>,
    /// Its version, as it says it.
    pub version: String,
}

/// Those that are older than this version, and those whose version is none.
pub fn older(all: &[Kubelet], than: &Version) -> Vec<OlderKubelets> {
    let mut rows = BTreeMap::<(Option<&str>, String), Vec<&str>>::new();
    for Kubelet { node, pool, version } in all {
        let parsed = Some(version).filter(|text| text.len() <= LONGEST).and_then(|text| text.parse::<Version>().ok());
        let said = match parsed {
            Some(parsed) if parsed.release() >= than.release() => continue,
            Some(_) => version.clone(),
            None => "unknown".to_owned(),
        };
        rows.entry((pool.as_deref(), said)).or_default().push(node);
    }
    if rows.len() > ROWS {
        let of_pools = std::mem::take(&mut rows);
        for ((pool, _), nodes) in of_pools {
            rows.entry((pool, "several".to_owned())).or_default().extend(nodes);
        }
    }
    let row = |((pool, version), mut nodes): ((Option<&str>, String), Vec<&str>)| {
        nodes.sort_unstable();
        OlderKubelets {
            pool: pool.map(str::to_owned),
            version,
            count: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            nodes: nodes.into_iter().take(NAMES).map(str::to_owned).collect(),
        }
    };
    rows.into_iter().map(row).collect()
}

/// What people read behind the version that was reached; nothing if none is older.
pub fn sentence(older: &[OlderKubelets]) -> String {
    let count: u64 = older.iter().map(|of| u64::from(of.count)).sum();
    // Rows of one pool are beside each other.
    let mut pools: Vec<&str> = older.iter().map(|of| of.pool.as_deref().unwrap_or("no NodePool")).collect();
    pools.dedup();
    let pools = pools.join(", ");
    match count {
        0 => String::new(),
        1 => format!("; 1 kubelet is older, in {pools}"),
        _ => format!("; {count} kubelets are older, in {pools}"),
    }
}
