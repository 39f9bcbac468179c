//! Which etcd reads the data: the decision beside what real members of two versions do.

use std::{
    fs,
    path::{Path, PathBuf},
};

use slipway_core::{boot::slot::Slot, payload::minor_version::MinorVersion};
use slipway_node::{
    etcd_data::{Blocked, System},
    facts::Facts,
    operation::{Installed, Operation, Shape, Tried},
    request::{Goal, Request},
    step::Step,
};
use slipwayd::{config::Config, machine::Machine, world::World as _};
use uuid::Uuid;

use crate::cluster::{Cluster, is_here, newer, program, version};

/// A node with member `n` whose slots name these versions of etcd. Slot A runs.
struct Node<'a> {
    cluster: &'a Cluster,
    n: usize,
    slots: [Option<&'a str>; 2],
}

impl Node<'_> {
    fn system(&self, slot: Slot) -> System {
        System { slot, etcd: self.slots[slot as usize].map(str::to_owned) }
    }

    fn may_run(&self, slot: Slot) -> Result<(), Blocked> {
        let ask = |cluster: &slipway_node::quorum::Cluster, me| cluster.may_run(me, &self.system(slot));
        self.cluster.until(|| self.cluster.node(self.n).with_cluster(ask))
    }

    /// The answer of the real service, with an installer that reports these slots.
    fn machine(&self) -> (Machine, Facts) {
        let dir = self.cluster.dir();
        let report = dir.join(format!("status-{}", self.n));
        fs::write(&report, status(self.slots)).unwrap();
        let installer = script(&dir, &format!("cat '{}'", report.display()));
        let config = Config { installer, etcd: Some(self.cluster.config(self.n)), ..Config::default() };
        let mut machine = Machine::new(config).unwrap();
        let facts = machine.facts(None);
        (machine, facts)
    }

    /// The end of an operation's gate.
    fn gate(&self, goal: Goal, allow_any_etcd: bool) -> Tried {
        let (mut machine, facts) = self.machine();
        let mut op =
            Operation::new(request(goal, allow_any_etcd), Shape { etcd: true, kubernetes: false }, &facts).unwrap();
        // As after a stage.
        op.to.get_or_insert(Installed { slot: Slot::B, payload: None });
        machine.perform(Step::Gate, &op, &Quiet)
    }
}

struct Quiet;

impl slipwayd::world::Watcher for Quiet {
    fn tell(&self, _progress: slipwayd::world::Progress) {}

    fn wants_end(&self) -> bool {
        false
    }
}

fn script(dir: &Path, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = dir.join("installer");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A report of an installer, with these versions of etcd in the slots, both confirmed.
fn status(etcd: [Option<&str>; 2]) -> String {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/reports/1/status.json");
    let mut report: serde_json::Value = serde_json::from_str(&fs::read_to_string(kept).unwrap()).unwrap();
    report["running"] = serde_json::json!({ "this": { "slot": "A", "trial": false } });
    for (slot, etcd) in ["A", "B"].into_iter().zip(etcd) {
        report["slots"][slot]["state"] = "good".into();
        report["slots"][slot]["components"] =
            etcd.map_or(serde_json::json!({}), |etcd| serde_json::json!({ "etcd": etcd }));
    }
    report.to_string()
}

fn request(goal: Goal, allow_any_etcd: bool) -> Request {
    Request {
        source: if goal.writes() { "dir:payload".to_owned() } else { String::new() },
        allow_any_etcd,
        ..Request::new(Uuid::from_u128(1), goal, "test")
    }
}

/// A cluster of three that is upgraded, member by member, as the nodes are asked.
#[test]
fn the_last_member_that_is_upgraded_closes_the_way_back() {
    if !is_here() {
        return;
    }
    let (old, new) = (version(&program()), version(&newer()));
    let mut cluster = Cluster::start();
    for n in 0..2 {
        let node = Node { cluster: &cluster, n, slots: [Some(&old), Some(&new)] };
        assert!(matches!(node.gate(Goal::Upgrade, false), Tried::Done(_)), "member {n}");
        assert!(cluster.replace(n, &newer()));
    }
    // They can come back, and one of them does.
    let back = |cluster: &Cluster, n| Node { cluster, n, slots: [Some(&new), Some(&old)] }.gate(Goal::Rollback, false);
    assert!(matches!(back(&cluster, 1), Tried::Done(_)));
    assert!(cluster.replace(1, &program()) && cluster.replace(1, &newer()));
    // The last one is refused before anything of it is disturbed, unless a person asks for just that.
    let last = Node { cluster: &cluster, n: 2, slots: [Some(&old), Some(&new)] };
    let Tried::Failed(why) = last.gate(Goal::Upgrade, false) else { panic!("it is not refused") };
    assert!(why.starts_with("it would close the way back") && why.contains("--allow-any-etcd"), "{why}");
    assert!(matches!(last.gate(Goal::Upgrade, true), Tried::Done(_)));
    assert!(cluster.replace(2, &newer()));
    // From now on no member goes back, and a member that is made to does not start.
    for n in 0..3 {
        let Tried::Failed(why) = back(&cluster, n) else { panic!("member {n} may go back") };
        assert!(why.contains("cannot read the data"), "{why}");
    }
    let node = Node { cluster: &cluster, n: 0, slots: [Some(&new), Some(&old)] };
    assert!(matches!(node.gate(Goal::Rollback, true), Tried::Done(_)), "by a person's word");
    let (machine, _) = node.machine();
    assert!(machine.look().no_way_back.unwrap().contains("cannot read the data"));
    assert!(machine.after_confirm().unwrap().contains("would strand this node's member"));
    // The leader writes the cluster's version some seconds after the last member came.
    cluster.until_cluster_has(&new);
    assert!(!cluster.replace(0, &program()), "etcd itself refuses");
    assert!(cluster.replace(0, &newer()), "and runs with what can read it");
}

#[test]
fn what_a_payload_does_not_say_is_not_fine_for_a_member() {
    if !is_here() {
        return;
    }
    let old = version(&program());
    let cluster = Cluster::start();
    let node = |slots| Node { cluster: &cluster, n: 0, slots };
    for (slots, which) in [([Some(&*old), None], "slot B"), ([None, Some(&*old)], "slot A")] {
        let Tried::Failed(why) = node(slots).gate(Goal::Upgrade, false) else { panic!("{which} is unknown") };
        assert!(why.contains(which) && why.contains("--component etcd=VERSION"), "{why}");
    }
    assert_eq!(node([None, None]).may_run(Slot::B), Err(Blocked::Unnamed(Slot::B)));
    // An upgrade of anything else changes nothing for it.
    assert!(matches!(node([Some(&old), Some(&old)]).gate(Goal::Upgrade, false), Tried::Done(_)));
    assert!(matches!(node([None, None]).gate(Goal::Reboot, false), Tried::Done(_)));
}

/// etcd 3.5 knows the call, fails it, and lowers nothing. From 3.6 on it lowers the data, and members go back:
/// SLIPWAY_ETCD_NEWER and SLIPWAY_ETCD name such versions.
#[test]
fn a_downgrade_counts_once_the_data_is_lowered() {
    if !is_here() {
        return;
    }
    let (old, new) = (version(&program()), version(&newer()));
    let lowers = new.parse::<MinorVersion>().unwrap() >= MinorVersion::new(3, 6);
    let mut cluster = Cluster::with(&newer(), 3);
    cluster.until_cluster_has(&new);
    let may = |cluster: &Cluster, n| Node { cluster, n, slots: [Some(&new), Some(&old)] }.gate(Goal::Rollback, false);
    let Tried::Failed(why) = may(&cluster, 0) else { panic!("it may go back") };
    assert_eq!(why.contains("etcdctl downgrade enable"), lowers, "{why}");
    assert_eq!(cluster.downgrade(&old), lowers);
    if !lowers {
        assert!(matches!(may(&cluster, 0), Tried::Failed(_)));
        assert!(!cluster.replace(0, &program()), "etcd itself refuses");
        return;
    }
    for n in 0..3 {
        cluster.until(|| match may(&cluster, n) {
            Tried::Done(_) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert!(cluster.replace(n, &program()));
    }
}
