//! The controller's metrics, compared with the objects.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::json;

use crate::{
    releases::Releases,
    site::{Site, manifest_of},
};

/// Files that a controller may open in a test with strangers.
const FILES: usize = 160;

/// The status and the content of an answer; `None` without an answer.
pub fn ask(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Some((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
}

/// The numbers, by name with labels.
pub fn numbers(port: u16) -> BTreeMap<String, f64> {
    let (status, text) = ask(port, "/metrics").unwrap();
    assert_eq!((status, text.ends_with("# EOF\n")), (200, true), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// So many nodes of the pool for each word.
fn nodes(numbers: &BTreeMap<String, f64>) -> BTreeMap<String, usize> {
    let of = |(name, value): (&String, &f64)| {
        let state = name.strip_prefix("slipway_fleet_nodes{pool=\"p\",state=\"")?.strip_suffix("\"}")?;
        Some((state.to_owned(), *value as usize))
    };
    numbers.iter().filter_map(of).collect()
}

#[test]
fn the_numbers_are_those_of_the_objects() {
    let Some(site) = Site::new(3) else { return };
    (1..=3).for_each(|n| site.chronicle.hold(&format!("n{n} drain")));
    let (mut releases, _) = Releases::new();
    let (controller, port) = site.listening_controller();
    site.channel("stable", &releases.repository(), json!({}));
    site.pool_with("nothing", json!({ "maxUnavailable": 2 }), json!({ "target": { "channel": "stable" } }));
    let states = |site: &Site| {
        let mut states = BTreeMap::new();
        for n in 1..=3 {
            *states.entry(site.node_status(&format!("n{n}")).reason).or_insert(0) += 1;
        }
        states
    };
    let two = BTreeMap::from([("Budget".to_owned(), 1), ("UnderWay".to_owned(), 2)]);
    site.until("two are under way", |site| states(site) == two);
    site.until("and are counted", |_| nodes(&numbers(port)) == two);
    let all = numbers(port);
    let of_pool = |name: &str| all[&format!("slipway_fleet_{name}{{pool=\"p\"}}")];
    assert_eq!([of_pool("grants"), of_pool("budget"), of_pool("failures")], [2.0, 2.0, 0.0]);
    assert_eq!((of_pool("grants") as usize, all["slipway_fleet_ledger_epoch"]), (site.ledger().grants.len(), 2.0));
    let state = format!("slipway_fleet_pool_state{{pool=\"p\",state=\"{}\"}}", site.pool_status().state);
    assert_eq!(all[&state], 1.0);
    assert!(of_pool("certificate_expiry_timestamp_seconds") > Timestamp::now().as_second() as f64);
    assert_eq!(all["slipway_fleet_channel_takes{channel=\"stable\",version=\"1.0.0\"}"], 1.0);
    assert!(all["slipway_fleet_channel_looks_total{channel=\"stable\",result=\"Answered\"}"] >= 1.0);
    assert!(all["slipway_fleet_api_requests_total{result=\"answered\"}"] > 20.0);
    let rounds = all["slipway_fleet_rounds_total{result=\"done\"}"];
    let timed = all["slipway_fleet_round_duration_seconds_count"];
    assert!(rounds >= 2.0 && timed >= rounds && all["slipway_fleet_last_round_timestamp_seconds"] > 1.7e9);
    // A finished rollout is not counted any more.
    (1..=3).for_each(|n| site.chronicle.release(&format!("n{n} drain")));
    site.until("all are done", |_| nodes(&numbers(port)) == BTreeMap::from([("Done".to_owned(), 3)]));
    let is_free = |numbers: &BTreeMap<String, f64>| numbers["slipway_fleet_grants{pool=\"p\"}"] == 0.0;
    site.until("no grant is held", |_| is_free(&numbers(port)));
    assert!(!numbers(port).contains_key(&state));
    // What each of them has moved is added up.
    let all = numbers(port);
    let bytes = |of: &str| all[&format!("slipway_fleet_payload_{of}}}")];
    let moved = |from: &str| bytes(&format!("moved_bytes{{pool=\"p\",from=\"{from}\""));
    assert_eq!([moved("registry"), moved("slots"), bytes("written_bytes{pool=\"p\"")], [3000.0, 27_000.0, 6000.0]);
    // A registry is not asked without pause where its answer cannot be written.
    let answered = "slipway_fleet_channel_looks_total{channel=\"stable\",result=\"Answered\"}";
    let rights = manifest_of("rights.yaml")[0]["rules"].clone();
    let mut rules = rights.clone();
    rules
        .as_array_mut()
        .unwrap()
        .retain(|rule| !rule["resources"].as_array().unwrap().contains(&json!("channels/status")));
    site.may(&rules);
    let (before, begun) = (numbers(port)[answered], Instant::now());
    site.until("three looks more", |_| numbers(port)[answered] >= before + 3.0);
    assert!(begun.elapsed() > Duration::from_millis(1900), "{:?}", begun.elapsed());
    site.may(&rights);
    releases.end();
    let failed = "slipway_fleet_channel_looks_total{channel=\"stable\",result=\"RegistryFails\"}";
    site.until("the registry is missed", |_| numbers(port).contains_key(failed));
    drop(controller);
}

#[test]
fn it_is_ready_while_its_rounds_come_to_their_end_and_lives_without_an_api_server() {
    let Some(mut site) = Site::new(0) else { return };
    let (_controller, port) = site.controller_with_files(FILES);
    site.until("it is ready", |_| ask(port, "/readyz").is_some_and(|(status, _)| status == 200));
    // Strangers who ask for nothing keep no client from asking, and no round from its end.
    let idle: Vec<_> = (0..2 * FILES).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let rounds = || numbers(port)["slipway_fleet_rounds_total{result=\"done\"}"];
    let before = rounds();
    site.until("two more rounds", |_| rounds() >= before + 2.0);
    assert!(!numbers(port).contains_key("slipway_fleet_rounds_total{result=\"failed\"}"));
    drop(idle);
    assert_eq!(ask(port, "/healthz").unwrap(), (200, "ok\n".to_owned()));
    assert_eq!(ask(port, "/other").unwrap().0, 404);
    site.server.end();
    loop {
        let (status, why) = ask(port, "/readyz").unwrap();
        if status == 503 {
            assert!(why.contains("the last round failed"), "{why}");
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(ask(port, "/healthz").unwrap().0, 200, "to start it anew would not help");
    let failed = "slipway_fleet_rounds_total{result=\"failed\"}";
    assert!(numbers(port)[failed] >= 1.0);
    assert!(numbers(port)["slipway_fleet_api_requests_total{result=\"silent\"}"] >= 1.0);
}

/// The kubelet asks at the address where the controller answers.
#[test]
fn the_probes_of_the_manifest_ask_where_it_answers() {
    let objects = manifest_of("deployment.yaml");
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_slipway-fleet")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let port = container["ports"][0]["containerPort"].as_u64().unwrap();
    assert!(help.contains(&format!("[::]:{port}]")), "{help}");
    let name = &container["ports"][0]["name"];
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!((&container[probe]["httpGet"]["port"], &container[probe]["httpGet"]["path"]), (name, &json!(path)));
    }
    assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], port.to_string());
}
