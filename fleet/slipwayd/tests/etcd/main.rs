//! Size: gate
//! Needs: root etcd
//!
//! The lock and the quorum rule on three real members of etcd: killed, stopped, full, joined by a learner.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cluster;
mod data;
mod net;
mod partition;
mod snapshot;
mod tls;

use std::{fs, os::unix::fs::PermissionsExt as _};

use cluster::Cluster;
use slipway_node::quorum::Going;
use slipway_node_server::{
    events::{Bound, EventLog},
    node::Node as _,
};
use slipwayd::machine::etcd::Etcd;
use uuid::Uuid;

#[test]
fn one_operation_at_a_time_holds_the_lock() {
    if !cluster::is_here() {
        return;
    }
    let cluster = Cluster::start();
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let (a, b) = (cluster.node(0), cluster.node(1));
    assert_eq!(a.lock(one), Ok(()));
    assert_eq!(a.lock(one), Ok(()), "the same operation may ask again, after a crash");
    let refused = b.lock(other).unwrap_err();
    assert!(refused.contains(&one.to_string()) && refused.contains("m0"), "{refused}");
    // A lock that is not ours is not given back.
    assert_eq!(b.unlock(other), Ok(()));
    assert_eq!((a.is_held(one), b.is_held(other)), (Ok(true), Ok(false)));
    assert_eq!(a.unlock(one), Ok(()));
    assert_eq!(a.unlock(one), Ok(()));
    assert_eq!((a.is_held(one), b.lock(other)), (Ok(false), Ok(())));
}

#[test]
fn the_lock_outlives_its_node() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    assert_eq!(cluster.node(2).lock(one), Ok(()));
    cluster.kill(2);
    let b = cluster.node(0);
    cluster.until(|| b.is_held(other));
    assert!(b.lock(other).is_err(), "it is unknown whether that member comes back");
    cluster.again(2);
    cluster.until(|| cluster.node(2).is_well(false));
    assert_eq!(cluster.node(2).lock(one), Ok(()));
}

#[test]
fn a_member_may_go_while_a_quorum_stays() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    for n in 0..3 {
        assert_eq!(cluster.node(n).may_go(Going::Down), Ok(()));
        assert_eq!(cluster.node(n).may_go(Going::Away), Ok(()));
    }
    // One hangs: no other may go, but it may itself.
    cluster.signal(2, "-STOP");
    let refused = cluster.node(0).may_go(Going::Down).unwrap_err();
    assert!(refused.contains("needs 2 healthy voters of 3") && refused.contains("m2"), "{refused}");
    assert_eq!(cluster.until(|| cluster.node(2).may_go(Going::Down)), ());
    cluster.signal(2, "-CONT");
    cluster.until(|| cluster.node(0).may_go(Going::Down));
    // One is dead.
    cluster.kill(1);
    assert!(cluster.node(0).may_go(Going::Down).is_err());
    cluster.again(1);
    cluster.until(|| cluster.node(0).may_go(Going::Down));
}

/// A URL in the member list may lead to another member: its health says nothing of the one that is dead.
#[test]
fn a_member_in_whose_place_another_one_answers_does_not_count() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.again_as(2, "m2", &[1]);
    let why = cluster.until(|| cluster.node(2).not_well()).unwrap();
    assert!(why.contains(", and the state of m2 (the member ") && why.ends_with(") is unknown"), "{why}");
    cluster.kill(2);
    let told = "etcd needs 2 healthy voters of 3, and 1 would be left; not healthy: m2 (the member ";
    cluster.until(|| match cluster.node(0).may_go(Going::Down) {
        Ok(()) => panic!("one of three would be left"),
        Err(why) if why.starts_with(told) && why.ends_with(" answers at its client URLs)") => Ok(()),
        // A leader that is gone must be missed first.
        Err(why) => Err(why),
    });
}

/// A URL of the loopback, for example, leads elsewhere, and the other one leads to the member.
#[test]
fn a_member_is_asked_at_the_one_of_its_urls_that_leads_to_it() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.again_as(2, "m2", &[1, 2]);
    cluster.until(|| cluster.node(0).may_go(Going::Down));
    for _ in 0..10 {
        assert_eq!(cluster.node(0).may_go(Going::Down), Ok(()));
    }
    // It is dead, and not another one.
    cluster.kill(2);
    cluster.until(|| match cluster.node(0).may_go(Going::Down) {
        Ok(()) => panic!("one of three would be left"),
        Err(why) if why.ends_with("; not healthy: m2") => Ok(()),
        Err(why) => Err(why),
    });
}

/// It is unknown which of them goes with the node, and which one leaves.
#[test]
fn of_two_members_with_one_name_none_goes() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.again_as(2, "m1", &[2]);
    let told = "two members of etcd have the name m1, ";
    let refused = cluster.node(1).may_go(Going::Away).unwrap_err();
    assert!(refused.starts_with(told), "{refused}");
    assert!(cluster.node(1).member().unwrap_err().starts_with(told));
    // Nor does a command name one of them: it may be the one that is well.
    let asked = cluster.node(1).is_well_or_out().unwrap_err();
    assert!(asked.starts_with(told) && asked.ends_with("start each with a name of its own"), "{asked}");
    cluster.until(|| cluster.node(0).may_go(Going::Down));
}

#[test]
fn one_or_two_members_never_go_by_themselves() {
    if !cluster::is_here() {
        return;
    }
    for members in [1, 2] {
        let cluster = Cluster::of_members(members);
        assert!(cluster.node(0).may_go(Going::Down).is_err(), "{members}");
    }
}

#[test]
fn an_alarm_blocks() {
    if !cluster::is_here() {
        return;
    }
    let cluster = Cluster::start();
    cluster.raise_nospace(1);
    let refused = cluster.node(0).may_go(Going::Down).unwrap_err();
    assert!(refused.contains("NOSPACE"), "{refused}");
    // All members report it. It is no illness of any of them, and what waits for one names it.
    for n in 0..3 {
        let node = cluster.node(n);
        let why = "etcd has the alarm NOSPACE: mend it, then disarm it".to_owned();
        assert_eq!(node.not_well(), Err(why.clone()));
        // A trial goes on with what another member has raised; with its own where it began in spite of alarms.
        assert_eq!(node.is_well(false), if n == 1 { Err(why) } else { Ok(()) });
        assert_eq!((node.is_well(true), node.is_well_or_out()), (Ok(()), Ok(())));
    }
}

#[test]
fn the_leadership_goes_to_another() {
    if !cluster::is_here() {
        return;
    }
    let cluster = Cluster::start();
    let leader = cluster.leader();
    for n in (0..3).filter(|n| *n != leader) {
        assert_eq!(cluster.node(n).hand_over(), Ok(()), "it does not lead");
    }
    assert_eq!(cluster.leader(), leader);
    assert_eq!(cluster.node(leader).hand_over(), Ok(()));
    assert_ne!(cluster.leader(), leader);
}

/// An admin's acceptance does not stand for a member that is down: it may come back, and the others count on it.
#[test]
fn a_member_that_is_down_is_waited_for_until_it_is_taken_out() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    let (node, id) = (cluster.node(2), cluster.node(2).member().unwrap().unwrap());
    cluster.until(|| node.is_well_or_out());
    cluster.kill(2);
    let why = node.is_well_or_out().unwrap_err();
    assert!(why.contains(&format!("`etcdctl member remove {id:x}`")), "{why}");
    cluster.until(|| cluster.node(0).leave(id));
    assert!(node.is_well(false).is_err());
    assert_eq!(node.is_well_or_out(), Ok(()));
}

#[test]
fn a_member_leaves_and_comes_back_as_a_voter() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    let id = cluster.node(2).member().unwrap().unwrap();
    let others = cluster.node(0);
    // etcd itself refuses while its members are not connected for five seconds.
    cluster.until(|| others.leave(id));
    assert_eq!(others.leave(id), Ok(()), "it has left already");
    assert_eq!(cluster.node(2).member(), Ok(None));
    cluster.kill(2);
    fs::remove_dir_all(cluster.data(2)).unwrap();
    // The program that starts etcd on this node: it tells this test what it was given.
    let (program, given) = (cluster.dir().join("join"), cluster.dir().join("given"));
    let script =
        format!("#!/bin/sh\necho \"$ETCD_INITIAL_CLUSTER_STATE $ETCD_INITIAL_CLUSTER\" >>{}\n", given.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let back = Etcd::new(slipwayd::machine::etcd::Config { join: Some(program), ..cluster.config(2) }).unwrap();
    assert!(back.rejoin().is_err(), "it was added");
    let refused = cluster.node(0).may_go(Going::Down).unwrap_err();
    assert!(refused.contains("learner"), "{refused}");
    assert!(back.rejoin().is_err(), "it starts");
    // It takes the data of the others, which takes its time, and is not begun anew for that.
    assert_eq!(back.rejoin(), Err("etcd starts as a new member".to_owned()));
    let words = fs::read_to_string(given).unwrap();
    assert_eq!(words.lines().count(), 1, "{words}");
    let (state, all) = words.trim().split_once(' ').unwrap();
    cluster.run(2, all, state);
    cluster.until(|| back.rejoin());
    cluster.until(|| back.is_well(false));
    assert_ne!(back.member().unwrap(), Some(id), "a member that comes back is another one");
    cluster.until(|| cluster.node(0).may_go(Going::Down));
}

/// etcd keeps the addresses of a member in another order than the configuration has them.
#[test]
fn a_member_with_several_addresses_is_known_before_it_starts() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    let id = cluster.node(2).member().unwrap().unwrap();
    cluster.until(|| cluster.node(0).leave(id));
    cluster.kill(2);
    let mut peer_urls = [cluster.config(2).peer_urls, cluster.config(3).peer_urls].concat();
    peer_urls.sort_by(|a, b| b.cmp(a));
    let back = Etcd::new(slipwayd::machine::etcd::Config { peer_urls, ..cluster.config(2) }).unwrap();
    let words = [back.rejoin().unwrap_err(), back.rejoin().unwrap_err()];
    assert_eq!(words, ["it was added to etcd's cluster and has to start", "etcd starts as a new member"]);
}

#[test]
fn clients_are_told_what_etcd_says() {
    if !cluster::is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    let mut list = cluster.node(0).list().unwrap();
    list.sort_by(|a, b| a.hostname.cmp(&b.hostname));
    let leader = list[cluster.leader()].id;
    for (n, member) in list.iter().enumerate() {
        let config = cluster.config(n);
        assert_eq!((&member.hostname, &member.peer_urls), (&config.name, &config.peer_urls));
        assert!(member.client_urls == config.endpoints[n..=n] && !member.is_learner);
        // Each node tells of its own member, in any order of answers.
        let status = cluster.node(n).status().unwrap();
        assert_eq!((status.member_id, status.leader), (member.id, leader));
        assert!(status.protocol_version.starts_with("3.") && !status.is_learner && status.errors.is_empty());
        assert!(status.raft_term > 0 && status.raft_index >= status.raft_applied_index);
        assert!(status.db_size >= status.db_size_in_use && status.db_size_in_use > 0);
        assert_eq!(cluster.node(n).alarms(), Ok(Vec::new()));
    }
    cluster.raise_nospace(1);
    let nospace = slipway_node_api::machine::EtcdMemberAlarm { member_id: list[1].id, alarm: 1 };
    assert_eq!(cluster.node(0).alarms(), Ok(vec![nospace]));
    // A member that is down cannot tell of itself, and the others still know it.
    cluster.kill(2);
    assert!(cluster.node(2).status().is_err());
    assert_eq!(cluster.until(|| cluster.node(2).list()).len(), 3);
}

#[test]
fn the_leadership_is_forfeited_by_who_has_it() {
    if !cluster::is_here() {
        return;
    }
    let cluster = Cluster::start();
    let leader = cluster.leader();
    for n in (0..3).filter(|n| *n != leader) {
        assert_eq!(cluster.node(n).forfeit(), Ok(None));
    }
    assert_eq!(cluster.leader(), leader);
    let next = cluster.node(leader).forfeit().unwrap();
    assert_eq!(next, Some(cluster.config(cluster.leader()).name));
    assert_ne!(cluster.leader(), leader);
}

#[test]
fn the_api_asks_the_real_etcd() {
    if !cluster::is_here() {
        return;
    }
    let cluster = Cluster::of_members(1);
    let config = slipwayd::config::Config {
        state: cluster.dir().join("state"),
        etcd: Some(cluster.config(0)),
        ..Default::default()
    };
    let log = EventLog::new(Bound::default());
    // No operation runs here, and requests change nothing.
    let (node, _worker) = slipwayd::service::start("node-1".to_owned(), config, log).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let members = node.etcd_members().await.unwrap();
        let status = node.etcd_status().await.unwrap();
        assert_eq!((members.len(), status.leader), (1, members[0].id));
        assert_eq!((node.etcd_alarms().await, node.etcd_forfeit().await.is_err()), (Ok(Vec::new()), true));
    });
}
