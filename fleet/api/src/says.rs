//! What a fleet decides from, out of what a node says.

use jiff::{SignedDuration, Timestamp};
use slipway_core::digest::Sha256;
use slipway_rollout::facts::{Says, Way};

use crate::v1::{Ended, StatusResponse};

/// Why nothing can be decided from what a node says. It counts as one that does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Its disk cannot be read, or its slot has no list of its files.
    #[error("it does not say which payload it runs")]
    Runs,
    /// A digest that is none.
    #[error("it names a payload that is no digest: {0}")]
    Digest(String),
    /// Whether it is well.
    #[error("it does not know how it is: {0}")]
    Health(String),
}

impl StatusResponse {
    /// What the node says with regard to a rollout of `payload`. `now` is when the answer had come, by the clock of who
    /// asked: the node counts seconds, so that clocks of nodes decide nothing.
    pub fn says(&self, payload: Sha256, now: Timestamp) -> Result<Says, Unclear> {
        let staged = self.staged.as_deref().map(digest).transpose()?;
        // A goal that this program does not know disturbs the node, for all it knows.
        let busy = self.operation.as_ref().is_some_and(|op| op.goal != "stage");
        let (well, seconds) = match &self.health {
            Some(health) if health.state == "well" => (true, health.seconds),
            Some(health) if health.state == "ill" => (false, health.seconds),
            // Nobody looks meanwhile, and nobody has to.
            _ if busy => (false, 0),
            Some(health) => return Err(Unclear::Health(health.reasons.join("; "))),
            None => return Err(Unclear::Health("its service is too old to say".to_owned())),
        };
        Ok(Says {
            runs: self.runs()?,
            staged,
            well,
            since: before(now, seconds),
            busy,
            token: self.token,
            failed: self.failed(payload, staged),
            back: self.way(),
        })
    }

    fn runs(&self) -> Result<Sha256, Unclear> {
        let disk = self.disk.as_ref().ok_or(Unclear::Runs)?;
        let slot = disk.slots.iter().find(|slot| slot.slot == disk.running).ok_or(Unclear::Runs)?;
        digest(slot.payload.as_deref().ok_or(Unclear::Runs)?)
    }

    /// Whether the other slot holds a system that was confirmed.
    fn way(&self) -> Way {
        let is_there = self.disk.as_ref().is_some_and(|disk| {
            let other = disk.slots.iter().find(|slot| slot.slot != disk.running);
            other.is_some_and(|other| other.state.as_deref() == Some("good"))
        });
        if is_there { Way::Open } else { Way::Closed }
    }

    /// Why the node does not run `payload`, nor will: it was tried; or it could not be staged, and is not by now.
    fn failed(&self, payload: Sha256, staged: Option<Sha256>) -> Option<String> {
        let name = String::from(payload);
        if let Some(denied) = self.denied.iter().find(|denied| denied.payload == name) {
            return Some(denied.why.clone());
        }
        let is_its_staging = |ended: &&Ended| ended.goal == "stage" && ended.payload == name;
        let last = self.ended.iter().find(is_its_staging).filter(|last| last.failed && staged != Some(payload))?;
        last.outcome.as_ref()?.came_back.clone()
    }
}

fn digest(text: &str) -> Result<Sha256, Unclear> {
    text.parse().map_err(|_| Unclear::Digest(text.to_owned()))
}

/// So many seconds before; the first time that can be written down, if there is none.
fn before(now: Timestamp, seconds: u64) -> Timestamp {
    let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    now.checked_sub(span).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Denied, Disk, Health, Operation, Outcome, SlotState};

    fn payload(name: &str) -> Sha256 {
        Sha256::of(name.as_bytes())
    }

    fn now() -> Timestamp {
        "2030-01-01T12:00:00Z".parse().unwrap()
    }

    fn health(state: &str) -> Option<Health> {
        Some(Health { state: state.to_owned(), seconds: 90, reasons: vec!["the Node is not ready".to_owned()] })
    }

    /// Slot A runs `old`; `new` is staged; it is well.
    fn status() -> StatusResponse {
        let slot = |slot: &str, name: &str| SlotState {
            slot: slot.to_owned(),
            state: Some("good".to_owned()),
            payload: Some(payload(name).into()),
        };
        let disk = Disk { running: "A".to_owned(), next: None, slots: vec![slot("B", "new"), slot("A", "old")] };
        StatusResponse {
            disk: Some(disk),
            health: health("well"),
            staged: Some(payload("new").into()),
            token: 7,
            ..StatusResponse::default()
        }
    }

    fn says(status: &StatusResponse) -> Result<Says, Unclear> {
        status.says(payload("new"), now())
    }

    fn operation(goal: &str) -> Option<Operation> {
        Some(Operation { goal: goal.to_owned(), ..Operation::default() })
    }

    #[test]
    fn all_that_a_well_node_says() {
        let since = "2030-01-01T11:58:30Z".parse().unwrap();
        let (runs, staged) = (payload("old"), Some(payload("new")));
        let all = Says { runs, staged, well: true, since, busy: false, token: 7, failed: None, back: Way::Open };
        assert_eq!(says(&status()), Ok(all.clone()));
        let ill = StatusResponse { health: health("ill"), ..status() };
        assert_eq!(says(&ill), Ok(Says { well: false, ..all.clone() }));
        // A time before all times is no reason to fail.
        let long = Health { state: "well".to_owned(), seconds: u64::MAX, reasons: vec![] };
        let long = StatusResponse { health: Some(long), ..status() };
        assert_eq!(says(&long), Ok(Says { since: Timestamp::MIN, ..all }));
    }

    #[test]
    fn what_disturbs_it_makes_it_busy_and_staging_does_not() {
        for (goal, busy) in [("stage", false), ("upgrade", true), ("rollback", true), ("a goal of tomorrow", true)] {
            let status = StatusResponse { operation: operation(goal), ..status() };
            assert_eq!(says(&status).map(|says| says.busy), Ok(busy), "{goal}");
        }
        // Nobody looks meanwhile: it says the rest all the same, and is not well.
        for health in [health("unknown"), None] {
            let status = StatusResponse { operation: operation("upgrade"), health, ..status() };
            let says = says(&status).unwrap();
            assert_eq!((says.busy, says.well, says.since, says.token), (true, false, now(), 7));
        }
    }

    #[test]
    fn what_is_not_known_is_no_news() {
        for health in [health("unknown"), health("splendid"), health(""), None] {
            let status = StatusResponse { health, ..status() };
            assert!(matches!(says(&status), Err(Unclear::Health(_))), "{:?}", status.health);
        }
        assert_eq!(says(&StatusResponse { disk: None, ..status() }), Err(Unclear::Runs));
        let mut nameless = status();
        nameless.disk.as_mut().unwrap().slots[1].payload = None;
        assert_eq!(says(&nameless), Err(Unclear::Runs));
        nameless.disk.as_mut().unwrap().slots[1].payload = Some("abc".to_owned());
        assert_eq!(says(&nameless), Err(Unclear::Digest("abc".to_owned())));
        let staged = Some("abc".to_owned());
        assert_eq!(says(&StatusResponse { staged, ..status() }), Err(Unclear::Digest("abc".to_owned())));
    }

    fn ended(goal: &str, name: &str, failed: bool, came_back: Option<&str>) -> Ended {
        let outcome = Some(Outcome { came_back: came_back.map(str::to_owned), left: false });
        Ended { goal: goal.to_owned(), payload: payload(name).into(), failed, outcome, ..Ended::default() }
    }

    #[test]
    fn only_a_system_that_was_confirmed_is_one_to_go_back_to() {
        for (state, way) in
            [(Some("good"), Way::Open), (Some("trial"), Way::Closed), (Some("bad"), Way::Closed), (None, Way::Closed)]
        {
            let mut status = status();
            status.disk.as_mut().unwrap().slots[0].state = state.map(str::to_owned);
            assert_eq!(says(&status).unwrap().back, way, "{state:?}");
        }
        let mut other = status();
        other.disk.as_mut().unwrap().slots.truncate(1);
        other.disk.as_mut().unwrap().running = "B".to_owned();
        assert_eq!(says(&other).unwrap().back, Way::Closed);
    }

    #[test]
    fn a_payload_that_was_tried_has_failed() {
        let denied = |name: &str| Denied { payload: payload(name).into(), why: format!("{name} was not well") };
        let both = StatusResponse { denied: vec![denied("older"), denied("new")], ..status() };
        assert_eq!(says(&both).unwrap().failed.as_deref(), Some("new was not well"));
        let other = StatusResponse { denied: vec![denied("older")], ..status() };
        assert_eq!(says(&other).unwrap().failed, None);
    }

    #[test]
    fn a_payload_that_cannot_be_staged_has_failed() {
        let unstaged = |ended| StatusResponse { staged: None, ended, ..status() };
        let fails = ended("stage", "new", true, Some("no room"));
        assert_eq!(says(&unstaged(vec![fails.clone()])).unwrap().failed.as_deref(), Some("no room"));
        // Something else ended since, or before.
        let other = ended("stage", "older", false, None);
        let among = unstaged(vec![other, fails.clone(), ended("stage", "new", false, None)]);
        assert_eq!(says(&among).unwrap().failed.as_deref(), Some("no room"));
        for not in [
            // By now it is staged, whoever did it.
            StatusResponse { ended: vec![fails.clone()], ..status() },
            unstaged(vec![ended("stage", "new", false, None), fails.clone()]),
            // Its time was over, or somebody wanted it to end.
            unstaged(vec![ended("stage", "new", false, Some("the registry does not answer"))]),
            // That was not about the payload.
            unstaged(vec![ended("upgrade", "new", true, Some("the grant is gone"))]),
            unstaged(vec![ended("stage", "older", true, Some("no room"))]),
        ] {
            assert_eq!(says(&not).unwrap().failed, None, "{:?}", not.ended);
        }
    }
}
