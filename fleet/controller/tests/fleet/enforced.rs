//! An API server that enforces the rules of our definitions refuses wrong objects in words, and takes good ones.
//!
//! Subject: fleet/objects/src fleet/rollout/src fleet/channel/src fleet/manifests/crds fleet/test-cluster/src/extensions.rs
//! Needs: etcd extensions

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Client,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use slipway_fleet_objects::crd;
use slipway_test_cluster::{Server, extensions};
use tokio::runtime::{Builder, Runtime};

use crate::site::{api_of, client};

/// A server with our definitions.
struct Enforcing {
    runtime: Runtime,
    client: Client,
    _server: Server,
}

impl Enforcing {
    fn new() -> Option<Self> {
        if !extensions::is_here() {
            return None;
        }
        let mut server = extensions::start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(client(&server.kubeconfig("admin")));
        let definitions = api_of(&client, "apiextensions.k8s.io/v1", "CustomResourceDefinition");
        server.until(|| runtime.block_on(definitions.list(&Default::default())));
        for (name, definition) in crd::all() {
            let new: DynamicObject = serde_json::from_value(serde_json::to_value(&definition).unwrap()).unwrap();
            let made = runtime.block_on(definitions.create(&PostParams::default(), &new));
            made.unwrap_or_else(|e| panic!("the definition of {name} is refused: {e}"));
        }
        let enforcing = Self { runtime, client, _server: server };
        for (_, definition) in crd::all() {
            let api = api_of(&enforcing.client, "fleet.slipway.dev/v1alpha1", &definition.spec.names.kind);
            while enforcing.runtime.block_on(api.list(&Default::default())).is_err() {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
        Some(enforcing)
    }

    /// Why an object is refused; `None` if it is taken.
    fn refuses(&self, kind: &str, spec: Value) -> Option<String> {
        let api = api_of(&self.client, "fleet.slipway.dev/v1alpha1", kind);
        // Of this one there is one.
        let name =
            if kind == "KubernetesUpgrade" { json!({ "name": "cluster" }) } else { json!({ "generateName": "o-" }) };
        let object =
            json!({ "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": kind, "metadata": name, "spec": spec });
        let new: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self.runtime.block_on(api.create(&PostParams::default(), &new));
        match made {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.message.clone()),
            Err(e) => panic!("{e}"),
        }
    }
}

/// The object with `value` at this place, such as `windows.0.lasts`.
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let pointer = format!("/{}", path.replace('.', "/"));
    match object.pointer_mut(&pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value;
        }
    }
    object
}

const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
    -----END PUBLIC KEY-----\n";

fn channel() -> Value {
    json!({
        "repository": "registry.example:5000/os", "select": { "label": "stable" }, "arch": "arm64", "interval": "30m",
        "range": ">=1.4, <2", "minAge": "48h", "floors": ["1.4.0"], "deny": ["1.9.3"],
        "promoteFrom": { "channel": "beta", "after": "168h" }, "signatures": { "keys": [KEY], "threshold": 1 },
    })
}

fn policy() -> Value {
    json!({
        "maxUnavailable": "25%", "rate": { "count": 2, "per": "1h 30m" }, "failureBudget": 2, "approval": "EachWave",
        "windows": [{ "days": ["mon"], "start": "22:00", "lasts": "24h", "zone": "Europe/Berlin" },
            { "start": "22:00", "lasts": "PT4H", "zone": "UTC" }],
        "blackouts": [{ "from": "2027-01-04T06:00", "until": "2027-01-05 06:00", "zone": "America/Argentina/Ushuaia" }],
        "topology": { "key": "zone", "maxDomains": 1 }, "steps": [{ "nodes": 1, "soak": "24h" }],
    })
}

fn pool() -> Value {
    json!({ "nodeSelector": { "a": "b" }, "target": { "channel": "stable" } })
}

const ZONE: &str = "a time zone has the name that the IANA gives it";
const ENDS: &str = "a blackout ends after it begins";
const RANGE: &str = "a range is written as Cargo writes it";
const REPOSITORY: &str = "a repository is written in lower case, without a scheme";
const KUBERNETES: &str = "a version of Kubernetes is written with three numbers";

/// Wrong values, and words of the answer.
fn wrong() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let long = "longer than nothing";
    let day = "a window lasts 24h at most";
    vec![
        ("UpgradePolicy", "windows.0.lasts", json!("25h"), day),
        ("UpgradePolicy", "windows.0.lasts", json!("23h 61m"), day),
        ("UpgradePolicy", "windows.0.lasts", json!("PT25H"), day),
        ("UpgradePolicy", "windows.0.lasts", json!("0h"), long),
        ("UpgradePolicy", "windows.0.lasts", json!("a while"), "windows[0].lasts"),
        ("UpgradePolicy", "windows.0.start", json!("25:00"), "windows[0].start"),
        ("UpgradePolicy", "windows.0.zone", json!("Europe/Nowhere"), ZONE),
        ("UpgradePolicy", "windows.0.zone", json!("Europe/Berlin "), ZONE),
        ("UpgradePolicy", "windows.0.zone", json!("Etc/Unknown"), ZONE),
        ("UpgradePolicy", "windows.0.days", json!(["monday"]), "windows[0].days"),
        ("UpgradePolicy", "blackouts.0.zone", json!("Mars/Olympus"), ZONE),
        ("UpgradePolicy", "blackouts.0.until", json!("2027-01-04T05:59"), ENDS),
        ("UpgradePolicy", "rate.count", json!(0), "rate.count"),
        ("UpgradePolicy", "rate.per", json!("0s"), long),
        ("UpgradePolicy", "steps.0.soak", json!("0m"), long),
        ("UpgradePolicy", "topology.maxDomains", json!(0), "topology.maxDomains"),
        ("UpgradePolicy", "maxUnavailable", json!("101%"), "maxUnavailable"),
        ("UpgradePolicy", "maxUnavailable", json!(-1), "maxUnavailable"),
        ("UpgradePolicy", "approval", json!("Sometimes"), "approval"),
        ("Channel", "interval", json!("0s"), long),
        ("Channel", "minAge", json!("0h"), long),
        ("Channel", "promoteFrom.after", json!("0h"), long),
        ("Channel", "range", json!(">>1"), RANGE),
        ("Channel", "range", json!("latest"), RANGE),
        ("Channel", "repository", json!("docker://registry.example/os"), REPOSITORY),
        ("Channel", "repository", json!("registry.example/os@sha256:00"), REPOSITORY),
        ("Channel", "repository", json!("registry.example:5000/os:2"), REPOSITORY),
        ("Channel", "floors", json!(["1.4"]), "floors[0]"),
        ("Channel", "deny", json!(["sha256:0123"]), "deny[0]"),
        ("NodePool", "target", json!({ "image": "registry.example/os:2", "payload": "0".repeat(64) }), "target.image"),
        ("UpgradePolicy", "rate.per", json!("30m 1h"), "rate.per"),
        ("UpgradePolicy", "blackouts.0.from", json!("2026-12-23T18:00Z"), "blackouts[0].from"),
        ("Channel", "signatures.threshold", json!(2), "threshold is no more than the number of keys"),
        ("Channel", "signatures.threshold", json!(0), "signatures.threshold"),
        ("Channel", "select", json!({ "label": "a", "tags": "b" }), "select"),
        ("NodePool", "target", json!({ "channel": "a", "image": "b" }), "target"),
        ("NodePool", "target", json!({ "image": "dir:/b", "payload": "0" }), "target.payload"),
        ("NodePool", "strategy", json!("Hope"), "strategy"),
        ("NodePool", "rebootDeadline", json!("0s"), "rebootDeadline"),
        ("NodePool", "abort", of_rollout(NAME, json!({})), "the UID, not the name"),
        ("NodePool", "runNow", of_rollout(NAME, json!({ "until": "2026-06-01T22:00:00Z" })), "the UID, not the name"),
        (
            "NodePool",
            "approval",
            of_rollout(NAME, json!({ "plan": "0".repeat(64), "wave": 1 })),
            "the UID, not the name",
        ),
    ]
}

/// Values that a controller of its own does not understand: days that no month has, numbers that are too large, keys that are
/// none, and what Cargo and registries do not take.
fn wrong_for_the_controller() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let (over, other) = (1_u64 << 32, "each of the keys is another one");
    let date = "a local time is on a day that its month has";
    let mut wrong = vec![
        ("UpgradePolicy", "windows.0.zone", json!("Local"), ZONE),
        ("UpgradePolicy", "blackouts.0.zone", json!("posix/UTC"), ZONE),
        ("UpgradePolicy", "blackouts.0.from", json!("2026-02-30T00:00"), date),
        ("UpgradePolicy", "blackouts.0.until", json!("2027-06-31"), date),
        ("UpgradePolicy", "blackouts.0.from", json!("2027-01-05T06:00:00"), ENDS),
        ("UpgradePolicy", "rate.count", json!(over), "rate.count"),
        ("UpgradePolicy", "topology.maxDomains", json!(over), "topology.maxDomains"),
        ("NodePool", "runNow", run_now(over), "runNow.soakOfWave"),
        ("DisruptionLedger", "release.0.token", json!(1_u64 << 53), "release[0].token"),
        ("Channel", "signatures.keys", json!(["hello"]), "a key is one public key in PEM form"),
        ("Channel", "signatures.keys", json!([KEY.replace("MCow", "MCo")]), "a key is one public key in PEM form"),
        ("Channel", "signatures.keys", json!([KEY.replace('\n', " ")]), "signatures.keys[0]"),
        ("Channel", "signatures.keys", json!([KEY.to_owned() + KEY]), "signatures.keys[0]"),
        ("Channel", "signatures", json!({ "keys": [KEY, KEY], "threshold": 2 }), other),
        ("Channel", "signatures", json!({ "keys": [KEY, KEY.trim()], "threshold": 2 }), other),
        ("KubernetesUpgrade", "soak", json!("8761h"), "a soak lasts a year at most"),
        ("KubernetesUpgrade", "version", json!("1.4294967296.0"), KUBERNETES),
        ("KubernetesUpgrade", "version", json!("1.31.2-01"), KUBERNETES),
    ];
    let ranges = "1.2.3.4|*, >1|>1, *|01.2|1.*.3|1.2-rc|1.2.3-01|99999999999999999999|1 2|1,|*.1";
    wrong.extend(ranges.split('|').map(|text| ("Channel", "range", json!(text), RANGE)));
    wrong.push(("Channel", "range", json!(["1"; 33].join(",")), RANGE));
    let repositories = "OS r.example/OS r.example/os/ r.example//os os:2 r.example:5000 a_b.c/os r.example:0/os \
                        r.example:65536/os -a/os r.example/..";
    let repositories = repositories.split(' ').chain(["r.example/o s"]);
    wrong.extend(repositories.map(|text| ("Channel", "repository", json!(text), REPOSITORY)));
    wrong
}

/// The same that it understands.
fn right() -> Vec<(&'static str, &'static str, Value)> {
    let all = |kind, path, texts: &'static str| texts.split('|').map(move |text| (kind, path, json!(text)));
    let zones = "UTC|Europe/Berlin|Asia/Kolkata|Etc/GMT+3|America/Port-au-Prince|EST5EDT";
    let ranges = "*|1|1.*|^1.9|~1.2.3|>=1.3.0-0|>1, <2|=1.2.3| x |1.x.*|1.2.X|> 1 ,<2.0.0-a.01b+c|999999999999999999.0";
    let repositories = "os|r.example|library/os|a_b/os|localhost/os|R.Example:443/a/b__c.d--e|registry:5000/os|\
                        127.0.0.1:65535/os|[::1]:5000/os|[2001:db8::1]/os|[1:2:3:4:5:6:7:8]/os";
    let other = "-----BEGIN PUBLIC KEY-----\r\nMCowBQYDK2VwAyEA\r\n  11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURs=\r\n\
        -----END PUBLIC KEY-----";
    let blackout = |from, until| json!([{ "from": from, "until": until, "zone": "UTC" }]);
    let mut right = vec![
        ("Channel", "signatures", json!({ "keys": [KEY, other], "threshold": 2 })),
        ("Channel", "signatures.keys", json!([format!("# of the team that makes releases\n{KEY}# until 2030\n")])),
        ("Channel", "signatures.keys", json!([format!("\u{feff}{KEY}")])),
        ("Channel", "signatures.keys", json!([KEY.replace("VwAyEA", "Vw\nA yEA\t\n")])),
        ("Channel", "signatures.keys", json!([KEY.replace("Ro=", "Ro")])),
        ("UpgradePolicy", "blackouts", blackout("2027-01-04", "2027-01-04 00:00:01")),
        ("UpgradePolicy", "blackouts", blackout("2028-02-29T00:00", "2028-02-29 00:01")),
        ("UpgradePolicy", "rate.count", json!(u32::MAX)),
        ("NodePool", "runNow", run_now(u32::MAX.into())),
        ("NodePool", "abort", of_rollout("01234567-89ab-4def-8123-0123456789ab", json!({}))),
        ("KubernetesUpgrade", "soak", json!("8760h")),
    ];
    right.extend(all("UpgradePolicy", "windows.0.zone", zones));
    right.extend(all("UpgradePolicy", "windows.0.lasts", "24h|1h 30m|PT24H|90m|1h30m"));
    right.extend(all("Channel", "range", ranges));
    right.push(("Channel", "range", json!(["1"; 32].join(","))));
    right.extend(all("Channel", "repository", repositories));
    right
}

/// The name of a Rollout.
const NAME: &str = "workers-0123456789-1";

/// A person's word about a rollout.
fn of_rollout(uid: &str, more: Value) -> Value {
    let mut word = json!({ "rolloutUID": uid, "who": "eve", "why": "a hole" });
    word.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    word
}

/// A rollout that goes now, and passes over the soak of this wave.
fn run_now(wave: u64) -> Value {
    json!({ "rolloutUID": "u", "until": "2026-06-01T22:00:00Z", "soakOfWave": wave, "who": "eve", "why": "a hole" })
}

/// The same of a KubernetesUpgrade.
fn wrong_of_kubernetes() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let image = "an image has a tag and a digest";
    vec![
        ("KubernetesUpgrade", "images", json!({ "kube-apiserver": "registry.example/api:v1.31.2" }), image),
        ("KubernetesUpgrade", "images", json!({ "kube-apiserver": "docker://registry.example/api:v1" }), image),
        ("KubernetesUpgrade", "version", json!("1.31"), KUBERNETES),
        ("KubernetesUpgrade", "version", json!("latest"), KUBERNETES),
        ("KubernetesUpgrade", "soak", json!("0s"), "longer than nothing"),
        (
            "KubernetesUpgrade",
            "images",
            json!({ "coredns": format!("registry.example/coredns@sha256:{}", "4".repeat(64)) }),
            image,
        ),
        (
            "KubernetesUpgrade",
            "images",
            json!({ "etcd": pinned("etcd", "v1.31.2") }),
            "images names components and add-ons",
        ),
        (
            "KubernetesUpgrade",
            "images",
            json!({ "kube-scheduler": "registry.example/kube-scheduler:v1.31.2" }),
            "an image has a tag and a digest",
        ),
        (
            "KubernetesUpgrade",
            "images",
            json!({ "kube-scheduler": pinned("kube-scheduler", "v1.31.1") }),
            "each of images but that of coredns has the tag of version",
        ),
        (
            "KubernetesUpgrade",
            "images",
            json!({ "kube-proxy": pinned("kube-proxy", "v1.31.2") }),
            "an add-on that images names is in addOns, too",
        ),
        ("KubernetesUpgrade", "addOns", json!(["coredns"]), "coredns in addOns needs an image in images"),
        ("KubernetesUpgrade", "addOns", json!(["calico"]), "addOns[0]"),
        ("KubernetesUpgrade", "addOns", json!(["kube-proxy", "kube-proxy"]), "addOns[1]"),
    ]
}

#[test]
#[ignore = "campaign"]
fn what_is_wrong_is_refused_in_words_and_what_is_good_is_taken() {
    let Some(server) = Enforcing::new() else { return };
    let images =
        json!({ "kube-apiserver": format!("registry.example/kube-apiserver:v1.31.2@sha256:{}", "0".repeat(64)) });
    let upgrade = json!({ "version": "1.31.2", "soak": "10m", "images": images });
    let add_ons = json!({ "version": "v1.31.2", "addOns": ["kube-proxy", "coredns"], "images": {
        "kube-proxy": pinned("kube-proxy", "v1.31.2"), "coredns": pinned("coredns", "1.11.3"),
    } });
    let good = [
        ("Channel", channel()),
        ("DisruptionLedger", json!({ "release": [{ "token": 7, "who": "eve", "why": "it is dead" }] })),
        ("KubernetesUpgrade", upgrade),
        ("NodePool", pool()),
        ("UpgradePolicy", policy()),
    ];
    let good = BTreeMap::from(good);
    for (kind, spec) in &good {
        assert_eq!(server.refuses(kind, spec.clone()), None, "{kind}: {spec}");
    }
    for (kind, path, value) in right() {
        // Of this one there is one, and it is there already: the rules come before that.
        let why = server.refuses(kind, with(good[kind].clone(), path, value.clone()));
        let is_taken = why.as_ref().is_none_or(|why| kind == "KubernetesUpgrade" && why.contains("already exists"));
        assert!(is_taken, "{kind}: {path} {value}: {why:?}");
    }
    let why = server.refuses("KubernetesUpgrade", add_ons).unwrap();
    assert!(why.contains("already exists"), "{why}");
    // Nothing but what it needs.
    assert_eq!(server.refuses("UpgradePolicy", json!({})), None);
    let least = json!({ "repository": "registry.example/os", "select": { "tags": "v*" } });
    assert_eq!(server.refuses("Channel", least), None);
    let mut said = BTreeSet::new();
    for (kind, path, value, words) in wrong().into_iter().chain(wrong_for_the_controller()).chain(wrong_of_kubernetes())
    {
        let spec = with(good[kind].clone(), path, value.clone());
        let why = server.refuses(kind, spec).unwrap_or_else(|| panic!("{kind}: {path} {value} is taken"));
        assert!(why.contains(words), "{kind}: {path} {value}: {why}");
        said.insert((kind, why));
    }
    // Each rule of our definitions has said its words. That a Rollout does not change is proven below.
    for (name, definition) in crd::all() {
        let definition = serde_json::to_value(&definition).unwrap();
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        let is_tried = |message: &String| kind != "Rollout" && !message.contains("its name is cluster");
        for message in messages(&definition).into_iter().filter(is_tried) {
            let says = |(of, why): &(&str, String)| *of == kind && why.contains(&message);
            assert!(said.iter().any(says), "{name}: no object above is refused by: {message}");
        }
    }
}

fn pinned(name: &str, tag: &str) -> String {
    format!("registry.example/{name}:{tag}@sha256:{}", "4".repeat(64))
}

/// The messages of all rules in a definition.
fn messages(value: &Value) -> BTreeSet<String> {
    let own = value["x-kubernetes-validations"].as_array().into_iter().flatten();
    let own = own.map(|rule| rule["message"].as_str().unwrap().to_owned());
    let below: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    own.chain(below.into_iter().flat_map(messages)).collect()
}

#[test]
#[ignore = "campaign"]
fn a_rollout_does_not_change() {
    let Some(server) = Enforcing::new() else { return };
    let text = include_str!("../../../objects/tests/v1alpha1/rollout.yaml");
    let object: Value = serde_saphyr::from_str(text.split("\n---\n").next().unwrap()).unwrap();
    let new: DynamicObject = serde_json::from_value(object).unwrap();
    let api = api_of(&server.client, "fleet.slipway.dev/v1alpha1", "Rollout");
    server.runtime.block_on(async {
        let mut made = api.create(&PostParams::default(), &new).await.unwrap();
        made.data["spec"]["image"] = json!("docker://registry.example/os:other");
        let refused = api.replace(&made.metadata.name.clone().unwrap(), &PostParams::default(), &made).await;
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("a Rollout does not change: a new target is a new Rollout"), "{why}");
    });
}

#[test]
#[ignore = "campaign"]
fn there_is_one_kubernetes_upgrade() {
    let Some(server) = Enforcing::new() else { return };
    let api = api_of(&server.client, "fleet.slipway.dev/v1alpha1", "KubernetesUpgrade");
    let object = json!({ "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": "KubernetesUpgrade",
        "metadata": { "name": "other" }, "spec": { "version": "1.31.2" } });
    let new: DynamicObject = serde_json::from_value(object).unwrap();
    let why = server.runtime.block_on(api.create(&PostParams::default(), &new)).unwrap_err().to_string();
    assert!(why.contains("there is one KubernetesUpgrade, and its name is cluster"), "{why}");
}
