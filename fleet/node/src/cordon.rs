//! The changes of a Node object that cordon it, and that undo the cordon. A node that others cordoned stays cordoned.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names the operation that cordoned the node.
pub const OWNER: &str = "node.slipway.dev/cordoned-by";
/// `true` if the node was cordoned before us, by another program or person.
pub const BEFORE: &str = "node.slipway.dev/cordoned-before";

/// The fields of a Node object that count here.
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
pub enum CordonError {
    /// Another operation holds it.
    #[error(
        "operation {0} has cordoned this node: wait for it; if it is gone, `kubectl uncordon` the node, unless its \
         annotation {BEFORE} is `true`, and remove the annotation {OWNER}"
    )]
    Another(String),
}

/// The Node while `op` works on it.
pub fn cordoned(node: &NodeState, op: Uuid) -> Result<NodeState, CordonError> {
    let op = op.to_string();
    match &node.owner {
        Some(owner) if *owner == op => {
            // A person has uncordoned it since: it stays so afterwards.
            let before = if node.unschedulable { node.before.clone() } else { Some(false.to_string()) };
            Ok(NodeState { unschedulable: true, owner: node.owner.clone(), before })
        }
        Some(owner) => Err(CordonError::Another(owner.clone())),
        None => Ok(NodeState { unschedulable: true, owner: Some(op), before: Some(node.unschedulable.to_string()) }),
    }
}

/// The Node when `op` is over. A node that is not ours stays as it is.
pub fn released(node: &NodeState, op: Uuid) -> NodeState {
    if node.owner.as_deref() != Some(op.to_string().as_str()) {
        return node.clone();
    }
    // The person who had cordoned it has uncordoned it since, and wants it uncordoned.
    let stays = node.before.as_deref() != Some("false") && node.unschedulable;
    NodeState { unschedulable: stays, owner: None, before: None }
}
