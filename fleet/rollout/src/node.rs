//! A node, as plans and grants name it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The role of a node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It runs what users run.
    Worker,
    /// It runs the cluster.
    ControlPlane,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// The UID of its Node object: another one after it was deleted and made again.
    pub uid: String,
    /// Its name, for people.
    pub name: String,
    /// The pool that it was in then.
    pub pool: String,
    /// Where it is: the value of the label that the pool's topology names. `None`: it has no such label.
    pub zone: Option<String>,
    /// Whether it runs the cluster.
    pub role: Role,
}
