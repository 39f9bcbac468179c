//! The objects of add-ons, and a stand-in for their controllers, which are in kube-controller-manager: it only writes the
//! status of a rollout. No pod of an add-on runs.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use slipway_kubernetes::add_ons::AddOn;

use crate::{ControlPlane, client_of};

/// The pods of an add-on.
const PODS: i64 = 2;

/// Its object, with another container beside it.
pub fn object(add_on: AddOn, image: &str) -> Value {
    let labels = json!({ "k8s-app": add_on.name() });
    let beside = json!({ "name": "beside", "image": "registry.example/beside:v1" });
    let container = json!({ "name": add_on.name(), "image": image, "args": ["--by-hand"] });
    json!({
        "apiVersion": "apps/v1", "kind": add_on.kind(),
        "metadata": { "name": add_on.name(), "namespace": "kube-system" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [beside, container] } },
        },
    })
}

impl ControlPlane {
    /// The object of an add-on, as JSON. `None` while it is not there.
    pub async fn add_on(&self, add_on: AddOn) -> kube::Result<Option<Value>> {
        let client = client_of(&self.kubeconfig()).await;
        let name = add_on.name();
        Ok(match add_on {
            AddOn::KubeProxy => {
                Api::<DaemonSet>::namespaced(client, "kube-system").get_opt(name).await?.map(|of| json!(of))
            }
            AddOn::CoreDns => {
                Api::<Deployment>::namespaced(client, "kube-system").get_opt(name).await?.map(|of| json!(of))
            }
        })
    }

    /// Its controller has seen it, and so many of its pods have its image.
    pub async fn roll_out(&self, add_on: AddOn, updated: i64) -> kube::Result<()> {
        let client = client_of(&self.kubeconfig()).await;
        let Some(there) = self.add_on(add_on).await? else { return Ok(()) };
        let seen = &there["metadata"]["generation"];
        let status = match add_on {
            AddOn::KubeProxy => json!({
                "observedGeneration": seen, "desiredNumberScheduled": PODS, "currentNumberScheduled": PODS,
                "numberMisscheduled": 0, "numberReady": PODS, "updatedNumberScheduled": updated,
            }),
            AddOn::CoreDns => json!({
                "observedGeneration": seen, "replicas": PODS, "readyReplicas": PODS, "updatedReplicas": updated,
            }),
        };
        let (patch, params) = (Patch::Merge(json!({ "status": status })), PatchParams::default());
        match add_on {
            AddOn::KubeProxy => {
                let api = Api::<DaemonSet>::namespaced(client, "kube-system");
                api.patch_status(add_on.name(), &params, &patch).await.map(drop)
            }
            AddOn::CoreDns => {
                let api = Api::<Deployment>::namespaced(client, "kube-system");
                api.patch_status(add_on.name(), &params, &patch).await.map(drop)
            }
        }
    }
}
