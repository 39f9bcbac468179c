//! The journal of a node on its disk, in two copies. The newer one that is whole counts.
//!
//! A copy is one line, `slipway-journal 1 CRC32 BYTES`, and the journal as JSON. With each change both are written, one
//! after the other, that which does not count first, and both are on the medium before anything is done that they
//! announce. So a write that is cut short leaves the old journal or the new one, and a copy that rots later takes nothing
//! with it. Copies written in turns would do for the first only: the last operation, such as the trial that runs now,
//! would be forgotten.
//!
//! Two versions share it: the one on trial, and the one that comes back. So every version writes the words of the first line, and
//! what it names in the JSON keeps name and meaning. Each goes on with what it knows of the other's, and keeps what it does not
//! know. A copy whose checksum fits is never damaged, whoever can read it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use slipway_core::{boot::slot::SlotState, digest::Sha256};
use uuid::Uuid;

use crate::{
    facts::Facts,
    operation::{AsIs, Learned, Moved, Operation, Shape, Tried},
    request::{Goal, Request},
    sequence::{self, Next, Outcome},
    step::Step,
};

const MAGIC: &str = "slipway-journal";
const VERSION: u32 = 1;
/// Denied payloads and ended operations that are kept.
const KEPT: usize = 32;

/// The journal's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Journal {
    /// Rises with every write.
    pub seq: u64,
    /// The highest token that was ever obeyed, whatever came of it. The ledger named it as this node's grant before: a request
    /// alone raises nothing, from any sender, so no token of a liar stands above those that the fleet gives later.
    #[serde(default)]
    pub token: u64,
    /// The operation that is under way.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// The last ones that ended, the newest first.
    #[serde(default)]
    pub ended: Vec<Ended>,
    /// Payloads that were tried and not well, the newest first.
    #[serde(default)]
    pub denied: Vec<Denied>,
    /// What a later version has written beside these. It stays as it is.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

/// An operation that is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ended {
    /// The requested goal.
    pub request: Request,
    /// A step failed in a way that another try would not change. Not set after a time limit or an abort.
    #[serde(default)]
    pub failed: bool,
    /// The furthest step on the way forward that was begun; `None` in a journal that is older than this field.
    #[serde(default)]
    pub reached: Option<Step>,
    /// The bytes that staging moved; `None` if nothing was staged.
    #[serde(default)]
    pub moved: Option<Moved>,
    /// Its end.
    pub outcome: Outcome,
    /// What a later version has written beside these. It stays as it is.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

impl Ended {
    /// The record of this operation's end.
    pub fn of(op: &Operation, outcome: Outcome) -> Self {
        let Operation { request, failed, reached, moved, .. } = op.clone();
        Self { request, failed, reached: Some(reached), moved, outcome, later: Map::new() }
    }
}

/// A payload that is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Denied {
    /// The digest that names it.
    pub payload: Sha256,
    /// Why.
    pub why: String,
    /// What a later version has written beside these. It stays as it is.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

/// Why a copy does not say what this node has begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is not what was written.
    #[error("it is damaged")]
    Damaged,
    /// It is what was written, by another version.
    #[error("it is whole, of version {version}, and this version of slipwayd does not understand it: {why}")]
    Later { version: String, why: String },
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// One at a time.
    #[error("operation {0} is under way: wait for it, or abort it")]
    Busy(Uuid),
    /// The fleet has granted something newer since.
    #[error("the token {token} is not above {highest}, which this node has obeyed")]
    StaleToken { token: u64, highest: u64 },
    /// The ledger does not name it as this node's grant.
    #[error("the fleet's ledger does not name the token {token} as this node's grant")]
    NotGranted { token: u64 },
    /// It was tried.
    #[error(
        "the payload {payload} was tried on this node and is denied: {why}; if only this node was at fault, \
         root runs `installer upgrade` on it, and `slipwayctl confirm` once it is well"
    )]
    Denied { payload: Sha256, why: String },
    /// The system that runs is not confirmed.
    #[error("the system that runs is on trial: confirm it or roll it back first")]
    OnTrial,
    /// It is unknown what runs.
    #[error("the disk's boot state cannot be read")]
    UnknownDisk,
    /// The request lacks something.
    #[error("{0}")]
    Invalid(&'static str),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It begins.
    New,
    /// The same request is under way.
    UnderWay,
    /// The same request is over.
    Ended(Outcome),
}

impl Journal {
    /// A client requests an operation. A token counts only where the facts have it as this node's grant. Token and operation
    /// come into the journal with one write: a crash before it leaves neither, and the ledger is looked up again when the
    /// fleet repeats its request; a crash after it leaves both.
    pub fn ask(&mut self, request: Request, shape: Shape, facts: &Facts) -> Result<Asked, Refusal> {
        let requests = self.ended.iter().map(|ended| &ended.request);
        let mut requests = requests.chain(self.operation.iter().map(|op| &op.request));
        if requests.any(|known| known.id == request.id && !known.is_for_the_same(&request)) {
            return Err(Refusal::Invalid(
                "an operation of this name was for another goal or payload: each request has a name of its own (uuidgen)",
            ));
        }
        match &self.operation {
            Some(op) if op.id() == request.id => return Ok(Asked::UnderWay),
            Some(op) if !supersedes(&request, op) => return Err(Refusal::Busy(op.id())),
            _ => {}
        }
        if let Some(ended) = self.ended.iter().find(|ended| ended.request.id == request.id) {
            let outcome = ended.outcome.clone();
            // Nothing more comes of it: the fleet can free the grant.
            if is_granted(&request, facts) {
                self.obey(&request);
            }
            return Ok(Asked::Ended(outcome));
        }
        if request.goal.writes() == request.source.is_empty() {
            return Err(Refusal::Invalid("a source belongs to a request that writes a payload, and to no other"));
        }
        if let Some(token) = request.token.filter(|token| *token <= self.token) {
            return Err(Refusal::StaleToken { token, highest: self.token });
        }
        if let Some(token) = request.token.filter(|_| !is_granted(&request, facts)) {
            return Err(Refusal::NotGranted { token });
        }
        if let Some(denied) = request.payload.and_then(|payload| self.denial(payload)) {
            let refused = Refusal::Denied { payload: denied.payload, why: denied.why.clone() };
            // It will never be obeyed in another way: the fleet can free the grant.
            self.obey(&request);
            return Err(refused);
        }
        let disk = facts.disk.as_ref().ok_or(Refusal::UnknownDisk)?;
        if disk.is_on_trial() {
            return Err(Refusal::OnTrial);
        }
        if request.goal == Goal::Rollback && disk.states[!disk.running] != Some(SlotState::Good) {
            return Err(Refusal::Invalid(
                "the other slot holds no system that was ever confirmed: nothing to go back to",
            ));
        }
        // It would come up there on a trial that no operation confirms, or waits for.
        if request.goal == Goal::Reboot && disk.next.is_some_and(|next| next != disk.running) {
            return Err(Refusal::Invalid(
                "the next boot would be of the other slot: `slipwayctl upgrade` goes there with the same care, `installer \
                 rollback` on the node takes that back",
            ));
        }
        let op = Operation::new(request, shape, facts).ok_or(Refusal::UnknownDisk)?;
        self.obey(&op.request);
        self.end(Outcome::CameBack(format!("superseded by the operation {}", op.id())), facts);
        self.operation = Some(op);
        Ok(Asked::New)
    }

    /// Its token counts from now on: no lower one is obeyed any more.
    fn obey(&mut self, request: &Request) {
        self.token = self.token.max(request.token.unwrap_or(0));
    }

    /// An admin takes the node as it is. `false` if the operation can still end without.
    pub fn accept_as_is(&mut self, why: &str, facts: &Facts) -> bool {
        let Some(op) = self.operation.as_mut().filter(|op| sequence::may_be_left(op, facts)) else { return false };
        op.as_is = Some(AsIs { why: why.to_owned(), boot: facts.boot.clone() });
        true
    }

    /// Why a payload is denied.
    pub fn denial(&self, payload: Sha256) -> Option<&Denied> {
        self.denied.iter().find(|denied| denied.payload == payload)
    }

    /// A payload was tried, and is not tried again.
    pub fn deny(&mut self, payload: Sha256, why: &str) {
        self.denied.retain(|denied| denied.payload != payload);
        self.denied.insert(0, Denied { payload, why: why.to_owned(), later: Map::new() });
        self.denied.truncate(KEPT);
    }

    /// Add the decision to the journal. The answer is the step to do, once the journal is on the medium.
    pub fn take(&mut self, next: Next, facts: &Facts) -> Option<Step> {
        let op = self.operation.as_mut()?;
        match next {
            Next::Begin(step) => {
                op.begin(step, facts);
                return Some(step);
            }
            Next::TurnBack(why) => op.turn_back(&why),
            Next::Found(step) => op.found(step, facts),
            Next::Wait(why) => op.blocker = Some(why),
            Next::End(outcome) => self.end(outcome, facts),
        }
        None
    }

    /// The step of the operation `id` that was begun ended like this. Nothing changes if that operation was superseded
    /// meanwhile.
    pub fn settle(&mut self, id: Uuid, tried: Tried) {
        if self.operation.as_ref().is_none_or(|op| op.id() != id) {
            return;
        }
        // A request need not name the payload, so that it is denied may be known only now.
        let denied = match &tried {
            Tried::Done(Learned::Staged(to, _)) => to.payload.and_then(|payload| self.denial(payload)).cloned(),
            _ => None,
        };
        if let Some(op) = &mut self.operation {
            let may_turn = sequence::may_turn(op);
            let tried = match denied {
                Some(Denied { payload, why, .. }) if op.from.payload != Some(payload) => {
                    Tried::Failed(Refusal::Denied { payload, why }.to_string())
                }
                _ => tried,
            };
            op.settle(tried, may_turn);
        }
    }

    fn end(&mut self, outcome: Outcome, facts: &Facts) {
        if let Some(op) = self.operation.take() {
            let in_vain = facts.disk.as_ref().is_some_and(|disk| sequence::was_in_vain(&op, disk));
            let payload = op.to.as_ref().and_then(|to| to.payload).filter(|_| in_vain);
            if let (Outcome::CameBack(why) | Outcome::Left(why), Some(payload)) = (&outcome, payload) {
                self.deny(payload, why);
            }
            self.ended.insert(0, Ended::of(&op, outcome));
            self.ended.truncate(KEPT);
        }
    }

    /// A copy, as it is written.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let mut copy = format!("{MAGIC} {VERSION} {:08x} {}\n", crc32fast::hash(&json), json.len()).into_bytes();
        copy.extend(json);
        Ok(copy)
    }

    /// A copy, as it was read.
    pub fn decode(copy: &[u8]) -> Result<Self, Unreadable> {
        let (version, json) = whole(copy).ok_or(Unreadable::Damaged)?;
        let later = |why: String| Unreadable::Later { version: version.to_owned(), why };
        serde_json::from_slice(json).map_err(|e| later(e.to_string()))
    }

    /// The version that a copy names, if it is whole and this one writes another.
    pub fn foreign_version(copy: &[u8]) -> Option<&str> {
        whole(copy).map(|(version, _)| version).filter(|version| version.parse() != Ok(VERSION))
    }

    /// Which of the copies that are whole counts.
    pub fn newest(copies: impl IntoIterator<Item = Self>) -> Option<Self> {
        copies.into_iter().max_by_key(|journal| journal.seq)
    }
}

/// The version of a copy that is whole, and its JSON. Later versions may have more words in the first line.
fn whole(copy: &[u8]) -> Option<(&str, &[u8])> {
    let end = copy.iter().position(|byte| *byte == b'\n')?;
    let json = &copy[end + 1..];
    let mut words = str::from_utf8(&copy[..end]).ok()?.split(' ');
    let (magic, version, crc, len) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let is_whole =
        magic == MAGIC && len.parse() == Ok(json.len()) && u32::from_str_radix(crc, 16) == Ok(crc32fast::hash(json));
    is_whole.then_some((version, json))
}

/// True if the ledger names the token of `request` as this node's grant.
fn is_granted(request: &Request, facts: &Facts) -> bool {
    request.token.is_some() && request.token == facts.grant
}

/// True if `request` takes the place of the operation that is under way. Nothing is disturbed before the payload is staged, so
/// a wrong target is corrected without waiting for it: a stage by any request that writes another payload, a person's
/// upgrade by another one. Where the fleet's grant is used, the fleet decides; and it ends no person's upgrade.
fn supersedes(request: &Request, op: &Operation) -> bool {
    let target = |of: &Request| (of.source.clone(), of.payload);
    let is_other = target(request) != target(&op.request);
    let are_persons = request.token.is_none() && op.request.token.is_none();
    let may_end = match op.request.goal {
        Goal::Stage => request.goal.writes(),
        Goal::Upgrade => request.goal == Goal::Upgrade && are_persons,
        Goal::Rollback | Goal::Reboot | Goal::Later => false,
    };
    may_end && is_other && op.at == Step::Stage && op.is_forward()
}
