//! Reports of a node's health: never more than looks have found.

use std::{fs, thread, time::Duration};

use slipway_core::boot::slot::{PerSlot, Slot, SlotState};
use slipway_node::{
    facts::{Disk, Facts},
    journal::Journal,
    operation::Shape,
    request::{Goal, Request},
    sequence::{Next, Outcome},
};
use slipway_node_api::v1::HealthState;
use slipway_node_server::{
    events::{Bound, EventLog},
    node::Node as _,
};
use slipwayd::{
    config::Config,
    health::{Health, Look, QuietPeriod},
    machine::units::Init,
    service::start,
    starts::Starts,
};
use tempfile::tempdir;
use tokio::{runtime::Builder, time::sleep};
use uuid::Uuid;

use crate::{installer::fixture, script};

fn facts() -> Facts {
    let disk = Disk {
        running: Slot::A,
        states: PerSlot { a: Some(SlotState::Good), b: Some(SlotState::Good) },
        payloads: PerSlot { a: None, b: None },
        next: Some(Slot::A),
        versions: PerSlot { a: None, b: None },
        components: PerSlot::default(),
        blank: false,
    };
    Facts { boot: "boot".to_owned(), uptime: 0, disk: Some(disk), ..Facts::default() }
}

fn begins(journal: &mut Journal, goal: Goal) {
    let request = Request {
        source: if goal.writes() { "image".to_owned() } else { String::new() },
        ..Request::new(Uuid::new_v4(), goal, "test")
    };
    journal.ask(request, Shape::default(), &facts()).unwrap();
}

fn ends(journal: &mut Journal) {
    journal.take(Next::End(Outcome::Reached), &facts());
}

fn ill(why: &str) -> Look {
    Look { ill: vec![why.to_owned()], ..Look::default() }
}

fn said(health: &Health, journal: &Journal, now: u64) -> (HealthState, u64) {
    let told = health.report(journal, now);
    (told.state(), told.seconds)
}

#[test]
fn a_time_is_that_which_looks_have_seen() {
    let (mut health, journal) = (Health::default(), Journal::default());
    let quiet = QuietPeriod::after_operation(&journal).unwrap();
    assert_eq!(said(&health, &journal, 1000), (HealthState::Unknown, 0));
    health.saw(Look::default(), quiet, 1000, 0);
    health.saw(Look::default(), quiet, 1060, 0);
    assert_eq!(said(&health, &journal, 1070), (HealthState::Well, 70));
    health.saw(ill("kubelet.service is failed"), quiet, 1120, 0);
    health.saw(ill("kubelet.service is activating"), quiet, 1180, 0);
    let told = health.report(&journal, 1190);
    assert_eq!((told.state(), told.seconds), (HealthState::Ill, 70));
    assert_eq!(told.reasons, ["kubelet.service is activating"]);
    // Its state is unknown for the time when it could not be looked at.
    health.saw(Look { unknown: vec!["the API server does not answer".to_owned()], ..Look::default() }, quiet, 1240, 0);
    assert_eq!(said(&health, &journal, 1241), (HealthState::Unknown, 1));
    health.saw(Look::default(), quiet, 1300, 0);
    assert_eq!(said(&health, &journal, 1310), (HealthState::Well, 10));
    // A fault counts even if another part could not be looked at.
    health.saw(Look { unknown: vec!["etcd".to_owned()], ..ill("a unit") }, quiet, 1360, 0);
    let told = health.report(&journal, 1360);
    assert_eq!((told.state(), told.reasons.len()), (HealthState::Ill, 2));
}

#[test]
fn a_system_that_is_still_starting_is_not_ill() {
    let (mut health, journal) = (Health::default(), Journal::default());
    let quiet = QuietPeriod::after_operation(&journal).unwrap();
    const PROVE: u64 = 480;
    health.saw(ill("kubelet.service is activating, start"), quiet, 15, PROVE);
    let told = health.report(&journal, 20);
    assert_eq!(told.state(), HealthState::Unknown);
    assert!(told.reasons[0].contains("kubelet.service is activating"), "it says what it waits for: {told:?}");
    health.saw(Look::default(), quiet, 75, PROVE);
    assert_eq!(said(&health, &journal, 80), (HealthState::Well, 5));
    // Not well in time: now it is ill, with the same words.
    health.saw(ill("kubelet.service is failed"), quiet, PROVE, PROVE);
    assert_eq!(said(&health, &journal, PROVE), (HealthState::Ill, 0));
}

/// It would else be starting for ever, and never ill.
#[test]
fn a_machine_that_starts_again_and_again_is_ill() {
    let dir = tempdir().unwrap();
    let note = |boot: &str, is_awaited: bool| Starts::note(dir.path(), boot, is_awaited).unwrap();
    let is_ill = |boot: &str| note(boot, false).fault(480).is_some();
    // The service may start again in the same boot.
    assert_eq!(
        ["a", "a", "b", "b", "c", "d", "d", "e"].map(is_ill),
        [false, false, false, false, false, true, true, true]
    );
    let why = "the machine has started 5 times in a row, and never ran for 480 s in between";
    assert_eq!(note("e", false).fault(480).as_deref(), Some(why));
    // One that lasts begins a new row, and so does one that an operation waits for.
    note("e", false).last().unwrap();
    assert_eq!(["f", "g", "h"].map(is_ill), [false, false, false]);
    assert_eq!(note("i", true).fault(480), None);
    assert_eq!(["j", "k", "l", "m"].map(is_ill), [false, false, true, true]);
    // A file that says nothing is no start.
    fs::write(dir.path().join("starts"), "").unwrap();
    assert!(!is_ill("n"));
}

#[test]
fn an_old_look_is_none() {
    let (mut health, journal) = (Health::default(), Journal::default());
    let quiet = QuietPeriod::after_operation(&journal).unwrap();
    health.saw(Look::default(), quiet, 1000, 0);
    assert_eq!(said(&health, &journal, 1240), (HealthState::Well, 240));
    assert_eq!(said(&health, &journal, 1241), (HealthState::Unknown, 0));
    // Nor does it say since when.
    health.saw(Look::default(), quiet, 1241, 0);
    assert_eq!(said(&health, &journal, 1242), (HealthState::Well, 1));
}

#[test]
fn what_was_seen_before_an_operation_is_not_known_after_it() {
    let (mut health, mut journal) = (Health::default(), Journal::default());
    health.saw(Look::default(), QuietPeriod::after_operation(&journal).unwrap(), 1000, 0);
    // Neither staging nor its end disturbs the node.
    begins(&mut journal, Goal::Stage);
    assert_eq!(said(&health, &journal, 1010), (HealthState::Well, 10));
    ends(&mut journal);
    assert_eq!(said(&health, &journal, 1020), (HealthState::Well, 20));
    begins(&mut journal, Goal::Reboot);
    assert_eq!(QuietPeriod::after_operation(&journal), None);
    assert_eq!(health.report(&journal, 1030).reasons, ["an operation is under way"]);
    ends(&mut journal);
    assert_eq!(said(&health, &journal, 1040), (HealthState::Unknown, 0));
    health.saw(Look::default(), QuietPeriod::after_operation(&journal).unwrap(), 1050, 0);
    assert_eq!(said(&health, &journal, 1060), (HealthState::Well, 10));
}

/// Whatever it finds, as long as this boot has not lasted.
#[test]
fn the_service_says_that_the_machine_starts_again_and_again() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    script(dir.path(), "installer", &format!("cat '{}'", fixture("status.json").display()));
    fs::create_dir(at("state")).unwrap();
    fs::write(at("state").join("starts"), "an-earlier-boot 2\n").unwrap();
    let mut config = Config { state: at("state"), installer: at("installer"), ..Config::default() };
    config.limits.prove = u64::MAX;
    let (service, worker) = start("node-1".to_owned(), config, EventLog::new(Bound::default())).unwrap();
    thread::spawn(|| worker.work());
    let health = Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        loop {
            let health = service.status().await.unwrap().health.unwrap();
            if health.state() != HealthState::Unknown {
                break health;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!((health.state(), health.reasons.len()), (HealthState::Ill, 1), "{health:?}");
    assert!(health.reasons[0].starts_with("the machine has started 4 times in a row"), "{health:?}");
}

/// The service looks by itself, and a request does not wait for the look.
#[test]
fn a_status_does_not_wait_for_a_look() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    script(dir.path(), "installer", &format!("cat '{}'", fixture("status.json").display()));
    let (began, go) = (at("began"), at("go"));
    let waits = format!("touch {}\ntest \"$(cat {})\" = active", began.display(), go.display());
    let program = script(dir.path(), "init", &waits).display().to_string();
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    let init: Init = serde_json::from_value(serde_json::json!({ "commands": {
        "stop": [program, "@unit@"], "is-active": [program, "@unit@"], "reboot": [program],
    }}))
    .unwrap();
    let mut config = Config { state: at("state"), installer: at("installer"), ..Config::default() };
    config.services.need = vec!["kubelet.service".to_owned()];
    config.services.init = init;
    let (service, worker) = start("node-1".to_owned(), config, EventLog::new(Bound::default())).unwrap();
    thread::spawn(|| worker.work());
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        while !began.exists() {
            sleep(Duration::from_millis(20)).await;
        }
        let health = service.status().await.unwrap().health.unwrap();
        assert_eq!((health.state(), health.seconds), (HealthState::Unknown, 0));
        fs::write(&go, "active").unwrap();
        let health = loop {
            let health = service.status().await.unwrap().health.unwrap();
            if health.state() != HealthState::Unknown {
                break health;
            }
            sleep(Duration::from_millis(20)).await;
        };
        assert_eq!((health.state(), health.reasons.len()), (HealthState::Well, 0));
    });
}
