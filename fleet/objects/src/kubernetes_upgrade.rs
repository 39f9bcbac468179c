//! KubernetesUpgrade: the version of Kubernetes that a cluster is to have.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_channel::spec::{NUMBER, PRERELEASE};
use slipway_core::digest::Sha256;
use slipway_rollout::duration::PositiveDuration;

use crate::Attribution;

/// The name of the one object of a cluster.
pub const CLUSTER: &str = "cluster";

/// A number of a version that 32 bits have, as a pattern.
const SMALL: &str = "(0|[1-9][0-9]{0,8})";

/// Upgrades that a status remembers.
pub const HISTORY: usize = 10;

/// The version of Kubernetes that people want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema, CustomResource)]
#[kube(
    group = "fleet.slipway.dev",
    version = "v1alpha1",
    kind = "KubernetesUpgrade",
    status = "KubernetesUpgradeStatus",
    shortname = "kup",
    category = "slipway",
    doc = "The version of Kubernetes' control plane. There is one, named cluster. Set spec.version to begin. The controller \
           makes a Job, which replaces one static pod after the other; status.message says what goes on, and if nothing \
           does, why not. Kubelets are in the OS: a NodePool upgrades them.",
    validation = Rule::new("self.metadata.name == 'cluster'").message("there is one KubernetesUpgrade, and its name is cluster"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version", description = "What is wanted"),
    printcolumn(name = "Observed", type_ = "string", json_path = ".status.observedVersion", description = "What was reached"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state", description = "What goes on"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.message", description = "Why no more goes on"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.images) || self.images.all(name, name == 'coredns' || self.images[name].contains((self.version.startsWith('v') ? ':' : ':v') + self.version + '@'))").message("each of images but that of coredns has the tag of version: registry.example/kube-apiserver:v1.31.2@sha256:DIGEST"))]
#[x_kube(validation = Rule::new("!has(self.images) || self.images.all(name, !(name in ['kube-proxy', 'coredns']) || (has(self.addOns) && name in self.addOns))").message("an add-on that images names is in addOns, too"))]
#[x_kube(validation = Rule::new("!has(self.addOns) || !('coredns' in self.addOns) || (has(self.images) && 'coredns' in self.images)").message("coredns in addOns needs an image in images: its version does not follow from that of Kubernetes"))]
#[x_kube(validation = Rule::new("!has(self.soak) || duration(self.soak.replace(' ', '').replace('PT', '').lowerAscii()) <= duration('8760h')").message("a soak lasts a year at most: 8760h"))]
pub struct KubernetesUpgradeSpec {
    /// The version of API servers, controller managers and schedulers: 1.31.2. At most one minor version above what is there.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = [{
        "rule": format!("self.matches('^v?{SMALL}[.]{SMALL}[.]{NUMBER}{PRERELEASE}$')"),
        "message": "a version of Kubernetes is written with three numbers: 1.31.2",
    }]))]
    pub version: String,
    /// Images that are pinned, by component: kube-apiserver, kube-controller-manager, kube-scheduler; and by add-on. What is
    /// named gets exactly this image, also if it has the version already. For the others the present image stays, with the
    /// version in its tag. Where a fleet is, an image stays in its repository.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 5,
        "additionalProperties" = { "type": "string", "maxLength": 1024 },
        "x-kubernetes-validations" = [{
            "rule": "self.all(name, name in ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kube-proxy', 'coredns'])",
            "message": "images names components and add-ons: kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, coredns",
        }, {
            "rule": "self.all(name, self[name].matches('^[a-zA-Z0-9][a-zA-Z0-9._:/-]*:[a-zA-Z0-9_][a-zA-Z0-9._-]*@sha256:[0-9a-f]{64}$'))",
            "message": "an image has a tag and a digest: registry.example/kube-apiserver:v1.31.2@sha256:DIGEST",
        }]
    ))]
    pub images: BTreeMap<String, String>,
    /// Add-ons in kube-system that get their image, too, after the control plane is completed: kube-proxy (a DaemonSet) that
    /// of the version, coredns (a Deployment) the one in images. Name only what nothing else upgrades: Helm, kubeadm or a
    /// GitOps tool would set it back. The Job needs the rights of kubernetes-add-ons.yaml.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("items" = { "type": "string", "enum": ["kube-proxy", "coredns"] }, "x-kubernetes-list-type" = "set"))]
    pub add_ons: Vec<String>,
    /// Have every node of the control plane pull the images that it will run, before anything is touched. A static pod is
    /// stopped before its next one starts: an image that is missing then, or slow to come, would be found out while the
    /// node's API server is away. Nodes pull with the credentials that containerd has, and without the kubelet's; what is
    /// there already is not pulled. Each node needs [containerd] in its slipwayd.toml.
    #[serde(default = "yes")]
    pub pre_pull: bool,
    /// Have API servers, controller managers and schedulers of a newer minor version emulate the older one
    /// (--emulated-version, known from 1.32 on) until everything has been well for soak. Until then no API server writes what
    /// the older version does not read. Then each pod starts once more without it, and soak begins again.
    #[serde(default)]
    pub emulate: bool,
    /// How long everything must have been well with the version before the way back closes.
    #[serde(default = "soak")]
    pub soak: PositiveDuration,
    /// Make a snapshot of etcd before anything is touched, restore it for a trial, and keep it until the upgrade is completed.
    #[serde(default = "yes")]
    pub snapshot: bool,
    /// Look at the certificates that etcd's members and the kubelets of the control plane show in a TLS handshake, before
    /// anything is touched: each must be valid for a week. The Job's pod connects to their ports.
    #[serde(default = "yes")]
    pub serving_certificates: bool,
    /// Names of UpgradePolicies. Their windows, blackouts and approval hold for the beginning of an upgrade; what has begun
    /// goes on. If one is missing or cannot be understood, nothing begins.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub policies: Vec<String>,
    /// Begin no further step while this is set. A node ends what it is at. Only a person takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Attribution>,
    /// Approve the plan, where a policy asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<PlanApproval>,
    /// Raise it to have an upgrade tried again after an image was not well.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub retry: u32,
}

fn soak() -> PositiveDuration {
    PositiveDuration::from_minutes(5)
}

fn yes() -> bool {
    true
}

/// A person's word that a plan may begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanApproval {
    /// The hash of the plan that was looked at. For another plan it does not count.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{64}$"))]
    pub plan: Sha256,
    /// Whose word this is.
    #[serde(flatten)]
    pub word: Attribution,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesUpgradeStatus {
    /// What goes on, in one word that stays the same: UpToDate, Running, Waiting, Paused, Failed, Invalid.
    pub state: String,
    /// Why no more goes on, in one word that stays the same.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// The generation that this is about.
    pub observed_generation: i64,
    /// The version that was reached the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_version: Option<String>,
    /// The images that were pinned then.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub observed_images: BTreeMap<String, String>,
    /// The add-ons that were given then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed_add_ons: Vec<String>,
    /// The oldest version of the control plane when the upgrade that is under way began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The version that it goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The images that are pinned for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// The add-ons that are given to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_ons: Vec<String>,
    /// The hash of what is left to do: people approve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Sha256>,
    /// The steps of that plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// The number of Jobs that were made for this object.
    pub attempt: u32,
    /// The Job that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The last attempt that failed, as long as none succeeded since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedAttempt>,
    /// What the last Job says. Only Jobs write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunReport>,
    /// Kubelets that are older than the version that was reached: NodePools upgrade them with the OS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub older_kubelets: Vec<OlderKubelets>,
    /// Attempts that are over, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<EndedAttempt>,
    /// Reached: whether the version that is wanted was reached; its reasons are the words of state.
    pub conditions: Vec<Condition>,
}

/// Kubelets of one version that are older than the version that was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OlderKubelets {
    /// The NodePool of their nodes; absent if they are in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Their version, as they say it.
    pub version: String,
    /// How many there are.
    pub count: u32,
    /// Their nodes; of many, the first.
    pub nodes: Vec<String>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedAttempt {
    /// To this version.
    pub version: String,
    /// With these images pinned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// With this number in spec.retry.
    pub retry: u32,
    /// Why, in one word that stays the same.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// When it ended.
    pub at: Timestamp,
    /// How many attempts have failed in a row, without a step in between.
    pub times: u32,
    /// How many steps were left, as far as the Job has said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u32>,
}

/// An attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedAttempt {
    /// Its number.
    pub attempt: u32,
    /// From this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// To this one.
    pub to: String,
    /// When it ended.
    pub at: Timestamp,
    /// How, in one word: Reached, or the reason of its failure.
    pub reason: String,
    /// The same for people.
    pub message: String,
}

/// What a Job says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// The attempt that it is.
    pub attempt: u32,
    /// When it said so.
    pub at: Timestamp,
    /// Why it has ended, in one word that stays the same; absent as long as it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it does, or why it has ended, for people.
    pub message: String,
    /// How many steps are left.
    pub left: u32,
    /// The token of the ledger's claim that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The static pods of the control plane.
    pub pods: Vec<PodReport>,
    /// The add-ons that are given to it.
    #[serde(default)]
    pub add_ons: Vec<AddOnReport>,
}

/// An add-on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddOnReport {
    /// Its name: kube-proxy.
    pub name: String,
    /// Its image, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Why its rollout is not over, or why it cannot be upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ill: Option<String>,
}

/// A static pod of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// The name of its Node.
    pub node: String,
    /// Its component: kube-apiserver.
    pub component: String,
    /// The image in its manifest.
    pub image: String,
    /// The image that its node can bring back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The older minor version that it emulates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulates: Option<String>,
    /// Why it is not well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ill: Option<String>,
}
