//! Random rollouts that replace their nodes, beside a set that makes machines, people who scale it, and faults. It runs the
//! real decisions, and counts by itself.

use std::collections::BTreeSet;

use jiff::{Timestamp, ToSpan};
use proptest::{collection::vec, option, prelude::*};
use slipway_rollout::{
    decide::{Action, Decision, decide},
    facts::{Evidence, Facts, Machine},
    int_or_percent::IntOrPercent,
    ledger::{Node, Proof},
    policy::Policy,
};

use crate::{NEW, OLD, decide::rollout, noon, replace::machine, staged, worker};

const OTHER: slipway_core::digest::Sha256 = slipway_core::digest::Sha256([9; 32]);

/// The fate of a machine that is made.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// Looks until its Node joins, and until that is well.
    successor_state: u8,
    well: u8,
    /// It comes up with another payload.
    differs: bool,
}

fn fate() -> impl Strategy<Value = Fate> {
    let differs = prop::bool::weighted(0.1);
    (0_u8..6, 0_u8..6, differs).prop_map(|(successor_state, well, differs)| Fate { successor_state, well, differs })
}

/// Events beside the rollout.
#[derive(Clone, Debug)]
struct Faults {
    /// Looks until a machine that is being deleted is gone, one after the other; the set makes another one at once, or then.
    drains: Vec<u8>,
    fates: Vec<Fate>,
    early: bool,
    /// Requests that are lost.
    lost: Vec<bool>,
    /// At this look people scale the set: up by one, or down.
    scaled: Option<(u32, bool)>,
}

fn faults() -> impl Strategy<Value = Faults> {
    let scaled = option::of((0_u32..30, any::<bool>()));
    (vec(0_u8..5, 1..6), vec(fate(), 1..8), any::<bool>(), vec(any::<bool>(), 1..5), scaled)
        .prop_map(|(drains, fates, early, lost, scaled)| Faults { drains, fates, early, lost, scaled })
}

/// Neither losses nor wrong machines.
fn calm() -> impl Strategy<Value = Faults> {
    faults().prop_map(|mut faults| {
        faults.scaled = None;
        faults.fates.iter_mut().for_each(|fate| fate.differs = false);
        faults.lost.push(false);
        faults
    })
}

struct World {
    facts: Facts,
    nodes: usize,
    budget: usize,
    faults: Faults,
    now: Timestamp,
    looks: u32,
    /// The wanted number of machines.
    replicas: usize,
    created: usize,
    /// Those that go, and how long that takes still.
    going: Vec<(String, u8)>,
    /// Those that come: whose Node joins, and is well, after so many looks.
    coming: Vec<(String, Fate)>,
    /// Those that the rollout had deleted.
    deleted: BTreeSet<String>,
}

impl World {
    fn new(nodes: usize, max: u32, local_volumes: &[bool], faults: Faults) -> Self {
        let policy = Policy {
            max_unavailable: Some(IntOrPercent::Nodes(max)),
            failure_budget: Some(IntOrPercent::Nodes(2)),
            ..Policy::default()
        };
        let names: Vec<Node> = (0..nodes).map(|n| worker(&format!("a-{n}"))).collect();
        let mut facts = crate::replace::replaced(rollout(&names, policy));
        let kept = names.iter().zip(local_volumes).filter(|(_, local_volumes)| **local_volumes);
        facts.replacing.local_volumes =
            kept.map(|(node, _)| (node.uid.clone(), "it would lose v".to_owned())).collect();
        Self {
            facts,
            nodes,
            budget: (max as usize).min(nodes.saturating_sub(1)).max(1),
            faults,
            now: noon(),
            looks: 0,
            replicas: nodes,
            created: 0,
            going: Vec::new(),
            coming: Vec::new(),
            deleted: BTreeSet::new(),
        }
    }

    fn machines(&mut self) -> &mut Vec<Machine> {
        self.facts.replacing.machines.as_mut().unwrap()
    }

    /// Nodes that are well, whatever they run.
    fn well(&self) -> usize {
        self.facts.nodes.iter().filter(|observed| observed.is_well()).count()
    }

    fn run(&mut self, looks: u32) -> bool {
        while self.looks < looks {
            self.looks += 1;
            if self.look().finished {
                return true;
            }
            self.passes();
        }
        false
    }

    fn look(&mut self) -> Decision {
        // That a Node is gone is known at once, and frees no grant.
        let there: BTreeSet<&str> = self.facts.nodes.iter().map(|observed| observed.node.uid.as_str()).collect();
        let gone = self.facts.ledger.grants.iter().map(|grant| grant.node.uid.clone());
        let gone = gone.filter(|uid| !there.contains(uid.as_str()));
        let gone = gone.map(|uid| Evidence { uid, proof: Proof::Gone { member_gone: true } });
        self.facts.evidence = gone.collect();
        let decision = decide(&self.facts, self.now);
        for grant in &self.facts.ledger.grants {
            let has = |uid: &str| decision.blocked.iter().any(|blocked| blocked.node.uid == uid);
            let is_freed = |of: &Action| matches!(of, Action::Free { uid, .. } if *uid == grant.node.uid);
            assert!(has(&grant.node.uid) || decision.steps.iter().any(is_freed), "{grant:?} has no reason");
        }
        for step in &decision.steps {
            self.act(step, &decision);
        }
        self.facts.replacing.succeeded = decision.succeeded.clone();
        self.facts.passed = decision.passed;
        (self.facts.soaking_since, self.facts.retry) = (decision.soaking_since, decision.retry);
        decision
    }

    fn act(&mut self, step: &Action, decision: &Decision) {
        match step {
            Action::Grant { node, replaces } => {
                assert!(self.facts.denied.is_none() && !self.facts.replacing.local_volumes.contains_key(&node.uid));
                let ledger = &self.facts.ledger;
                self.facts.ledger = ledger.grant_for(node, replaces.as_deref(), &decision.limits, self.now).unwrap().0;
                let may = if self.replicas > self.nodes { self.budget + 1 } else { self.budget };
                assert!(self.facts.ledger.grants.len() <= may);
            }
            Action::Free { uid, proof } => {
                let Proof::Succeeded { machine, node, .. } = proof else { panic!("{proof:?} frees {uid}") };
                assert!(self.facts.nodes.iter().any(|observed| observed.node.uid == *node && observed.runs(NEW)));
                assert!(machine.starts_with("machine-x-"), "{machine} was there before");
                self.facts.ledger = self.facts.ledger.free(uid, proof).unwrap();
            }
            Action::Delete { uid, token, machine } => {
                assert_eq!(self.facts.ledger.held(uid).unwrap().token, *token);
                assert!(!self.facts.replacing.local_volumes.contains_key(uid) && self.facts.denied.is_none());
                let lost = self.faults.lost[self.looks as usize % self.faults.lost.len()];
                if !lost {
                    assert!(self.deleted.insert(machine.clone()), "{machine} is deleted twice");
                    let drains = self.faults.drains[self.deleted.len() % self.faults.drains.len()];
                    self.machines().iter_mut().find(|of| of.uid == *machine).unwrap().is_deleting = true;
                    self.going.push((machine.clone(), drains));
                }
            }
            Action::Deny { why, .. } => self.facts.denied = Some(why.clone()),
            Action::Pause { why } => self.facts.stopped = Some(why.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// A minute: machines go, the set makes others, those join and become well.
    fn passes(&mut self) {
        self.now += 1.minutes();
        let (gone, going) = std::mem::take(&mut self.going).into_iter().partition(|(_, left)| *left == 0);
        self.going = going;
        self.going.iter_mut().for_each(|(_, left)| *left -= 1);
        let gone: Vec<(String, u8)> = gone;
        for (uid, _) in &gone {
            self.leaves(uid);
        }
        if let Some((look, up)) = self.faults.scaled
            && look == self.looks
        {
            self.replicas = if up { self.replicas + 1 } else { self.replicas.saturating_sub(1) };
        }
        for (uid, fate) in std::mem::take(&mut self.coming) {
            self.comes(uid, fate);
        }
        let early = self.faults.early;
        let there = self.machines().iter().filter(|of| !(early && of.is_deleting)).count();
        for _ in there..self.replicas {
            self.created += 1;
            let name = format!("x-{}", self.created);
            let now = self.now;
            self.machines().push(machine(&name, None, now));
            let fate = self.faults.fates[self.created % self.faults.fates.len()];
            self.coming.push((format!("machine-{name}"), fate));
        }
    }

    fn leaves(&mut self, uid: &str) {
        let at = self.machines().iter().position(|of| of.uid == uid).unwrap();
        let node = self.machines().remove(at).node;
        self.facts.nodes.retain(|observed| Some(&observed.node.uid) != node.as_ref());
    }

    fn comes(&mut self, uid: String, mut fate: Fate) {
        let name = uid.strip_prefix("machine-").unwrap().to_owned();
        let node = format!("uid-{name}");
        if fate.successor_state > 0 {
            fate.successor_state -= 1;
            return self.coming.push((uid, fate));
        }
        if !self.facts.nodes.iter().any(|observed| observed.node.uid == node) {
            let mut observed = staged(worker(&name));
            let report = observed.report.as_mut().unwrap();
            (report.runs, report.staged, report.well) = (if fate.differs { OTHER } else { NEW }, None, false);
            self.facts.nodes.push(observed);
            self.machines().iter_mut().find(|of| of.uid == uid).unwrap().node = Some(node.clone());
        }
        let observed = self.facts.nodes.iter_mut().find(|observed| observed.node.uid == node).unwrap();
        if fate.well > 0 {
            fate.well -= 1;
            return self.coming.push((uid, fate));
        }
        observed.report.as_mut().unwrap().well = true;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However slow it is, and whatever requests are lost: every node is replaced once, and never more are away than may.
    #[test]
    fn without_wrong_machines_every_node_is_replaced_once(nodes in 1_usize..8, max in 1_u32..4, faults in calm()) {
        let mut world = World::new(nodes, max, &[], faults);
        for _ in 0..2000 {
            let decision = world.look();
            prop_assert!(world.well() + world.budget >= nodes, "{} of {nodes} are well", world.well());
            if decision.finished {
                break;
            }
            world.looks += 1;
            world.passes();
        }
        prop_assert!(world.facts.ledger.grants.is_empty());
        prop_assert_eq!((world.deleted.len(), world.facts.nodes.len()), (nodes, nodes));
        prop_assert!(world.facts.nodes.iter().all(|observed| observed.runs(NEW) && observed.is_well()));
    }

    /// With wrong machines, and people who scale the set: no node is away beyond the budget without a charge.
    #[test]
    fn with_faults_no_more_go_than_come(
        nodes in 1_usize..8, max in 1_u32..4, local_volumes in vec(prop::bool::weighted(0.2), 8), faults in faults()
    ) {
        let mut world = World::new(nodes, max, &local_volumes, faults);
        let finished = world.run(200);
        let rollback = world.facts.replacing.succeeded.len();
        prop_assert!(world.deleted.len() <= rollback + world.budget + 1, "{:?} went, {rollback} came", world.deleted);
        let kept = |observed: &&slipway_rollout::facts::ObservedNode| world.facts.replacing.local_volumes.contains_key(&observed.node.uid);
        let kept = world.facts.nodes.iter().filter(kept).collect::<Vec<_>>();
        prop_assert_eq!(kept.len(), world.facts.replacing.local_volumes.len());
        prop_assert!(kept.iter().all(|observed| observed.runs(OLD)));
        prop_assert!(!finished || (world.facts.ledger.grants.is_empty() && kept.is_empty()));
    }
}
