//! The facts from which tests begin.

use std::collections::BTreeSet;

use slipway_rollout::{
    facts::{Facts, ObservedNode},
    ledger::Ledger,
    plan::Plan,
    policy::Rules,
};

/// What is seen before anything happened.
pub fn facts(plan: Plan, rules: Rules, nodes: Vec<ObservedNode>) -> Facts {
    Facts {
        plan,
        passed: 0,
        rules,
        nodes,
        elsewhere: Vec::new(),
        ledger: Ledger::default(),
        evidence: Vec::new(),
        skip: BTreeSet::new(),
        paused: None,
        denied: None,
        finished: false,
        rollback: None,
        aborted: None,
        window_override: None,
        replacing: Default::default(),
        created: None,
        soaking_since: None,
        retry: None,
        named_tokens: BTreeSet::new(),
    }
}
