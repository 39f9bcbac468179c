//! What becomes of a KubernetesUpgrade.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_fleet::{
    kubernetes_decision::{Job, Next, Seen, decide},
    older_kubelets::{Kubelet, older},
    pools::Problem,
};
use slipway_fleet_objects::kubernetes_upgrade::{KubernetesUpgrade, KubernetesUpgradeStatus, RunReport};
use slipway_kubernetes::{
    add_ons::{AddOn, Workload},
    component::Component,
    facts::{Claim, Direction, Facts, Node, StaticPod},
    images::Images,
    plan::Plan,
};
use slipway_rollout::policy::{ApprovalPolicy, Policy, Rules};

pub const NEW: &str = "1.31.2";

fn noon() -> Timestamp {
    "2026-06-01T12:00Z".parse().unwrap()
}

fn upgrade(spec: Value) -> KubernetesUpgrade {
    let mut whole = json!({ "version": NEW });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({ "metadata": { "name": "cluster", "uid": "u", "generation": 3 }, "spec": whole });
    serde_json::from_value(object).unwrap()
}

pub fn facts(version: &str) -> Facts {
    let pod = |of: Component| {
        let image = format!("registry.example/{of}:v{version}");
        (of, StaticPod { image, kept: None, ill: None, emulates: None, under_way: None, came_back: None })
    };
    let node = Node { pods: Component::ALL.map(pod).into(), makes_snapshots: true, ..Node::default() };
    Facts {
        direction: Direction::Forward,
        target: NEW.parse().unwrap(),
        images: Images::default(),
        nodes: BTreeMap::from([("n1".to_owned(), node)]),
        kubelets: BTreeMap::from([("n1".to_owned(), "v1.30.4".to_owned())]),
        add_ons: BTreeMap::new(),
        claim: Claim::Free,
        gates: Vec::new(),
        pre_pull: true,
        emulate: false,
        needs_snapshot: true,
        soak: 1,
        well_for: None,
    }
}

/// What is seen, step by step.
pub struct Scene {
    pub object: KubernetesUpgrade,
    pub rules: Result<Rules, Problem>,
    pub jobs: Vec<Job>,
    refused: Option<String>,
    pub facts: Facts,
    kubelets: Option<Vec<Kubelet>>,
    is_due: bool,
    pub now: Timestamp,
}

impl Scene {
    pub fn new(spec: Value) -> Self {
        Self {
            object: upgrade(spec),
            rules: Ok(Rules::default()),
            jobs: Vec::new(),
            refused: None,
            facts: facts("1.30.4"),
            kubelets: None,
            is_due: false,
            now: noon(),
        }
    }

    /// One look; the status is written.
    pub fn look(&mut self) -> Next {
        let seen = |facts| Seen {
            object: &self.object,
            rules: self.rules.clone(),
            jobs: self.jobs.clone(),
            refused: self.refused.clone(),
            facts,
            kubelets: self.kubelets.clone(),
            is_due: self.is_due,
            now: self.now,
        };
        let (mut next, mut status) = decide(&seen(None));
        if next == Next::Look {
            (next, status) = decide(&seen(Some(Ok(self.facts.clone()))));
        }
        self.object.status = Some(status);
        next
    }

    pub fn status(&self) -> KubernetesUpgradeStatus {
        self.object.status.clone().unwrap()
    }

    pub fn reason(&mut self) -> String {
        assert_eq!(self.look(), Next::Say);
        self.status().reason
    }

    /// A Job is made.
    pub fn begins(&mut self) -> String {
        let Next::Make(name) = self.look() else { panic!("{:?}", self.status()) };
        self.jobs = vec![Job { name: name.clone(), ended: None }];
        name
    }

    /// It ends, having said this.
    fn ends(&mut self, outcome: Result<(), String>, reason: Option<&str>) {
        let attempt = self.status().attempt;
        let run = RunReport {
            attempt,
            at: self.now,
            reason: reason.map(str::to_owned),
            message: "it said so".to_owned(),
            left: 3,
            token: None,
            pods: Vec::new(),
            add_ons: Vec::new(),
        };
        self.object.status.as_mut().unwrap().run = reason.map(|_| run);
        self.jobs[0].ended = Some(outcome);
        let name = self.jobs[0].name.clone();
        assert_eq!(self.look(), Next::Delete(name));
        self.jobs.clear();
    }
}

#[test]
fn a_job_is_made_followed_deleted_and_the_version_observed() {
    let mut scene = Scene::new(json!({}));
    let name = scene.begins();
    // Its pod may be pending for ever.
    let why = "kubectl describe job,pod -A -l fleet.slipway.dev/kubernetes-upgrade";
    assert!(scene.status().message.ends_with(why), "{:?}", scene.status());
    let status = scene.status();
    assert_eq!((status.from.as_deref(), status.to.as_deref(), status.attempt), (Some("1.30.4"), Some(NEW), 1));
    assert_eq!(
        (status.job.as_ref(), status.steps.len(), status.plan),
        (Some(&name), 4, Some(Plan::new(&scene.facts).hash()))
    );
    assert_eq!((scene.reason().as_str(), scene.status().observed_generation), ("Running", 3));
    // Somebody has deleted it, or it was never made: the same one is made again. That it cannot be made is said.
    scene.jobs.clear();
    scene.refused = Some("403".to_owned());
    assert_eq!((scene.look(), scene.status().reason.as_str()), (Next::Make(name.clone()), "NoJob"));
    scene.refused = None;
    assert_eq!(scene.begins(), name);
    scene.ends(Ok(()), None);
    let status = scene.status();
    assert_eq!((status.observed_version.as_deref(), status.state.as_str(), status.job), (Some(NEW), "UpToDate", None));
    assert_eq!(status.history[0].reason, "Reached");
    // What is done is not looked at again at once.
    scene.facts.nodes.clear();
    assert_eq!(scene.reason(), "UpToDate");
    // A Job that nothing names any more goes.
    scene.jobs = vec![Job { name: "old".to_owned(), ended: None }];
    assert_eq!(scene.look(), Next::Delete("old".to_owned()));
}

#[test]
fn what_has_the_version_already_needs_no_job() {
    let mut scene = Scene::new(json!({}));
    scene.facts = facts(NEW);
    assert_eq!((scene.reason().as_str(), scene.status().attempt), ("UpToDate", 0));
    // Only that a run has left its claim: a Job gives it back.
    let mut scene = Scene::new(json!({}));
    scene.facts = Facts { claim: Claim::Held(7), ..facts(NEW) };
    scene.begins();
}

/// A pod of the node has this version, and the node can bring back the other one.
pub fn replaced(facts: &mut Facts, version: &str) {
    let pod = facts.nodes.get_mut("n1").unwrap().pods.get_mut(&Component::ApiServer).unwrap();
    pod.kept = Some(std::mem::replace(&mut pod.image, format!("registry.example/kube-apiserver:v{version}")));
}

#[test]
fn what_was_reached_is_so_no_more_once_something_else_has_begun() {
    let mut scene = Scene::new(json!({}));
    scene.begins();
    scene.ends(Ok(()), None);
    // The next version has begun, and people want the one before again: a commit was reverted.
    scene.object.spec.version = "1.32.0".to_owned();
    scene.facts = Facts { target: "1.32.0".parse().unwrap(), ..facts(NEW) };
    let name = scene.begins();
    scene.object.spec.version = NEW.to_owned();
    scene.facts = facts(NEW);
    replaced(&mut scene.facts, "1.32.0");
    assert_eq!((scene.look(), scene.status().reason.as_str()), (Next::Delete(name), "OtherVersion"));
    scene.jobs.clear();
    assert_eq!((scene.reason().as_str(), scene.status().state.as_str()), ("Downgrade", "Waiting"));
    // It was rolled back.
    scene.facts = facts(NEW);
    assert_eq!(scene.reason(), "UpToDate");
    scene.facts.nodes.clear();
    assert_eq!(scene.reason(), "UpToDate");
    // A Job that has reached its version has not reached what is wanted by then.
    let mut scene = Scene::new(json!({}));
    scene.begins();
    scene.object.spec.version = "1.31.3".to_owned();
    scene.ends(Ok(()), None);
    let status = scene.status();
    assert_eq!((status.state.as_str(), status.reason.as_str()), ("Waiting", "OtherVersion"), "{status:?}");
    assert_eq!(status.history[0].reason, "Reached");
}

#[test]
fn what_was_reached_is_looked_at_now_and_then() {
    let mut scene = Scene::new(json!({}));
    scene.begins();
    scene.ends(Ok(()), None);
    scene.is_due = true;
    scene.facts = facts(NEW);
    assert_eq!(scene.reason(), "UpToDate");
    // Who does not answer now says nothing else.
    scene.facts.nodes.insert("n2".to_owned(), Node { silent: Some("it reboots".to_owned()), ..Node::default() });
    assert_eq!(scene.reason(), "UpToDate");
    // A node has joined with an older version.
    let older = facts("1.30.4").nodes.remove("n1").unwrap();
    scene.facts.nodes.insert("n2".to_owned(), older);
    scene.begins();
    // Somebody has upgraded by hand. That stays so until the next look finds something else.
    let mut scene = Scene::new(json!({}));
    scene.begins();
    scene.ends(Ok(()), None);
    scene.facts = facts(NEW);
    replaced(&mut scene.facts, "1.32.0");
    scene.is_due = true;
    assert_eq!(scene.reason(), "Downgrade");
    scene.is_due = false;
    assert_eq!(scene.reason(), "Downgrade");
}

#[test]
fn each_obstacle_has_a_word() {
    let night = Policy { approval: Some(ApprovalPolicy::EachWave), ..Policy::default() };
    let mut scene = Scene::new(json!({ "version": "one" }));
    assert_eq!(scene.reason(), "NoVersion");
    scene = Scene::new(json!({ "paused": { "who": "alice", "why": "the fair" } }));
    assert_eq!(scene.reason(), "Paused");
    scene = Scene::new(json!({}));
    scene.object.metadata.name = Some("other".to_owned());
    assert_eq!(scene.reason(), "NotTheOne");
    scene = Scene::new(json!({}));
    scene.rules = Err(Problem::PolicyMissing("nights".to_owned()));
    assert_eq!(scene.reason(), "PolicyMissing");
    scene = Scene::new(json!({}));
    scene.facts.claim = Claim::Refused("the OS of w1 is upgraded".to_owned());
    assert_eq!(scene.reason(), "Fleet");
    scene = Scene::new(json!({ "version": "1.32.0" }));
    scene.facts.target = "1.32.0".parse().unwrap();
    assert_eq!(scene.reason(), "Path");
    scene = Scene::new(json!({}));
    scene.rules = Ok(Rules::try_from(vec![night.clone()]).unwrap());
    assert_eq!(scene.reason(), "Approval");
    let plan = scene.status().plan.unwrap().to_string();
    let approval = json!({ "approval": { "plan": plan, "who": "alice", "why": "it was looked at" } });
    scene.object.spec = upgrade(approval).spec;
    scene.begins();
    // What has begun goes on, whatever policies say.
    let mut scene = Scene::new(json!({}));
    scene.rules = Ok(Rules::try_from(vec![night]).unwrap());
    replaced(&mut scene.facts, NEW);
    scene.begins();
}

#[test]
fn a_failure_is_repeated_later_and_an_image_that_came_back_only_by_a_person() {
    let mut scene = Scene::new(json!({}));
    for (times, pause) in [(1, 5), (2, 10), (3, 20), (4, 40)] {
        scene.begins();
        scene.ends(Err("out of memory".to_owned()), None);
        let failed = scene.status().failed.unwrap();
        assert_eq!((failed.reason.as_str(), failed.times), ("JobFailed", times));
        assert!(failed.message.contains("out of memory"), "{failed:?}");
        scene.now += SignedDuration::from_secs(pause - 1);
        assert_eq!(scene.reason(), "JobFailed");
        scene.now += SignedDuration::from_secs(1);
    }
    // The clock of the controller that saw it end was ahead.
    scene.begins();
    scene.ends(Err("out of memory".to_owned()), None);
    scene.now -= SignedDuration::from_hours(24);
    scene.begins();
    scene.ends(Err(String::new()), Some("CameBack"));
    scene.now += SignedDuration::from_hours(24);
    assert_eq!((scene.reason().as_str(), scene.status().state.as_str()), ("CameBack", "Failed"));
    scene.object.spec.retry = 1;
    scene.begins();
    scene.ends(Ok(()), None);
    assert_eq!((scene.status().failed, scene.status().attempt), (None, 7));
}

#[test]
fn a_job_that_is_not_wanted_any_more_is_deleted() {
    for spec in [json!({ "paused": { "who": "alice", "why": "the fair" } }), json!({ "version": "1.31.3" })] {
        let mut scene = Scene::new(json!({}));
        let name = scene.begins();
        scene.object.spec = upgrade(spec).spec;
        assert_eq!(scene.look(), Next::Delete(name));
        assert_eq!(scene.status().job, None);
        assert!(["Paused", "OtherVersion"].contains(&scene.status().reason.as_str()), "{:?}", scene.status());
    }
    // Somebody's finalizer keeps the object.
    let mut scene = Scene::new(json!({}));
    let name = scene.begins();
    scene.object.metadata.deletion_timestamp = serde_json::from_value(json!(noon())).unwrap();
    assert_eq!(scene.look(), Next::Delete(name));
    scene.jobs.clear();
    assert_eq!((scene.reason().as_str(), scene.status().job), ("Deleted", None));
    // A pause is no failure.
    let mut scene = Scene::new(json!({}));
    scene.begins();
    scene.ends(Err(String::new()), Some("Paused"));
    assert_eq!(scene.status().failed, None);
    scene.begins();
}

/// The image of a scheduler, by a digest of this digit.
fn images(digit: &str) -> Value {
    let image = format!("registry.example/kube-scheduler:v{NEW}@sha256:{}", digit.repeat(64));
    json!({ "images": { "kube-scheduler": image } })
}

#[test]
fn images_that_are_pinned_belong_to_what_is_wanted() {
    let mut scene = Scene::new(images("4"));
    assert!(scene.begins().starts_with("kubernetes-1-"));
    assert_eq!(scene.status().images, scene.object.spec.images);
    // Others are wanted: the Job ends first.
    scene.object.spec = upgrade(images("5")).spec;
    assert!(matches!(scene.look(), Next::Delete(_)));
    assert_eq!(scene.status().reason, "OtherImages");
    scene.jobs.clear();
    scene.begins();
    scene.ends(Ok(()), None);
    assert_eq!(scene.status().observed_images, scene.object.spec.images);
    scene.jobs.clear();
    assert_eq!(scene.reason(), "UpToDate");
    // The same version, by another digest.
    scene.object.spec = upgrade(images("6")).spec;
    scene.begins();
    // Only a person has an image tried again that was not well; another image is tried.
    scene.ends(Err("it ended".to_owned()), Some("CameBack"));
    scene.jobs.clear();
    assert_eq!(scene.reason(), "CameBack");
    scene.object.spec = upgrade(images("7")).spec;
    assert!(scene.begins().starts_with("kubernetes-4-"));
}

#[test]
fn images_that_cannot_be_meant_begin_nothing() {
    for (images, why) in [
        (json!({ "kube-apiservr": "x" }), "\"kube-apiservr\" is no component"),
        (json!({ "kube-apiserver": format!("registry.example/kube-apiserver:v{NEW}") }), "has no digest"),
    ] {
        let mut scene = Scene::new(json!({ "images": images }));
        assert_eq!(scene.reason(), "NoImages");
        let status = scene.status();
        assert!(status.state == "Invalid" && status.message.contains(why), "{status:?}");
    }
}

/// kube-proxy with this version, whose rollout is not over for this reason.
fn proxy(version: &str, ill: Option<&str>) -> BTreeMap<AddOn, Workload> {
    let image = Some(format!("registry.example/kube-proxy:v{version}"));
    [(AddOn::KubeProxy, Workload { image, ill: ill.map(str::to_owned), ..Workload::default() })].into()
}

#[test]
fn an_add_on_that_fails_undoes_nothing_and_its_rollout_needs_no_job() {
    let mut scene = Scene::new(json!({ "addOns": ["kube-proxy"] }));
    scene.facts.add_ons = proxy("1.30.4", None);
    scene.begins();
    let status = scene.status();
    assert_eq!(status.add_ons, ["kube-proxy"]);
    assert_eq!(status.steps.last().unwrap(), &format!("add-on kube-proxy to registry.example/kube-proxy:v{NEW}"));
    scene.ends(Err("it ended".to_owned()), Some("AddOn"));
    let status = scene.status();
    assert_eq!(
        (status.state.as_str(), status.reason.as_str(), status.history[0].reason.as_str()),
        ("Waiting", "AddOn", "AddOn")
    );
    assert_eq!(status.observed_version.as_deref(), Some(NEW), "the control plane has it");
    // Its pods are replaced one after the other: the controller looks, and makes no Job for that.
    scene.facts = Facts { add_ons: proxy(NEW, Some("2 of 3 pods have its image, and 3 are ready")), ..facts(NEW) };
    scene.now += SignedDuration::from_secs(5);
    assert_eq!(scene.reason(), "AddOn");
    assert!(scene.status().message.contains("2 of 3 pods"), "{:?}", scene.status());
    scene.facts.add_ons = proxy(NEW, None);
    assert_eq!(scene.reason(), "UpToDate");
    let status = scene.status();
    assert_eq!((status.attempt, status.failed, status.observed_add_ons), (1, None, vec!["kube-proxy".to_owned()]));
    // Another one is given. What it needs is not there: that is said, and no Job is made.
    let coredns = format!("registry.example/coredns:v1.8.0@sha256:{}", "4".repeat(64));
    let given = json!({ "addOns": ["kube-proxy", "coredns"], "images": { "coredns": coredns } });
    scene.object.spec = upgrade(given).spec;
    scene.facts.add_ons.insert(AddOn::CoreDns, Workload { pinned: Some(coredns.clone()), ..Workload::default() });
    assert_eq!(scene.reason(), "AddOn");
    assert!(scene.status().message.contains("kube-system has no Deployment coredns"), "{:?}", scene.status());
    scene.facts.add_ons.get_mut(&AddOn::CoreDns).unwrap().image = Some("registry.example/coredns:v1.7.0".to_owned());
    scene.begins();
    // Somebody takes it back: its Job ends.
    scene.object.spec = upgrade(json!({ "addOns": ["kube-proxy"] })).spec;
    assert!(matches!(scene.look(), Next::Delete(_)));
    assert_eq!(scene.status().reason, "OtherImages");
}

#[test]
fn add_ons_that_cannot_be_meant_begin_nothing() {
    for (names, why) in [(json!(["calico"]), "is no add-on"), (json!(["coredns"]), "coredns has no image")] {
        let mut scene = Scene::new(json!({ "addOns": names }));
        assert_eq!(scene.reason(), "NoImages");
        let status = scene.status();
        assert!(status.state == "Invalid" && status.message.contains(why), "{status:?}");
    }
}

fn kubelet(node: &str, pool: Option<&str>, version: &str) -> Kubelet {
    Kubelet { node: node.to_owned(), pool: pool.map(str::to_owned), version: version.to_owned() }
}

#[test]
fn kubelets_that_are_older_are_named_with_their_pools_after_the_control_plane_is_done() {
    let mut scene = Scene::new(json!({}));
    scene.begins();
    scene.ends(Ok(()), None);
    // No round has read the nodes yet.
    assert_eq!((scene.reason().as_str(), scene.status().older_kubelets.len()), ("UpToDate", 0));
    scene.kubelets = Some(vec![
        kubelet("w2", Some("workers"), "v1.30.4"),
        kubelet("w1", Some("workers"), "v1.30.4"),
        kubelet("n1", Some("control"), "v1.31.2"),
        kubelet("n2", Some("control"), "v1.31.2-eks-1"),
        kubelet("e1", None, "v1.31.1+k3s1"),
    ]);
    assert_eq!(scene.reason(), "UpToDate");
    let status = scene.status();
    let rows: Vec<_> = status.older_kubelets.iter().map(|of| (of.pool.as_deref(), &*of.version, of.count)).collect();
    assert_eq!(rows, [(None, "v1.31.1+k3s1", 1), (Some("workers"), "v1.30.4", 2)]);
    assert_eq!(status.older_kubelets[1].nodes, ["w1", "w2"]);
    let wanted = "every static pod of the control plane has 1.31.2; 3 kubelets are older, in no NodePool, workers";
    assert_eq!(status.message, wanted);
    // What another controller has found stays while this one has seen no node.
    scene.kubelets = None;
    scene.look();
    assert_eq!(scene.status(), status);
    scene.kubelets = Some(Vec::new());
    scene.look();
    assert_eq!(scene.status().message, "every static pod of the control plane has 1.31.2");
    // A new attempt looks forward.
    scene.object.status = Some(status);
    scene.object.spec.version = "1.31.3".to_owned();
    scene.facts.target = "1.31.3".parse().unwrap();
    scene.begins();
    assert!(scene.status().older_kubelets.is_empty());
}

#[test]
fn kubelets_that_lie_make_no_status_too_large() {
    let version = "1.31.2".parse().unwrap();
    let long = "v1.30.4-".to_owned() + &"x".repeat(1 << 20);
    let lies = [long.as_str(), "", "v1", "\u{1b}[2J", "99999999999.1.1"].map(|of| kubelet("n", None, of));
    let rows = older(&lies, &version);
    assert_eq!((rows.len(), rows[0].count, rows[0].version.as_str()), (1, 5, "unknown"));
    let each = |n: usize| kubelet(&format!("n{n}"), Some("p"), &format!("v1.30.{n}"));
    let rows = older(&(0..5_000).map(each).collect::<Vec<_>>(), &version);
    assert_eq!((rows.len(), rows[0].count, rows[0].version.as_str()), (1, 5_000, "several"));
    let same = |n: usize| kubelet(&format!("n{n}"), Some("p"), "v1.30.4");
    let rows = older(&(0..5_000).map(same).collect::<Vec<_>>(), &version);
    assert_eq!((rows.len(), rows[0].count, rows[0].nodes.len()), (1, 5_000, 20));
}
