//! One request, and how far it came. This is what the journal keeps.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use slipway_core::{boot::slot::Slot, digest::Sha256};
use uuid::Uuid;

use crate::{
    cordon::NodeState,
    facts::Facts,
    request::{Goal, Request},
    step::Step,
};

/// Which parts a node has: the steps of what it has not are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// It is a node of a Kubernetes cluster.
    pub kubernetes: bool,
    /// It runs a member of etcd.
    pub etcd: bool,
}

/// A payload in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Installed {
    /// The slot.
    pub slot: Slot,
    /// The digest that names the payload; `None` if the slot has no list of its files.
    pub payload: Option<Sha256>,
}

/// Where the bytes of a payload came from, and how many were not in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes that came over the network.
    pub fetched: u64,
    /// Bytes that the slots had already.
    pub reused: u64,
    /// Bytes that were written into the slot.
    #[serde(default)]
    pub written: u64,
}

/// Forward, or back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Course {
    /// Towards the request.
    Forward,
    /// The operation is being undone, for this reason.
    Back(String),
    /// Read from a journal: one that only a later version knows.
    #[serde(untagged)]
    Later(Value),
}

/// One request, and how far it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// The requested goal.
    pub request: Request,
    /// Which parts the node has.
    pub shape: Shape,
    /// The system that ran at the request.
    pub from: Installed,
    /// The system that is to run. Known once it is staged, or from the start if nothing is written.
    pub to: Option<Installed>,
    /// The bytes that staging it moved; `None` before.
    #[serde(default)]
    pub moved: Option<Moved>,
    /// The step that was begun last.
    pub at: Step,
    /// True if that step is done.
    pub done: bool,
    /// The boot in which it was begun.
    pub boot: String,
    /// Seconds since that boot when it was begun first.
    pub since: u64,
    /// The furthest step on the way forward that was begun.
    pub reached: Step,
    /// The boot in which it was asked for. In another boot it is unknown whether the system is well.
    pub asked_in: String,
    /// The boot in which services were stopped. They come back with another one.
    pub stopped_in: Option<String>,
    /// The boot in which EPHEMERAL, which was blank, was made anew. It is mounted by another one.
    #[serde(default)]
    pub renewed_in: Option<String>,
    /// Forward or back.
    pub course: Course,
    /// The Node before we wrote to it.
    pub cordon: Option<NodeState>,
    /// Our member of etcd, if it was asked to leave.
    pub left: Option<u64>,
    /// Who wants it to end, and why.
    pub abort: Option<String>,
    /// The obstacle of the last try of this step.
    pub blocker: Option<String>,
    /// A step failed, and so it is on its way back.
    #[serde(default)]
    pub failed: bool,
    /// An admin takes the node as it is.
    #[serde(default)]
    pub as_is: Option<AsIs>,
    /// What a later version has written beside these. It stays as it is.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

/// An admin's acceptance of a node that does not become well. It counts for one boot: after another one the node is looked
/// at anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AsIs {
    /// Who, and why.
    pub why: String,
    /// The boot in which it was given.
    pub boot: String,
}

/// A fact that a step has found out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learned {
    /// Nothing that the next steps need.
    Nothing,
    /// The payload is in this slot, and came from there.
    Staged(Installed, Moved),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tried {
    /// It is done.
    Done(Learned),
    /// Not yet; it is tried again until its time is over.
    Blocked(String),
    /// It will not work.
    Failed(String),
}

impl Operation {
    /// It begins with nothing done. `None` if the disk cannot be read.
    pub fn new(request: Request, shape: Shape, facts: &Facts) -> Option<Self> {
        let disk = facts.disk.as_ref()?;
        let in_slot = |slot| Installed { slot, payload: disk.payloads[slot] };
        let from = in_slot(disk.running);
        let to = match request.goal {
            Goal::Stage | Goal::Upgrade | Goal::Later => None,
            Goal::Rollback => Some(in_slot(!disk.running)),
            Goal::Reboot => Some(from.clone()),
        };
        let first = if request.goal.writes() { Step::Stage } else { Step::Grant };
        Some(Self {
            request,
            shape,
            from,
            to,
            moved: None,
            at: first,
            done: false,
            boot: facts.boot.clone(),
            since: facts.uptime,
            reached: first,
            asked_in: facts.boot.clone(),
            stopped_in: None,
            renewed_in: None,
            course: Course::Forward,
            cordon: None,
            left: None,
            abort: None,
            blocker: None,
            failed: false,
            as_is: None,
            later: Map::new(),
        })
    }

    /// Its name.
    pub fn id(&self) -> Uuid {
        self.request.id
    }

    /// It is on its way to the request.
    pub fn is_forward(&self) -> bool {
        self.course == Course::Forward
    }

    /// Why this version can only undo it: a later one had it, which was here in between, and did what this one does not know.
    pub fn is_beyond(&self) -> Option<&'static str> {
        match (self.request.goal, &self.course, self.at) {
            (Goal::Later, _, _) => {
                Some("a later version of slipwayd had begun it, for a goal that this version does not know")
            }
            (_, Course::Later(_), _) => {
                Some("a later version of slipwayd had it on a way that this version does not know")
            }
            (_, _, Step::Later) => Some("a later version of slipwayd had begun a step that this version does not know"),
            _ => None,
        }
    }

    /// It turned back because of an abort. One that comes when it was on its way back already changes nothing.
    pub fn is_aborted(&self) -> bool {
        matches!(&self.course, Course::Back(why) if self.abort.as_ref() == Some(why))
    }

    /// True if the way forward came to `step`, which may have been done.
    pub fn came_to(&self, step: Step) -> bool {
        self.reached >= step
    }

    /// The reason of the admin who takes the node as it is in this boot.
    pub fn left_as_is(&self, boot: &str) -> Option<&str> {
        self.as_is.as_ref().filter(|as_is| as_is.boot == boot).map(|as_is| as_is.why.as_str())
    }

    /// `step` begins, for the first time or again.
    pub fn begin(&mut self, step: Step, facts: &Facts) {
        if self.at != step || self.done || self.boot != facts.boot {
            self.since = facts.uptime;
            self.blocker = None;
        }
        (self.at, self.done) = (step, false);
        self.boot.clone_from(&facts.boot);
        if step == Step::Renew {
            self.renewed_in = Some(facts.boot.clone());
        }
        if self.is_forward() {
            self.reached = self.reached.max(step);
            match step {
                Step::Cordon if self.cordon.is_none() => self.cordon.clone_from(&facts.node),
                Step::Leave if self.left.is_none() => self.left = facts.member,
                Step::Stop => self.stopped_in = Some(facts.boot.clone()),
                _ => {}
            }
        }
    }

    /// The way back, for `why`. The first reason counts.
    pub fn turn_back(&mut self, why: &str) {
        if !matches!(self.course, Course::Back(_)) {
            self.course = Course::Back(why.to_owned());
            // The way back has its own steps, and one of them may be the one that was just done.
            self.done = false;
            self.blocker = None;
        }
    }

    /// The disk says that `step` is done, whatever the journal says.
    pub fn found(&mut self, step: Step, facts: &Facts) {
        self.course = Course::Forward;
        self.begin(step, facts);
        self.done = true;
    }

    /// The step that was begun ended like this. Whether a failure leads back is for the sequence to say.
    pub(crate) fn settle(&mut self, tried: Tried, may_turn: bool) {
        match tried {
            // Only another boot shows that the machine was started anew.
            Tried::Done(_) if matches!(self.at, Step::Reboot | Step::Return) => self.blocker = None,
            Tried::Done(learned) => {
                self.done = true;
                self.blocker = None;
                if let Learned::Staged(to, moved) = learned {
                    (self.to, self.moved) = (Some(to), Some(moved));
                }
            }
            Tried::Blocked(why) => self.blocker = Some(why),
            Tried::Failed(why) if may_turn => {
                self.failed = true;
                self.turn_back(&format!("{}: {why}", self.at));
            }
            Tried::Failed(why) => self.blocker = Some(why),
        }
    }
}
