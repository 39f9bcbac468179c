//! Size: gate
//! Needs: etcd kube containerd
//!
//! The upgrade of a control plane with real API servers, etcd and the nodes' real services. A stand-in for the kubelet runs
//! manifests as processes and shows their pods; controller managers and schedulers are processes that sleep.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod add_ons;
mod emulation;
mod flags;
mod gates;
mod serving;
mod site;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use slipway_kubernetes::component::Component;
use slipway_test_control_plane::containerd::is_here;
use tokio::time::timeout;

use site::{NEW, OLD, Site, client_of};

/// The findings of a client that wrote and read all the time.
struct Met {
    /// Writes that were read again.
    done: u32,
    /// Those that failed, and were tried again.
    failed: u32,
    /// The longest time between two that worked.
    longest: Duration,
}

/// Writes and reads all the time, and tries again after an error.
fn work(site: &Site, stop: Arc<AtomicBool>) -> thread::JoinHandle<Met> {
    let (handle, kubeconfig) = (site.runtime.handle().clone(), site.kubeconfig());
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("busy".to_owned()), ..Default::default() },
        ..Default::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(site.client(), "kube-system");
    site.runtime.block_on(api.create(&PostParams::default(), &map)).unwrap();
    thread::spawn(move || {
        let (mut met, mut last) = (Met { done: 0, failed: 0, longest: Duration::ZERO }, Instant::now());
        while !stop.load(Ordering::Relaxed) {
            let number = format!("{}-{}", met.done, met.failed);
            let put = async {
                let api: Api<ConfigMap> = Api::namespaced(client_of(&kubeconfig).await, "kube-system");
                let patch = Patch::Merge(json!({ "data": { "number": number } }));
                api.patch("busy", &PatchParams::default(), &patch).await?;
                api.get("busy").await
            };
            match handle.block_on(async { timeout(Duration::from_secs(5), put).await }) {
                Ok(Ok(read)) => {
                    assert_eq!(read.data.unwrap()["number"], number, "what was written is read");
                    (met.done, met.longest) = (met.done + 1, met.longest.max(last.elapsed()));
                    last = Instant::now();
                }
                _ => met.failed += 1,
            }
            thread::sleep(Duration::from_millis(100));
        }
        // What failed at last is not left out.
        met.longest = met.longest.max(last.elapsed());
        met
    })
}

#[test]
fn three_nodes_are_upgraded_while_clients_work_although_the_run_is_killed() {
    if !is_here() {
        return;
    }
    let site = Site::new(3, 300);
    let (code, plan) = site.run(&["upgrade", "--to", NEW, "--dry-run"]);
    assert_eq!(code, 0, "{plan}");
    assert!(plan.contains("  2. n1: kube-apiserver to registry.example/kube-apiserver:v1.21.2\n"), "{plan}");
    assert!(plan.contains(" 10. n3: kube-scheduler to registry.example/kube-scheduler:v1.21.2\n"), "{plan}");
    assert!(
        plan.contains("gate etcd: open\n")
            && plan.contains("begins with images that n1 pulls, then n1: kube-apiserver"),
        "{plan}"
    );
    let stop = Arc::<AtomicBool>::default();
    let client = work(&site, Arc::clone(&stop));
    let (begun, before) = (Instant::now(), site.asked("busy"));
    // The run dies while n2 is at it. The node goes on, and another run takes over.
    let image = format!("--image=kube-scheduler={}", site.pinned(Component::Scheduler));
    let words = ["upgrade", "--to", NEW, "--soak", "0", &image];
    let text = site.run_until(&words, "begins: n2: kube-apiserver");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("begins: n3: the images that it will run are pulled") < at("begins: n1: a snapshot of etcd"), "{text}");
    let (code, text) = site.run(&words);
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("pulled"), "what has begun goes on: {text}");
    let (took, mut asked) = (begun.elapsed(), site.asked("busy"));
    stop.store(true, Ordering::Relaxed);
    let Met { done, failed, longest } = client.join().unwrap();
    assert!(done > 2 * failed, "{done} writes, and {failed} that failed");
    assert!(!text.contains("begins: n1: kube-apiserver"), "what is done is not done again: {text}");
    for component in Component::ALL {
        assert_eq!(site.versions(component), [NEW, NEW, NEW], "{component}");
    }
    let scheduler = fs::read_to_string(site.manifest("n2", Component::Scheduler)).unwrap();
    assert!(scheduler.contains(&format!("image: {}\n", site.pinned(Component::Scheduler))), "{scheduler}");
    let (took, longest) = (took.as_secs(), longest.as_millis());
    println!("three nodes took {took} s; {done} writes, {failed} failed; the longest gap was {longest} ms");
    asked.iter_mut().for_each(|(what, times)| *times -= before.get(what).unwrap_or(&0));
    let all: u32 = asked.values().sum();
    println!("the runs sent {all} requests to API servers: {asked:?}");
    // A look lists the nodes, and while gates count the pods of each.
    assert!(asked["list pods"] <= 3 * asked["list nodes"] && asked.get("get pods").is_none_or(|times| *times == 0));
    let (code, text) = site.run(&["upgrade", "--to", NEW]);
    assert_eq!((code, text.as_str()), (0, "finished: nothing is left to do\n"));
    for words in [&["rollback"][..], &["rollback", "--dry-run"]] {
        let (code, text) = site.run(words);
        assert!(code == 3 && text.contains("(no-way-back)"), "it is completed: {text}");
    }
    assert_eq!(site.snapshots("n1"), Vec::<std::path::PathBuf>::new());
    assert_eq!(site.versions(Component::ApiServer), [NEW, NEW, NEW]);
}

#[test]
fn an_image_that_is_not_there_leaves_the_manifest_as_it_was() {
    if !is_here() {
        return;
    }
    let site = Site::new(1, 10);
    // Who has what, in every form, and of nodes with some labels.
    let status = |words: &[&str]| site.run(&[&["status"], words].concat());
    assert_eq!(status(&["-o", "name", "-l", "!nope"]), (0, "node/n1\n".to_owned()));
    assert_eq!(status(&["-o", "name", "--selector", "nope"]), (0, String::new()));
    let none = "No Node has the labels nope: leave --selector out to see all.\n";
    assert_eq!(status(&["-l", "nope"]), (0, none.to_owned()));
    assert!(status(&["-o", "wide"]).1.contains("registry.example/kube-apiserver:v1.20.2"));
    let json: serde_json::Value = serde_json::from_str(&status(&["-o", "json"]).1).unwrap();
    assert_eq!((json["kind"].clone(), json["schema"].clone()), ("KubernetesStatus".into(), 1.into()));
    assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&status(&["-o", "yaml"]).1).unwrap(), json);
    assert!(site.run_until(&["status", "--watch"], "n1 ").contains("kube-scheduler"));
    let path = site.manifest("n1", Component::ApiServer);
    let before = fs::read_to_string(&path).unwrap();
    // The node finds that out while nothing is touched.
    let (code, text) = site.run(&["upgrade", "--to", "1.21.9"]);
    let why = "n1 cannot pull an image that it will run: registry.example/kube-apiserver:v1.21.9: containerd: ";
    assert!(code == 3 && text.contains("(NoImage)") && text.contains(why), "{text}");
    assert!(!text.contains("begins: n1: kube-apiserver") && site.snapshots("n1").is_empty(), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let (code, text) = site.run(&["upgrade", "--to", "1.21.9", "--no-pre-pull"]);
    assert!(code == 1 && text.contains("n1: kube-apiserver came back to what it was: not well within 10 s"), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn one_node_with_a_manifest_edited_by_hand_is_upgraded_and_goes_back() {
    if !is_here() {
        return;
    }
    let site = Site::new(1, 300);
    let path = site.manifest("n1", Component::ApiServer);
    // It stays as it is, and only the image changes.
    let before = fs::read_to_string(&path).unwrap() + "# by hand: ask ops before you change this\n";
    fs::write(&path, &before).unwrap();
    // The kubelet starts the API server anew.
    site.until_well();
    // The way back is open until everything has been well for long enough.
    site.run_until(&["upgrade", "--to", NEW, "--soak", "3600"], "waits: soaks");
    let edited = before.replace("kube-apiserver:v1.20.2", "kube-apiserver:v1.21.2");
    assert_eq!(fs::read_to_string(&path).unwrap(), edited);
    assert_eq!(site.snapshots("n1").len(), 1, "it is kept until the upgrade is completed");
    let (code, text) = site.run(&["upgrade", "--to", "1.22.0"]);
    assert!(code == 3 && text.contains("(Uncompleted)"), "{text}");
    let (code, text) = site.run(&["rollback"]);
    assert_eq!(code, 0, "{text}");
    let order: Vec<usize> = Component::ALL.iter().map(|of| text.find(&format!("begins: n1: {of} ")).unwrap()).collect();
    assert!(order[0] > order[1] && order[1] > order[2], "the last one is the first: {text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert_eq!(site.versions(Component::Scheduler), [OLD]);
    assert_eq!(site.snapshots("n1").len(), 1, "nothing was completed");
}
