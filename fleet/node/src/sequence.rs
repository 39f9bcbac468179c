//! From operation and facts to the next step. The order of [`FORWARD`] and [`BACK`] is the safety argument:
//!
//! * Everything that can be checked without a disturbance is checked before the cordon.
//! * Each step that may be undone is in the journal before it is done. So an undo may meet a step that was never done, and each can.
//! * The disk changes what boots in one step, the last one before the reboot, and only for one boot.
//! * The lock is given back last, when the node is well again. It has no end of its own.
//! * The fleet's grant is looked at before a request is taken, before anything is locked, when the node is cordoned, and
//!   again before services stop: it may have been taken back. From there on the node finishes alone. It gives nothing back:
//!   the fleet frees the grant of a node that says that it is well, that nothing is under way, and that this was the highest
//!   token it obeyed, whatever came of it.
//! * The disk has the last word on what runs: a journal that says otherwise is wrong.
//! * Checks before a boot count for nothing after it: the system is proven anew before anything is given
//!   back.
//! * EPHEMERAL goes with the activation: after the member's departure is in the journal, services are stopped and the slot
//!   is verified, and before the next boot is the new system. Cut short, it leaves EPHEMERAL blank, the boot state says so,
//!   and the old system, which boots without it, makes it anew and boots once more.
//! * An admin's acceptance ends an operation that never becomes well. It stands for units, kubelet and soak, in this boot,
//!   and only where there is nothing to go back to. It does not stand for the member of etcd: while that may be down, the
//!   lock is kept.
//! * A later version, on trial, goes on with the operation, and the system of before finds what it has written. What it does not
//!   know is never gone on with: it is undone, as far as anything may have been done.

use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use slipway_core::boot::slot::SlotState;

use crate::{
    facts::{Disk, Facts},
    operation::{Course, Installed, Operation},
    request::Goal,
    step::{OnFailure, Step},
};

/// The way to the request.
pub const FORWARD: [Step; 18] = [
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
];

/// The way back, once the machine runs the old system and nothing waits for a trial.
pub const BACK: [Step; 4] = [Step::Rejoin, Step::ProveOld, Step::Uncordon, Step::Unlock];

/// Seconds until a blocked step is tried again, at least.
const SOON: u64 = 5;
/// Seconds until a blocked stage is tried again, at most.
const LATE: u64 = 300;

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The goal is reached.
    Reached,
    /// It is as it was before, for this reason.
    CameBack(String),
    /// It was never found well, and an admin takes it as it is, for this reason.
    Left(String),
    /// Read from a journal: one that only a later version knows.
    #[serde(untagged)]
    Later(Value),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached => f.write_str("it is what was asked for"),
            Self::CameBack(why) => write!(f, "it is as before: {why}"),
            Self::Left(why) => write!(f, "it is unknown whether the node is well: {why}"),
            Self::Later(how) => {
                write!(f, "a later version of slipwayd says how it ended, and this one does not know it: {how}")
            }
        }
    }
}

/// The next action. The caller journals it before it does it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Begin this step.
    Begin(Step),
    /// Turn back, for this reason.
    TurnBack(String),
    /// The disk says that this step is done.
    Found(Step),
    /// Nothing can be decided. It names the missing facts.
    Wait(String),
    /// It is over.
    End(Outcome),
}

/// Seconds that a step may be blocked before the operation turns back.
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
    fn for_step(self, step: Step) -> u64 {
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

/// Seconds until a step that is blocked is tried again. A registry that does not have the payload is not asked every few
/// seconds for an hour: a stage waits a quarter of the time for which it has been tried, but not beyond its limit.
pub fn next_try(op: &Operation, facts: &Facts, limits: Limits) -> u64 {
    if op.at != Step::Stage {
        return SOON;
    }
    let spent = spent(op, facts);
    let left = limits.stage.saturating_sub(spent).saturating_add(1);
    (spent / 4).clamp(SOON, LATE).min(left).max(1)
}

/// The steps of an operation, in their order.
pub fn steps(op: &Operation) -> impl Iterator<Item = Step> + '_ {
    FORWARD.into_iter().filter(|step| applies(op, *step))
}

/// True if the operation has this step.
fn applies(op: &Operation, step: Step) -> bool {
    let (request, shape) = (&op.request, op.shape);
    let goal = request.goal;
    let runs_already = goal == Goal::Upgrade && op.to.as_ref() == Some(&op.from);
    match step {
        Step::Stage => goal.writes(),
        _ if goal == Goal::Stage || runs_already => false,
        Step::Grant => request.token.is_some(),
        Step::Confirm => goal == Goal::Upgrade,
        Step::Activate => goal != Goal::Reboot,
        Step::Lock | Step::Gate | Step::HandOver | Step::Unlock => shape.etcd,
        Step::Leave | Step::Rejoin => shape.etcd && goal == Goal::Upgrade && !request.preserve,
        Step::Cordon | Step::Drain | Step::Uncordon => shape.kubernetes,
        Step::Recheck => shape.kubernetes || shape.etcd || request.token.is_some(),
        _ => true,
    }
}

/// True if a failure of the step that was begun leads back.
pub fn may_turn(op: &Operation) -> bool {
    // Only an upgrade is tried once. What else changes the slot is not taken back once it is done.
    let has_way_back = op.request.goal == Goal::Upgrade || op.at <= Step::Activate;
    op.is_forward() && has_way_back && op.at.on_failure() != OnFailure::TryAgain
}

/// True if only an admin's acceptance can end it: the system was looked at in this boot and is not well, and there is no
/// other one to go back to. A trial of any origin is confirmed or given up.
pub fn may_be_left(op: &Operation, facts: &Facts) -> bool {
    let is_looked_at = matches!(op.at, Step::Prove | Step::ProveOld) && !op.done && op.boot == facts.boot;
    let is_last = |disk: &Disk| !disk.is_on_trial() && (!may_turn(op) || is_there_to_stay(op, disk));
    is_looked_at && op.blocker.is_some() && facts.disk.as_ref().is_some_and(is_last)
}

/// The next action.
pub fn next(op: &Operation, facts: &Facts, limits: Limits) -> Next {
    let Some(disk) = &facts.disk else {
        return Next::Wait("the disk's boot state cannot be read".to_owned());
    };
    match (&op.course, op.is_beyond()) {
        (Course::Back(why), _) => back(op, facts, disk, why),
        // What a boot since then means is known, whatever step it was.
        (Course::Forward, Some(why)) if op.request.goal != Goal::Later => {
            after_a_boot(op, facts, disk).unwrap_or_else(|| Next::TurnBack(why.to_owned()))
        }
        (_, Some(why)) => Next::TurnBack(why.to_owned()),
        (_, None) => forward(op, facts, disk, limits),
    }
}

fn forward(op: &Operation, facts: &Facts, disk: &Disk, limits: Limits) -> Next {
    if let Some(next) = after_a_boot(op, facts, disk) {
        return next;
    }
    let may_turn = may_turn(op) && !is_there_to_stay(op, disk);
    if may_turn {
        let why = op.abort.clone().or_else(|| blocked_too_long(op, facts, limits));
        if let Some(why) = why {
            return Next::TurnBack(why);
        }
    }
    // An operation starts at a place where it may have no step.
    let step =
        if op.done || !applies(op, op.at) { steps(op).find(|step| place(*step) > place(op.at)) } else { Some(op.at) };
    let Some(step) = step else {
        return Next::End(match op.left_as_is(&facts.boot) {
            None => Outcome::Reached,
            Some(word) => Outcome::Left(format!("left as it is: {word}")),
        });
    };
    match lacks(op, step, facts, disk) {
        None => Next::Begin(step),
        // It cannot begin, so its time is counted from where the one before it began.
        Some(why) if may_turn && spent(op, facts) > limits.for_step(op.at).saturating_add(limits.for_step(step)) => {
            Next::TurnBack(format!("{step}: {why}"))
        }
        Some(why) => Next::Wait(why),
    }
}

/// Where a step is on the way forward.
fn place(step: Step) -> Option<usize> {
    FORWARD.iter().position(|of| *of == step)
}

/// True if this system runs.
fn runs(disk: &Disk, of: &Installed) -> bool {
    disk.running == of.slot && disk.payloads[of.slot] == of.payload
}

/// The meaning of a boot since the step was begun; `None` if there was none, or it means nothing.
fn after_a_boot(op: &Operation, facts: &Facts, disk: &Disk) -> Option<Next> {
    if op.boot == facts.boot {
        return None;
    }
    let turn = |why: &str| Some(Next::TurnBack(why.to_owned()));
    let runs_old = runs(disk, &op.from);
    match op.at {
        // Nothing was disturbed, and the same system runs: it goes on.
        Step::Stage | Step::Grant | Step::Lock | Step::Gate if runs_old => None,
        // The boot that the sequence waits for. It may have come before the journal says so: the slot was activated. Or one
        // more boot of the new system: it is unknown yet whether it is well this time.
        step if step >= Step::Activate && op.to.as_ref().is_some_and(|to| runs(disk, to)) => {
            Some(Next::Found(Step::Reboot))
        }
        step if step >= Step::Activate && runs_old => turn("the machine came back to the old system"),
        _ if runs_old => turn("the machine was rebooted meanwhile"),
        _ => turn("the machine was rebooted into another system"),
    }
}

/// True if the new system is the default, by any confirmation. From here there is no way back but another request.
fn is_there_to_stay(op: &Operation, disk: &Disk) -> bool {
    let is_new = |to: &Installed| to.slot != op.from.slot && runs(disk, to);
    // Nobody knows where a goal of a later version ends: it is never taken for reached.
    op.request.goal != Goal::Later && op.came_to(Step::Activate) && op.to.as_ref().is_some_and(is_new) && disk.is_good()
}

/// Seconds since the step was begun.
fn spent(op: &Operation, facts: &Facts) -> u64 {
    // The new system's time began with its boot.
    let since = if op.boot != facts.boot || op.came_to(Step::Rejoin) { 0 } else { op.since };
    facts.uptime.saturating_sub(since)
}

fn blocked_too_long(op: &Operation, facts: &Facts, limits: Limits) -> Option<String> {
    let limit = limits.for_step(op.at);
    let is_over = op.boot == facts.boot && !op.done && spent(op, facts) > limit;
    is_over.then(|| {
        let why = op.blocker.as_deref().unwrap_or(match op.at {
            Step::Reboot => "the machine did not go down",
            _ => "it did not end",
        });
        format!("{}: {why} (after {limit} s)", op.at)
    })
}

/// Why `step` cannot begin: the journal would need a fact that is unknown, or the step would do harm.
fn lacks(op: &Operation, step: Step, facts: &Facts, disk: &Disk) -> Option<String> {
    let unread = |what: &str| match &facts.unread {
        Some(why) => format!("{what}: {why}"),
        None => what.to_owned(),
    };
    match step {
        Step::Reboot | Step::Return if disk.next.is_none() => Some("no slot would boot".to_owned()),
        Step::Cordon if op.cordon.is_none() && facts.node.is_none() => Some(unread("the Node object cannot be read")),
        Step::Leave if op.left.is_none() && facts.member.is_none() => {
            Some(unread("this node's member of etcd cannot be found"))
        }
        _ => None,
    }
}

fn back(op: &Operation, facts: &Facts, disk: &Disk, why: &str) -> Next {
    if is_there_to_stay(op, disk) {
        return Next::Found(Step::Reboot);
    }
    if let Some(step) = leave_trial(op, disk).or_else(|| return_or_renew(op, facts, disk)) {
        return match lacks(op, step, facts, disk) {
            None => Next::Begin(step),
            Some(why) => Next::Wait(why),
        };
    }
    // After a boot from the start: each can be done twice, and the system is to be well before anything is given back.
    let last = BACK.iter().position(|step| *step == op.at).filter(|_| op.done && op.boot == facts.boot);
    let left = BACK.into_iter().skip(last.map_or(0, |last| last + 1));
    match left.into_iter().find(|step| undoes(op, *step, facts)) {
        Some(step) => Next::Begin(step),
        None => Next::End(match op.left_as_is(&facts.boot) {
            None => Outcome::CameBack(why.to_owned()),
            Some(word) => Outcome::Left(format!("{why}; left as it is: {word}")),
        }),
    }
}

/// The step away from a trial that runs, or that the next boot would be.
fn leave_trial(op: &Operation, disk: &Disk) -> Option<Step> {
    let was_activated = may_have_tried(op) && op.came_to(Step::Activate);
    let to = op.to.as_ref().filter(|to| was_activated && to.slot != op.from.slot)?;
    match disk.states[to.slot] {
        // Not ours: a person made it the default.
        Some(SlotState::Good) => None,
        Some(SlotState::Bad) if disk.running == to.slot => Some(Step::Return),
        _ if disk.running == to.slot => Some(Step::GiveUp),
        _ => (disk.next == Some(to.slot)).then_some(Step::Deactivate),
    }
}

/// True if it is one that tries a system once.
fn may_have_tried(op: &Operation) -> bool {
    matches!(op.request.goal, Goal::Upgrade | Goal::Later)
}

/// The steps whose undoing needs a boot first.
fn return_or_renew(op: &Operation, facts: &Facts, disk: &Disk) -> Option<Step> {
    let is_of = |boot: &Option<String>| boot.as_ref() == Some(&facts.boot);
    let may_be_blank = may_have_tried(op) && !op.request.preserve && op.came_to(Step::Activate);
    match () {
        // Whatever became of EPHEMERAL, the machine is not left with its services stopped.
        () if is_of(&op.stopped_in) => Some(Step::Return),
        () if may_be_blank && disk.blank => Some(Step::Renew),
        () if is_of(&op.renewed_in) => Some(Step::Return),
        () => None,
    }
}

/// True if there may be something for this step to undo.
fn undoes(op: &Operation, step: Step, facts: &Facts) -> bool {
    match step {
        Step::Rejoin => op.left.is_some(),
        // A node that was not disturbed may have been ill before, and gives back what it has all the same.
        Step::ProveOld => op.request.goal != Goal::Stage && (op.left.is_some() || op.asked_in != facts.boot),
        Step::Uncordon => op.cordon.is_some(),
        Step::Unlock => op.shape.etcd && op.came_to(Step::Lock),
        _ => false,
    }
}

/// True if the payload was tried and is not what runs: what `op` ends with is a verdict on it.
pub(crate) fn was_in_vain(op: &Operation, disk: &Disk) -> bool {
    // An abort is no verdict on the payload. Nor does it take one away: whatever else led back counts.
    let may_be = op.came_to(Step::Activate) && !op.is_aborted();
    op.to.as_ref().filter(|_| may_be).is_some_and(|to| {
        let was_tried = matches!(disk.states[to.slot], Some(SlotState::Tried | SlotState::Bad));
        was_tried && disk.payloads[to.slot] == to.payload
    })
}
