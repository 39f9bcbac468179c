//! Clients that take all there is: others get in all the same.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use slipway_node_api::v1::StatusRequest;
use slipway_node_server::{events::Bound, limits::Limits};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
};

use crate::site::Site;

/// A socket from this address. It sends `bytes`, and nothing else.
async fn socket(at: SocketAddr, from: &str, bytes: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut tcp = socket.connect(at).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    tcp
}

async fn idle(site: &Site, from: &str, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(socket(site.address, from, bytes).await);
    }
    all
}

/// No handshake ends by its time here: a client gets in because others make room.
fn patient() -> Limits {
    Limits { handshake: Duration::from_secs(3600), ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sockets_keep_nobody_out() {
    for count in [64, 1000] {
        let site = Site::with(patient(), Bound::default()).await;
        let _idle = idle(&site, "127.0.0.1", count, b"").await;
        let began = Instant::now();
        site.client(&site.admin()).await.status(StatusRequest {}).await.unwrap();
        eprintln!("{count} idle sockets: a client has its answer after {} ms", began.elapsed().as_millis());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_of_another_network_that_say_half_a_word_keep_nobody_out() {
    let limits = Limits { handshakes: 8, ..patient() };
    let site = Site::with(limits, Bound::default()).await;
    // The first byte of a handshake, so that they count as clients that speak.
    let _idle = idle(&site, "127.0.0.2", 100, b"\x16").await;
    for _ in 0..10 {
        site.client(&site.admin()).await.status(StatusRequest {}).await.unwrap();
    }
}

/// A client says its first word when others have taken all places after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_that_goes_on_keeps_nobody_out() {
    for word in [&b""[..], b"\x16"] {
        let limits = Limits { handshakes: 8, ..patient() };
        let site = Site::with(limits, Bound::default()).await;
        let mut flood = idle(&site, "127.0.0.2", 100, word).await;
        for _ in 0..10 {
            let tcp = TcpStream::connect(site.address).await.unwrap();
            flood.extend(idle(&site, "127.0.0.2", 20, word).await);
            site.tls_over(tcp, &site.ca, Some(&site.admin())).await.unwrap().read_u8().await.unwrap();
        }
        // The same while it comes beside the whole handshake and a call.
        let at = site.address;
        let flood = tokio::spawn(async move {
            for next in (0..flood.len()).cycle() {
                flood[next] = socket(at, "127.0.0.2", word).await;
            }
        });
        for _ in 0..20 {
            site.client(&site.admin()).await.status(StatusRequest {}).await.unwrap();
        }
        assert!(!flood.is_finished(), "it goes on to the end");
        flood.abort();
    }
}

#[tokio::test]
async fn readers_that_take_all_connections_leave_half() {
    let site = Site::new().await;
    let mut readers = Vec::new();
    for serial in 0..8 {
        let reader = site.ca.client(&format!("reader-{serial}"), Some("slipway:reader"), 20 + serial);
        for _ in 0..8 {
            readers.extend(site.shake(&site.ca, Some(&reader)).await.ok());
        }
    }
    assert_eq!(readers.len(), 32);
    for name in ["controller", "alice"] {
        let admin = site.ca.client(name, Some("slipway:admin"), 40);
        site.client(&admin).await.status(StatusRequest {}).await.unwrap();
    }
    let mut own = Vec::new();
    let carol = site.ca.client("carol", Some("slipway:admin"), 41);
    for _ in 0..20 {
        own.extend(site.shake(&site.ca, Some(&carol)).await.ok());
    }
    assert_eq!(own.len(), 16, "one identity has a quarter");
}

#[tokio::test]
async fn readers_that_wait_for_their_answers_leave_half_of_the_calls() {
    let limits = Limits { calls: 8, ..Limits::default() };
    let site = Site::with(limits, Bound::default()).await;
    site.node.may_answer.forget_permits(Semaphore::MAX_PERMITS);
    for serial in 0..4 {
        let reader = site.ca.client(&format!("reader-{serial}"), Some("slipway:reader"), 20 + serial);
        let client = site.client(&reader).await;
        for _ in 0..2 {
            let mut client = client.clone();
            tokio::spawn(async move { client.status(StatusRequest {}).await });
        }
    }
    // Four of the eight came to the node.
    site.node.came.acquire_many(4).await.unwrap().forget();
    let mut admin = site.client(&site.admin()).await;
    let answer = tokio::spawn(async move { admin.status(StatusRequest {}).await });
    site.node.came.acquire().await.unwrap().forget();
    site.node.may_answer.add_permits(5);
    answer.await.unwrap().unwrap();
}
