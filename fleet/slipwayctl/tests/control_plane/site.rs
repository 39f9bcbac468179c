//! A cluster of nodes on this machine: one etcd, an API server for each node, which its kubelet's stand-in runs, and the
//! node's real service. A load balancer before the API servers goes to the first that takes a connection.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use slipway_kubernetes::component::Component;
use slipway_node_server::{
    accept,
    events::{Bound, EventLog},
    limits::Limits,
    serve::{Listeners, serve},
};
use slipway_test_cluster::{self as server, Server};
use slipway_test_support::port::free_port;
use slipwayd::{
    config::{Api as ApiConfig, Config},
    machine::{etcd, kube as node_kube},
    service, static_pods,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::kubelet::{Images, Kubelet};

/// The real version of the API server, and one that a copy of it is made to say.
pub const OLD: &str = "1.20.2";
pub const NEW: &str = "1.21.2";

pub struct Site {
    // They end first: they read the directory.
    kubelets: Vec<Kubelet>,
    pub runtime: Runtime,
    dir: TempDir,
    server: Server,
    names: Vec<String>,
}

/// A client of this kubeconfig.
pub async fn client_of(path: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl Site {
    pub fn new(nodes: usize, limit: u64) -> Self {
        let (dir, mut server) = (TempDir::new().unwrap(), Server::start());
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let names: Vec<String> = (1..=nodes).map(|n| format!("n{n}")).collect();
        let ports: Vec<u16> = names.iter().map(|_| free_port()).collect();
        runtime.block_on(make_nodes(&mut server, &names));
        server.replace(&balance(ports.clone()));
        let images = images(dir.path());
        let mut kubelets = Vec::new();
        for (name, port) in names.iter().zip(ports) {
            let home = dir.path().join(name);
            fs::create_dir_all(home.join("manifests")).unwrap();
            for component in Component::ALL {
                let flags =
                    if component == Component::ApiServer { server.flags(port) } else { vec!["infinity".to_owned()] };
                fs::write(home.join("manifests").join(component.file()), manifest(component, &flags)).unwrap();
            }
            let kubeconfig = server.kubelet(name);
            kubelets.push(Kubelet::start(name, &home, kubeconfig.clone(), images.clone()));
            start_service(&runtime, name, &home, kubeconfig, (server.etcd(), limit));
        }
        let site = Self { runtime, dir, server, names, kubelets };
        site.write_contexts();
        // Until every pod is shown as ready.
        site.until_well();
        site
    }

    fn write_contexts(&self) {
        let mut text = String::new();
        for name in &self.names {
            let socket = self.dir.path().join(name).join("node.sock");
            text += &format!("[contexts.{name}]\nsocket = {socket:?}\n");
        }
        fs::write(self.dir.path().join("config.toml"), text).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
        command.arg("--config").arg(self.dir.path().join("config.toml")).arg("kubernetes").args(words);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command
    }

    /// `slipwayctl kubernetes` with these words, to its end.
    pub fn run(&self, words: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
        (status.code().unwrap(), text)
    }

    /// The same, killed as soon as it prints this.
    pub fn run_until(&self, words: &[&str], end: &str) -> String {
        let mut child = self.command(words).spawn().unwrap();
        let lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
        let mut text = String::new();
        for line in lines.map_while(Result::ok) {
            text += &(line + "\n");
            if text.contains(end) {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(text.contains(end), "{text}");
        text
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig("admin")
    }

    pub fn client(&self) -> Client {
        self.runtime.block_on(client_of(&self.kubeconfig()))
    }

    /// etcd raises an alarm, as if it had a reason.
    pub fn alarm(&self, alarm: &str) {
        let body = json!({ "action": "ACTIVATE", "alarm": alarm }).to_string();
        let mut stream = TcpStream::connect(self.server.etcd().strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "POST /v3/maintenance/alarm HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 ") && answer.contains(alarm), "{answer}");
    }

    /// The manifest of a component of a node.
    pub fn manifest(&self, node: &str, component: Component) -> PathBuf {
        self.dir.path().join(node).join("manifests").join(component.file())
    }

    pub fn status(&self) -> Value {
        let (code, text) = self.run(&["status", "-o", "json"]);
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The versions of all pods of a component, as the nodes say.
    pub fn versions(&self, component: Component) -> Vec<String> {
        let status = self.status();
        let image =
            |name: &String| status["nodes"][name]["pods"][component.name()]["image"].as_str().unwrap().to_owned();
        self.names.iter().map(|name| image(name).rsplit_once(":v").unwrap().1.to_owned()).collect()
    }

    fn until_well(&self) {
        loop {
            let (code, text) = self.run(&["status"]);
            if code == 0 && !text.contains('!') && !text.contains('?') {
                return;
            }
            assert!(self.kubelets.iter().all(Kubelet::is_running), "a kubelet has ended: {text}");
            thread::sleep(Duration::from_millis(500));
        }
    }
}

async fn make_nodes(server: &mut Server, names: &[String]) {
    let client = client_of(&server.kubeconfig("admin")).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let runs =
        |name: &str| json!({ "metadata": { "name": name, "labels": { "node-role.kubernetes.io/control-plane": "" } } });
    for name in names {
        let node: Node = serde_json::from_value(runs(name)).unwrap();
        while nodes.create(&PostParams::default(), &node).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let status = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "kubeletVersion": format!("v{OLD}") },
        } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(client);
    while namespaces.get("kube-system").await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The node's service, as its program starts it.
fn start_service(runtime: &Runtime, name: &str, home: &Path, kubeconfig: PathBuf, (etcd, limit): (&str, u64)) {
    let socket = home.join("node.sock");
    let pods = static_pods::Config { manifests: home.join("manifests"), limit: Duration::from_secs(limit) };
    let member = etcd::Config {
        name: "default".to_owned(),
        endpoints: vec![etcd.to_owned()],
        peer_urls: Vec::new(),
        join: None,
        ca: None,
        cert: None,
        key: None,
        quota_bytes: None,
        in_payload: false,
    };
    let kube =
        node_kube::Config { node: name.to_owned(), kubeconfig, drain: Default::default(), static_pods: Some(pods) };
    let config = Config {
        state: home.join("state"),
        api: ApiConfig { socket: socket.clone(), tls: None },
        kubernetes: Some(kube),
        etcd: Some(member),
        ..Config::default()
    };
    let log = EventLog::new(Bound::default());
    let (node, worker) = service::start(name.to_owned(), config, log.clone()).unwrap();
    thread::spawn(|| worker.work());
    runtime.spawn(async move {
        let listeners = Listeners { socket: Some(accept::bind(&socket).unwrap()), tcp: None };
        serve(Arc::new(node), log, listeners, Limits::default(), std::future::pending()).await.unwrap();
    });
}

/// As kubeadm lays it out.
fn manifest(component: Component, flags: &[String]) -> String {
    let words: String = flags.iter().map(|flag| format!("    - {flag}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {component}\n  namespace: kube-system\nspec:\n  containers:\n  \
         - command:\n    - {component}\n{words}    image: registry.example/{component}:v{OLD}\n    name: {component}\n  \
         hostNetwork: true\n"
    )
}

/// What Debian's build of the API server says of its version: `v0.0.0-master+` and the first digits of a commit.
const UNSTAMPED: &str = "v0.0.0-master+";
const DIGITS: usize = 13;

/// Programs by image. The API servers are copies of one whose bytes say another version: nothing else of the newer one is
/// newer. The other components sleep.
fn images(dir: &Path) -> Images {
    let bytes = fs::read(server::program()).unwrap();
    let found = |at: &usize| bytes[*at..].starts_with(UNSTAMPED.as_bytes());
    let places: Vec<usize> = (0..bytes.len() - UNSTAMPED.len() - DIGITS).filter(found).collect();
    assert!(!places.is_empty(), "this API server does not say {UNSTAMPED}: its version cannot be changed");
    let mut images = BTreeMap::new();
    for version in [OLD, NEW] {
        let (program, mut stamped) = (dir.join(format!("kube-apiserver-{version}")), bytes.clone());
        let text = format!("{:0<length$}", format!("v{version}+"), length = UNSTAMPED.len() + DIGITS);
        for at in &places {
            stamped[*at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        fs::write(&program, stamped).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        images.insert(format!("registry.example/kube-apiserver:v{version}"), program);
        for component in [Component::ControllerManager, Component::Scheduler] {
            images.insert(format!("registry.example/{component}:v{version}"), "/bin/sleep".into());
        }
    }
    images
}

/// A load balancer: it goes to the first of these ports that takes a connection.
fn balance(ports: Vec<u16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Some(server) = ports.iter().find_map(|port| TcpStream::connect(("127.0.0.1", *port)).ok()) else {
                continue;
            };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || pipe(from, to));
            }
        }
    });
    url
}

fn pipe(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 65536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
