//! Which pods are evicted, and which block. The drain fails closed: a pod that may not go keeps the node as it is.

use serde::{Deserialize, Serialize};

/// The facts of a pod that count for the drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID: an eviction is for this pod, not for a later one of the same name.
    pub uid: String,
    /// A static pod of this node's kubelet, shown in the API.
    pub mirror: bool,
    /// Kind and name of the controller that would make it anew.
    pub controller: Option<(String, String)>,
    /// It has ended, well or not.
    pub finished: bool,
    /// It keeps data in an `emptyDir`, which is lost.
    pub empty_dir: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// It tolerates a cordon: the scheduler may put its successor here again.
    pub tolerates_cordon: bool,
}

impl Pod {
    /// However often it is evicted, its controller may make another one here.
    pub fn comes_back(&self) -> bool {
        self.tolerates_cordon && self.controller.is_some()
    }
}

/// The data that may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// Pods with data in an `emptyDir` may go.
    pub empty_dir: bool,
    /// Pods without a controller may go.
    pub bare: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { empty_dir: true, bare: false }
    }
}

/// The fate of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It belongs to the node, or nothing of it runs any more: it stays.
    Stays,
    /// It is evicted.
    Evict,
    /// It is being deleted: wait.
    Goes,
    /// It may not go.
    Blocks(&'static str),
}

/// The fate of `pod`.
pub fn fate(pod: &Pod, policy: Policy) -> Fate {
    if pod.mirror || pod.controller.as_ref().is_some_and(|(kind, _)| kind == "DaemonSet") {
        return Fate::Stays;
    }
    match (pod.finished, pod.terminating) {
        // A finalizer may keep such a pod for ever.
        (true, true) => return Fate::Stays,
        (false, true) => return Fate::Goes,
        (true, false) => return Fate::Evict,
        (false, false) => {}
    }
    if pod.controller.is_none() && !policy.bare {
        return Fate::Blocks("no controller makes it again (drain.bare = true evicts it)");
    }
    if pod.empty_dir && !policy.empty_dir {
        return Fate::Blocks("it keeps data in an emptyDir (drain.empty-dir = true lets it go)");
    }
    Fate::Evict
}

/// The pods that have to go before the node is drained, whatever may be lost. One that comes back is not waited for.
pub fn remaining(pods: &[Pod]) -> impl Iterator<Item = &Pod> {
    let has_to_go = |pod: &&Pod| fate(pod, Policy { empty_dir: true, bare: true }) != Fate::Stays;
    pods.iter().filter(|pod| !pod.comes_back()).filter(has_to_go)
}
