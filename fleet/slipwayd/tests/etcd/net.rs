//! A network of its own for three members: each behind a cable that can be pulled. All of it ends with its processes.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use nix::sched::{CloneFlags, setns, unshare};
use slipwayd::machine::etcd::{Config, Etcd};
use tempfile::TempDir;

use crate::cluster::{name, program};

const MEMBERS: usize = 3;

/// Whether networks can be made here. A test that goes on without them says so.
pub fn can_be_made() -> bool {
    let tried = Command::new("unshare")
        .args(["-n", "ip", "link", "add", "cable", "type", "veth", "peer", "name", "eth"])
        .status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        slipway_test_support::not_run("no networks of our own; run this as root, with iproute2");
    }
    can
}

/// Three members, each in a network namespace with one cable to the same switch.
pub struct Network {
    dir: TempDir,
    members: Vec<Child>,
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().unwrap();
    assert!(status.success(), "ip {args}");
}

fn url(n: usize, port: u16) -> String {
    format!("http://10.77.0.{}:{port}", n + 1)
}

impl Network {
    /// Started from a thread that has nothing else to do: it is in the switch's namespace from now on.
    pub fn start() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        ip("link add switch type bridge");
        ip("link set switch up");
        let mut network = Self { dir: TempDir::new().unwrap(), members: vec![] };
        for n in 0..MEMBERS {
            network.plug_in(n);
        }
        for n in 0..MEMBERS {
            while network.at(n, |etcd| etcd.is_well(false)).is_err() {
                thread::sleep(std::time::Duration::from_millis(100));
            }
        }
        network
    }

    fn plug_in(&mut self, n: usize) {
        let all: Vec<_> = (0..MEMBERS).map(|n| format!("{}={}", name(n), url(n, 2380))).collect();
        let log = File::create(self.dir.path().join(format!("{n}.log"))).unwrap();
        // It waits until its cable is there.
        let script = "read -r go; ip link set lo up; ip addr add \"$0/24\" dev eth; ip link set eth up; exec \"$@\"";
        let mut child = Command::new("unshare")
            .args(["-n", "sh", "-c", script, &format!("10.77.0.{}", n + 1)])
            .arg(program())
            .args(["--name", &name(n), "--data-dir"])
            .arg(self.dir.path().join(name(n)))
            .args(["--listen-client-urls", &url(n, 2379), "--advertise-client-urls", &url(n, 2379)])
            .args(["--listen-peer-urls", &url(n, 2380), "--initial-advertise-peer-urls", &url(n, 2380)])
            .args(["--initial-cluster", &all.join(",")])
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        // Until it is in a namespace that is not ours.
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        let pid = child.id().to_string();
        while namespace(&pid) == namespace("thread-self") {
            thread::yield_now();
        }
        ip(&format!("link add cable{n} type veth peer name eth netns {pid}"));
        ip(&format!("link set cable{n} master switch up"));
        writeln!(child.stdin.take().unwrap(), "go").unwrap();
        self.members.push(child);
    }

    /// Pull the cable of member `n`, or plug it in again.
    pub fn cable(&self, n: usize, is_in: bool) {
        ip(&format!("link set cable{n} {}", if is_in { "up" } else { "down" }));
    }

    /// Ask as the node with member `n` does, from its place in the network.
    pub fn at<T: Send>(&self, n: usize, ask: impl FnOnce(&Etcd) -> T + Send) -> T {
        let config = Config {
            name: name(n),
            endpoints: (0..MEMBERS).map(|other| url((n + other) % MEMBERS, 2379)).collect(),
            peer_urls: vec![url(n, 2380)],
            join: None,
            ca: None,
            cert: None,
            key: None,
            quota_bytes: None,
            snapshot: None,
            in_payload: true,
        };
        let namespace = File::open(Path::new("/proc").join(self.members[n].id().to_string()).join("ns/net")).unwrap();
        thread::scope(|scope| {
            let asking = scope.spawn(move || {
                setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
                ask(&Etcd::new(config).unwrap())
            });
            asking.join().unwrap()
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for child in &mut self.members {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
