//! The gate of what etcd and kubelets show in a handshake. A second etcd with certificates is real; it stands in for the
//! kubelet, too, of which only the port of a TLS server counts.

use std::{
    fs::{self, File},
    io::Write as _,
    net::TcpListener,
    path::Path,
    process::{Child, Command},
    thread,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use slipway_test_cluster as server;
use slipway_test_support::port::free_port;
use tempfile::TempDir;

use crate::{
    gates::{in_days, preview, refuses},
    site::{NEW, Site},
};

const OPEN: &str = "gate serving-certificates: open\n";
const GATE: &str = "serving-certificates";
/// The address of the node n1.
const ADDRESS: &str = "127.0.2.1";

/// An etcd whose certificates expire after so many days, for clients and for other members.
struct Member {
    child: Child,
    client: u16,
    peer: u16,
    _dir: TempDir,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn certificate(dir: &Path, name: &str, days: i64) -> [String; 2] {
    let mut params = CertificateParams::new([ADDRESS.to_owned()]).unwrap();
    let (year, month, day) = in_days(days);
    params.not_after = rcgen::date_time_ymd(year, month, day);
    let key = KeyPair::generate().unwrap();
    let (crt, pem) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    fs::write(&crt, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&pem, key.serialize_pem()).unwrap();
    [crt, pem].map(|path| path.to_str().unwrap().to_owned())
}

impl Member {
    fn start([of_client, of_peer]: [i64; 2]) -> Self {
        let (dir, client, peer) = (TempDir::new().unwrap(), free_port(), free_port());
        let url = |port: u16| format!("https://{ADDRESS}:{port}");
        let [crt, key] = certificate(dir.path(), "client", of_client);
        let [peer_crt, peer_key] = certificate(dir.path(), "peer", of_peer);
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new(server::part("SLIPWAY_ETCD", "etcd"))
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("default={}", url(peer))])
            // As kubeadm has it: who shows no certificate gets nothing.
            .args(["--cert-file", &crt, "--key-file", &key, "--client-cert-auth", "--trusted-ca-file", &crt])
            .args(["--peer-cert-file", &peer_crt, "--peer-key-file", &peer_key, "--peer-trusted-ca-file", &peer_crt])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        for port in [client, peer] {
            while std::net::TcpStream::connect((ADDRESS, port)).is_err() {
                thread::yield_now();
            }
        }
        Self { child, client, peer, _dir: dir }
    }
}

/// The kubelet of this node shows the pod etcd-n1, started with these addresses.
fn shows(site: &Site, node: &str, client: &str, peer: &str) {
    let pods: Api<Pod> = Api::namespaced(site.client(), "kube-system");
    let words = ["etcd", "--advertise-client-urls", client, &format!("--initial-advertise-peer-urls={peer}")];
    let pod: Value = json!({
        "metadata": { "name": "etcd-n1", "annotations": { "kubernetes.io/config.mirror": "1" } },
        "spec": { "nodeName": node, "containers": [{ "name": "etcd", "image": "etcd", "command": words }] },
    });
    let hides = DeleteParams::default().grace_period(0);
    let _ = site.runtime.block_on(pods.delete("etcd-n1", &hides));
    site.runtime.block_on(pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())).unwrap();
}

fn kubelet(site: &Site, port: Option<u16>) {
    let nodes: Api<Node> = Api::all(site.client());
    let endpoints = port.map(|port| json!({ "kubeletEndpoint": { "Port": port } }));
    let patch = Patch::Merge(json!({ "status": { "daemonEndpoints": endpoints } }));
    site.runtime.block_on(nodes.patch_status("n1", &PatchParams::default(), &patch)).unwrap();
}

pub fn check(site: &Site) {
    let url = |port: u16| format!("https://{ADDRESS}:{port}");
    let well = Member::start([9, 9]);
    // A loopback address means the node's own.
    shows(site, "n1", &format!("https://127.0.0.1:{}", well.client), &url(well.peer));
    kubelet(site, Some(well.client));
    assert!(preview(site).contains(OPEN), "{}", preview(site));
    for (days, wrong) in [([4, 9], 0), ([9, 4], 1), ([-1, 9], 0)] {
        let member = Member::start(days);
        shows(site, "n1", &url(member.client), &url(member.peer));
        let text = refuses(site, GATE);
        let port = [member.client, member.peer][wrong];
        let why = format!("etcd at {ADDRESS}, port {port}, shows a certificate that expires at ");
        assert!(text.contains(&why) && text.contains("renew it first"), "{text}");
        if days == [4, 9] {
            // A worker's kubelet may write a mirror pod of this name, for its own node.
            shows(site, "w1", &url(member.client), &url(member.peer));
            assert!(preview(site).contains(OPEN));
            kubelet(site, Some(member.client));
            assert!(refuses(site, GATE).contains(&format!("the kubelet of n1 at {ADDRESS}, port {port}, shows a")));
            kubelet(site, Some(well.client));
        }
    }
    shows(site, "n1", &url(well.client), &url(well.peer));
    assert!(preview(site).contains(OPEN));
    lies(site, &well);
    kubelet(site, None);
    let pods: Api<Pod> = Api::namespaced(site.client(), "kube-system");
    site.runtime.block_on(pods.delete("etcd-n1", &DeleteParams::default().grace_period(0))).unwrap();
    assert!(preview(site).contains(OPEN));
}

/// A server that takes a connection and says nothing, one that says too much of something else, one that is not there, and
/// addresses that are none.
fn lies(site: &Site, well: &Member) {
    let silent = TcpListener::bind((ADDRESS, 0)).unwrap();
    let talks = TcpListener::bind((ADDRESS, 0)).unwrap();
    let port = |of: &TcpListener| of.local_addr().unwrap().port();
    let (silent_port, talking_port) = (port(&silent), port(&talks));
    thread::spawn(move || {
        for mut client in talks.incoming().map_while(Result::ok) {
            let _ = client.write_all(&vec![b'x'; 10 << 20]);
        }
    });
    for (endpoint, why) in [
        (silent_port, "nothing came within 10 s"),
        (talking_port, "corrupt message"),
        (free_port(), "onnection refused"),
    ] {
        kubelet(site, Some(endpoint));
        let text = refuses(site, GATE);
        assert!(text.contains(why) && text.contains("servingCertificates: false"), "{text}");
    }
    let (code, text) = site.run(&["upgrade", "--to", NEW, "--dry-run", "--no-serving-certificates"]);
    assert!(code == 0 && text.contains(OPEN), "{text}");
    kubelet(site, Some(well.client));
    let address = |of: &str| {
        let nodes: Api<Node> = Api::all(site.client());
        let patch = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": of }] } });
        site.runtime.block_on(nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(patch))).unwrap();
    };
    address("\u{1b}[2J");
    assert!(refuses(site, GATE).contains("n1: its Node has no address as InternalIP"));
    address(ADDRESS);
    let many = (1..100).map(|n| format!("https://10.0.0.{n}:2379")).collect::<Vec<_>>().join(",");
    for (client, why) in [
        ("https://etcd", "\"etcd\" is no address of etcd with a port"),
        ("https://\u{1b}[2Jx:1", "\"\\u{1b}[2Jx:1\" is no address of etcd"),
        (&many, "more than 32 addresses"),
    ] {
        shows(site, "n1", client, &format!("https://{ADDRESS}:{}", well.peer));
        assert!(refuses(site, GATE).contains(why), "{client}");
    }
    shows(site, "n1", &format!("https://{ADDRESS}:{}", well.client), &format!("https://{ADDRESS}:{}", well.peer));
}
