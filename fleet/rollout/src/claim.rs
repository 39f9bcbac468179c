//! The claim of an upgrade of Kubernetes on the ledger. While it is held no node gets a grant, and while a node holds a
//! grant it is not given: both are one compare-and-set of the same object, so they are never there at once.
//!
//! Like a grant it has no end of its own. It is freed by who upgrades, once no node keeps an older manifest and none is at
//! it; or by a person, with a reason. Its token is of the same row as those of grants.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ledger::{KubernetesClaim, Ledger, Refusal};

/// Why Kubernetes may not be upgraded now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimRefusal {
    /// Nodes are being disturbed.
    #[error(
        "the fleet upgrades the OS of {}: pause its pools, and wait; one that holds a grant without having begun does not \
         end by itself: `slipwayctl fleet status` names the command that frees it",
        .nodes.join(", ")
    )]
    Grants { nodes: Vec<String> },
    /// Another upgrade is not over.
    #[error(
        "the upgrade to {version} holds the claim {token}: complete it, or roll it back; or have a person free it: \
         slipwayctl kubernetes unblock --reason WHY"
    )]
    Claimed { version: String, token: u64 },
    /// The ledger was edited.
    #[error(transparent)]
    Ledger(#[from] Refusal),
}

impl Ledger {
    /// Why an upgrade to this version could not have the claim.
    pub fn may_claim(&self, version: &str) -> Result<(), ClaimRefusal> {
        match &self.kubernetes {
            Some(claim) if claim.version != version => {
                return Err(ClaimRefusal::Claimed { version: claim.version.clone(), token: claim.token });
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.is_known()?;
        let nodes: Vec<String> = self.grants.iter().map(|grant| grant.node.name.clone()).collect();
        if nodes.is_empty() { Ok(()) } else { Err(ClaimRefusal::Grants { nodes }) }
    }

    /// The ledger with the claim of an upgrade to this version; as it is, if that holds it already. `named` are tokens that
    /// are not given. The caller writes it if, and only if, the object is still the one that this was computed from.
    pub fn claim(&self, version: &str, named: &BTreeSet<u64>, now: Timestamp) -> Result<Self, ClaimRefusal> {
        self.may_claim(version)?;
        let mut ledger = self.clone();
        if ledger.kubernetes.is_none() {
            let token = ledger.next_token(named)?;
            (ledger.epoch, ledger.kubernetes) =
                (token, Some(KubernetesClaim { token, version: version.to_owned(), since: now }));
        }
        Ok(ledger)
    }

    /// The ledger without the claim of this token: its upgrade is over, or a person says so.
    pub fn unclaim(&self, token: u64) -> Self {
        let mut ledger = self.clone();
        // The token is not given again.
        ledger.epoch = ledger.highest();
        ledger.kubernetes = ledger.kubernetes.filter(|claim| claim.token != token);
        ledger
    }
}
