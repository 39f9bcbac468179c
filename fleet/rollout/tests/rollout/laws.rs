//! Rollouts of random fleets, with random policies: forbidden actions, and an end of each rollout.

use proptest::{collection::vec, prelude::*, sample::select};
use slipway_rollout::plan::Order;

use crate::world::{Fate, World, fate, fleet, hours, policies, words};

fn order() -> impl Strategy<Value = Order> {
    select(vec![Order::ControlPlaneFirst, Order::ControlPlaneLast])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_faults_every_rollout_ends(
        fleet in fleet(), takes in vec(1_u8..5, 8), policies in policies(), hours in hours(), order in order(), own in 0_usize..9
    ) {
        let nodes: Vec<_> = fleet.into_iter().zip(takes).map(|(node, takes)| (node, Fate::Reaches, takes)).collect();
        let mut world = World::new(&nodes, policies, hours, order, own);
        prop_assert!(world.run(1000), "{:?}", world.facts);
        prop_assert!(world.is_reached());
    }

    #[test]
    fn with_faults_no_law_is_broken(
        fleet in fleet(), fates in vec((fate(), 1_u8..5), 8), policies in policies(), hours in hours(), order in order(), own in 0_usize..9
    ) {
        let nodes: Vec<_> = fleet.into_iter().zip(fates).map(|(node, (fate, takes))| (node, fate, takes)).collect();
        let mut world = World::new(&nodes, policies, hours, order, own);
        if world.run(400) {
            prop_assert!(world.facts.ledger.grants.is_empty());
        }
    }

    /// Silence and lost requests only make it longer.
    #[test]
    fn with_nodes_that_come_back_every_rollout_ends(
        fleet in fleet(), silent in vec((0_u8..3, 1_u8..30, 1_u8..5), 8), policies in policies(), hours in hours(), order in order()
    ) {
        let fate = |kind, looks| match kind {
            0 => Fate::Reaches,
            1 => Fate::Silent(looks),
            _ => Fate::Deaf(looks),
        };
        let with = |(node, (kind, looks, takes))| (node, fate(kind, looks), takes);
        let nodes: Vec<_> = fleet.into_iter().zip(silent).map(with).collect();
        let mut world = World::new(&nodes, policies, hours, order, 9);
        prop_assert!(world.run(3000), "{:?}", world.facts);
        prop_assert!(world.is_reached());
    }

    /// People have it go now, and give it up. Each node that is at it goes back, and gives its grant back.
    #[test]
    fn with_peoples_words_no_law_is_broken(
        fleet in fleet(), fates in vec((fate(), 1_u8..5), 8), policies in policies(), hours in hours(), words in words()
    ) {
        let nodes: Vec<_> = fleet.into_iter().zip(fates).map(|(node, (fate, takes))| (node, fate, takes)).collect();
        let mut world = World::new(&nodes, policies, hours, Order::default(), 9);
        world.words = words;
        let is_over = world.run(400);
        if is_over {
            prop_assert!(world.facts.ledger.grants.is_empty());
        } else if world.facts.aborted.is_some() {
            prop_assert!(world.is_at_rest(), "{:?}", world.facts);
        }
    }
}
