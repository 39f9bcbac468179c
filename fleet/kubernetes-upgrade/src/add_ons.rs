//! Add-ons that people give to the upgrade: how they are, and another image for one of them.

use std::collections::BTreeMap;

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::PodTemplateSpec,
    },
    serde::de::DeserializeOwned,
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde_json::json;
use slipway_kubernetes::add_ons::{AddOn, Given, Step, Workload};

use crate::{
    look::{api_error, within},
    mirror_pods::NAMESPACE,
};

/// Who has set an image, in the object's managed fields.
const MANAGER: &str = "slipway";
/// Where the rights are, which people give apart.
const RIGHTS: &str = "apply kubernetes-add-ons.yaml of the manifests";

/// All that people give. One that may not be looked at says so.
pub async fn look(client: &Client, given: &Given) -> Result<BTreeMap<AddOn, Workload>, String> {
    let mut all = BTreeMap::new();
    for (add_on, pinned) in given {
        let of = match add_on {
            AddOn::KubeProxy => get::<DaemonSet>(client, *add_on).await?.map(|of| of.as_ref().map(daemon_set)),
            AddOn::CoreDns => get::<Deployment>(client, *add_on).await?.map(|of| of.as_ref().map(deployment)),
        };
        let of = match of {
            Ok(of) => of.unwrap_or_default(),
            Err(why) => Workload { held: Some(why), ..Workload::default() },
        };
        all.insert(*add_on, Workload { pinned: pinned.clone(), ..of });
    }
    Ok(all)
}

/// Give it this image; as a trial, nothing stays of it. The inner error is one that stays until people change something.
pub async fn set(client: &Client, step: &Step, is_trial: bool) -> Result<Result<(), String>, String> {
    match step.add_on {
        AddOn::KubeProxy => set_in::<DaemonSet>(client, step, is_trial, |of| Some(&of.spec.as_ref()?.template)).await,
        AddOn::CoreDns => set_in::<Deployment>(client, step, is_trial, |of| Some(&of.spec.as_ref()?.template)).await,
    }
}

fn daemon_set(of: &DaemonSet) -> Workload {
    let spec = of.spec.as_ref();
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref());
    let held = (strategy == Some("OnDelete")).then(|| {
        "its updateStrategy is OnDelete, so its pods would stay: make it RollingUpdate, or give it no longer".to_owned()
    });
    let status = of.status.clone().unwrap_or_default();
    let (all, ready) = (status.desired_number_scheduled, status.number_ready);
    let updated = status.updated_number_scheduled.unwrap_or(0);
    let ill = unseen(of.metadata.generation, status.observed_generation).or_else(|| {
        let why = || format!("{updated} of {all} pods have its image, and {ready} are ready");
        (updated < all || ready < all).then(why)
    });
    Workload { pinned: None, image: image(spec.map(|spec| &spec.template), AddOn::KubeProxy), ill, held }
}

fn deployment(of: &Deployment) -> Workload {
    let spec = of.spec.as_ref();
    let is_paused = spec.is_some_and(|spec| spec.paused == Some(true));
    let held = is_paused.then(|| "it is paused, so its pods would stay: resume it, or give it no longer".to_owned());
    let status = of.status.clone().unwrap_or_default();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let [there, updated, ready] =
        [status.replicas, status.updated_replicas, status.ready_replicas].map(Option::unwrap_or_default);
    let ill = unseen(of.metadata.generation, status.observed_generation).or_else(|| {
        let why = || format!("{updated} of {wanted} pods have its image, and {ready} are ready");
        (updated < wanted || ready < wanted || there > updated).then(why)
    });
    Workload { pinned: None, image: image(spec.map(|spec| &spec.template), AddOn::CoreDns), ill, held }
}

/// The numbers of a status are about an older object.
fn unseen(is: Option<i64>, seen: Option<i64>) -> Option<String> {
    (seen.unwrap_or(0) < is.unwrap_or(0)).then(|| "its controller has not seen its last change yet".to_owned())
}

fn image(template: Option<&PodTemplateSpec>, add_on: AddOn) -> Option<String> {
    let containers = &template?.spec.as_ref()?.containers;
    containers.iter().find(|of| of.name == add_on.name())?.image.clone()
}

async fn get<K>(client: &Client, add_on: AddOn) -> Result<Result<Option<K>, String>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    within(async {
        match api.get_opt(add_on.name()).await {
            Ok(found) => Ok(Ok(found)),
            Err(e) => stays(&e).map(Err),
        }
    })
    .await
}

async fn set_in<K>(
    client: &Client,
    step: &Step,
    is_trial: bool,
    template: impl Fn(&K) -> Option<&PodTemplateSpec>,
) -> Result<Result<(), String>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let Step { add_on, from, to } = step;
    let there = match get::<K>(client, *add_on).await? {
        Ok(Some(there)) => there,
        Ok(None) => return Err(format!("{add_on} is gone")),
        Err(why) => return Ok(Err(why)),
    };
    if image(template(&there), *add_on).as_ref() != Some(from) {
        return Err(format!("somebody else has changed {add_on} meanwhile"));
    }
    // Only if it is the one that was looked at. Containers are merged by their names.
    let patch = Patch::Strategic(json!({
        "metadata": { "resourceVersion": there.meta().resource_version },
        "spec": { "template": { "spec": { "containers": [{ "name": add_on.name(), "image": to }] } } },
    }));
    let params = PatchParams { dry_run: is_trial, field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    within(async {
        match api.patch(add_on.name(), &params, &patch).await {
            Ok(_) => Ok(Ok(())),
            Err(e) => stays(&e).map(Err),
        }
    })
    .await
}

/// An error that stays until people change something. Another one is tried again.
fn stays(error: &kube::Error) -> Result<String, String> {
    match error {
        kube::Error::Api(status) if status.code == 403 => Ok(format!("{}; {RIGHTS}", api_error(error))),
        kube::Error::Api(status) if !matches!(status.code, 409 | 429 | 503 | 504) => Ok(api_error(error)),
        _ => Err(api_error(error)),
    }
}
