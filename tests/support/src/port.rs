//! Ports for servers that cannot choose one themselves.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    process,
    sync::{Mutex, PoisonError},
};

/// Below those that Linux gives to a program that asks for any port (`ip_local_port_range` in ip(7)). One of those may have gone to
/// another connection by the time the server starts.
const PORTS: Range<u16> = 20_000..32_768;

/// A TCP port without a listener at any address, and that no other caller gets while this process runs.
///
/// # Panics
/// If there is none left.
pub fn free_port() -> u16 {
    /// Names that are held, one for each port. Like ports they belong to a network namespace, and end with the process.
    static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    // Programs that run beside each other begin far apart.
    let first = process::id() as usize * 61;
    let is_mine = |port: &u16| {
        let name = SocketAddr::from_abstract_name(format!("slipway-test-port-{port}")).unwrap();
        let Ok(name) = UnixListener::bind_addr(&name) else { return false };
        let is_free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
        held.push(name);
        is_free
    };
    let found = PORTS.cycle().skip(first % PORTS.len()).take(PORTS.len()).find(is_mine);
    found.expect("there is a free port")
}
