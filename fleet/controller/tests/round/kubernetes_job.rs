//! The Job of a KubernetesUpgrade: its pod, and how long it may wait for a place.

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use slipway_fleet::{
    kubernetes_decision::{LABEL, Next},
    kubernetes_job::job,
};
use slipway_kubernetes::facts::{Claim, Facts};
use slipway_rollout::policy::{Policy, Rules};

use crate::kubernetes::{NEW, Scene, facts, replaced};

/// The Job that is made beside a Deployment whose pods have this metadata, and this in their spec.
fn made(metadata: &Value, affinity: &Value) -> Value {
    let mut scene = Scene::new(json!({}));
    let name = scene.begins();
    let like: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "slipway-fleet", "namespace": "fleet" },
        "spec": { "selector": { "matchLabels": { "app": "fleet" } }, "template": { "metadata": metadata, "spec": {
            "affinity": affinity,
            "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }],
            "imagePullSecrets": [{ "name": "login" }],
            "containers": [{ "name": "proxy" }, { "name": "slipway-fleet", "image": "fleet:1", "args": ["--port=1"] }],
        } } },
    }))
    .unwrap();
    json!(job(&name, &scene.object, &scene.status(), &like).unwrap())
}

/// A mesh gives each pod a proxy that never ends, but for one that says no; another one has its certificates by an annotation.
#[test]
fn what_people_say_of_pods_holds_for_its_pod_and_it_is_no_replica() {
    let labels = json!({ "app": "fleet", "sidecar.istio.io/inject": "false" });
    let profile = |of: &str| format!("container.apparmor.security.beta.kubernetes.io/{of}");
    let (own, proxy) = (profile("slipway-fleet"), profile("proxy"));
    let annotations =
        json!({ "linkerd.io/inject": "disabled", "prometheus.io/scrape": "true", &own: "x", &proxy: "x" });
    let nodes = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] } });
    let apart =
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "kubernetes.io/hostname" }] });
    let affinity = json!({ "nodeAffinity": nodes, "podAntiAffinity": apart });
    let made = made(&json!({ "labels": labels, "annotations": annotations }), &affinity);
    let template = &made["spec"]["template"];
    let has = json!({ LABEL: "u", "sidecar.istio.io/inject": "false" });
    assert_eq!(
        template["metadata"],
        json!({ "labels": has, "annotations": { "linkerd.io/inject": "disabled", own: "x" } })
    );
    // The object's own label alone: the controller lists Jobs by it.
    assert_eq!(made["metadata"]["labels"], json!({ LABEL: "u" }));
    let pod = &template["spec"];
    assert_eq!(pod["affinity"], json!({ "nodeAffinity": nodes }));
    assert_eq!(pod["topologySpreadConstraints"], Value::Null);
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "login" }]));
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    let args = pod["containers"][0]["args"].as_array().unwrap();
    assert_eq!(args[..2], [json!("--port=1"), json!("upgrade-kubernetes")]);
}

/// Its pod waits for a place or its image, and the window closes: what has not begun does not begin in the morning.
#[test]
fn a_job_that_has_said_nothing_yet_goes_when_its_window_closes() {
    let mut scene = within("11:00");
    let name = scene.begins();
    assert_eq!((scene.look(), scene.status().reason.as_str()), (Next::Say, "Running"));
    scene.now += SignedDuration::from_hours(2);
    assert_eq!((scene.look(), scene.status().reason.as_str()), (Next::Delete(name), "WindowClosed"));
    scene.jobs.clear();
    assert_eq!((scene.reason().as_str(), scene.status().job), ("WindowClosed", None));
    scene.now += SignedDuration::from_hours(22);
    let name = scene.begins();
    // Nor is it made then, if it could not be made before.
    scene.jobs.clear();
    scene.now += SignedDuration::from_hours(2);
    assert_eq!((scene.reason().as_str(), scene.status().job), ("WindowClosed", None));
    scene.now += SignedDuration::from_hours(22);
    assert_ne!(scene.begins(), name);
    // What an earlier Job has begun goes on.
    scene.now += SignedDuration::from_hours(2);
    replaced(&mut scene.facts, NEW);
    assert_eq!((scene.look(), scene.status().reason.as_str()), (Next::Say, "Running"));
}

/// A cluster whose window of two hours begins at this time. A scene begins at noon.
fn within(start: &str) -> Scene {
    let mut scene = Scene::new(json!({}));
    let window = json!([{ "start": start, "lasts": "2h", "zone": "UTC" }]);
    let policy = Policy { windows: serde_json::from_value(window).unwrap(), ..Policy::default() };
    scene.rules = Ok(Rules::try_from(vec![policy]).unwrap());
    scene
}

/// What it says shows that its pod runs. It began while the window was open.
#[test]
fn a_job_that_says_something_goes_on_when_its_window_closes() {
    let mut scene = within("11:00");
    scene.begins();
    let status = scene.object.status.as_mut().unwrap();
    let says = json!({ "attempt": status.attempt, "at": scene.now, "message": "it looks", "left": 3, "pods": [] });
    status.run = Some(serde_json::from_value(says).unwrap());
    scene.now += SignedDuration::from_hours(2);
    assert_eq!((scene.look(), scene.status().reason.as_str()), (Next::Say, "Running"));
}

/// Nothing is begun by it, and the whole fleet waits for the claim.
#[test]
fn a_job_that_gives_the_claim_back_waits_for_no_window() {
    let mut scene = within("01:00");
    scene.facts = Facts { claim: Claim::Held(7), ..facts(NEW) };
    scene.begins();
    assert_eq!((scene.look(), scene.status().reason.as_str()), (Next::Say, "Running"));
}
