//! Runs the server: listeners, limits, graceful shutdown.

use std::{
    future::{self, Future},
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
    time::sleep,
};
use tonic::transport::Server;

use crate::{accept, events::EventLog, facade::Services, limits::Limits, node::Node, service::Service, tls::Trust};

/// To notice a dead connection: a ping after this time of silence.
const PING: Duration = Duration::from_secs(30);
/// The longest time for the answer to a ping.
const PONG: Duration = Duration::from_secs(10);
/// HTTP/2's own bound on streams, above what a connection may have of watches.
const SPARE_STREAMS: usize = 16;
/// Between two looks at when certificates expire.
const EXPIRY: Duration = Duration::from_secs(3600);
/// All headers of a call, in bytes.
const HEADERS: u32 = 16 << 10;

/// Where callers come in.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For the network, with certificates.
    pub tcp: Option<(TcpListener, Trust)>,
    /// For root; made by [`accept::bind`].
    pub socket: Option<UnixListener>,
}

/// Answer calls for `node` until `stop`. Watches get what `log` has by then, and their end.
pub async fn serve<N: Node>(
    node: Arc<N>,
    log: EventLog,
    listeners: Listeners,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let trust = listeners.tcp.as_ref().map(|(_, trust)| trust.clone());
    let service = Services::new(Service::new(node, log.clone(), trust.clone(), limits), limits);
    let stopping = watch::Sender::new(false);
    let stopped = || {
        let mut stopping = stopping.subscribe();
        async move {
            // Without its sender no shutdown will come.
            let _ = stopping.wait_for(|stops| *stops).await;
        }
    };
    let socket = listeners.socket.map(|listener| accept::socket(listener, limits)).transpose()?;
    let tcp = listeners.tcp.map(|(listener, trust)| accept::tls(listener, trust, limits));
    let (tcp, by_tcp_task) = tcp.unzip();
    let (socket, by_socket_task) = socket.unzip();
    let (by_tcp, by_socket) = (service.clone(), service);
    let tcp = async {
        match tcp {
            Some(tcp) => server(limits).serve_with_incoming_shutdown(by_tcp, tcp, stopped()).await,
            None => Ok(()),
        }
    };
    let socket = async {
        match socket {
            Some(socket) => server(limits).serve_with_incoming_shutdown(by_socket, socket, stopped()).await,
            None => Ok(()),
        }
    };
    let end = async {
        stop.await;
        log.close();
        stopping.send_replace(true);
        sleep(limits.grace).await;
    };
    let ended = tokio::select! {
        () = tell_expiry(trust) => Ok(()),
        ended = async { tokio::try_join!(tcp, socket) } => ended.map(|_| ()).map_err(io::Error::other),
        // A client that has not taken its answer until now does not get it.
        () = end => Ok(()),
    };
    // The listeners are closed when this returns: another service may open them.
    for task in [by_tcp_task, by_socket_task].into_iter().flatten() {
        task.await.map_err(io::Error::other)?;
    }
    ended
}

/// Tell now and then which certificates are about to expire. It has no end.
async fn tell_expiry(trust: Option<Trust>) {
    let Some(trust) = trust else { return future::pending().await };
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        trust.tell_expiry(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        sleep(EXPIRY).await;
    }
}

fn server(limits: Limits) -> Server {
    let streams = u32::try_from(limits.streams + SPARE_STREAMS).unwrap_or(u32::MAX);
    Server::builder()
        .max_concurrent_streams(streams)
        .max_connection_age(limits.age)
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PONG))
        .http2_max_header_list_size(HEADERS)
}
