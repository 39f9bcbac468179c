//! Nodes that are replaced: who goes, who succeeds them, and what stays charged.

use jiff::{Timestamp, ToSpan};
use slipway_rollout::{
    decide::{Action, Decision, decide},
    facts::{Approval, Evidence, Facts, Machine},
    int_or_percent::IntOrPercent,
    ledger::{Ledger, Node, Proof, Refusal, ReleaseRefusal, Replacement, Role, Taken},
    policy::{ApprovalPolicy, Policy},
    replace::{forget, successor_machines},
};

use crate::{
    NEW, OLD, control_plane,
    decide::{canary, fall_ill, four, outside, rollout, two_at_once, why},
    limits, noon, staged, worker,
};

const THIRD: slipway_core::digest::Sha256 = slipway_core::digest::Sha256([3; 32]);

pub fn machine(name: &str, node: Option<&str>, created: Timestamp) -> Machine {
    let (uid, name) = (format!("machine-{name}"), format!("default/{name}"));
    let set = Ok("MachineDeployment default/md".to_owned());
    Machine { uid, name, node: node.map(str::to_owned), set, created, is_deleting: false }
}

/// This rollout replaces its nodes. None of them has staged anything.
pub fn replaced(mut fleet: Facts) -> Facts {
    let of = |observed: &slipway_rollout::facts::ObservedNode| {
        machine(&observed.node.name, Some(&observed.node.uid), noon() - 1.hours())
    };
    fleet.replacing.machines = Ok(fleet.nodes.iter().map(of).collect());
    fleet.replacing.wanted = true;
    fleet.nodes.iter_mut().for_each(|observed| observed.report.as_mut().unwrap().staged = None);
    fleet
}

fn machines(fleet: &mut Facts) -> &mut Vec<Machine> {
    fleet.replacing.machines.as_mut().unwrap()
}

/// One round of a controller: it decides, writes, and has machines deleted. Returns their names.
fn turn(fleet: &mut Facts) -> (Decision, Vec<String>) {
    let decision = decide(fleet, noon());
    let mut deleted = Vec::new();
    for step in &decision.steps {
        match step {
            Action::Grant { node, replaces } => {
                assert!(replaces.is_some(), "{node:?} is not replaced");
                fleet.ledger = fleet.ledger.grant_for(node, replaces.as_deref(), &decision.limits, noon()).unwrap().0;
            }
            Action::Free { uid, proof } => fleet.ledger = fleet.ledger.free(uid, proof).unwrap(),
            Action::Delete { machine, .. } => deleted.push(machine.clone()),
            Action::Deny { why, .. } => fleet.denied = Some(why.clone()),
            Action::Pause { why } => fleet.stopped = Some(why.clone()),
            other => panic!("{other:?}"),
        }
    }
    fleet.replacing.succeeded = decision.succeeded.clone();
    fleet.passed = decision.passed;
    (fleet.soaking_since, fleet.retry) = (decision.soaking_since, decision.retry);
    (decision, deleted)
}

/// This machine and its Node are gone.
fn goes(fleet: &mut Facts, uid: &str) {
    let at = machines(fleet).iter().position(|machine| machine.uid == uid).unwrap();
    let node = machines(fleet).remove(at).node;
    fleet.nodes.retain(|observed| Some(&observed.node.uid) != node.as_ref());
}

/// A machine comes, and its Node runs this.
fn comes(fleet: &mut Facts, name: &str, runs: slipway_core::digest::Sha256) {
    let mut observed = staged(worker(name));
    (observed.report.as_mut().unwrap().runs, observed.report.as_mut().unwrap().staged) = (runs, None);
    machines(fleet).push(machine(name, Some(&observed.node.uid), noon() - 1.minutes()));
    fleet.nodes.push(observed);
}

fn reason(decision: &Decision, name: &str) -> &'static str {
    let of = decision.blocked.iter().find(|blocked| blocked.node.name == name);
    of.map_or("Done", |blocked| blocked.why.reason())
}

#[test]
fn one_after_the_other_goes_and_stays_charged_until_its_successor_is_well() {
    let mut fleet = replaced(four(Policy::default()));
    let (first, _) = turn(&mut fleet);
    let name = fleet.ledger.grants[0].node.name.clone();
    assert_eq!((reason(&first, &name), fleet.ledger.grants.len()), ("Granted", 1));
    let (decision, deleted) = turn(&mut fleet);
    assert_eq!((&deleted[..], reason(&decision, &name)), (&[format!("machine-{name}")][..], "Deletes"));
    // It is asked for until it is seen: the first request may be lost, or the controller dead.
    assert_eq!(turn(&mut fleet).1, deleted);
    machines(&mut fleet).iter_mut().find(|of| of.uid == deleted[0]).unwrap().is_deleting = true;
    let (decision, again) = turn(&mut fleet);
    assert_eq!((again.len(), reason(&decision, &name)), (0, "MachineGoes"));
    goes(&mut fleet, &deleted[0]);
    let uid = fleet.ledger.grants[0].node.uid.clone();
    fleet.evidence = vec![Evidence { uid: uid.clone(), proof: Proof::Gone { member_gone: true } }];
    assert_eq!(reason(&turn(&mut fleet).0, &name), "NoSuccessor");
    machines(&mut fleet).push(machine("x-1", None, noon() - 1.minutes()));
    assert_eq!(reason(&turn(&mut fleet).0, &name), "SuccessorJoins");
    machines(&mut fleet).pop();
    comes(&mut fleet, "x-1", NEW);
    let node = fleet.nodes.pop().unwrap();
    assert_eq!(reason(&turn(&mut fleet).0, &name), "SuccessorElsewhere");
    fleet.nodes.push(node);
    fleet.nodes.last_mut().unwrap().report.as_mut().unwrap().well = false;
    assert_eq!(reason(&turn(&mut fleet).0, &name), "SuccessorNotWell");
    assert_eq!((fleet.ledger.grants.len(), fleet.ledger.epoch), (1, 1), "one grant all the time");
    fleet.nodes.last_mut().unwrap().report.as_mut().unwrap().well = true;
    let (decision, _) = turn(&mut fleet);
    assert_eq!(decision.succeeded[&uid], "uid-x-1");
    assert!(fleet.ledger.held(&uid).is_none() && fleet.ledger.epoch == 2, "{:?}", fleet.ledger);
}

#[test]
fn a_machine_that_was_there_or_is_of_another_set_succeeds_nobody() {
    let mut fleet = replaced(four(Policy::default()));
    turn(&mut fleet);
    let replaces = fleet.ledger.grants[0].replaces.clone().unwrap();
    assert_eq!((replaces.others.len(), replaces.newest), (0, noon() - 1.hours()));
    goes(&mut fleet, &replaces.machine);
    // Others of the set run it by now, for whatever reason.
    fleet.nodes.iter_mut().for_each(|observed| observed.report.as_mut().unwrap().runs = NEW);
    comes(&mut fleet, "x-1", NEW);
    machines(&mut fleet).last_mut().unwrap().set = Ok("MachineSet default/other".to_owned());
    turn(&mut fleet);
    assert_eq!(fleet.ledger.grants.len(), 1);
    // An old machine that was not seen before.
    machines(&mut fleet).last_mut().unwrap().set = Ok(replaces.set.clone());
    machines(&mut fleet).last_mut().unwrap().created = noon() - 1.hours();
    turn(&mut fleet);
    assert_eq!(fleet.ledger.grants.len(), 1);
    // One that is to go itself.
    (machines(&mut fleet).last_mut().unwrap().created, machines(&mut fleet).last_mut().unwrap().is_deleting) =
        (noon() - 1.minutes(), true);
    turn(&mut fleet);
    assert_eq!(fleet.ledger.grants.len(), 1);
    machines(&mut fleet).last_mut().unwrap().is_deleting = false;
    // One that went into another pool.
    fleet.nodes.last_mut().unwrap().node.pool = "other".to_owned();
    turn(&mut fleet);
    assert_eq!(fleet.ledger.grants.len(), 1);
    fleet.nodes.last_mut().unwrap().node.pool = "pool".to_owned();
    turn(&mut fleet);
    assert_eq!(fleet.ledger.grants.len(), 0);
}

#[test]
fn one_machine_succeeds_one_node_and_the_oldest_grant_is_first() {
    let mut fleet = replaced(four(two_at_once()));
    turn(&mut fleet);
    let (_, deleted) = turn(&mut fleet);
    assert_eq!(deleted.len(), 2);
    deleted.iter().for_each(|uid| goes(&mut fleet, uid));
    comes(&mut fleet, "x-1", NEW);
    let before = fleet.ledger.clone();
    let (decision, _) = turn(&mut fleet);
    let freed = decision.steps.iter().filter(|step| matches!(step, Action::Free { .. })).count();
    assert_eq!((freed, before.grants[1].token), (1, fleet.ledger.grants[0].token), "the older one is free");
    assert_eq!(fleet.ledger.taken[0].machines, ["machine-x-1"]);
    let (decision, _) = turn(&mut fleet);
    let name = fleet.ledger.grants[0].node.name.clone();
    assert_eq!(reason(&decision, &name), "NoSuccessor");
    // No set makes another one: a person says so, and the rollout goes on.
    let word = Proof::Word { who: "eve".to_owned(), why: "the set was scaled down".to_owned() };
    fleet.evidence = vec![Evidence { uid: fleet.ledger.grants[0].node.uid.clone(), proof: word }];
    turn(&mut fleet);
    assert!(fleet.ledger.grants.iter().all(|grant| grant.node.name != name));
}

#[test]
fn the_proof_speaks_of_this_grant() {
    let mut fleet = replaced(four(Policy::default()));
    turn(&mut fleet);
    let grant = fleet.ledger.grants[0].clone();
    let (uid, token) = (grant.node.uid.as_str(), grant.token);
    let succeeded = |token| Proof::Succeeded { token, machine: "m".to_owned(), node: "n".to_owned() };
    let refused = |ledger: &Ledger, proof: &Proof| ledger.free(uid, proof).unwrap_err();
    assert_eq!(refused(&fleet.ledger, &succeeded(7)), ReleaseRefusal::AnotherToken { token: 7, granted: token });
    assert_eq!(refused(&fleet.ledger, &Proof::Gone { member_gone: true }), ReleaseRefusal::Replaced);
    assert_eq!(refused(&fleet.ledger, &Proof::Well { token }), ReleaseRefusal::Replaced);
    fleet.ledger.grants[0].replaces = None;
    assert_eq!(refused(&fleet.ledger, &succeeded(token)), ReleaseRefusal::NotReplaced);
}

#[test]
fn a_canary_that_comes_up_with_another_payload_stops_it_and_stays_charged() {
    let mut fleet = replaced(four(canary()));
    turn(&mut fleet);
    let (_, deleted) = turn(&mut fleet);
    let name = fleet.ledger.grants[0].node.name.clone();
    goes(&mut fleet, &deleted[0]);
    comes(&mut fleet, "x-1", THIRD);
    let (decision, _) = turn(&mut fleet);
    assert_eq!(fleet.denied, None, "the payload ran nowhere");
    let said = format!("it came in the place of {name}, and runs another payload: {THIRD}");
    assert_eq!(fleet.stopped.as_deref(), Some(&*format!("the canary x-1 failed: {said}")));
    assert_eq!((reason(&decision, &name), reason(&decision, "x-1")), ("SuccessorDiffers", "Failed"));
    assert_eq!(turn(&mut fleet).1.len() + fleet.ledger.grants.len(), 1, "nothing begins, and it is charged");
    // The template is mended, and the wrong machine deleted by hand: the next one frees it. The rollout stays paused.
    goes(&mut fleet, "machine-x-1");
    comes(&mut fleet, "x-2", NEW);
    let (decision, deleted) = turn(&mut fleet);
    assert_eq!((fleet.ledger.grants.len(), deleted.len(), reason(&decision, "x-2")), (0, 0, "Done"));
    assert_eq!(decision.succeeded.values().collect::<Vec<_>>(), ["uid-x-2"]);
}

#[test]
fn an_approval_counts_also_when_nodes_were_replaced() {
    for approval in [ApprovalPolicy::EachWave, ApprovalPolicy::AfterCanaries] {
        let mut fleet = replaced(four(Policy { approval: Some(approval), ..canary() }));
        fleet.approvals = vec![Approval { plan: fleet.plan.hash, waves: 2 }];
        turn(&mut fleet);
        let (_, deleted) = turn(&mut fleet);
        goes(&mut fleet, &deleted[0]);
        comes(&mut fleet, "x-1", NEW);
        turn(&mut fleet);
        // The canary's soak is over.
        fleet.passed = 1;
        let (decision, _) = turn(&mut fleet);
        assert!(decision.blocked.iter().all(|of| of.why.reason() != "Approval"), "{:?}", decision.blocked);
        assert!(decision.steps.iter().any(|step| matches!(step, Action::Grant { .. })), "{:?}", decision.steps);
        // An approval of another plan counts as little as before.
        fleet.approvals = vec![Approval { plan: slipway_core::digest::Sha256([7; 32]), waves: 9 }];
        fleet.ledger.grants.clear();
        assert!(turn(&mut fleet).0.blocked.iter().any(|of| of.why.reason() == "Approval"));
    }
}

#[test]
fn a_successor_with_what_the_pool_is_to_run_by_now_is_no_failure() {
    let mut fleet = replaced(four(Policy::default()));
    turn(&mut fleet);
    let (_, deleted) = turn(&mut fleet);
    goes(&mut fleet, &deleted[0]);
    comes(&mut fleet, "x-1", THIRD);
    fleet.replacing.target = Some(THIRD);
    turn(&mut fleet);
    assert_eq!((fleet.denied.clone(), fleet.ledger.grants.iter().any(|of| of.token == 1)), (None, false));
}

#[test]
fn canaries_that_were_replaced_soak_and_fall_ill_as_others_do() {
    let mut fleet = replaced(four(canary()));
    turn(&mut fleet);
    let (_, deleted) = turn(&mut fleet);
    goes(&mut fleet, &deleted[0]);
    comes(&mut fleet, "x-1", NEW);
    turn(&mut fleet);
    let (decision, _) = turn(&mut fleet);
    assert!(decision.soaks.is_some() && fleet.ledger.grants.is_empty(), "{decision:?}");
    let last = fleet.nodes.len() - 1;
    fall_ill(&mut fleet, last);
    turn(&mut fleet);
    assert_eq!(fleet.denied.as_deref(), Some("the canary x-1 runs it, and is not well"));
}

#[test]
fn who_may_not_be_replaced_is_left_alone_and_says_why() {
    let nodes = [worker("a-1"), worker("a-2"), worker("a-3"), control_plane("a-4")];
    let at_once = Policy { max_unavailable: Some(IntOrPercent::Nodes(3)), ..Policy::default() };
    let mut fleet = replaced(rollout(&nodes, at_once));
    let at = |name: &str| fleet.nodes.iter().position(|observed| observed.node.name == name).unwrap();
    let (one, two, three, four) = (at("a-1"), at("a-2"), at("a-3"), at("a-4"));
    fleet.replacing.local_volumes.insert("uid-a-1".to_owned(), "it would lose volume v".to_owned());
    machines(&mut fleet)[two].set = Err("no set would make another machine: it has no controller".to_owned());
    machines(&mut fleet)[three].node = None;
    let (decision, _) = turn(&mut fleet);
    assert!(fleet.ledger.grants.is_empty(), "{decision:?}");
    let words = ["a-1", "a-2", "a-3", "a-4"].map(|name| reason(&decision, name));
    assert_eq!(words, ["LocalVolumes", "NotReplaced", "NotReplaced", "NotReplaced"]);
    assert!(why(&fleet, one).starts_with("it is not replaced: it would lose volume v; move that"));
    assert_eq!(why(&fleet, two), "it is not replaced: no set would make another machine: it has no controller");
    assert_eq!(fleet.nodes[four].node.role, Role::ControlPlane);
    // Two machines for one Node: it is unknown which one it is.
    machines(&mut fleet)[three].node = Some("uid-a-4".to_owned());
    machines(&mut fleet)[two].node = Some("uid-a-4".to_owned());
    assert!(turn(&mut fleet).0.steps.is_empty());
    fleet.replacing.machines = Err("the API server says 403".to_owned());
    assert_eq!(reason(&turn(&mut fleet).0, "a-2"), "NoMachines");
    // The local volume is moved away.
    let mut fleet = replaced(rollout(&[worker("a-1"), worker("a-2")], Policy::default()));
    turn(&mut fleet);
    let uid = fleet.ledger.grants[0].node.uid.clone();
    // It came back after the grant: nothing is deleted, and the grant stays.
    fleet.replacing.local_volumes.insert(uid.clone(), "it would lose volume v".to_owned());
    assert_eq!((turn(&mut fleet).1.len(), fleet.ledger.grants.len()), (0, 1));
    fleet.replacing.local_volumes.clear();
    assert_eq!(turn(&mut fleet).1.len(), 1);
}

/// A node that went by itself holds no grant. The machine in its place counts as not well.
#[test]
fn a_machine_that_comes_for_nobody_counts() {
    let mut fleet = replaced(four(Policy::default()));
    machines(&mut fleet).push(machine("x-1", None, noon() - 1.minutes()));
    turn(&mut fleet);
    assert!(fleet.ledger.grants.is_empty() && why(&fleet, 0).contains("default/x-1"), "{}", why(&fleet, 0));
    // A machine of another set does not count, and one that is being deleted does not come.
    machines(&mut fleet).last_mut().unwrap().set = Ok("MachineDeployment default/other".to_owned());
    turn(&mut fleet);
    assert_eq!(fleet.ledger.grants.len(), 1);
}

/// A person scales up while a grant is held: that machine makes good for one node, and not for each that goes later.
#[test]
fn who_was_well_before_a_grant_succeeds_nobody_of_it() {
    let mut fleet = replaced(four(Policy::default()));
    turn(&mut fleet);
    let (_, deleted) = turn(&mut fleet);
    machines(&mut fleet).iter_mut().find(|of| of.uid == deleted[0]).unwrap().is_deleting = true;
    comes(&mut fleet, "x-1", NEW);
    fleet.rules = four(two_at_once()).rules;
    turn(&mut fleet);
    let second = fleet.ledger.grants[1].clone();
    goes(&mut fleet, &second.replaces.unwrap().machine);
    turn(&mut fleet);
    assert!(fleet.ledger.held(&second.node.uid).is_some(), "{:?}", fleet.ledger);
}

#[test]
fn a_grant_of_another_time_deletes_nothing() {
    let mut fleet = replaced(four(Policy::default()));
    turn(&mut fleet);
    let (uid, name) = (fleet.ledger.grants[0].node.uid.clone(), fleet.ledger.grants[0].node.name.clone());
    let other = |fleet: &mut Facts| fleet.ledger.grants[0].replaces.as_mut().unwrap().payload = THIRD;
    let pool = |fleet: &mut Facts| fleet.ledger.grants[0].node.pool = "q".to_owned();
    let by_hand = |fleet: &mut Facts| {
        let observed = fleet.nodes.iter_mut().find(|observed| observed.node.uid == uid).unwrap();
        observed.report.as_mut().unwrap().runs = NEW;
    };
    let changes: [&dyn Fn(&mut Facts); 3] = [&other, &pool, &by_hand];
    for change in changes {
        let mut changed = fleet.clone();
        change(&mut changed);
        let (decision, deleted) = turn(&mut changed);
        assert_eq!((deleted.len(), reason(&decision, &name)), (0, "NotReplaced"));
    }
    assert_eq!(turn(&mut fleet).1.len(), 1, "and as it is it does");
}

/// Its grant is of a rollout that is gone.
#[test]
fn nobody_is_deleted_before_the_canaries_of_a_rollout_that_came_since() {
    let mut fleet = replaced(four(canary()));
    turn(&mut fleet);
    let later = fleet.plan.waves[1].nodes[0].clone();
    let grant = &mut fleet.ledger.grants[0];
    (grant.replaces.as_mut().unwrap().machine, grant.node) = (format!("machine-{}", later.name), later.clone());
    let (decision, deleted) = turn(&mut fleet);
    assert_eq!((deleted.len(), reason(&decision, &later.name)), (0, "EarlierWave"));
    fleet.passed = 1;
    assert!(turn(&mut fleet).1.contains(&format!("machine-{}", later.name)), "its wave has come");
}

#[test]
fn nobody_is_granted_right_after_another_machine_was_made() {
    // Times have seconds: no node is granted right after another machine was made.
    let mut young = replaced(four(Policy::default()));
    machines(&mut young)[0].created = noon() - 1.seconds();
    assert!(turn(&mut young).0.steps.is_empty() && why(&young, 0).ends_with("just now"), "{}", why(&young, 0));
}

#[test]
fn the_control_plane_is_never_replaced() {
    let mut fleet = replaced(rollout(&[control_plane("a-1")], Policy::default()));
    let (decision, _) = turn(&mut fleet);
    assert_eq!((reason(&decision, "a-1"), fleet.ledger.grants.len()), ("NotReplaced", 0));
    assert!(why(&fleet, 0).contains("of the control plane"));
}

#[test]
fn nothing_is_deleted_outside_of_windows_or_where_people_say_no() {
    let granted = || {
        let mut fleet = replaced(four(Policy::default()));
        turn(&mut fleet);
        fleet
    };
    let uid = granted().ledger.grants[0].node.uid.clone();
    let name = granted().ledger.grants[0].node.name.clone();
    let closed = |fleet: &mut Facts| fleet.rules = four(outside()).rules;
    let paused = |fleet: &mut Facts| fleet.paused = Some("eve: lunch".to_owned());
    let aborted = |fleet: &mut Facts| fleet.aborted = Some("eve: the wrong image".to_owned());
    let skipped = |fleet: &mut Facts| _ = fleet.skip.insert(uid.clone());
    let changes: [&dyn Fn(&mut Facts); 4] = [&closed, &paused, &aborted, &skipped];
    for (change, word) in changes.iter().zip(["WindowClosed", "Paused", "AbortedWithGrant", "Skipped"]) {
        let mut fleet = granted();
        change(&mut fleet);
        let (decision, deleted) = turn(&mut fleet);
        assert_eq!((deleted.len(), fleet.ledger.grants.len(), reason(&decision, &name)), (0, 1, word));
    }
    // The strategy was changed: each grant goes on as it was granted, and no node is asked to upgrade itself with it.
    let mut fleet = granted();
    fleet.replacing.wanted = false;
    fleet.nodes.iter_mut().for_each(|observed| observed.report.as_mut().unwrap().staged = Some(NEW));
    assert_eq!(turn(&mut fleet).1.len(), 1);
    assert!(fleet.nodes.iter().all(|observed| observed.runs(OLD)));
}

/// The size of a ledger in etcd, bytes.
fn size(ledger: &Ledger) -> usize {
    serde_json::to_vec(ledger).unwrap().len()
}

/// So many nodes of a set whose first one does not come to its end, while all others are replaced, many at once.
#[test]
fn a_set_that_one_node_holds_up_for_ever_does_not_fill_the_ledger() {
    let names: Vec<_> = (0..400).map(|n| worker(&format!("a-{n}"))).collect();
    let policy = Policy { max_unavailable: Some(IntOrPercent::Nodes(40)), ..Policy::default() };
    let mut fleet = replaced(rollout(&names, policy));
    let (mut largest, mut freed, mut created, mut stuck) = (0, 0, 0, None);
    for look in 0.. {
        if freed == 399 {
            break;
        }
        assert!(look < 200 && freed < 399, "it does not come to its end: {freed}");
        let (decision, deleted) = turn(&mut fleet);
        largest = largest.max(size(&fleet.ledger));
        freed += decision.steps.iter().filter(|step| matches!(step, Action::Free { .. })).count();
        let stuck = &*stuck.get_or_insert_with(|| fleet.ledger.grants[0].replaces.clone().unwrap().machine);
        for uid in deleted.iter().filter(|uid| *uid != stuck) {
            goes(&mut fleet, uid);
            comes(&mut fleet, &format!("x-{uid}"), NEW);
            created += 1;
            machines(&mut fleet).last_mut().unwrap().created = noon() - 50.minutes() + created.seconds();
        }
        if let Some(machine) = machines(&mut fleet).iter_mut().find(|of| of.uid == *stuck) {
            machine.is_deleting = true;
        }
    }
    assert_eq!(fleet.ledger.grants.len(), 1);
    let named = fleet.ledger.taken[0].machines.clone();
    assert_eq!(named.len(), 399, "none of them succeeds it");
    // Were each grant to name them for itself, it would be 40 times as much.
    assert!(largest < 60_000, "{largest}");
    // A machine that is gone is named no more; without a waiting grant none is named.
    let last = machines(&mut fleet).pop().unwrap();
    assert!(named.contains(&last.uid));
    forget(&mut fleet.ledger, fleet.replacing.machines.as_ref().unwrap());
    assert_eq!(fleet.ledger.taken[0].machines.len(), 398);
    let word = Proof::Word { who: "eve".to_owned(), why: "its disk is broken".to_owned() };
    let uid = fleet.ledger.grants[0].node.uid.clone();
    assert!(fleet.ledger.free(&uid, &word).unwrap().taken.is_empty());
}

#[test]
fn a_machine_that_succeeded_somebody_succeeds_nobody_else_whoever_was_granted_when() {
    let mut fleet = replaced(four(two_at_once()));
    turn(&mut fleet);
    let (_, deleted) = turn(&mut fleet);
    goes(&mut fleet, &deleted[0]);
    comes(&mut fleet, "x-1", NEW);
    turn(&mut fleet);
    // It is ill by now, and a third grant was given: it is no node's successor again.
    fleet.nodes.last_mut().unwrap().report.as_mut().unwrap().well = false;
    goes(&mut fleet, &deleted[1]);
    let ledger = fleet.ledger.clone();
    let successor_machines =
        successor_machines(&ledger, &fleet.nodes, fleet.replacing.machines.as_ref().unwrap(), &fleet.targets());
    assert!(successor_machines.is_empty(), "{successor_machines:?}");
    let known = fleet.replacing.machines.clone().unwrap();
    let mut same = ledger.clone();
    forget(&mut same, &known);
    assert_eq!(same, ledger, "as long as a grant would take it");
}

#[test]
fn the_largest_ledger_is_one_that_etcd_takes() {
    let name = |n: u64| format!("ip-10-0-{}-{}.eu-central-1.compute.internal", n / 250, n % 250);
    let uid = |n: u64| format!("{n:08}-89ab-4cde-8f01-23456789abcd");
    let limits = limits(9999, 9998);
    let replaces = |n: u64| Replacement {
        payload: NEW,
        machine: uid(n),
        name: format!("production/workers-{}", name(n)),
        set: "MachineDeployment production/workers-of-zone-a".to_owned(),
        newest: noon(),
        others: Vec::new(),
    };
    let mut ledger = Ledger::default();
    for n in 0.. {
        let zone = Some("eu-central-1a".to_owned());
        let node = Node { uid: uid(n), name: name(n), pool: "workers".to_owned(), zone, role: Role::Worker };
        match ledger.grant_for(&node, Some(&replaces(n)), &limits, noon()) {
            Ok((more, _)) => ledger = more,
            Err(refused) => {
                assert_eq!((n, refused), (1000, Refusal::Full { most: 1000 }));
                break;
            }
        }
    }
    ledger.taken = vec![Taken { set: replaces(0).set, machines: (0..10_000).map(uid).collect() }];
    assert!(size(&ledger) < 3 << 19, "{}", size(&ledger));
}
