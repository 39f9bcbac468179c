//! Pods end, and their volumes are free, before containerd does.

use std::{
    fs,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use slipwayd::machine::pods::Pods;

use crate::{
    daemon::{Containerd, is_here, kill, lives, stop},
    starts::Kubelet,
};

/// More than any machine takes to end what wants to end.
const LONG: Duration = Duration::from_secs(600);

/// Says that it runs, and ends when it is asked to, which it says, too.
pub const WILLING: &str = "trap 'echo asked >/volume/$NAME.asked; exit 0' TERM; echo >/volume/$NAME.runs; \
                       while :; do /bin/busybox sleep 1000000 & wait; done";
/// Says that it runs, and does not hear.
const DEAF: &str = "trap '' TERM; echo >/volume/$NAME.runs; while :; do /bin/busybox sleep 1000000; done";

fn pods(containerd: &Containerd, grace: Duration) -> Pods {
    Pods::new(containerd.socket(), grace).unwrap()
}

/// Start a pod, and come back when its container runs.
pub fn start(kubelet: &Kubelet, name: &str, script: &str, volume: &Path) {
    kubelet.start(name, &script.replace("$NAME", name), volume);
    while !volume.join(format!("{name}.runs")).exists() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// A directory that stands for a volume.
pub fn volume(containerd: &Containerd) -> PathBuf {
    let volume = containerd.path("volume");
    fs::create_dir(&volume).unwrap();
    volume
}

#[test]
fn pods_are_asked_to_end_and_do() {
    if !is_here() {
        return;
    }
    let containerd = Containerd::start();
    let (kubelet, volume) = (Kubelet::new(&containerd.socket()), volume(&containerd));
    let pods = pods(&containerd, LONG);
    assert_eq!(pods.stop(), Ok(()), "there are none");
    for name in ["etcd-node-1", "storage"] {
        start(&kubelet, name, WILLING, &volume);
    }
    let tasks = containerd.tasks("k8s.io");
    assert_eq!(tasks.len(), 4, "two sandboxes with a container each: {tasks:?}");
    assert_eq!(pods.stop(), Ok(()));
    for name in ["etcd-node-1", "storage"] {
        assert_eq!(fs::read_to_string(volume.join(format!("{name}.asked"))).unwrap(), "asked\n");
    }
    assert!(tasks.iter().all(|(_, pid)| !lives(*pid)), "{tasks:?}");
    assert_eq!(containerd.tasks("k8s.io"), []);
    assert_eq!(pods.stop(), Ok(()), "the step may come twice");
    // A process outside of pods does not count here.
    assert!(containerd.shims().is_empty());
}

#[test]
fn a_pod_that_does_not_hear_is_killed() {
    if !is_here() {
        return;
    }
    let containerd = Containerd::start();
    let (kubelet, volume) = (Kubelet::new(&containerd.socket()), volume(&containerd));
    start(&kubelet, "deaf", DEAF, &volume);
    let tasks = containerd.tasks("k8s.io");
    assert_eq!(pods(&containerd, Duration::from_secs(1)).stop(), Ok(()));
    assert!(tasks.len() == 2 && tasks.iter().all(|(_, pid)| !lives(*pid)), "{tasks:?}");
}

/// The shim hangs, which is who ends a container: the step does not say that it is done, and names the pod.
#[test]
fn a_pod_that_cannot_be_ended_is_named() {
    if !is_here() {
        return;
    }
    let containerd = Containerd::start();
    let (kubelet, volume) = (Kubelet::new(&containerd.socket()), volume(&containerd));
    start(&kubelet, "stuck", WILLING, &volume);
    let pods = pods(&containerd, Duration::from_secs(1));
    let shims = containerd.shims();
    assert_eq!(shims.len(), 1, "a sandbox and its containers have one");
    stop(shims[0]);
    let refused = pods.stop().unwrap_err();
    assert!(refused.contains("1 pods still run: kube-system/stuck: "), "{refused}");
    kill("-CONT", shims[0]);
    // It goes on where it hung.
    while pods.stop().is_err() {
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(containerd.tasks("k8s.io"), []);
}

#[test]
fn pods_that_have_outlived_containerd_are_seen() {
    if !is_here() {
        return;
    }
    let mut containerd = Containerd::start();
    let (kubelet, volume) = (Kubelet::new(&containerd.socket()), volume(&containerd));
    let pods = pods(&containerd, LONG);
    start(&kubelet, "left", WILLING, &volume);
    let tasks = containerd.tasks("k8s.io");
    containerd.stop();
    assert!(tasks.iter().all(|(_, pid)| lives(*pid)), "they do not end with it: {tasks:?}");
    let refused = pods.stop().unwrap_err();
    assert!(refused.contains("containerd does not run, and 1 pods do"), "{refused}");
    assert!(tasks.iter().any(|(sandbox, _)| refused.contains(sandbox)), "{refused}");
    containerd.again();
    assert_eq!(pods.stop(), Ok(()));
    assert!(tasks.iter().all(|(_, pid)| !lives(*pid)), "{tasks:?}");
    containerd.stop();
    assert_eq!(pods.stop(), Ok(()), "containerd was stopped by this step, which comes again after a crash");
}

/// Nobody takes the connections out of its queue, and one day that is full.
#[test]
fn a_containerd_that_hangs_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("containerd.sock");
    let hangs = UnixListener::bind(&socket).unwrap();
    let (tell, told) = mpsc::channel();
    let path = socket.clone();
    let fills = thread::spawn(move || while UnixStream::connect(&path).is_ok() && tell.send(()).is_ok() {});
    while told.recv_timeout(Duration::from_secs(1)).is_ok() {}
    let refused = Pods::new(socket, LONG).unwrap().stop().unwrap_err();
    assert!(refused.contains("containerd does not answer"), "{refused}");
    drop(hangs);
    fills.join().unwrap();
}
