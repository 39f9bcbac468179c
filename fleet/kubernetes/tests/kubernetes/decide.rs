//! Which step comes next, and why none does.

use slipway_kubernetes::{
    blocked::Blocked,
    component::Component,
    decide::{Next, decide},
    facts::{Claim, Direction, Facts, Gate, Pull, PullState, Snapshot},
    images::Images,
    plan::Plan,
};

use crate::{NEW, OLD, laws, version, world::World};

fn three() -> Facts {
    World::new(3).facts(Direction::Forward)
}

fn why(facts: &Facts) -> Blocked {
    match decide(facts) {
        Next::Blocked(blocked) => blocked,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_api_servers_then_all_controller_managers_then_all_schedulers() {
    let plan = Plan::new(&three());
    let order: Vec<_> = plan.steps.iter().map(|step| (step.component, step.node.as_str())).collect();
    let wanted: Vec<_> = Component::ALL.iter().flat_map(|of| ["n0", "n1", "n2"].map(|node| (*of, node))).collect();
    assert_eq!(order, wanted);
    assert_eq!(decide(&three()), Next::Do(plan.steps[0].clone()));
    let text = plan.to_string();
    assert!(text.starts_with("  1. n0: kube-apiserver to registry.example/kube-apiserver:v1.21.2\n"), "{text}");
    assert!(text.ends_with(&format!("plan {}", plan.hash())), "{text}");
    let other = Facts { target: version("1.21.3"), ..three() };
    assert_ne!(Plan::new(&other).hash(), plan.hash());
}

#[test]
fn each_obstacle_has_a_word_and_a_sentence() {
    type Case = (&'static str, fn(&mut Facts));
    let cases: [Case; 14] = [
        ("NoControlPlane", |facts| facts.nodes.clear()),
        ("Silent", |facts| facts.nodes.get_mut("n1").unwrap().silent = Some("no route".to_owned())),
        ("Busy", |facts| facts.nodes.get_mut("n1").unwrap().busy = Some("it upgrades its OS".to_owned())),
        ("NoPod", |facts| _ = facts.nodes.get_mut("n1").unwrap().pods.remove(&Component::Scheduler)),
        ("NoVersion", |facts| static_pod(facts).image = "registry.example/kube-apiserver:latest".to_owned()),
        ("Downgrade", |facts| facts.target = version("1.20.1")),
        ("Path", |facts| facts.target = version("1.22.0")),
        ("KubeletSkew", |facts| _ = facts.kubelets.insert("w0".to_owned(), "v1.17.9".to_owned())),
        ("Uncompleted", |facts| static_pod(facts).kept = Some("registry.example/kube-apiserver:v1.19.0".to_owned())),
        ("NoSnapshot", |facts| {
            facts.needs_snapshot = true;
            facts.nodes.values_mut().for_each(|node| node.makes_snapshots = false);
        }),
        ("NoSnapshot", |facts| {
            facts.needs_snapshot = true;
            facts.nodes.get_mut("n1").unwrap().snapshot = Some(Snapshot::Failed("no room".to_owned()));
        }),
        ("Repository", |facts| {
            facts.claim = Claim::Free;
            facts.images = pins(&format!("elsewhere.example/kube-apiserver:v{NEW}@sha256:{}", "4".repeat(64)));
        }),
        ("NoImage", |facts| {
            facts.pre_pull = true;
            let images = Plan::new(facts).pulls["n0"].clone();
            let state = PullState::Failed("registry.example: manifest unknown".to_owned());
            facts.nodes.get_mut("n0").unwrap().pull = Some(Pull { images, state });
        }),
        ("Gate", |facts| facts.gates.push(Gate { name: "etcd".to_owned(), closed: Some("NOSPACE".to_owned()) })),
    ];
    for (word, obstacle) in cases {
        let mut facts = three();
        obstacle(&mut facts);
        let blocked = why(&facts);
        assert_eq!(blocked.word(), word);
        assert!(blocked.to_string().len() > 8, "{blocked}");
    }
    let mut facts = three();
    static_pod(&mut facts).came_back = Some("it did not start".to_owned());
    assert_eq!(why(&facts).word(), "CameBack");
}

fn static_pod(facts: &mut Facts) -> &mut slipway_kubernetes::facts::StaticPod {
    facts.nodes.get_mut("n0").unwrap().pods.get_mut(&Component::ApiServer).unwrap()
}

#[test]
fn gates_count_before_anything_is_touched_and_hold_up_neither_the_rest_nor_the_way_back() {
    let mut facts = three();
    facts.gates.push(Gate { name: "etcd".to_owned(), closed: Some("NOSPACE".to_owned()) });
    let pod = static_pod(&mut facts);
    pod.kept = Some(pod.image.clone());
    pod.image = format!("registry.example/kube-apiserver:v{NEW}");
    assert!(matches!(decide(&facts), Next::Do(step) if step.node == "n1"));
    facts.direction = Direction::Back;
    assert!(matches!(decide(&facts), Next::Do(step) if step.node == "n0" && step.to.ends_with("v1.20.2")));
}

#[test]
fn a_snapshot_of_etcd_comes_before_the_first_step_and_before_no_other() {
    let mut facts = Facts { needs_snapshot: true, ..three() };
    facts.nodes.get_mut("n0").unwrap().makes_snapshots = false;
    assert_eq!(decide(&facts), Next::Snapshot("n1".to_owned()));
    let mut says = |snapshot| {
        facts.nodes.get_mut("n1").unwrap().snapshot = Some(snapshot);
        decide(&facts)
    };
    assert!(matches!(says(Snapshot::UnderWay), Next::Wait(_)));
    assert!(matches!(says(Snapshot::Made), Next::Do(step) if step.node == "n0"));
    facts.nodes.get_mut("n1").unwrap().snapshot = None;
    let pod = static_pod(&mut facts);
    pod.kept = Some(pod.image.clone());
    pod.image = format!("registry.example/kube-apiserver:v{NEW}");
    assert!(matches!(decide(&facts), Next::Do(step) if step.node == "n1"));
}

#[test]
fn the_next_one_waits_for_all_to_be_well() {
    for component in Component::ALL {
        let mut facts = three();
        facts.nodes.get_mut("n2").unwrap().pods.get_mut(&component).unwrap().ill = Some("it starts".to_owned());
        assert_eq!(decide(&facts), Next::Wait(format!("n2: {component}: it starts")));
    }
}

#[test]
fn who_goes_back_begins_with_what_is_not_well() {
    let mut facts = Facts { direction: Direction::Back, ..three() };
    for node in facts.nodes.values_mut() {
        let pod = node.pods.get_mut(&Component::ApiServer).unwrap();
        pod.kept = Some(pod.image.clone());
        pod.image = format!("registry.example/kube-apiserver:v{NEW}");
    }
    assert!(matches!(decide(&facts), Next::Do(step) if step.node == "n2"), "the last one is the first");
    static_pod(&mut facts).ill = Some("it does not start".to_owned());
    assert!(matches!(decide(&facts), Next::Do(step) if step.node == "n0"));
    facts.kubelets.insert("w0".to_owned(), format!("v{NEW}"));
    assert_eq!(why(&facts).word(), "KubeletSkew", "its kubelet would be newer than the API servers");
}

fn pins(image: &str) -> Images {
    Images::new([("kube-apiserver", image)], &version(NEW)).unwrap()
}

#[test]
fn what_is_pinned_is_written_exactly_so_and_shown_and_changes_the_hash() {
    let image = format!("registry.example/kube-apiserver:v{NEW}@sha256:{}", "4".repeat(64));
    let mut facts = Facts { images: pins(&image), ..three() };
    let plan = Plan::new(&facts);
    assert_eq!(plan.steps[2].to, image);
    assert!(plan.steps[3].to.ends_with(&format!("kube-controller-manager:v{NEW}")), "it follows from the version");
    assert!(plan.to_string().starts_with(&format!("  pinned: kube-apiserver {image}\n  1. n0: ")), "{plan}");
    let other = Facts { images: pins(&image.replace('4', "5")), ..facts.clone() };
    assert_ne!(Plan::new(&other).hash(), plan.hash());
    // A pod that has the version, and another image, is not done.
    static_pod(&mut facts).image = format!("registry.example/kube-apiserver:v{NEW}");
    assert_eq!(Plan::new(&facts).steps[0].to, image);
    static_pod(&mut facts).kept = Some(format!("registry.example/kube-apiserver:v{OLD}"));
    assert_eq!(why(&facts).word(), "Uncompleted", "its way back would be lost");
    static_pod(&mut facts).image = image;
    assert_eq!(Plan::new(&facts).steps[0].node, "n1");
}

#[test]
fn a_person_alone_moves_to_another_repository() {
    let image = format!("elsewhere.example:5000/kube-apiserver:v{NEW}@sha256:{}", "4".repeat(64));
    let mut facts = Facts { images: pins(&image), ..three() };
    assert!(matches!(decide(&facts), Next::Do(step) if step.to == image), "nobody's token is needed");
    facts.claim = Claim::Held(3);
    assert_eq!(why(&facts).word(), "Repository");
}

#[test]
fn images_that_cannot_be_meant() {
    let refused = |component, image: &str| Images::new([(component, image)], &version(NEW)).unwrap_err();
    let (digest, long) = (format!("@sha256:{}", "4".repeat(64)), "x".repeat(1024));
    for (image, why) in [
        (format!("registry.example/kube-apiserver:v{NEW}"), "has no digest"),
        (format!("registry.example/kube-apiserver:v{NEW}@sha256:44"), "has a digest that is none"),
        (format!("registry.example/kube-apiserver:v{NEW}@sha512:{}", "4".repeat(64)), "has a digest that is none"),
        (format!("registry.example/kube-apiserver:v{NEW}@sha256:{}", "A".repeat(64)), "has a digest that is none"),
        (format!("registry.example/kube-apiserver:v1.21.1{digest}"), "is of 1.21.1, and 1.21.2 is wanted"),
        (format!("registry.example:5000/kube-apiserver{digest}"), "has no version"),
        (format!("registry.example/kube-apiserver:{NEW}{digest}"), "has no v before"),
        (format!("registry.example/a b:v{NEW}{digest}"), "is no reference"),
        (format!("{long}:v{NEW}{digest}"), "is no reference"),
        (String::new(), "is no reference"),
    ] {
        let said = refused("kube-apiserver", &image);
        assert!(said.contains(why) && said.contains("write it as registry.example/kube-apiserver:v1.21.2@"), "{said}");
    }
    assert!(refused("kube-proxy", "x").contains("is no component"));
    let one = ("kube-scheduler", format!("registry.example/kube-scheduler:v{NEW}{digest}"));
    assert!(Images::new([one.clone(), one], &version(NEW)).unwrap_err().contains("has two images"));
}

#[test]
fn every_node_has_its_images_before_the_snapshot_and_the_first_step() {
    let mut facts = Facts { pre_pull: true, needs_snapshot: true, ..three() };
    let images = Plan::new(&facts).pulls["n0"].clone();
    assert_eq!(images.len(), Component::ALL.len());
    let says = |facts: &mut Facts, node: &str, state| {
        let pull = Some(Pull { images: images.clone(), state });
        facts.nodes.get_mut(node).unwrap().pull = pull;
    };
    for node in ["n0", "n1", "n2"] {
        assert_eq!(decide(&facts), Next::Pull(node.to_owned(), images.clone()), "they pull at the same time");
        says(&mut facts, node, PullState::UnderWay);
    }
    for node in ["n0", "n1", "n2"] {
        assert!(matches!(decide(&facts), Next::Wait(why) if why.starts_with(node)));
        says(&mut facts, node, PullState::Done);
    }
    assert_eq!(decide(&facts), Next::Snapshot("n0".to_owned()));
    // A manifest was changed meanwhile: other images are needed.
    static_pod(&mut facts).image = "mirror.example/kube-apiserver:v1.20.2".to_owned();
    assert!(matches!(decide(&facts), Next::Pull(node, _) if node == "n0"));
    assert_eq!(Plan::new(&facts).lines()[0], "n0, n1, n2: the images below are pulled");
    // What has begun goes on, and who goes back waits for nothing.
    let pod = static_pod(&mut facts);
    pod.kept = Some(pod.image.replace("1.20.2", "1.20.1"));
    pod.image = pod.image.replace("1.20.2", NEW);
    assert!(matches!(decide(&facts), Next::Do(step) if step.node == "n1"));
    facts.direction = Direction::Back;
    assert!(matches!(decide(&facts), Next::Do(_)));
}

#[test]
fn servers_emulate_their_older_version_until_all_was_well_and_then_soak_again() {
    let mut facts = Facts { emulate: true, ..three() };
    let plan = Plan::new(&facts);
    assert_eq!((plan.steps.len(), plan.steps[0].emulates), (18, Some(version(OLD).minor())));
    let text = plan.to_string();
    assert!(
        text.contains("  9. n2: kube-scheduler to registry.example/kube-scheduler:v1.21.2, which emulates 1.20\n"),
        "{text}"
    );
    assert!(text.contains(" 10. n0: kube-apiserver emulates no older version any more\n"), "{text}");
    assert!(text.contains(" 18. n2: kube-scheduler emulates no older version any more\n"), "{text}");
    assert_ne!(Plan::new(&three()).hash(), plan.hash(), "people agree to it");
    let patch = Facts { target: version("1.20.9"), ..facts };
    assert_eq!(Plan::new(&patch).steps.len(), 9, "within a minor version there is nothing to emulate");
    facts = Facts { emulate: true, ..emulating() };
    facts.well_for = Some(5);
    assert!(matches!(decide(&facts), Next::Wait(why) if why.starts_with("soaks: ")));
    facts.well_for = Some(6);
    let Next::Do(step) = decide(&facts) else { panic!() };
    assert!(step.ends_emulation() && step.component == Component::ApiServer && step.node == "n0");
    static_pod(&mut facts).emulates = None;
    // It is replaced, so nothing has been well for long. It ends everywhere, once it has begun.
    facts.well_for = None;
    assert!(matches!(decide(&facts), Next::Do(step) if step.node == "n1" && step.ends_emulation()));
    static_pod(&mut facts).ill = Some("it starts".to_owned());
    assert!(matches!(decide(&facts), Next::Wait(why) if why.contains("it starts")), "each waits for all");
    static_pod(&mut facts).ill = None;
    let mut back = Facts { direction: Direction::Back, ..facts.clone() };
    back.well_for = None;
    assert!(
        matches!(decide(&back), Next::Do(step) if step.component == Component::Scheduler && step.to.ends_with(OLD))
    );
    for pod in facts.nodes.values_mut().flat_map(|node| node.pods.values_mut()) {
        pod.emulates = None;
    }
    facts.well_for = Some(5);
    assert!(matches!(decide(&facts), Next::Wait(why) if why.starts_with("soaks: ")), "the new behaviour soaks, too");
    facts.well_for = Some(6);
    assert_eq!(decide(&facts), Next::Complete);
}

/// Every pod has the target, and emulates.
fn emulating() -> Facts {
    let mut facts = three();
    for node in facts.nodes.values_mut() {
        for (component, pod) in &mut node.pods {
            pod.kept = Some(pod.image.clone());
            pod.image = format!("registry.example/{component}:v{NEW}");
            pod.emulates = Some(version(OLD).minor());
        }
    }
    facts
}

#[test]
fn a_run_goes_on_with_an_emulation_that_another_one_has_begun() {
    let mut facts = emulating();
    let scheduler = facts.nodes.get_mut("n2").unwrap().pods.get_mut(&Component::Scheduler).unwrap();
    (scheduler.image, scheduler.kept, scheduler.emulates) = (scheduler.kept.take().unwrap(), None, None);
    assert!(!facts.emulate, "it was not told to");
    let Next::Do(step) = decide(&facts) else { panic!() };
    assert_eq!((step.component, step.emulates), (Component::Scheduler, Some(version(OLD).minor())));
}

/// A pod whose patch or digest alone was replaced never emulated, and is no reason to end it elsewhere.
#[test]
fn a_pod_of_the_targets_minor_version_ends_no_emulation() {
    let mut facts = emulating();
    let pod = static_pod(&mut facts);
    (pod.kept, pod.emulates) = (Some("registry.example/kube-apiserver:v1.21.0".to_owned()), None);
    (facts.soak, facts.well_for) = (6, Some(5));
    assert!(matches!(decide(&facts), Next::Wait(why) if why.starts_with("soaks: ")));
    facts.well_for = Some(6);
    assert!(matches!(decide(&facts), Next::Do(step) if step.ends_emulation()));
}

#[test]
fn a_controller_that_behaves_newer_than_an_api_server_breaks_a_law() {
    let mut facts = emulating();
    assert_eq!(laws::broken(&facts), Vec::<String>::new());
    facts.nodes.get_mut("n1").unwrap().pods.get_mut(&Component::Scheduler).unwrap().emulates = None;
    assert!(laws::broken(&facts)[0].contains("kube-scheduler behaves like 1.21"));
    facts.nodes.values_mut().for_each(|node| node.pods.get_mut(&Component::ApiServer).unwrap().emulates = None);
    assert_eq!(laws::broken(&facts), Vec::<String>::new());
}
