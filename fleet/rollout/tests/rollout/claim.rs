//! The claim of an upgrade of Kubernetes, and grants: never both.

use std::collections::BTreeSet;

use slipway_rollout::{
    blocked::Blocked,
    claim::ClaimRefusal,
    decide::decide,
    ledger::{KubernetesClaim, Ledger, Proof, Refusal},
};

use crate::{
    decide::{four, granted, two_at_once, why},
    limits, noon, worker,
};

fn claimed(ledger: &Ledger) -> Result<Ledger, ClaimRefusal> {
    ledger.claim("1.31.2", &BTreeSet::new(), noon())
}

#[test]
fn no_grant_is_given_while_it_is_held_and_it_is_not_given_while_a_grant_is() {
    let (ledger, token) = Ledger::default().grant(&worker("a-1"), &limits(10, 5), noon()).unwrap();
    assert_eq!(claimed(&ledger), Err(ClaimRefusal::Grants { nodes: vec!["a-1".to_owned()] }));
    let free = ledger.free("uid-a-1", &Proof::Well { token }).unwrap();
    let ledger = claimed(&free).unwrap();
    assert_eq!(ledger.kubernetes, Some(KubernetesClaim { token: 2, version: "1.31.2".to_owned(), since: noon() }));
    let refused = ledger.grant(&worker("a-2"), &limits(10, 5), noon()).unwrap_err();
    assert_eq!(refused, Refusal::Kubernetes { version: "1.31.2".to_owned(), token: 2 });
    // The same upgrade goes on with it, in another run; another version waits.
    assert_eq!(claimed(&ledger).unwrap(), ledger);
    let other = ledger.claim("1.32.0", &BTreeSet::new(), noon());
    assert_eq!(other, Err(ClaimRefusal::Claimed { version: "1.31.2".to_owned(), token: 2 }));
    // Only its own token frees it, and that token is not given again.
    assert_eq!(ledger.unclaim(1), ledger);
    let free = ledger.unclaim(2);
    assert_eq!((free.kubernetes.clone(), free.epoch), (None, 2));
    assert_eq!(free.grant(&worker("a-2"), &limits(10, 5), noon()).unwrap().1, 3);
    // Also where the epoch was edited, and where a release names a token.
    let edited = Ledger { epoch: 0, ..ledger };
    assert_eq!(edited.highest(), 2);
    let named = free.claim("1.31.2", &BTreeSet::from([3, 4]), noon()).unwrap();
    assert_eq!(named.kubernetes.unwrap().token, 5);
}

#[test]
fn nodes_that_could_go_say_that_kubernetes_is_upgraded() {
    let mut fleet = four(two_at_once());
    assert_eq!(granted(&fleet), [0, 1]);
    fleet.ledger = claimed(&fleet.ledger).unwrap();
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    assert!(why(&fleet, 0).starts_with("Kubernetes is upgraded to 1.31.2, with the claim 1"), "{}", why(&fleet, 0));
    let first = decide(&fleet, noon()).blocked.remove(0).why;
    assert!(matches!(&first, Blocked::Refused(_)) && first.reason() == "KubernetesUpgrade");
}

/// What an older controller makes of a ledger whose field it does not know.
#[test]
fn what_a_newer_program_has_written_stays_and_nothing_is_given_beside_it() {
    let mut fleet = four(two_at_once());
    let (held, token) = fleet.ledger.grant(&worker("z-1"), &limits(10, 5), noon()).unwrap();
    let mut newer = serde_json::to_value(&held).unwrap();
    newer["maintenance"] = serde_json::json!({ "token": 9 });
    fleet.ledger = serde_json::from_value(newer.clone()).unwrap();
    let refused = fleet.ledger.grant(&worker("a-1"), &limits(10, 5), noon()).unwrap_err();
    assert_eq!(refused, Refusal::Newer { fields: vec!["maintenance".to_owned()] });
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    let first = decide(&fleet, noon()).blocked.remove(0).why;
    assert_eq!(first.reason(), "LedgerNewer", "{first}");
    // A grant is freed nevertheless; the field stays, and no claim is given either.
    let freed = fleet.ledger.free("uid-z-1", &Proof::Well { token }).unwrap();
    assert_eq!(
        (freed.grants.len(), serde_json::to_value(&freed).unwrap()["maintenance"]["token"].as_u64()),
        (0, Some(9))
    );
    assert!(matches!(claimed(&freed), Err(ClaimRefusal::Ledger(Refusal::Newer { .. }))));
    newer.as_object_mut().unwrap().remove("maintenance");
    assert_eq!(serde_json::from_value::<Ledger>(newer).unwrap(), held);
}

#[test]
fn it_is_kept_as_data() {
    let json = r#"{"epoch":1,"grants":[],"given":[],"kubernetes":{"token":1,"version":"1.31.2","since":"2026-06-01T12:00:00Z"}}"#;
    assert_eq!(serde_json::to_string(&claimed(&Ledger::default()).unwrap()).unwrap(), json);
    assert_eq!(serde_json::from_str::<Ledger>(json).unwrap(), claimed(&Ledger::default()).unwrap());
}
