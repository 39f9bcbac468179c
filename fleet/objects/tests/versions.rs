//! Size: quick
//!
//! Objects as people and controllers wrote them, in each version of the API: the files in `tests/VERSION`. A file has each
//! field of its kind, an object more where two fields exclude each other, and at last one with no more than it needs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{collections::BTreeSet, fs, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use slipway_fleet_objects::{
    channel::Channel, crd, kubernetes_upgrade::KubernetesUpgrade, ledger::DisruptionLedger, policy::UpgradePolicy,
    pool::NodePool, rollout::Rollout, upgrade::NodeUpgrade,
};

/// The objects of a kind, in this version.
fn objects(version: &str, kind: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{version}/{}.yaml", kind.to_lowercase()));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

/// An object as today's types read and write it.
fn today<K: Serialize + DeserializeOwned>(object: &Value) -> Value {
    let read: K = serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{e}: {object}"));
    let written = serde_json::to_value(&read).unwrap();
    // Reading the written object gives the same again.
    let again: K = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), written);
    written
}

/// Whether all that `part` says is in `whole`, as it is there.
fn is_in(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|there| is_in(value, there)))
        }
        _ => part == whole,
    }
}

/// Each field of an object, by its path; items of a list are one.
fn fields(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) => fields_of.iter().for_each(|(key, value)| {
            let at = format!("{at}.{key}");
            fields(&at, value, found);
            found.insert(at);
        }),
        Value::Array(items) => items.iter().for_each(|item| fields(at, item, found)),
        _ => {}
    }
}

/// Each field of a schema. A map has the keys that people choose.
fn declared(at: &str, schema: &Value, found: &mut BTreeSet<String>, maps: &mut BTreeSet<String>) {
    if schema["additionalProperties"].is_object() {
        maps.insert(format!("{at}."));
    }
    for (key, of) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{key}");
        declared(&at, of, found, maps);
        declared(&at, &of["items"], found, maps);
        found.insert(at);
    }
}

fn each_object_is_read<K: Serialize + DeserializeOwned>(kind: &str) {
    let objects = objects("v1alpha1", kind);
    let (minimal, full) = objects.split_last().unwrap();
    for object in full {
        assert_eq!(today::<K>(object), *object, "{kind}: what was written is lost, or something else");
    }
    assert!(is_in(minimal, &today::<K>(minimal)), "{kind}: {minimal}");
    let (_, definition) = crd::all().into_iter().find(|(_, of)| of.spec.names.kind == kind).unwrap();
    let version =
        definition.spec.versions.iter().find(|of| of.name == "v1alpha1").expect("a version that was released stays");
    let schema = serde_json::to_value(&version.schema).unwrap();
    for part in ["spec", "status"] {
        let (mut there, mut known, mut maps) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        full.iter().for_each(|object| fields(part, &object[part], &mut there));
        declared(part, &schema["openAPIV3Schema"]["properties"][part], &mut known, &mut maps);
        there.retain(|field| !maps.iter().any(|map| field.starts_with(map.as_str())));
        let lost: Vec<_> = there.difference(&known).collect();
        assert!(lost.is_empty(), "{kind}: the API server would drop {lost:?}");
        let missing: Vec<_> = known.difference(&there).collect();
        assert!(missing.is_empty(), "{kind}: no object of tests/v1alpha1 has {missing:?}: add them there");
    }
}

#[test]
fn what_was_written_in_v1alpha1_is_read_without_loss() {
    each_object_is_read::<Channel>("Channel");
    each_object_is_read::<DisruptionLedger>("DisruptionLedger");
    each_object_is_read::<KubernetesUpgrade>("KubernetesUpgrade");
    each_object_is_read::<NodePool>("NodePool");
    each_object_is_read::<NodeUpgrade>("NodeUpgrade");
    each_object_is_read::<Rollout>("Rollout");
    each_object_is_read::<UpgradePolicy>("UpgradePolicy");
}
