//! The effects of the steps on the world, as the documents of the real programs describe them.

use slipway_core::boot::slot::SlotState;
use slipway_node::{
    cordon,
    operation::{Installed, Learned, Moved, Operation, Tried},
    request::Goal,
    step::Step,
};

use super::{
    disk::{Ephemeral, TARGET, digest},
    state::{Lock, State, Well},
};

const DONE: Tried = Tried::Done(Learned::Nothing);

fn blocked(why: &str) -> Tried {
    Tried::Blocked(why.to_owned())
}

fn failed(why: &str) -> Tried {
    Tried::Failed(why.to_owned())
}

/// Do `step`.
pub fn perform(state: &mut State, op: &Operation, step: Step) -> Tried {
    match step {
        Step::Stage => return stage(state),
        Step::Grant if !state.grant => return failed("no grant"),
        Step::Lock if state.lock == Lock::Others => return blocked("another member holds the lock"),
        Step::Lock => state.lock = Lock::Ours,
        Step::Cordon => match cordon::cordoned(&state.node, op.id()) {
            Ok(node) => state.node = node,
            Err(why) => return failed(&why.to_string()),
        },
        Step::Drain => state.drained = true,
        Step::Recheck => {
            if op.shape.kubernetes && !(state.node.unschedulable && state.drained) {
                return blocked("the node is not drained any more");
            }
            if op.request.token.is_some() && !state.grant {
                return failed("the grant was taken back");
            }
            state.rechecked = true;
        }
        Step::Leave => (state.member, state.disturbed, state.member_disturbed) = (false, true, true),
        Step::Stop => stop(state, op),
        Step::Release => state.mounted &= op.request.preserve,
        Step::Activate => return activate(state, op),
        Step::Reboot => state.boots(true),
        Step::Return => {
            state.broken_unless(!state.disk.is_trial(), "a trial that is left is given up first");
            state.boots(true);
        }
        Step::Rejoin if state.stopped || !state.mounted => return blocked("etcd does not run"),
        Step::Rejoin => (state.member, state.removed) = (true, false),
        Step::Renew => anew(state, op),
        Step::Prove | Step::ProveOld => return prove(state, op),
        Step::Confirm => return confirm(state),
        Step::Deactivate => state.disk.once = None,
        Step::GiveUp if state.disk.is_trial() => {
            let running = state.disk.running;
            state.disk.states[running] = SlotState::Bad;
        }
        Step::Uncordon => {
            let released = cordon::released(&state.node, op.id());
            state.frees(released != state.node);
            state.node = released;
        }
        Step::Unlock => {
            state.frees(state.lock == Lock::Ours);
            if state.lock == Lock::Ours {
                state.broken_unless(!state.member_disturbed, "the lock is kept while the member may be down");
                state.lock = Lock::Free;
            }
        }
        Step::Later => state.broken_unless(false, "what only a later version knows is never begun"),
        Step::Grant | Step::Gate | Step::HandOver | Step::GiveUp => {}
    }
    DONE
}

fn stage(state: &mut State) -> Tried {
    let disk = &mut state.disk;
    let payload = Some(digest(TARGET));
    if disk.runs() == Some(TARGET) {
        return Tried::Done(Learned::Staged(Installed { slot: disk.running, payload }, Moved::default()));
    }
    let slot = !disk.running;
    state.broken_unless(state.disk.states[!slot] == SlotState::Good, "the old slot is whole until the new one is good");
    let disk = &mut state.disk;
    (disk.default, disk.once) = (!slot, None);
    (disk.states[slot], disk.payloads[slot]) = (SlotState::Untried, Some(TARGET));
    Tried::Done(Learned::Staged(Installed { slot, payload }, Moved::default()))
}

fn stage_in_part(state: &mut State) {
    let disk = &mut state.disk;
    if disk.runs() != Some(TARGET) {
        let slot = !disk.running;
        (disk.default, disk.once) = (!slot, None);
        (disk.states[slot], disk.payloads[slot]) = (SlotState::Empty, None);
    }
}

/// An admin's acceptance stands for everything but the member of etcd.
fn prove(state: &mut State, op: &Operation) -> Tried {
    let has_word = state.has_word(op);
    let enough = if has_word { Well::Member } else { Well::All };
    // A member that is out of the cluster is not down.
    let is_out = has_word && !state.member;
    if !is_out && (state.well < enough || !state.member) {
        return blocked("it is not well");
    }
    state.member_disturbed = false;
    if state.well == Well::All {
        (state.proven, state.disturbed) = (true, false);
    }
    DONE
}

/// EPHEMERAL is made anew.
fn anew(state: &mut State, op: &Operation) {
    blank(state, op);
    state.disk.ephemeral = Ephemeral::Anew;
}

/// EPHEMERAL is being made anew, and that is as far as it came.
fn blank(state: &mut State, op: &Operation) {
    state.broken_unless(!op.request.preserve, "EPHEMERAL is made anew only if that was asked for");
    state.broken_unless(!state.mounted, "what is mounted is not made anew");
    let has_left = !op.shape.etcd || (!state.member && op.left.is_some());
    state.broken_unless(has_left, "the data of a member of etcd goes once the journal says that it left");
    state.disk.ephemeral = Ephemeral::Blank;
}

/// The installer is killed in the middle, or power is cut. `None` if there is no middle.
pub fn perform_in_part(state: &mut State, op: &Operation, step: Step) -> Option<()> {
    let wipes = step == Step::Renew || (step == Step::Activate && op.request.goal == Goal::Upgrade);
    match step {
        Step::Stage => stage_in_part(state),
        _ if wipes && !op.request.preserve => {
            // A trial that was due is cancelled first.
            state.disk.once = state.disk.once.filter(|_| step == Step::Renew);
            blank(state, op);
        }
        _ => return None,
    }
    Some(())
}

fn stop(state: &mut State, op: &Operation) {
    let is_ours = state.node.owner == Some(op.id().to_string());
    let is_held = (!op.shape.kubernetes || (is_ours && state.drained))
        && (!op.shape.etcd || state.lock == Lock::Ours)
        && (op.request.token.is_none() || state.rechecked);
    let law = "services stop only on a node that is cordoned, drained and locked, and whose grant was there after that";
    state.broken_unless(is_held, law);
    state.stopped = true;
    state.is_disturbed();
}

fn activate(state: &mut State, op: &Operation) -> Tried {
    state.broken_unless(state.stopped, "what boots changes only after services were stopped");
    let disk = &mut state.disk;
    let Some(to) = op.to.as_ref().map(|to| to.slot) else { return failed("nothing is staged") };
    match op.request.goal {
        Goal::Upgrade if disk.states[to] == SlotState::Untried && disk.payloads[to] == Some(TARGET) => {
            if !op.request.preserve {
                anew(state, op);
            }
            state.disk.once = Some(to);
            state.broken_unless(!state.denied, "a denied payload is not tried");
        }
        Goal::Rollback if disk.states[to] == SlotState::Good => (disk.default, disk.once) = (to, None),
        _ => return failed("the slot does not hold what it should"),
    }
    DONE
}

fn confirm(state: &mut State) -> Tried {
    let running = state.disk.running;
    match state.disk.states[running] {
        SlotState::Tried => {
            state.broken_unless(state.proven, "only what was well in this boot is confirmed");
            (state.disk.states[running], state.disk.default) = (SlotState::Good, running);
            DONE
        }
        SlotState::Good if state.disk.default == running => DONE,
        _ => failed("nothing to confirm"),
    }
}
