//! A cluster of nodes on this machine: one etcd, an API server for each node, which its kubelet's stand-in runs, and the
//! node's real service. A load balancer before the API servers goes to the first that takes a connection.
//!
//! * [`kubelet`]: the stand-in for the kubelet
//! * [`add_ons`]: kube-proxy and CoreDNS, without their pods
//! * [`containerd`]: the images that nodes find
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

pub mod add_ons;
mod audit;
pub mod containerd;
pub mod kubelet;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener as StdListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use slipway_kubernetes::{component::Component, manifest};
use slipway_node_server::{
    accept,
    events::{Bound, EventLog},
    limits::Limits,
    serve::{Listeners, serve},
    tls::{Files, Trust},
};
use slipway_test_cluster::{self as server, Server};
use slipway_test_support::port::free_port;
use slipwayd::{
    config::{Api as ApiConfig, Config},
    machine::{containerd as node_containerd, etcd, kube as node_kube},
    service, static_pods,
};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::timeout,
};

use containerd::Containerd;
use kubelet::{Images, Kubelet};

/// The real version of the API server, and one that a copy of it is made to say.
pub const OLD: &str = "1.20.2";
/// The same, newer.
pub const NEW: &str = "1.21.2";

/// The cluster.
pub struct ControlPlane {
    // They end first: they read the directory.
    kubelets: Vec<Kubelet>,
    containerd: Containerd,
    /// Where the nodes' services run.
    pub runtime: Runtime,
    dir: TempDir,
    server: Server,
    names: Vec<String>,
    port: u16,
}

/// A client of this kubeconfig.
pub async fn client_of(path: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl ControlPlane {
    /// So many nodes, each of which gives a pod so many seconds until it is well.
    pub fn new(nodes: usize, limit: u64) -> Self {
        Self::of(nodes, limit, [OLD, NEW])
    }

    /// The same, with API servers that are made to say these versions.
    pub fn of(nodes: usize, limit: u64, versions: [&str; 2]) -> Self {
        let dir = TempDir::new().unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let names: Vec<String> = (1..=nodes).map(|n| format!("n{n}")).collect();
        let ports: Vec<u16> = names.iter().map(|_| free_port()).collect();
        let server = Server::without_api(balance(ports.clone()));
        let images = images(dir.path(), versions);
        let containerd = Containerd::start(&dir.path().join("containerd"), images.keys());
        let (pki, port) = (dir.path().join("pki"), free_port());
        audit::write_policy(dir.path());
        certificates(&pki, names.iter().enumerate().map(|(n, name)| (name.clone(), address(n))));
        let mut kubelets = Vec::new();
        for (name, server_port) in names.iter().zip(ports) {
            let home = dir.path().join(name);
            fs::create_dir_all(home.join("manifests")).unwrap();
            for component in Component::ALL {
                let flags = match component {
                    Component::ApiServer => [server.flags(server_port), audit::flags(dir.path(), &home)].concat(),
                    _ => vec!["infinity".to_owned()],
                };
                let manifest = pod_manifest((component, versions[0]), &flags, &home.join("component.conf"));
                fs::write(home.join("manifests").join(component.file()), manifest).unwrap();
            }
            give_certificate(&home, (4096, 1, 1));
            let kubeconfig = server.kubelet(name);
            kubelets.push(Kubelet::start(name, &home, kubeconfig.clone(), images.clone()));
            let tcp = (pki.as_path(), SocketAddr::new(address(kubelets.len() - 1), port));
            let parts = (server.etcd(), containerd.config());
            start_service(&runtime, name, &home, kubeconfig, (parts, limit), tcp);
        }
        runtime.block_on(make_nodes(&server, &names, versions[0]));
        let site = Self { containerd, runtime, dir, server, names, kubelets, port };
        // Until every pod is shown as ready.
        site.until_well();
        site
    }

    /// Credentials of an admin.
    pub fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig("admin")
    }

    /// A client of an admin.
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

    /// The versions of all pods of a component, as the manifests say.
    pub fn versions(&self, component: Component) -> Vec<String> {
        let image = |name: &String| {
            manifest::image(&fs::read_to_string(self.manifest(name, component)).unwrap(), component).unwrap()
        };
        let version = |image: String| image.split('@').next().unwrap().rsplit_once(":v").unwrap().1.to_owned();
        self.names.iter().map(|name| version(image(name))).collect()
    }

    /// The newer image of a component by its digest.
    pub fn pinned(&self, component: Component) -> String {
        format!("registry.example/{component}:v{NEW}@{}", self.containerd.digest)
    }

    /// Until the API shows every pod as ready.
    fn until_well(&self) {
        loop {
            let ready = self.runtime.block_on(async { timeout(Duration::from_secs(5), self.ready()).await });
            if matches!(ready, Ok(Ok(ready)) if ready == self.names.len() * Component::ALL.len()) {
                return;
            }
            assert!(self.kubelets.iter().all(Kubelet::is_running), "a kubelet has ended");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// The number of static pods that are.
    async fn ready(&self) -> kube::Result<usize> {
        let pods: Api<Pod> = Api::namespaced(client_of(&self.kubeconfig()).await, "kube-system");
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|of| of.type_ == "Ready" && of.status == "True")
        };
        Ok(pods.list(&ListParams::default()).await?.items.iter().filter(|pod| is_ready(pod)).count())
    }

    /// How often an admin has asked API servers, by verb and kind, apart from what is about an object of this name.
    pub fn asked(&self, but: &str) -> BTreeMap<String, u32> {
        audit::asked(self.names.iter().map(|name| self.home(name)), but)
    }

    /// Where the nodes listen on the network.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificates of nodes, and that of a controller.
    pub fn pki(&self) -> PathBuf {
        self.dir.path().join("pki")
    }

    /// The directory of a node, with its socket `node.sock`.
    pub fn home(&self, node: &str) -> PathBuf {
        self.dir.path().join(node)
    }

    /// The certificate of a node's controller manager and scheduler expires at this day.
    pub fn expires(&self, node: &str, day: (i32, u8, u8)) {
        give_certificate(&self.home(node), day);
    }

    /// The snapshots of etcd that a node keeps.
    pub fn snapshots(&self, node: &str) -> Vec<PathBuf> {
        let found = fs::read_dir(self.home(node).join("etcd")).into_iter().flatten();
        found.map(|of| of.unwrap().path()).filter(|path| path.extension().is_some_and(|of| of == "db")).collect()
    }

    /// The names of the nodes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Credentials of the owner of this token, whose pod is in this namespace.
    pub fn with_token(&self, user: &str, token: &str, namespace: &str) -> PathBuf {
        let path = self.server.with_token(user, token);
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["contexts"][0]["context"]["namespace"] = namespace.into();
        fs::write(&path, config.to_string()).unwrap();
        path
    }
}

fn address(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 2, u8::try_from(n + 1).unwrap()))
}

/// Write an authority, the certificates of these nodes at their addresses, and that of a controller, `tls`.
pub fn certificates(pki: &Path, nodes: impl IntoIterator<Item = (String, IpAddr)>) {
    fs::create_dir(pki).unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    ca.distinguished_name.push(DnType::CommonName, "authority of the nodes");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    fs::write(pki.join("ca.crt"), ca.pem()).unwrap();
    let leaf = |file: &str, organization: &str, hosts: Vec<String>, usage| {
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        fs::write(pki.join(format!("{file}.crt")), params.signed_by(&key, &ca).unwrap().pem()).unwrap();
        fs::write(pki.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    };
    leaf("tls", "slipway:controller", Vec::new(), ExtendedKeyUsagePurpose::ClientAuth);
    for (name, address) in nodes {
        leaf(&name, "", vec![address.to_string()], ExtendedKeyUsagePurpose::ServerAuth);
    }
}

/// Of the nodes, as soon as an API server answers. Pods are shown after that.
async fn make_nodes(server: &Server, names: &[String], version: &str) {
    let client = client_of(&server.kubeconfig("admin")).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let runs =
        |name: &str| json!({ "metadata": { "name": name, "labels": { "node-role.kubernetes.io/control-plane": "" } } });
    for (n, name) in names.iter().enumerate() {
        let node: Node = serde_json::from_value(runs(name)).unwrap();
        while nodes.create(&PostParams::default(), &node).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let status = json!({ "status": {
            "addresses": [{ "type": "InternalIP", "address": address(n) }],
            "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "kubeletVersion": format!("v{version}") },
        } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(client);
    while namespaces.get("kube-system").await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The node's service, as its program starts it.
fn start_service(
    runtime: &Runtime,
    name: &str,
    home: &Path,
    kubeconfig: PathBuf,
    ((etcd, containerd), limit): ((&str, node_containerd::Config), u64),
    (pki, address): (&Path, SocketAddr),
) {
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
        snapshot: Some(etcd::SnapshotConfig {
            directory: home.join("etcd"),
            etcdutl: server::part("SLIPWAY_ETCDCTL", "etcdctl"),
            etcd: server::part("SLIPWAY_ETCD", "etcd"),
        }),
        in_payload: false,
    };
    let kube =
        node_kube::Config { node: name.to_owned(), kubeconfig, drain: Default::default(), static_pods: Some(pods) };
    let config = Config {
        state: home.join("state"),
        api: ApiConfig { socket: socket.clone(), tls: None },
        kubernetes: Some(kube),
        etcd: Some(member),
        containerd: Some(containerd),
        ..Config::default()
    };
    let log = EventLog::new(Bound::default());
    let (node, worker) = service::start(name.to_owned(), config, log.clone()).unwrap();
    thread::spawn(|| worker.work());
    let at = |suffix: &str| pki.join(format!("{name}.{suffix}"));
    let files = Files { certificate: at("crt"), key: at("key"), ca: pki.join("ca.crt"), revoked: None };
    let trust = Trust::load(files, log.clone()).unwrap();
    runtime.spawn(async move {
        let tcp = Some((TcpListener::bind(address).await.unwrap(), trust));
        let listeners = Listeners { socket: Some(accept::bind(&socket).unwrap()), tcp };
        serve(Arc::new(node), log, listeners, Limits::default(), std::future::pending()).await.unwrap();
    });
}

/// The certificate of a node's controller manager and scheduler, inside their kubeconfig; when it expires.
fn give_certificate(home: &Path, (year, month, day): (i32, u8, u8)) {
    let mut params = CertificateParams::default();
    params.not_after = rcgen::date_time_ymd(year, month, day);
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let user = json!({ "client-certificate-data": BASE64_STANDARD.encode(certificate) });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{ "name": "here", "context": { "cluster": "here", "user": "component" } }],
        "users": [{ "name": "component", "user": user }],
    });
    fs::write(home.join("component.conf"), config.to_string()).unwrap();
}

/// As kubeadm lays it out. The stand-in for the kubelet passes on no `args`.
fn pod_manifest((component, version): (Component, &str), flags: &[String], kubeconfig: &Path) -> String {
    let words: String = flags.iter().map(|flag| format!("    - {flag}\n")).collect();
    let args = match component {
        Component::ApiServer => String::new(),
        _ => format!("    args:\n    - --kubeconfig={}\n", kubeconfig.display()),
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {component}\n  namespace: kube-system\nspec:\n  containers:\n  \
         - command:\n    - {component}\n{words}{args}    image: registry.example/{component}:v{version}\n    name: {component}\n  \
         hostNetwork: true\n"
    )
}

/// What Debian's build of the API server says of its version: `v0.0.0-master+` and the first digits of a commit.
const UNSTAMPED: &str = "v0.0.0-master+";
const DIGITS: usize = 13;

/// Programs by image. The API servers are copies of one whose bytes say another version: nothing else of the newer one is
/// newer. The other components sleep.
fn images(dir: &Path, versions: [&str; 2]) -> Images {
    let bytes = fs::read(server::program()).unwrap();
    let places: Vec<usize> = memchr::memmem::find_iter(&bytes, UNSTAMPED).collect();
    assert!(!places.is_empty(), "this API server does not say {UNSTAMPED}: its version cannot be changed");
    let mut images = BTreeMap::new();
    for version in versions {
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
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
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
