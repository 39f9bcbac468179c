//! Pools that follow a channel, from a push to the registry to the last node.

use std::net::TcpListener;

use serde_json::json;
use slipway_fleet_objects::channel::ChannelStatus;

use crate::{releases::Releases, site::Site};

/// Why an image of this version is not taken, in one word.
fn reason(status: &ChannelStatus, version: &str) -> String {
    let of = status.candidates.iter().find(|of| of.version.as_deref() == Some(version));
    of.map_or_else(|| "it was not seen".to_owned(), |of| of.reason.clone())
}

fn condition(status: &ChannelStatus, kind: &str) -> String {
    let of = status.conditions.iter().find(|of| of.type_ == kind);
    of.map_or_else(String::new, |of| format!("{} {}: {}", of.status, of.reason, of.message))
}

fn latest(site: &Site) -> Option<String> {
    Some(site.channel_status("stable").latest?.version)
}

fn follow(site: &Site, releases: &Releases, policy: serde_json::Value) {
    site.channel("stable", &releases.repository(), json!({}));
    site.pool_with("nothing", policy, json!({ "target": { "channel": "stable" } }));
}

#[test]
fn a_push_begins_a_rollout_and_what_is_denied_begins_none() {
    let Some(site) = Site::new(2) else { return };
    let (releases, first) = Releases::new();
    let (_one, _other) = (site.controller(), site.controller());
    follow(&site, &releases, json!({}));
    let all_run = |site: &Site, payload| {
        site.pool_status().state == "UpToDate" && site.nodes.iter().all(|node| node.runs() == payload)
    };
    site.until("the first release runs", |site| all_run(site, first));
    let second = releases.push("2.0.0", "stable");
    site.until("the second release runs", |site| all_run(site, second));
    // An unwanted image is known, with the reason, and no node hears of it.
    site.change_channel("stable", json!({ "deny": ["3.0.0"] }));
    releases.push("3.0.0", "stable");
    releases.push("4.0.0", "beta");
    site.until("all is seen", |site| reason(&site.channel_status("stable"), "4.0.0") == "OtherChannel");
    let status = site.channel_status("stable");
    let reasons = ["1.0.0", "2.0.0", "3.0.0"].map(|version| reason(&status, version));
    assert_eq!(reasons, ["Older", "Chosen", "Denied"]);
    assert_eq!(condition(&status, "Ready"), "True Chosen: 2.0.0 is taken");
    assert_eq!(latest(&site).as_deref(), Some("2.0.0"));
    assert!(site.nodes.iter().all(|node| node.runs() == second && node.upgrades() == 2));
    assert_eq!(site.rollouts().len(), 2);
    assert_eq!(site.chronicle.most_at_once(), 1, "{:?}", site.chronicle.lines());
    let events = site.events("Channel");
    assert_eq!(events.iter().filter(|text| text.starts_with("2.0.0 is taken")).count(), 1, "{events:?}");
}

/// What boots is files and kernel command line: a release that changes the latter alone is no release that every node has.
#[test]
fn a_release_that_changes_only_the_kernel_command_line_is_rolled_out() {
    let Some(site) = Site::new(2) else { return };
    let (releases, _) = Releases::new();
    let _controller = site.controller();
    let first = releases.push_cmdline("2.0.0", "console=tty0");
    follow(&site, &releases, json!({}));
    let all_run = |site: &Site, payload| {
        site.pool_status().state == "UpToDate" && site.nodes.iter().all(|node| node.runs() == payload)
    };
    site.until("the first one runs", |site| all_run(site, first));
    let second = releases.push_cmdline("2.0.1", "console=tty0 mitigations=auto");
    assert_ne!(first, second);
    site.until("the other words run", |site| all_run(site, second));
    let upgrades: Vec<_> = site.nodes.iter().map(|node| node.upgrades()).collect();
    assert_eq!((upgrades, site.rollouts().len()), (vec![2, 2], 2));
    for name in ["n1", "n2"] {
        site.until("its NodeUpgrade names it", |site| site.node_status(name).runs == Some(second));
    }
}

#[test]
fn a_bad_release_ends_at_its_canary_and_a_person_takes_it_out_of_the_channel() {
    let Some(site) = Site::new(3) else { return };
    let (releases, first) = Releases::new();
    let _controller = site.controller();
    follow(&site, &releases, json!({ "maxUnavailable": 2, "steps": [{ "nodes": 1, "soak": "1s" }] }));
    site.until("the first release runs", |site| site.pool_status().state == "UpToDate");
    assert!(site.nodes.iter().all(|node| node.runs() == first));
    let (_, bad) = slipway_test_support::registry::Image::release("2.0.0", "stable", "2.0.0");
    site.chronicle.sicken(bad);
    assert_eq!(releases.push("2.0.0", "stable"), bad);
    site.until("it is denied", |site| site.pool_status().state == "Denied");
    site.until("its grant is free", |site| site.ledger().grants.is_empty());
    assert!(site.pool_status().message.contains("the canary"), "{}", site.pool_status().message);
    assert!(site.nodes.iter().all(|node| node.runs() == first));
    site.change_channel("stable", json!({ "deny": ["2.0.0"] }));
    site.until("the pool is what it was", |site| site.pool_status().state == "UpToDate");
    assert_eq!(reason(&site.channel_status("stable"), "2.0.0"), "Denied");
    assert_eq!(latest(&site).as_deref(), Some("1.0.0"));
    assert_eq!(site.nodes.iter().map(|node| node.upgrades()).sum::<usize>(), 4, "three, and one canary");
}

/// Beside the others of this file because it needs a site: five channels of a registry that takes connections and never
/// answers are more than looks that there are at once.
fn a_registry_that_hangs_keeps_nobody_else_waiting(site: &Site, releases: &Releases) {
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let repository = format!("{}/a/b", hangs.local_addr().unwrap());
    for n in 0..5 {
        site.channel(&format!("hangs-{n}"), &repository, json!({}));
    }
    let _connection = hangs.accept().unwrap();
    site.channel("late", &releases.repository(), json!({}));
    site.until("the other registry was looked into", |site| site.channel_status("late").looked_at.is_some());
    for n in 0..5 {
        let status = site.channel_status(&format!("hangs-{n}"));
        assert_eq!(status.looked_at, None, "it waits, or has no answer yet: {status:?}");
    }
}

#[test]
fn a_registry_that_is_down_leaves_the_choice_and_says_why_and_first_sights_stay() {
    let Some(site) = Site::new(0) else { return };
    let (mut releases, _) = Releases::new();
    let (_one, _other) = (site.controller(), site.controller());
    site.channel("stable", &releases.repository(), json!({}));
    site.until("it is found", |site| latest(site).is_some());
    let observed = |site: &Site| {
        let status = site.channel_status("stable");
        let observed: Vec<_> = status.candidates.iter().map(|of| (of.digest, of.first_seen)).collect();
        (status.looked_at, observed)
    };
    let (_, first) = observed(&site);
    // Both look again and again.
    for look in 0..5 {
        let (before, _) = observed(&site);
        site.until(&format!("look {look}"), |site| observed(site).0 > before);
        assert_eq!(observed(&site).1, first);
    }
    releases.end();
    let is_down = |site: &Site| condition(&site.channel_status("stable"), "Looked").starts_with("False RegistryFails");
    site.until("it is missed", is_down);
    let status = site.channel_status("stable");
    assert!(condition(&status, "Looked").contains("127.0.0.1"), "{}", condition(&status, "Looked"));
    assert_eq!((latest(&site).as_deref(), observed(&site).1), (Some("1.0.0"), first.clone()));
    assert_eq!(condition(&status, "Ready"), "True Chosen: 1.0.0 is taken");
    // A person has the last word, also now.
    site.change_channel("stable", json!({ "deny": ["1.0.0"] }));
    site.until("it is not taken any more", |site| latest(site).is_none());
    releases.begin();
    site.change_channel("stable", json!({ "deny": [] }));
    site.until("it is taken again", |site| latest(site).is_some());
    assert_eq!(observed(&site).1, first);
    // The status names an object that cannot be understood. It hides no other channel.
    site.channel("broken", &releases.repository(), json!({ "range": "latest, please" }));
    let said = |site: &Site| condition(&site.channel_status("broken"), "Ready");
    site.until("it is said", |site| said(site).starts_with("False SpecInvalid"));
    a_registry_that_hangs_keeps_nobody_else_waiting(&site, &releases);
}
