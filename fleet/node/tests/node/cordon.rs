//! The node's service takes out of a Node what it wrote into it, and nothing else.

use proptest::{option, prelude::*};
use slipway_node::cordon::{CordonError, NodeState, cordoned, released};
use uuid::Uuid;

const OURS: Uuid = Uuid::from_u128(1);

fn node() -> impl Strategy<Value = NodeState> {
    let owner = prop_oneof![Just(OURS.to_string()), Just(Uuid::from_u128(2).to_string()), "[a-z]{0,3}"];
    let before = prop_oneof![Just("true".to_owned()), Just("false".to_owned()), "[a-z]{0,3}"];
    (any::<bool>(), option::of(owner), option::of(before)).prop_map(|(unschedulable, owner, before)| NodeState {
        unschedulable,
        owner,
        before,
    })
}

fn plain(unschedulable: bool) -> NodeState {
    NodeState { unschedulable, owner: None, before: None }
}

#[test]
fn what_was_cordoned_before_stays_cordoned_and_nothing_else_does() {
    for before in [false, true] {
        let ours = cordoned(&plain(before), OURS).unwrap();
        assert!(ours.unschedulable && ours.owner == Some(OURS.to_string()));
        assert_eq!(released(&ours, OURS), plain(before));
        // A person uncordons it meanwhile, whether Cordon is done again or not.
        let theirs = NodeState { unschedulable: false, ..ours };
        assert_eq!(released(&theirs, OURS), plain(false));
        assert_eq!(released(&cordoned(&theirs, OURS).unwrap(), OURS), plain(false));
    }
}

/// One whose journal is lost, for example. What is cordoned then would stay so.
#[test]
fn who_finds_the_cordon_of_another_operation_is_told_both_things_to_do() {
    let theirs = NodeState { unschedulable: true, owner: Some("theirs".to_owned()), before: Some("false".to_owned()) };
    let told = cordoned(&theirs, OURS).unwrap_err().to_string();
    assert!(
        told.contains("`kubectl uncordon` the node, unless") && told.ends_with("node.slipway.dev/cordoned-by"),
        "{told}"
    );
    let uncordoned = NodeState { unschedulable: false, owner: None, ..theirs };
    assert_eq!(released(&cordoned(&uncordoned, OURS).unwrap(), OURS), plain(false));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn to_cordon_or_release_twice_is_to_do_it_once(node in node()) {
        if let Ok(once) = cordoned(&node, OURS) {
            prop_assert!(once.unschedulable);
            prop_assert_eq!(cordoned(&once, OURS).unwrap(), once.clone());
        }
        let once = released(&node, OURS);
        prop_assert_eq!(released(&once, OURS), once);
    }

    #[test]
    fn what_another_operation_holds_is_left_alone(node in node()) {
        let is_others = node.owner.as_ref().is_some_and(|owner| *owner != OURS.to_string());
        let owner = node.owner.clone().unwrap_or_default();
        prop_assert_eq!(cordoned(&node, OURS) == Err(CordonError::Another(owner)), is_others);
        if node.owner != Some(OURS.to_string()) {
            prop_assert_eq!(released(&node, OURS), node);
        } else {
            let after = released(&node, OURS);
            prop_assert_eq!((&after.owner, &after.before), (&None, &None));
            // It is never cordoned by being released, and in doubt it stays cordoned.
            let stays = node.unschedulable && node.before.as_deref() != Some("false");
            prop_assert_eq!(after.unschedulable, stays);
        }
    }
}
