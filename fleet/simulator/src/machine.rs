//! A machine: its disk with the real boot state and the real rule of what boots, its journal, and how well it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slipway_core::{
    boot::{
        env::BootEnv,
        rule::{SlotView, next_boot},
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
};
use slipway_node::{
    facts::{Disk, Facts},
    journal::{Ended, Journal},
    request::Goal,
    sequence::Outcome,
    step::Step,
};
use slipway_rollout::{
    facts::{Failure, FailureEvidence, RollbackState},
    ledger::Role,
};

use crate::{
    NEW, OLD,
    clock::{Seconds, stamp},
    false_reports::Lie,
    scenario::Quality,
    view::Report,
};

/// Time that reports are kept: a message may be this late.
pub const REMEMBERED: Seconds = 2 * 3600;

/// A payload is given up after so many failed stages in a row.
const TRIES: usize = 3;

/// A machine, and the service on it.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: String,
    pub pool: String,
    pub role: Role,
    /// Which machine of this name it is.
    pub life: u64,
    pub env: BootEnv,
    pub payloads: PerSlot<Option<Sha256>>,
    pub running: Slot,
    pub is_up: bool,
    /// It never comes back.
    pub is_dead: bool,
    /// Which boot this is, and when it was.
    pub boot: u64,
    pub booted: Seconds,
    /// When its services are there.
    pub healthy_from: Seconds,
    pub journal: Journal,
    /// The older of the two copies on the medium.
    pub journal_before: Journal,
    /// The step that the journal announces.
    pub to_do: Option<Step>,
    /// Only its last scheduled event counts.
    pub ticket: u64,
    pub is_stopped: bool,
    pub is_drained: bool,
    pub is_well: bool,
    pub since: Seconds,
    pub quality: Quality,
    /// An upgrade that came back, for whatever reason, is not tried again.
    pub is_tried_once: bool,
    pub ill_until: Seconds,
    pub cut_off_until: Seconds,
    pub drain_blocked_until: Seconds,
    /// The error of its own clock.
    pub clock: Seconds,
    /// Its operation disturbs it: the node's UID when that began, and the token.
    pub disturbed: Option<(String, u64)>,
    /// When it began to look at its grant the last time.
    pub looked: Seconds,
    /// Failures of members of etcd that it knew of when it looked the last time.
    pub failures: u64,
    /// The number of restarts by an operation with this token: forward, and back.
    pub reboots: BTreeMap<u64, [u32; 2]>,
    /// The subject of its lie now, and whether it ever lied.
    pub lie: Option<Lie>,
    pub has_lied: bool,
    /// The highest token that it was asked with, whether it obeyed or not.
    pub asked: u64,
    /// Payloads that came to nothing here.
    pub in_vain: BTreeSet<Sha256>,
    /// Its report, and since when; `None` while it is silent.
    pub said: VecDeque<(Seconds, Option<Report>)>,
}

impl Machine {
    /// A machine that runs the old payload, and is well.
    pub fn new(name: &str, pool: &str, role: Role, quality: Quality) -> Self {
        let mut machine = Self {
            name: name.to_owned(),
            pool: pool.to_owned(),
            role,
            life: 0,
            env: BootEnv::installed(0),
            payloads: PerSlot { a: Some(OLD), b: None },
            running: Slot::A,
            is_up: true,
            is_dead: false,
            boot: 0,
            booted: -3600,
            healthy_from: -3600,
            journal: Journal::default(),
            journal_before: Journal::default(),
            to_do: None,
            ticket: 0,
            is_stopped: false,
            is_drained: false,
            is_well: true,
            since: -3600,
            quality,
            is_tried_once: false,
            ill_until: 0,
            cut_off_until: 0,
            drain_blocked_until: 0,
            clock: 0,
            disturbed: None,
            looked: 0,
            failures: 0,
            reboots: BTreeMap::new(),
            lie: None,
            has_lied: false,
            asked: 0,
            in_vain: BTreeSet::new(),
            said: VecDeque::new(),
        };
        machine.record_report(-3600);
        machine
    }

    /// The next boot, by the rule of the real boot loader.
    pub fn next(&self) -> Option<Slot> {
        let view = PerSlot::new(|slot| SlotView { verifies: self.payloads[slot].is_some(), marker: None });
        next_boot(Some(&self.env), &view).slot
    }

    /// The boot loader runs.
    pub fn boots(&mut self, now: Seconds) {
        let next = self.next();
        if let Some(trial) = self.env.once.take() {
            self.env.states[trial] = SlotState::Tried;
        }
        self.running = next.unwrap_or(self.running);
        self.boot += 1;
        self.booted = now;
        (self.is_up, self.is_stopped, self.is_drained) = (true, false, false);
        self.to_do = None;
    }

    /// Power is gone. The medium stays as it is.
    pub fn goes_down(&mut self) {
        (self.is_up, self.is_drained) = (false, false);
        self.to_do = None;
        self.ticket += 1;
    }

    /// The journal as it is read after that. A write may have been cut short: then one of the copies is torn.
    pub fn read_journal(&mut self, is_torn: bool) {
        let decoded = |journal: &Journal| journal.encode().ok().and_then(|copy| Journal::decode(&copy).ok());
        let torn = |journal: &Journal| {
            let copy = journal.encode().ok()?;
            Journal::decode(&copy[..copy.len() / 2]).ok()
        };
        let copies = if is_torn {
            [decoded(&self.journal), torn(&self.journal_before)]
        } else {
            [decoded(&self.journal_before), decoded(&self.journal)]
        };
        self.journal = Journal::newest(copies.into_iter().flatten()).unwrap_or_default();
    }

    /// The journal changes, and is on the medium.
    pub fn write(&mut self, journal: Journal) {
        let seq = self.journal.seq + 1;
        let before = std::mem::replace(&mut self.journal, Journal { seq, ..journal });
        self.journal_before = before;
    }

    /// The time of its own clock, in seconds since 1970: what it writes into the boot state.
    pub fn time(&self, now: Seconds) -> u64 {
        u64::try_from(stamp(now, self.clock).as_second()).unwrap_or(0)
    }

    /// The running system.
    pub fn runs(&self) -> Option<Sha256> {
        self.payloads[self.running]
    }

    /// The payload that runs is one that is confirmed.
    pub fn is_confirmed(&self) -> bool {
        self.env.states[self.running] == SlotState::Good && self.env.default == self.running
    }

    /// The payload is no good on this machine, now.
    pub fn is_spoilt(&self, now: Seconds) -> bool {
        let of_new = match self.quality {
            Quality::NeverWell | Quality::NeverUp => true,
            Quality::FallsIll(after) => now >= self.healthy_from + after,
            Quality::Well | Quality::NotStaged => false,
        };
        of_new && self.runs() == Some(NEW)
    }

    /// The facts that it observes of itself. The reader adds the Node object.
    pub fn facts(&self, now: Seconds) -> Facts {
        let disk = Disk {
            running: self.running,
            states: PerSlot::new(|slot| Some(self.env.states[slot])),
            payloads: self.payloads,
            next: self.next(),
            versions: PerSlot { a: None, b: None },
            components: PerSlot::default(),
            blank: false,
        };
        let uptime = u64::try_from(now - self.booted).unwrap_or(0);
        Facts { boot: format!("{}.{}", self.life, self.boot), uptime, disk: Some(disk), ..Facts::default() }
    }

    /// The failure of the payload: it is denied here, or could not be written; or the upgrade came back before it was booted,
    /// where that is not repeated at once.
    fn failed(&self) -> Option<Failure> {
        if let Some(denied) = self.journal.denial(NEW) {
            return Some(Failure { evidence: FailureEvidence::AfterReboot, why: denied.why.clone() });
        }
        let why = |ended: &Ended| if let Outcome::CameBack(why) = &ended.outcome { Some(why.clone()) } else { None };
        let mut ended = self.journal.ended.iter();
        let stages = ended.clone().take_while(|ended| ended.request.goal == Goal::Stage && ended.failed);
        if stages.clone().count() >= TRIES {
            let why = stages.filter_map(why).next()?;
            return Some(Failure { evidence: FailureEvidence::NotStaged, why });
        }
        let last = ended.find(|ended| self.is_tried_once && ended.request.goal == Goal::Upgrade)?;
        Some(Failure { evidence: FailureEvidence::BeforeReboot, why: why(last)? })
    }

    /// Tells whether it can go back to the system of its other slot. It tries that once.
    pub fn rollback_state(&self) -> RollbackState {
        let went = self.journal.ended.iter().find(|ended| ended.request.goal == Goal::Rollback);
        if went.is_some() && self.runs() == Some(NEW) {
            return RollbackState::Failed("it runs it all the same".to_owned());
        }
        if self.env.states[!self.running] == SlotState::Good {
            RollbackState::Available
        } else {
            RollbackState::Unavailable
        }
    }

    /// True if it has gone back, as it was asked to.
    pub fn has_gone_back(&self) -> bool {
        let mut ended = self.journal.ended.iter();
        ended.any(|ended| ended.request.goal == Goal::Rollback && ended.outcome == Outcome::Reached)
    }

    /// Its own report, which may be a lie.
    pub fn report(&self) -> Option<Report> {
        let report = self.truth()?;
        Some(self.lie.map_or(report.clone(), |lie| lie.falsify(report, self.asked)))
    }

    /// The truth.
    fn truth(&self) -> Option<Report> {
        let staged = self.facts(0).disk.and_then(|disk| disk.staged());
        self.is_up.then(|| Report {
            runs: self.runs().unwrap_or(OLD),
            staged,
            well: self.is_well,
            since: self.since,
            busy: self.journal.operation.as_ref().is_some_and(|op| op.request.goal != Goal::Stage),
            token: self.journal.token,
            failed: self.failed(),
            rollback: self.rollback_state(),
        })
    }

    /// Its report is remembered, if it is new.
    pub fn record_report(&mut self, now: Seconds) -> bool {
        let report = self.report();
        let is_new = self.said.back().is_none_or(|(_, last)| *last != report);
        if is_new {
            self.said.push_back((now, report));
            while self.said.get(1).is_some_and(|(at, _)| *at + REMEMBERED < now) {
                self.said.pop_front();
            }
        }
        is_new
    }

    /// Its report at that time.
    pub fn report_at(&self, at: Seconds) -> Option<&Report> {
        let of_then = self.said.iter().rev().find(|(since, _)| *since <= at);
        of_then.or(self.said.front())?.1.as_ref()
    }
}
