//! Size: quick
//!
//! The definitions in `fleet/manifests` are those of the types. `SLIPWAY_UPDATE_GOLDEN=1` writes them anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{collections::BTreeSet, env, fs, path::Path};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use proptest::{
    prelude::*,
    sample::select,
    string::{RegexGeneratorStrategy, string_regex},
};
use serde_json::{Value, json};
use slipway_channel::{
    candidate::{Candidate, ImageLabels},
    signature_demand::{Key, Signed},
};
use slipway_core::{digest::Sha256, payload::image_ref::ImageRef};
use slipway_fleet_objects::{
    channel::{self, Channel},
    crd,
    kubernetes_upgrade::KubernetesUpgrade,
    policy::UpgradePolicy,
    pool::NodePool,
};
use slipway_kubernetes::version::Version;

#[test]
fn the_definitions_are_those_of_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
    let update = env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some();
    for (name, definition) in crd::all() {
        let path = dir.join(format!("{name}.yaml"));
        // As JSON first: its keys are in an order of their own.
        let value = serde_json::to_value(&definition).unwrap();
        let text = format!("# Made from the types in fleet/objects.\n{}", serde_saphyr::to_string(&value).unwrap());
        if update {
            fs::write(&path, &text).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(there, text, "{}: SLIPWAY_UPDATE_GOLDEN=1 writes it anew", path.display());
        assert_eq!(serde_saphyr::from_str::<Value>(&there).unwrap(), value, "{name}: the YAML says what is meant");
    }
}

/// `kubectl explain` never shows an empty text, and never hides what is below a field.
#[test]
fn every_field_is_explained() {
    for (name, definition) in crd::all() {
        let value = serde_json::to_value(&definition).unwrap();
        let schema = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut bare = Vec::new();
        explained(name, schema, &mut bare);
        assert!(schema["description"].as_str().is_some_and(|text| text.len() > 40), "{name}");
        assert_eq!(bare, Vec::<String>::new());
    }
}

/// The least that says more than the name of a field, and what a person may write needs more: an example, or what holds without
/// it.
const SHORTEST: [usize; 2] = [10, 30];

fn explained(at: &str, schema: &Value, bare: &mut Vec<String>) {
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{field}");
        let text = of["description"].as_str().unwrap_or_default();
        if text.len() < SHORTEST[usize::from(at.contains(".spec.") && !at.starts_with("rollouts"))] {
            bare.push(format!("{at}: {text:?}"));
        }
        if of.get("nullable").is_some() {
            bare.push(format!("{at} is nullable"));
        }
        for of in [of, &of["items"], &of["additionalProperties"]] {
            explained(&at, of, bare);
        }
    }
}

/// kubeadm has marked nodes of the control plane by one word, and then by another, in labels and in taints. A node that was
/// upgraded without kubeadm keeps the old one.
#[test]
fn the_controller_may_run_on_each_node_of_a_control_plane() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/deployment.yaml")).unwrap();
    let deployment: Value = serde_saphyr::from_str(text.split("---\n").next().unwrap()).unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let place = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let has = |list: &Value, item: Value| list.as_array().unwrap().contains(&item);
    for key in ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"] {
        let labelled = json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] });
        assert!(has(&place["nodeSelectorTerms"], labelled), "{key}");
        assert!(has(&pod["tolerations"], json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" })), "{key}");
    }
}

/// Replicas whose certificates have expired are not ready, and the drain of their node would never end.
#[test]
fn the_budget_of_the_controller_keeps_no_replica_that_is_not_ready() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/deployment.yaml")).unwrap();
    let objects = text.split("---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let budget = objects.into_iter().find(|object| object["kind"] == "PodDisruptionBudget").unwrap();
    assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
}

/// The name of a Rollout is none of its UID's; others tell of a slip.
#[test]
fn a_word_about_a_rollout_takes_no_name_of_one() {
    let definition = serde_json::to_value(NodePool::crd()).unwrap();
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    for field in ["abort", "runNow", "approval"] {
        let rules = &spec[field]["properties"]["rolloutUID"]["x-kubernetes-validations"];
        assert_eq!(rules.as_array().map(Vec::len), Some(1), "{field}");
        assert!(rules[0]["message"].as_str().unwrap().starts_with("the UID, not the name"), "{field}");
    }
}

/// A public key.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
    -----END PUBLIC KEY-----\n";

#[test]
fn what_people_write_of_a_channel_is_what_is_decided_from() {
    let text = json!({
        "repository": "registry.example/os", "select": { "label": "stable" }, "arch": "arm64", "interval": "30m",
        "range": "^1.9", "minAge": "48h", "floors": ["1.4.0"], "deny": ["1.9.3"],
        "promoteFrom": { "channel": "beta", "after": "168h" }, "signatures": { "keys": [KEY], "threshold": 1 },
    });
    let channel: Channel = serde_json::from_value(json!({ "metadata": {}, "spec": text })).unwrap();
    assert_eq!(channel.spec.0, serde_json::from_value(text.clone()).unwrap());
    // Each field that is written is in the schema, and each field in the schema is read.
    let definition = serde_json::to_value(Channel::crd()).unwrap();
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let fields = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(fields(&spec["properties"]), fields(&text));
    assert_eq!(spec["properties"]["select"]["oneOf"], json!([{ "required": ["label"] }, { "required": ["tags"] }]));
}

fn a_candidate() -> impl Strategy<Value = Candidate> {
    let version = proptest::option::of(select(&["1.2.3", "2.0.0-rc.1+b"][..]).prop_map(|text| text.parse().unwrap()));
    let channels = proptest::collection::btree_set("[a-z]{1,4}", 0..3);
    let manifest = proptest::option::of(any::<[u8; 32]>().prop_map(Sha256));
    let labels = (version, channels, proptest::option::of("[0-9T:Z-]{1,9}"), manifest)
        .prop_map(|(version, channels, created, manifest)| ImageLabels { version, channels, created, manifest });
    let labels = prop_oneof![labels.prop_map(Ok), "[a-z ]{0,9}".prop_map(Err)];
    let tags = proptest::collection::btree_set("v?[0-9.]{1,6}", 0..3);
    let keys = proptest::collection::btree_set(any::<[u8; 32]>().prop_map(Sha256), 0..3);
    let signed = (keys, proptest::option::of("[a-z ]{0,9}")).prop_map(|(by, missing)| Signed { by, missing });
    let signed = proptest::option::of(signed);
    (any::<[u8; 32]>(), tags, 0..9_999_999_999_i64, labels, proptest::option::of(any::<[u8; 32]>()), signed).prop_map(
        |(digest, tags, seen, labels, payload, signed)| Candidate {
            digest: Sha256(digest),
            tags,
            first_seen: Timestamp::from_millisecond(seen).unwrap(),
            labels,
            payload: payload.map(Sha256),
            signed,
            taken: None,
        },
    )
}

proptest! {
    /// Each reader finds the result of a look again in the status: nothing is forgotten over a restart.
    #[test]
    fn a_candidate_is_read_as_it_was_written(candidate in a_candidate()) {
        let written = serde_json::to_string(&channel::Candidate::new(&candidate, None)).unwrap();
        let read: channel::Candidate = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(read.found(&[]), candidate);
    }
}

/// Texts that the API server takes at this place of a spec, by its pattern, or else by the last one in its rule.
fn taken(definition: &CustomResourceDefinition, path: &str) -> RegexGeneratorStrategy<String> {
    let definition = serde_json::to_value(definition).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let schema = schema.pointer(path).unwrap();
    let pattern = schema["pattern"].as_str().unwrap_or_else(|| {
        let rule = schema["x-kubernetes-validations"][0]["rule"].as_str().unwrap();
        rule.rsplit_once("matches('").unwrap().1.split_once('\'').unwrap().0
    });
    // Where a class has classes in it, this bracket needs more.
    let pattern = pattern.replace("[[]", "[\\[]");
    // Without an anchor a text is taken that has this in it.
    string_regex(pattern.trim_start_matches('^').trim_end_matches('$')).unwrap()
}

fn channel_with(list: &str, entry: &str) -> Result<Channel, serde_json::Error> {
    let spec = json!({ "repository": "registry.example/os", "select": { "label": "stable" }, list: [entry] });
    serde_json::from_value(json!({ "metadata": {}, "spec": spec }))
}

fn policy_with(spec: Value) -> Result<UpgradePolicy, serde_json::Error> {
    serde_json::from_value(json!({ "metadata": {}, "spec": spec }))
}

proptest! {
    /// Nothing that a person writes is taken first, and not understood later: but for nothing, which a rule refuses, and days
    /// that a month does not have.
    #[test]
    fn what_a_pattern_takes_is_understood(
        per in taken(&UpgradePolicy::crd(), "/properties/rate/properties/per"),
        from in taken(&UpgradePolicy::crd(), "/properties/blackouts/items/properties/from"),
        floor in taken(&Channel::crd(), "/properties/floors/items"),
        deny in taken(&Channel::crd(), "/properties/deny/items"),
    ) {
        let read = policy_with(json!({ "rate": { "count": 1, "per": per } }));
        prop_assert_eq!(read.is_ok(), per.contains(|c: char| matches!(c, '1'..='9')), "{}: {:?}", per, read);
        let blackout = json!({ "from": from, "until": "9999-12-31T23:59:59", "zone": "UTC" });
        let read = policy_with(json!({ "blackouts": [blackout] }));
        prop_assert!(read.is_ok() || from[8..10] > *"28" || from.starts_with("9999-12-31"), "{}: {:?}", from, read);
        for (list, entry) in [("floors", &floor), ("deny", &deny)] {
            let read = channel_with(list, entry);
            prop_assert!(read.is_ok(), "{}: {:?}", entry, read);
        }
    }

    #[test]
    fn what_a_rule_takes_is_understood(
        range in taken(&Channel::crd(), "/properties/range"),
        repository in taken(&Channel::crd(), "/properties/repository"),
        key in taken(&Channel::crd(), "/properties/signatures/properties/keys/items"),
        version in taken(&KubernetesUpgrade::crd(), "/properties/version"),
    ) {
        let spec = json!({ "repository": repository, "select": { "label": "stable" }, "range": range });
        let read = serde_json::from_value::<Channel>(json!({ "metadata": {}, "spec": spec }));
        prop_assert!(read.is_ok(), "{:?}: {:?}", range, read);
        // It is a name, and has no tag of its own.
        let tagged: Result<ImageRef, _> = format!("{repository}:tag").parse();
        prop_assert_eq!(tagged.map(|name| name.tag), Ok(Some("tag".to_owned())), "{:?}", repository);
        prop_assert!(Key::try_from(key.clone()).is_ok(), "{:?}", key);
        prop_assert!(version.parse::<Version>().is_ok(), "{:?}", version);
    }
}

/// Rules that an API server of 1.25 or newer enforces: each says in words what is wanted, and no format is one that servers
/// warn of. That the rules hold is not tried here: it takes a server that evaluates them.
#[test]
fn rules_have_words_and_formats_are_known() {
    fn visit(at: &str, schema: &Value, rules: &mut usize) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            *rules += 1;
            let (text, message) = (rule["rule"].as_str().unwrap(), rule["message"].as_str().unwrap());
            // A backslash would begin an escape of CEL, and of its regular expressions: these are the same in both.
            let plain = [r"\t", r"\r", r"\n"].iter().fold(text.to_owned(), |text, escape| text.replace(escape, ""));
            assert!(message.len() > 20 && text.contains("self") && !plain.contains('\\'), "{at}: {rule}");
            let mut open = 0;
            let mut quoted = false;
            for c in text.chars() {
                match c {
                    '\'' => quoted = !quoted,
                    '(' if !quoted => open += 1,
                    ')' if !quoted => open -= 1,
                    _ => {}
                }
                assert!(open >= 0, "{at}: {text}");
            }
            assert!(open == 0 && !quoted, "{at}: {text}");
        }
        let format = schema["format"].as_str().unwrap_or("date-time");
        assert!(["date-time", "int32", "int64"].contains(&format), "{at}: {format}");
        match schema {
            Value::Object(fields) => fields.iter().for_each(|(name, of)| visit(&format!("{at}.{name}"), of, rules)),
            Value::Array(all) => all.iter().for_each(|of| visit(at, of, rules)),
            _ => {}
        }
    }
    let mut rules = 0;
    for (name, definition) in crd::all() {
        visit(name, &serde_json::to_value(&definition).unwrap()["spec"]["versions"][0]["schema"], &mut rules);
    }
    assert!(rules >= 10, "{rules}");
}
