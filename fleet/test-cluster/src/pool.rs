//! Servers that one test after another uses: to start one costs more than most tests that need one.
//!
//! The next test finds the server as it was when [`Lent::keep`] was called, or it gets a server of its own. There is no
//! controller that would delete the content of a namespace, so objects are taken out of etcd; the API server follows it.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::Server;

static POOL: Mutex<Vec<Server>> = Mutex::new(Vec::new());

/// Objects that tests make and the next one does not find: Nodes, events, and the fleet's own. The API server may remember
/// changes of anything else in ways of its own: rights, kinds, namespaces. A test that makes such a change keeps the server.
const OBJECTS: [&str; 3] = ["/registry/minions/", "/registry/events/", "/registry/fleet.slipway.dev/"];
/// All that the API server keeps.
const ALL: &str = "/registry/";
/// Time without a change before it counts as settled. A killed program may have asked for something just before.
const SETTLES: Duration = Duration::from_millis(300);

/// All keys with the revisions in which they were written last, as etcd writes them in JSON. The same revision is the same
/// value.
pub(crate) type Content = BTreeMap<String, String>;

/// A server that goes to the next test.
pub struct Lent(Option<Server>);

impl Lent {
    /// One that an earlier test of this program has left, or a new one. Whether it is new.
    pub fn new() -> (Self, bool) {
        let left = POOL.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let is_new = left.is_none();
        (Self(Some(left.unwrap_or_else(Server::start))), is_new)
    }

    /// The next test finds the present objects as well.
    pub fn keep(&mut self) {
        let mut now = content(&self.etcd);
        loop {
            thread::sleep(SETTLES);
            let before = std::mem::replace(&mut now, content(&self.etcd));
            if before == now {
                break;
            }
        }
        self.pristine = Some(now);
    }
}

impl Deref for Lent {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Server {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Lent {
    /// After a panic it is unknown what still runs.
    fn drop(&mut self) {
        let server = self.0.take().unwrap();
        let Some(pristine) = server.pristine.as_ref().filter(|_| !thread::panicking()) else { return };
        match reset(&server.etcd, pristine) {
            Ok(()) => POOL.lock().unwrap_or_else(PoisonError::into_inner).push(server),
            Err(key) => {
                // Not `eprintln!`: it would not show, for the test has passed.
                let why = format!("no other test gets this API server: {key} was written\n");
                io::stderr().write_all(why.as_bytes()).unwrap();
            }
        }
    }
}

/// Deletes the objects of tests. `Err` has a key of the rest that was made, written or deleted.
fn reset(etcd: &str, pristine: &Content) -> Result<(), String> {
    for kind in OBJECTS {
        ask(etcd, "deleterange", kind, json!({}));
    }
    thread::sleep(SETTLES);
    let now = content(etcd);
    let differs = |(key, of): &(&String, &String)| pristine.get(*key) != Some(of) || now.get(*key) != Some(of);
    match now.iter().chain(pristine).find(differs) {
        Some((key, _)) => Err(String::from_utf8(BASE64_STANDARD.decode(key).unwrap()).unwrap()),
        None => Ok(()),
    }
}

fn content(etcd: &str) -> Content {
    let answer = ask(etcd, "range", ALL, json!({ "keys_only": true }));
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    answer["kvs"].as_array().unwrap().iter().map(|of| (text(&of["key"]), text(&of["mod_revision"]))).collect()
}

/// One call of etcd, about all keys that begin like this.
fn ask(etcd: &str, call: &str, prefix: &str, mut request: Value) -> Value {
    let end = prefix.strip_suffix('/').unwrap().to_owned() + "0"; // the character after the slash
    request["key"] = BASE64_STANDARD.encode(prefix).into();
    request["range_end"] = BASE64_STANDARD.encode(end).into();
    let body = request.to_string();
    let mut stream = TcpStream::connect(etcd.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "POST /v3/kv/{call} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.lines().next().unwrap().contains(" 200 "), "{answer}");
    serde_json::from_str(body).unwrap()
}
