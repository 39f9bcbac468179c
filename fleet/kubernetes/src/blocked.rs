//! Why nothing goes on: a word that stays the same, and a sentence.

use serde::{Deserialize, Serialize};

use crate::{add_ons::AddOn, component::Component, skew::Skew, version::Version};

/// What a person or something else has to change first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Blocked {
    /// Nothing to upgrade is known.
    #[error("no Node has the label node-role.kubernetes.io/control-plane: there is nothing to upgrade")]
    NoControlPlane,
    /// What the node runs is unknown.
    #[error("{node} cannot be asked: {why}")]
    Silent { node: String, why: String },
    /// The node's OS is being upgraded.
    #[error("{node} is busy: {what}; wait for its end")]
    Busy { node: String, what: String },
    /// Not kubeadm's layout.
    #[error("{node} has no static pod {component}: its control plane does not have kubeadm's layout")]
    NoPod { node: String, component: Component },
    /// An image says no version.
    #[error("{node}: the tag of {image} is no version, so its version is unknown: give {component} an image with one")]
    NoVersion { node: String, component: Component, image: String },
    /// The target is older.
    #[error("{node} has {component} {has}, which is newer than {target}: to go back, roll back")]
    Downgrade { node: String, component: Component, has: Version, target: Version },
    /// The target is too far.
    #[error("{node} has {component} {has}: go to the minor version that follows first, no API server may skip one")]
    Path { node: String, component: Component, has: Version },
    /// A kubelet would not go with the API servers.
    #[error("{node}: {why}")]
    Kubelet { node: String, why: Skew },
    /// The upgrade before this one is neither completed nor undone.
    #[error("{node} keeps a way back of {component} to {image}: complete the upgrade before, or roll it back, first")]
    Uncompleted { node: String, component: Component, image: String },
    /// Something that must be so before anything is touched.
    #[error("{name}: {why}")]
    Gate { name: String, why: String },
    /// A pinned image comes from elsewhere.
    #[error("{node}: {component} has {has}, and {image} is in another repository: move it there in its manifest first")]
    Repository { node: String, component: Component, has: String, image: String },
    /// A node would have to fetch an image while its API server is away.
    #[error("{node} cannot pull an image that it will run: {why}")]
    NoImage { node: String, why: String },
    /// There would be no copy of what is in etcd.
    #[error("{node} has no snapshot of etcd: {why}")]
    NoSnapshot { node: String, why: String },
    /// The control plane is done, and an add-on is not.
    #[error("the control plane has its version, and the add-on {add_on} has not: {why}")]
    AddOn { add_on: AddOn, why: String },
    /// An add-on was given its image in this run, and has another one again.
    #[error(
        "the control plane has its version; the add-on {add_on} was given {to}, and has {has}: something else sets its image. \
         Let that set the new one, and take {add_on} out of spec.addOns, or leave out --add-on"
    )]
    SetBack { add_on: AddOn, has: String, to: String },
    /// It was tried in this run.
    #[error("{node}: {component} came back to what it was: {why}")]
    CameBack { node: String, component: Component, why: String },
}

impl Blocked {
    /// The word of [`Blocked::CameBack`]: only a person has it tried again.
    pub const CAME_BACK: &str = "CameBack";
    /// The word of [`Blocked::AddOn`]: the version of the control plane was reached.
    pub const ADD_ON: &str = "AddOn";
    /// The word of [`Blocked::SetBack`]: the version was reached, and only a person has the add-on tried again.
    pub const SET_BACK: &str = "SetBack";

    /// One word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::NoControlPlane => "NoControlPlane",
            Self::Silent { .. } => "Silent",
            Self::Busy { .. } => "Busy",
            Self::NoPod { .. } => "NoPod",
            Self::NoVersion { .. } => "NoVersion",
            Self::Downgrade { .. } => "Downgrade",
            Self::Path { .. } => "Path",
            Self::Kubelet { .. } => "KubeletSkew",
            Self::Uncompleted { .. } => "Uncompleted",
            Self::Gate { .. } => "Gate",
            Self::Repository { .. } => "Repository",
            Self::NoImage { .. } => "NoImage",
            Self::NoSnapshot { .. } => "NoSnapshot",
            Self::AddOn { .. } => Self::ADD_ON,
            Self::SetBack { .. } => Self::SET_BACK,
            Self::CameBack { .. } => Self::CAME_BACK,
        }
    }
}
