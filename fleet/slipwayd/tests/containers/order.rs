//! The whole step that stops a node: units by `systemctl`, pods by containerd, in the order that is no setting wrongly.
//! There is no systemd here, so a script stands in for `systemctl`; it ends this test's containerd when it is asked to stop
//! containerd's unit.

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command, time::Duration};

use slipway_core::boot::slot::{PerSlot, Slot, SlotState};
use slipway_node::{
    facts::{Disk, Facts},
    operation::{Learned, Operation, Shape, Tried},
    request::{Goal, Request},
    step::Step,
};
use slipwayd::{
    config::{Config, Services},
    machine::{Machine, containerd},
    world::World as _,
};
use uuid::Uuid;

use crate::{
    daemon::{Containerd, is_here, lives},
    node::Heard,
    pods::{WILLING, start, volume},
    starts::Kubelet,
};

/// Where the process that this test starts finds containerd.
const SOCKET: &str = "SLIPWAY_TEST_SOCKET";

#[test]
fn the_kubelet_then_pods_then_others_then_containerd() {
    if !is_here() {
        return;
    }
    let containerd = Containerd::start();
    let volume = volume(&containerd);
    start(&Kubelet::new(&containerd.socket()), "static", WILLING, &volume);
    let tasks = containerd.tasks("k8s.io");
    // The call, and whether the pod was asked to end before it.
    let script = format!(
        "#!/bin/sh\n[ -e {asked} ] && pod=ended || pod=runs\necho \"$*, pod $pod\" >>{log}\n\
         [ \"$3\" != containerd.service ] || kill -TERM {pid}\n",
        asked = volume.join("static.asked").display(),
        log = containerd.path("systemctl.log").display(),
        pid = containerd.pid(),
    );
    let programs = containerd.path("bin");
    fs::create_dir(&programs).unwrap();
    fs::write(programs.join("systemctl"), script).unwrap();
    fs::set_permissions(programs.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut path = vec![programs];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "order::in_a_process_of_its_own", "--ignored", "--nocapture"])
        .env("PATH", env::join_paths(path).unwrap())
        .env(SOCKET, containerd.socket())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let asked = fs::read_to_string(containerd.path("systemctl.log")).unwrap();
    let expected = "stop -- kubelet.service, pod runs\nstop -- other.service, pod ended\n\
                    stop -- containerd.service, pod ended\n";
    // The second time, as after a crash of this program, nothing is left to be done, and containerd does not run.
    assert_eq!(asked, expected.to_owned() + &expected.replace("pod runs", "pod ended"));
    assert!(tasks.len() == 2 && tasks.iter().all(|(_, pid)| !lives(*pid)), "{tasks:?}");
}

/// The step itself. It finds `systemctl` by this process's own PATH.
#[test]
#[ignore = "a part of the test above, which runs it"]
fn in_a_process_of_its_own() {
    let Some(socket) = env::var_os(SOCKET).map(PathBuf::from) else { return };
    let containerd = containerd::Config {
        socket: socket.clone(),
        kubelet: Some("kubelet.service".to_owned()),
        grace: Duration::from_secs(600),
        ..containerd::Config::default()
    };
    let services = Services { stop: vec!["other.service".to_owned()], ..Services::default() };
    let mut machine = Machine::new(Config { services, containerd: Some(containerd), ..Config::default() }).unwrap();
    let disk = Disk {
        versions: PerSlot { a: None, b: None },
        components: PerSlot::default(),
        blank: false,
        running: Slot::A,
        states: PerSlot { a: Some(SlotState::Good), b: Some(SlotState::Empty) },
        payloads: PerSlot { a: None, b: None },
        next: Some(Slot::A),
    };
    let facts = Facts { boot: "a boot".to_owned(), uptime: 1, disk: Some(disk), ..Facts::default() };
    let request = Request::new(Uuid::new_v4(), Goal::Reboot, "a test");
    let op = Operation::new(request, Shape::default(), &facts).unwrap();
    assert_eq!(machine.perform(Step::Stop, &op, &Heard::default()), Tried::Done(Learned::Nothing));
    // It ends by itself, and this process cannot wait for it.
    while std::os::unix::net::UnixStream::connect(&socket).is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(machine.perform(Step::Stop, &op, &Heard::default()), Tried::Done(Learned::Nothing));
}
