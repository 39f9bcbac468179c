//! Requests that fail, and their messages.

use std::{fs, path::Path, process::Command};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use slipway_fleet::{kubernetes::Kubernetes, nodes::Nodes};
use slipway_node_client::Files;

use crate::{
    program::{Ended, fleet},
    site::{Site, fleet as object},
};

#[test]
fn who_may_not_is_told_so() {
    let Some(site) = Site::new(0) else { return };
    site.pool("new", json!({}));
    let kubelet = site.server.kubeconfig("kubelet");
    let ended: Ended = fleet(&kubelet, &["pause", "p", "--reason", "a whim"]).output().unwrap().into();
    let refused = ended.fails(3);
    assert!(refused.contains("refused (forbidden)"), "{refused}");
    let refused = site.fleet(&["pause", "missing", "--reason", "a whim"]).fails(3);
    let missing = "refused (not-found): there is no NodePool \"missing\", only p";
    assert!(refused.contains(missing), "{refused}");
    for words in [["status", "missing"], ["plan", "missing"]] {
        let refused = site.fleet(&words).fails(3);
        assert!(refused.contains(missing), "{refused}");
    }
    let refused = site.fleet(&["plan", "p"]).fails(3);
    assert!(refused.contains("refused (no-plan)") && refused.contains("no controller has looked"), "{refused}");
    let status = site.json(&["status"]);
    assert_eq!(
        (status["pools"][0]["state"].clone(), status["pools"][0]["behind"].clone()),
        (json!("Unknown"), json!(true))
    );
    // A failure is JSON, too.
    let ended = site.fleet(&["plan", "p", "--output", "json"]);
    let failure: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, failure["failure"]["reason"].clone()), (3, json!("no-plan")));
}

/// What a schema keeps out by a rule alone, and this API server knows no rules: no program takes it. It says so, and hides
/// nothing else.
#[test]
fn an_upgrade_of_kubernetes_that_cannot_be_understood_says_so_and_hides_no_pool() {
    let Some(site) = Site::new(0) else { return };
    site.pool("new", json!({}));
    let spec = json!({ "version": "1.31.2", "soak": "0h" });
    site.make(object("KubernetesUpgrade", "cluster", spec)).unwrap();
    let text = site.fleet(&["status"]).ok();
    let why = "Kubernetes ?  Invalid: the KubernetesUpgrade cluster is not understood by this program: ";
    assert!(text.starts_with(why) && text.contains("\np  Unknown  "), "{text}");
    let cluster = slipway_fleet::cluster::Cluster::new(site.controllers_client());
    let file = |name: &str| site.pki().join(name);
    let files = Files { ca: file("ca.crt"), certificate: file("tls.crt"), key: file("tls.key") };
    let controller = Kubernetes::new(cluster, Nodes::new(files, site.port), Default::default());
    site.runtime.block_on(controller.reconcile()).unwrap();
    let upgrades = site.api_of("fleet.slipway.dev/v1alpha1", "KubernetesUpgrade", None);
    let status = site.runtime.block_on(upgrades.get("cluster")).unwrap().data["status"].clone();
    assert_eq!((&status["state"], &status["reason"]), (&json!("Invalid"), &json!("NotUnderstood")), "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("\"0h\" is no length of time") && message.ends_with(": correct it"), "{message}");
}

/// What only controllers write, and somebody has written by hand.
#[test]
fn what_cannot_be_understood_is_named_and_hides_nothing_else() {
    let Some(site) = Site::new(2) else { return };
    site.pool("new", json!({}));
    let controller = site.controller();
    ["n1", "n2"].iter().for_each(|node| site.until_it_says(node, "Done"));
    drop(controller);
    let rollout = site.rollouts()[0].metadata.name.clone().unwrap();
    let patch = |kind: &str, name: &str, status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        let api = site.api_of("fleet.slipway.dev/v1alpha1", kind, None);
        site.runtime.block_on(api.patch_status(name, &PatchParams::default(), &patch)).unwrap();
    };
    patch("NodeUpgrade", "n2", json!({ "runs": "nonsense" }));
    let replaces = json!({ "payload": "nonsense", "machine": "m", "name": "m", "set": "s", "newest": "2026-01-01T00:00:00Z",
        "others": [] });
    let node = json!({ "uid": "u", "name": "n", "pool": "p", "role": "worker" });
    let grant = json!({ "node": node, "token": 1, "since": "2026-01-01T00:00:00Z", "replaces": replaces });
    patch("DisruptionLedger", "cluster", json!({ "grants": [grant] }));
    let text = site.fleet(&["status"]).ok();
    let is_named = |text: &str, object: &str, remedy: &str| {
        let start = format!("not understood  {object}: ");
        text.lines().any(|line| line.starts_with(&start) && line.contains(remedy))
    };
    assert!(is_named(&text, "disruptionledger.fleet.slipway.dev/cluster", "--subresource=status"), "{text}");
    assert!(is_named(&text, "nodeupgrade.fleet.slipway.dev/n2", "written anew"), "{text}");
    let [one, two] = ["n1  Done", "n2  NotUnderstood"].map(|of| text.contains(&format!("p  wave 1  {of}  ")));
    assert!(one && two && !text.contains("is not in the pool any more"), "{text}");
    let data = site.json(&["status", "p"]);
    assert_eq!(data["notUnderstood"].as_array().unwrap().len(), 2, "{data}");
    assert!(data["notUnderstood"][0]["message"].as_str().unwrap().contains("nonsense"), "{data}");
    // A word that needs one of them names it.
    let approval = json!({ "wave": 1, "who": "a", "why": "b", "at": "2026-01-01T00:00:00+99:99" });
    patch("Rollout", &rollout, json!({ "approvals": [approval] }));
    let named = format!("refused (not-understood): rollout.fleet.slipway.dev/{rollout}: ");
    for words in [&["plan", "p"][..], &["abort", "p", "--reason", "a whim"]] {
        let refused = site.fleet(words).fails(3);
        assert!(refused.contains(&named) && refused.contains("kubectl delete rollout.fleet.slipway.dev/"), "{refused}");
    }
    let text = site.fleet(&["status"]).ok();
    assert!(
        is_named(&text, &format!("rollout.fleet.slipway.dev/{rollout}"), "kubectl delete rollout.fleet.slipway.dev/"),
        "{text}"
    );
    assert!(text.contains("n1  Done"), "its plan is understood: {text}");
}

/// What is said of [`nobody_there`].
const UNREACHABLE: &str = "unreachable: the API server http://127.0.0.1:1 does not answer: client error (Connect): ";

/// A kubeconfig of an API server that is not there.
fn nobody_there() -> Value {
    let cluster = json!({ "server": "http://127.0.0.1:1" });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "t",
        "clusters": [{ "name": "t", "cluster": cluster }], "users": [{ "name": "t", "user": {} }],
        "contexts": [{ "name": "t", "context": { "cluster": "t", "user": "t" } }],
    })
}

#[test]
fn a_proxy_of_the_environment_is_for_registries() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, nobody_there().to_string()).unwrap();
    for name in ["HTTPS_PROXY", "https_proxy"] {
        for proxy in ["http://me:secret@127.0.0.1:2/", "http://me:se#cret@127.0.0.1:2/"] {
            let proxied = fleet(&path, &["status"]).env(name, proxy).output().unwrap();
            let told = Ended::from(proxied).fails(4);
            assert!(told.contains(UNREACHABLE) && !told.contains("cret"), "{told}");
        }
    }
    let proxied = fleet(&path, &["status"]).env("HTTPS_PROXY", "http://me:se cret@127.0.0.1:2/").output().unwrap();
    let told = Ended::from(proxied).fails(2);
    assert!(
        told.contains("$HTTPS_PROXY, or proxy-url of the kubeconfig, is no address") && !told.contains("cret"),
        "{told}"
    );
    let mut named = nobody_there();
    named["clusters"][0]["cluster"]["proxy-url"] = "http://me:secret@127.0.0.1:2".into();
    fs::write(dir.path().join("named"), named.to_string()).unwrap();
    let told = Ended::from(fleet(&dir.path().join("named"), &["status"]).output().unwrap()).fails(2);
    assert!(told.contains("the kubeconfig: it names a proxy (proxy-url)") && !told.contains("secret"), "{told}");
}

#[test]
fn an_api_server_that_is_not_there_is_unreachable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, nobody_there().to_string()).unwrap();
    let run = |words: &[&str]| -> Ended { fleet(&path, words).output().unwrap().into() };
    let told = run(&["status"]).fails(4);
    assert!(told.contains(UNREACHABLE), "{told}");
    let none = "no way to the API server: the kubeconfig has no context \"other\"; its contexts: t\n";
    assert!(run(&["status", "--context", "other"]).fails(2).ends_with(none));
    let file = path.to_str().unwrap();
    assert!(run(&["status", "--kubeconfig", file, "--context", "t"]).fails(4).contains("unreachable"));
    let none = "no way to the API server: there is no kubeconfig nowhere: name one by --kubeconfig or $KUBECONFIG\n";
    assert!(run(&["status", "--kubeconfig", "nowhere"]).fails(2).ends_with(none));
    // Several files are named, and one is not there: kubectl goes on without it.
    let missing = dir.path().join("missing").display().to_string();
    for named in [format!("{missing}:{file}"), format!("{file}:{missing}"), format!(":{missing}::{file}")] {
        let told = Ended::from(fleet(Path::new(&named), &["status"]).output().unwrap()).fails(4);
        assert!(told.contains(UNREACHABLE), "{told}");
    }
    for named in [format!("{missing}:{missing}2"), format!("{missing}:")] {
        let told = Ended::from(fleet(Path::new(&named), &["status"]).output().unwrap()).fails(2);
        assert!(told.contains(&format!("there is no kubeconfig {missing}: ")), "{told}");
    }
    fs::write(dir.path().join("bare"), "kind: Config\napiVersion: v1\n").unwrap();
    let bare = dir.path().join("bare");
    let told = run(&["status", "--kubeconfig", bare.to_str().unwrap()]).fails(2);
    assert!(told.ends_with("has no current-context: name one by --context; its contexts: none\n"), "{told}");
    assert!(run(&["status", "--socket", "/run/x"]).fails(2).contains("the API server"));
    let mut bare = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
    bare.args(["fleet", "status"]).env_clear().env("HOME", dir.path());
    let ended: Ended = bare.output().unwrap().into();
    let none = format!("there is no kubeconfig {}/.kube/config: ", dir.path().display());
    assert!(ended.fails(2).contains(&none), "{none}");
    // Without an argument there is neither a reason nor a person.
    for words in [["--reason", " "], ["--reason", ""], ["--reason", "\t\n"]] {
        let mut all = vec!["pause", "p"];
        all.extend(words);
        assert!(run(&all).fails(2).contains("it says nothing"));
    }
    assert!(run(&["pause", "p", "--reason", "a whim", "--who", " "]).fails(2).contains("it says nothing"));
}
