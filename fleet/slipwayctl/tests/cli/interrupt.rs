//! `kubernetes upgrade`, interrupted: what becomes of the claim of the fleet's ledger. A stand-in for the API server has that
//! and one Node.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};
use slipway_kubernetes::{
    component::Component,
    facts::{Claim, Direction, Facts},
    images::Images,
    plan::Step,
};
use slipway_kubernetes_upgrade::run::{Happened, Told};
use slipway_node_api::v1::{StaticPod, StaticPodReplacement, StaticPodsResponse};

use crate::site::{Ended, Site};

const LEDGER: &str = "/apis/fleet.slipway.dev/v1alpha1/disruptionledgers/cluster";

/// Answers the requests of one connection.
fn answer(stream: TcpStream, ledger: &Mutex<Value>) -> Option<()> {
    let (mut from, mut to) = (BufReader::new(stream.try_clone().ok()?), stream);
    loop {
        let (mut head, mut bytes) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let line = line.trim().to_owned();
            if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                bytes = length.trim().parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
            head.push(line);
        }
        let mut body = vec![0; bytes];
        from.read_exact(&mut body).ok()?;
        let mut words = head.first()?.split([' ', '?']);
        let (code, said) = match (words.next()?, words.next()?) {
            ("GET", "/api/v1/nodes") => {
                let labels = json!({ "node-role.kubernetes.io/control-plane": "" });
                let status = json!({ "nodeInfo": { "kubeletVersion": "v1.30.4" } });
                let node = json!({ "metadata": { "name": "admin", "labels": labels }, "status": status });
                (200, json!({ "apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [node] }))
            }
            ("GET", LEDGER) => (200, ledger.lock().unwrap().clone()),
            ("PUT", path) if path.strip_prefix(LEDGER) == Some("/status") => {
                *ledger.lock().unwrap() = serde_json::from_slice(&body).ok()?;
                (200, ledger.lock().unwrap().clone())
            }
            _ => (404, json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 })),
        };
        let said = said.to_string();
        let length = said.len();
        write!(to, "HTTP/1.1 {code} \r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{said}")
            .ok()?;
    }
}

/// The end of an upgrade that is interrupted by this signal as soon as it waits, and the claim that is left.
fn interrupted(signal: &str, under_way: Option<StaticPodReplacement>) -> (Ended, Value) {
    let site = Site::new();
    let pod = |component: &str| {
        let image = format!("registry.k8s.io/{component}:v1.30.4");
        StaticPod { component: component.to_owned(), image, ..StaticPod::default() }
    };
    let pods = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"].map(pod).to_vec();
    let says = StaticPodsResponse { pods, under_way, ..StaticPodsResponse::default() };
    *site.node().static_pods.lock().unwrap() = Some(says);
    let claim = json!({ "token": 5, "version": "1.31.2", "since": "2026-01-01T00:00:00Z" });
    let ledger = json!({
        "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": "DisruptionLedger", "spec": {},
        "metadata": { "name": "cluster", "resourceVersion": "1" }, "status": { "epoch": 5, "kubernetes": claim },
    });
    let ledger = Arc::new(Mutex::new(ledger));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let kept = Arc::clone(&ledger);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let ledger = Arc::clone(&kept);
            thread::spawn(move || answer(stream, &ledger));
        }
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "t",
        "clusters": [{ "name": "t", "cluster": { "server": server } }], "users": [{ "name": "t", "user": {} }],
        "contexts": [{ "name": "t", "context": { "cluster": "t", "user": "t" } }],
    });
    fs::write(site.path("kubeconfig"), config.to_string()).unwrap();
    let mut program = site.spawn(&["kubernetes", "upgrade", "--to", "1.31.2", "--kubeconfig", "kubeconfig"]);
    while !program.line().starts_with("waits: ") {}
    program.signal(signal);
    let ended = program.end();
    let claim = ledger.lock().unwrap()["status"]["kubernetes"].clone();
    (ended, claim)
}

/// A node may have begun a step although nobody has looked at it since: the claim is not given back then. So it is for the
/// fleet's Job, too.
#[test]
fn a_step_that_a_node_may_begin_yet_keeps_the_claim() {
    let facts = |claim: Claim| Facts {
        direction: Direction::Forward,
        target: "1.31.2".parse().unwrap(),
        images: Images::default(),
        nodes: BTreeMap::new(),
        kubelets: BTreeMap::new(),
        add_ons: BTreeMap::new(),
        claim,
        gates: Vec::new(),
        pre_pull: false,
        emulate: false,
        needs_snapshot: false,
        soak: 0,
        well_for: None,
    };
    let looked = |claim: Claim| Happened::Looked(Box::new(facts(claim)));
    let [from, to] = ["1.30.4", "1.31.2"].map(|version| format!("r/kube-scheduler:v{version}"));
    let step = Step { node: "n1".to_owned(), component: Component::Scheduler, from, to, emulates: None };
    let told = Told::default();
    let says = |happened: Happened| {
        told.take(&happened);
        (told.claim(), told.may_begin())
    };
    assert_eq!(says(looked(Claim::Free)), (None, false));
    assert_eq!(says(Happened::Claimed(5)), (Some(5), false));
    assert_eq!(says(Happened::Snapshot("n1".to_owned())), (Some(5), false));
    assert_eq!(says(Happened::Asked(step)), (Some(5), true));
    assert_eq!(says(Happened::Waits("no answer".to_owned())), (Some(5), true));
    assert_eq!(says(looked(Claim::Held(5))), (Some(5), false));
    assert_eq!(says(Happened::Unclaimed(5)), (None, false));
}

#[test]
fn a_run_that_is_interrupted_while_no_node_is_at_it_gives_the_claim_back() {
    // Who runs the tests may have them ignore hangups.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let hangup = (!ignored.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f'])).then_some("HUP");
    for signal in ["INT", "TERM"].into_iter().chain(hangup) {
        let (ended, claim) = interrupted(signal, None);
        assert_eq!(claim, Value::Null);
        assert_eq!(ended.stdout, "the claim 5 is free: the fleet goes on\n", "{ended:?}");
        let told = ended.fails(5);
        assert!(told.ends_with("interrupted: no node is at it\n"), "{told}");
    }
}

#[test]
fn the_claim_stays_while_a_node_is_at_it_and_that_is_said() {
    let (component, image) = ("kube-apiserver".to_owned(), "registry.k8s.io/kube-apiserver:v1.31.2".to_owned());
    let (ended, claim) =
        interrupted("INT", Some(StaticPodReplacement { component, image, ..StaticPodReplacement::default() }));
    assert_eq!((claim["token"].clone(), ended.stdout.as_str()), (5.into(), ""), "{ended:?}");
    let told = ended.fails(5);
    assert!(told.contains("the ledger's claim 5 stays") && told.contains("slipwayctl kubernetes rollback"), "{told}");
}
