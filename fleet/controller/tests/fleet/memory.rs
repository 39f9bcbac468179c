//! The memory of a controller with many Nodes, and the bytes that it reads in a round. The run by hand:
//! `SLIPWAY_FLEET_MEMORY=1000,5000,10000`; its figures are in the controller's README.

use std::{env, fs, time::Instant};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use slipway_fleet_objects::{rollout::Rollout, upgrade::NodeUpgrade};
use tokio::task::JoinSet;

use crate::{
    metrics::numbers,
    relay::Relay,
    site::{Site, client},
};

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

/// Bytes and requests of a round in which nothing changes, as the mean of three.
fn quiet_rounds(site: &Site, relay: &Relay, port: u16) -> [u64; 2] {
    let now = || {
        let numbers = numbers(port);
        let all =
            |of: &str| numbers.iter().filter(|(name, _)| name.starts_with(of)).map(|(_, value)| *value).sum::<f64>();
        [relay.answered(), all("slipway_fleet_api_requests_total") as u64, all("slipway_fleet_rounds_total") as u64]
    };
    let before = now();
    site.until("three more rounds", |_| now()[2] >= before[2] + 3);
    let after = now();
    [0, 1].map(|of| (after[of] - before[of]) / (after[2] - before[2]))
}

/// Bytes of what rounds read, listed in full.
fn in_full(site: &Site, relay: &Relay, client: &Client) -> u64 {
    let before = relay.answered();
    site.runtime.block_on(async {
        async fn list<K>(client: &Client)
        where
            K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
        {
            let (api, mut params) = (Api::<K>::all(client.clone()), ListParams::default().limit(500));
            loop {
                let page = api.list(&params).await.unwrap();
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => return,
                }
            }
        }
        list::<Node>(client).await;
        list::<NodeUpgrade>(client).await;
        list::<Rollout>(client).await;
    });
    relay.answered() - before
}

#[test]
fn a_controller_of_many_nodes_stays_small() {
    let sizes = env::var("SLIPWAY_FLEET_MEMORY").unwrap_or_else(|_| FEW.to_owned());
    let Some(site) = Site::new(0) else { return };
    let relay = Relay::new(&site);
    let (controller, port) = site.controller_that_looks(&relay.kubeconfig(&site, &site.token), 1);
    let reader = site.runtime.block_on(client(&relay.kubeconfig(&site, &site.server.kubeconfig("admin"))));
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
        let read = quiet_rounds(&site, &relay, port);
        let whole = in_full(&site, &relay, &reader);
        let [now, most] = resident(controller.pid());
        eprintln!("{size} nodes: {now} kB, {most} kB at most; rounds of {mean:.2} s");
        let [bytes, requests] = read;
        eprintln!("{size} nodes: {bytes} bytes and {requests} requests a round; lists in full have {whole} bytes");
        assert!(most < MOST, "{most} kB");
        // Of what did not change a round reads the metadata.
        assert!(bytes < whole / 3, "{bytes} bytes of {whole}");
    }
}
