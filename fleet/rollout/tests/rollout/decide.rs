//! The actions of decisions, and the reasons against more: each reason once.

use jiff::{Timestamp, ToSpan};
use slipway_rollout::{
    decide::{Action, Decision, decide},
    duration::PositiveDuration,
    facts::{Evidence, Facts, NodeReport, ObservedNode, RollbackState},
    int_or_percent::IntOrPercent,
    ledger::{Node, Proof},
    plan::{Order, Plan},
    policy::{CanaryStep, Policy, Rules},
    window::{Window, Zone},
};

use crate::{NEW, OLD, control_plane, failed, limits, noon, staged, worker};

/// A rollout to these nodes, all of which are staged.
pub fn rollout(nodes: &[Node], policy: Policy) -> Facts {
    let rules = Rules::try_from(vec![policy]).unwrap();
    let plan = Plan::new("pool", NEW, nodes.to_vec(), &rules, Order::default(), None);
    // As the plan has them, so that tests can speak of the first.
    let observed = plan.nodes().map(|(_, node)| staged(node.clone())).collect();
    Facts::new(plan, rules, observed)
}

/// Four workers of one zone.
pub fn four(policy: Policy) -> Facts {
    rollout(&["a-1", "a-2", "a-3", "a-4"].map(worker), policy)
}

pub fn two_at_once() -> Policy {
    Policy { max_unavailable: Some(IntOrPercent::Nodes(2)), ..Policy::default() }
}

pub fn canary() -> Policy {
    let steps = vec![CanaryStep { nodes: IntOrPercent::Nodes(1), soak: PositiveDuration::minutes(60) }];
    Policy { steps, failure_budget: Some(IntOrPercent::Nodes(2)), ..two_at_once() }
}

pub fn report(facts: &mut Facts, n: usize) -> &mut NodeReport {
    facts.nodes[n].report.as_mut().unwrap()
}

pub fn name(facts: &Facts, n: usize) -> String {
    facts.nodes[n].node.name.clone()
}

/// Node `n` runs the payload, and is well since noon.
pub fn arrive(facts: &mut Facts, n: usize) {
    report(facts, n).runs = NEW;
}

/// Node `n` has not been well for as long as a canary may be so.
pub fn fall_ill(facts: &mut Facts, n: usize) {
    let report = report(facts, n);
    (report.well, report.since) = (false, noon() - 2.minutes());
}

/// Node `n` holds a grant. Its token.
pub fn hold(facts: &mut Facts, n: usize) -> u64 {
    let (ledger, token) = facts.ledger.grant(&facts.nodes[n].node, &limits(1000, 999), noon()).unwrap();
    facts.ledger = ledger;
    token
}

pub fn look(facts: &Facts) -> Decision {
    decide(facts, noon())
}

/// The places of the nodes that are granted, as they were seen.
pub fn granted(facts: &Facts) -> Vec<usize> {
    let place = |node: &Node| facts.nodes.iter().position(|observed| observed.node == *node).unwrap();
    let granted = |step: &Action| if let Action::Grant { node, .. } = step { Some(place(node)) } else { None };
    look(facts).steps.iter().filter_map(granted).collect()
}

/// Why node `n` does not go.
pub fn why(facts: &Facts, n: usize) -> String {
    let uid = &facts.nodes[n].node.uid;
    let decision = look(facts);
    decision.blocked.iter().find(|blocked| blocked.node.uid == *uid).map_or_else(String::new, |of| of.why.to_string())
}

#[test]
fn nobody_goes_before_all_that_answer_are_staged() {
    let mut fleet = four(two_at_once());
    report(&mut fleet, 3).staged = None;
    let stage = Action::Stage { uid: fleet.nodes[3].node.uid.clone(), payload: NEW };
    assert_eq!(look(&fleet).steps, [stage]);
    assert_eq!(why(&fleet, 0), format!("1 nodes are not staged yet, {} among them", name(&fleet, 3)));
    assert_eq!(why(&fleet, 3), "the payload is being written into its other slot");
    // One that does not answer is not waited for, but counts as unavailable.
    fleet.nodes[3].report = None;
    assert_eq!(granted(&fleet), [0]);
    assert_eq!(why(&fleet, 3), "it does not answer");
    // It can be staged at any time.
    let mut closed = four(outside());
    report(&mut closed, 0).staged = Some(OLD);
    assert!(matches!(look(&closed).steps[..], [Action::Stage { .. }]));
}

#[test]
fn the_first_of_the_plan_go_and_the_others_wait_for_them() {
    let fleet = four(two_at_once());
    assert_eq!(granted(&fleet), [0, 1]);
    let mut out = [name(&fleet, 0), name(&fleet, 1)];
    out.sort();
    let report = format!("2 of the 4 nodes of pool pool may be unavailable at once, and these are: {}", out.join(", "));
    assert_eq!(why(&fleet, 2), report);
    assert_eq!(why(&fleet, 3), format!("{} is before it, and cannot go yet", name(&fleet, 2)));
    assert_eq!(why(&fleet, 0), "it is granted now");
}

pub fn outside() -> Policy {
    let zone = Zone::named("UTC").unwrap();
    let window = Window::new(vec![], "12:01".parse().unwrap(), PositiveDuration::minutes(60), zone).unwrap();
    Policy { name: "late".to_owned(), windows: vec![window], ..two_at_once() }
}

#[test]
fn outside_of_a_window_nobody_begins_also_not_for_the_second_time() {
    let mut fleet = four(outside());
    assert_eq!(look(&fleet).steps, []);
    let report = "no window of policy \"late\" is open; the next time is 2026-06-01T12:01:00Z";
    assert_eq!(why(&fleet, 0), report);
    // It was granted while the window was open, and the request was lost.
    let token = hold(&mut fleet, 0);
    assert_eq!(look(&fleet).steps, []);
    assert_eq!(why(&fleet, 0), report);
    let begin = Action::Begin { uid: fleet.nodes[0].node.uid.clone(), token, payload: NEW };
    let later = decide(&fleet, noon() + 1.minutes());
    assert!(later.steps.contains(&begin));
    assert_eq!(later.limits.until, Some(noon() + 61.minutes()));
}

#[test]
fn a_node_with_a_grant_is_asked_until_it_obeys_and_freed_when_it_is_well() {
    let mut fleet = four(two_at_once());
    let token = hold(&mut fleet, 0);
    let uid = fleet.nodes[0].node.uid.clone();
    assert!(look(&fleet).steps.contains(&Action::Begin { uid: uid.clone(), token, payload: NEW }));
    assert_eq!(why(&fleet, 0), "it has the grant 1, and is asked to begin");
    (report(&mut fleet, 0).token, report(&mut fleet, 0).busy) = (token, true);
    assert_eq!(why(&fleet, 0), "it is being upgraded, with the grant 1");
    assert_eq!(granted(&fleet), [1]);
    fleet.nodes[0].report = None;
    assert!(why(&fleet, 0).starts_with("it does not answer, and holds the grant 1, which stays in use"));
    assert_eq!(granted(&fleet), [1]);
    // Back, and ill; then well.
    let ill = NodeReport {
        runs: NEW,
        staged: None,
        well: false,
        since: noon(),
        busy: false,
        token,
        failed: None,
        rollback: RollbackState::Available,
        other_kubelet: None,
    };
    fleet.nodes[0].report = Some(ill);
    assert_eq!(granted(&fleet), [1]);
    report(&mut fleet, 0).well = true;
    assert_eq!(look(&fleet).steps[0], Action::Free { uid, proof: Proof::Well { token } });
    assert_eq!((why(&fleet, 0), granted(&fleet)), (String::new(), vec![1, 2]));
    // It obeyed a later one: the ledger was edited.
    report(&mut fleet, 0).token = 7;
    assert!(why(&fleet, 0).starts_with("it holds the grant 1, and says that it obeyed the later one 7"));
    assert_eq!(granted(&fleet), [1]);
}

#[test]
fn absence_and_a_persons_word_free_what_the_ledger_lets_them() {
    let mut fleet = rollout(&[worker("a-1"), control_plane("b-1")], two_at_once());
    hold(&mut fleet, 0);
    hold(&mut fleet, 1);
    let gone: Vec<ObservedNode> = std::mem::take(&mut fleet.nodes);
    let proof = |n: usize, proof: Proof| Evidence { uid: gone[n].node.uid.clone(), proof };
    fleet.evidence = vec![proof(0, Proof::Gone { member_gone: false }), proof(1, Proof::Gone { member_gone: false })];
    let decision = look(&fleet);
    assert!(matches!(&decision.steps[..], [Action::Free { uid, .. }] if uid == "uid-a-1"));
    let report = "its Node is gone, and it holds the grant 2 until that is proven, for etcd's member, too";
    assert_eq!(decision.blocked[0].why.to_string(), report);
    assert!(!decision.finished);
    fleet.evidence[1] = proof(1, Proof::Word { who: "eve".to_owned(), why: "it burnt".to_owned() });
    let decision = look(&fleet);
    assert_eq!((decision.steps.len(), decision.blocked.len(), decision.finished), (2, 0, true));
}

#[test]
fn the_others_wait_until_the_canary_has_been_well_for_long_enough() {
    let mut fleet = four(canary());
    assert_eq!(granted(&fleet), [0]);
    assert_eq!(why(&fleet, 1), format!("wave 1 is not over: it waits for {}", name(&fleet, 0)));
    arrive(&mut fleet, 0);
    let decision = look(&fleet);
    assert_eq!((decision.steps.len(), decision.passed, decision.soaks), (0, 0, Some(noon() + 1.hours())));
    assert_eq!(why(&fleet, 1), "wave 1 must be well until 2026-06-01T13:00:00Z");
    fleet.soaking_since = decision.soaking_since;
    let decision = decide(&fleet, noon() + 1.hours());
    assert_eq!((decision.steps.len(), decision.passed, decision.soaks), (2, 1, None));
    // A wave that is over stays so; its nodes count as unavailable if they are ill.
    fleet.passed = 1;
    report(&mut fleet, 0).well = false;
    assert_eq!(granted(&fleet), [1]);
    assert_eq!(why(&fleet, 0), "it runs the payload, and is not well");
}

#[test]
fn a_bad_canary_denies_the_payload_and_stops_everything() {
    for is_ill in [false, true] {
        let mut fleet = four(canary());
        hold(&mut fleet, 1);
        let what = if is_ill {
            arrive(&mut fleet, 0);
            fall_ill(&mut fleet, 0);
            format!("the canary {} runs it, and is not well", name(&fleet, 0))
        } else {
            report(&mut fleet, 0).failed = failed("no boot");
            format!("the canary {} failed: no boot", name(&fleet, 0))
        };
        let (deny, pause) = (Action::Deny { payload: NEW, why: what.clone() }, Action::Pause { why: what.clone() });
        assert_eq!(look(&fleet).steps, [deny, pause]);
        // The one that was granted is not asked to begin with it.
        assert_eq!(why(&fleet, 1), format!("the payload is denied: {what}"));
        (fleet.denied, fleet.stopped) = (Some(what.clone()), Some(what));
        assert_eq!(look(&fleet).steps, []);
        // An upgrade that has begun ends, and gives its grant back.
        report(&mut fleet, 1).token = 1;
        assert!(matches!(look(&fleet).steps[..], [Action::Free { .. }]));
    }
}

#[test]
fn all_nodes_of_a_step_are_canaries_also_those_of_another_role() {
    let nodes =
        [control_plane("a-c"), control_plane("b-c"), worker("a-1"), worker("a-2"), worker("a-3"), worker("a-4")];
    let steps = vec![CanaryStep { nodes: IntOrPercent::Nodes(3), soak: PositiveDuration::minutes(60) }];
    let policy = Policy { steps, failure_budget: Some(IntOrPercent::Nodes(3)), ..two_at_once() };
    let rules = Rules::try_from(vec![policy]).unwrap();
    let plan = Plan::new("pool", NEW, nodes.to_vec(), &rules, Order::ControlPlaneFirst, None);
    // Two of the control plane; the worker that fills the step, with its soak; the others.
    assert_eq!(plan.waves.iter().map(|wave| wave.nodes.len()).collect::<Vec<_>>(), [2, 1, 3]);
    let observed = plan.nodes().map(|(_, node)| staged(node.clone())).collect();
    for is_ill in [false, true] {
        let mut fleet = Facts::new(plan.clone(), rules.clone(), Vec::clone(&observed));
        (0..3).for_each(|n| arrive(&mut fleet, n));
        fleet.passed = 1;
        if is_ill {
            fall_ill(&mut fleet, 0);
        } else {
            report(&mut fleet, 0).runs = OLD;
            report(&mut fleet, 0).failed = failed("no boot");
        }
        assert!(look(&fleet).steps.iter().any(|step| matches!(step, Action::Deny { .. })), "{:?}", look(&fleet).steps);
        // Their step is over, and soaked: later they are nodes like others.
        fleet.passed = 2;
        let denies = look(&fleet).steps.iter().any(|step| matches!(step, Action::Deny { .. }));
        assert_eq!(denies, !is_ill);
    }
    // The soak is that of all of them: it does not end while one does not answer.
    let mut fleet = Facts::new(plan, rules, observed);
    (0..3).for_each(|n| arrive(&mut fleet, n));
    fleet.passed = 1;
    assert!(look(&fleet).soaks.is_some());
    fleet.nodes[0].report = None;
    let decision = look(&fleet);
    assert_eq!((decision.passed, decision.soaks), (1, None));
    assert_eq!(why(&fleet, 3), format!("wave 1 is not over: it waits for {}", name(&fleet, 0)));
}

/// A canary may start again and again. Then it is never seen ill, and never well for long.
#[test]
fn a_canary_that_does_not_stay_well_is_named_and_pauses_the_rollout_at_last() {
    let mut fleet = four(canary());
    let (canary, mut now) = (name(&fleet, 0), noon());
    let look = |fleet: &mut Facts, now: Timestamp| {
        let decision = decide(fleet, now);
        (fleet.soaking_since, fleet.interruption) = (decision.soaking_since, decision.interruption.clone());
        let why = decision.blocked.iter().find(|of| of.node.name != canary).map(|of| of.why.to_string());
        (decision.steps, why.unwrap())
    };
    arrive(&mut fleet, 0);
    look(&mut fleet, now);
    for times in ["once", "2 times", "3 times", "4 times"] {
        now += 20.minutes();
        let well = fleet.nodes[0].report.take();
        // It counts once a minute, whatever controllers see of it.
        for after in [0, 30] {
            let (steps, why) = look(&mut fleet, now + after.seconds());
            assert_eq!((steps, why), (vec![], format!("wave 1 is not over: it waits for {canary}")));
            fleet.nodes[0].report = well.clone();
            look(&mut fleet, now + after.seconds());
            fleet.nodes[0].report = None;
        }
        fleet.nodes[0].report = well;
        report(&mut fleet, 0).since = now;
        let (steps, why) = look(&mut fleet, now + 30.seconds());
        let until = now + 1.hours() + 30.seconds();
        let anew = format!("that began anew {times}: {canary} was not seen well at {now}");
        assert_eq!((steps, why), (vec![], format!("wave 1 must be well until {until}; {anew}")));
    }
    // Another one takes it for well all the time: nothing is forgotten, and nothing is counted.
    let seen = fleet.interruption.clone();
    look(&mut fleet, now + 10.minutes());
    assert_eq!(fleet.interruption, seen);
    let well = fleet.nodes[0].report.take();
    look(&mut fleet, now + 20.minutes());
    fleet.nodes[0].report = well;
    let what = format!("the canaries do not stay well: their soak began anew 5 times, the last time by {canary}");
    let (steps, why) = look(&mut fleet, now + 30.minutes());
    assert_eq!((steps, why), (vec![Action::Pause { why: what.clone() }], format!("the rollout is paused: {what}")));
    // A wave that is over begins with nothing of the kind.
    let decision = decide(&fleet, now + 3.hours());
    assert_eq!((decision.passed, decision.interruption), (1, None));
}

#[test]
fn failures_up_to_the_budget_are_left_behind() {
    let mut fleet = four(Policy { failure_budget: Some(IntOrPercent::Nodes(2)), ..two_at_once() });
    report(&mut fleet, 0).failed = failed("no boot");
    assert_eq!(granted(&fleet), [1, 2]);
    assert_eq!(why(&fleet, 0), "it failed: no boot");
    report(&mut fleet, 1).failed = failed("no disk");
    let (first, second) = (name(&fleet, 0), name(&fleet, 1));
    let what = format!("2 of 4 nodes failed, and 2 are enough; {first}: no boot; {second}: no disk");
    assert!(matches!(&look(&fleet).steps[..], [Action::Deny { why, .. }, Action::Pause { .. }] if *why == what));
    // A person leaves one out, and goes on.
    fleet.skip.insert(fleet.nodes[0].node.uid.clone());
    assert_eq!(granted(&fleet), [2, 3]);
    assert_eq!(why(&fleet, 0), "it is left out by a person's word");
}

#[test]
fn a_pause_stops_what_is_new_and_lets_go_what_is_over() {
    let mut fleet = four(two_at_once());
    let token = hold(&mut fleet, 0);
    report(&mut fleet, 2).staged = None;
    fleet.paused = Some("eve: lunch".to_owned());
    assert_eq!(look(&fleet).steps, []);
    assert!((0..4).all(|n| why(&fleet, n) == "the rollout is paused: eve: lunch"));
    report(&mut fleet, 0).token = token;
    assert!(matches!(look(&fleet).steps[..], [Action::Free { .. }]));
}

#[test]
fn who_is_left_out_is_not_asked_to_begin_with_the_grant_that_it_has() {
    let mut fleet = four(two_at_once());
    let token = hold(&mut fleet, 0);
    let uid = fleet.nodes[0].node.uid.clone();
    fleet.skip.insert(uid.clone());
    assert_eq!(granted(&fleet), [1]);
    assert!(!look(&fleet).steps.iter().any(|step| matches!(step, Action::Begin { .. })));
    assert_eq!(why(&fleet, 0), "it is left out by a person's word");
    // A request may be on its way: it stays charged. Running upgrades end.
    report(&mut fleet, 0).token = token;
    assert_eq!(look(&fleet).steps[0], Action::Free { uid, proof: Proof::Well { token } });
}

#[test]
fn a_plan_that_was_edited_is_not_followed() {
    let mut fleet = four(two_at_once());
    fleet.plan.waves[0].nodes.swap(0, 3);
    assert_eq!(look(&fleet).steps, []);
    assert!(why(&fleet, 0).starts_with("the plan is not the one that was made"));
    fleet.plan.waves.clear();
    assert!(!look(&fleet).finished);
}

#[test]
fn whoever_came_later_waits_for_the_next_rollout() {
    let mut fleet = four(Policy { max_unavailable: Some(IntOrPercent::Nodes(4)), ..Policy::default() });
    // Made again under the same name.
    fleet.nodes[0].node.uid = "another".to_owned();
    fleet.nodes.push(staged(worker("a-5")));
    assert_eq!(granted(&fleet), [1, 2, 3]);
    assert_eq!(why(&fleet, 0), "it is not in the plan: it comes with the next rollout");
    assert_eq!(why(&fleet, 4), "it is not in the plan: it comes with the next rollout");
    for n in 1..4 {
        arrive(&mut fleet, n);
    }
    assert!(look(&fleet).finished);
}

#[test]
fn without_a_canary_nobody_knows() {
    let mut fleet = four(canary());
    let uid = fleet.nodes.remove(0).node.uid;
    assert_eq!(look(&fleet).steps, []);
    assert!(why(&fleet, 0).starts_with("no node of wave 1 tried the payload"));
    fleet.skip.insert(uid);
    assert_eq!(look(&fleet).steps, []);
}

#[test]
fn the_control_plane_goes_last_one_by_one_and_waits_for_others_that_are_ill() {
    let nodes = [worker("a-1"), control_plane("a-c"), control_plane("b-c")];
    let mut fleet = rollout(&nodes, two_at_once());
    assert_eq!(granted(&fleet), [0]);
    arrive(&mut fleet, 0);
    assert_eq!(granted(&fleet), [1]);
    assert_eq!(why(&fleet, 2), "one node of the control plane at a time: a-c is unavailable");
    fleet.elsewhere = vec![Node { pool: "other".to_owned(), ..control_plane("x-1") }];
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    assert_eq!(why(&fleet, 1), "one node of the control plane at a time: x-1 is unavailable");
}

/// Its order has the control plane first, and each worker waits for that. Later, when one was left out for a time, none does.
#[test]
fn a_node_of_the_control_plane_that_waits_for_another_one_holds_up_no_worker_but_by_the_order_of_waves() {
    let rules = Rules::try_from(vec![two_at_once()]).unwrap();
    let nodes = [control_plane("a-c"), control_plane("a-d"), worker("a-1"), worker("a-2"), worker("a-3")];
    let plan = Plan::new("pool", NEW, nodes, &rules, Order::ControlPlaneFirst, None);
    let observed = plan.nodes().map(|(_, node)| staged(node.clone())).collect();
    let mut fleet = Facts::new(plan, rules, observed);
    fleet.elsewhere = vec![Node { pool: "other".to_owned(), ..control_plane("x-1") }];
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    for n in [0, 1] {
        assert_eq!(why(&fleet, n), "one node of the control plane at a time: x-1 is unavailable");
    }
    assert_eq!(why(&fleet, 2), format!("wave 1 is not over: it waits for {}", name(&fleet, 0)));
    fleet.passed = 1;
    assert_eq!(granted(&fleet), [2, 3]);
    assert_eq!(why(&fleet, 0), "one node of the control plane at a time: x-1 is unavailable");
    fleet.elsewhere.clear();
    assert_eq!(granted(&fleet), [0, 2]);
}

/// Its upgrade may mend it, and takes no place: it is counted already.
#[test]
fn a_node_that_is_ill_goes_before_those_that_wait_for_it() {
    let mut fleet = four(Policy::default());
    report(&mut fleet, 2).well = false;
    assert_eq!(granted(&fleet), [2]);
    assert!(why(&fleet, 0).ends_with(&format!("and these are: {}", name(&fleet, 2))), "{}", why(&fleet, 0));
    let token = hold(&mut fleet, 2);
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    (report(&mut fleet, 2).token, report(&mut fleet, 2).well) = (token, true);
    arrive(&mut fleet, 2);
    assert_eq!(granted(&fleet), [0]);
    // One after the other, as ever, and no canary is overtaken.
    let mut fleet = four(Policy::default());
    (report(&mut fleet, 1).well, report(&mut fleet, 3).well) = (false, false);
    assert_eq!(granted(&fleet), [1]);
    report(&mut fleet, 2).well = false;
    assert_eq!(
        why(&fleet, 2),
        format!("1 of the 4 nodes of pool pool may be unavailable at once, and these are: {}", name(&fleet, 1))
    );
    assert_eq!(why(&fleet, 3), format!("{} is before it, and cannot go yet", name(&fleet, 2)));
    let mut fleet = four(canary());
    report(&mut fleet, 2).well = false;
    assert_eq!(granted(&fleet), [0]);
    // Nor does a control plane that has one ill node wait for itself.
    let mut fleet = rollout(&[control_plane("a-c"), control_plane("a-d"), control_plane("a-e")], two_at_once());
    report(&mut fleet, 2).well = false;
    assert_eq!(granted(&fleet), [2]);
}

#[test]
fn a_busy_node_is_left_alone_and_counts() {
    let mut fleet = four(two_at_once());
    report(&mut fleet, 0).busy = true;
    assert_eq!(why(&fleet, 0), "another client's operation is under way on it");
    assert_eq!(granted(&fleet), [1]);
}

#[test]
fn it_is_over_when_all_run_it_and_nothing_is_held() {
    let mut fleet = four(canary());
    (0..4).for_each(|n| arrive(&mut fleet, n));
    let decision = look(&fleet);
    assert!(!decision.finished);
    fleet.soaking_since = decision.soaking_since;
    let later = decide(&fleet, noon() + 1.hours());
    assert!(later.finished && later.blocked.is_empty() && later.steps.is_empty());
    hold(&mut fleet, 2);
    assert!(!decide(&fleet, noon() + 1.hours()).finished);
}

#[test]
fn a_decision_is_data() {
    let decision = look(&four(outside()));
    let json = serde_json::to_string(&decision).unwrap();
    assert_eq!(serde_json::from_str::<Decision>(&json).unwrap(), decision);
    let fleet = four(canary());
    assert_eq!(serde_json::from_str::<Facts>(&serde_json::to_string(&fleet).unwrap()).unwrap(), fleet);
}
