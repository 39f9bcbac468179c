//! Changes are heard of before their time; and whatever becomes of that, nothing is lost and nothing done twice.

use std::{
    fs,
    io::copy,
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::{sleep, spawn},
    time::Duration,
};

use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use slipway_fleet_objects::policy::UpgradePolicy;

use crate::{
    metrics::{ask, numbers},
    node::payload,
    site::{Site, fleet, manifest_of},
};

/// Seconds between two looks of a controller that is to hear of a change.
const SELDOM: u32 = 3600;
/// The life of a connection that is cut.
const LASTS: Duration = Duration::from_millis(700);

fn rounds(port: u16) -> f64 {
    numbers(port).get("slipway_fleet_rounds_total{result=\"done\"}").copied().unwrap_or_default()
}

#[test]
fn a_change_is_acted_on_long_before_the_next_look() {
    let Some(site) = Site::new(2) else { return };
    let rights = manifest_of("rights.yaml")[0]["rules"].clone();
    let mut less = rights.clone();
    let is_of_nodes = |rule: &&mut Value| rule["resources"] == json!(["nodes"]);
    less.as_array_mut().unwrap().iter_mut().find(is_of_nodes).unwrap()["verbs"] = json!(["list"]);
    site.may(&less);
    let (_controller, port) = site.controller_that_looks(&site.token, SELDOM);
    let refused = |of: &str| numbers(port).get(&format!("slipway_fleet_watch_refused{{resource=\"{of}\"}}")).copied();
    site.until("it lacks a right", |_| ask(port, "/readyz").is_some() && refused("nodes") == Some(1.0));
    site.until("and has the others", |_| refused("nodepools") == Some(0.0));
    site.may(&rights);
    site.until("it has it", |_| refused("nodes") == Some(0.0));
    let hears = |what: &str, is_so: &dyn Fn(&Site) -> bool| site.until(what, |site| is_so(site));
    hears("it has begun", &|_| ask(port, "/readyz").is_some_and(|(status, _)| status == 200));
    site.pool("old", json!({}));
    hears("a pool", &|site| site.pool_status().state == "UpToDate");
    let policies: Api<UpgradePolicy> = Api::all(site.client.clone());
    site.runtime.block_on(policies.delete("policy", &DeleteParams::default())).unwrap();
    hears("a policy that went", &|site| site.pool_status().state == "Invalid");
    site.make(fleet("UpgradePolicy", "policy", json!({}))).unwrap();
    hears("a policy that came", &|site| site.pool_status().state == "UpToDate");
    site.label("n2", "pool", "other");
    hears("a label", &|site| site.pool_status().nodes == 1);
    site.delete_object("n2");
    site.add_object(2);
    hears("a Node", &|site| site.pool_status().nodes == 2);
    // Nothing listens there.
    site.channel("stable", "127.0.0.1:1/a/b", json!({ "interval": "1h" }));
    hears("a channel", &|site| !site.channel_status("stable").conditions.is_empty());
    let before = rounds(port);
    site.release(99);
    hears("a word in the ledger", &|_| rounds(port) > before);
    site.pool_target("new");
    hears("a target", &|site| site.rollouts().len() == 1);
    // A turn for each change, and one after it at most: what the controller writes itself is no news to it. It goes on
    // while it does something, and no node tells the API server here how far it is.
    assert!(rounds(port) < 30.0, "{}", rounds(port));
}

#[test]
fn an_api_server_that_is_cut_off_and_stands_still_makes_nobody_do_anything_twice() {
    let Some(mut site) = Site::new(4) else { return };
    let way = through_what_cuts(&site);
    let ((_one, port), _other) = (site.controller_that_looks(&way, 1), site.controller_that_looks(&way, 1));
    (1..=4).for_each(|n| site.chronicle.hold(&format!("n{n} drain")));
    site.pool("new", json!({ "maxUnavailable": 2 }));
    let cordoned = |site: &Site| site.chronicle.lines().iter().filter(|line| line.ends_with(" cordon")).count();
    site.until("two are under way", |site| cordoned(site) == 2);
    site.server.stand_still();
    while ask(port, "/readyz").is_none_or(|(status, _)| status == 200) {
        sleep(Duration::from_millis(100));
    }
    (1..=4).for_each(|n| site.chronicle.release(&format!("n{n} drain")));
    site.server.go_on();
    site.until_all_run("new");
    site.until("no grant is held", |site| site.ledger().grants.is_empty());
    let lines = site.chronicle.lines();
    assert!(site.chronicle.most_at_once() <= 2, "{lines:?}");
    for n in 1..=4 {
        assert_eq!(site.chronicle.count(&format!("n{n} reboot")), 1, "{lines:?}");
    }
    assert!(site.nodes.iter().all(|node| node.runs() == payload("new") && node.upgrades() == 1));
    assert_eq!((site.ledger().epoch, site.rollouts().len()), (4, 1), "one grant for each node, and no more");
    assert!(numbers(port)["slipway_fleet_api_requests_total{result=\"silent\"}"] >= 1.0);
}

/// Credentials of the controller for a way to the API server on which each connection is cut when it has lasted for a while.
fn through_what_cuts(site: &Site) -> PathBuf {
    let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(&site.token).unwrap()).unwrap();
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", listener.local_addr().unwrap()));
    let way = site.token.with_extension("through-what-cuts");
    fs::write(&way, kubeconfig.to_string()).unwrap();
    let to = server.strip_prefix("https://").unwrap().to_owned();
    let open = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&open);
    spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&to) else { continue };
            let (one, other) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let mut open = all.lock().unwrap();
            open.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
            spawn(move || copy(&mut &client, &mut &server));
            spawn(move || copy(&mut &other, &mut &one));
        }
    });
    spawn(move || {
        loop {
            sleep(LASTS);
            for stream in open.lock().unwrap().drain(..) {
                // It may be at its end.
                let _ = TcpStream::shutdown(&stream, Shutdown::Both);
            }
        }
    });
    way
}
