//! A real API server and its etcd on the loopback interface. There is no kubelet and no controller: the test does what
//! they would do, and says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    fs::{self, File},
    iter,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use slipway_test_support::port::free_port;
use tempfile::TempDir;

pub mod extensions;
pub mod newer;
mod newer_etcd;
mod pool;

pub use pool::Lent;

/// A part that `fleet/hack/parts` makes; the variable names another one.
pub fn part(variable: &str, name: &str) -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/parts").join(name);
    std::env::var_os(variable).map_or(made, PathBuf::from)
}

/// True if there is an API server. A test that goes on without one says so.
pub fn is_here() -> bool {
    let here = part("SLIPWAY_KUBE_APISERVER", "kube-apiserver").exists() && part("SLIPWAY_ETCD", "etcd").exists();
    if !here {
        slipway_test_support::not_run("no kube-apiserver or no etcd; fleet/hack/parts makes them");
    }
    here
}

/// The server; it ends with this.
pub struct Server {
    dir: TempDir,
    running: Vec<Child>,
    guard: Child,
    url: String,
    etcd: String,
    ca: Authority,
    /// The objects that the next test is to find; `None` if no other test gets this server.
    pristine: Option<pool::Content>,
}

/// Ends programs when this process has ended, however it did, and takes their files away: of what lies in the pool then, and
/// after a kill, nothing is dropped.
fn guard(dir: &Path, programs: &[Child]) -> Child {
    let script =
        r#"trap '' HUP INT TERM; dir=$1; shift; read -r _; kill -KILL "$@"; until rm -rf "$dir"; do sleep 0.1; done"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(dir).args(programs.iter().map(|child| child.id().to_string()));
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn url() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

/// The API server's program.
pub fn program() -> PathBuf {
    part("SLIPWAY_KUBE_APISERVER", "kube-apiserver")
}

/// The flags of an API server with the certificates in `dir`.
fn flags(dir: &Path, etcd: &str, port: u16) -> Vec<String> {
    let port = port.to_string();
    let flags = [
        ("etcd-servers", etcd),
        ("bind-address", "127.0.0.1"),
        ("advertise-address", "127.0.0.1"),
        ("secure-port", &port),
        ("authorization-mode", "Node,RBAC"),
        ("service-cluster-ip-range", "10.0.0.0/24"),
        ("endpoint-reconciler-type", "none"),
        ("allow-privileged", "true"),
        ("service-account-issuer", "https://kubernetes.default.svc"),
        // Pods need no service account here, and the taint of a new node stays.
        ("disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"),
        ("enable-admission-plugins", "NodeRestriction"),
        // Half of what it takes to start is for kinds that are not needed here, and for queues of requests.
        ("runtime-config", "api/beta=false,policy/v1beta1=true"),
        ("feature-gates", "APIPriorityAndFairness=false"),
    ];
    let more = [
        ("cert-dir", "."),
        ("service-account-key-file", "server.pub"),
        ("service-account-signing-key-file", "server.key"),
    ];
    flags.map(|(flag, value)| format!("--{flag}={value}")).into_iter().chain(files(dir, more)).collect()
}

/// Flags that name these files, and those of the server's certificate.
fn files(dir: &Path, more: impl IntoIterator<Item = (&'static str, &'static str)>) -> impl Iterator<Item = String> {
    let own = [("tls-cert-file", "server.crt"), ("tls-private-key-file", "server.key"), ("client-ca-file", "ca.crt")];
    own.into_iter().chain(more).map(move |(flag, name)| format!("--{flag}={}", dir.join(name).display()))
}

impl Server {
    /// The flags of another API server of the same cluster, at this port.
    pub fn flags(&self, port: u16) -> Vec<String> {
        flags(self.dir.path(), &self.etcd, port)
    }

    /// The address of etcd.
    pub fn etcd(&self) -> &str {
        &self.etcd
    }

    /// Its etcd alone. Others run the API servers, which are reached at this address.
    pub fn without_api(url: String) -> Self {
        Self::launch(&part("SLIPWAY_ETCD", "etcd"), url, |_, _| None)
    }

    /// One that answers.
    pub fn start() -> Self {
        let mut api = Command::new(program());
        // There is more memory than time.
        api.env("GOGC", "400");
        Self::with_api(&part("SLIPWAY_ETCD", "etcd"), &mut api, flags)
    }

    /// These programs. The flags of the API server are made of the directory with the certificates, the address of etcd, and a
    /// port.
    fn with_api(etcd: &Path, api: &mut Command, flags: impl FnOnce(&Path, &str, u16) -> Vec<String>) -> Self {
        let port = free_port();
        Self::launch(etcd, format!("https://127.0.0.1:{port}"), |dir, etcd| {
            let log = |name: &str| File::create(dir.join(name)).unwrap();
            Some(api.args(flags(dir, etcd, port)).stdout(log("api.out")).stderr(log("api.log")).spawn().unwrap())
        })
    }

    /// etcd, and the API server that `api` starts, if it does.
    fn launch(etcd: &Path, api_url: String, api: impl FnOnce(&Path, &str) -> Option<Child>) -> Self {
        let dir = TempDir::new().unwrap();
        let ca = certificates(dir.path());
        let (client, peer) = (url(), url());
        let log = |name: &str| File::create(dir.path().join(name)).unwrap();
        let etcd = Command::new(etcd)
            .arg("--data-dir")
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(log("etcd.out"))
            .stderr(log("etcd.log"))
            .spawn()
            .unwrap();
        let running: Vec<Child> = iter::once(etcd).chain(api(dir.path(), &client)).collect();
        let guard = guard(dir.path(), &running);
        let server = Self { dir, running, guard, url: api_url, etcd: client, ca, pristine: None };
        for user in ["admin", "kubelet"] {
            server.write_kubeconfig(user);
        }
        server
    }

    /// Credentials of `admin`, or of the `kubelet` of node `n1`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.path().join(format!("{user}.kubeconfig"))
    }

    fn write_kubeconfig(&self, user: &str) {
        let file = |name: String| self.dir.path().join(name);
        let (crt, key) = (file(format!("{user}.crt")), file(format!("{user}.key")));
        self.write(user, &json!({ "client-certificate": crt, "client-key": key }));
    }

    /// Credentials of the kubelet of this node; they are in the answer's file.
    pub fn kubelet(&self, node: &str) -> PathBuf {
        let (user, name) = (format!("kubelet-{node}"), format!("system:node:{node}"));
        leaf(self.dir.path(), &self.ca, &user, "system:nodes", &name, ExtendedKeyUsagePurpose::ClientAuth);
        self.write_kubeconfig(&user);
        self.kubeconfig(&user)
    }

    /// Credentials of the owner of this token; they are in the answer's file.
    pub fn with_token(&self, user: &str, token: &str) -> PathBuf {
        self.write(user, &json!({ "token": token }));
        self.kubeconfig(user)
    }

    fn write(&self, user: &str, credentials: &Value) {
        let ca = self.dir.path().join("ca.crt");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "t",
            "clusters": [{ "name": "t", "cluster": { "server": self.url, "certificate-authority": ca } }],
            "users": [{ "name": "t", "user": credentials }],
            "contexts": [{ "name": "t", "context": { "cluster": "t", "user": "t" } }],
        });
        fs::write(self.kubeconfig(user), text.to_string()).unwrap();
    }

    /// It ends, and gives no more answers.
    pub fn end(&mut self) {
        self.pristine = None;
        // First the guard: it knows programs by numbers, which are others' when they have ended.
        for child in iter::once(&mut self.guard).chain(self.running.iter_mut().rev()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The API server does nothing any more, and keeps its connections.
    pub fn stand_still(&mut self) {
        self.pristine = None;
        self.signal("-STOP");
    }

    /// It goes on.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let api = self.running.last().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &api]).status().unwrap().success());
    }

    /// Ask until the answer is `Ok`: while it starts, the server does not answer, and then lacks what it makes itself.
    pub fn until<T, E>(&mut self, mut ask: impl FnMut() -> Result<T, E>) -> T {
        loop {
            match ask() {
                Ok(answer) => return answer,
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
            for child in &mut self.running {
                let ended = child.try_wait().unwrap();
                let log = || fs::read_to_string(self.dir.path().join("api.log")).unwrap_or_default();
                assert!(ended.is_none(), "the server has ended: {}", log());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The authority of a cluster's certificates.
type Authority = CertifiedIssuer<'static, KeyPair>;

/// An authority, and certificates of the server, an administrator and the kubelet of node `n1`.
fn certificates(dir: &Path) -> Authority {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    ca.distinguished_name.push(DnType::CommonName, "authority of a test");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    fs::write(dir.join("ca.crt"), ca.pem()).unwrap();
    leaf(dir, &ca, "server", "", "kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth);
    leaf(dir, &ca, "admin", "system:masters", "admin", ExtendedKeyUsagePurpose::ClientAuth);
    leaf(dir, &ca, "kubelet", "system:nodes", "system:node:n1", ExtendedKeyUsagePurpose::ClientAuth);
    ca
}

/// A certificate, and its key.
fn leaf(dir: &Path, ca: &Authority, file: &str, organization: &str, common: &str, usage: ExtendedKeyUsagePurpose) {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, common);
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, ca).unwrap();
    fs::write(dir.join(format!("{file}.crt")), certificate.pem()).unwrap();
    fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    fs::write(dir.join(format!("{file}.pub")), key.public_key_pem()).unwrap();
}
