//! The effects of the steps on the world.

use slipway_core::{boot::slot::SlotState, digest::Sha256};
use slipway_node::{
    cordon,
    operation::{Installed, Learned, Moved, Operation, Tried},
    quorum::Going,
    request::Goal,
    step::Step,
};

use crate::{mutant::Mutant, node::DONE, scenario::Quality, world::World};

fn blocked(why: &str) -> Tried {
    Tried::Blocked(why.to_owned())
}

fn failed(why: &str) -> Tried {
    Tried::Failed(why.to_owned())
}

fn needs(is_so: bool, else_why: &str) -> Result<(), Tried> {
    if is_so { Ok(()) } else { Err(blocked(else_why)) }
}

impl World {
    /// Do `step`. EPHEMERAL is kept: what leaving etcd's cluster does is in the models of the node.
    pub fn perform(&mut self, n: usize, op: &Operation, step: Step) -> Tried {
        let tried = match step {
            Step::Stage => return self.stage(n, op),
            Step::Grant => self.reads_grant(n, op),
            Step::Lock => self.lock(n),
            Step::Gate => self.gate(n, op),
            Step::Cordon => self.cordon(n, op),
            Step::Drain => self.drain(n),
            Step::HandOver => self.hands_over(n, op),
            Step::Recheck => self.rechecks(n, op),
            Step::Stop => self.stop(n, op),
            Step::Activate => self.activate(n, op),
            Step::Prove | Step::ProveOld => self.prove(n, op, step),
            Step::Confirm | Step::Deactivate | Step::GiveUp => self.on_disk(n, step),
            Step::Uncordon => self.uncordon(n, op),
            Step::Unlock => self.unlock(n),
            Step::Release => Ok(()),
            Step::Leave | Step::Rejoin | Step::Renew | Step::Reboot | Step::Return | Step::Later => {
                Err(failed("it is not simulated"))
            }
        };
        tried.map_or_else(|tried| tried, |()| DONE)
    }

    fn stage(&mut self, n: usize, op: &Operation) -> Tried {
        let now = self.machines[n].time(self.now);
        let machine = &mut self.machines[n];
        let Some(payload) = op.request.payload else { return failed("it names no payload") };
        let at = |slot| Tried::Done(Learned::Staged(Installed { slot, payload: Some(payload) }, Moved::default()));
        if machine.runs() == Some(payload) {
            return at(machine.running);
        }
        if machine.quality == Quality::NotStaged {
            return failed("the payload cannot be written");
        }
        let slot = !machine.running;
        machine.env = machine.env.deactivated(slot, now).staged(slot, now);
        machine.payloads[slot] = Some(payload);
        at(slot)
    }

    /// The grant, by a read that no cache answers.
    fn reads_grant(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        if self.mutant == Mutant::NoReread {
            return Ok(());
        }
        needs(self.reaches_api(n), "the API server does not answer")?;
        self.counts.node_reads += 1;
        self.counts.carried += self.api.ledger.object.grants.len() as u64;
        let held = self.uid(n).and_then(|uid| self.api.ledger.object.held(uid)).map(|grant| grant.token);
        if held.is_some() && held == op.request.token { Ok(()) } else { Err(failed("the fleet has not granted it")) }
    }

    fn lock(&mut self, n: usize) -> Result<(), Tried> {
        needs(self.reaches_api(n), "etcd does not serve")?;
        needs(self.etcd.lock.is_none_or(|holder| holder == n), "another member holds the lock")?;
        self.etcd.lock = Some(n);
        Ok(())
    }

    /// Checks whether etcd keeps its quorum. Of the failures until now it knows.
    fn gate(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        self.machines[n].failures = self.etcd.failures;
        if op.request.allow_outage {
            return Ok(());
        }
        needs(self.reaches_api(n), "etcd does not answer")?;
        let may = self.etcd.seen().may_go(n as u64 + 1, 100, Going::Down);
        may.map_err(|why| blocked(&why.to_string()))
    }

    fn cordon(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        // The lock, the quorum and the Node may have been waited for since it was read.
        self.reads_grant(n, op)?;
        needs(self.reaches_api(n), "the API server does not answer")?;
        let name = self.machines[n].name.clone();
        let object = self.api.nodes.get_mut(&name).ok_or_else(|| blocked("there is no such Node"))?;
        object.state = cordon::cordoned(&object.state, op.id()).map_err(|why| failed(&why.to_string()))?;
        self.counts.node_writes += 1;
        self.disturbs(n, op, Step::Cordon);
        Ok(())
    }

    fn drain(&mut self, n: usize) -> Result<(), Tried> {
        needs(self.reaches_api(n), "the API server does not answer")?;
        needs(self.now >= self.machines[n].drain_blocked_until, "a pod may not be evicted")?;
        self.machines[n].is_drained = true;
        Ok(())
    }

    fn hands_over(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        if self.etcd.leader != n || op.request.allow_outage {
            return Ok(());
        }
        needs(self.reaches_api(n), "etcd does not serve")?;
        let next = self.etcd.seen().successor(n as u64 + 1, 100).ok_or_else(|| blocked("no member can lead"))?;
        self.etcd.leader = usize::try_from(next - 1).unwrap_or(n);
        Ok(())
    }

    fn rechecks(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        self.reads_grant(n, op)?;
        needs(self.reaches_api(n), "the API server does not answer")?;
        let owner = op.id().to_string();
        let state = self.api.nodes.get(&self.machines[n].name).map(|object| &object.state);
        let is_ours = state.is_some_and(|state| state.unschedulable && state.owner.as_ref() == Some(&owner));
        needs(is_ours && self.machines[n].is_drained, "the node is not drained any more")?;
        if !op.shape.etcd {
            return Ok(());
        }
        needs(self.etcd.lock == Some(n), "the lock is gone")?;
        self.gate(n, op)
    }

    fn stop(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        self.disturbs(n, op, Step::Stop);
        let served = self.etcd.serves();
        self.machines[n].is_stopped = true;
        self.check(n, true);
        self.keeps_quorum(n, op, served);
        Ok(())
    }

    fn activate(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        let payload: Option<Sha256> = op.to.as_ref().and_then(|to| to.payload);
        let slot = op.to.as_ref().map(|to| to.slot).ok_or_else(|| failed("nothing is staged"))?;
        let now = self.machines[n].time(self.now);
        let machine = &mut self.machines[n];
        if op.request.goal == Goal::Rollback {
            let is_good = machine.env.states[slot] == SlotState::Good;
            machine.env = machine.env.rolled_back(slot, None);
            return if is_good { Ok(()) } else { Err(failed("the slot holds no system that was confirmed")) };
        }
        if machine.env.states[slot] != SlotState::Untried || machine.payloads[slot] != payload {
            return Err(failed("the slot does not hold what it should"));
        }
        machine.env = machine.env.armed(slot, now);
        let is_in_vain = payload.is_some_and(|payload| machine.in_vain.contains(&payload));
        if is_in_vain {
            self.laws.break_it(format!("{} tries a payload that was in vain on it", self.machines[n].name));
        }
        Ok(())
    }

    fn prove(&mut self, n: usize, op: &Operation, step: Step) -> Result<(), Tried> {
        let machine = &self.machines[n];
        let wanted = if step == Step::Prove { op.to.as_ref() } else { Some(&op.from) };
        needs(wanted.map(|wanted| wanted.slot) == Some(machine.running), "another system runs")?;
        needs(machine.is_well, "it is not well")?;
        // The Node object says if the kubelet is ready.
        needs(self.reaches_api(n), "the API server does not answer")
    }

    fn on_disk(&mut self, n: usize, step: Step) -> Result<(), Tried> {
        let now = self.machines[n].time(self.now);
        let machine = &mut self.machines[n];
        let running = machine.running;
        match (step, machine.env.states[running]) {
            (Step::Confirm, SlotState::Tried) => machine.env = machine.env.confirmed(running, &[], now),
            (Step::Confirm, SlotState::Good) => {}
            (Step::Confirm, _) => return Err(failed("nothing to confirm")),
            (Step::GiveUp, SlotState::Tried) => machine.env = machine.env.given_up(running, None, now),
            (Step::GiveUp, _) => {}
            _ => machine.env = machine.env.disarmed(),
        }
        Ok(())
    }

    fn uncordon(&mut self, n: usize, op: &Operation) -> Result<(), Tried> {
        needs(self.reaches_api(n), "the API server does not answer")?;
        let name = self.machines[n].name.clone();
        let object = self.api.nodes.get_mut(&name).ok_or_else(|| blocked("there is no such Node"))?;
        object.state = cordon::released(&object.state, op.id());
        self.counts.node_writes += 1;
        Ok(())
    }

    fn unlock(&mut self, n: usize) -> Result<(), Tried> {
        needs(self.reaches_api(n), "etcd does not serve")?;
        self.etcd.lock = self.etcd.lock.filter(|holder| *holder != n);
        Ok(())
    }
}
