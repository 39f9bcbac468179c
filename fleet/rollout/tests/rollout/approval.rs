//! Waves that a person has to approve, and the reach of an approval.

use slipway_core::digest::Sha256;
use slipway_rollout::{
    decide::{Action, decide},
    duration::PositiveDuration,
    facts::{Approval, Facts, WindowOverride},
    int_or_percent::IntOrPercent,
    policy::{ApprovalPolicy, CanaryStep, Policy, Rules},
};

use crate::{
    NEW, at,
    decide::{arrive, canary, four, granted, hold, look, outside, two_at_once, why},
};

const WAITS: &str = "waits for approval: slipwayctl fleet approve pool --reason WHY";

fn asks(approval: ApprovalPolicy, policy: Policy) -> Facts {
    four(Policy { approval: Some(approval), ..policy })
}

fn approve(fleet: &mut Facts, waves: usize) {
    fleet.approvals = vec![Approval { plan: fleet.plan.hash, waves }];
}

/// The canary ran and soaked.
fn after_canary(fleet: &mut Facts) {
    arrive(fleet, 0);
    fleet.passed = 1;
}

#[test]
fn each_wave_waits_for_its_approval() {
    let mut fleet = asks(ApprovalPolicy::EachWave, canary());
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    assert_eq!(why(&fleet, 0), format!("wave 1 {WAITS}"));
    assert_eq!(look(&fleet).blocked[0].why.reason(), "Approval");
    approve(&mut fleet, 1);
    assert_eq!(granted(&fleet), [0]);
    after_canary(&mut fleet);
    assert_eq!(why(&fleet, 1), format!("wave 2 {WAITS}"));
    approve(&mut fleet, 2);
    assert_eq!(granted(&fleet), [1, 2]);
}

#[test]
fn canaries_go_and_what_is_after_them_waits() {
    let mut fleet = asks(ApprovalPolicy::AfterCanaries, canary());
    assert_eq!(granted(&fleet), [0]);
    after_canary(&mut fleet);
    assert_eq!((granted(&fleet), why(&fleet, 3)), (Vec::new(), format!("wave 2 {WAITS}")));
    approve(&mut fleet, 1);
    assert_eq!(granted(&fleet), Vec::<usize>::new(), "an approval of the canaries is none of the others");
    approve(&mut fleet, 2);
    assert_eq!(granted(&fleet), [1, 2]);
    // Without canaries all of them wait.
    assert_eq!(why(&asks(ApprovalPolicy::AfterCanaries, two_at_once()), 0), format!("wave 1 {WAITS}"));
}

/// A soak of the last nodes, or one that takes all of a small plan, makes them nobody's canaries.
#[test]
fn a_soak_at_the_end_is_no_reason_to_ask_nobody() {
    let steps = [(IntOrPercent::Nodes(1), 60), (IntOrPercent::Percent(100), 120)];
    let steps = steps.map(|(nodes, minutes)| CanaryStep { nodes, soak: PositiveDuration::minutes(minutes) });
    let mut fleet = asks(ApprovalPolicy::AfterCanaries, Policy { steps: steps.into(), ..two_at_once() });
    assert_eq!(granted(&fleet), [0]);
    after_canary(&mut fleet);
    assert_eq!((granted(&fleet), why(&fleet, 3)), (Vec::new(), format!("wave 2 {WAITS}")));
    approve(&mut fleet, 2);
    assert_eq!(granted(&fleet), [1, 2]);
    // All nodes are in one step.
    for nodes in [IntOrPercent::Percent(100), IntOrPercent::Nodes(50)] {
        let steps = vec![CanaryStep { nodes, soak: PositiveDuration::minutes(60) }];
        let fleet = asks(ApprovalPolicy::AfterCanaries, Policy { steps, ..two_at_once() });
        assert_eq!((granted(&fleet), why(&fleet, 0)), (Vec::new(), format!("wave 1 {WAITS}")));
    }
}

#[test]
fn of_several_policies_the_stricter_one_counts() {
    let policy = |approval| Policy { approval, ..Policy::default() };
    let rules = |all: &[Option<ApprovalPolicy>]| Rules::try_from(all.iter().map(|of| policy(*of)).collect::<Vec<_>>());
    let (each, after) = (Some(ApprovalPolicy::EachWave), Some(ApprovalPolicy::AfterCanaries));
    for (all, strictest) in [(vec![], None), (vec![None, after], after), (vec![after, each, None], each)] {
        assert_eq!(rules(&all).unwrap().approval(), strictest);
    }
}

#[test]
fn an_approval_of_another_plan_does_not_count() {
    let mut fleet = asks(ApprovalPolicy::EachWave, two_at_once());
    fleet.approvals = vec![Approval { plan: Sha256([7; 32]), waves: 9 }];
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    // An approval of this plan does not cover later changes of it, either.
    approve(&mut fleet, 9);
    fleet.plan.waves[0].nodes.reverse();
    assert_eq!(granted(&fleet), Vec::<usize>::new());
}

#[test]
fn neither_haste_nor_a_grant_stands_for_an_approval() {
    let mut fleet = asks(ApprovalPolicy::EachWave, outside());
    fleet.window_override = Some(WindowOverride { until: at("2026-06-02T12:00Z"), soak: Some(0) });
    assert_eq!(why(&fleet, 0), format!("wave 1 {WAITS}"));
    // The policy came when a grant was given, and its request had not arrived.
    let token = hold(&mut fleet, 0);
    assert_eq!((look(&fleet).steps, why(&fleet, 0)), (vec![], format!("wave 1 {WAITS}")));
    approve(&mut fleet, 1);
    let uid = fleet.nodes[0].node.uid.clone();
    assert!(look(&fleet).steps.contains(&Action::Begin { uid, token, payload: NEW }));
    // A wave that waits for a person says so before the window opens.
    let closed = asks(ApprovalPolicy::EachWave, outside());
    assert_eq!(why(&closed, 0), format!("wave 1 {WAITS}"));
    assert!(!decide(&closed, at("2026-06-01T12:30Z")).steps.iter().any(|step| matches!(step, Action::Grant { .. })));
}
