//! A fleet of many nodes. `SLIPWAY_FLEET_NODES=50` is the run by hand; its figures are in the controller's README.

use std::{env, time::Instant};

use serde_json::json;

use crate::{metrics::numbers, site::Site};

/// The default number of nodes.
const FEW: usize = 6;

#[test]
fn one_of_two_controllers_is_killed_on_the_way() {
    let nodes = env::var("SLIPWAY_FLEET_NODES").map_or(FEW, |text| text.parse().expect("a number of nodes, up to 250"));
    let Some(site) = Site::new(nodes) else { return };
    let ((one, _), (_other, port)) = (site.listening_controller(), site.listening_controller());
    let begun = Instant::now();
    site.pool("new", json!({ "maxUnavailable": "20%", "steps": [{ "nodes": 1, "soak": "1s" }] }));
    site.until("a third is done", |site| site.pool_status().done as usize * 3 >= nodes);
    let after = begun.elapsed();
    drop(one);
    site.until_all_run("new");
    let took = begun.elapsed();
    let most = (nodes / 5).max(1);
    assert!(site.chronicle.most_at_once() <= most, "{} at once", site.chronicle.most_at_once());
    assert!(site.nodes.iter().all(|node| node.upgrades() == 1));
    let ledger = site.ledger();
    assert_eq!((ledger.epoch, ledger.grants.len()), (nodes as u64, 0), "one grant for each node, and no more");
    let all = numbers(port);
    let of = |name: &str| all.get(name).copied().unwrap_or_default();
    eprintln!(
        "{nodes} nodes: {:.1} s, one controller killed after {:.1} s; {} at once; the other one: {} rounds of {:.3} s, {} \
         requests to the API server, {} conflicts",
        took.as_secs_f64(),
        after.as_secs_f64(),
        site.chronicle.most_at_once(),
        of("slipway_fleet_round_duration_seconds_count"),
        of("slipway_fleet_round_duration_seconds_sum") / of("slipway_fleet_round_duration_seconds_count"),
        of("slipway_fleet_api_requests_total{result=\"answered\"}"),
        of("slipway_fleet_api_requests_total{result=\"conflict\"}"),
    );
}
