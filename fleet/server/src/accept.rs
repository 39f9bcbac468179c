//! Connections, as many as there may be. What is not authenticated ends at the TLS handshake, or at the socket's look at
//! who connects.

use std::{
    fs,
    future::Future,
    io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::{limits::Limits, peer::Peer, tls::Trust};

/// How long nothing is accepted after the system was out of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection of somebody who is known.
#[derive(Debug)]
pub(crate) struct Connection<IO> {
    io: IO,
    peer: Peer,
    /// Its place among the connections, which it leaves with its end.
    _place: Option<OwnedSemaphorePermit>,
}

/// Connections as they come, and the task that accepts them: it ends when nobody takes them any more.
pub(crate) type Connections<IO> = (ReceiverStream<io::Result<Connection<IO>>>, JoinHandle<()>);

/// Who connects by TCP and proves who it is.
pub(crate) fn tls(listener: TcpListener, trust: Trust, limits: Limits) -> Connections<TlsStream<TcpStream>> {
    let (found, connections) = mpsc::channel(1);
    let handshakes = Arc::new(Semaphore::new(limits.handshakes));
    let places = Arc::new(Semaphore::new(limits.connections));
    let task = tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = accept(&handshakes, || listener.accept()) => accepted,
                () = found.closed() => return,
            };
            let (handshake, tcp) = accepted;
            let Ok((tcp, _)) = tcp else {
                sleep(PAUSE).await;
                continue;
            };
            let (trust, places, found) = (trust.clone(), places.clone(), found.clone());
            tokio::spawn(async move {
                let shaken = timeout(limits.handshake, shake(tcp, trust, places, limits.streams)).await;
                drop(handshake);
                if let Ok(Some(connection)) = shaken {
                    // Nobody takes it when the service ends.
                    let _ = found.send(Ok(connection)).await;
                }
            });
        }
    });
    (ReceiverStream::new(connections), task)
}

/// A place, and who takes it. Others wait in the kernel's queue meanwhile.
async fn accept<T, F: Future<Output = io::Result<T>>>(
    places: &Arc<Semaphore>,
    listen: impl FnOnce() -> F,
) -> (Option<OwnedSemaphorePermit>, io::Result<T>) {
    // The semaphores are never closed.
    let place = places.clone().acquire_owned().await.ok();
    (place, listen().await)
}

/// The handshake. `None` if it fails, or if there are too many connections: then there is nobody to tell it to.
async fn shake(
    tcp: TcpStream,
    trust: Trust,
    places: Arc<Semaphore>,
    streams: usize,
) -> Option<Connection<TlsStream<TcpStream>>> {
    tcp.set_nodelay(true).ok()?;
    let at = tcp.local_addr().ok()?.ip();
    let io = TlsAcceptor::from(trust.config()).accept(tcp).await.ok()?;
    let peer = Peer::remote(io.get_ref().1.peer_certificates()?, at, trust, streams)?;
    Some(Connection { io, peer, _place: Some(places.try_acquire_owned().ok()?) })
}

/// The Unix socket at `path`, for root alone. A socket that nobody listens at any more is replaced.
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

/// Who connects at the socket and is root, or is the user that the service itself is.
pub(crate) fn socket(listener: UnixListener, limits: Limits) -> io::Result<Connections<UnixStream>> {
    let (found, connections) = mpsc::channel(1);
    let places = Arc::new(Semaphore::new(limits.connections));
    let own = UnixStream::pair()?.0.peer_cred()?.uid();
    let task = tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = accept(&places, || listener.accept()) => accepted,
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
            let _ = found.send(Ok(Connection { io, peer, _place: place })).await;
        }
    });
    Ok((ReceiverStream::new(connections), task))
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
        // What is no socket is not ours to remove.
        fs::write(dir.path().join("file"), "x").unwrap();
        bind(&dir.path().join("file")).unwrap_err();
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"x");
    }
}
