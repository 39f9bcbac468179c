//! Gates, each closed by what it is about.

use std::{fs, net::TcpListener};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use k8s_openapi::{
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, apps::v1::DaemonSet, core::v1::Node},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams},
    core::Request,
};
use serde_json::{Value, json};
use slipway_core::payload::minor_version::MinorVersion;
use slipway_fleet_objects::{
    crd,
    ledger::{DisruptionLedger, LEDGER},
};
use slipway_kubernetes::component::Component;
use slipway_kubernetes_upgrade::requested_apis;
use slipway_test_control_plane::containerd::is_here;

use crate::{
    flags, serving,
    site::{NEW, Site},
};

/// The gates in the preview, which ends as a run would: refused, if something is in the way.
pub fn preview(site: &Site) -> String {
    let (code, text) = site.run(&["upgrade", "--to", NEW, "--dry-run"]);
    assert_eq!(code != 0, text.contains("\nblocked ("), "{code}: {text}");
    assert_eq!(code == 3, text.contains("\nslipwayctl: refused ("), "{code}: {text}");
    text
}

/// Until the preview has this. API servers may be starting.
pub fn until(site: &Site, wanted: &str) {
    until_words(site, &["upgrade", "--to", NEW, "--dry-run"], wanted);
}

/// The same, with these words.
pub fn until_words(site: &Site, words: &[&str], wanted: &str) {
    while !site.run(words).1.contains(wanted) {}
    site.until_well();
}

/// A run is refused by this gate, and nothing is touched.
pub fn refuses(site: &Site, gate: &str) -> String {
    refuses_words(site, &["upgrade", "--to", NEW], gate)
}

/// The same, with these words.
pub fn refuses_words(site: &Site, words: &[&str], gate: &str) -> String {
    let (code, text) = site.run(words);
    assert!(code == 3 && text.contains(&format!("refused (Gate): {gate}: ")), "{text}");
    assert!(!text.contains("begins"), "{text}");
    text
}

#[test]
fn gates_close_before_anything_is_touched() {
    if !is_here() {
        return;
    }
    let site = Site::new(1, 20);
    let text = preview(&site);
    for gate in [
        "nodes",
        "etcd",
        "pre-pull",
        "snapshot",
        "certificates",
        "serving-certificates",
        "flags",
        "emulation",
        "fleet",
        "kube-proxy",
        "add-ons",
        "deprecated-apis",
        "admission",
    ] {
        assert!(text.contains(&format!("gate {gate}: open\n")), "{text}");
    }
    shows_all_of_it(&site);
    nodes(&site);
    certificates(&site);
    snapshot(&site);
    flags::check(&site);
    serving::check(&site);
    kube_proxy(&site);
    webhooks(&site);
    deprecated_apis(&site);
    fleet(&site);
    etcd(&site);
}

/// The whole text, with an image that is pinned.
fn shows_all_of_it(site: &Site) {
    let image = site.pinned(Component::Scheduler);
    let (code, text) = site.run(&["upgrade", "--to", NEW, "--dry-run", &format!("--image=kube-scheduler={image}")]);
    assert_eq!(code, 0, "{text}");
    let hash = text.lines().find_map(|line| line.strip_prefix("plan ")).unwrap();
    let wanted = format!(
        "\
node  kube-apiserver  kube-controller-manager  kube-scheduler  kubelet
n1    1.20.2          1.20.2                   1.20.2          1.20.2

  pinned: kube-scheduler {image}
  1. n1: the images below are pulled
  2. n1: kube-apiserver to registry.example/kube-apiserver:v1.21.2
  3. n1: kube-controller-manager to registry.example/kube-controller-manager:v1.21.2
  4. n1: kube-scheduler to {image}
plan {hash}
gate nodes: open
gate etcd: open
gate pre-pull: open
gate snapshot: open
gate certificates: open
gate serving-certificates: open
gate flags: open
gate emulation: open
gate fleet: open
gate kube-proxy: open
gate add-ons: open
gate deprecated-apis: open
gate admission: open
begins with images that n1 pulls, then n1: kube-apiserver to registry.example/kube-apiserver:v1.21.2
"
    );
    assert_eq!(text, wanted);
    let (code, text) = site.run(&["upgrade", "--to", NEW, "--dry-run", "--image=kube-scheduler=registry.example/x:v1"]);
    assert!(
        code == 2 && text.contains("has no digest: write it as registry.example/kube-scheduler:v1.21.2@"),
        "{text}"
    );
}

fn nodes(site: &Site) {
    let nodes: Api<Node> = Api::all(site.client());
    let condition =
        |kind: &str, status: &str| json!({ "status": { "conditions": [{ "type": kind, "status": status }] } });
    let patch = |of| {
        site.runtime.block_on(nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(of))).unwrap();
    };
    patch(condition("Ready", "Unknown"));
    assert!(refuses(site, "nodes").contains("n1 is not ready"));
    assert!(preview(site).contains("\nblocked (Gate): nodes: n1 is not ready"));
    // As data: the plan, then the failure.
    let (code, data) = site.run(&["upgrade", "--to", NEW, "--dry-run", "--output", "json"]);
    let data: Vec<Value> = data.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (code, data.len(), &data[0]["blocked"], &data[1]["failure"]["reason"]),
        (3, 2, &json!("Gate"), &json!("Gate"))
    );
    let both = json!([{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "True" }]);
    patch(json!({ "status": { "conditions": both } }));
    assert!(refuses(site, "nodes").contains("too little room"));
    patch(condition("Ready", "True"));
}

/// The day after so many.
pub fn in_days(days: i64) -> (i32, u8, u8) {
    let day = (Timestamp::now() + SignedDuration::from_hours(24 * days)).to_zoned(TimeZone::UTC).date();
    (i32::from(day.year()), u8::try_from(day.month()).unwrap(), u8::try_from(day.day()).unwrap())
}

/// The certificate in a kubeconfig that a manifest names.
fn certificates(site: &Site) {
    site.expires("n1", in_days(4));
    let text = refuses(site, "certificates");
    assert!(text.contains("n1: kube-controller-manager: its certificate in ") && text.contains("renew it"), "{text}");
    site.expires("n1", in_days(9));
    assert!(preview(site).contains("gate certificates: open\n"));
    let path = site.home("n1").join("component.conf");
    fs::write(&path, "{}").unwrap();
    assert!(preview(site).contains("gate certificates: open\n"), "a token does not expire like that");
    fs::remove_file(&path).unwrap();
    assert!(refuses(site, "certificates").contains("it is unknown how long its certificates are valid"));
    site.expires("n1", in_days(365));
}

/// Snapshots are to be where nothing fits.
fn snapshot(site: &Site) {
    let dir = site.home("n1").join("etcd");
    let _ = fs::remove_dir_all(&dir);
    std::os::unix::fs::symlink("/proc", &dir).unwrap();
    let text = refuses(site, "snapshot");
    assert!(text.contains("n1: ") && text.contains("has 0 MiB"), "{text}");
    // Who wants none does without.
    let (_, text) = site.run(&["upgrade", "--to", NEW, "--no-snapshot", "--dry-run"]);
    assert!(
        text.contains("gate snapshot: open\n") && text.contains("begins with images that n1 pulls, then"),
        "{text}"
    );
    fs::remove_file(&dir).unwrap();
}

/// It is no static pod, and may be forgotten for years.
fn kube_proxy(site: &Site) {
    let labels = json!({ "app": "kube-proxy" });
    let daemon_set = |image: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "kube-proxy" },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "kube-proxy", "image": image }] },
                },
            },
        })
    };
    let api: Api<DaemonSet> = Api::namespaced(site.client(), "kube-system");
    let runs = |image: &str| {
        let (params, patch) = (PatchParams::apply("test"), Patch::Apply(daemon_set(image)));
        site.runtime.block_on(api.patch("kube-proxy", &params, &patch)).unwrap();
    };
    for wrong in ["registry.example/kube-proxy:v1.18.20", "registry.example/kube-proxy:v1.22.0", "kube-proxy:latest"] {
        runs(wrong);
        assert!(refuses(site, "kube-proxy").contains(wrong), "{wrong}");
    }
    runs("registry.example/kube-proxy:v1.19.16");
    assert!(preview(site).contains("gate kube-proxy: open\n"));
    site.runtime.block_on(api.delete("kube-proxy", &DeleteParams::default())).unwrap();
}

/// A webhook that takes connections, and never answers.
fn webhooks(site: &Site) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let webhook = json!({
        "metadata": { "name": "hangs" },
        "webhooks": [{
            "name": "hangs.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "failurePolicy": "Fail", "clientConfig": { "url": format!("https://{}", listener.local_addr().unwrap()) },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
        }],
    });
    let api: Api<ValidatingWebhookConfiguration> = Api::all(site.client());
    let webhook = serde_json::from_value(webhook).unwrap();
    site.runtime.block_on(api.create(&PostParams::default(), &webhook)).unwrap();
    // The API server takes a moment until it knows it.
    while preview(site).contains("gate admission: open") {}
    assert!(refuses(site, "admission").contains("hangs.example.com"));
    site.runtime.block_on(api.delete("hangs", &DeleteParams::default())).unwrap();
    while !preview(site).contains("gate admission: open") {}
}

/// The API server counts who asks for what is going to be removed. No API of 1.20 goes in 1.21: so the words of the real
/// server are read for a later version.
fn deprecated_apis(site: &Site) {
    let client = site.client();
    let of = |path: &str| Request::new("").get(path, &GetParams::default()).unwrap();
    let metrics = |client: &kube::Client| site.runtime.block_on(client.request_text(of("metrics"))).unwrap();
    let budgets = |text: &str, minor| {
        let removed = requested_apis::removed(text, MinorVersion::new(1, minor));
        removed.iter().any(|of| of.starts_with("policy/v1beta1 poddisruptionbudgets"))
    };
    assert!(!budgets(&metrics(&client), 25), "nobody has asked yet");
    let path = "apis/policy/v1beta1/poddisruptionbudgets".to_owned();
    site.runtime.block_on(client.request_text(Request::new("").get(&path, &GetParams::default()).unwrap())).unwrap();
    let text = metrics(&client);
    assert!(
        budgets(&text, 25) && !budgets(&text, 24),
        "{:?}",
        requested_apis::removed(&text, MinorVersion::new(1, 99))
    );
}

/// A node holds a grant of the fleet's ledger: its OS is being upgraded.
fn fleet(site: &Site) {
    let definitions: Api<CustomResourceDefinition> = Api::all(site.client());
    let (_, definition) = crd::all().into_iter().find(|(name, _)| *name == "disruptionledgers").unwrap();
    site.runtime.block_on(definitions.create(&PostParams::default(), &definition)).unwrap();
    let ledgers: Api<DisruptionLedger> = Api::all(site.client());
    let ledger = DisruptionLedger::new(LEDGER, Default::default());
    // The API server takes a moment until it serves the kind.
    while site.runtime.block_on(ledgers.create(&PostParams::default(), &ledger)).is_err() {}
    assert!(preview(site).contains("gate fleet: open"));
    let node = json!({ "uid": "u", "name": "w1", "pool": "workers", "role": "worker" });
    let status = |grants| json!({ "status": { "epoch": 1, "grants": grants } });
    let patch = |of| {
        site.runtime.block_on(ledgers.patch_status(LEDGER, &PatchParams::default(), &Patch::Merge(of))).unwrap();
    };
    patch(status(json!([{ "node": node, "token": 1, "since": "2026-06-01T12:00:00Z" }])));
    assert!(refuses(site, "fleet").contains("upgrades the OS of w1"));
    patch(status(json!([])));
}

/// etcd has an alarm.
fn etcd(site: &Site) {
    site.alarm("NOSPACE");
    assert!(refuses(site, "etcd").contains("n1: "));
}
