//! A member behind a cable that is pulled: what its node and the others decide.

use slipway_node::quorum::Going;
use uuid::Uuid;

use crate::{
    cluster,
    net::{self, Network},
};

#[test]
fn behind_a_partition_nobody_goes_and_nobody_takes_the_lock() {
    if !cluster::is_here() || !net::can_be_made() {
        return;
    }
    let net = Network::start();
    let until = |n: usize, is_so: fn(&Result<(), String>) -> bool| loop {
        let answer = net.at(n, |etcd| etcd.may_go(Going::Down));
        if is_so(&answer) {
            return answer;
        }
    };
    assert_eq!(until(0, Result::is_ok), Ok(()));
    let (held, other) = (Uuid::new_v4(), Uuid::new_v4());
    assert_eq!(net.at(2, |etcd| etcd.lock(held)), Ok(()));
    net.cable(2, false);
    // The majority sees that one is missing, and stays; the lock is still the other side's.
    assert!(until(0, |answer| answer.as_ref().is_err_and(|why| why.contains("m2"))).is_err());
    let refused = loop {
        // A leader that is gone must be missed first.
        match net.at(0, |etcd| etcd.lock(other)) {
            Err(why) if why.contains("holds") => break why,
            Err(_) => {}
            Ok(()) => panic!("the lock was taken twice"),
        }
    };
    assert!(refused.contains(&held.to_string()), "{refused}");
    // The side of one knows nothing for certain: it neither goes, nor believes that it has what it had.
    assert!(net.at(2, |etcd| etcd.may_go(Going::Down)).is_err());
    assert!(net.at(2, |etcd| etcd.is_held(held)).is_err());
    assert!(net.at(2, |etcd| etcd.unlock(held)).is_err());
    net.cable(2, true);
    while net.at(2, |etcd| etcd.is_held(held)) != Ok(true) {}
    assert_eq!(until(2, Result::is_ok), Ok(()));
    while net.at(2, |etcd| etcd.unlock(held)).is_err() {}
    while net.at(0, |etcd| etcd.lock(other)).is_err() {}
}
