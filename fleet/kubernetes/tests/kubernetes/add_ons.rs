//! Add-ons: whose they are, when they are upgraded, and why not.

use std::collections::BTreeMap;

use slipway_kubernetes::{
    add_ons::{AddOn, Workload, named},
    blocked::Blocked,
    component::Component,
    decide::{Next, decide},
    facts::{Claim, Direction, Facts},
    plan::Plan,
};

use crate::{NEW, OLD, laws, version, world::World};

fn image(name: &str, tag: &str) -> String {
    format!("registry.example/{name}:{tag}")
}

fn pinned(name: &str, tag: &str) -> String {
    format!("{}@sha256:{}", image(name, tag), "4".repeat(64))
}

fn workload(image: String) -> Workload {
    Workload { image: Some(image), ..Workload::default() }
}

/// Both add-ons, of a control plane with this version.
fn given(of_pods: &str) -> Facts {
    let mut facts = World::new(3).facts(Direction::Forward);
    for node in facts.nodes.values_mut() {
        for (component, pod) in &mut node.pods {
            pod.image = image(component.name(), &format!("v{of_pods}"));
        }
    }
    let dns = Workload { pinned: Some(pinned("coredns", "v1.8.0")), ..workload(image("coredns", "1.7.0")) };
    let proxy = workload(image("kube-proxy", &format!("v{OLD}")));
    facts.add_ons = BTreeMap::from([(AddOn::KubeProxy, proxy), (AddOn::CoreDns, dns)]);
    facts
}

fn add_on(facts: &mut Facts, of: AddOn) -> &mut Workload {
    facts.add_ons.get_mut(&of).unwrap()
}

#[test]
fn they_are_the_last_lines_of_the_plan_and_change_its_hash() {
    let facts = given(OLD);
    let plan = Plan::new(&facts);
    assert_eq!(plan.steps.len(), 9);
    let lines = [
        format!("add-on kube-proxy to {}", image("kube-proxy", &format!("v{NEW}"))),
        format!("add-on coredns to {}", pinned("coredns", "v1.8.0")),
    ];
    assert_eq!(plan.lines()[9..], lines);
    let without = Facts { add_ons: BTreeMap::new(), ..facts.clone() };
    assert_ne!(Plan::new(&without).hash(), plan.hash());
    assert_eq!(Plan::new(&Facts { direction: Direction::Back, ..facts }).add_ons, [], "the way back is before them");
}

#[test]
fn they_come_after_completion_and_after_the_claim_one_after_the_other() {
    let mut facts = given(NEW);
    facts.nodes.get_mut("n1").unwrap().pods.get_mut(&Component::ApiServer).unwrap().kept =
        Some(image("kube-apiserver", &format!("v{OLD}")));
    facts.well_for = Some(facts.soak);
    assert_eq!(decide(&facts), Next::Complete);
    facts.nodes.get_mut("n1").unwrap().pods.get_mut(&Component::ApiServer).unwrap().kept = None;
    facts.claim = Claim::Held(7);
    assert_eq!(decide(&facts), Next::Unclaim(7), "a rollout that takes long holds up no node");
    // The fleet goes on meanwhile.
    facts.claim = Claim::Refused("the OS of w0 is upgraded".to_owned());
    let Next::AddOn(step) = decide(&facts) else { panic!() };
    assert_eq!((step.add_on, step.to.as_str()), (AddOn::KubeProxy, &*image("kube-proxy", &format!("v{NEW}"))));
    let proxy = add_on(&mut facts, AddOn::KubeProxy);
    (proxy.image, proxy.ill) = (Some(step.to), Some("1 of 3 pods have its image".to_owned()));
    assert!(matches!(decide(&facts), Next::RollsOut(AddOn::KubeProxy, _)));
    add_on(&mut facts, AddOn::KubeProxy).ill = None;
    let Next::AddOn(step) = decide(&facts) else { panic!() };
    assert_eq!((step.add_on, step.to.as_str()), (AddOn::CoreDns, &*pinned("coredns", "v1.8.0")));
    add_on(&mut facts, AddOn::CoreDns).image = Some(step.to);
    assert_eq!(decide(&facts), Next::Finished);
    facts.direction = Direction::Back;
    assert_eq!(decide(&facts), Next::Finished);
}

#[test]
fn what_cannot_be_upgraded_says_so_and_holds_up_no_other() {
    let v = |text: &str| image("kube-proxy", text);
    for (proxy, why) in [
        (Workload::default(), "kube-system has no DaemonSet kube-proxy"),
        (workload(v("latest")), "is no version"),
        (workload(v("v1.21.5")), "which is newer than 1.21.2"),
        (Workload { held: Some("its updateStrategy is OnDelete".to_owned()), ..workload(v("v1.20.2")) }, "OnDelete"),
    ] {
        let mut facts = given(NEW);
        facts.add_ons.insert(AddOn::KubeProxy, proxy);
        let Next::AddOn(step) = decide(&facts) else { panic!("{why}") };
        assert_eq!(step.add_on, AddOn::CoreDns);
        add_on(&mut facts, AddOn::CoreDns).image = Some(step.to);
        let Next::Blocked(blocked @ Blocked::AddOn { .. }) = decide(&facts) else { panic!("{why}") };
        assert!(blocked.word() == "AddOn" && blocked.to_string().contains(why), "{blocked}");
        assert!(blocked.to_string().starts_with("the control plane has its version"), "{blocked}");
    }
}

#[test]
fn a_person_alone_moves_one_to_another_repository() {
    let mut facts = given(NEW);
    add_on(&mut facts, AddOn::KubeProxy).pinned = Some("elsewhere.example/kube-proxy:v1.21.2".to_owned());
    assert!(matches!(decide(&facts), Next::AddOn(step) if step.to.starts_with("elsewhere.example/")));
    facts.claim = Claim::Free;
    assert!(matches!(decide(&facts), Next::AddOn(step) if step.add_on == AddOn::CoreDns));
    let why = facts.add_ons[&AddOn::KubeProxy].obstacle(AddOn::KubeProxy, &version(NEW), true).unwrap();
    assert!(why.contains("is in another repository"), "{why}");
}

#[test]
fn an_image_of_the_version_stays_and_a_pinned_one_is_written_exactly_so() {
    let mut facts = given(NEW);
    let there = pinned("kube-proxy", &format!("v{NEW}"));
    add_on(&mut facts, AddOn::KubeProxy).image = Some(there.clone());
    assert_eq!(Plan::new(&facts).add_ons[0].add_on, AddOn::CoreDns);
    add_on(&mut facts, AddOn::KubeProxy).pinned = Some(there.replace('4', "5"));
    assert_eq!(Plan::new(&facts).add_ons[0].to, there.replace('4', "5"));
}

#[test]
fn a_kube_proxy_that_is_newer_than_an_api_server_breaks_a_law() {
    let mut facts = given(OLD);
    assert_eq!(laws::broken(&facts), Vec::<String>::new());
    for wrong in [NEW, "1.16.9"] {
        add_on(&mut facts, AddOn::KubeProxy).image = Some(image("kube-proxy", &format!("v{wrong}")));
        assert!(laws::broken(&facts)[0].contains("kube-proxy"), "{wrong}");
    }
}

#[test]
fn names_that_cannot_be_meant() {
    let version = version(NEW);
    let refused = |add_ons: &[&str], images: &[(&str, String)]| {
        named(add_ons.iter().copied(), images.iter().cloned(), &version).unwrap_err()
    };
    let (proxy, dns) = (("kube-proxy", pinned("kube-proxy", "v1.21.2")), ("coredns", pinned("coredns", "1.8.0")));
    for (add_ons, images, why) in [
        (&["calico"][..], &[][..], "\"calico\" is no add-on"),
        (&["coredns"], &[], "coredns has no image: its version does not follow"),
        (&[], std::slice::from_ref(&proxy), "is not named as an add-on"),
        (&["kube-proxy"], &[("kube-proxy", pinned("kube-proxy", "v1.21.1"))], "is of 1.21.1, and 1.21.2 is wanted"),
        (&["kube-proxy"], &[proxy.clone(), proxy.clone()], "has two images"),
        (
            &["coredns"],
            &[("coredns", image("coredns", "1.8.0"))],
            "has no digest: write it as registry.example/coredns:TAG@",
        ),
        (&["coredns"], &[("coredns", format!("r.example/coredns@sha256:{}", "4".repeat(64)))], "has no tag"),
        (&[], &[("calico", image("calico", "v1"))], "is no component"),
    ] {
        let said = refused(add_ons, images);
        assert!(said.contains(why), "{said}");
    }
    let scheduler = ("kube-scheduler", pinned("kube-scheduler", "v1.21.2"));
    let (images, given) = named(["kube-proxy", "coredns"], [scheduler, dns.clone()], &version).unwrap();
    assert!(images.of(Component::Scheduler).is_some());
    assert_eq!(given, BTreeMap::from([(AddOn::KubeProxy, None), (AddOn::CoreDns, Some(dns.1))]));
}
