//! The Job that upgrades Kubernetes: the pod of the controller's own Deployment, with another command. So it has the same
//! image, certificates and nodes, whatever people have changed of them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        batch::v1::{Job, JobSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use slipway_fleet_objects::kubernetes_upgrade::{KubernetesUpgrade, KubernetesUpgradeStatus};

use crate::kubernetes_decision::{self, LABEL};

/// The controller's Deployment, and the container in it.
pub const DEPLOYMENT: &str = "slipway-fleet";
/// Before the name of a container, in annotations: its AppArmor profile.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The ServiceAccount of the Job.
const ACCOUNT: &str = "slipway-fleet-kubernetes";

/// The Job of this name.
pub fn job(name: &str, of: &KubernetesUpgrade, status: &KubernetesUpgradeStatus, like: &Deployment) -> Option<Job> {
    let template = like.spec.as_ref()?.template.clone();
    let (people, mut pod) = (template.metadata.unwrap_or_default(), template.spec?);
    let container = pod.containers.into_iter().find(|container| container.name == DEPLOYMENT)?;
    let uid = of.metadata.uid.clone()?;
    let words = words(of, status);
    pod.containers = vec![Container {
        args: Some(container.args.clone().unwrap_or_default().into_iter().chain(words).collect()),
        ports: None,
        liveness_probe: None,
        readiness_probe: None,
        startup_probe: None,
        ..container
    }];
    pod.restart_policy = Some("Never".to_owned());
    pod.service_account_name = Some(ACCOUNT.to_owned());
    // They keep replicas apart, of which it is none: where each node has one, it would wait for ever.
    pod.topology_spread_constraints = None;
    if let Some(affinity) = &mut pod.affinity {
        affinity.pod_anti_affinity = None;
    }
    let labels = BTreeMap::from([(LABEL.to_owned(), uid.clone())]);
    let metadata = metadata(people, &pod, like, &labels);
    let owner = OwnerReference {
        api_version: "fleet.slipway.dev/v1alpha1".to_owned(),
        kind: "KubernetesUpgrade".to_owned(),
        name: of.metadata.name.clone()?,
        uid,
        controller: Some(true),
        ..OwnerReference::default()
    };
    Some(Job {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: like.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            // The controller counts attempts, and says why one is repeated.
            backoff_limit: Some(0),
            template: PodTemplateSpec { metadata: Some(metadata), spec: Some(pod) },
            ..JobSpec::default()
        }),
        ..Job::default()
    })
}

/// Labels and annotations of the pod: what people say by them to webhooks, as of sidecars, holds for it, too. It is none that the
/// Deployment selects, and it answers no scrape. A profile of a container that it does not have makes it invalid.
fn metadata(people: ObjectMeta, pod: &PodSpec, like: &Deployment, own: &BTreeMap<String, String>) -> ObjectMeta {
    let selected = like.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    let mut labels = people.labels.unwrap_or_default();
    labels.retain(|key, _| !selected.contains_key(key));
    labels.extend(own.clone());
    let mut annotations = people.annotations.unwrap_or_default();
    let has = |name: &str| pod.containers.iter().chain(pod.init_containers.iter().flatten()).any(|of| of.name == name);
    annotations.retain(|key, _| !key.starts_with("prometheus.io/") && key.strip_prefix(APPARMOR).is_none_or(has));
    ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() }
}

fn words(of: &KubernetesUpgrade, status: &KubernetesUpgradeStatus) -> Vec<String> {
    let to = status.to.clone().unwrap_or_default();
    let soak = of.spec.soak.seconds();
    let words =
        ["upgrade-kubernetes", "--to", &to, "--soak", &soak.to_string(), "--attempt", &status.attempt.to_string()];
    let emulate = of.spec.emulate.then_some("--emulate");
    let no_snapshot = (!of.spec.snapshot).then_some("--no-snapshot");
    let no_pre_pull = (!of.spec.pre_pull).then_some("--no-pre-pull");
    let no_serving = (!of.spec.serving_certificates).then_some("--no-serving-certificates");
    let add_ons = status.add_ons.iter().map(|add_on| format!("--add-on={add_on}"));
    let images = status.images.iter().map(|(component, image)| format!("--image={component}={image}"));
    let words =
        words.into_iter().chain(emulate).chain(no_snapshot).chain(no_pre_pull).chain(no_serving).map(str::to_owned);
    words.chain(images).chain(add_ons).collect()
}

/// A Job, as far as decisions depend on it.
pub fn state(job: &Job) -> kubernetes_decision::Job {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = conditions.filter(|condition| condition.status == "True");
    let ended = conditions.find_map(|condition| match condition.type_.as_str() {
        "Complete" => Some(Ok(())),
        "Failed" => Some(Err(condition.message.clone().or_else(|| condition.reason.clone()).unwrap_or_default())),
        _ => None,
    });
    kubernetes_decision::Job { name: job.metadata.name.clone().unwrap_or_default(), ended }
}
