//! What is written into a Node to cordon it, and what is put back. What we did not cordon we do not uncordon.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names the operation that cordoned the node.
pub const OWNER: &str = "node.slipway.dev/cordoned-by";
/// `true` if the node was cordoned before us, by somebody else.
pub const BEFORE: &str = "node.slipway.dev/cordoned-before";

/// What counts of a Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeState {
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// The annotation [`OWNER`].
    pub owner: Option<String>,
    /// The annotation [`BEFORE`].
    pub before: Option<String>,
}

/// Why a node is not cordoned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another operation holds it.
    #[error("operation {0} has cordoned this node: wait for it, or remove the annotation {OWNER} when it is gone")]
    Another(String),
}

/// What the Node is to be while `op` works on it.
pub fn cordoned(node: &NodeState, op: Uuid) -> Result<NodeState, Refused> {
    let op = op.to_string();
    match &node.owner {
        Some(owner) if *owner == op => {
            // Somebody has uncordoned it since: that is what it is to be afterwards.
            let before = if node.unschedulable { node.before.clone() } else { Some(false.to_string()) };
            Ok(NodeState { unschedulable: true, owner: node.owner.clone(), before })
        }
        Some(owner) => Err(Refused::Another(owner.clone())),
        None => Ok(NodeState { unschedulable: true, owner: Some(op), before: Some(node.unschedulable.to_string()) }),
    }
}

/// What the Node is to be when `op` is over. A node that is not ours stays as it is.
pub fn released(node: &NodeState, op: Uuid) -> NodeState {
    if node.owner.as_deref() != Some(op.to_string().as_str()) {
        return node.clone();
    }
    // Somebody who had cordoned it before, and has uncordoned it since, wants it uncordoned.
    let stays = node.before.as_deref() != Some("false") && node.unschedulable;
    NodeState { unschedulable: stays, owner: None, before: None }
}
