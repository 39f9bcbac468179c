//! Connections, as many as there may be. A client without a trusted certificate ends at the TLS handshake, and one that is
//! not root at the check of the socket.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream, unix::SocketAddr},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::{
    handshakes::{Handshakes, Turn},
    limits::Limits,
    peer::Peer,
    places::{Place, Places},
    tls::Trust,
};

/// Time without a new connection after the system was out of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection of a known client.
#[derive(Debug)]
pub(crate) struct Connection<IO> {
    io: IO,
    peer: Peer,
    /// It is free with the end of the connection.
    _place: ConnectionPlace,
}

/// A place among the connections.
#[derive(Debug)]
enum ConnectionPlace {
    /// Of those from the network, with shares.
    Network { _place: Place },
    /// Of those at the socket, which are all of root.
    Socket { _place: Option<OwnedSemaphorePermit> },
}

/// Connections as they come, and the task that accepts them: it ends when its receiver is gone.
pub(crate) type Connections<IO> = (ReceiverStream<io::Result<Connection<IO>>>, JoinHandle<()>);

/// Who connects by TCP and proves who it is. Every client is accepted at once: who says nothing waits for its own handshake
/// only, and leaves no client in the kernel's queue.
pub(crate) fn tls(listener: TcpListener, trust: Trust, limits: Limits) -> Connections<TlsStream<TcpStream>> {
    let (found, connections) = mpsc::channel(1);
    let handshakes = Handshakes::new(limits.handshakes);
    let places = Places::new(limits.connections);
    let task = tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = found.closed() => return,
            };
            let Ok((tcp, from)) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            let (trust, places, found) = (trust.clone(), places.clone(), found.clone());
            handshakes.begin(from.ip(), |turn| async move {
                let ended = timeout(limits.handshake, handshake(tcp, &turn, trust, &places, limits.streams)).await;
                drop(turn);
                if let Ok(Some(connection)) = ended {
                    // The receiver is gone when the service ends.
                    let _ = found.send(Ok(connection)).await;
                }
            });
        }
    });
    (ReceiverStream::new(connections), task)
}

/// The handshake. `None` if it fails, or if there is no place for this client: TLS has no way to tell it why.
async fn handshake(
    tcp: TcpStream,
    turn: &Turn,
    trust: Trust,
    places: &Places,
    streams: usize,
) -> Option<Connection<TlsStream<TcpStream>>> {
    tcp.set_nodelay(true).ok()?;
    let at = tcp.local_addr().ok()?.ip();
    tcp.readable().await.ok()?;
    turn.has_spoken();
    let io = TlsAcceptor::from(trust.config()).accept(tcp).await.ok()?;
    let peer = Peer::remote(io.get_ref().1.peer_certificates()?, at, trust, streams)?;
    let place = places.take(peer.name(), peer.role()).ok()?;
    Some(Connection { io, peer, _place: ConnectionPlace::Network { _place: place } })
}

/// The Unix socket at `path`, for root alone. A socket without a listener is replaced.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        match std::os::unix::net::UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another service listens at this socket")),
        }
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A client at the socket that is root, or the user of the service itself.
pub(crate) fn socket(listener: UnixListener, limits: Limits) -> io::Result<Connections<UnixStream>> {
    let (found, connections) = mpsc::channel(1);
    let places = Arc::new(Semaphore::new(limits.connections));
    let own = UnixStream::pair()?.0.peer_cred()?.uid();
    let task = tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = place_and_client(&places, &listener) => accepted,
                () = found.closed() => return,
            };
            let (place, io) = accepted;
            let Ok((io, _)) = io else {
                sleep(PAUSE).await;
                continue;
            };
            let Some(uid) = io.peer_cred().ok().map(|of| of.uid()).filter(|uid| may_connect(*uid, own)) else {
                continue;
            };
            let peer = Peer::local(uid, limits.streams);
            let _ = found.send(Ok(Connection { io, peer, _place: ConnectionPlace::Socket { _place: place } })).await;
        }
    });
    Ok((ReceiverStream::new(connections), task))
}

/// A place, and the client that takes it. Others wait in the kernel's queue meanwhile.
async fn place_and_client(
    places: &Arc<Semaphore>,
    listener: &UnixListener,
) -> (Option<OwnedSemaphorePermit>, io::Result<(UnixStream, SocketAddr)>) {
    // The semaphore is never closed.
    let place = places.clone().acquire_owned().await.ok();
    (place, listener.accept().await)
}

fn may_connect(uid: u32, own: u32) -> bool {
    uid == 0 || uid == own
}

impl<IO> Connected for Connection<IO> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Connection<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Connection<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_for_root_and_for_the_service_itself() {
        assert!(may_connect(0, 0) && may_connect(0, 1000) && may_connect(1000, 1000));
        assert!(!may_connect(1000, 0) && !may_connect(1001, 1000));
    }

    #[tokio::test]
    async fn a_socket_that_is_left_over_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.sock");
        let listener = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        bind(&path).unwrap();
        // A file that is no socket is not ours to remove.
        fs::write(dir.path().join("file"), "x").unwrap();
        bind(&dir.path().join("file")).unwrap_err();
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"x");
    }
}
