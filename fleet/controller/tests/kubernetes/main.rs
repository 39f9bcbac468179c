//! Size: gate
//! Needs: etcd kube containerd
//!
//! A KubernetesUpgrade from its object to its end: the controller and its Job as programs, with the rights of their
//! manifests, real API servers, etcd and services of nodes. Stand-ins are the kubelet, and what makes a process of a Job.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod add_ons;
mod jobs;
mod site;

use std::fs;

use jiff::Timestamp;
use serde_json::json;
use slipway_kubernetes::component::Component;
use slipway_rollout::{
    int_or_percent::IntOrPercent,
    ledger::{Limits, Node, Refusal, Role},
};
use slipway_test_control_plane::{NEW, OLD, containerd::is_here};

use site::Site;

fn worker() -> Node {
    let (uid, name, pool) = ("u".to_owned(), "w1".to_owned(), "workers".to_owned());
    Node { uid, name, pool, zone: None, role: Role::Worker }
}

fn limits() -> Limits {
    Limits {
        size: 3,
        max_unavailable: IntOrPercent::Nodes(1),
        max_domains: None,
        rates: Vec::new(),
        from: Timestamp::MIN,
        until: None,
        down: Vec::new(),
        named_tokens: Default::default(),
        shared: Default::default(),
        younger: Vec::new(),
    }
}

/// What each Job begins: it is killed there, and the next one goes on.
const KILLS: [&str; 6] = [
    "the ledger's claim",
    "begins: n1: a snapshot of etcd",
    "begins: n2: kube-apiserver",
    "begins: n3: kube-controller-manager",
    "begins: n1: kube-scheduler",
    "waits: soaks",
];

#[test]
fn a_version_is_reached_although_its_job_is_killed_at_each_step() {
    if !is_here() {
        return;
    }
    let mut site = Site::new(3, 300);
    // What people have written into a manifest stays.
    let path = site.plane.manifest("n1", Component::ApiServer);
    let before = fs::read_to_string(&path).unwrap() + "# by hand: ask ops before you change this\n";
    fs::write(&path, &before).unwrap();
    site.jobs.kill_at(&KILLS);
    let image = site.plane.pinned(Component::Scheduler);
    // Of these versions there is nothing to emulate.
    site.wants(json!({ "version": NEW, "soak": "5s", "emulate": true, "images": { "kube-scheduler": image } }));
    // While it is under way no node is given a grant.
    site.until("the ledger is claimed", |site| site.ledger().kubernetes.is_some());
    let refused = site.ledger().grant(&worker(), &limits(), Timestamp::now());
    assert!(matches!(&refused, Err(Refusal::Kubernetes { version, .. }) if version == NEW), "{refused:?}");
    let (mut touched, mut kept) = (0, 0);
    site.until("it is reached", |site| {
        let ledger = site.ledger();
        let is_touched = site.status().run.is_some_and(|run| run.pods.iter().any(|pod| pod.kept.is_some()));
        touched += u32::from(is_touched);
        kept = kept.max(if is_touched { site.plane.snapshots("n1").len() } else { 0 });
        // A report may be older than the end of the claim; it is not the other way round.
        assert!(ledger.grants.is_empty() || ledger.kubernetes.is_none(), "{ledger:?}");
        site.status().state == "UpToDate"
    });
    assert!(touched > 0, "its Jobs say what nodes keep");
    assert_eq!((kept, site.plane.snapshots("n1").len()), (1, 0), "a snapshot is kept until the upgrade is completed");
    for component in Component::ALL {
        assert_eq!(site.plane.versions(component), [NEW, NEW, NEW], "{component}");
    }
    let edited = before.replace("kube-apiserver:v1.20.2", "kube-apiserver:v1.21.2");
    assert_eq!(fs::read_to_string(&path).unwrap(), edited);
    let scheduler = fs::read_to_string(site.plane.manifest("n3", Component::Scheduler)).unwrap();
    assert!(scheduler.contains(&format!("image: {image}\n")), "{scheduler}");
    let status = site.status();
    assert_eq!(status.observed_images["kube-scheduler"], image);
    assert_eq!((status.observed_version.as_deref(), status.from.as_deref()), (Some(NEW), Some(OLD)));
    assert_eq!(site.jobs.killed(), KILLS.len(), "{:?}", status.history);
    let ends: Vec<&str> = status.history.iter().map(|ended| ended.reason.as_str()).collect();
    assert_eq!((ends.first(), ends.len(), status.attempt), (Some(&"Reached"), KILLS.len() + 1, 7), "{ends:?}");
    site.until("Jobs are deleted", |site| site.jobs_there() == 0);
    assert_eq!(site.ledger().kubernetes, None, "grants are given again");
    assert!(site.ledger().grant(&worker(), &limits(), Timestamp::now()).is_ok());
    // The kubelets come with the OS of their nodes, which no pool upgrades here.
    site.until("older kubelets are named", |site| !site.status().older_kubelets.is_empty());
    let of = &site.status().older_kubelets[0];
    assert_eq!((of.pool.as_deref(), of.version.as_str(), of.count), (None, "v1.20.2", 3));
    let told = site.events();
    assert!(told.iter().any(|told| told.contains("attempt 1 begins: from 1.20.2 to 1.21.2")), "{told:?}");
    assert!(told.iter().any(|told| told.contains("ended (Reached)")), "{told:?}");
    assert!(
        site.metrics().contains("slipway_fleet_kubernetes_upgrade_state{state=\"UpToDate\",reason=\"UpToDate\"} 1")
    );
}

#[test]
fn nothing_begins_before_people_policies_and_the_fleet_allow_it() {
    if !is_here() {
        return;
    }
    let mut site = Site::new(1, 20);
    // A node has a grant: its OS is upgraded. It is not freed because there is no such Node: etcd may have its member.
    let node = Node { role: Role::ControlPlane, ..worker() };
    site.until("there is a ledger", |site| site.find_ledger().is_some());
    site.write_ledger(|ledger| ledger.grant(&node, &limits(), Timestamp::now()).unwrap().0);
    site.policy("nights", json!({ "approval": "EachWave" }));
    site.without_rights();
    site.wants(json!({ "version": NEW, "soak": "1s", "prePull": false, "snapshot": false, "policies": ["nights"], "paused": { "who": "alice", "why": "the fair" } }));
    site.until_reason("NoRights");
    assert!(site.status().message.contains("apply kubernetes.yaml"), "{}", site.status().message);
    site.with_rights();
    site.until_reason("Paused");
    site.change(json!({ "paused": null, "version": "1.22.0" }));
    site.until_reason("Path");
    site.change(json!({ "version": NEW, "policies": ["days"] }));
    site.until_reason("PolicyMissing");
    site.change(json!({ "policies": ["nights"] }));
    site.until_reason("Fleet");
    assert!(site.status().message.contains("upgrades the OS of w1"), "{}", site.status().message);
    site.write_ledger(|ledger| ledger.free("u", &slipway_rollout::ledger::Proof::Well { token: 1 }).unwrap());
    site.until_reason("Approval");
    let plan = site.status().plan.unwrap();
    assert_eq!(site.status().steps.len(), 3);
    site.change(json!({ "approval": { "plan": "0".repeat(64), "who": "alice", "why": "another one" } }));
    site.policy("days", json!({ "windows": [{ "start": "00:00", "lasts": "1m", "zone": "UTC", "days": [] }] }));
    assert_eq!((site.status().reason.as_str(), site.jobs_there(), site.status().attempt), ("Approval", 0, 0));
    // An image that is not there: the old one comes back, and only a person has it tried again.
    site.with_older_rights();
    site.change(json!({ "version": "1.21.9" }));
    site.until("there is another plan", |site| site.status().plan.is_some_and(|other| other != plan));
    let other = site.status().plan.unwrap();
    let path = site.plane.manifest("n1", Component::ApiServer);
    let before = fs::read_to_string(&path).unwrap();
    site.change(json!({ "approval": { "plan": other.to_string(), "who": "alice", "why": "it was looked at" } }));
    site.until_reason("Gate");
    let why = site.status().message;
    assert!(why.contains("apply kubernetes.yaml of the manifests again"), "{why}");
    site.with_rights();
    site.until_reason("CameBack");
    let status = site.status();
    assert!(status.state == "Failed" && status.message.contains("n1: kube-apiserver came back"), "{status:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert!(site.plane.snapshots("n1").is_empty(), "none was wanted");
    site.until("the claim is free, and no Job is left", |site| {
        site.ledger().kubernetes.is_none() && site.jobs_there() == 0
    });
    assert_eq!(site.status().observed_version, None);
    let attempts = site.status().attempt;
    site.change(json!({ "retry": 1 }));
    site.until("it is tried again", |site| site.status().attempt == attempts + 1);
    // Paused in the middle: the run ends, and with it the Job.
    site.change(json!({ "paused": { "who": "alice", "why": "enough" } }));
    site.until_reason("Paused");
    site.until("no Job is left", |site| site.jobs_there() == 0);
}
