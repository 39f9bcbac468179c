//! Between a client and Debian's docker-registry: counts connections, and holds what it is told to hold.

use std::{
    io::{Read as _, Write as _, copy},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{sleep, spawn},
    time::Duration,
};

/// Longer than any look of the tests.
const LONG: Duration = Duration::from_secs(30);

/// One that listens. It is there until the test ends.
pub struct Proxy {
    pub port: u16,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    pub fn to(port: u16) -> Self {
        Self::that_holds(port, "nothing")
    }

    /// A request with this text goes no further.
    pub fn that_holds(registry: u16, text: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<AtomicUsize>::default();
        let (counted, text) = (Arc::clone(&connections), text.to_owned());
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(("127.0.0.1", registry)).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let text = text.clone();
                spawn(move || forth(client, server, &text));
                spawn(move || end(copy(&mut &back.0, &mut &back.1), &back.1));
            }
        });
        Self { port, connections }
    }

    /// So many there were.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A request of these tests comes in one piece.
fn forth(mut client: TcpStream, mut server: TcpStream, held: &str) {
    let mut bytes = [0; 16 << 10];
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        if String::from_utf8_lossy(&bytes[..read]).contains(held) {
            sleep(LONG);
        }
        if server.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

fn end(_: std::io::Result<u64>, to: &TcpStream) {
    let _ = to.shutdown(Shutdown::Both);
}
