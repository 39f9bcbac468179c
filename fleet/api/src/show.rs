//! Answers and events, from the node's own types.

use slipway_core::{
    boot::slot::Slot,
    payload::components::{ETCD, KUBELET},
};
use slipway_node::{
    facts::{Disk, Facts},
    journal::{Asked, Denied, Ended, Journal},
    operation::{Course, Moved, Operation, Shape},
    request::Request,
    sequence::{self, Outcome},
    step::Step,
};
use uuid::Uuid;

use crate::v1::{self, RequestState, event::What};

/// The place of `step` among the steps of `op`, from 1, and how many there are; the place is 0 on the way back.
fn place(op: &Operation, step: Step) -> (u32, u32) {
    let steps: Vec<Step> = sequence::steps(op).collect();
    let place = if op.is_forward() { steps.iter().position(|of| *of == step).map_or(0, |at| at + 1) } else { 0 };
    (count(place), count(steps.len()))
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

impl v1::PlanResponse {
    /// The steps of `op`, and what would block each now.
    pub fn of(op: &Operation, blocked: impl Fn(Step) -> Option<String>) -> Self {
        let planned = |step: Step| v1::PlannedStep {
            step: v1::Step::from(step).into(),
            does: step.does().to_owned(),
            on_failure: v1::OnFailure::from(step.on_failure()).into(),
            blocked: blocked(step),
        };
        Self { steps: sequence::steps(op).map(planned).collect() }
    }
}

impl v1::AskResponse {
    /// The result of the request `id`.
    pub fn of(id: Uuid, asked: &Asked) -> Self {
        let (state, outcome) = match asked {
            Asked::New => (RequestState::New, None),
            Asked::UnderWay => (RequestState::UnderWay, None),
            Asked::Ended(outcome) => (RequestState::Ended, Some(outcome.into())),
        };
        Self { id: id.to_string(), state: state.into(), outcome }
    }
}

impl From<&Outcome> for v1::Outcome {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Reached => Self { came_back: None, left: false },
            Outcome::CameBack(why) => Self { came_back: Some(why.clone()), left: false },
            // A client that does not know `left` takes it for no success.
            Outcome::Left(why) => Self { came_back: Some(why.clone()), left: true },
            Outcome::Later(_) => Self { came_back: Some(outcome.to_string()), left: true },
        }
    }
}

impl From<&Operation> for v1::Operation {
    fn from(op: &Operation) -> Self {
        let Request { goal, source, caller, .. } = &op.request;
        let (place, places) = place(op, op.at);
        let back = match &op.course {
            Course::Forward | Course::Later(_) => None,
            Course::Back(why) => Some(why.clone()),
        };
        Self {
            id: op.id().to_string(),
            goal: v1::Goal::from(*goal).into(),
            source: source.clone(),
            caller: caller.clone(),
            step: v1::Step::from(op.at).into(),
            does: op.at.does().to_owned(),
            done: op.done,
            place,
            places,
            back,
            blocked: op.blocker.clone(),
        }
    }
}

impl v1::Step {
    /// The step that was begun last on the way forward, for a client that compares it with others. One that only a later version
    /// knows stands behind all others, as in the journal: nobody knows whether the payload has run.
    pub fn furthest(step: Step) -> Self {
        if step == Step::Later { Self::Confirm } else { Self::from(step) }
    }
}

impl v1::Ended {
    /// The end of a request.
    pub fn of(ended: &Ended) -> Self {
        let Ended { request, failed, reached, moved, outcome, later: _ } = ended;
        Self {
            payload: request.payload.map(String::from).unwrap_or_default(),
            failed: *failed,
            reached: reached.map_or(v1::Step::Unspecified, v1::Step::furthest).into(),
            id: request.id.to_string(),
            goal: v1::Goal::from(request.goal).into(),
            source: request.source.clone(),
            caller: request.caller.clone(),
            outcome: Some(outcome.into()),
            moved: moved.map(|Moved { fetched, reused, written }| v1::Moved { fetched, reused, written }),
        }
    }
}

impl From<&Disk> for v1::Disk {
    fn from(disk: &Disk) -> Self {
        let slot = |slot: Slot| v1::SlotContents {
            slot: v1::Slot::from(slot).into(),
            state: disk.states[slot].map(|state| v1::SlotState::from(state).into()),
            payload: disk.payloads[slot].map(String::from),
            version: disk.versions[slot].clone(),
            etcd: disk.components[slot].version(ETCD).map(str::to_owned),
            kubelet: disk.components[slot].version(KUBELET).map(str::to_owned),
        };
        Self {
            running: v1::Slot::from(disk.running).into(),
            next: disk.next.map(|slot| v1::Slot::from(slot).into()),
            slots: Slot::BOTH.map(slot).into(),
        }
    }
}

impl v1::StatusResponse {
    /// The status of `node`, which runs `version` of the service. The service adds the node's health, and the server the
    /// position of the events and the certificates.
    pub fn of(node: &str, version: &str, shape: Shape, facts: &Facts, journal: &Journal) -> Self {
        let denied = |of: &Denied| v1::Denied { payload: of.payload.into(), why: of.why.clone() };
        Self {
            node: node.to_owned(),
            version: version.to_owned(),
            boot: facts.boot.clone(),
            uptime: facts.uptime,
            kubernetes: shape.kubernetes,
            etcd: shape.etcd,
            disk: facts.disk.as_ref().map(v1::Disk::from),
            operation: journal.operation.as_ref().map(v1::Operation::from),
            ended: journal.ended.iter().map(v1::Ended::of).collect(),
            denied: journal.denied.iter().map(denied).collect(),
            token: journal.token,
            events: None,
            health: None,
            staged: facts.disk.as_ref().and_then(Disk::staged).map(String::from),
            certificates: Vec::new(),
            no_way_back: None,
        }
    }
}

/// Events of the executor.
impl What {
    /// `op` begins.
    pub fn begins(op: &Operation) -> Self {
        let Request { goal, source, caller, allow_outage, allow_any_version, allow_any_etcd, .. } = &op.request;
        Self::Asked(v1::Asked {
            id: op.id().to_string(),
            goal: v1::Goal::from(*goal).into(),
            source: source.clone(),
            caller: caller.clone(),
            allow_outage: *allow_outage,
            allow_any_version: *allow_any_version,
            allow_any_etcd: *allow_any_etcd,
            places: place(op, op.at).1,
        })
    }

    /// `op` begins `step`.
    pub fn step_begins(op: &Operation, step: Step) -> Self {
        let (place, places) = place(op, step);
        let (id, does) = (op.id().to_string(), step.does().to_owned());
        Self::StepBegun(v1::StepBegun { id, step: v1::Step::from(step).into(), does, place, places })
    }

    /// `done` of `total` of `step` are done; 0 if the total is not known.
    pub fn progress(op: Uuid, step: Step, done: u64, total: u64) -> Self {
        Self::StepProgress(v1::StepProgress { id: op.to_string(), step: v1::Step::from(step).into(), done, total })
    }

    /// `why` blocks `step`.
    pub fn blocked(op: Uuid, step: Step, why: &str) -> Self {
        Self::StepBlocked(v1::StepBlocked {
            id: op.to_string(),
            step: v1::Step::from(step).into(),
            why: why.to_owned(),
        })
    }

    /// `step` is done.
    pub fn step_ends(op: Uuid, step: Step) -> Self {
        Self::StepDone(v1::StepDone { id: op.to_string(), step: v1::Step::from(step).into() })
    }

    /// The operation goes back, for `why`.
    pub fn turned_back(op: Uuid, why: &str) -> Self {
        Self::TurnedBack(v1::TurnedBack { id: op.to_string(), why: why.to_owned() })
    }

    /// `op` is over.
    pub fn ends(op: &Operation, outcome: &Outcome) -> Self {
        Self::Ended(v1::Ended::of(&Ended::of(op, outcome.clone())))
    }

    /// Something that belongs to no operation.
    pub fn notice(text: impl Into<String>) -> Self {
        Self::Notice(v1::Notice { text: text.into() })
    }
}
