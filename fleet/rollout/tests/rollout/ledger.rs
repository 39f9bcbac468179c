//! Nodes that may be disturbed, and the end of a grant.

use jiff::Timestamp;
use slipway_rollout::{
    duration::PositiveDuration,
    ledger::{Given, Grant, Ledger, Limits, Node, Proof, Rate, Refusal, ReleaseRefusal},
};

use crate::{at, control_plane, limits, noon, worker};

/// The ledger with grants for these nodes.
fn held(nodes: &[Node]) -> Ledger {
    let mut ledger = Ledger::default();
    for node in nodes {
        (ledger, _) = ledger.grant(node, &limits(1000, 999), noon()).unwrap();
    }
    ledger
}

fn well(token: u64) -> Proof {
    Proof::Well { token }
}

#[test]
fn the_budget_is_of_the_object_that_is_written() {
    let ledger = held(&[worker("a-1"), worker("b-1")]);
    let (after, token) = ledger.grant(&worker("c-1"), &limits(10, 3), noon()).unwrap();
    assert_eq!((after.grants.len(), after.epoch, token), (3, 3, 3));
    let refused = after.grant(&worker("d-1"), &limits(10, 3), noon()).unwrap_err();
    let report = "3 of the 10 nodes of pool pool may be unavailable at once, and these are: a-1, b-1, c-1";
    assert_eq!(refused.to_string(), report);
    // Another pool has its own.
    let elsewhere = Node { pool: "other".to_owned(), ..worker("d-1") };
    assert!(after.grant(&elsewhere, &limits(2, 1), noon()).is_ok());
    // 0 is nothing.
    assert!(matches!(Ledger::default().grant(&worker("a-1"), &limits(10, 0), noon()), Err(Refusal::Budget { .. })));
}

#[test]
fn a_node_holds_one_grant() {
    let ledger = held(&[worker("a-1")]);
    let refused = ledger.grant(&worker("a-1"), &limits(10, 3), noon()).unwrap_err();
    assert_eq!(refused, Refusal::Holds { token: 1 });
}

#[test]
fn a_silent_node_stays_charged_for_ever() {
    let ledger = held(&[worker("a-1")]);
    for years in ["2027", "2036", "9999"] {
        let now: Timestamp = at(&format!("{years}-01-01T00:00Z"));
        let refused = ledger.grant(&worker("b-1"), &limits(10, 1), now).unwrap_err();
        assert!(matches!(refused, Refusal::Budget { .. }), "{refused}");
    }
}

#[test]
fn nodes_that_are_ill_count_too() {
    let down = vec![worker("a-1"), worker("b-1")];
    let ill = Limits { down, ..limits(10, 2) };
    let refused = Ledger::default().grant(&worker("c-1"), &ill, noon()).unwrap_err();
    assert!(matches!(refused, Refusal::Budget { ref charged, .. } if *charged == ["a-1", "b-1"]));
    // One that is ill and holds a grant counts once.
    let ledger = held(&[worker("a-1")]);
    let ill = Limits { down: vec![worker("a-1")], ..limits(10, 2) };
    assert!(ledger.grant(&worker("c-1"), &ill, noon()).is_ok());
}

#[test]
fn a_node_that_is_ill_may_be_mended_while_others_are_ill() {
    let down = vec![worker("a-1"), worker("b-1"), control_plane("c-1"), control_plane("c-2")];
    let ill = Limits { down, ..limits(10, 1) };
    let (ledger, _) = Ledger::default().grant(&worker("a-1"), &ill, noon()).unwrap();
    assert!(Ledger::default().grant(&control_plane("c-1"), &ill, noon()).is_ok());
    // One after the other, all the same.
    assert!(matches!(ledger.grant(&worker("b-1"), &ill, noon()), Err(Refusal::Budget { .. })));
    let ledger = held(&[control_plane("c-2")]);
    let refused = ledger.grant(&control_plane("c-1"), &Limits { down: ill.down, ..limits(10, 5) }, noon()).unwrap_err();
    assert_eq!(refused, Refusal::ControlPlane { other: "c-2".to_owned() });
}

#[test]
fn one_node_of_the_control_plane_in_the_whole_cluster() {
    let elsewhere = Node { pool: "other".to_owned(), ..control_plane("a-1") };
    let ledger = held(std::slice::from_ref(&elsewhere));
    let refused = ledger.grant(&control_plane("b-1"), &limits(10, 5), noon()).unwrap_err();
    assert_eq!(refused.to_string(), "one node of the control plane at a time: a-1 is unavailable");
    assert!(ledger.grant(&worker("b-2"), &limits(10, 5), noon()).is_ok());
    // Nor while another one is ill.
    let ill = Limits { down: vec![elsewhere], ..limits(10, 5) };
    let refused = Ledger::default().grant(&control_plane("b-1"), &ill, noon()).unwrap_err();
    assert_eq!(refused, Refusal::ControlPlane { other: "a-1".to_owned() });
}

#[test]
fn one_zone_at_a_time() {
    let one = Limits { max_domains: Some(1), ..limits(10, 5) };
    let ledger = held(&[worker("a-1")]);
    assert!(ledger.grant(&worker("a-2"), &one, noon()).is_ok());
    let refused = ledger.grant(&worker("b-1"), &one, noon()).unwrap_err();
    assert_eq!(refused.to_string(), "nodes of 1 zones may be unavailable at once, and some are in a");
    let two = Limits { max_domains: Some(2), ..one.clone() };
    assert!(ledger.grant(&worker("b-1"), &two, noon()).is_ok());
    // Its zone is unknown; a node with an unknown zone is elsewhere.
    let nowhere = Node { zone: None, ..worker("x-1") };
    assert_eq!(ledger.grant(&nowhere, &two, noon()).unwrap_err(), Refusal::NoZone);
    assert!(matches!(held(&[nowhere]).grant(&worker("a-1"), &one, noon()), Err(Refusal::Zone { .. })));
    // A node that is ill in another zone counts, too.
    let ill = Limits { down: vec![worker("b-1")], ..one };
    assert!(matches!(ledger.grant(&worker("a-2"), &ill, noon()), Err(Refusal::Zone { .. })));
}

#[test]
fn a_grant_is_given_while_the_window_is_open_also_on_a_second_try() {
    let until = at("2026-06-01T14:00Z");
    let open = Limits { until: Some(until), ..limits(10, 5) };
    let ledger = Ledger::default();
    assert!(ledger.grant(&worker("a-1"), &open, at("2026-06-01T13:59:59Z")).is_ok());
    assert_eq!(ledger.grant(&worker("a-1"), &open, until).unwrap_err(), Refusal::Closed);
    // A clock that goes backwards.
    assert_eq!(ledger.grant(&worker("a-1"), &open, at("2026-06-01T11:59:59Z")).unwrap_err(), Refusal::Closed);
}

#[test]
fn a_rate_counts_what_was_given_and_not_what_is_held() {
    let rate = Rate { count: 2, per: PositiveDuration::minutes(60) };
    let slow = Limits { rates: vec![rate], ..limits(10, 9) };
    let (ledger, token) = Ledger::default().grant(&worker("a-1"), &slow, at("2026-06-01T12:00Z")).unwrap();
    let ledger = ledger.free("uid-a-1", &well(token)).unwrap();
    let (ledger, _) = ledger.grant(&worker("a-2"), &slow, at("2026-06-01T12:10Z")).unwrap();
    let refused = ledger.grant(&worker("a-3"), &slow, at("2026-06-01T12:59Z")).unwrap_err();
    assert_eq!(refused, Refusal::Rate { count: 2, per: rate.per, again: Some(at("2026-06-01T13:00Z")) });
    let (ledger, _) = ledger.grant(&worker("a-3"), &slow, at("2026-06-01T13:00Z")).unwrap();
    // Grants that no rate counts any more are not kept.
    assert_eq!(ledger.given.len(), 2);
    // One from a clock that was ahead counts.
    let ahead = Given { pool: "pool".to_owned(), at: at("2027-01-01T00:00Z") };
    let ledger = Ledger { given: vec![ahead.clone(), ahead], ..Ledger::default() };
    assert!(matches!(ledger.grant(&worker("a-1"), &slow, noon()), Err(Refusal::Rate { .. })));
}

#[test]
fn tokens_rise_over_what_was_freed_and_what_was_edited() {
    let ledger = held(&[worker("a-1"), worker("b-1")]);
    let ledger = ledger.free("uid-b-1", &well(2)).unwrap();
    let (ledger, token) = ledger.grant(&worker("b-1"), &limits(10, 5), noon()).unwrap();
    assert_eq!((token, ledger.epoch), (3, 3));
    // A person set the epoch back.
    let edited = Ledger { epoch: 0, ..ledger.clone() };
    assert_eq!(edited.grant(&worker("c-1"), &limits(10, 5), noon()).unwrap().1, 4);
    assert_eq!(edited.free("uid-b-1", &well(3)).unwrap().epoch, 3);
    let spent = Ledger { epoch: u64::MAX, ..ledger };
    assert_eq!(spent.grant(&worker("c-1"), &limits(10, 5), noon()).unwrap_err(), Refusal::Spent);
}

#[test]
fn a_node_frees_itself_with_its_token_only() {
    let ledger = held(&[worker("a-1"), worker("b-1")]);
    for token in [0, 1, 3, u64::MAX] {
        assert_eq!(
            ledger.free("uid-b-1", &well(token)).unwrap_err(),
            ReleaseRefusal::AnotherToken { token, granted: 2 }
        );
    }
    let after = ledger.free("uid-b-1", &well(2)).unwrap();
    assert_eq!((after.grants.len(), after.epoch), (1, 2));
    // The same message again.
    assert_eq!(after.free("uid-b-1", &well(2)).unwrap_err(), ReleaseRefusal::NoGrant);
}

#[test]
fn absence_frees_a_worker_and_a_member_that_is_gone_too() {
    let ledger = held(&[worker("a-1"), control_plane("b-1")]);
    let gone = |member_gone| Proof::Gone { member_gone };
    assert_eq!(ledger.free("uid-a-1", &gone(false)).unwrap().grants.len(), 1);
    assert_eq!(ledger.free("uid-b-1", &gone(false)).unwrap_err(), ReleaseRefusal::MemberThere);
    assert_eq!(ledger.free("uid-b-1", &gone(true)).unwrap().grants.len(), 1);
}

#[test]
fn a_node_that_was_made_again_under_its_name_is_another_one() {
    let ledger = held(&[worker("a-1")]);
    let again = Node { uid: "another".to_owned(), ..worker("a-1") };
    assert_eq!(ledger.free("another", &well(1)).unwrap_err(), ReleaseRefusal::NoGrant);
    assert!(matches!(ledger.grant(&again, &limits(10, 1), noon()), Err(Refusal::Budget { .. })));
    assert_eq!(ledger.grant(&again, &limits(10, 2), noon()).unwrap().0.grants.len(), 2);
}

#[test]
fn a_person_frees_with_a_reason() {
    let ledger = held(&[worker("a-1")]);
    let word = |who: &str, why: &str| Proof::Word { who: who.to_owned(), why: why.to_owned() };
    for (who, why) in [("", "it burnt"), ("eve", ""), ("eve", "  ")] {
        assert_eq!(ledger.free("uid-a-1", &word(who, why)).unwrap_err(), ReleaseRefusal::NoReason);
    }
    assert_eq!(ledger.free("uid-a-1", &word("eve", "it burnt")).unwrap().grants, []);
}

#[test]
fn it_is_kept_as_data() {
    let slow = Limits { rates: vec![Rate { count: 2, per: PositiveDuration::minutes(60) }], ..limits(10, 9) };
    let (ledger, _) = Ledger::default().grant(&control_plane("a-1"), &slow, noon()).unwrap();
    let json = r#"{"epoch":1,"grants":[{"node":{"uid":"uid-a-1","name":"a-1","pool":"pool","zone":"a","role":"control-plane"},"token":1,"since":"2026-06-01T12:00:00Z"}],"given":[{"pool":"pool","at":"2026-06-01T12:00:00Z"}]}"#;
    assert_eq!(serde_json::to_string(&ledger).unwrap(), json);
    assert_eq!(serde_json::from_str::<Ledger>(json).unwrap(), ledger);
    assert_eq!(serde_json::from_str::<Ledger>("{}").unwrap(), Ledger::default());
    assert!(matches!(&ledger.grants[..], [Grant { token: 1, .. }]));
}

/// A node that the labels of a younger pool name, too, has to have room there; and its grant takes a place there.
#[test]
fn a_node_of_two_pools_counts_in_both() {
    let here = |name: &str| Node { pool: "younger".to_owned(), ..worker(name) };
    let shared = [("a-1".to_owned(), here("a-1"))].into();
    let younger = Limits { shared, max_domains: Some(2), ..limits(3, 1) };
    let older = Limits { younger: vec![younger.clone()], ..limits(9, 9) };
    let mut ledger = Ledger::default();
    (ledger, _) = ledger.grant(&worker("a-1"), &older, noon()).unwrap();
    let refused = ledger.grant(&here("b-1"), &younger, noon()).unwrap_err();
    assert!(
        matches!(&refused, Refusal::Budget { pool, charged, .. } if pool == "younger" && *charged == ["a-1"]),
        "{refused}"
    );
    let (ledger, _) = Ledger::default().grant(&here("b-1"), &younger, noon()).unwrap();
    let refused = ledger.grant(&worker("a-1"), &older, noon()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the labels of the younger pool younger name it, too, and it counts there: 1 of the 3 nodes of pool younger may be \
         unavailable at once, and these are: b-1"
    );
    // Others of the older pool are none of its business, and one that was made again under its name is.
    assert!(ledger.grant(&worker("a-2"), &older, noon()).is_ok());
    let again = Node { uid: "uid-again".to_owned(), ..worker("a-1") };
    assert!(matches!(ledger.grant(&again, &older, noon()), Err(Refusal::Shared { .. })));
    // One that is ill takes nothing away by going.
    let ill = Limits { down: vec![here("a-1"), here("b-2")], ..younger };
    let older = Limits { younger: vec![ill], ..older };
    assert!(Ledger::default().grant(&worker("a-1"), &older, noon()).is_ok());
}
