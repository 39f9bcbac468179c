//! Whether a system's etcd reads the data: against etcd's own rule, played out member by member.

use proptest::{collection::vec, option, prelude::*};
use slipway_core::{boot::slot::Slot, payload::minor_version::MinorVersion};
use slipway_node::{
    etcd_data::{Blocked, System},
    quorum::{Answer, Cluster, Member},
};

fn version(minor: u32) -> MinorVersion {
    MinorVersion::new(3, minor)
}

fn system(slot: Slot, minor: u64) -> System {
    System { slot, etcd: Some(format!("3.{minor}.7")) }
}

fn member(id: u64, version: &str, storage: &str, downgrade: &str) -> Member {
    let says =
        Answer { version: version.into(), storage: storage.into(), downgrade: downgrade.into(), ..Answer::default() };
    Member { id, name: format!("m{id}"), says: Some(says), ..Member::default() }
}

/// Members of these minor versions, numbered from 1.
fn cluster(minors: &[u64]) -> Cluster {
    let minors = minors.iter().zip(1..);
    let members = minors.map(|(minor, id)| member(id, &format!("3.{minor}.1"), "", "")).collect();
    Cluster { members, alarms: vec![] }
}

/// The version that etcd's leader settles on when all members answer: it rises to the oldest, and never falls.
fn settles(before: u64, members: &[u64]) -> u64 {
    members.iter().copied().min().unwrap_or(before).max(before)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each allowed upgrade is survived: the new system starts, the cluster settles, the old system starts.
    #[test]
    fn a_member_that_may_go_comes_back(minors in vec(4_u64..8, 1..6), new in 3_u64..9) {
        let old = minors[0];
        let before = settles(0, &minors);
        let starts = |minor: u64, settled: u64| minor >= settled;
        let mut after = minors.clone();
        after[0] = new;
        let comes_back = starts(new, before) && new <= before + 1 && starts(old, settles(before, &after));
        let may = cluster(&minors).may_upgrade(1, &system(Slot::A, old), &system(Slot::B, new));
        prop_assert_eq!(may.is_ok(), comes_back, "{:?}", may);
        // Without the wish to come back: it only has to start.
        let may = cluster(&minors).may_run(1, &system(Slot::B, new));
        prop_assert_eq!(may.is_ok(), starts(new, before) && new <= before + 1, "{:?}", may);
    }

    /// A member that does not answer makes nothing possible that was not.
    #[test]
    fn silence_allows_nothing(minors in vec(4_u64..8, 1..6), silent in vec(any::<bool>(), 6), new in option::of(3_u64..9)) {
        let new = System { slot: Slot::B, etcd: new.map(|minor| format!("3.{minor}.0")) };
        let old = system(Slot::A, minors[0]);
        let all = cluster(&minors);
        let mut less = all.clone();
        less.members.iter_mut().zip(&silent).filter(|(_, silent)| **silent).for_each(|(member, _)| member.says = None);
        if let (Ok(()), Err(why)) = (less.may_upgrade(1, &old, &new), all.may_upgrade(1, &old, &new)) {
            // Only that a new one is too new for a member that says nothing cannot be seen.
            prop_assert!(matches!(why, Blocked::Skips { .. }), "{:?}", why);
        }
    }
}

/// From 3.6 on etcd says which version its data has, and lowers it on demand.
#[test]
fn a_downgrade_opens_the_way_back() {
    let of = |storage: &str, downgrade: &str| {
        let members = (1..=3).map(|id| member(id, "3.7.2", storage, downgrade)).collect();
        Cluster { members, alarms: vec![] }
    };
    let (old, new) = (system(Slot::A, 6), system(Slot::B, 7));
    let why = of("3.7.0", "").may_run(2, &old).unwrap_err();
    assert_eq!(why, Blocked::TooOld { slot: Slot::A, has: version(6), needs: version(7) });
    // Enabled, and this member is not ready yet, or does not say so.
    assert_eq!(of("3.7.0", "3.6.0").may_run(2, &old), Err(why.clone()));
    assert_eq!(of("", "3.6.0").may_run(2, &old), Err(why));
    let ready = of("3.6.0", "3.6.0");
    assert_eq!((ready.may_run(2, &old), ready.may_run(2, &new)), (Ok(()), Ok(())));
    // On the way down a member can still return to where it comes from.
    assert_eq!(ready.may_upgrade(2, &new, &old), Ok(()));
    // Not two at once, and not up again meanwhile.
    assert!(matches!(ready.may_run(2, &system(Slot::A, 5)), Err(Blocked::TooOld { .. })));
    assert!(matches!(ready.may_run(2, &system(Slot::A, 8)), Err(Blocked::Skips { .. })));
}

#[test]
fn what_is_not_known_is_not_fine() {
    let unnamed = |slot| System { slot, etcd: None };
    let cluster = cluster(&[5, 5, 5]);
    assert_eq!(cluster.may_run(1, &unnamed(Slot::B)), Err(Blocked::Unnamed(Slot::B)));
    assert_eq!(cluster.may_upgrade(1, &unnamed(Slot::A), &system(Slot::B, 5)), Err(Blocked::Unnamed(Slot::A)));
    let odd = System { slot: Slot::B, etcd: Some("newest".to_owned()) };
    assert_eq!(cluster.may_run(1, &odd), Err(Blocked::Unnamed(Slot::B)));
    let silent = Cluster { members: vec![Member { id: 1, ..Member::default() }], alarms: vec![] };
    assert_eq!(silent.may_run(1, &system(Slot::B, 5)), Err(Blocked::NoAnswer));
}

#[test]
fn what_blocks_is_said() {
    let (slot, v) = (Slot::A, version);
    let said = [
        (
            Blocked::TooOld { slot, has: v(6), needs: v(7) },
            "etcd 3.6 in slot A cannot read the data, which needs 3.7 or newer: run `etcdctl downgrade enable 3.6`, wait \
             until `etcdctl endpoint status` names the storage version 3.6 for every member, then take the members back \
             one after the other",
        ),
        (
            Blocked::TooOld { slot, has: v(5), needs: v(7) },
            "etcd 3.5 in slot A cannot read the data, which needs 3.7 or newer: etcd goes back by one minor version at a \
             time, to 3.6 first",
        ),
        (
            Blocked::TooOld { slot, has: v(4), needs: v(5) },
            "etcd 3.4 in slot A cannot read the data, which needs 3.5 or newer: etcd 3.5 has no downgrade; only a snapshot \
             that 3.4 has made can be restored",
        ),
        (
            Blocked::Skips { slot, has: v(6), oldest: v(4) },
            "etcd 3.6 in slot A is more than one minor version above the cluster's 3.4: upgrade all members to the version \
             between first",
        ),
        (
            Blocked::NoWayBack { slot, has: v(4), then: v(5) },
            "it would close the way back: this is the last member with etcd 3.4, and once all have 3.5 the system in slot \
             A cannot read the data; make a snapshot of etcd, then ask with --allow-any-etcd",
        ),
    ];
    for (why, text) in said {
        assert_eq!(why.to_string(), text);
    }
}
