//! Limits of connections, calls and streams.

use slipway_node_api::{
    reason::Reason,
    v1::{StatusRequest, UpgradeRequest, WatchRequest},
};
use slipway_node_server::{events::Bound, limits::Limits};
use tokio::sync::Semaphore;
use tonic::Code;
use uuid::Uuid;

use crate::site::{Client, Site};

async fn site(limits: Limits) -> Site {
    Site::with(limits, Bound::default()).await
}

/// From now on the node answers no client, until it may.
fn hold(site: &Site) {
    site.node.may_answer.forget_permits(Semaphore::MAX_PERMITS);
}

fn upgrade(bytes: usize) -> UpgradeRequest {
    UpgradeRequest { id: Uuid::new_v4().to_string(), source: "x".repeat(bytes), ..Default::default() }
}

#[tokio::test]
async fn a_request_that_is_too_large_does_not_come_to_the_node() {
    let site = site(Limits::default()).await;
    let mut client = site.client(&site.admin()).await;
    let refused = client.upgrade(upgrade(64 << 10)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let refused = client.upgrade(upgrade(4097)).await.unwrap_err();
    assert_eq!(Reason::of(&refused), Some(Reason::Malformed));
    assert!(refused.message().contains("UpgradeRequest.source has 4097 bytes, and may have 4096"), "{refused:?}");
    assert_eq!(site.node.calls(), [""; 0]);
    client.upgrade(upgrade(4096)).await.unwrap();
}

/// A watch that is refused now, and let in once there is a place.
async fn is_full(client: &mut Client) {
    let refused = client.watch(WatchRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), Reason::of(&refused)), (Code::ResourceExhausted, Some(Reason::TooManyWatches)));
}

async fn has_place(client: &mut Client) {
    // The end of another watch comes to the server when it comes.
    while client.watch(WatchRequest::default()).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_has_so_many_watches_and_calls_besides() {
    let site = site(Limits { streams: 2, ..Limits::default() }).await;
    let mut client = site.client(&site.admin()).await;
    let first = client.watch(WatchRequest::default()).await.unwrap();
    let _second = client.watch(WatchRequest::default()).await.unwrap();
    is_full(&mut client).await;
    client.status(StatusRequest {}).await.unwrap();
    let _other = site.client(&site.admin()).await.watch(WatchRequest::default()).await.unwrap();
    drop(first);
    has_place(&mut client).await;
}

#[tokio::test]
async fn a_node_has_so_many_watches() {
    let site = site(Limits { watches: 1, ..Limits::default() }).await;
    let (mut one, mut other) = (site.client(&site.admin()).await, site.local().await);
    let watch = one.watch(WatchRequest::default()).await.unwrap();
    is_full(&mut other).await;
    drop((watch, one));
    has_place(&mut other).await;
}

#[tokio::test]
async fn a_node_answers_so_many_calls_at_once() {
    let site = site(Limits { calls: 1, ..Limits::default() }).await;
    hold(&site);
    let mut first = site.client(&site.admin()).await;
    let first = tokio::spawn(async move { first.status(StatusRequest {}).await });
    site.node.came.acquire().await.unwrap().forget();
    let refused = site.local().await.status(StatusRequest {}).await.unwrap_err();
    assert_eq!((refused.code(), Reason::of(&refused)), (Code::ResourceExhausted, Some(Reason::TooManyCalls)));
    site.node.may_answer.add_permits(1);
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_is_one_too_many_is_sent_away_and_root_comes_in() {
    let site = site(Limits { connections: 1, ..Limits::default() }).await;
    let mut client = site.client(&site.admin()).await;
    client.status(StatusRequest {}).await.unwrap();
    site.shake(&site.ca, Some(&site.admin())).await.unwrap_err();
    site.local().await.status(StatusRequest {}).await.unwrap();
    client.status(StatusRequest {}).await.unwrap();
    drop(client);
    while site.shake(&site.ca, Some(&site.admin())).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_was_asked_is_done_although_the_caller_went_away() {
    let site = site(Limits { connections: 1, ..Limits::default() }).await;
    hold(&site);
    let mut client = site.client(&site.admin()).await;
    let call = tokio::spawn(async move { client.upgrade(upgrade(10)).await });
    site.node.came.acquire().await.unwrap().forget();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // The service knows it, too, once another one has its place.
    while site.shake(&site.ca, Some(&site.admin())).await.is_err() {
        tokio::task::yield_now().await;
    }
    site.node.may_answer.add_permits(1);
    while site.node.journal.lock().unwrap().operation.is_none() {
        assert!(!site.node.calls().contains(&"abandoned".to_owned()));
        tokio::task::yield_now().await;
    }
}
