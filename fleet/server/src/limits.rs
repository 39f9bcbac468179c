//! Limits of connections, calls and streams.

use std::time::Duration;

/// Limits of connections, calls and streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A request, in bytes.
    pub message: usize,
    /// Connections from the network, and as many at the socket. One identity has at most a quarter of those from the
    /// network, and all readers together half. The next one is sent away after its handshake.
    pub connections: usize,
    /// TLS handshakes under way. The next one ends another, of the network with most of them.
    pub handshakes: usize,
    /// The longest time for a handshake.
    pub handshake: Duration,
    /// The life of a connection. Calls and watches that it has then go on to their end.
    pub age: Duration,
    /// Calls that are being answered, of all connections. Shared out like connections.
    pub calls: usize,
    /// Watches and logs that are read, of all connections. Shared out like connections.
    pub watches: usize,
    /// Watches of one connection.
    pub streams: usize,
    /// The longest time that the end waits for calls that are being answered.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 64 << 10,
            connections: 64,
            handshakes: 256,
            handshake: Duration::from_secs(10),
            age: Duration::from_secs(3600),
            calls: 32,
            watches: 64,
            streams: 8,
            grace: Duration::from_secs(5),
        }
    }
}
