//! The address at which a service listens.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::net::TcpListener;

/// A listener at this address. `[::]` stands for the addresses of IPv6 and of IPv4. A kernel without IPv6 has no such address:
/// there it is those of IPv4.
pub async fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(at).await {
        Err(e) if at.ip() == Ipv6Addr::UNSPECIFIED && e.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port())).await
        }
        bound => bound,
    }
}
