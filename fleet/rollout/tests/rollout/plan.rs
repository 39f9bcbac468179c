//! Which nodes go when, and what the hash names.

use proptest::{prelude::*, sample::select};
use slipway_rollout::{
    duration::PositiveDuration,
    facts::{Facts, WindowOverride},
    int_or_percent::IntOrPercent,
    ledger::{Node, Role},
    plan::{Order, Plan},
    policy::{CanaryStep, Policy, Rules},
    preview::{Begins, preview},
    window::{Window, Zone},
};

use crate::{NEW, OLD, at, control_plane, noon, staged, worker, world};

fn rules(policy: Policy) -> Rules {
    Rules::try_from(vec![policy]).unwrap()
}

fn steps(steps: &[(IntOrPercent, u32)]) -> Vec<CanaryStep> {
    steps
        .iter()
        .map(|(nodes, minutes)| CanaryStep { nodes: *nodes, soak: PositiveDuration::minutes(*minutes) })
        .collect()
}

/// Three workers in each of two zones, and three of the control plane.
fn nodes() -> Vec<Node> {
    let workers = ["b-1", "a-1", "b-2", "a-2", "b-3", "a-3"].map(worker);
    ["b-c", "a-c", "c-c"].map(control_plane).into_iter().chain(workers).collect()
}

/// The zones of its waves.
fn zones(plan: &Plan) -> Vec<String> {
    let zone = |node: &Node| node.zone.clone().unwrap() + if node.role == Role::Worker { "" } else { "!" };
    plan.waves.iter().map(|wave| wave.nodes.iter().map(zone).collect()).collect()
}

#[test]
fn zone_after_zone_control_plane_last_own_node_very_last() {
    let careful = rules(Policy {
        steps: steps(&[(IntOrPercent::Nodes(1), 60), (IntOrPercent::Percent(50), 30)]),
        ..Policy::default()
    });
    let make = |order, own| Plan::new("pool", NEW, nodes(), &careful, order, own);
    let last = make(Order::ControlPlaneLast, None);
    assert_eq!(zones(&last), ["a", "aab", "bb", "a!b!c!"]);
    let soaks: Vec<_> = last.waves.iter().map(|wave| wave.soak).collect();
    assert_eq!(soaks, [Some(PositiveDuration::minutes(60)), Some(PositiveDuration::minutes(30)), None, None]);
    assert_eq!(zones(&make(Order::ControlPlaneFirst, None)), ["a!", "b!c!", "a", "aabbb"].map(str::to_owned));
    assert_eq!(zones(&make(Order::ControlPlaneLast, Some("uid-a-2"))), ["a", "abb", "b", "a!b!c!", "a"]);
    assert_eq!(zones(&make(Order::ControlPlaneFirst, Some("uid-a-c"))), ["b!", "c!", "aa", "abbb", "a!"]);
}

#[test]
fn a_single_node_is_a_plan() {
    let plan = Plan::new("pool", NEW, [control_plane("a-1")], &Rules::default(), Order::default(), Some("uid-a-1"));
    assert_eq!(zones(&plan), ["a!"]);
    assert!(Plan::new("pool", NEW, [], &Rules::default(), Order::default(), None).waves.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_node_once_and_the_same_plan_from_any_order(
        fleet in world::fleet(), policies in world::policies(), rotate in any::<prop::sample::Index>(), own in select(vec![None, Some("uid-a-0")])
    ) {
        let rules = Rules::try_from(policies).unwrap();
        let make = |nodes: &[Node]| Plan::new("pool", NEW, nodes.to_vec(), &rules, Order::default(), own);
        let plan = make(&fleet);
        let mut turned = fleet.clone();
        turned.rotate_left(rotate.index(fleet.len()));
        prop_assert_eq!(&plan, &make(&turned));
        prop_assert!(plan.is_whole() && plan.waves.iter().all(|wave| !wave.nodes.is_empty()));
        let mut planned: Vec<_> = plan.nodes().map(|(_, node)| node.clone()).collect();
        planned.sort_by(|a, b| a.uid.cmp(&b.uid));
        let mut all = fleet.clone();
        all.sort_by(|a, b| a.uid.cmp(&b.uid));
        prop_assert_eq!(planned, all);
    }
}

#[test]
fn the_hash_names_what_is_followed() {
    let plan = Plan::new("pool", NEW, nodes(), &Rules::default(), Order::default(), None);
    let kept: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert!(kept == plan && kept.is_whole());
    let edits: [fn(&mut Plan); 6] = [
        |plan| plan.pool = "other".to_owned(),
        |plan| plan.payload = OLD,
        |plan| plan.waves[0].nodes.swap(0, 1),
        |plan| plan.waves[0].soak = Some(PositiveDuration::minutes(1)),
        |plan| plan.waves[1].nodes.truncate(1),
        |plan| {
            let node = plan.waves[1].nodes.remove(0);
            plan.waves[0].nodes.push(node);
        },
    ];
    for (n, edit) in edits.iter().enumerate() {
        let mut edited = plan.clone();
        edit(&mut edited);
        assert!(!edited.is_whole(), "edit {n}");
    }
}

#[test]
fn a_preview_has_the_earliest_times() {
    let policy = Policy {
        max_unavailable: Some(IntOrPercent::Nodes(2)),
        windows: vec![
            Window::new(vec![], "22:00".parse().unwrap(), PositiveDuration::minutes(60), Zone::named("UTC").unwrap())
                .unwrap(),
        ],
        steps: steps(&[(IntOrPercent::Nodes(1), 30)]),
        ..Policy::default()
    };
    let nodes: Vec<Node> =
        ["a-1", "a-2", "a-3"].map(worker).into_iter().chain(["a-c", "b-c"].map(control_plane)).collect();
    let rules = rules(policy);
    let plan = Plan::new("pool", NEW, nodes.clone(), &rules, Order::default(), None);
    let observed = nodes.into_iter().map(staged).collect();
    let facts = Facts::new(plan, rules, observed);
    let preview = preview(&facts, PositiveDuration::minutes(10), noon());
    let time = |time: &str| Begins::At(at(&format!("2026-06-{time}Z")));
    // The canary; half an hour later two at once; then the control plane, one by one, of which the second comes too late.
    let expected =
        [vec![time("01T22:00")], vec![time("01T22:40"), time("01T22:40")], vec![time("01T22:50"), time("02T22:00")]];
    assert_eq!(preview.times.begins, expected);
    assert_eq!(preview.times.ends, Some(at("2026-06-02T22:10Z")));
    let report: Vec<_> = preview.blocked.iter().map(|blocked| blocked.why.to_string()).collect();
    assert_eq!(report.len(), 5);
    assert_eq!(report[0], "no window of policy \"\" is open; the next time is 2026-06-01T22:00:00Z");
    assert!(report[1].starts_with("wave 1 is not over: it waits for a-"), "{}", report[1]);
}

#[test]
fn a_preview_of_what_goes_now_waits_for_no_window_until_then() {
    let policy = Policy {
        windows: vec![
            Window::new(vec![], "22:00".parse().unwrap(), PositiveDuration::minutes(60), Zone::named("UTC").unwrap())
                .unwrap(),
        ],
        steps: steps(&[(IntOrPercent::Nodes(1), 30)]),
        ..Policy::default()
    };
    let nodes = ["a-1", "a-2", "a-3"].map(worker);
    let rules = rules(policy);
    let plan = Plan::new("pool", NEW, nodes.clone(), &rules, Order::default(), None);
    let mut facts = Facts::new(plan, rules, nodes.map(staged).to_vec());
    let begins = |facts: &Facts| preview(facts, PositiveDuration::minutes(10), noon()).times.begins.concat();
    let times = |all: [&str; 3]| all.map(|time| Begins::At(at(&format!("2026-06-01T{time}Z"))));
    facts.window_override = Some(WindowOverride { until: at("2026-06-01T12:20Z"), soak: Some(0) });
    assert_eq!(begins(&facts), times(["12:00", "12:10", "22:00"]));
    facts.window_override = Some(WindowOverride { until: at("2026-06-01T12:20Z"), soak: None });
    assert_eq!(begins(&facts), times(["12:00", "22:00", "22:10"]));
    facts.window_override = Some(WindowOverride { until: noon(), soak: Some(0) });
    assert_eq!(begins(&facts), times(["22:00", "22:40", "22:50"]));
}

#[test]
fn a_preview_of_what_never_begins_has_no_times() {
    let none = rules(Policy { max_unavailable: Some(IntOrPercent::Nodes(0)), ..Policy::default() });
    let plan = Plan::new("pool", NEW, [worker("a-1")], &none, Order::default(), None);
    let preview = preview(&Facts::new(plan, none, vec![staged(worker("a-1"))]), PositiveDuration::minutes(10), noon());
    assert_eq!((preview.times.begins, preview.times.ends), (vec![vec![Begins::Never]], None));
    let report = "maxUnavailable of a policy of pool pool is 0, so none of its nodes goes: raise it to let them go";
    assert_eq!(preview.blocked[0].why.to_string(), report);
}

#[test]
fn a_preview_of_a_rollout_that_is_half_done_has_the_times_of_the_rest() {
    let policy = Policy { steps: steps(&[(IntOrPercent::Nodes(1), 30)]), ..Policy::default() };
    let nodes: Vec<Node> = ["a-1", "a-2", "a-3"].map(worker).into();
    let rules = rules(policy);
    let plan = Plan::new("pool", NEW, nodes.clone(), &rules, Order::default(), None);
    let canary = plan.waves[0].nodes[0].uid.clone();
    let mut observed: Vec<_> = nodes.into_iter().map(staged).collect();
    let mut facts = Facts::new(plan, rules, observed.clone());
    let begins = |facts: &_| preview(facts, PositiveDuration::minutes(10), noon()).times.begins;
    let time = |minutes| Begins::At(PositiveDuration::minutes(minutes).after(noon()));
    assert_eq!(begins(&facts), [vec![Begins::At(noon())], vec![time(40), time(50)]]);
    // The canary runs it. A preview does not say since when: the rest of its soak may be nothing.
    observed
        .iter_mut()
        .filter(|observed| observed.node.uid == canary)
        .for_each(|observed| observed.report.as_mut().unwrap().runs = NEW);
    facts.nodes = observed;
    assert_eq!(begins(&facts), [vec![Begins::Already], vec![Begins::At(noon()), time(10)]]);
    let skipped = facts.plan.waves[1].nodes[0].uid.clone();
    facts.skip.insert(skipped);
    assert_eq!(begins(&facts)[1], [Begins::Already, Begins::At(noon())]);
}
