//! What the installer would write: the shipped use cases, on facts made from the state of the model.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Mutex, PoisonError},
};

use slipway::ops::{
    Change,
    activate::Activate,
    confirm::Confirm,
    repair::Repair,
    rollback::Rollback,
    upgrade::{self, Afterwards, Upgrade},
};
use slipway_core::{
    boot::{
        env::{BootEnv, MARKER, Marker},
        rule::{SlotView, next_boot},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::layout::Part,
    payload::facts::PayloadFacts,
    plan::{self, Plan, Refusals, RunsFrom, SlotFacts, Step, SystemFacts},
    units::SectorSize,
};
use slipway_test_support::system;

use super::{
    Mutant,
    medium::{Content, Damage, InSlot, Medium, PAYLOADS, code, plain},
};

/// A verb that may be asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Upgrade { payload: u8, preserve: bool },
    Stage { payload: u8 },
    Activate { preserve: bool },
    Confirm,
    Rollback,
    Repair,
}

/// All of it.
pub fn verbs() -> [Verb; 11] {
    let [first, second] = [0, 1].map(|payload| {
        let upgrade = |preserve| Verb::Upgrade { payload, preserve };
        [upgrade(true), upgrade(false), Verb::Stage { payload }]
    });
    let activate = |preserve| Verb::Activate { preserve };
    let [a, b, c] = first;
    let [d, e, f] = second;
    [a, b, c, d, e, f, activate(true), activate(false), Verb::Confirm, Verb::Rollback, Verb::Repair]
}

/// A write that decides something. Those to META and the data volumes do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Env(usize, BootEnv),
    Blank(Slot),
    Payload(Slot, u8, Marker),
    Marker(Slot, Marker),
}

impl Write {
    /// The slot whose content it changes.
    pub const fn overwrites(&self) -> Option<Slot> {
        match self {
            Write::Blank(slot) | Write::Payload(slot, ..) => Some(*slot),
            Write::Env(..) | Write::Marker(..) => None,
        }
    }

    /// It is on the medium.
    pub fn apply(&self, medium: &mut Medium) {
        match self {
            Write::Env(n, env) => medium.copies[*n] = Some(env.clone()),
            Write::Blank(slot) => medium.slots[*slot] = InSlot::BLANK,
            Write::Payload(slot, n, marker) => {
                let content = Content::Payload(*n, Damage::None);
                medium.slots[*slot] = InSlot { content, marker: Some(marker.clone()), confirmed: false };
            }
            Write::Marker(slot, marker) => medium.slots[*slot].marker = Some(marker.clone()),
        }
    }

    /// Power is cut in the middle of it: the worst that can be on the medium then. Of a slot that was about to be
    /// zeroed the old marker may be left, of one that was about to be written the new one.
    pub fn tear(&self, medium: &mut Medium) {
        match self {
            Write::Env(n, _) => medium.copies[*n] = None,
            Write::Blank(slot) => medium.slots[*slot].content = Content::Torn,
            Write::Payload(slot, _, marker) => {
                let marker = Some(marker.clone());
                medium.slots[*slot] = InSlot { content: Content::Torn, marker, confirmed: false };
            }
            Write::Marker(slot, _) => medium.slots[*slot].marker = None,
        }
    }
}

impl Hash for Write {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let marker = |m: &Marker| (m.state as u8, m.seq);
        match self {
            Write::Env(n, env) => (0, n, code(env)).hash(state),
            Write::Blank(slot) => (1, *slot as u8).hash(state),
            Write::Payload(slot, n, m) => (2, *slot as u8, n, marker(m)).hash(state),
            Write::Marker(slot, m) => (3, *slot as u8, marker(m)).hash(state),
        }
    }
}

/// The system the installer runs in: booted from this slot, as a trial or not. `None`: the disk is at rest, and is served
/// from outside.
pub type Host = Option<(Slot, bool)>;
/// The facts that it decides by.
type Asked = (Medium, Option<(u8, bool)>, Verb);
/// What is written, or that it was refused.
pub type Decision = Result<Vec<Write>, ()>;

/// Decides as the installer does. Most states differ in what it does not look at, so what it decided is kept.
pub struct Installer {
    pub mutant: Mutant,
    disk: SystemFacts,
    payloads: [PayloadFacts; PAYLOADS as usize],
    /// What probing finds in a slot that holds one of them.
    held: [PerSlot<SlotFacts>; PAYLOADS as usize],
    known: Mutex<HashMap<Asked, Decision>>,
}

impl Installer {
    pub fn new(mutant: Mutant) -> Self {
        let disk = system::installed(SectorSize::S512);
        let payloads = [0, 1].map(system::payload);
        let held = payloads.each_ref().map(|p| PerSlot::new(|slot| system::slot(&disk.gpt, slot, p, None)));
        Installer { mutant, disk, payloads, held, known: Mutex::default() }
    }

    /// The number of different decisions that it took.
    pub fn decisions(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn decide(&self, medium: &Medium, host: Host, verb: Verb) -> Decision {
        let mut seen = medium.clone();
        (seen.slots.a.confirmed, seen.slots.b.confirmed) = (false, false);
        let key = (seen, host.map(|(slot, trial)| (slot as u8, trial)), verb);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decision) = known().get(&key) {
            return decision.clone();
        }
        let decision = self.plan(medium, host, verb).map(|plan| self.writes(&plan, verb)).map_err(|_| ());
        known().insert(key, decision.clone());
        decision
    }

    /// The decision of the shipped use case, with the slots that it has read before.
    fn plan(&self, medium: &Medium, host: Host, verb: Verb) -> Result<Plan, Refusals> {
        let runs_from = if host.is_some() { RunsFrom::Inside } else { RunsFrom::Offline };
        let request = upgrade_request(verb, runs_from);
        let upgrade = verb.payload().zip(request.as_ref()).map(|(n, request)| Upgrade {
            request,
            payload: &self.payloads[usize::from(n)],
            renewal: None,
            snapshot: None,
            firmware: &[],
            only_ukis_start: false,
            dry_run: false,
        });
        let change: &dyn Change = match verb {
            Verb::Upgrade { .. } | Verb::Stage { .. } => upgrade.as_ref().unwrap(),
            Verb::Activate { preserve } => {
                &Activate { runs_from, preserve, only_ukis_start: false, renewal: None, snapshot: None }
            }
            Verb::Confirm => &Confirm,
            Verb::Rollback => &Rollback { offline: host.is_none() },
            Verb::Repair => &Repair { renewal: None, force: false },
        };
        let mut facts = self.facts(medium, host);
        while let Some(slot) = change.to_verify(&facts) {
            let whole = self.mutant == Mutant::DamageIsNotLookedFor || medium.slots[slot].whole();
            facts.slots[slot].whole = Some(if whole { Ok(()) } else { Err("damaged".to_owned()) });
        }
        change.decide(&system::base(0), &facts)
    }

    /// The facts that probing finds.
    fn facts(&self, medium: &Medium, host: Host) -> SystemFacts {
        let env = BootEnv::pick(&medium.copies).cloned();
        let slots: PerSlot<SlotFacts> = PerSlot::new(|slot| {
            let mut facts = self.slot(&medium.slots[slot], slot);
            if self.mutant == Mutant::DamageIsNotLookedFor {
                facts.boot_problem = None;
            }
            facts
        });
        let view = |slot| SlotView { verifies: slots[slot].verifies, marker: slots[slot].marker.clone() };
        let next = next_boot(env.as_ref(), &PerSlot::new(view));
        let running = host.map_or(Running::Unknown, |(slot, trial)| Running::This { slot, trial });
        SystemFacts { running, env_copies: medium.copies.clone(), env, next, slots, ..self.disk.clone() }
    }

    fn slot(&self, here: &InSlot, slot: Slot) -> SlotFacts {
        let damaged = |facts| SlotFacts { boot_problem: Some("damaged".to_owned()), verifies: false, ..facts };
        let whole = |n| SlotFacts { marker: here.marker.clone(), ..self.held[usize::from(n)][slot].clone() };
        match here.content {
            Content::Blank => system::blank(),
            Content::Torn => damaged(SlotFacts { marker: here.marker.clone(), ..SlotFacts::default() }),
            Content::Payload(n, Damage::Kernel) => damaged(whole(n)),
            Content::Payload(n, _) => whole(n),
        }
    }

    /// What of a plan decides something, as the mutant would do it.
    fn writes(&self, plan: &Plan, verb: Verb) -> Vec<Write> {
        let mut writes: Vec<Write> = plan.steps.iter().filter_map(|step| Self::write(plan, step, verb)).collect();
        let empties = |w: &Write| matches!(w, Write::Env(_, env) if env.once.is_none());
        let fills = writes.iter().position(|w| matches!(w, Write::Payload(..)));
        match (self.mutant, fills) {
            (Mutant::NoDeactivation, Some(_)) => writes.retain(|w| !empties(w)),
            (Mutant::GoodAtOnce, Some(at)) => {
                if let Write::Payload(_, _, marker) = &mut writes[at] {
                    marker.state = SlotState::Good;
                }
            }
            (Mutant::MarkerIsNotMended, Some(_)) => writes.retain(|w| !matches!(w, Write::Marker(..))),
            (Mutant::OneCopy, _) => writes.retain(|w| !matches!(w, Write::Env(1, _))),
            (Mutant::CountingCopyFirst, _) => {
                let at: Vec<usize> = (0..writes.len()).filter(|i| matches!(writes[*i], Write::Env(..))).collect();
                at.chunks_exact(2).for_each(|pair| writes.swap(pair[0], pair[1]));
            }
            _ => {}
        }
        writes
    }

    fn write(plan: &Plan, step: &Step, verb: Verb) -> Option<Write> {
        let slot = |part: &Part| Slot::BOTH.into_iter().find(|s| Part::from(*s) == *part);
        match (step, verb) {
            (Step::WriteBootEnv { copy, env, .. }, _) => Some(Write::Env(usize::from(*copy) - 1, plain(env))),
            (Step::Blank { part, .. }, _) => slot(part).map(Write::Blank),
            (Step::WriteMarker { slot, marker, .. }, _) => Some(Write::Marker(*slot, marker.clone())),
            (Step::WriteVolume { part, .. }, Verb::Upgrade { payload, .. } | Verb::Stage { payload }) => {
                Some(Write::Payload(slot(part)?, payload, marker_in(plan, *part)?))
            }
            _ => None,
        }
    }
}

/// The marker that comes with a payload.
fn marker_in(plan: &Plan, part: Part) -> Option<Marker> {
    let files = &plan.system.as_ref()?.volumes.get(&part)?.files;
    match &files.iter().find(|file| file.path == MARKER)?.from {
        plan::Content::Text(text) => Marker::parse(text.as_bytes()),
        _ => None,
    }
}

impl Verb {
    const fn payload(self) -> Option<u8> {
        match self {
            Verb::Upgrade { payload, .. } | Verb::Stage { payload } => Some(payload),
            Verb::Activate { .. } | Verb::Confirm | Verb::Rollback | Verb::Repair => None,
        }
    }
}

fn upgrade_request(verb: Verb, runs_from: RunsFrom) -> Option<upgrade::Request> {
    let afterwards = match verb {
        Verb::Upgrade { preserve, .. } => Afterwards::Activated { preserve, blank_ephemeral: false },
        Verb::Stage { .. } => Afterwards::Staged,
        Verb::Activate { .. } | Verb::Confirm | Verb::Rollback | Verb::Repair => return None,
    };
    Some(system::upgrade_request(runs_from, afterwards))
}
