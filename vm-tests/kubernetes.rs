//! A node of a Kubernetes cluster upgrades itself: it is cordoned and drained before, and ready and uncordoned
//! afterwards. It is a Debian with kubelet, containerd, the only member of an etcd, and `slipwayd`. The API server is
//! real, and runs on the machine that runs the tests. There is no scheduler and no controller: the test binds pods to
//! the node, and nothing makes them anew.
//!
//! Subject: fleet/slipwayd/src/machine/kube.rs fleet/slipwayd/src/machine/units.rs fleet/node/src

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use slipway_test_support::images::{Image, Layer, Layout, Pack, Tar};
use tempfile::TempDir;

use crate::{
    cluster::Cluster,
    medium::Medium,
    node::{
        NEED, NODE_PROGRAMS, PROVE, config, containerd_service, disk_of, expect_end, image_of, programs, script,
        with_etcd, with_medium,
    },
    own_debian::{self, with_file, with_unit},
    qemu::{Firmware, Machine},
    terminal::Terminal,
    world::{VERSION, VERSION_2, run, scratch_dir},
};

/// The node's name.
const NODE: &str = "node";
/// The programs that run in pods, and in their sandboxes.
const IMAGE: &str = "test.invalid/busybox:1";
const KUBERNETES: &str = r#"
[containerd]
kubelet = "kubelet.service"
[kubernetes]
node = "node"
kubeconfig = "/etc/kubernetes/kubelet.conf"
"#;
const CONTAINERD: &str = r#"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "test.invalid/busybox:1"
"#;
/// Without it containerd says that it has no network. The pods here have the node's.
const CNI: &str = r#"{ "cniVersion": "0.3.1", "name": "none", "type": "loopback" }"#;
const KUBELET: &str = "kubelet --config /etc/kubernetes/kubelet.json --kubeconfig /etc/kubernetes/kubelet.conf \
    --hostname-override node --root-dir /system/ephemeral/kubelet --container-runtime remote \
    --container-runtime-endpoint unix:///run/containerd/containerd.sock";

stories! {
    /// First start: the kubelet's Node is ready, and runs a pod of a ReplicaSet and one of a DaemonSet. `slipwayctl
    /// upgrade` cordons the Node and evicts the first pod; the second stays. Second: the Node is still cordoned when
    /// the trial boots. Then the upgrade reaches its goal and slot B is the default; the Node is ready with a new boot
    /// id, is not cordoned, and has no annotation of ours; containerd runs the DaemonSet's pod again.
    a_node_of_a_cluster_upgrades_itself: campaign Bios, campaign Uefi => upgrades;
}

/// The node is cordoned, one pod is evicted, the other one ends with the services; after the reboot the kubelet is ready,
/// and the node is uncordoned.
fn upgrades(firmware: Firmware) {
    let cluster = Cluster::start();
    let credentials = cluster.kubelet(NODE);
    let (old, next) = (node(VERSION, &credentials), node(VERSION_2, &credentials));
    let (image, medium) = (image_of(old.path()), Medium::with_payload(next.path()));
    let machine = Machine::new(firmware).memory(3072).drive(&disk_of(&image).kept()).drive(&medium.drive());
    let mut at = Terminal::attach(machine.test_net(&cluster.servers()));
    at.logs_in('A', 0);
    cluster.expect(&["get", "node", NODE], " Ready ");
    let before = boot_id(&cluster);
    for (name, owner) in [("web", "ReplicaSet"), ("agent", "DaemonSet")] {
        cluster.create(&pod(name, owner));
        cluster.expect(&["get", "pod", name], "Running");
    }
    // For who reads the console of a test that failed.
    at.runs("{ slipwayctl watch >/dev/console 2>&1 </dev/null & }");
    at.runs("slipwayctl upgrade dir:/mnt/payload --allow-outage");
    cluster.expect(&["get", "node", NODE], "SchedulingDisabled");
    at.console.wait_for("slipway: slot B try=1: booting");
    assert_eq!(cluster.kubectl(&["get", "pods", "-o", "name"]).trim(), "pod/agent", "the other one was evicted");
    assert!(cluster.kubectl(&["get", "node", NODE]).contains("SchedulingDisabled"), "it is back before it is well");
    expect_end(&mut at, "reached its goal");
    let says = cluster.kubectl(&["get", "node", NODE, "-o", "json"]);
    let says: Value = serde_json::from_str(&says).expect("kubectl prints JSON");
    assert_eq!(says["spec"].get("unschedulable"), None, "{says}");
    let annotations = says["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("slipway"), "{annotations}");
    assert!(cluster.kubectl(&["get", "node", NODE]).contains(" Ready "));
    assert_ne!(boot_id(&cluster), before, "the kubelet has told of the new boot");
    // What belongs to the node is started again.
    at.asks_for_login('B', 1);
    at.runs("until ctr -n k8s.io tasks ls | grep -q RUNNING; do sleep 1; done");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('B', false), "{console}");
}

fn boot_id(cluster: &Cluster) -> String {
    cluster.kubectl(&["get", "node", NODE, "-o", "jsonpath={.status.nodeInfo.bootID}"])
}

/// A pod on the node, which belongs to this kind of object.
fn pod(name: &str, owner: &str) -> Value {
    let uid = "00000000-0000-4000-8000-000000000000";
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": owner, "name": name, "uid": uid, "controller": true }
            ],
        },
        "spec": {
            "nodeName": NODE, "hostNetwork": true, "terminationGracePeriodSeconds": 5, "enableServiceLinks": false,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": name, "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", "trap exit TERM; while :; do sleep 1; done"],
            }],
        },
    })
}

/// A version of the node, with what its kubelet needs.
fn node(version: &str, credentials: &str) -> TempDir {
    let need = [NEED, &["containerd.service", "kubelet.service"]].concat();
    // The pods' groups are those of the kubelet's service: nothing here is to be shared out.
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "cgroupsPerQOS": false, "enforceNodeAllocatable": [], "failSwapOn": false, "makeIPTablesUtilChains": false,
        "evictionHard": { "memory.available": "1Mi" }, "imageGCHighThresholdPercent": 100, "resolvConf": "",
    });
    let service = format!("Restart=always\nRestartSec=2\nKillMode=process\nExecStart={KUBELET}");
    let script = [
        with_etcd(),
        script(&(config(&need, PROVE) + KUBERNETES)),
        with_medium(),
        containerd_service(CONTAINERD, "\nExecStartPost=ctr -n k8s.io images import /usr/bin/busybox.tar"),
        // containerd copies it into each pod that has the node's network.
        with_file("/etc/hosts", 0o644, "127.0.0.1 localhost"),
        with_file("/etc/cni/net.d/10-none.conf", 0o644, CNI),
        with_file("/etc/kubernetes/kubelet.json", 0o644, &kubelet.to_string()),
        with_file("/etc/kubernetes/kubelet.conf", 0o600, credentials),
        with_unit(
            "kubelet",
            &format!("Wants=containerd.service\nAfter=containerd.service\n[Service]\n{service}"),
            "multi-user",
        ),
    ];
    let (archive, mut programs) = (busybox(), programs(&NODE_PROGRAMS));
    programs.extend([archive.1, crate::world::World::get().node_program("kubelet")]);
    own_debian::version(version, &script.concat(), &programs)
}

/// An image with a busybox that sleeps, `busybox.tar`, in a directory.
fn busybox() -> (TempDir, PathBuf) {
    let dir = scratch_dir();
    let program = fs::read("/bin/busybox").expect("hack/test installs a static busybox");
    let mut image =
        Image::new(vec![Layer::new(Tar::new().dir("bin/").program("bin/busybox", &program).end(), Pack::Plain)]);
    image.edit_config = |config| config["config"]["Entrypoint"] = json!(["/bin/busybox", "sleep", "1000000"]);
    let layout = Layout::new(&dir.path().join("image"));
    image.write(&layout, IMAGE);
    let archive = dir.path().join("busybox.tar");
    let args = ["-C".as_ref(), layout.0.as_os_str(), "-cf".as_ref(), archive.as_os_str(), ".".as_ref()];
    run("tar", args);
    (dir, archive)
}
