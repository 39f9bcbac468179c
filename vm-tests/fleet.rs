//! Two machines follow a channel: a push to a registry upgrades both, one after the other, and a bad release ends at
//! its canary. The machines are QEMU's, each with its own firmware. `slipwayd`, the controller, API server, etcd and
//! registry are real. There is no kubelet: the test makes the Nodes, and says that they are ready.
//!
//! Subject: fleet/controller/src fleet/rollout/src fleet/channel/src fleet/slipwayd/src fleet/node/src

use std::{
    env, fs,
    path::Path,
    process::{Child, Command},
};

use serde_json::{Value, json};
use slipway_test_support::{
    images::{self, Pack},
    port::free_port,
    registry::Authority,
};
use tempfile::TempDir;

use crate::{
    cluster::Cluster,
    image::Image,
    node::{PROVE, PROVE_SICK, disk_of, image_of, programs, script},
    own_debian::{self, with_file},
    qemu::{Firmware, Machine},
    tags::Tags,
    terminal::Terminal,
    world::{VERSION, VERSION_2, World, run, scratch_dir},
};

/// The version that the bad release says that it is.
const VERSION_3: &str = "1.2.0";
/// Set for the picture of the rollout.
const PICTURE: &str = "SLIPWAY_PICTURE";
const NODES: [&str; 2] = ["n1", "n2"];
/// The serial number of a machine's disk is the name of the node.
const CONFIG: &str = r#"
node = "NAME"
[api.tls]
certificate = "/etc/slipway/NAME.crt"
key = "/etc/slipway/NAME.key"
ca = "/etc/slipway/ca.crt"
[registry]
plain_http = true
mirrors = ["registry.example=http://10.0.2.100:5000"]
[kubernetes]
node = "NAME"
kubeconfig = "/etc/slipway/NAME.conf"
[services]
need = NEED
soak = "5s"
[limits]
prove = PROVE
"#;
/// The parts that every node needs to be well.
const NEED: &str = "ssh.service";

/// First and second start: one machine under BIOS and one under UEFI run the first release, and the channel finds it in
/// the registry: the pool is up to date. Third and fourth: a push upgrades both, one after the other. Fifth: the canary
/// tries a release that is never well, and comes back by itself. The pool says that it is denied, no grant is left, and
/// the other machine has not booted again.
#[test]
#[ignore = "campaign"]
fn a_fleet_of_two_follows_its_channel_and_a_bad_release_ends_at_its_canary() {
    follows();
}

fn follows() {
    let site = Site::new();
    let (first, next) = (site.version(VERSION, &[NEED], PROVE), site.version(VERSION_2, &[NEED], PROVE));
    let bad = site.version(VERSION_2, &[NEED, "db.service"], PROVE_SICK);
    let image = image_of(first.path());
    let disks = [image.copy(), image];
    let firmware = [Firmware::Bios, Firmware::Uefi];
    let mut terminals: Vec<_> = (0..2).map(|n| site.machine(n, firmware[n], &disks[n])).collect();
    for at in &mut terminals {
        at.logs_in('A', 0);
    }
    site.push(first.path(), VERSION);
    let _controller = site.controller();
    site.make_objects();
    let mut picture = site.picture();
    site.expect("UpToDate 2");

    say("push: registry.example/os has a new release");
    site.push(next.path(), VERSION_2);
    // One after the other: the canary, its soak, and the second one.
    for state in ["Running 0", "Running 1", "UpToDate 2"] {
        site.expect(state);
    }
    for at in &mut terminals {
        at.console.wait_for("slipway: slot B try=1: booting");
        at.asks_for_login('B', 1);
        // Who boots again has forgotten it.
        at.runs("boot=this");
    }

    say("push: a release whose db.service never starts");
    site.push(bad.path(), VERSION_3);
    site.expect("Denied 0");
    site.cluster
        .expect(&["get", "disruptionledger", "cluster", "-o", "jsonpath=grants: {.status.grants}"], "grants: []");
    let canary = site.canary();
    let at = &mut terminals[canary];
    at.console.wait_for("slipway: slot A try=1: booting");
    at.console.wait_for("slipway: slot B try=0: booting");
    at.asks_for_login('B', 0);
    at.runs("slipwayctl status | grep 'db.service is inactive'");
    terminals[1 - canary].runs("test \"$boot\" = this");
    for (at, disk) in terminals.into_iter().zip(disks) {
        let console = at.console.switch_off();
        assert_eq!(disk.next_boot(), ('B', false), "{console}");
    }
    let ended = picture.as_mut().and_then(|picture| picture.0.try_wait().expect("it is a child"));
    assert_eq!(ended, None, "the picture of the rollout was shown to the end");
}

/// All that is around the machines.
struct Site {
    cluster: Cluster,
    tags: Tags,
    /// The certificates of nodes and controller.
    pki: TempDir,
    /// Where nodes listen: the controller knows one port for all.
    port: u16,
}

/// The manifests as an API server of 1.20 knows them: it has the beta of this group, which says the same.
fn manifests() -> TempDir {
    let dir = scratch_dir();
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("fleet/manifests");
    run("cp", [Path::new("-r"), &ours, dir.path()]);
    let path = dir.path().join("manifests/deployment.yaml");
    let text = fs::read_to_string(&path).expect("the deployment is one of them");
    assert!(text.contains("apiVersion: policy/v1\n"), "the budget is not where it was");
    fs::write(&path, text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")).expect("there is room");
    dir
}

impl Site {
    fn new() -> Self {
        let (cluster, pki) = (Cluster::start(), scratch_dir());
        cluster.applies(&manifests().path().join("manifests"));
        let authority = Authority::new(pki.path());
        authority.certify("tls", "/O=slipway:controller/CN=slipway-fleet", "DNS:slipway-fleet");
        for (n, name) in NODES.iter().enumerate() {
            authority.certify(name, &format!("/CN={name}"), &format!("IP:{}", address(n)));
        }
        Site { cluster, tags: Tags::new(), pki, port: free_port() }
    }

    /// A version that is well when these units are active, within so many seconds. It is the same for every node: each
    /// finds its own part by the serial number of its disk.
    fn version(&self, version: &str, need: &[&str], prove: u64) -> TempDir {
        let config = CONFIG.replace("NEED", &format!("{need:?}")).replace("PROVE", &prove.to_string());
        let mut script = script(&config);
        script += "sed -i \"s/NAME/$(cat /sys/block/vda/serial)/\" \"$rootmnt/etc/slipway/slipwayd.toml\"\n";
        let file = |name: &str| {
            let text = fs::read_to_string(self.pki.path().join(name)).expect("openssl wrote it");
            with_file(&format!("/etc/slipway/{name}"), 0o600, text.trim())
        };
        script += &file("ca.crt");
        for name in NODES {
            script += &file(&format!("{name}.crt"));
            script += &file(&format!("{name}.key"));
            script += &with_file(&format!("/etc/slipway/{name}.conf"), 0o600, &self.cluster.kubelet(name));
        }
        own_debian::version(version, &script, &programs(&[]))
    }

    fn machine(&self, n: usize, firmware: Firmware, disk: &Image) -> Terminal {
        let [api] = self.cluster.servers();
        let servers = [api, (5000, self.tags.registry.port)];
        let machine = Machine::new(firmware).memory(1024).drive(&disk_of(disk).serial(NODES[n]).kept());
        Terminal::attach(machine.served_net(&servers, &format!("{}:{}", address(n), self.port), 50000))
    }

    /// Push a payload, under its version as the tag.
    fn push(&self, payload: &Path, version: &str) {
        self.tags.push(&images::built(payload, Pack::Gzip), version);
    }

    /// The controller, with the rights of the manifests.
    fn controller(&self) -> Running {
        let mut command = Command::new(World::get().node_program("slipway-fleet"));
        command.env("KUBECONFIG", self.cluster.service_account("slipway-fleet", "slipway-fleet"));
        command.arg("--pki").arg(self.pki.path()).args(["--port", &self.port.to_string(), "--plain-http"]);
        command.args(["--mirror", &format!("registry.example=http://127.0.0.1:{}", self.tags.registry.port)]);
        command.arg("--listen").arg(format!("127.0.0.1:{}", free_port()));
        Running(command.spawn().expect("it can be started"))
    }

    /// The rollout as it goes, on the terminal of `hack/demo fleet`.
    fn picture(&self) -> Option<Running> {
        let _ = env::var_os(PICTURE)?;
        let mut command = Command::new(World::get().node_program("slipwayctl"));
        command.args(["fleet", "status", "--watch", "--kubeconfig"]).arg(self.cluster.admin());
        Some(Running(command.spawn().expect("it can be started")))
    }

    /// What an administrator writes, and what the kubelets would say.
    fn make_objects(&self) {
        for (n, name) in NODES.iter().enumerate() {
            let ready = json!({ "type": "Ready", "status": "True" });
            let status =
                json!({ "conditions": [ready], "addresses": [{ "type": "InternalIP", "address": address(n) }] });
            self.cluster.create(&json!({
                "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "pool": "workers" } },
                "status": status,
            }));
        }
        let make = |kind: &str, name: &str, spec: Value| {
            let api = "fleet.slipway.dev/v1alpha1";
            self.cluster
                .create(&json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name }, "spec": spec }));
        };
        let select = json!({ "tags": "*" });
        make("Channel", "all", json!({ "repository": "registry.example/os", "select": select, "interval": "5s" }));
        make("UpgradePolicy", "canary", json!({ "maxUnavailable": 1, "steps": [{ "nodes": 1, "soak": "5s" }] }));
        let selector = json!({ "pool": "workers" });
        let pool = json!({ "nodeSelector": selector, "policies": ["canary"], "target": { "channel": "all" } });
        make("NodePool", "workers", pool);
    }

    /// Wait until the pool is in this state, with so many nodes done.
    #[track_caller]
    fn expect(&self, state: &str) {
        let look = "jsonpath={.status.state} {.status.done}: {.status.message}";
        self.cluster.expect(&["get", "npool", "workers", "-o", look], state);
        eprintln!("the pool: {}", self.cluster.kubectl(&["get", "npool", "workers", "-o", look]));
    }

    /// The node of the plan's first wave.
    fn canary(&self) -> usize {
        let wave = self.cluster.kubectl(&["get", "nodeupgrade", NODES[0], "-o", "jsonpath={.status.wave}"]);
        if wave == "1" { 0 } else { 1 }
    }
}

/// A program that runs. It is killed with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What happens next, in the output of the story.
fn say(text: &str) {
    eprintln!("\n==> {text}\n");
}

/// Where a node is reached.
fn address(n: usize) -> String {
    format!("127.0.1.{}", n + 1)
}
