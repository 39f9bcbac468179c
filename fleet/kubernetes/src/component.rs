//! The parts of a control plane that run as static pods, as kubeadm lays them out.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A part of the control plane. The order is that of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Component {
    /// Everything speaks to it; so it is the first, on all nodes.
    #[serde(rename = "kube-apiserver")]
    ApiServer,
    /// Never newer than any API server.
    #[serde(rename = "kube-controller-manager")]
    ControllerManager,
    /// Never newer than any API server.
    #[serde(rename = "kube-scheduler")]
    Scheduler,
}

impl Component {
    /// All, in the order of an upgrade.
    pub const ALL: [Self; 3] = [Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// Its name: of its container, of its image, and of its static pod.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }

    /// The name of its manifest in the directory of static pods.
    pub fn file(self) -> String {
        format!("{}.yaml", self.name())
    }

    /// The name of its pod on a node, which the kubelet mirrors into the API.
    pub fn pod(self, node: &str) -> String {
        format!("{}-{node}", self.name())
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Component {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|component| component.name() == text);
        named
            .ok_or_else(|| format!("{text:?} is no component: kube-apiserver, kube-controller-manager, kube-scheduler"))
    }
}
