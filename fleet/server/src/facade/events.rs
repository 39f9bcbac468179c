//! Our events in Talos' words. One of ours is none, one or several of theirs: its parts.
//!
//! | ours | theirs |
//! |---|---|
//! | asked | a sequence starts; the machine is upgrading, or rebooting |
//! | step begun, step done | a phase starts, a phase stops |
//! | step blocked | a condition of the machine that is not met |
//! | turned back | the sequence has a fatal error |
//! | ended | the sequence stops; the machine runs, and is ready if what was asked for is so |
//!
//! A client that asks for the events of one operation by its name gets the end of it, also where that came before the service
//! was restarted. A machine that came back to what it was is not told to be ready: a client that waits for an upgrade would take that for
//! its success. How many bytes are written, and notices, have no words of theirs.

use std::{
    collections::VecDeque,
    time::{SystemTime, UNIX_EPOCH},
};

use prost::Message;
use slipway_node_api::{
    enum_name,
    machine::{
        Any, Error, Event, EventsRequest, MachineStatusEvent, PhaseEvent, SequenceEvent,
        machine_status_event::{MachineStage, MachineStatus, UnmetCondition},
        phase_event, sequence_event,
    },
    reason::Reason,
    v1::{self, Position, event::What},
};
use tonic::Status;

use crate::{
    events::{EventLog, Reader},
    service::Source,
};

/// An error that ends a sequence.
const FATAL: i32 = 0;

/// A part of an event.
struct TalosEvent {
    type_url: String,
    value: Vec<u8>,
    actor: String,
}

impl TalosEvent {
    fn new(name: &str, message: &impl Message, actor: &str) -> Self {
        let type_url = format!("talos/runtime/machine.{name}");
        Self { type_url, value: message.encode_to_vec(), actor: actor.to_owned() }
    }

    fn sequence(goal: &str, action: sequence_event::Action, why: Option<&str>, actor: &str) -> Self {
        let error = why.map(|why| Error { code: FATAL, message: why.to_owned() });
        let event = SequenceEvent { sequence: goal.to_owned(), action: action.into(), error };
        Self::new("SequenceEvent", &event, actor)
    }

    fn phase(step: &str, action: phase_event::Action, actor: &str) -> Self {
        Self::new("PhaseEvent", &PhaseEvent { phase: step.to_owned(), action: action.into() }, actor)
    }

    /// As a client gets it, with this `id`.
    fn with_id(self, id: String) -> Event {
        let Self { type_url, value, actor } = self;
        Event { metadata: None, data: Some(Any { type_url, value }), id, actor_id: actor }
    }

    fn machine(stage: MachineStage, ready: bool, unmet: Option<(&str, &str)>, actor: &str) -> Self {
        let condition =
            |(name, reason): (&str, &str)| UnmetCondition { name: name.to_owned(), reason: reason.to_owned() };
        let status = MachineStatus { ready, unmet_conditions: unmet.map(condition).into_iter().collect() };
        Self::new("MachineStatusEvent", &MachineStatusEvent { stage: stage.into(), status: Some(status) }, actor)
    }
}

/// The state of earlier events that later ones need.
#[derive(Clone, Debug)]
struct TalosState {
    goal: String,
    stage: MachineStage,
}

impl TalosState {
    /// Before the first event that is kept: what the node was doing when its service started.
    fn before(operation: Option<&v1::Operation>) -> Self {
        let (goal, stage) = match operation {
            Some(op) => (enum_name::of::<v1::Goal>(op.goal), stage(op.goal())),
            None => (String::new(), MachineStage::Running),
        };
        Self { goal, stage }
    }

    /// The parts of this event.
    fn say(&mut self, event: &v1::Event) -> Vec<TalosEvent> {
        match &event.what {
            Some(What::Asked(asked)) => {
                self.goal = enum_name::of::<v1::Goal>(asked.goal);
                self.stage = stage(asked.goal());
                let starts = TalosEvent::sequence(&self.goal, sequence_event::Action::Start, None, &asked.id);
                let disturbs = self.stage != MachineStage::Running;
                let machine = disturbs.then(|| TalosEvent::machine(self.stage, false, None, &asked.id));
                [Some(starts), machine].into_iter().flatten().collect()
            }
            Some(What::StepBegun(step)) => {
                vec![TalosEvent::phase(&step_word(step.step), phase_event::Action::Start, &step.id)]
            }
            Some(What::StepDone(step)) => {
                vec![TalosEvent::phase(&step_word(step.step), phase_event::Action::Stop, &step.id)]
            }
            Some(What::StepBlocked(step)) => {
                vec![TalosEvent::machine(self.stage, false, Some((&step_word(step.step), &step.why)), &step.id)]
            }
            Some(What::TurnedBack(back)) => {
                vec![TalosEvent::sequence(&self.goal, sequence_event::Action::Noop, Some(&back.why), &back.id)]
            }
            Some(What::Ended(ended)) => self.say_end(ended),
            Some(What::StepProgress(_) | What::Notice(_) | What::Gap(_)) | None => Vec::new(),
        }
    }

    /// The parts of the end of an operation.
    fn say_end(&mut self, ended: &v1::Ended) -> Vec<TalosEvent> {
        self.stage = MachineStage::Running;
        let why = ended.outcome.as_ref().and_then(|outcome| outcome.came_back.as_deref());
        let goal = enum_name::of::<v1::Goal>(ended.goal);
        let stops = TalosEvent::sequence(&goal, sequence_event::Action::Stop, why, &ended.id);
        let unmet = why.map(|why| (goal.as_str(), why));
        vec![stops, TalosEvent::machine(self.stage, why.is_none(), unmet, &ended.id)]
    }
}

/// Talos' name for the stage of a machine while an operation with this goal is under way.
fn stage(goal: v1::Goal) -> MachineStage {
    match goal {
        v1::Goal::Stage => MachineStage::Running,
        v1::Goal::Upgrade => MachineStage::Upgrading,
        _ => MachineStage::Rebooting,
    }
}

/// The word of a step as it came.
pub(super) fn step_word(step: i32) -> String {
    enum_name::of::<v1::Step>(step)
}

/// A part's place: the number of its event, and its own in it.
type Place = (u64, usize);

fn number(event: &v1::Event) -> u64 {
    event.position.as_ref().map_or(0, |position| position.seq)
}

/// A place as clients have it: an `id` of Talos'.
fn id(epoch: &str, (seq, part): Place) -> String {
    format!("{epoch}.{seq}.{part}")
}

/// The place with this `id`. `None` if it is of another epoch: all that is kept came later.
fn place(id: &str, epoch: &str) -> Result<Option<Place>, Status> {
    let malformed = || Reason::Malformed.status(format!("{id:?} is not the id of an event"));
    let (of, place) = id.split_once('.').ok_or_else(malformed)?;
    let (seq, part) = place.split_once('.').ok_or_else(malformed)?;
    let place = (seq.parse().map_err(|_| malformed())?, part.parse().map_err(|_| malformed())?);
    Ok((of == epoch).then_some(place))
}

/// Events for one client.
pub(super) struct EventStream {
    reader: Reader,
    words: TalosState,
    epoch: String,
    /// The first part that it gets.
    from: Place,
    /// The operation whose events it gets; empty for all.
    actor: String,
    /// Its next event.
    next: VecDeque<Event>,
}

impl EventStream {
    /// The events that `request` asks for. `status` is the node's, and not older than the log.
    pub(super) fn new(log: &EventLog, request: EventsRequest, status: &v1::StatusResponse) -> Result<Self, Status> {
        let (kept, newest) = log.kept();
        let Position { epoch, seq } = newest;
        let after = match request.tail_id.as_str() {
            "" => None,
            id => place(id, &epoch)?,
        };
        if let Some((last, _)) = after {
            log.read(Some(&Position { epoch: epoch.clone(), seq: last })).map_err(|e| Reason::AheadOfLog.status(e))?;
            let first = kept.first().map_or(seq + 1, number);
            if last + 1 < first {
                return Err(missed(v1::Gap { missing: Some(first - last - 1) }));
            }
        }
        let mut words = words_before(&kept, status);
        let from = first_wanted(&kept, &words, &request, after).unwrap_or((seq + 1, 0));
        for event in kept.iter().filter(|event| number(event) < from.0) {
            words.say(event);
        }
        let before = Position { epoch: epoch.clone(), seq: from.0 - 1 };
        let reader = log.read(Some(&before)).map_err(|e| Reason::AheadOfLog.status(e))?;
        // It says that the stream has begun. A client that goes on from its id gets the same.
        let place = from.1.checked_sub(1).map_or((from.0 - 1, usize::MAX), |part| (from.0, part));
        let actor = request.with_actor_id;
        let hello = TalosEvent { type_url: String::new(), value: Vec::new(), actor: actor.clone() };
        let ended = ended_before(&kept, status, &actor).map(|ended| words.clone().say_end(ended));
        let first = [hello].into_iter().chain(ended.into_iter().flatten());
        let next = first.map(|said| said.with_id(id(&epoch, place))).collect();
        Ok(Self { reader, words, epoch, from, actor, next })
    }

    /// Put the content of this event after the next one.
    fn take(&mut self, event: &v1::Event) {
        let seq = number(event);
        for (part, said) in self.words.say(event).into_iter().enumerate() {
            if (seq, part) < self.from || !is_of(&said, &self.actor) {
                continue;
            }
            self.next.push_back(said.with_id(id(&self.epoch, (seq, part))));
        }
    }
}

/// The node's activity before the first kept event. Where that event begins an operation, or all that are kept came since
/// the service started without one, the status says it.
fn words_before(kept: &[v1::Event], status: &v1::StatusResponse) -> TalosState {
    let begins = kept.iter().any(|event| matches!(event.what, Some(What::Asked(_))));
    TalosState::before(status.operation.as_ref().filter(|_| !begins))
}

/// The first kept part that `request` wants, after `after`; `None` if it wants only new events.
fn first_wanted(
    kept: &[v1::Event],
    words: &TalosState,
    request: &EventsRequest,
    after: Option<Place>,
) -> Option<Place> {
    let since = since(request.tail_seconds);
    let (mut words, mut wanted) = (words.clone(), Vec::new());
    for event in kept {
        let is_young = since.is_none_or(|since| event.time >= since);
        for (part, said) in words.say(event).iter().enumerate() {
            let place = (number(event), part);
            if is_young && after.is_none_or(|after| place > after) && is_of(said, &request.with_actor_id) {
                wanted.push(place);
            }
        }
    }
    let asks_for_old = !request.tail_id.is_empty() || since.is_some();
    let skipped = match usize::try_from(request.tail_events) {
        Ok(0) if !asks_for_old => wanted.len(),
        Ok(0) | Err(_) => 0,
        Ok(most) => wanted.len().saturating_sub(most),
    };
    wanted.get(skipped).copied()
}

/// The end of the operation `actor`, if the event of its end is not kept: it ended before the service was restarted. A client
/// that comes back after the reboot would wait for it for ever.
fn ended_before<'a>(kept: &[v1::Event], status: &'a v1::StatusResponse, actor: &str) -> Option<&'a v1::Ended> {
    let is_kept = |event: &v1::Event| matches!(&event.what, Some(What::Ended(ended)) if ended.id == actor);
    status.ended.iter().find(|ended| ended.id == actor).filter(|_| !kept.iter().any(is_kept))
}

fn is_of(said: &TalosEvent, actor: &str) -> bool {
    actor.is_empty() || said.actor == actor
}

/// The time so many seconds ago, in milliseconds since 1970; `None` if that is not asked for.
fn since(seconds: i32) -> Option<u64> {
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    Some(now.saturating_sub(seconds * 1000))
}

impl Source for EventStream {
    type Item = Event;

    async fn next(&mut self) -> Option<Result<Event, Status>> {
        loop {
            if let Some(event) = self.next.pop_front() {
                return Some(Ok(event));
            }
            let event = self.reader.next().await?;
            if let Some(What::Gap(gap)) = event.what {
                return Some(Err(missed(gap)));
            }
            self.take(&event);
        }
    }
}

/// Why a stream ends whose reader did not take its events in time: Talos has no words for a gap.
pub(super) fn missed(gap: v1::Gap) -> Status {
    let missing = gap.missing.map_or_else(|| "an unknown number of".to_owned(), |missing| missing.to_string());
    Reason::MissedEvents.status(format!("{missing} events were not taken in time, and are not kept any more"))
}
