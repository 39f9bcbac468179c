//! Faults that come from outside, and people.

use std::rc::Rc;

use slipway_core::{boot::env::BootEnv, digest::Sha256};
use slipway_node::{
    cordon::NodeState,
    request::{Goal, Request},
    sequence::may_turn,
};
use slipway_rollout::{
    facts::Approval,
    ledger::{Node, Role},
};

use uuid::Uuid;

use crate::{
    NEW,
    api::Object,
    clock::Seconds,
    etcd::Peer,
    faults::Fault,
    machine::Machine,
    policies,
    world::{Event, World},
};

impl World {
    /// A fault, or a person's action.
    pub fn fault(&mut self, fault: Fault, n: usize) {
        if self.is_calm {
            return;
        }
        self.counts.faults += 1;
        let name = self.machines[n].name.clone();
        self.trace.say(self.now, || format!("fault on {name}: {fault:?}"));
        let now = self.now;
        match fault {
            Fault::PowerCut(outage) => self.power_cut(n, outage),
            Fault::Dies(cleaned) if self.may_die(n) => self.dies(n, cleaned),
            Fault::Replaced(_) | Fault::Dies(_) if !self.may_die(n) => {}
            Fault::Partition(seconds) => {
                self.machines[n].cut_off_until = now + seconds;
                self.check_until(n, seconds);
            }
            Fault::ApiDown(seconds) => self.api.down_until = self.api.down_until.max(now + seconds),
            Fault::ClockJumps(c, by) => (self.controllers[c].offset, self.laws.has_wrong_clock) = (by, true),
            Fault::NodeClockJumps(by) => self.machines[n].clock = by,
            Fault::ControllerDies(c, seconds) => self.crashes(c, seconds),
            Fault::Blinds(c, seconds) => self.controllers[c].blind_until = now + seconds,
            Fault::WatchLags(c, lag, seconds) => self.controllers[c].lag = (lag, now + seconds),
            Fault::DrainBlocked(seconds) => self.machines[n].drain_blocked_until = now + seconds,
            Fault::FallsIll(seconds) => {
                self.machines[n].ill_until = now + seconds;
                self.check_until(n, seconds);
            }
            Fault::NodeDeleted(_) | Fault::Replaced(_) | Fault::Dies(_) => self.vanishes(n, fault),
            Fault::Pauses(..) | Fault::Skips(_) | Fault::EditsPolicies(_) => self.wish(n, fault),
            Fault::GivesUp(_) | Fault::Hurries(..) | Fault::Approves(..) => self.wish(n, fault),
            Fault::Cordons | Fault::Uncordons => self.cordons(n, fault == Fault::Cordons),
            Fault::Lies(lie, seconds) => {
                (self.machines[n].lie, self.machines[n].has_lied) = (Some(lie), true);
                self.publish_report(n);
                if let Some(seconds) = seconds {
                    self.after(seconds, Event::IsHonest(n));
                }
            }
            Fault::Forged(above) => self.forged(n, above),
            Fault::Word => self.word(n),
            Fault::Aborts => self.aborts(n),
            Fault::Echo => self.echo(),
            Fault::UpgradesKubernetes(takes) => self.claims(takes),
            Fault::ByHand(hand) => self.writes_by_hand(n, hand),
        }
    }

    fn check_until(&mut self, n: usize, seconds: Seconds) {
        self.check(n, false);
        self.after(seconds, Event::Check(n));
    }

    /// A cluster whose etcd has lost its majority for good is not one that is upgraded.
    fn may_die(&self, n: usize) -> bool {
        let lives = |peer: &&Peer| peer.machine != n && !self.machines[peer.machine].is_dead;
        let left = self.etcd.peers.iter().filter(lives).count();
        !self.etcd.has(n) || left > self.etcd.peers.len() / 2
    }

    fn dies(&mut self, n: usize, cleaned: Option<Seconds>) {
        let is_ours = self.machines[n].is_stopped;
        let machine = &mut self.machines[n];
        machine.is_dead = true;
        machine.goes_down();
        self.check(n, is_ours);
        if let Some(seconds) = cleaned {
            self.after(seconds, Event::CleansUp(n));
        }
    }

    /// The Node of a machine that is gone for good is deleted, its member of etcd is taken out, and so is its lock.
    pub fn cleans_up(&mut self, n: usize) {
        if !self.machines[n].is_dead || !self.api_answers() {
            return;
        }
        let name = self.machines[n].name.clone();
        self.trace.say(self.now, || format!("people clean up behind {name}"));
        self.api.nodes.remove(&name);
        self.api.changed(self.now);
        self.etcd.remove(n);
        self.poke();
    }

    fn vanishes(&mut self, n: usize, fault: Fault) {
        let name = self.machines[n].name.clone();
        if self.machines[n].is_dead || !self.api_answers() || self.api.nodes.remove(&name).is_none() {
            return;
        }
        self.api.changed(self.now);
        self.poke();
        match fault {
            Fault::NodeDeleted(seconds) => self.after(seconds, Event::Registers(n)),
            Fault::Replaced(seconds) => {
                self.dies(n, None);
                self.etcd.remove(n);
                self.after(seconds, Event::Replaced(n));
            }
            _ => {}
        }
    }

    /// The kubelet makes its Node, if there is none.
    pub fn registers(&mut self, n: usize) {
        let machine = &self.machines[n];
        if machine.is_dead || self.api.nodes.contains_key(&machine.name) {
            return;
        }
        if !machine.is_up || !self.reaches_api(n) {
            self.after(60, Event::Registers(n));
            return;
        }
        let (name, pool, role, life) = (machine.name.clone(), machine.pool.clone(), machine.role, machine.life);
        let many = self.uids.values().filter(|(of, _)| *of == n).count();
        let uid = format!("u{n}-{many}");
        let zone = self.scenario.nodes[n].zone.clone();
        self.uids.insert(uid.clone(), (n, life));
        let node = Node { uid, name: name.clone(), pool, zone, role };
        self.trace.say(self.now, || format!("{name} registers as {}", node.uid));
        self.api.nodes.insert(name, Object { node, state: NodeState::default(), want: false });
        self.api.changed(self.now);
        self.poke();
    }

    /// Another machine of the same name.
    pub fn replaced(&mut self, n: usize) {
        let old = &self.machines[n];
        let mut machine = Machine::new(&old.name, &old.pool, old.role, old.quality);
        machine.is_tried_once = old.is_tried_once;
        (machine.life, machine.boot, machine.ticket) = (old.life + 1, old.boot + 1, old.ticket + 1);
        machine.env = BootEnv::installed(0);
        (machine.booted, machine.healthy_from, machine.since) = (self.now, self.now, self.now);
        machine.said.clear();
        self.laws.at_work.remove(&n);
        if machine.role == Role::ControlPlane {
            self.etcd.add(n);
        }
        self.machines[n] = machine;
        self.check(n, false);
        self.registers(n);
    }

    fn wish(&mut self, n: usize, fault: Fault) {
        if !self.api_answers() {
            return;
        }
        match fault {
            Fault::Pauses(pool, seconds) => {
                self.laws.paused[pool] = Some(self.now);
                self.api.edit(pool, |rollout| rollout.paused = Some("eve: lunch".to_owned()));
                self.after(seconds, Event::Resumes(pool));
            }
            Fault::Skips(until) => {
                let (Some(uid), Some(pool)) = (self.uid(n).map(str::to_owned), self.pool_of(n)) else { return };
                self.laws.skipped.insert(uid.clone(), self.now);
                self.api.edit(pool, |rollout| rollout.skip.extend([uid.clone()]));
                if let Some(seconds) = until {
                    self.after(seconds, Event::Unskips(pool, uid));
                }
            }
            Fault::GivesUp(pool) => {
                self.laws.aborted.entry(pool).or_insert(self.now);
                self.api.edit(pool, |rollout| rollout.aborted = Some("eve: the wrong image".to_owned()));
            }
            Fault::Hurries(pool, seconds, soak) => {
                let until = self.now + seconds;
                self.api.edit(pool, |rollout| rollout.window_override = Some((until, soak.then_some(rollout.passed))));
            }
            Fault::Approves(pool, waves, is_other) => self.api.edit(pool, |rollout| {
                let hash = rollout.plan.hash;
                let plan = if is_other { Sha256::of(&hash.0) } else { hash };
                rollout.approvals.push(Approval { plan, waves });
            }),
            Fault::EditsPolicies(pool) => {
                let terms = policies::random(&mut self.random);
                self.trace.say(self.now, || format!("policies of pool {pool}: {terms}"));
                self.api.terms[pool] = Rc::new(terms);
                self.api.changed(self.now);
            }
            _ => {}
        }
        self.poke();
    }

    /// The place of the pool that a machine is in.
    pub fn pool_of(&self, n: usize) -> Option<usize> {
        let pool = &self.machines.get(n)?.pool;
        self.scenario.pools.iter().position(|other| other.name == *pool)
    }

    /// It tells the truth again.
    pub fn is_honest(&mut self, n: usize) {
        self.machines[n].lie = None;
        self.publish_report(n);
    }

    /// A person lets it go on. What the controllers have paused stays so.
    pub fn resumes(&mut self, pool: usize) {
        self.api.edit(pool, |rollout| rollout.paused = None);
        self.laws.paused[pool] = None;
        self.poke();
    }

    /// A person wants it to go along after all.
    pub fn unskips(&mut self, pool: usize, uid: &str) {
        self.api.edit(pool, |rollout| rollout.skip.retain(|other| other != uid));
        self.laws.skipped.remove(uid);
        self.poke();
    }

    fn cordons(&mut self, n: usize, is_to_be: bool) {
        let name = self.machines[n].name.clone();
        let Some(object) = self.api.nodes.get_mut(&name) else { return };
        let is_ours = object.state.owner.is_some();
        // On a node that is ours a second wish to have it cordoned does not show.
        if object.state.unschedulable != is_to_be && !(is_ours && is_to_be) {
            (object.state.unschedulable, object.want) = (is_to_be, is_to_be);
        }
    }

    fn word(&mut self, n: usize) {
        let (Some(uid), Some(pool)) = (self.uid(n).map(str::to_owned), self.pool_of(n)) else { return };
        let Some(grant) = self.api.ledger.object.held(&uid) else { return };
        if !self.api_answers() {
            return;
        }
        let token = grant.token;
        self.api.edit(pool, |rollout| rollout.words.extend([(uid, token)]));
        self.poke();
    }

    fn aborts(&mut self, n: usize) {
        let mut journal = self.machines[n].journal.clone();
        let Some(op) = journal.operation.as_mut().filter(|op| op.abort.is_none()) else { return };
        op.abort = Some("aborted by eve".to_owned());
        if self.machines[n].is_up {
            self.machines[n].write(journal);
        }
    }

    /// The fleet asks the machine of this name to end what it began with this grant.
    pub fn goes_back(&mut self, name: &str, token: u64) {
        let Some(n) = self.named(name) else { return };
        if !self.machines[n].is_up || self.now < self.machines[n].cut_off_until {
            return;
        }
        let mut journal = self.machines[n].journal.clone();
        let Some(op) = journal.operation.as_mut().filter(|op| op.request.token == Some(token)) else { return };
        // As the service does it: not on the way back, and from some point on there is none.
        if op.abort.is_some() || !may_turn(op) {
            return;
        }
        op.abort = Some("aborted by fleet".to_owned());
        self.machines[n].write(journal);
    }

    /// The ledger does not name its token, so nothing may come of it.
    fn forged(&mut self, n: usize, above: u64) {
        let goal = [Goal::Stage, Goal::Upgrade, Goal::Rollback, Goal::Reboot][self.random.place(4)];
        let token = self.api.ledger.object.highest().saturating_add(1).saturating_add(above);
        // Or one that is over: then only its token is new.
        let ended = self.machines[n].journal.ended.first().map(|ended| ended.request.clone());
        let again = ended.filter(|_| self.random.coin());
        let id = Uuid::from_u64_pair(if again.is_none() { self.random.number() } else { 0 }, 0);
        let asked = again.unwrap_or_else(|| Request {
            source: if goal.writes() { "docker://registry.example/os:2".to_owned() } else { String::new() },
            payload: goal.writes().then_some(NEW),
            allow_outage: true,
            ..Request::new(id, goal, "mallory")
        });
        let request = Request { token: Some(token), caller: "mallory".to_owned(), ..asked };
        let name = self.machines[n].name.clone();
        self.receive(&name, request);
    }

    fn echo(&mut self) {
        let at = self.random.place(self.sent.len());
        if let Some((name, request)) = self.sent.get(at).cloned() {
            self.receive(&name, request);
        }
    }

    /// The faults end, and every node that can come back comes back.
    pub fn becomes_calm(&mut self) {
        self.is_calm = true;
        self.trace.say(self.now, || "from here on nothing goes wrong".to_owned());
        self.api.down_until = self.now;
        self.laws.changed = self.now;
        for c in 0..self.controllers.len() {
            let controller = &mut self.controllers[c];
            (controller.offset, controller.lag, controller.blind_until) = (0, (0, 0), 0);
            // Work that was begun with the clock that was wrong is not gone on with.
            controller.is_up = false;
            self.starts(c);
        }
        for n in 0..self.machines.len() {
            let machine = &mut self.machines[n];
            let (now, boot) = (self.now, machine.boot);
            // The one that is never honest again goes on.
            machine.ill_until = machine.ill_until.min(now);
            machine.cut_off_until = machine.cut_off_until.min(now);
            machine.drain_blocked_until = machine.drain_blocked_until.min(now);
            self.after(30, Event::Up(n, boot));
            self.check(n, false);
        }
        for pool in 0..self.scenario.pools.len() {
            self.resumes(pool);
        }
    }
}
