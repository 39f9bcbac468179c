//! The CRI: containerd's socket, as the kubelet uses it.

use std::{error::Error, io, iter, path::Path, time::Duration};

use tokio::{net::UnixStream, runtime::Builder, time::timeout};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

pub(super) mod api {
    tonic::include_proto!("runtime.v1");
}

/// The longest time for a short answer of containerd.
pub(super) const ANSWER: Duration = Duration::from_secs(15);

pub(super) type Result<T> = std::result::Result<T, String>;

/// Whether something listens behind a socket. This never waits: a containerd that hangs takes no more connections at some time,
/// and that is an error of the kind `WouldBlock`.
pub(super) fn listens(socket: &Path) -> io::Result<()> {
    Builder::new_current_thread().enable_io().build()?.block_on(UnixStream::connect(socket)).map(drop)
}

/// A connection to containerd.
pub(super) async fn connect(socket: &Path) -> Result<Channel> {
    let endpoint =
        Endpoint::try_from(format!("unix://{}", socket.display())).map_err(|e| format!("{}: {e}", socket.display()))?;
    within(ANSWER, async { endpoint.connect().await.map_err(|e| Status::unavailable(chain(&e))) }).await
}

/// Its answer, within this time.
pub(super) async fn within<T>(time: Duration, what: impl Future<Output = std::result::Result<T, Status>>) -> Result<T> {
    match timeout(time, what).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(status)) => Err(format!("containerd: {}", status.message())),
        Err(_) => Err(silent(time)),
    }
}

/// What is said when none came within this time.
pub(super) fn silent(time: Duration) -> String {
    format!("containerd does not answer within {} s", time.as_secs())
}

/// The error, and what it comes from.
fn chain(error: &(dyn Error + 'static)) -> String {
    iter::successors(Some(error), |error| (*error).source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
