//! The Helm chart, judged by Helm: its objects are those of the manifests, and an API server takes them.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use slipway_test_cluster::part;
use slipway_test_support::not_run;
use tempfile::tempdir;

use crate::{
    first_hour::{apply, parse},
    site::Site,
};

const IMAGE: &str = "registry.example/fleet@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const NAMESPACE: &str = "fleet-by-helm";
const OPTIONAL: [&str; 3] = ["kubernetes.yaml", "kubernetes-add-ons.yaml", "replace.yaml"];

/// What Helm says of the chart, with these words.
fn helm(words: &[&str]) -> Result<String, String> {
    let said = Command::new(part("SLIPWAY_HELM", "helm")).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if said.status.success() { Ok(text(said.stdout)) } else { Err(text(said.stderr)) }
}

/// The objects of the chart with these values, sorted.
fn rendered(chart: &str, values: &[&str]) -> Result<Vec<Value>, String> {
    let words = ["template", "fleet", chart, "--namespace", NAMESPACE, "--kube-version", "1.31.0"];
    let text = helm(&[&words[..], values].concat())?;
    Ok(sorted(parse(&text).into_iter().filter(|object| !object.is_null()).collect()))
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(ToString::to_string);
    objects
}

/// The objects of the manifests, in the chart's namespace and with its image.
fn wanted(optional: &[&str]) -> Vec<Value> {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
    let crds = fs::read_dir(manifests.join("crds")).unwrap().map(|file| file.unwrap().path());
    let others = ["rights.yaml", "deployment.yaml"].iter().chain(optional).map(|name| manifests.join(name));
    let read = |path| {
        fs::read_to_string(path).unwrap().replace("namespace: slipway-fleet\n", &format!("namespace: {NAMESPACE}\n"))
    };
    let mut objects: Vec<Value> = crds.chain(others).flat_map(|path| parse(&read(path))).collect();
    for object in &mut objects {
        if object["kind"] == "CustomResourceDefinition" {
            object["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep".into();
        }
        if let Some(image) = object.pointer_mut("/spec/template/spec/containers/0/image") {
            *image = IMAGE.into();
        }
    }
    sorted(objects)
}

#[test]
fn the_chart_has_the_objects_of_the_manifests_and_a_server_takes_them() {
    if !part("SLIPWAY_HELM", "helm").exists() {
        return not_run("no helm; fleet/hack/parts makes it");
    }
    let Some(site) = Site::with_room(0, 0) else { return };
    let dir = tempdir().unwrap();
    let file = dir.path().join("chart.tgz");
    let chart = file.to_str().unwrap();
    let make = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/chart");
        assert!(Command::new(script).args(["1.2.3", IMAGE, chart]).status().unwrap().success());
        fs::read(chart).unwrap()
    };
    assert_eq!(make(), make(), "the same bytes");
    helm(&["lint", "--strict", chart]).unwrap();
    let said = helm(&["show", "chart", chart]).unwrap();
    assert!(said.contains("\nversion: 1.2.3\n") && said.contains("appVersion: 1.2.3\n"), "{said}");

    assert_eq!(rendered(chart, &[]).unwrap(), wanted(&[]));
    let values = ["--set", "kubernetes=true", "--set", "kubernetesAddOns=true", "--set", "replace=true"];
    let all = rendered(chart, &values).unwrap();
    assert_eq!(all, wanted(&OPTIONAL));
    apply(&site, &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }));
    all.iter().for_each(|object| apply(&site, object));

    let own =
        rendered(chart, &["--set", "image=other:1", "--set", "replicas=3", "--set", "imagePullSecrets[0].name=login"]);
    let own = own.unwrap().into_iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = &own["spec"]["template"]["spec"];
    assert_eq!(own["spec"]["replicas"], 3);
    assert_eq!(
        (&pod["containers"][0]["image"], &pod["imagePullSecrets"][0]["name"]),
        (&json!("other:1"), &json!("login"))
    );
    for (wrong, why) in
        [("replicas=0", "replicas"), ("image=", "image"), ("imag=a", "imag"), ("kubernetes=1", "kubernetes")]
    {
        let error = rendered(chart, &["--set", wrong]).unwrap_err();
        assert!(error.contains("values don't meet") && error.contains(why), "{wrong}: {error}");
    }
}
