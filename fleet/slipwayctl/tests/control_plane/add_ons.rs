//! kube-proxy and CoreDNS, given to the upgrade by their names.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use slipway_kubernetes::{add_ons::AddOn, component::Component};
use slipway_test_control_plane::{add_ons::object, containerd::is_here};
use slipway_test_support::port::free_port;

use crate::{
    gates::refuses_words,
    site::{NEW, OLD, Site},
};

fn api(site: &Site, add_on: AddOn) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", add_on.kind()));
    Api::namespaced_with(site.client(), "kube-system", &kind)
}

fn make(site: &Site, add_on: AddOn, image: &str) {
    let new: DynamicObject = serde_json::from_value(object(add_on, image)).unwrap();
    site.runtime.block_on(api(site, add_on).create(&PostParams::default(), &new)).unwrap();
}

fn change(site: &Site, add_on: AddOn, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    site.runtime.block_on(api(site, add_on).patch(add_on.name(), &PatchParams::default(), &patch)).unwrap();
}

/// The images of its containers, and its arguments.
fn containers(site: &Site, add_on: AddOn) -> (String, String, Value) {
    let there = site.runtime.block_on(site.add_on(add_on)).unwrap().unwrap();
    let of = &there["spec"]["template"]["spec"]["containers"];
    let image = |n: usize| of[n]["image"].as_str().unwrap().to_owned();
    (image(0), image(1), of[1]["args"].clone())
}

#[test]
fn add_ons_follow_the_control_plane_and_one_that_fails_undoes_nothing() {
    if !is_here() {
        return;
    }
    let site = Site::new(1, 300);
    let dns = format!("registry.example/coredns:v1.8.0@sha256:{}", "4".repeat(64));
    let pinned = format!("--image=coredns={dns}");
    let upgrade = ["upgrade", "--to", NEW, "--soak", "0", "--no-pre-pull", "--no-snapshot"];
    let words = [&upgrade[..], &["--add-on=kube-proxy", "--add-on=coredns", &pinned]].concat();
    closed_gates(&site, &words);
    let (code, text) = site.run(&[&words[..], &["--dry-run"]].concat());
    let plan =
        format!("  4. add-on kube-proxy to registry.example/kube-proxy:v1.21.2\n  5. add-on coredns to {dns}\nplan ");
    assert!(code == 0 && text.contains(&plan) && text.contains("gate add-ons: open\n"), "{text}");
    assert!(text.contains("\nkube-proxy 1.20.2\ncoredns 1.7.0\n"), "{text}");
    // The stand-in for its controller does nothing: the rollout does not go on.
    let text = site.run_until(&words, "waits: add-on kube-proxy: its controller has not seen its last change yet");
    assert!(text.find("completes").unwrap() < text.find("begins: add-on kube-proxy").unwrap(), "{text}");
    let (code, text) = site.run(&[&words[..], &["--patience", "5"]].concat());
    let why =
        "the control plane has its version, and the add-on kube-proxy has not: its rollout has not gone on for 5 s";
    assert!(code == 1 && text.contains(why), "{code}: {text}");
    assert!(!text.contains("begins"), "what is done is not done again, and the next one waits for it: {text}");
    for component in Component::ALL {
        assert_eq!(site.versions(component), [NEW], "{component}");
    }
    let image = |name: &str| format!("registry.example/{name}");
    let changed = (image("beside:v1"), image("kube-proxy:v1.21.2"), json!(["--by-hand"]));
    assert_eq!(containers(&site, AddOn::KubeProxy), changed, "only its image changes");
    assert_eq!(containers(&site, AddOn::CoreDns).1, image("coredns:1.7.0"));
    let text = rolls_out(&site, &words);
    assert!(
        text.contains(&format!("begins: add-on coredns to {dns}")) && !text.contains("add-on kube-proxy to"),
        "{text}"
    );
    let (_, text) = site.run(&["status"]);
    assert!(text.contains("\nkube-proxy 1.21.2\ncoredns 1.8.0\n"), "{text}");
    let (code, text) = site.run(&words);
    assert_eq!((code, text.as_str()), (0, "finished: nothing is left to do\n"));
    let text = sets_it_back(&site, &words);
    assert!(text.contains("and has registry.example/kube-proxy:v1.20.2: something else sets its image"), "{text}");
    assert_eq!(text.matches("begins: add-on kube-proxy").count(), 1, "{text}");
}

/// A run that fails, while a tool of somebody else sets the image of kube-proxy back.
fn sets_it_back(site: &Site, words: &[&str]) -> String {
    let old = json!([{ "name": "kube-proxy", "image": "registry.example/kube-proxy:v1.20.2" }]);
    let patch = Patch::Strategic(json!({ "spec": { "template": { "spec": { "containers": old } } } }));
    let set =
        || site.runtime.block_on(api(site, AddOn::KubeProxy).patch("kube-proxy", &PatchParams::default(), &patch));
    set().unwrap();
    let stop = AtomicBool::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = set();
                thread::sleep(Duration::from_millis(20));
            }
        });
        let (code, text) = site.run(words);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(code, 1, "{text}");
        text
    })
}

/// A run, while the rollouts go on.
fn rolls_out(site: &Site, words: &[&str]) -> String {
    let stop = Arc::<AtomicBool>::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            for updated in [1, 2].into_iter().chain(std::iter::repeat(2)) {
                for add_on in AddOn::ALL {
                    let _ = site.runtime.block_on(site.roll_out(add_on, updated));
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_millis(2500));
            }
        });
        let (code, text) = site.run(words);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(code, 0, "{text}");
        text
    })
}

/// Nothing is touched as long as an add-on cannot be upgraded.
fn closed_gates(site: &Site, words: &[&str]) {
    let closed = |why: &str| {
        let text = refuses_words(site, words, "add-ons");
        assert!(text.contains(why), "{text}");
    };
    closed("kube-proxy: kube-system has no DaemonSet kube-proxy");
    make(site, AddOn::KubeProxy, "registry.example/kube-proxy:v1.20.2");
    closed("coredns: kube-system has no Deployment coredns");
    make(site, AddOn::CoreDns, "registry.example/coredns:1.7.0");
    change(site, AddOn::CoreDns, json!({ "paused": true, "replicas": 2 }));
    closed("coredns: it is paused");
    change(site, AddOn::CoreDns, json!({ "paused": false }));
    change(site, AddOn::KubeProxy, json!({ "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } }));
    closed("kube-proxy: its updateStrategy is OnDelete");
    change(site, AddOn::KubeProxy, json!({ "updateStrategy": { "type": "RollingUpdate" } }));
    for add_on in AddOn::ALL {
        site.runtime.block_on(site.roll_out(add_on, 2)).unwrap();
    }
    webhook(site, words);
    assert_eq!(site.versions(Component::ApiServer), [OLD]);
    assert_eq!(containers(site, AddOn::KubeProxy).1, "registry.example/kube-proxy:v1.20.2", "a trial leaves nothing");
}

/// The API server takes no change of it: that is found by a trial.
fn webhook(site: &Site, words: &[&str]) {
    let webhook = json!({
        "metadata": { "name": "refuses" },
        "webhooks": [{
            "name": "refuses.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "failurePolicy": "Fail", "clientConfig": { "url": format!("https://127.0.0.1:{}", free_port()) },
            "rules": [{ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["daemonsets"] }],
        }],
    });
    let api: Api<ValidatingWebhookConfiguration> = Api::all(site.client());
    let webhook = serde_json::from_value(webhook).unwrap();
    site.runtime.block_on(api.create(&PostParams::default(), &webhook)).unwrap();
    let preview = || site.run(&[words, &["--dry-run"]].concat()).1;
    // The API server takes a moment until it knows it.
    while preview().contains("gate add-ons: open") {}
    let text = refuses_words(site, words, "add-ons");
    assert!(
        text.contains("kube-proxy: a trial of its change fails: ") && text.contains("refuses.example.com"),
        "{text}"
    );
    site.runtime.block_on(api.delete("refuses", &DeleteParams::default())).unwrap();
    while !preview().contains("gate add-ons: open") {}
}
