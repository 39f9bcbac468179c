//! The laws of every step, by arithmetic of their own, from the simulated truth and not from what a controller believes.

use std::collections::BTreeMap;

use slipway_node::{operation::Operation, request::Goal, sequence::Outcome, step::Step};
use slipway_rollout::ledger::{Grant, Ledger, Proof, Role};

use crate::{
    controller_state::{Change, Write},
    world::World,
};

impl World {
    /// A step begins. The grant is read after that.
    pub fn begins(&mut self, n: usize, step: Step) {
        if matches!(step, Step::Grant | Step::Cordon | Step::Recheck) {
            self.machines[n].looked = self.now;
        }
    }

    /// The node is disturbed by this step: it is cordoned, which is where it begins; or its services stop, from where
    /// only a boot leads back.
    pub fn disturbs(&mut self, n: usize, op: &Operation, step: Step) {
        let Some(token) = op.request.token else { return };
        let uid = match (step, &self.machines[n].disturbed) {
            (Step::Stop, Some((uid, _))) => Some(uid.clone()),
            _ => self.uid(n).map(str::to_owned),
        };
        let Some(uid) = uid else { return };
        self.holds_what_it_obeys(n, &uid, token, step);
        self.machines[n].disturbed = Some((uid, token));
        self.laws.at_work.insert(n);
        self.is_within_the_budget();
    }

    /// A node that begins a disturbance has read its grant in the ledger, of just this token.
    fn holds_what_it_obeys(&mut self, n: usize, uid: &str, token: u64, step: Step) {
        let is_held = self.api.ledger.object.held(uid).is_some_and(|grant| grant.token == token);
        let removed = self.laws.removed.get(&(uid.to_owned(), token));
        let was_held = removed.is_some_and(|at| *at >= self.machines[n].looked);
        self.laws.must(is_held || was_held, || {
            format!("grants: n{n} ({uid}) comes to {step:?} with the token {token}, which it does not hold")
        });
    }

    /// All that are disturbed hold the grant that they obey; in no pool are there more than were allowed when those
    /// grants were given; and of the control plane there is one.
    pub fn is_within_the_budget(&mut self) {
        let mut pools: BTreeMap<&str, u64> = BTreeMap::new();
        let mut control_plane = 0;
        let mut without = None;
        for n in &self.laws.at_work {
            let Some((uid, token)) = &self.machines[*n].disturbed else { continue };
            let is_excused = self.laws.excused.contains(&(uid.clone(), *token));
            // A node that lies about itself is not counted: that is its own doing.
            let is_excused = is_excused || self.machines[*n].has_lied;
            if is_excused || !self.api.exists_as(&self.machines[*n].name, uid) {
                continue;
            }
            let removed = self.laws.removed.contains_key(&(uid.clone(), *token));
            let is_held = self.api.ledger.object.held(uid).is_some_and(|grant| grant.token == *token);
            if removed || !is_held {
                without = Some(format!("grants: n{n} ({uid}) is disturbed, and the ledger has no grant {token} of it"));
            }
            let machine = &self.machines[*n];
            *pools.entry(&machine.pool).or_default() += 1;
            let younger = self.scenario.pools.get(self.scenario.shared.younger);
            let younger = younger.filter(|_| self.scenario.shared.names.contains(&machine.name));
            younger.into_iter().for_each(|pool| *pools.entry(&pool.name).or_default() += 1);
            control_plane += u64::from(self.machines[*n].role == Role::ControlPlane);
        }
        let grants = &self.api.ledger.object.grants;
        let allowed = |pool: &str| {
            let allowed = |grant: &Grant| {
                let is_own = grant.node.pool == pool;
                let tokens = if is_own { &self.laws.allowed } else { &self.laws.allowed_in_younger };
                tokens.get(&grant.token).copied()
            };
            grants.iter().filter_map(allowed).max().unwrap_or(0)
        };
        let over = pools.iter().find(|(pool, many)| **many > allowed(pool));
        let over = over.map(|(pool, many)| {
            format!("budget: {many} of pool {pool} are disturbed, and {} are allowed", allowed(pool))
        });
        let two = (control_plane > 1).then(|| "control plane: two of its nodes are disturbed at once".to_owned());
        if let Some(law) = without.or(over).or(two) {
            self.laws.break_it(law);
        }
    }

    /// The ledger was written.
    pub fn ledger_was_written(&mut self, before: &Ledger, write: &Write) {
        let after = std::rc::Rc::clone(&self.api.ledger.object);
        let is_new = |token: u64| !before.grants.iter().any(|grant| grant.token == token);
        let new: Vec<u64> = after.grants.iter().map(|grant| grant.token).filter(|token| is_new(*token)).collect();
        let highest = before.grants.iter().map(|grant| grant.token).fold(before.epoch, u64::max);
        let rises = new.iter().all(|token| *token > highest) && after.highest() >= highest;
        self.laws.must(rises, || format!("tokens: {new:?} is given after {highest}"));
        let given = new.iter().copied().fold(highest, u64::max);
        let liars = self.machines.iter().filter(|machine| machine.has_lied).count();
        let is_ours = after.epoch <= given || 2 * liars > self.machines.len() || self.laws.is_lost;
        self.laws.must(is_ours, || format!("tokens: the epoch rises to {}, and {given} was given", after.epoch));
        for grant in &before.grants {
            let stays = after.grants.iter().any(|other| other.token == grant.token && other.node.uid == grant.node.uid);
            if !stays {
                self.laws.removed.insert((grant.node.uid.clone(), grant.token), self.now);
            }
        }
        match &write.change {
            Change::Grant(node) => self.may_be_granted(before, write, node),
            Change::Free(uid, proof) => self.may_be_freed(before, write, uid, proof),
            _ => {}
        }
        self.is_within_the_budget();
    }

    /// The proof that frees a grant is true.
    fn may_be_freed(&mut self, before: &Ledger, write: &Write, uid: &str, proof: &Proof) {
        let Some(token) = before.held(uid).map(|grant| grant.token) else { return };
        self.attempt_ended(&std::rc::Rc::clone(&write.view), uid, token, matches!(proof, Proof::Word { .. }));
        match proof {
            Proof::Word { .. } => {
                // A person speaks of one grant.
                let is_said = matches!(proof, Proof::Word { why, .. } if *why == format!("it has {token}"));
                self.laws
                    .must(is_said, || format!("words: what a person said of another grant frees {token} of {uid}"));
                self.laws.excused.insert((uid.to_owned(), token));
            }
            Proof::Gone { .. } => {
                let exists = self.api.exists(uid);
                self.laws.must(!exists, || format!("frees: {uid} is said to be gone, and is there"));
            }
            Proof::Succeeded { .. } => self.laws.must(false, || format!("frees: {uid} has no successor here")),
            Proof::Well { .. } => {
                let is_at_work = self.laws.at_work.iter().any(|n| {
                    let machine = &self.machines[*n];
                    let is_it = machine.disturbed.as_ref().is_some_and(|(of, with)| of == uid && *with == token);
                    is_it && !machine.has_lied
                });
                self.laws.must(!is_at_work, || format!("frees: {uid} is at work, and its grant {token} is freed"));
            }
        }
    }

    /// An operation starts the machine anew: once forward and once back with each grant.
    pub fn orders_reboot(&mut self, n: usize, op: &Operation, step: Step) {
        let token = op.request.token.unwrap_or(0);
        let way = usize::from(step == Step::Return);
        let counts = self.machines[n].reboots.entry(token).or_default();
        counts[way] += 1;
        let many = counts[way];
        self.laws
            .must(many <= 1, || format!("reboots: n{n} does {step:?} for the {many}th time with the grant {token}"));
    }

    /// A member of etcd goes down because its operation says so: that leaves a quorum, unless another one failed after
    /// the last look, or the quorum was given up on request.
    pub fn keeps_quorum(&mut self, n: usize, op: &Operation, served: bool) {
        let is_lost = served && !self.etcd.serves() && op.shape.etcd && !op.request.allow_outage;
        let known = self.machines[n].failures;
        let is_late = self.etcd.peers.iter().any(|peer| peer.machine != n && !peer.up && peer.failed > known);
        let is_late = is_late || self.etcd.edited > known;
        self.laws.must(!is_lost || is_late, || format!("quorum: n{n} takes it from etcd"));
        let is_held = !op.shape.etcd || self.etcd.lock == Some(n);
        self.laws.must(is_held, || format!("quorum: n{n} stops its member without the lock"));
    }

    /// The disk agrees with the end of an operation, which has given back all that it took.
    pub fn outcome_is_so(&mut self, n: usize, op: &Operation, outcome: &Outcome) {
        let machine = &self.machines[n];
        let name = &machine.name;
        let is_so = match (outcome, op.request.goal) {
            (Outcome::Reached, Goal::Upgrade) => machine.runs() == op.request.payload && machine.is_confirmed(),
            (Outcome::Reached, Goal::Rollback) => {
                op.to.as_ref().map(|to| to.slot) == Some(machine.running) && machine.is_confirmed()
            }
            (Outcome::Reached, _) => {
                machine.payloads.a == op.request.payload || machine.payloads.b == op.request.payload
            }
            (Outcome::CameBack(why) | Outcome::Left(why), _) => {
                !why.is_empty() && machine.is_confirmed() && machine.env.once.is_none()
            }
            (Outcome::Later(_), _) => false,
        };
        let law = (!is_so).then(|| format!("outcomes: {name} ends with {outcome:?}, and its disk says otherwise"));
        let object = self.api.nodes.get(name);
        let id = op.id().to_string();
        let is_left = object.filter(|_| op.request.goal != Goal::Stage).is_some_and(|object| {
            let is_ours = object.state.owner.as_ref() == Some(&id);
            let is_foreign = object.state.owner.is_some() && !is_ours;
            is_ours || (!is_foreign && object.state.unschedulable != object.want)
        });
        let law = law.or_else(|| is_left.then(|| format!("cordons: {name} is not as people want it at the end")));
        let keeps = self.etcd.lock == Some(n) && op.shape.etcd;
        let law = law.or_else(|| keeps.then(|| format!("locks: {name} keeps the lock in etcd at the end")));
        if let Some(law) = law {
            self.laws.break_it(law);
        }
    }
}
