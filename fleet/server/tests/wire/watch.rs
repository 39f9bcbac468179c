//! Events: from a position on, with gaps for a slow reader.

use slipway_node::sequence::Outcome;
use slipway_node_api::{
    reason::Reason,
    v1::{Event, Goal, Position, StatusRequest, Step, UpgradeRequest, WatchRequest, event::What},
};
use slipway_node_server::{events::Bound, limits::Limits};
use tonic::{Code, Streaming};
use uuid::Uuid;

use crate::{recorder::Then, site::Site};

async fn site(events: usize) -> Site {
    Site::with(Limits::default(), Bound { events, bytes: 1 << 30 }).await
}

async fn next(events: &mut Streaming<Event>) -> (u64, What) {
    let event = events.message().await.unwrap().unwrap();
    (event.position.unwrap().seq, event.what.unwrap())
}

#[tokio::test]
async fn a_watch_goes_on_over_another_connection() {
    let site = site(100).await;
    let mut client = site.client(&site.admin()).await;
    let from = client.status(StatusRequest {}).await.unwrap().into_inner().events;
    let mut watch = client.watch(WatchRequest { after: from }).await.unwrap().into_inner();
    for text in ["one", "two", "three"] {
        site.log.push(What::notice(text));
    }
    assert_eq!(next(&mut watch).await, (1, What::notice("one")));
    let second = watch.message().await.unwrap().unwrap();
    drop((watch, client));
    let mut again = site.local().await.watch(WatchRequest { after: second.position }).await.unwrap().into_inner();
    assert_eq!(next(&mut again).await, (3, What::notice("three")));
    site.log.push(What::notice("four"));
    assert_eq!(next(&mut again).await, (4, What::notice("four")));
}

#[tokio::test]
async fn an_operation_is_told_from_its_beginning_to_its_end() {
    let site = site(100).await;
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::CameBack("it is not well".to_owned()));
    let mut client = site.client(&site.admin()).await;
    let id = Uuid::new_v4().to_string();
    let request = UpgradeRequest { id: id.clone(), source: "oci:image".to_owned(), ..Default::default() };
    client.upgrade(request).await.unwrap();
    let mut watch = client.watch(WatchRequest::default()).await.unwrap().into_inner();
    let What::Asked(asked) = next(&mut watch).await.1 else { panic!("it begins with the request") };
    assert_eq!((asked.id.as_str(), asked.goal(), asked.caller.as_str()), (id.as_str(), Goal::Upgrade, "alice"));
    let mut steps = Vec::new();
    let why = loop {
        match next(&mut watch).await.1 {
            What::StepBegun(step) => {
                assert_eq!((step.place, step.places), (steps.len() as u32 + 1, asked.places));
                steps.push(step.step);
            }
            What::StepDone(step) => assert_eq!(Some(&step.step), steps.last()),
            What::StepProgress(step) => assert_eq!((step.step(), step.total), (Step::Stage, 4 << 20)),
            What::TurnedBack(back) => break back.why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((steps.len() as u32, why.as_str()), (asked.places, "it is not well"));
    let What::Ended(ended) = next(&mut watch).await.1 else { panic!("it ends with the outcome") };
    assert_eq!(ended.outcome.unwrap().came_back.as_deref(), Some("it is not well"));
}

#[tokio::test]
async fn who_does_not_read_misses_events_and_hinders_nobody() {
    const EVENTS: u64 = 20_000;
    let site = site(8).await;
    let mut slow = site.client(&site.admin()).await;
    let mut watch = slow.watch(WatchRequest::default()).await.unwrap().into_inner();
    let text = "x".repeat(1000);
    for _ in 0..EVENTS {
        site.log.push(What::notice(text.clone()));
    }
    // Others are answered, and others' events come.
    site.client(&site.admin()).await.status(StatusRequest {}).await.unwrap();
    let after = Some(Position { seq: EVENTS - 1, ..site.log.newest() });
    let mut other = site.local().await.watch(WatchRequest { after }).await.unwrap().into_inner();
    assert_eq!(next(&mut other).await.0, EVENTS);

    let (mut got, mut missing, mut last) = (0, 0, 0);
    while last < EVENTS {
        let (seq, what) = next(&mut watch).await;
        assert!(seq > last, "{seq} after {last}");
        match what {
            What::Gap(gap) => missing += gap.missing.unwrap(),
            _ => got += 1,
        }
        last = seq;
    }
    assert_eq!(got + missing, EVENTS);
    assert!(missing > 0);
}

#[tokio::test]
async fn another_epoch_is_told_and_what_is_not_there_is_refused() {
    let site = site(100).await;
    let mut client = site.local().await;
    site.log.push(What::notice("one"));
    let before = Position { epoch: "before".to_owned(), seq: 50 };
    let mut watch = client.watch(WatchRequest { after: Some(before) }).await.unwrap().into_inner();
    assert!(matches!(next(&mut watch).await, (0, What::Gap(gap)) if gap.missing.is_none()));
    assert_eq!(next(&mut watch).await, (1, What::notice("one")));
    let after = Some(Position { seq: 2, ..site.log.newest() });
    let refused = client.watch(WatchRequest { after }).await.unwrap_err();
    assert_eq!((refused.code(), Reason::of(&refused)), (Code::OutOfRange, Some(Reason::AheadOfLog)));
}

#[tokio::test]
async fn the_end_of_the_service_is_the_end_of_a_watch_after_the_last_event() {
    let site = site(100).await;
    let mut client = site.client(&site.admin()).await;
    let mut watch = client.watch(WatchRequest::default()).await.unwrap().into_inner();
    let id = Uuid::new_v4().to_string();
    client.upgrade(UpgradeRequest { id, source: "oci:image".to_owned(), ..Default::default() }).await.unwrap();
    site.log.push(What::notice("rebooting"));
    site.stop().await;
    assert_eq!(next(&mut watch).await, (1, What::notice("rebooting")));
    assert_eq!(watch.message().await.unwrap(), None);
}
