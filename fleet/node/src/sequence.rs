//! From operation and facts to the next step. The order of [`FORWARD`] and [`BACK`] is the safety argument:
//!
//! * Everything that can be known without disturbing anybody is known before the cordon.
//! * Whatever has to be undone is in the journal before it is done: an undo may meet what was never done, and each can.
//! * The disk changes what boots in one step, the last one before the reboot, and only for one boot.
//! * What was granted or locked is given back last, when the node is well again. Nothing of it has an end of its own.
//! * The disk has the last word on what runs: a journal that says otherwise is wrong.

use serde::{Deserialize, Serialize};
use slipway_core::boot::slot::SlotState;

use crate::{
    facts::{Disk, Facts},
    goal::Goal,
    operation::{Course, Operation},
    step::{OnFailure, Step},
};

/// The way to what was asked for.
pub const FORWARD: [Step; 19] = [
    Step::Stage,
    Step::Grant,
    Step::Lock,
    Step::Gate,
    Step::Cordon,
    Step::Drain,
    Step::HandOver,
    Step::Recheck,
    Step::Leave,
    Step::Stop,
    Step::Release,
    Step::Activate,
    Step::Reboot,
    Step::Rejoin,
    Step::Prove,
    Step::Confirm,
    Step::Uncordon,
    Step::Unlock,
    Step::Free,
];

/// The way back, once the machine runs the old system and nothing waits for a trial.
pub const BACK: [Step; 5] = [Step::ProveOld, Step::Rejoin, Step::Uncordon, Step::Unlock, Step::Free];

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// What was asked for is so.
    Reached,
    /// It is as it was before, for this reason.
    CameBack(String),
}

/// What comes next. The caller journals it before it does it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Begin this step.
    Begin(Step),
    /// Turn back, for this reason.
    Turn(String),
    /// The machine tried the payload and runs the old system again: turn back, and deny the payload.
    FellBack(String),
    /// The disk says that this step is done.
    Found(Step),
    /// Nothing can be decided. It names what is missing.
    Wait(String),
    /// It is over.
    End(Outcome),
}

/// How long a step may be blocked before the operation turns back, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Writing the payload.
    pub stage: u64,
    /// Grant, lock and quorum.
    pub gate: u64,
    /// Cordon, drain, hand-over and the last look.
    pub drain: u64,
    /// Services, volumes, and activating the slot.
    pub stop: u64,
    /// From the start of the new system until it is well. The guard's deadline should be longer.
    pub prove: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { stage: 3600, gate: 1800, drain: 900, stop: 300, prove: 480 }
    }
}

impl Limits {
    fn of(self, step: Step) -> u64 {
        match step {
            Step::Stage => self.stage,
            Step::Grant | Step::Lock | Step::Gate => self.gate,
            Step::Cordon | Step::Drain | Step::HandOver | Step::Recheck | Step::Leave => self.drain,
            Step::Stop | Step::Release | Step::Activate | Step::Reboot => self.stop,
            Step::Rejoin | Step::Prove | Step::Confirm => self.prove,
            _ => u64::MAX,
        }
    }
}

/// The steps of an operation, in their order.
pub fn steps(op: &Operation) -> impl Iterator<Item = Step> + '_ {
    FORWARD.into_iter().filter(|step| applies(op, *step))
}

/// Whether the operation has this step.
fn applies(op: &Operation, step: Step) -> bool {
    let (request, shape) = (&op.request, op.shape);
    let goal = request.goal;
    if goal == Goal::Stage {
        return step == Step::Stage;
    }
    match step {
        Step::Stage | Step::Confirm => goal == Goal::Upgrade,
        Step::Activate => goal != Goal::Reboot,
        Step::Grant | Step::Free => request.token.is_some(),
        Step::Lock | Step::Gate | Step::HandOver | Step::Unlock => shape.etcd,
        Step::Leave | Step::Rejoin => shape.etcd && goal == Goal::Upgrade && !request.preserve,
        Step::Cordon | Step::Drain | Step::Uncordon => shape.kubernetes,
        Step::Recheck => shape.kubernetes || shape.etcd || request.token.is_some(),
        _ => true,
    }
}

/// Whether a failure of the step that was begun leads back.
pub fn may_turn(op: &Operation) -> bool {
    // Only an upgrade is tried once. What else changes the slot is not taken back.
    let has_way_back = op.request.goal == Goal::Upgrade || op.at < Step::Activate;
    op.is_forward() && has_way_back && op.at.on_failure() != OnFailure::TryAgain
}

/// What comes next.
pub fn next(op: &Operation, facts: &Facts, limits: Limits) -> Next {
    let Some(disk) = &facts.disk else {
        return match blocked_too_long(op, facts, limits) {
            Some(why) if op.at < Step::Activate => Next::Turn(why),
            _ => Next::Wait("the disk's boot state cannot be read".to_owned()),
        };
    };
    match &op.course {
        Course::Forward => forward(op, facts, disk, limits),
        Course::Back(why) => back(op, facts, disk, why),
    }
}

fn forward(op: &Operation, facts: &Facts, disk: &Disk, limits: Limits) -> Next {
    if let Some(next) = after_a_boot(op, facts, disk) {
        return next;
    }
    if may_turn(op) && !is_confirmed(op, disk) {
        let why = op.abort.clone().or_else(|| blocked_too_long(op, facts, limits));
        if let Some(why) = why {
            return Next::Turn(why);
        }
    }
    if !op.done {
        return begin(op, op.at, facts);
    }
    if op.at == Step::Stage && op.to.as_ref() == Some(&op.from) {
        return Next::End(Outcome::Reached);
    }
    match steps(op).find(|step| place(*step) > place(op.at)) {
        Some(step) => begin(op, step, facts),
        None => Next::End(Outcome::Reached),
    }
}

/// Where a step is on the way forward.
fn place(step: Step) -> Option<usize> {
    FORWARD.iter().position(|of| *of == step)
}

/// What a boot since the step was begun means; `None` if there was none, or it means nothing.
fn after_a_boot(op: &Operation, facts: &Facts, disk: &Disk) -> Option<Next> {
    if op.boot == facts.boot {
        return None;
    }
    let runs = |of: &crate::operation::Installed| disk.running == of.slot && disk.payloads[of.slot] == of.payload;
    let is_there = op.to.as_ref().is_some_and(runs);
    match op.at {
        // Nothing was disturbed, and the same system runs: it goes on.
        Step::Stage | Step::Grant | Step::Lock | Step::Gate => {
            (!runs(&op.from)).then(|| Next::Turn("the machine was rebooted into another system".to_owned()))
        }
        // The boot that the sequence waits for. It may have come before the journal says so: the slot was activated.
        Step::Activate | Step::Reboot if is_there => Some(Next::Found(Step::Reboot)),
        Step::Activate | Step::Reboot if op.request.goal == Goal::Reboot => {
            Some(Next::Turn("the machine was rebooted into another system".to_owned()))
        }
        step if step >= Step::Activate && !is_there => {
            let why = "the machine came back to the old system".to_owned();
            let was_tried = op.to.as_ref().is_some_and(|to| was_tried(disk, to));
            Some(if was_tried { Next::FellBack(why) } else { Next::Turn(why) })
        }
        // A new system that was rebooted once more, after it was confirmed.
        step if step > Step::Reboot => None,
        _ => Some(Next::Turn("the machine was rebooted meanwhile".to_owned())),
    }
}

fn was_tried(disk: &Disk, to: &crate::operation::Installed) -> bool {
    matches!(disk.states[to.slot], Some(SlotState::Tried | SlotState::Bad))
}

/// Whether the new system is the default, whoever confirmed it. From here there is no way back but another request.
fn is_confirmed(op: &Operation, disk: &Disk) -> bool {
    let is_new = op.to.as_ref().is_some_and(|to| to.slot == disk.running && to.slot != op.from.slot);
    op.request.goal == Goal::Upgrade && op.came_to(Step::Activate) && is_new && disk.is_good()
}

fn blocked_too_long(op: &Operation, facts: &Facts, limits: Limits) -> Option<String> {
    let limit = limits.of(op.at);
    // The new system's time began with its boot.
    let since = if op.reached > Step::Reboot { 0 } else { op.since };
    let is_over = op.boot == facts.boot && !op.done && facts.uptime.saturating_sub(since) > limit;
    is_over.then(|| {
        let why = op.blocker.as_deref().unwrap_or("it did not end");
        format!("{}: {why} (after {limit} s)", op.at)
    })
}

/// Begin `step`, if what the journal must say before it is known.
fn begin(op: &Operation, step: Step, facts: &Facts) -> Next {
    match step {
        Step::Cordon if op.cordon.is_none() && facts.node.is_none() => {
            Next::Wait("the Node object cannot be read".to_owned())
        }
        Step::Leave if op.left.is_none() && facts.member.is_none() => {
            Next::Wait("this node's member of etcd cannot be found".to_owned())
        }
        _ => Next::Begin(step),
    }
}

fn back(op: &Operation, facts: &Facts, disk: &Disk, why: &str) -> Next {
    if is_confirmed(op, disk) {
        return Next::Found(Step::Reboot);
    }
    let changes = op.request.goal == Goal::Upgrade && op.came_to(Step::Activate);
    if let Some(to) = op.to.as_ref().filter(|_| changes) {
        if disk.running == to.slot && disk.running != op.from.slot {
            let is_given_up = disk.states[to.slot] == Some(SlotState::Bad);
            return Next::Begin(if is_given_up { Step::Return } else { Step::GiveUp });
        }
        if disk.next == Some(to.slot) && disk.running != to.slot {
            return Next::Begin(Step::Deactivate);
        }
    }
    if op.stopped_in.as_ref() == Some(&facts.boot) {
        return Next::Begin(Step::Return);
    }
    let mut left = BACK.into_iter().filter(|step| undoes(op, *step));
    let last = BACK.iter().position(|step| *step == op.at).filter(|_| op.done);
    match left.find(|step| last.is_none_or(|last| BACK.iter().position(|of| of == step) > Some(last))) {
        Some(step) => Next::Begin(step),
        None => Next::End(Outcome::CameBack(why.to_owned())),
    }
}

/// Whether there may be something for this step to undo.
fn undoes(op: &Operation, step: Step) -> bool {
    match step {
        Step::ProveOld => op.stopped_in.is_some(),
        Step::Rejoin => op.left.is_some(),
        Step::Uncordon => op.cordon.is_some(),
        Step::Unlock => op.shape.etcd && op.came_to(Step::Lock),
        Step::Free => op.request.token.is_some() && op.came_to(Step::Grant),
        _ => false,
    }
}
