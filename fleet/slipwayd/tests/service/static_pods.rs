//! The power is cut after each call to the file system while a static pod is replaced, with each state that a disk could
//! then have; and mutants, each of which is caught.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde_json::json;
use slipway_kubernetes::{
    component::Component::{self, Scheduler},
    replacement::{Next, Outcome, Replacement, Request},
};
use slipway_node::drain::Policy;
use slipwayd::{
    config::Config as NodeConfig,
    control_plane::ControlPlane,
    durable::{Calls, Disk},
    machine::kube::{self, Kube},
    static_pods::{Config, Pods, StaticPods},
};
use tempfile::TempDir;
use uuid::Uuid;

const OLD: &str = "spec:\n  containers:\n  - name: kube-scheduler\n    image: r/s:v1.20.2 # by hand\n";
const NEW: &str = "spec:\n  containers:\n  - name: kube-scheduler\n    image: r/s:v1.21.2 # by hand\n";

/// The fault of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    NoSync,
    NoSyncOfNames,
    InPlace,
}

/// The changes that are not on the medium yet.
#[derive(Clone, Debug)]
enum Pending {
    /// The bytes of a file.
    Bytes(PathBuf),
    /// That a file has this name, which had these bytes before.
    Name(PathBuf, Option<Vec<u8>>),
}

/// The file system. It ends after so many calls, as the power does.
struct Cut {
    calls: usize,
    after: usize,
    pending: Vec<Pending>,
    mutant: Mutant,
}

impl Cut {
    fn new(after: usize, mutant: Mutant) -> Self {
        Self { calls: 0, after, pending: Vec::new(), mutant }
    }

    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        if self.calls > self.after { Err(io::Error::other("the power is cut")) } else { Ok(()) }
    }
}

impl Calls for &mut Cut {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.call()?;
        self.pending.push(Pending::Bytes(path.to_owned()));
        Disk.write(path, bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        self.call()?;
        if self.mutant != Mutant::NoSync {
            self.pending.retain(|of| !matches!(of, Pending::Bytes(bytes) if bytes == path));
        }
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        if self.mutant == Mutant::InPlace && to.extension().is_none_or(|of| of != "json") {
            self.pending.push(Pending::Bytes(to.to_owned()));
            return Disk.write(to, &fs::read(from)?);
        }
        for of in &mut self.pending {
            if let Pending::Bytes(path) = of
                && path == from
            {
                to.clone_into(path);
            }
        }
        self.pending.push(Pending::Name(to.to_owned(), fs::read(to).ok()));
        Disk.rename(from, to)
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.call()?;
        if self.mutant != Mutant::NoSyncOfNames {
            self.pending.retain(|of| !matches!(of, Pending::Name(path, _) if path.parent() == Some(dir)));
        }
        Ok(())
    }
}

/// The rest of bytes that were not on the medium, and whether names were.
#[derive(Clone, Copy, Debug)]
struct Loss {
    bytes_left: fn(usize) -> usize,
    journal_name: bool,
    other_names: bool,
}

fn lose(pending: &[Pending], loss: Loss) {
    for of in pending.iter().rev() {
        match of {
            Pending::Bytes(path) => {
                let bytes = fs::read(path).unwrap_or_default();
                fs::write(path, &bytes[..(loss.bytes_left)(bytes.len())]).unwrap();
            }
            Pending::Name(path, before) => {
                let is_journal = path.extension().is_some_and(|of| of == "json");
                let is_kept = if is_journal { loss.journal_name } else { loss.other_names };
                match before {
                    _ if is_kept => {}
                    Some(before) => fs::write(path, before).unwrap(),
                    None => fs::remove_file(path).unwrap(),
                }
            }
        }
    }
}

/// Pods that are well with a manifest, or not.
struct Kubelet {
    takes: bool,
    uptime: Cell<u64>,
}

impl Pods for Kubelet {
    fn ill(&self, of: &Replacement) -> Option<String> {
        let is_well = self.takes || of.turned.is_some();
        (!is_well).then(|| "it crashes".to_owned())
    }

    fn uptime(&self) -> u64 {
        self.uptime.set(self.uptime.get() + 100);
        self.uptime.get()
    }
}

struct Node {
    dir: TempDir,
    kubelet: Kubelet,
}

impl Node {
    fn new(takes: bool) -> Self {
        let dir = TempDir::new().unwrap();
        for part in ["manifests", "state"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        fs::write(dir.path().join("manifests/kube-scheduler.yaml"), OLD).unwrap();
        Self { dir, kubelet: Kubelet { takes, uptime: Cell::new(0) } }
    }

    fn open<C: Calls>(&self, calls: C) -> Result<StaticPods<C>, String> {
        let config = Config { manifests: self.dir.path().join("manifests"), ..Config::default() };
        StaticPods::open(config, &self.dir.path().join("state"), calls).map_err(|e| format!("the journal: {e}"))
    }

    fn manifest(&self) -> String {
        fs::read_to_string(self.dir.path().join("manifests/kube-scheduler.yaml")).unwrap()
    }

    fn request() -> Request {
        Request {
            id: Uuid::from_u128(1),
            component: Scheduler,
            image: "r/s:v1.21.2".to_owned(),
            version: "1.21.2".parse().unwrap(),
            emulate: false,
            caller: "test".to_owned(),
        }
    }

    /// Ask, and work to the end.
    fn work<C: Calls>(&self, pods: &mut StaticPods<C>) -> io::Result<()> {
        pods.ask(Self::request(), None)?.unwrap();
        while pods.turn(&self.kubelet)?.is_some() {}
        Ok(())
    }
}

/// The laws after a cut, before anything else runs.
fn judge(node: &Node) -> Result<(), String> {
    let there = node.manifest();
    if there != OLD && there != NEW {
        return Err(format!("the kubelet finds {there:?}"));
    }
    let names: BTreeSet<_> =
        fs::read_dir(node.dir.path().join("manifests")).unwrap().map(|of| of.unwrap().file_name()).collect();
    if names.len() != 1 {
        return Err(format!("the kubelet finds {names:?}"));
    }
    let mode =
        fs::metadata(node.dir.path().join("manifests/kube-scheduler.yaml")).unwrap().permissions().mode() & 0o777;
    if there == NEW && mode != 0o600 {
        return Err(format!("others than root can read the manifest: {mode:o}"));
    }
    let pods = node.open(Disk)?;
    let journal = pods.journal();
    let is_known = journal.under_way.as_ref().is_some_and(|of| of.old == OLD)
        || journal.kept.get(&Scheduler).is_some_and(|kept| kept == OLD);
    if there == NEW && !is_known { Err("the old manifest is lost".to_owned()) } else { Ok(()) }
}

/// Cut after this many calls, lose something, start again. Whether the cut came before the end.
fn cut(takes: bool, after: usize, loss: Loss, mutant: Mutant) -> Result<bool, String> {
    let node = Node::new(takes);
    let mut calls = Cut::new(after, mutant);
    let is_cut = node.work(&mut node.open(&mut calls)?).is_err();
    lose(&calls.pending, loss);
    judge(&node)?;
    node.kubelet.uptime.set(0);
    let mut pods = node.open(Disk)?;
    // The caller asks again: it is done once.
    node.work(&mut pods).map_err(|e| e.to_string())?;
    let ended = &pods.journal().ended;
    let wanted = if takes { (NEW, true) } else { (OLD, false) };
    let is = (node.manifest(), ended.len() == 1 && ended[0].outcome == Outcome::Reached);
    if (is.0.as_str(), is.1) != wanted || ended.len() != 1 {
        return Err(format!("it ends with {is:?}"));
    }
    Ok(is_cut)
}

/// Every cut and every loss: how many states, or the first that is wrong.
fn sweep(mutant: Mutant) -> Result<usize, String> {
    let left: [fn(usize) -> usize; 3] = [|all| all, |all| all / 2, |_| 0];
    let mut states = 0;
    for takes in [true, false] {
        for after in 0.. {
            let mut is_cut = false;
            for bytes_left in left {
                for (journal_name, other_names) in [(true, true), (true, false), (false, true), (false, false)] {
                    let loss = Loss { bytes_left, journal_name, other_names };
                    is_cut = cut(takes, after, loss, mutant)
                        .map_err(|why| format!("{mutant:?}, after {after} calls, {loss:?}: {why}"))?;
                    states += 1;
                }
            }
            if !is_cut {
                break;
            }
        }
    }
    Ok(states)
}

#[test]
fn a_cut_at_any_call_leaves_the_old_manifest_or_the_new_one() {
    let states = sweep(Mutant::None).unwrap_or_else(|why| panic!("{why}"));
    println!("{states} states");
    assert!(states > 400, "{states} states");
}

#[test]
fn each_mutant_of_the_writes_is_caught() {
    for mutant in [Mutant::NoSync, Mutant::NoSyncOfNames, Mutant::InPlace] {
        let why = sweep(mutant).expect_err("a mutant survives");
        println!("{why}");
    }
}

/// A disk that takes no file with this name any more.
struct Refuses(&'static str);

impl Calls for Refuses {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        Disk.write(path, bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        Disk.sync(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if to.ends_with(self.0) { Err(io::ErrorKind::CrossesDevices.into()) } else { Disk.rename(from, to) }
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        Disk.sync_dir(dir)
    }
}

/// The kubelet's directory may be another file system than its parent, which no later try changes. It was not touched, so it
/// ends with the reason: else the node, the ledger's claim and the fleet would wait for ever. On the way back it is tried again.
#[test]
fn a_manifest_that_cannot_be_written_ends_what_has_touched_nothing() {
    let node = Node::new(true);
    let mut pods = node.open(Refuses("kube-scheduler.yaml")).unwrap();
    node.work(&mut pods).unwrap();
    let Outcome::CameBack(why) = &pods.journal().ended[0].outcome else { panic!("{:?}", pods.journal()) };
    assert!(why.contains("cannot be written by way of") && why.contains(".slipway-kube-scheduler.yaml: "), "{why}");
    assert_eq!((node.manifest().as_str(), pods.journal().under_way.is_none()), (OLD, true));
    assert!(pods.journal().kept.is_empty(), "nothing was upgraded");
    let node = Node::new(false);
    let mut pods = node.open(Disk).unwrap();
    pods.ask(Node::request(), None).unwrap().unwrap();
    while !matches!(pods.turn(&node.kubelet).unwrap(), Some(Next::Turn(_))) {}
    let mut pods = node.open(Refuses("kube-scheduler.yaml")).unwrap();
    pods.turn(&node.kubelet).unwrap_err();
    assert_eq!(node.manifest(), NEW);
    let mut pods = node.open(Disk).unwrap();
    while pods.turn(&node.kubelet).unwrap().is_some() {}
    assert_eq!(node.manifest(), OLD);
}

/// While servers are asked the directory is not locked: what they say is about the manifest that was there before.
#[test]
fn a_manifest_that_comes_meanwhile_is_asked_about_again() {
    let node = Node::new(true);
    let mut pods = node.open(Disk).unwrap();
    pods.ask(Node::request(), None).unwrap().unwrap();
    let mut next = || pods.turn(&node.kubelet).unwrap().unwrap();
    assert_eq!((next(), next()), (Next::Write(NEW.to_owned()), Next::Begin));
    let path = node.dir.path().join("manifests/kube-scheduler.yaml");
    fs::write(&path, OLD).unwrap();
    let look = pods.look().unwrap().unwrap();
    let ill = look.ill(&node.kubelet);
    fs::write(&path, NEW).unwrap();
    let next = pods.act(&look, ill, 300).unwrap();
    assert!(matches!(&next, Next::Wait(why) if why.contains("a moment ago")), "{next:?}");
}

/// The configuration of a node with this API server.
fn kube_of(node: &Node, server: &TcpListener) -> kube::Config {
    let path = |name| node.dir.path().join(name);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "t", "users": [{ "name": "t", "user": {} }],
        "clusters": [{ "name": "t", "cluster": { "server": format!("http://{}", server.local_addr().unwrap()) } }],
        "contexts": [{ "name": "t", "context": { "cluster": "t", "user": "t" } }],
    });
    fs::write(path("kubeconfig"), kubeconfig.to_string()).unwrap();
    let static_pods = Some(Config { manifests: path("manifests"), ..Config::default() });
    kube::Config { node: "n1".to_owned(), kubeconfig: path("kubeconfig"), drain: Policy::default(), static_pods }
}

/// Who has asked by this connection still waits for the answer.
fn is_open(asked: &mut TcpStream) -> bool {
    asked.set_nonblocking(true).unwrap();
    loop {
        match asked.read(&mut [0; 1024]) {
            Ok(1..) => {}
            end => return end.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock),
        }
    }
}

/// A node whose API server takes a question, and gives no answer, goes on answering others.
#[test]
fn others_are_answered_while_a_server_is_asked() {
    let node = Node::new(true);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    node.open(Disk).unwrap().ask(Node::request(), None).unwrap().unwrap();
    let kubernetes = Some(kube_of(&node, &server));
    let config = NodeConfig { state: node.dir.path().join("state"), kubernetes, ..NodeConfig::default() };
    let control_plane = ControlPlane::start(&config).unwrap().unwrap();
    let (mut asked, _) = server.accept().unwrap();
    assert_eq!(control_plane.under_way(), Some(Uuid::from_u128(1)));
    assert!(is_open(&mut asked), "it was answered after the question was given up");
}

/// What cannot be put back is tried again and again, and the answer says why nothing goes on.
#[test]
fn a_way_back_that_cannot_be_written_says_why() {
    let node = Node::new(false);
    let mut pods = node.open(Disk).unwrap();
    pods.ask(Node::request(), None).unwrap().unwrap();
    while !matches!(pods.turn(&node.kubelet).unwrap(), Some(Next::Turn(_))) {}
    fs::create_dir(node.dir.path().join(".slipway-kube-scheduler.yaml")).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let kubernetes = Some(kube_of(&node, &server));
    drop(server);
    let config = NodeConfig { state: node.dir.path().join("state"), kubernetes, ..NodeConfig::default() };
    let control_plane = ControlPlane::start(&config).unwrap().unwrap();
    let why = || control_plane.look(None).unwrap().pods[0].ill.clone().unwrap_or_default();
    while !why().starts_with("its replacement does not go on: ") {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((node.manifest().as_str(), control_plane.under_way()), (NEW, Some(Uuid::from_u128(1))));
    fs::remove_dir(node.dir.path().join(".slipway-kube-scheduler.yaml")).unwrap();
    while node.manifest() != OLD {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Of an API server that gives no answer a node knows it after one answer's time, and not after three.
#[test]
fn all_pods_are_asked_about_at_once() {
    let (node, server) = (Node::new(true), TcpListener::bind("127.0.0.1:0").unwrap());
    let kube = Kube::new(kube_of(&node, &server)).unwrap();
    let manifests = Component::ALL.map(|of| (of, NEW.replace("kube-scheduler", of.name())));
    let asks = thread::spawn(move || kube.static_pods_ill(&manifests.into()));
    let mut asked: Vec<TcpStream> = (0..3).map(|_| server.accept().unwrap().0).collect();
    assert!(asked.iter_mut().all(is_open), "one was given up before another began");
    drop((asked, server));
    assert_eq!(asks.join().unwrap().into_keys().collect::<Vec<_>>(), Component::ALL);
}
