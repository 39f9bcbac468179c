//! What people write by hand into objects that only controllers write. Whoever does that may harm the node that it is about;
//! all laws hold for the others, and for whatever controllers make of it.

use std::rc::Rc;

use slipway_rollout::{
    attempts::History,
    ledger::{Grant, Ledger, Node},
    plan::Plan,
};

use crate::{NEW, api::Rollout, clock::stamp, faults::Hand, world::World};

impl World {
    /// Somebody writes, about this machine.
    pub fn writes_by_hand(&mut self, n: usize, hand: Hand) {
        if !self.api_answers() {
            return;
        }
        self.counts.by_hand += 1;
        self.laws.changed = self.now;
        let mut ledger = Ledger::clone(&self.api.ledger.object);
        match hand {
            Hand::DeletesRollout(pool) => self.another_rollout(pool),
            Hand::Grants { above, by, elsewhere } => {
                let Some(object) = self.api.nodes.get(&self.machines[n].name) else { return };
                let mut node = object.node.clone();
                let other = self.scenario.pools.iter().find(|pool| elsewhere && pool.name != node.pool);
                node.pool = other.map_or(node.pool, |pool| pool.name.clone());
                let highest = ledger.highest();
                let token = if above { highest + 1 + by } else { highest.saturating_sub(by).max(1) };
                // Two nodes with one token are told apart by nobody.
                if ledger.grants.iter().all(|grant| grant.token != token) {
                    ledger.grants.push(self.of_hand(node, token));
                }
            }
            Hand::GrantsNobody(role) => {
                let pool = self.machines[n].pool.clone();
                let node = Node { uid: "nobody".to_owned(), name: "nobody".to_owned(), pool, zone: None, role };
                let token = ledger.highest() + 1;
                ledger.grants.push(self.of_hand(node, token));
            }
            Hand::TakesOut => {
                let uid = self.uid(n).unwrap_or_default().to_owned();
                ledger.grants.retain(|grant| grant.node.uid != uid);
            }
            Hand::DeletesLedger => {
                ledger = Ledger::default();
                self.laws.is_lost = true;
                self.laws.given.clear();
            }
            Hand::Raises(by) => ledger.epoch = ledger.highest() + by,
        }
        self.ledger_by_hand(ledger);
        self.poke();
    }

    fn of_hand(&self, node: Node, token: u64) -> Grant {
        Grant { node, token, since: stamp(self.now, 0), replaces: None }
    }

    /// It is written as nodes and controllers read it. Neither what goes nor what comes is a controller's doing.
    fn ledger_by_hand(&mut self, ledger: Ledger) {
        let read = serde_json::to_value(&ledger).and_then(serde_json::from_value::<Ledger>).unwrap_or(ledger);
        let before = Rc::clone(&self.api.ledger.object);
        for grant in before.grants.iter().filter(|grant| !read.grants.contains(grant)) {
            self.laws.removed.insert((grant.node.uid.clone(), grant.token), self.now);
            self.laws.excused.insert((grant.node.uid.clone(), grant.token));
            self.attempt_was_taken_out(&grant.node.uid, grant.token);
        }
        for grant in read.grants.iter().filter(|grant| !before.grants.contains(grant)) {
            self.laws.excused.insert((grant.node.uid.clone(), grant.token));
            self.laws.by_hand.insert((grant.node.uid.clone(), grant.token));
        }
        self.api.ledger.put(read);
    }

    /// A controller counts a grant that it has seen. It is unknown whether one has seen this grant.
    fn attempt_was_taken_out(&mut self, uid: &str, token: u64) {
        let key = (uid.to_owned(), token);
        if !self.laws.by_hand.contains(&key) && !self.laws.deferred.contains(&key) {
            *self.laws.taken_out.entry(key.0).or_default() += 1;
        }
    }

    /// A controller makes another one, which knows of nothing. Words about the nodes and their grants stay.
    fn another_rollout(&mut self, pool: usize) {
        let Some(of) = self.scenario.pools.get(pool) else { return };
        let nodes = self.api.nodes.values().map(|object| &object.node).filter(|node| node.pool == of.name).cloned();
        let plan = Plan::new(&of.name, NEW, nodes, &self.api.terms[pool].rules(), of.order, of.own.as_deref());
        let uids: Vec<String> = self.uids.keys().cloned().collect();
        for uid in uids {
            let is_in = self.uids.get(&uid).is_some_and(|(n, _)| self.machines[*n].pool == of.name);
            if is_in {
                // Who is at it has its first attempt in the next one.
                self.laws.granted.insert(uid.clone(), u32::from(self.api.ledger.object.held(&uid).is_some()));
                self.laws.repeated.remove(&uid);
                self.laws.taken_out.remove(&uid);
            }
        }
        self.laws.all_done.retain(|(other, _), _| *other != pool);
        self.laws.denied.remove(&pool);
        self.laws.stopped.remove(&pool);
        self.laws.aborted.remove(&pool);
        self.finished[pool] = None;
        // A person's pause is the pool's. What the controllers have paused goes with the rollout.
        let paused = self.laws.paused.get(pool).copied().flatten().map(|_| "eve: lunch".to_owned());
        self.api.edit(pool, |rollout| {
            *rollout = Rollout {
                plan,
                passed: 0,
                paused,
                stopped: None,
                denied: None,
                finished: false,
                soaking_since: None,
                interruption: None,
                retry: None,
                attempts: History::default(),
                aborted: None,
                window_override: None,
                skip: std::mem::take(&mut rollout.skip),
                approvals: std::mem::take(&mut rollout.approvals),
                words: std::mem::take(&mut rollout.words),
            };
        });
    }
}
