//! The loop: look, decide, journal, do, journal.

use std::{
    fmt, io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use slipway_node::{
    facts::Facts,
    journal::{Asked, Journal, Refusal},
    operation::{Course, Operation, Shape, Tried},
    request::Request,
    sequence::{self, Limits, Next, Outcome},
    step::Step,
};
use slipway_node_api::text::clean_and_cut;
use uuid::Uuid;

use crate::{
    store::Store,
    world::{Progress, Watcher, World},
};

/// The pause before the next try if the journal could not be written, or the machine is going down.
pub const AGAIN: Duration = Duration::from_secs(5);
/// The longest reason of a step, or why a fact is unknown, bytes. An image's own installer may say anything, and a copy
/// of the journal that is too large counts as damaged.
const LONGEST: usize = 8 << 10;
/// Between two looks for something to do.
const IDLE: Duration = Duration::from_secs(3600);

/// The events of an operation, for its watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was asked for.
    Asked,
    /// A step begins, or is tried again.
    Began(Step),
    /// The progress of the step.
    Progress(Step, Progress),
    /// A step is done.
    Done(Step),
    /// A step, or the decision about the next, waits for something.
    Blocked(Step, String),
    /// It turned back.
    TurnedBack(String),
    /// An admin takes the node as it is.
    AsIs(String),
    /// It is over.
    Ended(Outcome),
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for"),
            Self::Began(step) => write!(f, "begins: {step}"),
            Self::Progress(_, Progress::Bytes(done, total)) => write!(f, "{done} of {total} bytes"),
            Self::Progress(_, Progress::Part(text) | Progress::Note(text)) => f.write_str(text),
            Self::Done(step) => write!(f, "done: {step}"),
            Self::Blocked(step, why) => write!(f, "blocked: {step}: {why}"),
            Self::TurnedBack(why) => write!(f, "turns back: {why}"),
            Self::AsIs(why) => write!(f, "the node is taken as it is: {why}"),
            Self::Ended(outcome) => write!(f, "ended: {outcome}"),
        }
    }
}

/// The result of [`Shared::abort`] or [`Shared::accept_as_is`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// It is in the journal, and counts from the next decision on; or the operation is on its way back already.
    Journalled,
    /// There is no such operation.
    NotUnderWay,
    /// There is no way back any more.
    TooLate,
    /// It can still end by itself: no acceptance is needed.
    TooEarly,
}

/// Hears what happens.
pub trait Listener: Send + Sync {
    /// This happened to this operation.
    fn on_event(&self, op: &Operation, happened: Happened);
}

/// The shared state of the service: the journal, and its listeners.
pub struct Shared<L> {
    store: Mutex<Store>,
    shape: Shape,
    limits: Limits,
    listener: L,
}

impl<L: Listener> Shared<L> {
    /// Around a journal that was read.
    pub fn new(store: Store, shape: Shape, limits: Limits, listener: L) -> Self {
        Self { store: Mutex::new(store), shape, limits, listener }
    }

    /// The listeners.
    pub fn listener(&self) -> &L {
        &self.listener
    }

    /// The journal as it is now.
    pub fn journal(&self) -> Journal {
        self.store().journal().clone()
    }

    /// A client requests an operation. The outer error is of the journal: then nothing has begun.
    pub fn ask(&self, request: Request, facts: &Facts) -> io::Result<Result<Asked, Refusal>> {
        let (before, asked, op) = self.store().change(|journal| {
            let before = journal.operation.clone();
            (before, journal.ask(request, self.shape, facts), journal.operation.clone())
        })?;
        if let (Ok(Asked::New), Some(op)) = (&asked, op) {
            if let Some(before) = before {
                let _span = span(&before).entered();
                let why = format!("superseded by the operation {}", op.id());
                self.listener.on_event(&before, Happened::Ended(Outcome::CameBack(why)));
            }
            let _span = span(&op).entered();
            self.listener.on_event(&op, Happened::Asked);
        }
        Ok(asked)
    }

    /// A client wants the operation with this name to end.
    pub fn abort(&self, id: Uuid, why: &str) -> io::Result<Abort> {
        self.store().change(|journal| match journal.operation.as_mut().filter(|op| op.id() == id) {
            None => Abort::NotUnderWay,
            // What led back stays the reason, and the verdict.
            Some(op) if !op.is_forward() => Abort::Journalled,
            Some(op) if !sequence::may_turn(op) => Abort::TooLate,
            Some(op) => {
                op.abort.get_or_insert_with(|| why.to_owned());
                Abort::Journalled
            }
        })
    }

    /// An admin takes the node as it is: the operation with this name ends although the node is not well.
    pub fn accept_as_is(&self, id: Uuid, why: &str, facts: &Facts) -> io::Result<Abort> {
        let (left, op) = self.store().change(|journal| {
            let left = match () {
                () if journal.operation.as_ref().is_none_or(|op| op.id() != id) => Abort::NotUnderWay,
                () if journal.accept_as_is(why, facts) => Abort::Journalled,
                () => Abort::TooEarly,
            };
            (left, journal.operation.clone())
        })?;
        if let (Abort::Journalled, Some(op)) = (left, op) {
            let _span = span(&op).entered();
            self.listener.on_event(&op, Happened::AsIs(why.to_owned()));
        }
        Ok(left)
    }

    // After a panic the disk's state counts: a change takes effect only when it was written.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One decision, and the step that follows from it. The answer is when to come again.
    pub fn run_once(&self, world: &mut dyn World) -> io::Result<Duration> {
        let Some(before) = self.store().journal().operation.clone() else { return Ok(IDLE) };
        let _span = span(&before).entered();
        let mut facts = world.facts(Some(&before));
        facts.unread = facts.unread.map(|why| clean_and_cut(&why, LONGEST));
        let Some((next, step, op)) = self.decide(&facts)? else { return Ok(Duration::ZERO) };
        self.tell(&before, &next);
        let Some((step, op)) = step.zip(op) else {
            return Ok(if matches!(next, Next::Wait(_)) { AGAIN } else { Duration::ZERO });
        };
        let began = Instant::now();
        let tried = bounded(world.perform(step, &op, &OfStep { shared: self, op: &op, step }));
        let pause = match &tried {
            // Only another boot shows that the machine went down.
            Tried::Done(_) if matches!(step, Step::Reboot | Step::Return) => AGAIN,
            Tried::Done(_) => Duration::ZERO,
            Tried::Failed(_) if sequence::may_turn(&op) => Duration::ZERO,
            Tried::Blocked(_) | Tried::Failed(_) => {
                let now = Facts { uptime: facts.uptime + began.elapsed().as_secs(), ..facts };
                Duration::from_secs(sequence::next_try(&op, &now, self.limits))
            }
        };
        self.settle(&op, step, tried)?;
        // The successor of this operation begins now.
        let is_current = self.store().journal().operation.as_ref().is_some_and(|current| current.id() == op.id());
        Ok(if is_current { pause } else { Duration::ZERO })
    }

    /// Journal the next action. Decided anew from the journal as it is: an abort may have come meanwhile.
    #[expect(clippy::type_complexity, reason = "what was decided, the step to do, and the operation it belongs to")]
    fn decide(&self, facts: &Facts) -> io::Result<Option<(Next, Option<Step>, Option<Operation>)>> {
        self.store().change(|journal| {
            let next = sequence::next(journal.operation.as_ref()?, facts, self.limits);
            let step = journal.take(next.clone(), facts);
            Some((next, step, journal.operation.clone()))
        })
    }

    fn settle(&self, op: &Operation, step: Step, tried: Tried) -> io::Result<()> {
        let happened = match &tried {
            Tried::Done(_) => Happened::Done(step),
            Tried::Blocked(why) | Tried::Failed(why) => Happened::Blocked(step, why.clone()),
        };
        let happened = self.store().change(|journal| {
            let was_forward = journal.operation.as_ref().filter(|current| current.id() == op.id())?.is_forward();
            journal.settle(op.id(), tried);
            Some(match &journal.operation.as_ref()?.course {
                // A failure that leads back waits for nothing. On the way back every failure is tried again.
                Course::Back(why) if was_forward => Happened::TurnedBack(why.clone()),
                _ => happened,
            })
        })?;
        match happened {
            // It was superseded, and its end was told.
            None => {}
            // The machine is asked to reboot. Only another boot shows that it did.
            Some(Happened::Done(Step::Reboot | Step::Return)) => {}
            Some(happened) => self.listener.on_event(op, happened),
        }
        Ok(())
    }

    fn tell(&self, op: &Operation, next: &Next) {
        let happened = match next {
            Next::Begin(step) => Happened::Began(*step),
            Next::TurnBack(why) => Happened::TurnedBack(why.clone()),
            Next::Found(step) => Happened::Done(*step),
            Next::Wait(why) => Happened::Blocked(op.at, why.clone()),
            Next::End(outcome) => Happened::Ended(outcome.clone()),
        };
        self.listener.on_event(op, happened);
    }
}

/// The same, with a reason that the journal has room for.
fn bounded(tried: Tried) -> Tried {
    match tried {
        Tried::Blocked(why) => Tried::Blocked(clean_and_cut(&why, LONGEST)),
        Tried::Failed(why) => Tried::Failed(clean_and_cut(&why, LONGEST)),
        done @ Tried::Done(_) => done,
    }
}

/// The span of an operation: log lines within it carry its name and goal.
fn span(op: &Operation) -> tracing::Span {
    tracing::info_span!("operation", id = %op.id(), goal = ?op.request.goal)
}

/// The watcher of one step.
struct OfStep<'a, L> {
    shared: &'a Shared<L>,
    op: &'a Operation,
    step: Step,
}

impl<L: Listener> Watcher for OfStep<'_, L> {
    fn tell(&self, progress: Progress) {
        self.shared.listener.on_event(self.op, Happened::Progress(self.step, progress));
    }

    fn wants_end(&self) -> bool {
        let store = self.shared.store();
        match store.journal().operation.as_ref().filter(|current| current.id() == self.op.id()) {
            Some(op) => op.is_forward() && op.abort.is_some(),
            // It was superseded.
            None => true,
        }
    }
}
