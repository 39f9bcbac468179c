//! The memory of a controller with many Nodes. The run by hand: `SLIPWAY_FLEET_MEMORY=1000,5000,10000`; its
//! figures are in the controller's README.

use std::{env, fs, time::Instant};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use slipway_fleet_objects::upgrade::NodeUpgrade;
use tokio::task::JoinSet;

use crate::{metrics::numbers, site::Site};

/// The default number of Nodes.
const FEW: &str = "100";
/// Images that a kubelet names, as many as it does: 8 kB, and the larger half of a Node.
const IMAGES: usize = 50;
/// Requests of the test at once.
const AT_ONCE: usize = 16;
/// The limit of memory of a controller for 10,000 nodes, kB.
const MOST: u64 = 256 << 10;

/// These Nodes come: in the pool, and without an address.
fn add(site: &Site, numbers: std::ops::Range<usize>) {
    site.runtime.block_on(async {
        let mut making = JoinSet::new();
        for n in numbers {
            let nodes: Api<Node> = Api::all(site.client.clone());
            let name = format!("many-{n}");
            let node = json!({ "metadata": { "name": name, "labels": { "pool": "p" } } });
            let image = |n: usize| json!({ "names": [format!("registry.example/{n:0>60}"), format!("{n:0>70}")] });
            let images: Vec<_> = (0..IMAGES).map(image).collect();
            making.spawn(async move {
                nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
                let patch = Patch::Merge(json!({ "status": { "images": images } }));
                nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
            });
            if making.len() == AT_ONCE {
                making.join_next().await.unwrap().unwrap();
            }
        }
        making.join_all().await;
    });
}

/// Memory of this process, kB, as the kernel says: now, and at most.
fn resident(pid: u32) -> [u64; 2] {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    ["VmRSS:", "VmHWM:"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    })
}

#[test]
fn a_controller_of_many_nodes_stays_small() {
    let sizes = env::var("SLIPWAY_FLEET_MEMORY").unwrap_or_else(|_| FEW.to_owned());
    let Some(site) = Site::new(0) else { return };
    let (controller, port) = site.listening_controller();
    site.pool("new", json!({}));
    let upgrades: Api<NodeUpgrade> = Api::all(site.client.clone());
    let mut made = 0;
    for size in sizes.split(',').map(|text| text.parse::<usize>().expect("numbers of nodes, the lowest first")) {
        let begun = Instant::now();
        add(&site, made..size);
        (made, _) = (size, eprintln!("{size} Nodes are there after {:.0} s", begun.elapsed().as_secs_f64()));
        let is_told = |_: &Site| {
            let list = ListParams::default().limit(1);
            let list = site.runtime.block_on(upgrades.list(&list)).unwrap();
            list.items.len() + list.metadata.remaining_item_count.unwrap_or(0) as usize == size
        };
        site.until("each has its NodeUpgrade", is_told);
        let seconds = |of: &str| numbers(port)[&format!("slipway_fleet_round_duration_seconds_{of}")];
        let (count, sum) = (seconds("count"), seconds("sum"));
        site.until("three more rounds", |_| seconds("count") >= count + 3.0);
        let mean = (seconds("sum") - sum) / (seconds("count") - count);
        let [now, most] = resident(controller.pid());
        eprintln!("{size} nodes: {now} kB, {most} kB at most; rounds of {mean:.2} s");
        assert!(most < MOST, "{most} kB");
    }
}
