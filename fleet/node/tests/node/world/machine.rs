//! The events that can happen to a node, in any order.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::{Arc, Mutex, PoisonError},
};

use slipway_core::boot::slot::{Slot, SlotState};
use slipway_node::{
    cordon::NodeState,
    journal::Journal,
    operation::{Course, Learned, Shape, Tried},
    request::Goal,
    sequence::{Limits, Next, next},
    step::Step,
};
use stateright::{Model, Property};

use super::{
    act,
    disk::{Disk, Ephemeral, FOREIGN, OLDER, TARGET, digest},
    laws,
    state::{Lock, State, Well},
};
use crate::request;

/// The token of the grant.
pub const TOKEN: u64 = 5;

/// Later than every limit.
pub const LATE: u64 = 100_000;

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look, decide, and write the journal.
    Decide,
    /// The step that was announced is done, and its outcome written down.
    Do(Did),
    /// The system becomes as well as this.
    BecomeWell(Well),
    /// The other member gives its lock back.
    OtherUnlocks,
    /// The following is a fault, or a person's action.
    Fault(Fault),
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// As the world has it.
    Plainly,
    /// Nothing is done, and this comes of it.
    Not(Said),
    /// It is done, and this comes of it.
    But(Said),
    /// It is done, and `slipwayd` is killed before it can say so.
    ThenKilled,
    /// It is done, and power is cut before the node can report it.
    ThenCut,
    /// The installer is killed in the middle.
    Half,
    /// Power is cut in the middle.
    HalfThenCut,
    /// The machine was told to go down, and takes its time.
    Ordered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Blocked,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `slipwayd` is killed before it does what it announced.
    Killed,
    /// Power is cut, or the guard or the watchdog ends a trial.
    PowerCut,
    /// Power is cut, and the firmware does not let GRUB save that it tries a slot.
    PowerCutAndNoTrial,
    /// More time goes by than the step may take.
    TimeOver,
    /// An admin wants the operation to end.
    Abort,
    /// An admin takes the node as it is.
    AsIs,
    /// A person takes our member out of etcd's cluster.
    Removes,
    FallIll,
    /// A person takes the fleet's grant back.
    Frees,
    Cordons,
    Uncordons,
    /// A person confirms the trial by hand.
    Confirms,
    /// A person cancels the trial that is due.
    Cancels,
    /// Another program writes another payload into the other slot, and has the next boot try it.
    Installs,
}

const FAULTS: [Fault; 14] = [
    Fault::Killed,
    Fault::PowerCut,
    Fault::PowerCutAndNoTrial,
    Fault::TimeOver,
    Fault::Abort,
    Fault::AsIs,
    Fault::Removes,
    Fault::FallIll,
    Fault::Frees,
    Fault::Cordons,
    Fault::Uncordons,
    Fault::Confirms,
    Fault::Cancels,
    Fault::Installs,
];

/// The model.
#[derive(Clone)]
pub struct Machine {
    pub goal: Goal,
    pub preserve: bool,
    pub shape: Shape,
    /// The fleet's grant, if the fleet asks.
    pub token: Option<u64>,
    /// Faults in one run.
    pub faults: u8,
    /// States from which a fair run is known to end.
    pub ends: Arc<Mutex<HashSet<u64>>>,
}

impl Machine {
    /// A control-plane node that the fleet asks, and two faults in any order.
    pub fn new(goal: Goal, preserve: bool) -> Self {
        let shape = Shape { kubernetes: true, etcd: true };
        Self { goal, preserve, shape, token: Some(TOKEN), faults: 2, ends: Arc::default() }
    }

    fn start(&self, (b, payload): (SlotState, Option<u8>), ill: bool, node: NodeState, denied: bool) -> Option<State> {
        let want = node.unschedulable;
        let mut state = State {
            disk: Disk::new(b, payload),
            boot: 0,
            journal: Arc::default(),
            to_do: None,
            well: Well::All,
            stopped: false,
            mounted: true,
            member: true,
            removed: false,
            node,
            lock: if ill { Lock::Others } else { Lock::Free },
            grant: self.token.is_some(),
            rechecked: false,
            ill,
            denied,
            drained: false,
            proven: false,
            found_ill: false,
            disturbed: false,
            member_disturbed: false,
            rebooted: false,
            tried: false,
            meddled: false,
            want,
            unsettled: false,
            left: self.faults,
            broken: None,
        };
        let mut journal = Journal::default();
        if denied {
            journal.deny(digest(TARGET), "it was tried before");
        }
        let request = request(self.goal, self.preserve, self.token);
        journal.ask(request, self.shape, &state.facts(0)).ok()?;
        state.write(journal);
        Some(state)
    }

    /// The node decides. False if nothing came of it.
    pub fn decide(&self, state: &mut State, uptime: u64) -> bool {
        let facts = state.facts(uptime);
        let Some(op) = state.op().cloned() else { return false };
        let next = next(&op, &facts, Limits::default());
        if uptime == LATE && !matches!(next, Next::TurnBack(_)) {
            return false;
        }
        let mut journal = Journal::clone(&state.journal);
        state.to_do = journal.take(next.clone(), &facts);
        state.unsettled &= next == Next::Begin(op.at) || matches!(next, Next::Wait(_));
        state.broken_unless(
            matches!(next, Next::Begin(_) | Next::Wait(_)) || journal.operation != state.journal.operation,
            "a decision begins a step, changes the journal, or says what it waits for",
        );
        if journal != *state.journal {
            state.write(journal);
        }
        if let Next::End(outcome) = &next {
            state.ended(&op, outcome);
        }
        true
    }

    /// The step is done as the world has it, and settled.
    pub fn perform(&self, state: &mut State, did: Did) -> Option<()> {
        let step = state.to_do.take()?;
        let op = state.op()?.clone();
        let is_boot = matches!(step, Step::Reboot | Step::Return);
        let tried = match did {
            // A machine that goes down reports nothing more.
            Did::But(_) | Did::ThenKilled | Did::ThenCut if is_boot => return None,
            Did::Ordered if !is_boot => return None,
            Did::Not(_) | Did::Ordered => None,
            Did::Half | Did::HalfThenCut => {
                act::perform_in_part(state, &op, step)?;
                None
            }
            _ => Some(act::perform(state, &op, step)),
        };
        let said = |said, why: &str| match said {
            Said::Blocked => Tried::Blocked(why.to_owned()),
            Said::Failed => Tried::Failed(why.to_owned()),
        };
        let tried = match did {
            Did::Plainly if is_boot => return Some(()),
            Did::Plainly => tried?,
            Did::Ordered => Tried::Done(Learned::Nothing),
            Did::Not(how) => said(how, "it did not work"),
            Did::Half => said(Said::Blocked, "it was killed"),
            Did::But(how) => said(how, "its success was not reported"),
            Did::ThenKilled => return Some(()),
            Did::ThenCut | Did::HalfThenCut => {
                state.boots(true);
                return Some(());
            }
        };
        state.unsettled = !matches!(tried, Tried::Done(_));
        state.found_ill = state.unsettled && matches!(step, Step::Prove | Step::ProveOld);
        let mut journal = Journal::clone(&state.journal);
        crate::settle(&mut journal, tried);
        if journal != *state.journal {
            state.write(journal);
        }
        Some(())
    }

    fn fault(&self, state: &mut State, fault: Fault) -> Option<()> {
        let (disk, running) = (state.disk.clone(), state.disk.running);
        match fault {
            Fault::Killed => drop(state.to_do.take()?),
            Fault::PowerCut => state.boots(true),
            Fault::PowerCutAndNoTrial => {
                disk.once?;
                state.boots(false);
            }
            Fault::TimeOver if state.to_do.is_some() || !self.decide(state, LATE) => return None,
            Fault::TimeOver => {}
            Fault::Abort => {
                let mut journal = Journal::clone(&state.journal);
                let op = journal.operation.as_mut().filter(|op| op.abort.is_none())?;
                op.abort = Some("an admin wants it to end".to_owned());
                state.write(journal);
            }
            Fault::AsIs => {
                let mut journal = Journal::clone(&state.journal);
                if !journal.accept_as_is("an admin takes it as it is", &state.facts(0)) {
                    return None;
                }
                let may_be = state.found_ill && !state.disk.is_trial();
                state.broken_unless(may_be, "a word is taken for what was found ill in this boot, and for no trial");
                state.write(journal);
            }
            Fault::Removes if self.shape.etcd && state.member => {
                (state.member, state.removed, state.well) = (false, true, Well::No);
            }
            Fault::FallIll if state.well != Well::No => state.well = Well::No,
            Fault::Frees if state.grant => state.grant = false,
            // On a node that is ours and cordoned, a second wish to have it cordoned does not show.
            Fault::Cordons if !state.node.unschedulable && state.node.owner.is_none() => {
                (state.node.unschedulable, state.want) = (true, true);
            }
            Fault::Uncordons if state.node.unschedulable => {
                (state.node.unschedulable, state.want) = (false, false);
            }
            Fault::Confirms if disk.is_trial() => {
                (state.disk.states[running], state.disk.default) = (SlotState::Good, running);
            }
            Fault::Cancels => drop(state.disk.once.take()?),
            // A person who does it while EPHEMERAL is blank gets just that.
            Fault::Installs
                if running == Slot::A && disk.payloads.b != Some(FOREIGN) && disk.ephemeral != Ephemeral::Blank =>
            {
                state.disk.once = Some(Slot::B);
                (state.disk.states.b, state.disk.payloads.b) = (SlotState::Untried, Some(FOREIGN));
                (state.disk.default, state.meddled) = (Slot::A, true);
            }
            _ => return None,
        }
        Some(())
    }

    /// From here, a run in which nothing goes wrong any more ends, or says what blocks it.
    pub fn ends(&self, state: &State) -> bool {
        let mut state = State { left: 0, ..state.clone() };
        let mut seen = Vec::new();
        for _ in 0..200 {
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&state);
            let is_known = self.ends.lock().unwrap_or_else(PoisonError::into_inner).contains(&hash);
            if is_known || state.op().is_none() {
                self.ends.lock().unwrap_or_else(PoisonError::into_inner).extend(seen);
                return true;
            }
            seen.push(hash);
            let before = state.clone();
            // An admin's acceptance counts as being well.
            let has_word = state.op().is_some_and(|op| state.has_word(op));
            state.well = state.well.max(state.can_be().min(if has_word { Well::Member } else { Well::All }));
            if state.lock == Lock::Others {
                state.lock = Lock::Free;
            }
            if state.to_do.is_some() {
                self.perform(&mut state, Did::Plainly);
            } else {
                self.decide(&mut state, 0);
                // It waits in vain, and the time goes by.
                if state == before && !self.decide(&mut state, LATE) {
                    break;
                }
            }
            if state.to_do.is_some() && state.unsettled && !self.fault_in_time(&mut state) && state == before {
                return false;
            }
        }
        self.is_stuck_for_good(&state)
    }

    /// Of a step that does not get done, the time goes by.
    fn fault_in_time(&self, state: &mut State) -> bool {
        let to_do = state.to_do.take();
        let is_over = self.decide(state, LATE);
        if !is_over {
            state.to_do = to_do;
        }
        is_over
    }

    /// A person confirmed the target, and it is never well; or a person has removed the member. The node waits, says so, and
    /// an admin's acceptance ends it.
    fn is_stuck_for_good(&self, state: &State) -> bool {
        let is_confirmed = state.disk.runs() == Some(TARGET) && !state.disk.is_trial();
        let is_never_well = (state.ill && is_confirmed) || state.removed;
        let waits = state
            .op()
            .is_some_and(|op| matches!(op.at, Step::Prove | Step::ProveOld) && !op.done && op.blocker.is_some());
        let mut left = Journal::clone(&state.journal);
        let may_be_left = left.accept_as_is("an admin takes it as it is", &state.facts(0)) || state.disk.is_trial();
        is_never_well && waits && may_be_left
    }
}

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let b = [(SlotState::Empty, None), (SlotState::Good, Some(OLDER)), (SlotState::Untried, Some(TARGET))];
        let owned = NodeState { unschedulable: true, owner: Some("another".to_owned()), before: None };
        let node = |unschedulable| NodeState { unschedulable, ..NodeState::default() };
        let mut states = Vec::new();
        // A change that is not written yet may be missing in the state before.
        for b in b.into_iter().filter(|(state, _)| self.goal.writes() || *state == SlotState::Good) {
            states.extend(self.start(b, false, node(false), false));
            states.extend(self.start(b, true, node(true), false));
        }
        states.extend(self.start(b[1], false, owned, false));
        states.extend(self.start(b[1], false, node(false), true));
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // The model ends here; a broken law stays broken.
        if state.op().is_none() || state.broken.is_some() {
            return;
        }
        actions.push(if state.to_do.is_some() { Action::Do(Did::Plainly) } else { Action::Decide });
        actions.extend([Action::BecomeWell(Well::Member), Action::BecomeWell(Well::All), Action::OtherUnlocks]);
        if state.left == 0 {
            return;
        }
        if state.to_do.is_some() {
            let not = [Did::Not(Said::Blocked), Did::Not(Said::Failed), Did::But(Said::Blocked)];
            actions.extend(not.map(Action::Do));
            let but =
                [Did::But(Said::Failed), Did::ThenKilled, Did::ThenCut, Did::Half, Did::HalfThenCut, Did::Ordered];
            actions.extend(but.map(Action::Do));
        }
        actions.extend(FAULTS.map(Action::Fault));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Decide => {
                self.decide(&mut state, 0);
            }
            Action::Do(did) => self.perform(&mut state, did)?,
            Action::BecomeWell(well) if state.well < well && well <= state.can_be() => state.well = well,
            Action::OtherUnlocks if state.lock == Lock::Others => state.lock = Lock::Free,
            Action::BecomeWell(_) | Action::OtherUnlocks => return None,
            Action::Fault(fault) => self.fault(&mut state, fault)?,
        }
        let is_fault =
            !matches!(action, Action::Decide | Action::Do(Did::Plainly) | Action::BecomeWell(_) | Action::OtherUnlocks);
        state.left -= u8::from(is_fault);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        laws::all()
    }
}

/// The operation is on its way back.
pub fn is_back(state: &State) -> bool {
    state.op().is_some_and(|op| matches!(op.course, Course::Back(_)))
}
