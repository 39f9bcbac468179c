//! Events in Talos' words.

use prost::Message;
use slipway_node::sequence::Outcome;
use slipway_node_api::{
    machine::{
        Event, EventsRequest, MachineStatusEvent, PhaseEvent, SequenceEvent, UpgradeRequest,
        machine_service_client::MachineServiceClient, machine_status_event::MachineStage,
    },
    reason::Reason,
    v1::{StageRequest, event::What, plan_request::Goal},
};
use slipway_node_server::{events::Bound, limits::Limits};
use tonic::{Streaming, transport::Channel};
use uuid::Uuid;

use crate::{recorder::Then, site::Site};

async fn client(site: &Site) -> MachineServiceClient<Channel> {
    MachineServiceClient::new(site.channel(&site.admin()).await)
}

fn all() -> EventsRequest {
    EventsRequest { tail_events: -1, ..Default::default() }
}

async fn next(events: &mut Streaming<Event>) -> Event {
    events.message().await.unwrap().unwrap()
}

/// A stream after its first event, which is empty.
async fn events(client: &mut MachineServiceClient<Channel>, request: EventsRequest) -> Streaming<Event> {
    let actor = request.with_actor_id.clone();
    let mut events = client.events(request).await.unwrap().into_inner();
    let hello = next(&mut events).await;
    assert_eq!((hello.data.unwrap().type_url.as_str(), hello.actor_id), ("", actor));
    events
}

/// Events until the service's last one.
async fn rest(site: &Site, mut events: Streaming<Event>) -> Vec<Event> {
    site.log.close();
    let mut all = Vec::new();
    while let Some(event) = events.message().await.unwrap() {
        all.push(event);
    }
    all
}

fn read<T: Message + Default>(event: &Event, name: &str) -> Option<T> {
    let data = event.data.as_ref().unwrap();
    (data.type_url == format!("talos/runtime/machine.{name}")).then(|| T::decode(data.value.as_slice()).unwrap())
}

/// An event as a line.
fn line(event: &Event) -> String {
    if let Some(of) = read::<SequenceEvent>(event, "SequenceEvent") {
        let why = of.error.map(|error| format!(" {} {}", error.code, error.message)).unwrap_or_default();
        return format!("sequence {} {}{why}", of.sequence, of.action);
    }
    if let Some(of) = read::<PhaseEvent>(event, "PhaseEvent") {
        return format!("phase {} {}", of.phase, of.action);
    }
    let of = read::<MachineStatusEvent>(event, "MachineStatusEvent").unwrap();
    let status = of.status.clone().unwrap();
    let unmet: Vec<_> = status.unmet_conditions.iter().map(|of| format!(" {}: {}", of.name, of.reason)).collect();
    format!("machine {:?} {}{}", of.stage(), status.ready, unmet.concat())
}

async fn upgrade(client: &mut MachineServiceClient<Channel>) -> String {
    let request = UpgradeRequest { image: "registry/os:2".to_owned(), preserve: true, ..Default::default() };
    client.upgrade(request).await.unwrap().into_inner().messages.remove(0).actor_id
}

async fn played(outcome: Outcome) -> (Site, MachineServiceClient<Channel>, String) {
    let site = Site::new().await;
    *site.node.then.lock().unwrap() = Then::Ends(outcome);
    let mut client = client(&site).await;
    let id = upgrade(&mut client).await;
    (site, client, id)
}

#[tokio::test]
async fn an_upgrade_is_a_sequence_of_phases_and_ends_with_a_machine_that_is_ready() {
    let (site, mut client, id) = played(Outcome::Reached).await;
    let told = rest(&site, events(&mut client, all()).await).await;
    assert!(told.iter().all(|event| event.actor_id == id));
    let lines: Vec<_> = told.iter().map(line).collect();
    assert_eq!(lines[..4], ["sequence upgrade 1", "machine Upgrading false", "phase stage 0", "phase stage 1"]);
    assert_eq!(lines[lines.len() - 2..], ["sequence upgrade 2", "machine Running true"]);
    let phases = lines.iter().filter(|line| line.starts_with("phase ")).count();
    assert_eq!((phases % 2, phases), (0, lines.len() - 4));
}

#[tokio::test]
async fn a_machine_that_came_back_is_not_told_to_be_ready() {
    let (site, mut client, _) = played(Outcome::CameBack("it is not well".to_owned())).await;
    let lines: Vec<_> = rest(&site, events(&mut client, all()).await).await.iter().map(line).collect();
    let end = [
        "sequence upgrade 0 0 it is not well",
        "sequence upgrade 2 0 it is not well",
        "machine Running false upgrade: it is not well",
    ];
    assert_eq!(lines[lines.len() - 3..], end);
    assert!(!lines.iter().any(|line| line == "machine Running true"), "{lines:?}");
}

/// The service was restarted with an operation under way, or after one: its log has nothing of the beginning.
fn restarted(site: &Site, ended: Option<Outcome>) -> String {
    let id = Uuid::new_v4();
    let goal = slipway_node_api::v1::UpgradeRequest {
        id: id.to_string(),
        source: "oci:image".to_owned(),
        ..Default::default()
    };
    let request = slipway_node_api::request::from_wire(Goal::Upgrade(goal), "alice".to_owned()).unwrap();
    site.node.remember(request, ended);
    id.to_string()
}

#[tokio::test]
async fn a_client_that_comes_back_after_the_end_is_told_of_it() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    let failed = restarted(&site, Some(Outcome::CameBack("it is not well".to_owned())));
    let well = restarted(&site, Some(Outcome::Reached));
    for (id, end) in [
        (failed, ["sequence upgrade 2 0 it is not well", "machine Running false upgrade: it is not well"]),
        (well, ["sequence upgrade 2", "machine Running true"]),
    ] {
        let mut events = events(&mut client, EventsRequest { with_actor_id: id.clone(), ..all() }).await;
        let told = [next(&mut events).await, next(&mut events).await];
        assert_eq!(told.each_ref().map(line), end);
        assert!(told.iter().all(|event| event.actor_id == id));
    }
    // Of an operation that is not known, and of all of them, there is nothing to tell.
    let unknown = EventsRequest { with_actor_id: Uuid::new_v4().to_string(), ..all() };
    let streams = [events(&mut client, unknown).await, events(&mut client, all()).await];
    site.log.close();
    for mut stream in streams {
        assert_eq!(stream.message().await.unwrap(), None);
    }
}

#[tokio::test]
async fn after_a_restart_the_machine_is_doing_what_it_was() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    let id = restarted(&site, None);
    let mut events = events(&mut client, EventsRequest::default()).await;
    let step = slipway_node_api::v1::Step::Prove.into();
    site.log.push(What::StepBlocked(slipway_node_api::v1::StepBlocked { id, step, why: "kubelet".to_owned() }));
    assert_eq!(line(&next(&mut events).await), "machine Upgrading false prove: kubelet");
}

#[tokio::test]
async fn what_blocks_is_a_condition_that_is_not_met() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    let mut events = events(&mut client, EventsRequest::default()).await;
    let operation = |id: &str| {
        let goal = slipway_node_api::v1::Goal::Reboot.into();
        What::Asked(slipway_node_api::v1::Asked { id: id.to_owned(), goal, ..Default::default() })
    };
    site.log.push(operation("one"));
    let (id, step, why) = ("one".to_owned(), slipway_node_api::v1::Step::Drain.into(), "default/db".to_owned());
    site.log.push(What::StepBlocked(slipway_node_api::v1::StepBlocked { id, step, why }));
    let mut lines = Vec::new();
    for _ in 0..3 {
        lines.push(line(&next(&mut events).await));
    }
    assert_eq!(lines, ["sequence reboot 1", "machine Rebooting false", "machine Rebooting false drain: default/db"]);
}

#[tokio::test]
async fn a_stage_disturbs_nothing() {
    let site = Site::new().await;
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::Reached);
    let request = StageRequest { id: Uuid::new_v4().to_string(), source: "oci:x".to_owned(), ..Default::default() };
    site.local().await.stage(request).await.unwrap();
    let mut client = client(&site).await;
    let told = rest(&site, events(&mut client, all()).await).await;
    let stages: Vec<_> =
        told.iter().filter_map(|event| read::<MachineStatusEvent>(event, "MachineStatusEvent")).collect();
    assert!(stages.iter().all(|of| of.stage() == MachineStage::Running), "{stages:?}");
}

#[tokio::test]
async fn a_client_gets_the_tail_that_it_asks_for() {
    let (site, mut client, id) = played(Outcome::Reached).await;
    let told = {
        let mut from_all = events(&mut client, all()).await;
        let mut told = Vec::new();
        while told.last().is_none_or(|event| line(event) != "machine Running true") {
            told.push(next(&mut from_all).await);
        }
        told
    };
    let count = told.len();
    let last = EventsRequest { tail_events: 3, ..Default::default() };
    let mut of_last = events(&mut client, last).await;
    for event in &told[count - 3..] {
        assert_eq!(&next(&mut of_last).await, event);
    }
    // From each event on, also from one of two that are one of ours.
    for at in [0, 1, 2, count - 2] {
        let after = EventsRequest { tail_id: told[at].id.clone(), ..Default::default() };
        assert_eq!(next(&mut events(&mut client, after).await).await, told[at + 1], "{at}");
    }
    let before = EventsRequest { tail_id: format!("{}.7.0", Uuid::new_v4()), ..Default::default() };
    assert_eq!(next(&mut events(&mut client, before).await).await, told[0], "of another boot");
    let recent = EventsRequest { tail_seconds: i32::MAX, ..Default::default() };
    assert_eq!(next(&mut events(&mut client, recent).await).await, told[0]);
    // Only one's own events, from now on.
    let own = EventsRequest { with_actor_id: id.clone(), ..all() };
    let own = events(&mut client, own).await;
    let other = EventsRequest { with_actor_id: "other".to_owned(), ..all() };
    let other = events(&mut client, other).await;
    let new = events(&mut client, EventsRequest::default()).await;
    let second = upgrade(&mut client).await;
    assert!(second != id);
    let of_second: Vec<_> = rest(&site, new).await;
    assert!(of_second.len() == count && of_second.iter().all(|event| event.actor_id == second));
    assert_eq!((rest(&site, own).await, rest(&site, other).await), (told, Vec::new()));
}

#[tokio::test]
async fn what_is_no_id_is_refused() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    for tail_id in ["x", "x.1", "x.y.1", "x.1.y", "x.1.-1", ".."] {
        let request = EventsRequest { tail_id: tail_id.to_owned(), ..Default::default() };
        let refused = client.events(request).await.unwrap_err();
        assert_eq!(Reason::of(&refused), Some(Reason::Malformed), "{tail_id}");
    }
    // The first event's id is one, too: nothing is missed that comes after it.
    let mut first = client.events(EventsRequest::default()).await.unwrap().into_inner();
    let tail_id = next(&mut first).await.id;
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::Reached);
    upgrade(&mut client).await;
    let mut after = events(&mut client, EventsRequest { tail_id, ..Default::default() }).await;
    assert_eq!(line(&next(&mut after).await), "sequence upgrade 1");
}

#[tokio::test]
async fn who_misses_events_is_told_and_may_come_again() {
    let site = Site::with(Limits::default(), Bound { events: 8, bytes: 1 << 30 }).await;
    let mut client = client(&site).await;
    let mut slow = events(&mut client, EventsRequest::default()).await;
    for _ in 0..100 {
        site.log.push(What::notice("x".repeat(1000)));
    }
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::Reached);
    upgrade(&mut client).await;
    let missed = loop {
        match slow.message().await {
            Ok(event) => drop(event.unwrap()),
            Err(missed) => break missed,
        }
    };
    assert_eq!(Reason::of(&missed), Some(Reason::MissedEvents));
    // A client that goes on from an event that is not kept any more, or not there yet, is refused, too.
    let mut new = client.events(EventsRequest::default()).await.unwrap().into_inner();
    let newest = next(&mut new).await.id;
    let [epoch, seq, _] = newest.split('.').collect::<Vec<_>>()[..] else { panic!("{newest}") };
    let seq: u64 = seq.parse().unwrap();
    for (seq, reason) in [(1, Reason::MissedEvents), (seq + 1, Reason::AheadOfLog), (u64::MAX, Reason::AheadOfLog)] {
        let request = EventsRequest { tail_id: format!("{epoch}.{seq}.0"), ..Default::default() };
        assert_eq!(Reason::of(&client.events(request).await.unwrap_err()), Some(reason), "{seq}");
    }
    let again = rest(&site, events(&mut client, all()).await).await;
    assert_eq!(line(again.last().unwrap()), "machine Running true");
}
