//! The control plane of a cluster on the machine that runs the tests: a real API server and its etcd, and kubectl. Its
//! controllers are not there.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use slipway_test_support::{port::free_port, registry::Authority};
use tempfile::TempDir;

use crate::{
    console::LIMIT,
    world::{World, run, run_to_end, scratch_dir},
};

/// Where a guest reaches the API server.
pub const PORT: u16 = 6443;

/// It ends with its guard.
pub struct Cluster {
    dir: TempDir,
    running: Vec<Child>,
    port: u16,
    authority: Authority,
}

impl Cluster {
    /// One that answers, and has made its first namespace.
    pub fn start() -> Self {
        let dir = scratch_dir();
        let authority = Authority::new(dir.path());
        authority.certify("api", "/CN=kube-apiserver", "IP:127.0.0.1,IP:10.0.2.100,DNS:localhost");
        authority.certify("admin", "/O=system:masters/CN=admin", "DNS:admin");
        let mut cluster = Cluster { dir, running: Vec::new(), port: free_port(), authority };
        let [client, peer] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        let of_etcd = [
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &format!("default={peer}")],
            ["--data-dir", &cluster.path("etcd")],
        ];
        cluster.runs("etcd", of_etcd.as_flattened());
        let of_api = [
            ["--etcd-servers", &client],
            ["--bind-address", "127.0.0.1"],
            ["--secure-port", &cluster.port.to_string()],
            ["--authorization-mode", "Node,RBAC"],
            ["--service-cluster-ip-range", "10.0.0.0/24"],
            ["--endpoint-reconciler-type", "none"],
            ["--service-account-issuer", "https://kubernetes.default.svc"],
            ["--service-account-key-file", &cluster.path("api.crt")],
            ["--service-account-signing-key-file", &cluster.path("api.key")],
            // No controller makes service accounts, and none takes the taint of a new node away.
            ["--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"],
            ["--enable-admission-plugins", "NodeRestriction"],
            ["--tls-cert-file", &cluster.path("api.crt")],
            ["--tls-private-key-file", &cluster.path("api.key")],
            ["--client-ca-file", &cluster.path("ca.crt")],
            ["--cert-dir", &cluster.path("")],
        ];
        cluster.runs("kube-apiserver", of_api.as_flattened());
        fs::write(cluster.path("admin.conf"), cluster.credentials("admin", &format!("127.0.0.1:{}", cluster.port)))
            .expect("a temporary directory has room");
        while cluster.try_kubectl(&["get", "namespace", "default"]).is_none() {
            for child in &mut cluster.running {
                let ended = child.try_wait().expect("a child can be looked at");
                assert!(ended.is_none(), "{}", log_of(cluster.dir.path()));
            }
            thread::sleep(Duration::from_millis(200));
        }
        cluster
    }

    /// The servers that a guest of this cluster reaches.
    pub fn servers(&self) -> [(u16, u16); 1] {
        [(PORT, self.port)]
    }

    /// A kubeconfig of an administrator, for a program on this machine.
    pub fn admin(&self) -> PathBuf {
        self.path("admin.conf").into()
    }

    /// Credentials of the kubelet of this node, in the guest.
    pub fn kubelet(&self, node: &str) -> String {
        self.authority.certify("kubelet", &format!("/O=system:nodes/CN=system:node:{node}"), "DNS:kubelet");
        self.credentials("kubelet", &format!("10.0.2.100:{PORT}"))
    }

    /// The output of kubectl, which must succeed.
    pub fn kubectl(&self, args: &[&str]) -> String {
        String::from_utf8(run(self.program(), self.with_credentials(args))).expect("kubectl prints text")
    }

    /// The same until it prints this. Fails with what the cluster tells of itself.
    #[track_caller]
    pub fn expect(&self, args: &[&str], text: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.try_kubectl(args).is_none_or(|said| !said.contains(text)) {
            if Instant::now() > deadline {
                panic!("{args:?} do not say `{text}`:\n{}", self.kubectl(&["get", "events", "--all-namespaces"]));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// What `kubectl apply -k` makes of these manifests. This API server is older than the rules in their schemas: it passes
    /// over them, and kubectl would not.
    #[track_caller]
    pub fn applies(&self, manifests: &Path) {
        let dir = manifests.display().to_string();
        let deadline = Instant::now() + LIMIT;
        loop {
            let args = self.with_credentials(&["apply", "--validate=false", "-k", &dir]);
            let ended = run_to_end(self.program(), args);
            if ended.code == 0 {
                return;
            }
            // A namespace that was made just now may not be there yet.
            assert!(Instant::now() < deadline, "{}", ended.stderr);
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// A kubeconfig with a token of this ServiceAccount, for a program on this machine.
    pub fn service_account(&self, namespace: &str, name: &str) -> PathBuf {
        let request = self.path("token.json");
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        fs::write(&request, body.to_string()).expect("a temporary directory has room");
        let at = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let answer = self.kubectl(&["create", "--raw", &at, "-f", &request]);
        let answer: Value = serde_json::from_str(&answer).expect("an API server prints JSON");
        let user = json!({ "token": answer["status"]["token"] });
        let file = PathBuf::from(self.path(&format!("{name}.conf")));
        fs::write(&file, self.kubeconfig(&format!("127.0.0.1:{}", self.port), &user))
            .expect("a temporary directory has room");
        file
    }

    /// Make an object.
    pub fn create(&self, object: &Value) {
        let file = self.path("object.json");
        fs::write(&file, object.to_string()).expect("a temporary directory has room");
        self.kubectl(&["create", "-f", &file]);
    }

    fn try_kubectl(&self, args: &[&str]) -> Option<String> {
        let ended = run_to_end(self.program(), self.with_credentials(args));
        (ended.code == 0).then(|| String::from_utf8_lossy(&ended.stdout).into_owned())
    }

    fn program(&self) -> PathBuf {
        World::get().node_program("kubectl")
    }

    fn with_credentials(&self, args: &[&str]) -> Vec<String> {
        let credentials = ["--kubeconfig".to_owned(), self.path("admin.conf")];
        credentials.into_iter().chain(args.iter().map(ToString::to_string)).collect()
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn runs(&mut self, name: &str, args: &[&str]) {
        let log = File::create(self.path(&format!("{name}.log"))).expect("a temporary directory has room");
        let errors = log.try_clone().expect("a file can be opened twice");
        let program = World::get().node_program(name);
        let child = Command::new(program).args(args).stdout(log).stderr(errors).spawn();
        self.running.push(child.expect("it can be started"));
    }

    fn credentials(&self, name: &str, server: &str) -> String {
        let [certificate, key] = ["crt", "key"].map(|ending| self.data(&format!("{name}.{ending}")));
        self.kubeconfig(server, &json!({ "client-certificate-data": certificate, "client-key-data": key }))
    }

    fn kubeconfig(&self, server: &str, user: &Value) -> String {
        let authority = self.data("ca.crt");
        let cluster = json!({ "server": format!("https://{server}"), "certificate-authority-data": authority });
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "c", "user": user }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
        })
        .to_string()
    }

    /// A file as a kubeconfig has it.
    fn data(&self, file: &str) -> String {
        let bytes = fs::read(self.path(file)).expect("openssl wrote it");
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
    }
}

/// The last lines of the API server's log.
fn log_of(dir: &Path) -> String {
    let log = fs::read_to_string(dir.join("kube-apiserver.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    format!("the control plane has ended:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.running.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
