//! Three real members of etcd on the loopback interface.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use slipway_node_api::machine::EtcdMember;
use slipway_test_support::port::free_port;
use slipwayd::machine::etcd::{Config, Etcd};
use tempfile::TempDir;

/// The program; `SLIPWAY_ETCD` names another one.
pub fn program() -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/parts/etcd");
    std::env::var_os("SLIPWAY_ETCD").map_or(made, PathBuf::from)
}

/// The next minor version; `SLIPWAY_ETCD_NEWER` names another one.
pub fn newer() -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/parts/etcd-newer");
    std::env::var_os("SLIPWAY_ETCD_NEWER").map_or(made, PathBuf::from)
}

/// The version that a program says it is.
pub fn version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    said.lines().find_map(|line| line.strip_prefix("etcd Version: ")).unwrap().to_owned()
}

/// As etcd names a version of a cluster: 3.5.0 of 3.5.16.
fn minor(version: &str) -> String {
    format!("{}.0", version.parse::<slipway_core::payload::minor_version::MinorVersion>().unwrap())
}

/// Whether there is an etcd. A test that goes on without one says so.
pub fn is_here() -> bool {
    let here = program().exists();
    if !here {
        slipway_test_support::not_run("no etcd; `fleet/hack/parts etcd` fetches it");
    }
    here
}

/// A cluster whose members end with it.
pub struct Cluster {
    dir: TempDir,
    /// The program that starts members.
    program: PathBuf,
    clients: Vec<String>,
    peers: Vec<String>,
    running: RefCell<Vec<Option<Child>>>,
}

/// The name of member `n`.
pub fn name(n: usize) -> String {
    format!("m{n}")
}

impl Cluster {
    /// Three members that have a leader.
    pub fn start() -> Self {
        Self::of_members(3)
    }

    /// So many members that have a leader.
    pub fn of_members(members: usize) -> Self {
        Self::with(&program(), members)
    }

    /// So many members of this program that have a leader.
    pub fn with(program: &Path, members: usize) -> Self {
        let urls: Vec<_> = (0..2 * (members + 1)).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
        let (clients, peers) = urls.split_at(members + 1);
        let mut cluster = Self {
            dir: TempDir::new().unwrap(),
            program: program.to_owned(),
            clients: clients.to_vec(),
            peers: peers.to_vec(),
            running: RefCell::new((0..=members).map(|_| None).collect()),
        };
        let all: Vec<_> = (0..members).map(|n| format!("{}={}", name(n), cluster.peers[n])).collect();
        for n in 0..members {
            cluster.run(n, &all.join(","), "new");
        }
        for n in 0..members {
            cluster.until(|| cluster.node(n).is_well(false));
        }
        cluster
    }

    /// Start member `n` as a part of `all`.
    pub fn run(&mut self, n: usize, all: &str, state: &str) {
        let at = self.clients[n].clone();
        self.run_as(n, (&name(n), &at), (all, state));
    }

    /// The same; it says that this is its name, and that clients reach it there.
    fn run_as(&mut self, n: usize, (name, at): (&str, &str), (all, state): (&str, &str)) {
        let log = File::options().create(true).append(true).open(self.dir.path().join(format!("{n}.log"))).unwrap();
        let child = Command::new(&self.program)
            .args(["--name", name, "--data-dir"])
            .arg(self.data(n))
            .args(["--listen-client-urls", &self.clients[n], "--advertise-client-urls", at])
            .args(["--listen-peer-urls", &self.peers[n], "--initial-advertise-peer-urls", &self.peers[n]])
            .args(["--initial-cluster", all, "--initial-cluster-state", state])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running.borrow_mut()[n] = Some(child);
    }

    /// Where member `n` keeps its data.
    pub fn data(&self, n: usize) -> PathBuf {
        self.dir.path().join(name(n))
    }

    /// A directory of this cluster.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// The configuration of the node with member `n`.
    pub fn config(&self, n: usize) -> Config {
        Config {
            name: name(n),
            endpoints: self.clients.clone(),
            peer_urls: vec![self.peers[n].clone()],
            join: None,
            ca: None,
            cert: None,
            key: None,
            quota_bytes: None,
            snapshot: None,
            in_payload: true,
        }
    }

    /// The node with member `n`.
    pub fn node(&self, n: usize) -> Etcd {
        Etcd::new(self.config(n)).unwrap()
    }

    /// Send a signal to member `n`.
    pub fn signal(&self, n: usize, signal: &str) {
        let pid = self.running.borrow()[n].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// End member `n` without a word.
    pub fn kill(&mut self, n: usize) {
        let mut child = self.running.borrow_mut()[n].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Start member `n` again, with the data it has, and this program. Whether it is still there when it has a leader.
    pub fn replace(&mut self, n: usize, program: &Path) -> bool {
        self.kill(n);
        let before = std::mem::replace(&mut self.program, program.to_owned());
        self.again(n);
        self.program = before;
        let node = self.node(n);
        loop {
            if self.running.borrow_mut()[n].as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if node.is_well(false).is_ok() {
                return true;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Wait until the leader has raised the cluster to the minor version of this one.
    pub fn until_cluster_has(&self, version: &str) {
        let wanted = format!("\"etcdcluster\":\"{}\"", minor(version));
        self.until(|| {
            let mut stream =
                TcpStream::connect(self.clients[0].trim_start_matches("http://")).map_err(|e| e.to_string())?;
            stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").map_err(|e| e.to_string())?;
            let mut said = String::new();
            stream.read_to_string(&mut said).map_err(|e| e.to_string())?;
            if said.contains(&wanted) { Ok(()) } else { Err(said) }
        });
    }

    /// Have the members lower the cluster's version, as `etcdctl downgrade enable` does. Whether they say that they do.
    pub fn downgrade(&self, to: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = etcd_client::Client::connect(&self.clients[..1], None).await.unwrap();
            client.maintenance_client().downgrade(etcd_client::DowngradeOptions::Enable(minor(to))).await.is_ok()
        })
    }

    /// Start member `n` again, with the data it has.
    pub fn again(&mut self, n: usize) {
        self.run(n, "", "existing");
    }

    /// Start member `n` anew, under this name, and with the client URLs of the members `at`; until all have heard of it.
    pub fn again_as(&mut self, n: usize, name: &str, at: &[usize]) {
        self.kill(n);
        let urls: Vec<String> = at.iter().map(|at| self.clients[*at].clone()).collect();
        self.run_as(n, (name, &urls.join(",")), ("", "existing"));
        let node = self.node((n + 1) % 3);
        self.until(|| {
            let is_it = |of: &EtcdMember| of.hostname == name && urls.iter().all(|url| of.client_urls.contains(url));
            let peer = |of: &EtcdMember| of.peer_urls.contains(&self.peers[n]);
            if node.list()?.iter().any(|of| peer(of) && is_it(of)) { Ok(()) } else { Err(String::new()) }
        });
    }

    /// Ask until the answer is `Ok`. The test runner ends what never comes.
    pub fn until<T>(&self, mut ask: impl FnMut() -> Result<T, String>) -> T {
        loop {
            match ask() {
                Ok(answer) => return answer,
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
            for (n, member) in self.running.borrow_mut().iter_mut().enumerate() {
                let ended = member.as_mut().is_some_and(|member| member.try_wait().unwrap().is_some());
                let log = || fs::read_to_string(self.dir.path().join(format!("{n}.log"))).unwrap();
                assert!(!ended, "member {n} has ended: {}", log());
            }
        }
    }

    /// Raise the alarm that a full database raises.
    pub fn raise_nospace(&self, n: usize) {
        let id = self.node(n).member().unwrap().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = etcd_client::Client::connect(&self.clients[..1], None).await.unwrap();
            let mut options = etcd_client::AlarmOptions::new();
            options.with_member(id);
            client
                .alarm(etcd_client::AlarmAction::Activate, etcd_client::AlarmType::Nospace, Some(options))
                .await
                .unwrap();
        });
    }

    /// Which member leads.
    pub fn leader(&self) -> usize {
        let count = self.running.borrow().iter().filter(|child| child.is_some()).count();
        self.until(|| (0..count).find(|n| self.node(*n).leads() == Ok(true)).ok_or_else(String::new))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.running.borrow_mut().iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
