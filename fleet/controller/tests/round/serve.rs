//! Strangers at the controller's HTTP port.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::Arc,
    time::Duration,
};

use slipway_fleet::serve::{ControllerHealth, PLACES, serve};
use slipway_program::listen::listen;
use tokio::runtime::{Builder, Runtime};

/// Longer than anything here takes if it is right.
const LATE: Duration = Duration::from_secs(30);

/// The port, served for as long as the runtime is there.
fn port() -> (Runtime, SocketAddr) {
    port_at("127.0.0.1:0")
}

fn port_at(address: &str) -> (Runtime, SocketAddr) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(listen(address.parse().unwrap())).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(serve(listener, Arc::new(ControllerHealth::new(Arc::default(), Arc::default()))));
    (runtime, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LATE)).unwrap();
    stream
}

/// The bytes until the end; an error if there is none.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("this connection does not end: {e}"),
    }
    String::from_utf8(bytes).unwrap()
}

fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    rest(&mut stream)
}

/// A kubelet asks a pod at its first address, and a cluster may have IPv6 alone.
#[test]
fn without_a_wish_each_address_of_a_pod_is_answered_at() {
    let help = Command::new(env!("CARGO_BIN_EXE_slipway-fleet")).arg("--help").output().unwrap().stdout;
    assert!(String::from_utf8(help).unwrap().contains("[default: [::]:9464]"));
    let (_runtime, address) = port_at("[::]:0");
    let hosts: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    // This machine may have no IPv6.
    for host in hosts.into_iter().filter(|host| TcpListener::bind((*host, 0)).is_ok()) {
        assert!(ask((host, address.port()).into(), "/healthz").starts_with("HTTP/1.1 200 OK\r\n"), "{host}");
    }
}

#[test]
fn idle_connections_are_ended_and_keep_nobody_from_asking() {
    let (_runtime, address) = port();
    let mut idle: Vec<TcpStream> = (0..3 * PLACES).map(|_| connect(address)).collect();
    // Some begin, and never come to an end.
    idle.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"GET /metrics HT").unwrap());
    assert!(ask(address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(ask(address, "/metrics").ends_with("# EOF\n"));
    // Those that had to make room, and those whose time is over.
    idle.iter_mut().for_each(|stream| assert!(!rest(stream).starts_with("HTTP/1.1 200")));
}

#[test]
fn a_connection_is_for_one_request_with_a_short_head() {
    let (_runtime, address) = port();
    assert_eq!(ask(address, "/healthz").matches("HTTP/1.1").count(), 1);
    let mut stream = connect(address);
    // It may be ended before all of it is written.
    let head = format!("GET /healthz HTTP/1.1\r\nHost: here\r\nMore: {}\r\n\r\n", "x".repeat(1 << 20));
    let _ = stream.write_all(head.as_bytes());
    let said = rest(&mut stream);
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 431"), "{said}");
}
