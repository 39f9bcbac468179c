//! Turns what a node's service answers into what decisions need: a [`NodeReport`].

use jiff::{SignedDuration, Timestamp};
use slipway_core::digest::Sha256;
use slipway_node_api::v1::{Ended, Goal, HealthState, Moved, SlotContents, SlotState, StatusResponse};
use slipway_rollout::facts::{Failure, FailureEvidence, NodeReport, RollbackState};

/// No payload has as many bytes.
const MOST_BYTES: u64 = 1 << 40;

/// Why an answer is of no use. The node then counts as one that does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Its disk cannot be read, or its slot has no list of its files.
    #[error("it does not say which payload it runs: on the node, `installer status` says why not")]
    Runs,
    /// It does not know its own disk.
    #[error(
        "its slipwayd cannot read the disk's boot state, or the system runs from another disk than `disk` in its \
         slipwayd.toml: on the node, `installer status` says which"
    )]
    Disk,
    /// A digest that is none.
    #[error("it names a payload that is no digest: {0}")]
    Digest(String),
    /// Its own health is unknown to it.
    #[error("it does not know how it is: {0}")]
    Health(String),
}

/// The node's report with regard to a rollout of `payload`. `now` is when the answer arrived, by the clock of the
/// controller: nodes count seconds, so a node's clock decides nothing.
pub fn node_report(status: &StatusResponse, payload: Sha256, now: Timestamp) -> Result<NodeReport, Unclear> {
    if status.disk.is_none() {
        return Err(Unclear::Disk);
    }
    let staged = status.staged.as_deref().map(digest).transpose()?;
    // A goal that this program does not know disturbs the node, for all it knows.
    let is_disturbed = status.operation.as_ref().is_some_and(|op| op.goal() != Goal::Stage);
    let busy = is_disturbed || is_on_trial(status);
    let (well, seconds) = match &status.health {
        Some(health) if health.state() == HealthState::Well => (true, health.seconds),
        Some(health) if health.state() == HealthState::Ill => (false, health.seconds),
        // The node is not looked at meanwhile, and need not be.
        _ if busy => (false, 0),
        // The node came back from the payload, and may still be starting. That it denies the payload is known.
        Some(_) if denial(status, payload).is_some() && runs(status)? != payload => (false, 0),
        Some(health) => return Err(Unclear::Health(health.reasons.join("; "))),
        None => return Err(Unclear::Health("its service is too old to say".to_owned())),
    };
    Ok(NodeReport {
        runs: runs(status)?,
        staged,
        well,
        since: before(now, seconds),
        busy,
        token: status.token,
        failed: failed(status, payload, staged),
        rollback: rollback_state(status),
        other_kubelet: other_slot(status).and_then(|slot| slot.kubelet.clone()),
    })
}

/// Bytes that the node moved to stage `payload`; `None` if it does not say. All are bounded: a node that lies spoils no sum.
pub fn moved(status: &StatusResponse, payload: Sha256) -> Option<Moved> {
    let name = String::from(payload);
    let of_it = status.ended.iter().filter(|ended| ended.payload == name);
    let Moved { fetched, reused, written } = of_it.filter_map(|ended| ended.moved).next()?;
    let [fetched, reused, written] = [fetched, reused, written].map(|bytes| bytes.min(MOST_BYTES));
    Some(Moved { fetched, reused, written })
}

/// The payload that it runs.
pub fn runs(status: &StatusResponse) -> Result<Sha256, Unclear> {
    digest(status.running_slot().and_then(|slot| slot.payload.as_deref()).ok_or(Unclear::Runs)?)
}

/// A person has begun a trial by hand, which is confirmed, or given up, by that person. Until then nothing is known of the
/// payload: the node is at it, whatever it says of its health.
fn is_on_trial(status: &StatusResponse) -> bool {
    status.running_slot().is_some_and(|slot| slot.state() == SlotState::Tried)
}

/// The slot that does not run.
fn other_slot(status: &StatusResponse) -> Option<&SlotContents> {
    let disk = status.disk.as_ref()?;
    disk.slots.iter().find(|slot| slot.slot != disk.running)
}

/// True if this node names a kubelet that is to be held to the version skew policy.
pub fn names_kubelet(status: &StatusResponse) -> bool {
    other_slot(status).is_some_and(|slot| slot.kubelet.is_some())
}

/// Tells whether the other slot holds a system that was confirmed, and that runs with etcd's data.
fn rollback_state(status: &StatusResponse) -> RollbackState {
    let is_there = other_slot(status).is_some_and(|other| other.state() == SlotState::Good);
    match &status.no_way_back {
        _ if !is_there => RollbackState::Unavailable,
        None => RollbackState::Available,
        Some(why) => RollbackState::Stranding(why.clone()),
    }
}

/// The failure of `payload` here, as the node itself knows it. It denies only a payload that it has booted and found not well;
/// an attempt that came back without a denial says nothing about the payload.
fn failed(status: &StatusResponse, payload: Sha256, staged: Option<Sha256>) -> Option<Failure> {
    if let Some(why) = denial(status, payload) {
        return Some(Failure { evidence: FailureEvidence::AfterReboot, why: why.to_owned() });
    }
    let why = unstaged(status, payload).filter(|_| staged != Some(payload))?.outcome.as_ref()?.came_back.clone()?;
    Some(Failure { evidence: FailureEvidence::NotStaged, why })
}

/// Why the node denies `payload`, if it does.
fn denial(status: &StatusResponse, payload: Sha256) -> Option<&str> {
    let name = String::from(payload);
    status.denied.iter().find(|denied| denied.payload == name).map(|denied| denied.why.as_str())
}

/// The last staging of `payload`, if that failed for good.
pub fn unstaged(status: &StatusResponse, payload: Sha256) -> Option<&Ended> {
    let name = String::from(payload);
    let is_its_staging = |ended: &&Ended| ended.goal() == Goal::Stage && ended.payload == name;
    status.ended.iter().find(is_its_staging).filter(|last| last.failed && status.staged.as_ref() != Some(&name))
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
    use slipway_node_api::v1::{Denied, Disk, Health, Operation, Outcome, Slot};

    fn payload(name: &str) -> Sha256 {
        Sha256::of(name.as_bytes())
    }

    fn now() -> Timestamp {
        "2030-01-01T12:00:00Z".parse().unwrap()
    }

    fn failure(evidence: FailureEvidence, why: &str) -> Option<Failure> {
        Some(Failure { evidence, why: why.to_owned() })
    }

    fn health(state: HealthState) -> Option<Health> {
        Some(Health { state: state.into(), seconds: 90, reasons: vec!["the Node is not ready".to_owned()] })
    }

    /// Slot A runs `old`; `new` is staged; it is well.
    fn status() -> StatusResponse {
        let slot = |slot: Slot, name: &str| SlotContents {
            slot: slot.into(),
            state: Some(SlotState::Good.into()),
            payload: Some(payload(name).into()),
            kubelet: Some(if name == "new" { "1.31.2" } else { "1.30.0" }.to_owned()),
            ..SlotContents::default()
        };
        let disk =
            Disk { running: Slot::A.into(), next: None, slots: vec![slot(Slot::B, "new"), slot(Slot::A, "old")] };
        StatusResponse {
            disk: Some(disk),
            health: health(HealthState::Well),
            staged: Some(payload("new").into()),
            token: 7,
            ..StatusResponse::default()
        }
    }

    fn report(status: &StatusResponse) -> Result<NodeReport, Unclear> {
        node_report(status, payload("new"), now())
    }

    fn operation(goal: i32) -> Option<Operation> {
        Some(Operation { goal, ..Operation::default() })
    }

    #[test]
    fn all_that_a_well_node_says() {
        let since = "2030-01-01T11:58:30Z".parse().unwrap();
        let (runs, staged) = (payload("old"), Some(payload("new")));
        let all = NodeReport {
            runs,
            staged,
            well: true,
            since,
            busy: false,
            token: 7,
            failed: None,
            rollback: RollbackState::Available,
            other_kubelet: Some("1.31.2".to_owned()),
        };
        assert_eq!(report(&status()), Ok(all.clone()));
        let ill = StatusResponse { health: health(HealthState::Ill), ..status() };
        assert_eq!(report(&ill), Ok(NodeReport { well: false, ..all.clone() }));
        // A time before all times is no reason to fail.
        let long = Health { state: HealthState::Well.into(), seconds: u64::MAX, reasons: vec![] };
        let long = StatusResponse { health: Some(long), ..status() };
        assert_eq!(report(&long), Ok(NodeReport { since: Timestamp::MIN, ..all }));
    }

    #[test]
    fn what_disturbs_it_makes_it_busy_and_staging_does_not() {
        for (goal, busy) in [(1, false), (2, true), (3, true), (99, true)] {
            let status = StatusResponse { operation: operation(goal), ..status() };
            assert_eq!(report(&status).map(|report| report.busy), Ok(busy), "{goal}");
        }
        // The node is not looked at meanwhile: it says the rest all the same, and is not well.
        for health in [health(HealthState::Unknown), None] {
            let status = StatusResponse { operation: operation(Goal::Upgrade.into()), health, ..status() };
            let report = report(&status).unwrap();
            assert_eq!((report.busy, report.well, report.since, report.token), (true, false, now(), 7));
        }
    }

    /// `installer upgrade` and a reboot, without the service of the node. Its guard may end the trial, or the person confirms it.
    #[test]
    fn who_runs_a_trial_is_at_it_and_neither_well_nor_ill() {
        for (state, busy) in [(SlotState::Good, false), (SlotState::Tried, true), (SlotState::Trial, false)] {
            for of in [HealthState::Well, HealthState::Ill, HealthState::Unknown] {
                let mut on_trial = StatusResponse { health: health(of), ..status() };
                on_trial.disk.as_mut().unwrap().slots[1].state = Some(state.into());
                match report(&on_trial) {
                    Ok(report) => assert_eq!(report.busy, busy, "{state:?} {of:?}"),
                    Err(e) => assert!(!busy && of == HealthState::Unknown, "{state:?} {of:?}: {e}"),
                }
                // The other slot's state is nothing that runs.
                let mut other = StatusResponse { health: health(of), ..status() };
                other.disk.as_mut().unwrap().slots[0].state = Some(state.into());
                assert!(report(&other).is_ok_and(|report| !report.busy) || of == HealthState::Unknown);
            }
        }
    }

    /// Other nodes would else go to the payload until the old system has started, or as long as an alarm of etcd stands.
    #[test]
    fn what_it_denies_is_heard_also_while_its_health_is_unknown() {
        let denied = |name: &str| vec![Denied { payload: payload(name).into(), why: "a unit failed".to_owned() }];
        let of = |name| StatusResponse { denied: denied(name), health: health(HealthState::Unknown), ..status() };
        let heard = report(&of("new")).unwrap();
        assert_eq!(heard.failed.map(|failed| failed.evidence), Some(FailureEvidence::AfterReboot));
        assert_eq!((heard.well, heard.busy, heard.since), (false, false, now()));
        // If it denies another payload, or runs this one, its denial says nothing of how it is.
        assert!(matches!(report(&of("other")), Err(Unclear::Health(_))));
        let mut runs = of("new");
        runs.disk.as_mut().unwrap().slots[1].payload = Some(payload("new").into());
        assert!(matches!(report(&runs), Err(Unclear::Health(_))));
    }

    #[test]
    fn what_is_not_known_is_no_news() {
        for health in [health(HealthState::Unknown), health(HealthState::Unspecified), None] {
            let status = StatusResponse { health, ..status() };
            assert!(matches!(report(&status), Err(Unclear::Health(_))), "{:?}", status.health);
        }
        assert_eq!(report(&StatusResponse { disk: None, ..status() }), Err(Unclear::Disk));
        let mut nameless = status();
        nameless.disk.as_mut().unwrap().slots[1].payload = None;
        assert_eq!(report(&nameless), Err(Unclear::Runs));
        nameless.disk.as_mut().unwrap().slots[1].payload = Some("abc".to_owned());
        assert_eq!(report(&nameless), Err(Unclear::Digest("abc".to_owned())));
        let staged = Some("abc".to_owned());
        assert_eq!(report(&StatusResponse { staged, ..status() }), Err(Unclear::Digest("abc".to_owned())));
    }

    fn ended(goal: Goal, name: &str, failed: bool, came_back: Option<&str>) -> Ended {
        let outcome = Some(Outcome { came_back: came_back.map(str::to_owned), left: false });
        Ended { goal: goal.into(), payload: payload(name).into(), failed, outcome, ..Ended::default() }
    }

    /// The last staging of this payload counts; what a node lies is bounded.
    #[test]
    fn what_staging_moved() {
        let moving = |name: &str, fetched: Option<u64>| Ended {
            moved: fetched.map(|fetched| Moved { fetched, reused: 9, written: fetched }),
            ..ended(Goal::Stage, name, false, None)
        };
        let all = |bytes| Moved { fetched: bytes, reused: 9, written: bytes };
        let of = |ended: Vec<Ended>| moved(&StatusResponse { ended, ..status() }, payload("new"));
        assert_eq!(of(vec![moving("old", Some(3)), moving("new", None)]), None);
        assert_eq!(of(vec![moving("new", None), moving("new", Some(5)), moving("new", Some(7))]), Some(all(5)));
        assert_eq!(of(vec![moving("new", Some(u64::MAX))]), Some(all(MOST_BYTES)));
    }

    #[test]
    fn only_a_system_that_was_confirmed_is_one_to_go_back_to() {
        for (state, way) in [
            (Some(SlotState::Good), RollbackState::Available),
            (Some(SlotState::Trial), RollbackState::Unavailable),
            (Some(SlotState::Bad), RollbackState::Unavailable),
            (None, RollbackState::Unavailable),
        ] {
            let mut status = status();
            status.disk.as_mut().unwrap().slots[0].state = state.map(i32::from);
            assert_eq!(report(&status).unwrap().rollback, way, "{state:?}");
        }
        let stranding = StatusResponse { no_way_back: Some("etcd 3.4 cannot read it".to_owned()), ..status() };
        assert_eq!(
            report(&stranding).unwrap().rollback,
            RollbackState::Stranding("etcd 3.4 cannot read it".to_owned())
        );
        let mut other = status();
        other.disk.as_mut().unwrap().slots.truncate(1);
        other.disk.as_mut().unwrap().running = Slot::B.into();
        assert_eq!(report(&other).unwrap().rollback, RollbackState::Unavailable);
    }

    #[test]
    fn a_payload_that_was_tried_has_failed() {
        let denied = |name: &str| Denied { payload: payload(name).into(), why: format!("{name} was not well") };
        let both = StatusResponse { denied: vec![denied("older"), denied("new")], ..status() };
        assert_eq!(report(&both).unwrap().failed, failure(FailureEvidence::AfterReboot, "new was not well"));
        let other = StatusResponse { denied: vec![denied("older")], ..status() };
        assert_eq!(report(&other).unwrap().failed, None);
    }

    #[test]
    fn a_payload_that_cannot_be_staged_has_failed() {
        let unstaged = |ended| StatusResponse { staged: None, ended, ..status() };
        let fails = ended(Goal::Stage, "new", true, Some("no room"));
        assert_eq!(
            report(&unstaged(vec![fails.clone()])).unwrap().failed,
            failure(FailureEvidence::NotStaged, "no room")
        );
        // Something else ended since, or before.
        let other = ended(Goal::Stage, "older", false, None);
        let among = unstaged(vec![other, fails.clone(), ended(Goal::Stage, "new", false, None)]);
        assert_eq!(report(&among).unwrap().failed, failure(FailureEvidence::NotStaged, "no room"));
        for not in [
            // By now it is staged, by any client.
            StatusResponse { ended: vec![fails.clone()], ..status() },
            unstaged(vec![ended(Goal::Stage, "new", false, None), fails.clone()]),
            // Its time was over, or an abort came.
            unstaged(vec![ended(Goal::Stage, "new", false, Some("the registry does not answer"))]),
            // That was not about the payload.
            unstaged(vec![ended(Goal::Upgrade, "new", true, Some("the grant is gone"))]),
            unstaged(vec![ended(Goal::Stage, "older", true, Some("no room"))]),
        ] {
            assert_eq!(report(&not).unwrap().failed, None, "{:?}", not.ended);
        }
    }
}
