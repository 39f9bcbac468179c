//! The fleet's grant: whether this node may be disturbed. It is looked up in the ledger, an object of the cluster, with a
//! read that a majority of etcd answers. Nodes write nothing there: the right to `get` it is enough.

use kube::{
    Api,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use serde::Deserialize;

use super::{
    installer::InstallError,
    kube::{Kube, error_text, within},
};

/// The ledger's name. There is one in a cluster.
const LEDGER: &str = "cluster";

/// The part of the ledger that a node reads. It has more, and may get more: its controller may be newer than this node.
#[derive(Debug, Default, Deserialize)]
struct Ledger {
    #[serde(default)]
    grants: Vec<Grant>,
    #[serde(default)]
    kubernetes: Option<Claim>,
}

/// The upgrade of Kubernetes that is under way.
#[derive(Debug, Deserialize)]
struct Claim {
    token: u64,
    version: String,
}

#[derive(Debug, Deserialize)]
struct Grant {
    node: Holder,
    token: u64,
}

/// The UID of its holder. Names are given again, so the name does not count.
#[derive(Debug, Deserialize)]
struct Holder {
    uid: String,
}

impl Ledger {
    /// The token of the grant that this Node holds.
    fn token(&self, uid: &str) -> Option<u64> {
        self.grants.iter().filter(|grant| grant.node.uid == uid).map(|grant| grant.token).max()
    }
}

impl Kube {
    /// The token of the grant that the ledger names as this node's; `None` if it names none.
    pub fn grant(&self) -> Result<Option<u64>, String> {
        self.look_up().map(|(uid, ledger)| ledger.token(&uid))
    }

    /// Whether the fleet's grant with this token is this node's. If the ledger cannot be read, it may still come; a grant that
    /// is not there does not.
    pub fn is_granted(&self, token: u64) -> Result<(), InstallError> {
        let (uid, ledger) = self.look_up().map_err(InstallError::Transient)?;
        match ledger.token(&uid) {
            Some(granted) if granted == token => Ok(()),
            Some(granted) => {
                Err(InstallError::Permanent(format!("the fleet granted the token {granted}, not {token}")))
            }
            None => Err(InstallError::Permanent(format!(
                "the fleet's ledger has no grant for this Node, whose UID is {uid}"
            ))),
        }
    }

    /// The version that the ledger's claim with this token is for, or what the ledger has instead. The outer error: it cannot
    /// be read.
    pub fn claimed(&self, token: u64) -> Result<std::result::Result<String, String>, String> {
        Ok(match self.look_up()?.1.kubernetes {
            Some(claim) if claim.token == token => Ok(claim.version),
            Some(Claim { token, version }) => Err(format!("it is {token}, for {version}")),
            None => Err("there is none".to_owned()),
        })
    }

    /// The UID of this Node, and the ledger as it is now. Neither read names a version: an API server then asks a
    /// majority of etcd, and does not answer from what it remembers.
    fn look_up(&self) -> Result<(String, Ledger), String> {
        let kind = GroupVersionKind::gvk("fleet.slipway.dev", "v1alpha1", "DisruptionLedger");
        let resource = ApiResource::from_gvk_with_plural(&kind, "disruptionledgers");
        let ledger = self.block_on(async {
            let client = self.client().await?;
            let node = self.get(&Api::all(client.clone())).await?;
            let uid = node.metadata.uid.ok_or_else(|| "this Node has no UID".to_owned())?;
            let ledgers: Api<DynamicObject> = Api::all_with(client, &resource);
            let ledger =
                within(ledgers.get(LEDGER)).await?.map_err(|e| format!("the fleet's ledger: {}", error_text(&e)))?;
            Ok::<_, String>((uid, ledger))
        });
        let (uid, mut object) = ledger?;
        let status = object.data.get_mut("status").map(serde_json::Value::take).filter(|status| !status.is_null());
        let ledger = status.map(serde_json::from_value).transpose();
        Ok((uid, ledger.map_err(|e| format!("the fleet's ledger is not as expected: {e}"))?.unwrap_or_default()))
    }
}
