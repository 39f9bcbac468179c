//! A client that is not ours: Python's grpcio, made from Talos' own .proto files.
//!
//! Needs: `fleet/hack/parts talos`; says NOT RUN without it.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};
use slipway_node::{request::Goal, sequence::Outcome};
use slipway_node_api::machine::{EtcdMember, EtcdMemberAlarm, EtcdMemberStatus};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    certificates::Pair,
    recorder::{Etcd, Then},
    site::Site,
};

/// The client's Python; `None`, and said so, if there is none.
fn python() -> Option<PathBuf> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/parts/talos/bin/python");
    let python = std::env::var_os("SLIPWAY_TALOS_PYTHON").map_or(made, PathBuf::from);
    if !python.exists() {
        // Not by a macro: what a test prints that passes is not shown.
        std::io::stderr().write_all(b"NOT RUN: no client of Talos; fleet/hack/parts talos makes it\n").unwrap();
        return None;
    }
    Some(python)
}

/// The client, connected with a certificate.
struct Foreign {
    calls: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// It ends with this.
    _child: Child,
}

impl Foreign {
    fn start(python: &Path, site: &Site, pair: &Pair) -> Self {
        let at = |name: &str| site.dir.path().join(name);
        fs::write(at("client.crt"), &pair.certificate).unwrap();
        fs::write(at("client.key"), &pair.key).unwrap();
        let mut child = Command::new(python)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/talos.py"))
            .arg(site.address.to_string())
            .args([at("ca.crt"), at("client.crt"), at("client.key")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (calls, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { calls, answers: BufReader::new(answers).lines(), _child: child }
    }

    /// The answer to a call, whatever it is.
    async fn ask(&mut self, call: Value) -> Value {
        self.calls.write_all(format!("{call}\n").as_bytes()).await.unwrap();
        let answer = self.answers.next_line().await.unwrap().expect("the client has ended, see above");
        serde_json::from_str(&answer).unwrap()
    }

    /// The answer to a call that is answered.
    async fn call(&mut self, call: &str, request: Value) -> Value {
        let answer = self.ask(json!({"call": call, "request": request})).await;
        answer.get("ok").unwrap_or_else(|| panic!("{call}: {answer}")).clone()
    }

    /// Why a call is refused: gRPC's name for it, and ours.
    async fn refusal(&mut self, call: &str, request: Value) -> [String; 2] {
        let answer = self.ask(json!({"call": call, "request": request})).await;
        ["error", "reason"].map(|key| answer[key].as_str().unwrap_or_else(|| panic!("{call}: {answer}")).to_owned())
    }
}

#[tokio::test]
async fn it_upgrades_and_watches() {
    let Some(python) = python() else { return };
    let site = Site::new().await;
    let mut client = Foreign::start(&python, &site, &site.admin());
    let version = &client.call("Version", json!({})).await["messages"][0];
    assert_eq!((&version["metadata"]["hostname"], &version["version"]["tag"]), (&json!("node-1"), &json!("v1.4.0")));
    assert_eq!((&version["platform"]["mode"], &version["features"]["rbac"]), (&json!("metal"), &json!(true)));
    let boot = client.call("Read", json!({"path": "/proc/sys/kernel/random/boot_id"})).await;
    assert_eq!(boot, json!([{"bytes": "Ym9vdC0xCg=="}]), "boot-1 and a newline");

    let request = json!({"image": "registry/os:2", "preserve": true, "stage": true, "reboot_mode": "POWERCYCLE"});
    let upgrade = client.call("Upgrade", request).await["messages"][0].clone();
    let asked = site.node.journal.lock().unwrap().operation.clone().unwrap().request;
    assert_eq!((asked.goal, asked.source.as_str()), (Goal::Upgrade, "docker://registry/os:2"));
    assert!(asked.preserve && !asked.allow_outage && asked.caller == "alice");
    assert_eq!(upgrade["actor_id"], json!(asked.id.to_string()));
    assert_eq!(client.refusal("Rollback", json!({})).await, ["FAILED_PRECONDITION", "busy"]);
    site.node.end(Outcome::Reached);

    *site.node.then.lock().unwrap() = Then::Ends(Outcome::CameBack("it is not well".to_owned()));
    let request = json!({"image": "registry/os:3", "preserve": true, "force": true});
    let second = client.call("Upgrade", request).await["messages"][0]["actor_id"].clone();
    let watch = json!({"tail_events": 4, "with_actor_id": second});
    let told = client.ask(json!({"call": "Events", "request": watch, "most": 5})).await["ok"].clone();
    assert_eq!(told[0]["actor_id"], second, "the first is empty");
    let data = |at: usize| told[at]["data"].clone();
    let why = "it is not well";
    let error = json!({"message": why});
    let sequence = "talos/runtime/machine.SequenceEvent";
    assert_eq!(data(1), json!({"@type": "talos/runtime/machine.PhaseEvent", "phase": "uncordon", "action": "STOP"}));
    assert_eq!(data(2), json!({"@type": sequence, "sequence": "upgrade", "error": error}));
    assert_eq!(data(3), json!({"@type": sequence, "sequence": "upgrade", "action": "STOP", "error": error}));
    let unmet = json!([{"name": "upgrade", "reason": why}]);
    let status = "talos/runtime/machine.MachineStatusEvent";
    assert_eq!(data(4), json!({"@type": status, "stage": "RUNNING", "status": {"unmet_conditions": unmet}}));

    *site.node.then.lock().unwrap() = Then::Stays;
    for (call, request, goal) in [("Rollback", json!({}), Goal::Rollback), ("Reboot", json!({}), Goal::Reboot)] {
        let answer = client.call(call, request).await;
        let asked = site.node.journal.lock().unwrap().operation.clone().unwrap().request;
        assert_eq!(asked.goal, goal);
        // In Talos' own message of a rollback there is no name of the operation.
        let actor = if goal == Goal::Rollback { Value::Null } else { json!(asked.id.to_string()) };
        assert_eq!(answer["messages"][0]["actor_id"], actor);
        site.node.end(Outcome::Reached);
    }
}

#[tokio::test]
async fn it_reads_logs_and_etcd() {
    let Some(python) = python() else { return };
    let site = Site::new().await;
    let urls = |port| vec![format!("https://m0:{port}")];
    let member = EtcdMember {
        id: u64::MAX,
        hostname: "m0".to_owned(),
        peer_urls: urls(2380),
        client_urls: urls(2379),
        is_learner: true,
    };
    let status = EtcdMemberStatus { member_id: u64::MAX, leader: 7, db_size: 20, ..Default::default() };
    let alarms = vec![EtcdMemberAlarm { member_id: 7, alarm: 1 }];
    let members = vec![member.clone(), EtcdMember { id: 7, hostname: "m1".to_owned(), ..member }];
    let mut client = Foreign::start(&python, &site, &site.admin());
    assert_eq!(client.refusal("EtcdMemberList", json!({})).await, ["UNIMPLEMENTED", "not-here"]);
    *site.node.etcd.lock().unwrap() = Some(Etcd { members, status, alarms });
    let id = u64::MAX.to_string();
    let list = client.call("EtcdMemberList", json!({"query_local": true})).await;
    let first =
        json!({"id": id, "hostname": "m0", "peer_urls": urls(2380), "client_urls": urls(2379), "is_learner": true});
    assert_eq!(list["messages"][0]["members"][0], first);
    let status = client.call("EtcdStatus", json!({})).await;
    let member = json!({"member_id": id, "leader": "7", "db_size": "20"});
    assert_eq!(status, json!({"messages": [{"member_status": member}]}));
    let alarms = client.call("EtcdAlarmList", json!({})).await;
    let alarm = json!({"member_id": "7", "alarm": "NOSPACE"});
    assert_eq!(alarms, json!({"messages": [{"member_alarms": [alarm]}]}));
    let leader = client.call("EtcdForfeitLeadership", json!({})).await;
    assert_eq!(leader, json!({"messages": [{"member": "m1"}]}));
    let lines = json!([{"bytes": "b25lCg=="}, {"bytes": "dHdvCg=="}]);
    let logs = json!({"namespace": "system", "id": "kubelet", "driver": "CONTAINERD", "tail_lines": -1});
    assert_eq!(client.call("Logs", logs).await, lines, "one and two");
    assert_eq!(client.call("Dmesg", json!({})).await, lines);
}

#[tokio::test]
async fn it_is_refused_in_its_own_words() {
    let Some(python) = python() else { return };
    let site = Site::new().await;
    let mut client = Foreign::start(&python, &site, &site.ca.client("bob", Some("slipway:reader"), 3));
    assert_eq!(client.refusal("Read", json!({"path": "/etc/shadow"})).await, ["UNIMPLEMENTED", "not-here"]);
    assert_eq!(client.refusal("Reset", json!({})).await, ["UNIMPLEMENTED", "not-here"]);
    let forbidden = ["PERMISSION_DENIED", "forbidden"];
    for call in ["Upgrade", "Rollback", "Reboot", "EtcdForfeitLeadership"] {
        assert_eq!(client.refusal(call, json!({})).await, forbidden, "{call}");
    }
    assert_eq!(site.node.calls(), ["status"], "the boot id is a part of it");
    let mut stranger = Foreign::start(&python, &site, &site.ca.client("eve", Some("os:admin"), 4));
    for call in ["Version", "Events", "Read", "Logs", "Dmesg", "EtcdMemberList", "EtcdStatus", "EtcdAlarmList"] {
        assert_eq!(stranger.refusal(call, json!({})).await, forbidden, "{call}");
    }
}
